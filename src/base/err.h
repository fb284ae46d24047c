/* Errors as plain data.
 *
 * Every fallible function returns 0 or a positive value on success and a negative errno on failure, and fills `err`
 * (which may be NULL) with a code, a message that names the thing and the remedy, and the errno.  The struct has a
 * fixed size, needs no allocation, and may be written through a pipe in one go or used after clone().
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

enum cop_err_code {
#define X(name, status, retryable, meaning) COP_ERR_##name,
#include "err.def"
#undef X
        COP_ERR__MAX,
};

#define COP_ERROR_MESSAGE_MAX 1000

struct cop_error {
        int errnum; /* positive errno, never 0 once set */
        enum cop_err_code code;
        char message[COP_ERROR_MESSAGE_MAX];
};

/* Fills *err and returns -errnum, so that `return cop_error_set(err, ENOENT, COP_ERR_…, "…")` is the usual form. errnum
 * must be positive; 0 is turned into EIO.  Messages are cut at COP_ERROR_MESSAGE_MAX - 1 bytes, at a UTF-8 border, and
 * are always valid UTF-8: other bytes become '?'. */
int cop_error_set(struct cop_error *err, int errnum, enum cop_err_code code, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/* As cop_error_set with the code derived from errnum (ENOSPC/EDQUOT -> disk_full, ENOMEM -> no_memory, ENOENT and
 * others -> io_error) and ": strerror" appended to the message. */
int cop_error_errno(struct cop_error *err, int errnum, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the message; keeps code and errnum.  Returns r unchanged.  Once per layer crossed. */
int cop_error_wrap(struct cop_error *err, int r, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* API name ("sandbox_not_found"), HTTP status and retryable flag of a code; code out of range gives `internal`. */
const char *cop_err_code_name(enum cop_err_code code);
int cop_err_code_status(enum cop_err_code code);
bool cop_err_code_retryable(enum cop_err_code code);

/* The code with this API name, or -ENOENT. */
int cop_err_code_from_name(const char *name);

#define COP_ERROR_NULL ((struct cop_error){0})

#if defined(__clang_analyzer__) && !defined(COP_ERR_C)
/* clang-tidy does not see into err.c and would follow paths on which these give 0. */
static inline int cop_error_is_negative(int r)
{
        if (r >= 0)
                __builtin_unreachable();
        return r;
}
#define cop_error_set(...) cop_error_is_negative(cop_error_set(__VA_ARGS__))
#define cop_error_errno(...) cop_error_is_negative(cop_error_errno(__VA_ARGS__))
#endif
