#include "fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/parse.h"

int cop_field_size(json_t *body, const char *key, uint64_t min, uint64_t *ret, struct cop_error *err)
{
        json_t *value = cop_json_get(body, key);
        char least[COP_SIZE_MAX];
        uint64_t n = 0;
        int r = -EINVAL;

        if (!value)
                return 0;
        if (json_is_integer(value) && json_integer_value(value) > 0) {
                n = (uint64_t)json_integer_value(value);
                r = 0;
        } else if (json_is_string(value)) {
                r = cop_parse_size(json_string_value(value), &n);
        }
        if (r < 0)
                return cop_json_expected(key, "a number of bytes or a size such as \"2G\"", err);
        if (n < min)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"%s\": must be at least %s", key,
                                     cop_format_size(min, least));
        *ret = n;
        return 1;
}

int cop_field_cpus(json_t *body, const char *key, unsigned *ret_milli, struct cop_error *err)
{
        json_t *value = cop_json_get(body, key);

        if (!value)
                return 0;
        double cpus = json_is_number(value) ? json_number_value(value) : 0;
        if (!(cpus >= 0.1 && cpus <= 1024))
                return cop_json_expected(key, "a number of CPUs from 0.1 to 1024", err);
        *ret_milli = (unsigned)(cpus * 1000 + 0.5);
        return 1;
}

int cop_field_unsigned(json_t *body, const char *key, unsigned min, unsigned max, unsigned *ret, struct cop_error *err)
{
        int64_t n;
        int r = cop_json_get_i64(body, key, min, max, &n, err);

        if (r > 0)
                *ret = (unsigned)n;
        return r;
}

int cop_field_env(json_t *body, const char *key, json_t **ret, struct cop_error *err)
{
        const char *name;
        json_t *value, *env = NULL;
        int r = cop_json_get_strings(body, key, COP_ENV_MAX, &env, err);

        if (r <= 0)
                return r;
        json_object_foreach (env, name, value)
                if (!*name || strchr(name, '='))
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                             "field \"%s\": \"%.100s\" cannot be the name of a variable", key, name);
        *ret = env;
        return 1;
}

int cop_field_output_max(json_t *body, size_t *ret, struct cop_error *err)
{
        int64_t n;
        int r = cop_json_get_i64(body, "output_max", COP_OUTPUT_MIN, COP_OUTPUT_MAX, &n, err);

        if (r > 0)
                *ret = (size_t)n;
        return r;
}

int cop_field_word(json_t *body, const char *key, const char *const *words, unsigned *ret, struct cop_error *err)
{
        json_t *value = cop_json_get(body, key);
        char list[200] = "one of";
        size_t len = strlen(list);

        if (!value)
                return 0;
        for (unsigned i = 0; words[i]; i++) {
                if (json_is_string(value) && strcmp(json_string_value(value), words[i]) == 0) {
                        *ret = i;
                        return 1;
                }
                len += (size_t)snprintf(list + len, sizeof(list) - len, "%s \"%s\"", i ? "," : "", words[i]);
        }
        return cop_json_expected(key, list, err);
}

int cop_field_mode(json_t *body, const char *key, unsigned *ret, struct cop_error *err)
{
        json_t *value = cop_json_get(body, key);

        if (!value)
                return 0;
        if (json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) <= 07777) {
                *ret = (unsigned)json_integer_value(value);
                return 1;
        }
        const char *s = json_is_string(value) ? json_string_value(value) : "";
        if (!*s || s[strspn(s, "01234567")] || strlen(s) > 5 || strtoul(s, NULL, 8) > 07777)
                return cop_json_expected(key, "an octal mode such as \"0755\"", err);
        *ret = (unsigned)strtoul(s, NULL, 8);
        return 1;
}

int cop_field_text(json_t *body, const char *key, const char **ret, struct cop_error *err)
{
        const char *s = NULL;
        int r = cop_json_get_str(body, key, &s, err);

        if (r <= 0)
                return r;
        if (!*s)
                return cop_json_expected(key, "a string that is not empty", err);
        *ret = s;
        return 1;
}

int cop_field_required(json_t *body, const char *key, const char **ret, struct cop_error *err)
{
        int r = cop_field_text(body, key, ret, err);

        return r == 0 ? cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"%s\" is missing", key) : r;
}

int cop_field_check_name(const char *name, struct cop_error *err)
{
        if (!name || cop_name_valid(name))
                return 0;
        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                             "field \"name\": 1 to 63 letters, digits, \".\", \"_\" or \"-\" that begin with a letter "
                             "or digit and do not look like an id");
}
