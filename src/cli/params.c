#include "params.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

void cop_param_str(json_t *body, const char *key, const char *value)
{
        if (value)
                json_object_set_new(body, key, cop_json_foreign_string(value, strlen(value)));
}

void cop_param_u64(json_t *body, const char *key, uint64_t value)
{
        if (value)
                json_object_set_new(body, key, json_integer((json_int_t)value));
}

void cop_param_seconds(json_t *body, const char *key, usec_t value)
{
        if (value == 0)
                return;
        if (value % USEC_PER_SEC == 0)
                json_object_set_new(body, key, json_integer((json_int_t)(value / USEC_PER_SEC)));
        else
                json_object_set_new(body, key, json_real((double)value / (double)USEC_PER_SEC));
}

int cop_param_number(json_t *body, const char *key, const char *text, struct cop_error *err)
{
        char *end;

        if (!text)
                return 0;
        double value = strtod(text, &end);
        if (end == text || *end || !(value > 0 && value < 1e9))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "--%s: \"%.100s\" is not a number", key, text);
        if (value == (double)(json_int_t)value)
                json_object_set_new(body, key, json_integer((json_int_t)value));
        else
                json_object_set_new(body, key, json_real(value));
        return 0;
}

int cop_param_map(json_t *body, const char *key, const struct cop_list *items, struct cop_error *err)
{
        if (items->count == 0)
                return 0;
        json_t *map = json_object();
        json_object_set_new(body, key, map);
        for (size_t i = 0; i < items->count; i++) {
                const char *item = items->items[i], *equals = strchr(item, '=');
                if (!equals || equals == item)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                             "\"%.100s\" is not of the form NAME=VALUE", item);
                char *name = strndup(item, (size_t)(equals - item));
                int r = name ? json_object_set_new(map, name, cop_json_foreign_string(equals + 1, strlen(equals + 1)))
                             : -1;
                free(name);
                if (r < 0)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "\"%.100s\" is not valid UTF-8", item);
        }
        return 0;
}
