#include "body.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"

/* Path of the string with a NUL, for the message: the top field and what is nested in it. */
static int refuse_nul(json_t *value, const char *field, struct cop_error *err)
{
        const char *key;
        json_t *child;
        size_t i;
        int r = 0;

        if (json_is_string(value)) {
                const char *nul = memchr(json_string_value(value), '\0', json_string_length(value));
                if (nul)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                             "field \"%.100s\": NUL character (U+0000) at byte %zu", field,
                                             (size_t)(nul - json_string_value(value)));
                return 0;
        }
        if (json_is_object(value))
                json_object_foreach (value, key, child)
                        if ((r = refuse_nul(child, *field ? field : key, err)) < 0)
                                return r;
        if (json_is_array(value))
                json_array_foreach (value, i, child)
                        if ((r = refuse_nul(child, field, err)) < 0)
                                return r;
        return 0;
}

int cop_body_json(const char *text, size_t n, json_t **ret, struct cop_error *err)
{
        _cleanup_json_ json_t *value = NULL;
        size_t blank = 0;

        while (blank < n && strchr(" \t\r\n", text[blank]) && text[blank])
                blank++;
        if (blank == n) {
                *ret = json_object();
                return *ret ? 0 : cop_error_errno(err, ENOMEM, "request body");
        }
        /* NUL is let through here so that the refusal below can name the field. */
        int r = cop_json_parse(text, n, true, &value, err);
        if (r < 0) {
                if (err && strstr(err->message, "invalid Unicode"))
                        return cop_error_wrap(err, r, "a string holds a lone surrogate");
                if (err && strstr(err->message, "unable to decode byte"))
                        return cop_error_wrap(err, r, "the body is not valid UTF-8");
                return r;
        }
        if (!json_is_object(value))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "the body must be a JSON object");
        r = refuse_nul(value, "", err);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(value);
        return 0;
}
