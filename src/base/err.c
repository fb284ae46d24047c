#define COP_ERR_C
#include "err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "utf8.h"

static const struct {
        const char *name;
        int status;
        bool retryable;
} code_table[COP_ERR__MAX] = {
#define X(name, status, retryable, meaning) [COP_ERR_##name] = {#name, status, retryable},
#include "err.def"
#undef X
};

/* Messages go into JSON: a character that was cut (%.100s) or foreign bytes become '?', in place and without memory. */
static void make_valid(char *s)
{
        cop_utf8_trim(s);
        for (size_t n = strlen(s); n > 0;) {
                size_t len = cop_utf8_sequence(s, n);
                if (len == 0) {
                        *s = '?';
                        len = 1;
                }
                s += len;
                n -= len;
        }
}

__attribute__((format(printf, 4, 0))) static void fill(struct cop_error *err, int errnum, enum cop_err_code code,
                                                       const char *format, va_list ap)
{
        if (!err)
                return;
        err->errnum = errnum;
        err->code = code;
        vsnprintf(err->message, sizeof(err->message), format, ap);
        make_valid(err->message);
}

int cop_error_set(struct cop_error *err, int errnum, enum cop_err_code code, const char *format, ...)
{
        va_list ap;

        if (errnum <= 0)
                errnum = EIO;
        va_start(ap, format);
        fill(err, errnum, code, format, ap);
        va_end(ap);
        return -errnum;
}

static enum cop_err_code code_from_errno(int errnum)
{
        switch (errnum) {
        case ENOSPC:
        case EDQUOT:
                return COP_ERR_disk_full;
        case ENOMEM:
                return COP_ERR_no_memory;
        case ETIMEDOUT:
                return COP_ERR_timeout;
        default:
                return COP_ERR_io_error;
        }
}

int cop_error_errno(struct cop_error *err, int errnum, const char *format, ...)
{
        va_list ap;

        if (errnum < 0)
                errnum = -errnum;
        if (errnum == 0)
                errnum = EIO;
        if (!err)
                return -errnum;
        va_start(ap, format);
        fill(err, errnum, code_from_errno(errnum), format, ap);
        va_end(ap);
        size_t used = strlen(err->message);
        snprintf(err->message + used, sizeof(err->message) - used, ": %s", strerror(errnum));
        return -errnum;
}

int cop_error_wrap(struct cop_error *err, int r, const char *format, ...)
{
        char context[COP_ERROR_MESSAGE_MAX];
        char old[COP_ERROR_MESSAGE_MAX];
        va_list ap;

        if (!err)
                return r;
        va_start(ap, format);
        vsnprintf(context, sizeof(context), format, ap);
        va_end(ap);
        memcpy(old, err->message, sizeof(old));
        int n = snprintf(err->message, sizeof(err->message), "%.300s: ", context);
        if (n > 0 && (size_t)n < sizeof(err->message))
                snprintf(err->message + n, sizeof(err->message) - (size_t)n, "%s", old);
        make_valid(err->message);
        return r;
}

const char *cop_err_code_name(enum cop_err_code code)
{
        return (unsigned)code < COP_ERR__MAX ? code_table[code].name : code_table[COP_ERR_internal].name;
}

int cop_err_code_status(enum cop_err_code code)
{
        return (unsigned)code < COP_ERR__MAX ? code_table[code].status : 500;
}

bool cop_err_code_retryable(enum cop_err_code code)
{
        return (unsigned)code < COP_ERR__MAX && code_table[code].retryable;
}

int cop_err_code_from_name(const char *name)
{
        for (int i = 0; i < COP_ERR__MAX; i++)
                if (strcmp(code_table[i].name, name) == 0)
                        return i;
        return -ENOENT;
}
