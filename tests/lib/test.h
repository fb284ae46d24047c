/* The test harness: tests register themselves, each runs in a process of its own.
 *
 *      #include "lib/test.h"
 *
 *      TEST(numbers_wrap)                      // or TEST_LIMIT(numbers_wrap, 90) for 90 seconds instead of 30
 *      {
 *              struct cop_error err = COP_ERROR_NULL;
 *
 *              if (geteuid() != 0)
 *                      SKIP("needs root");
 *              ASSERT_OK(cop_thing_open(&thing, &err), &err);
 *              ASSERT_EQ(thing->count, 3);
 *              ASSERT_STR(thing->name, "three");
 *      }
 *
 * main() is in test.c.  A test fails when an assertion fails, when it ends by a signal or with a status, when it is
 * over its limit, or when it leaves more or other descriptors open than it found.  Everything it started is killed
 * after it, also what left its process group.  Output: TAP on stdout, diagnostics on stderr, and the closing line "N
 * passed, N failed, N skipped" (or "0 tests" trouble as a failure).  Exit status: 0, or 1 when anything failed.
 *
 *      test-x              all tests          test-x NAME…        only these (a trailing * matches a prefix)
 *      test-x --list       names              test-x --no-fork NAME  in this process, for gdb
 *      MUST_WORK=1         a skip is a failure
 *      TEST_TIMEOUT=N      seconds for every test, instead of its own limit
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/err.h"

struct cop_test {
        const char *name;
        void (*run)(void);
        unsigned limit_seconds;
        struct cop_test *next;
};

#define TEST_DEFAULT_LIMIT 30

#define TEST_LIMIT(test_name, seconds)                                                              \
        static void test_case_##test_name(void);                                                    \
        __attribute__((constructor)) static void test_register_##test_name(void)                    \
        {                                                                                           \
                static struct cop_test test = {#test_name, test_case_##test_name, (seconds), NULL}; \
                test_register(&test);                                                               \
        }                                                                                           \
        static void test_case_##test_name(void)
#define TEST(test_name) TEST_LIMIT(test_name, TEST_DEFAULT_LIMIT)

/* Ends the test as skipped; the reason is printed. */
#define SKIP(...) test_skip(__VA_ARGS__)
/* Ends the test as failed. */
#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)

#define ASSERT(x)                                        \
        do {                                             \
                if (!(x))                                \
                        FAIL("ASSERT(%s) is false", #x); \
        } while (0)

#define test_compare(a, op, b)                                                                                \
        do {                                                                                                  \
                long long _test_a = (long long)(a), _test_b = (long long)(b);                                 \
                if (!(_test_a op _test_b))                                                                    \
                        FAIL("%s %s %s does not hold: %lld (0x%llx) and %lld (0x%llx)", #a, #op, #b, _test_a, \
                             (unsigned long long)_test_a, _test_b, (unsigned long long)_test_b);              \
        } while (0)
/* Integers and pointers, compared as 64-bit signed numbers. Not for floats: ASSERT those. */
#define ASSERT_EQ(a, b) test_compare(a, ==, b)
#define ASSERT_NE(a, b) test_compare(a, !=, b)
#define ASSERT_LT(a, b) test_compare(a, <, b)
#define ASSERT_LE(a, b) test_compare(a, <=, b)
#define ASSERT_GT(a, b) test_compare(a, >, b)
#define ASSERT_GE(a, b) test_compare(a, >=, b)

/* Strings; NULL equals only NULL. */
#define ASSERT_STR(a, b) test_check_str(__FILE__, __LINE__, #a, a, b)
/* needle occurs in haystack. */
#define ASSERT_CONTAINS(haystack, needle) test_check_contains(__FILE__, __LINE__, #haystack, haystack, needle)
#define ASSERT_MEM(a, b, n) test_check_mem(__FILE__, __LINE__, #a, a, b, n)

/* r >= 0, else prints r and err (struct cop_error *, may be NULL).  The call is evaluated before err is looked at. */
#define ASSERT_OK(r, err)                                                      \
        do {                                                                   \
                long long _test_r = (long long)(r);                            \
                if (_test_r < 0)                                               \
                        test_fail_error(__FILE__, __LINE__, #r, _test_r, err); \
        } while (0)
/* r is exactly this negative errno. */
#define ASSERT_ERRNO(r, errnum) test_check_errno(__FILE__, __LINE__, #r, (long long)(r), errnum)
/* r < 0 and err (struct cop_error *) has this code, e.g. COP_ERR_bad_request. */
#define ASSERT_CODE(r, err, wanted)                                            \
        do {                                                                   \
                long long _test_r = (long long)(r);                            \
                test_check_code(__FILE__, __LINE__, #r, _test_r, err, wanted); \
        } while (0)

/* A new empty folder, removed after the test; the same one for every call within a test. */
const char *test_dir(void);
/* Number of open descriptors of this process. */
size_t test_count_fds(void);

void test_register(struct cop_test *test);
_Noreturn void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void test_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
_Noreturn void test_fail_error(const char *file, int line, const char *expression, long long r,
                               const struct cop_error *err);
void test_check_str(const char *file, int line, const char *expression, const char *a, const char *b);
void test_check_contains(const char *file, int line, const char *expression, const char *haystack, const char *needle);
void test_check_mem(const char *file, int line, const char *expression, const void *a, const void *b, size_t n);
void test_check_errno(const char *file, int line, const char *expression, long long r, int errnum);
void test_check_code(const char *file, int line, const char *expression, long long r, const struct cop_error *err,
                     enum cop_err_code wanted);
