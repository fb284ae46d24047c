#include "json.h"

#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "utf8.h"

int cop_json_parse(const char *text, size_t n, bool allow_nul, json_t **ret, struct cop_error *err)
{
        json_error_t error;
        json_t *value = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | (allow_nul ? JSON_ALLOW_NUL : 0),
                                   &error);

        if (!value)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "malformed JSON at line %d, column %d: %s",
                                     error.line, error.column, error.text);
        *ret = value;
        return 0;
}

int cop_json_expected(const char *key, const char *what, struct cop_error *err)
{
        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"%s\": expected %s", key, what);
}

json_t *cop_json_get(json_t *object, const char *key)
{
        json_t *value = json_object_get(object, key);

        return json_is_null(value) ? NULL : value;
}

int cop_json_get_str(json_t *object, const char *key, const char **ret, struct cop_error *err)
{
        json_t *value = cop_json_get(object, key);

        if (!value)
                return 0;
        if (!json_is_string(value))
                return cop_json_expected(key, "a string", err);
        *ret = json_string_value(value);
        return 1;
}

char *cop_json_copy_str(json_t *object, const char *key)
{
        const char *text = json_string_value(json_object_get(object, key));

        return text ? strdup(text) : NULL;
}

int cop_json_get_bool(json_t *object, const char *key, bool *ret, struct cop_error *err)
{
        json_t *value = cop_json_get(object, key);

        if (!value)
                return 0;
        if (!json_is_boolean(value))
                return cop_json_expected(key, "true or false", err);
        *ret = json_is_true(value);
        return 1;
}

int cop_json_get_i64(json_t *object, const char *key, int64_t min, int64_t max, int64_t *ret, struct cop_error *err)
{
        json_t *value = cop_json_get(object, key);

        if (!value)
                return 0;
        if (!json_is_integer(value) || json_integer_value(value) < min || json_integer_value(value) > max)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"%s\": expected a whole number from %lld to %lld", key, (long long)min,
                                     (long long)max);
        *ret = json_integer_value(value);
        return 1;
}

int cop_json_get_seconds(json_t *object, const char *key, usec_t max, usec_t *ret, struct cop_error *err)
{
        json_t *value = cop_json_get(object, key);

        if (!value)
                return 0;
        double seconds = json_is_number(value) ? json_number_value(value) : -1;
        double limit = MIN_OF((double)max, 0x1p62);
        if (!(seconds >= 0) || seconds * 1e6 > limit)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"%s\": expected a number of seconds from 0 to %g", key, limit / 1e6);
        *ret = (usec_t)(seconds * 1e6 + 0.5);
        return 1;
}

int cop_json_get_array(json_t *object, const char *key, json_t **ret, struct cop_error *err)
{
        json_t *value = cop_json_get(object, key);

        if (!value)
                return 0;
        if (!json_is_array(value))
                return cop_json_expected(key, "an array", err);
        *ret = value;
        return 1;
}

int cop_json_get_object(json_t *object, const char *key, json_t **ret, struct cop_error *err)
{
        json_t *value = cop_json_get(object, key);

        if (!value)
                return 0;
        if (!json_is_object(value))
                return cop_json_expected(key, "an object", err);
        *ret = value;
        return 1;
}

int cop_json_get_strings(json_t *object, const char *key, size_t max_entries, json_t **ret, struct cop_error *err)
{
        const char *name;
        json_t *map = NULL, *value;
        int r = cop_json_get_object(object, key, &map, err);

        if (r <= 0)
                return r;
        if (json_object_size(map) > max_entries)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"%s\": more than %zu entries", key,
                                     max_entries);
        json_object_foreach (map, name, value)
                if (!json_is_string(value))
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"%s.%.100s\": expected a string",
                                             key, name);
        *ret = map;
        return 1;
}

int cop_json_check_keys(json_t *object, const char *const *allowed, struct cop_error *err)
{
        const char *key;
        json_t *value;

        if (!json_is_object(object))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "expected a JSON object");
        json_object_foreach (object, key, value) {
                const char *const *a = allowed;
                while (*a && strcmp(*a, key) != 0)
                        a++;
                if (!*a)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "unknown field \"%.100s\"", key);
        }
        return 0;
}

json_t *cop_json_foreign_string(const char *s, size_t n)
{
        size_t len;

        if (cop_utf8_valid(s, n))
                return json_stringn_nocheck(s, n);
        char *clean = cop_utf8_repair(s, n, &len);
        json_t *value = clean ? json_stringn_nocheck(clean, len) : NULL;
        free(clean);
        return value;
}
