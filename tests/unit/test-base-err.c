#include "lib/test.h"

#include <stdio.h>

#include "base/err.h"
#include "base/utf8.h"

TEST(set_fills_all_of_it)
{
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_ERRNO(cop_error_set(&err, ENOENT, COP_ERR_sandbox_not_found, "no sandbox %s", "x"), ENOENT);
        ASSERT_EQ(err.errnum, ENOENT);
        ASSERT_EQ(err.code, COP_ERR_sandbox_not_found);
        ASSERT_STR(err.message, "no sandbox x");
}

TEST(a_null_error_is_allowed_everywhere)
{
        ASSERT_ERRNO(cop_error_set(NULL, EPERM, COP_ERR_forbidden, "x"), EPERM);
        ASSERT_ERRNO(cop_error_errno(NULL, EPERM, "x"), EPERM);
        ASSERT_ERRNO(cop_error_wrap(NULL, -EPERM, "x"), EPERM);
}

TEST(success_can_never_be_reported_by_accident)
{
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_ERRNO(cop_error_set(&err, 0, COP_ERR_internal, "x"), EIO);
        ASSERT_ERRNO(cop_error_errno(&err, 0, "x"), EIO);
        ASSERT_ERRNO(cop_error_set(&err, -5, COP_ERR_internal, "x"), EIO);
}

TEST(errno_gives_code_and_text)
{
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_ERRNO(cop_error_errno(&err, -ENOSPC, "writing %s", "f"), ENOSPC); /* either sign */
        ASSERT_EQ(err.code, COP_ERR_disk_full);
        ASSERT_STR(err.message, "writing f: No space left on device");
        cop_error_errno(&err, ENOMEM, "x");
        ASSERT_EQ(err.code, COP_ERR_no_memory);
        cop_error_errno(&err, ENOENT, "x");
        ASSERT_EQ(err.code, COP_ERR_io_error);
}

TEST(wrap_puts_context_in_front)
{
        struct cop_error err = COP_ERROR_NULL;
        int r = cop_error_set(&err, EACCES, COP_ERR_forbidden, "not yours");

        ASSERT_ERRNO(cop_error_wrap(&err, r, "opening %d", 7), EACCES);
        ASSERT_STR(err.message, "opening 7: not yours");
        ASSERT_EQ(err.code, COP_ERR_forbidden);
}

TEST(messages_are_cut_and_stay_valid_utf8)
{
        struct cop_error err = COP_ERROR_NULL;
        char longest[3 * COP_ERROR_MESSAGE_MAX];

        for (size_t i = 0; i < sizeof(longest) - 1; i += 2)
                memcpy(longest + i, "\xC3\xA9", 2);
        longest[sizeof(longest) - 1 - (sizeof(longest) - 1) % 2] = '\0';
        cop_error_set(&err, EIO, COP_ERR_internal, "x%s", longest);
        ASSERT_EQ(strlen(err.message), COP_ERROR_MESSAGE_MAX - 1);
        ASSERT(cop_utf8_valid(err.message, strlen(err.message)));
        cop_error_wrap(&err, -EIO, "%s", longest);
        ASSERT_LT(strlen(err.message), COP_ERROR_MESSAGE_MAX);
        ASSERT(cop_utf8_valid(err.message, strlen(err.message)));
        cop_error_set(&err, EIO, COP_ERR_internal, "\"%.3s\"", "ab\xC3\xA9");
        ASSERT_STR(err.message, "\"ab?\"");
        cop_error_set(&err, EIO, COP_ERR_internal, "bad \xFF byte");
        ASSERT_STR(err.message, "bad ? byte");
        cop_error_errno(&err, EIO, "%s", longest);
        ASSERT(cop_utf8_valid(err.message, strlen(err.message)));
}

TEST(the_code_table_is_whole)
{
        for (int code = 0; code < COP_ERR__MAX; code++) {
                const char *name = cop_err_code_name((enum cop_err_code)code);
                int status = cop_err_code_status((enum cop_err_code)code);
                ASSERT(name && *name);
                ASSERT_EQ(cop_err_code_from_name(name), code);
                ASSERT(status >= 400 && status < 600);
        }
        ASSERT_ERRNO(cop_err_code_from_name("no_such_code"), ENOENT);
        ASSERT_STR(cop_err_code_name((enum cop_err_code)9999), "internal");
        ASSERT_EQ(cop_err_code_status((enum cop_err_code)9999), 500);
        ASSERT(!cop_err_code_retryable((enum cop_err_code)9999));
        ASSERT(cop_err_code_retryable(COP_ERR_too_many));
}
