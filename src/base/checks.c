#include "base/checks.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"

#define FIELDS 5

void cop_checks_add(json_t *list, const char *name, bool ok, bool needed, const char *detail, const char *remedy)
{
        json_array_append_new(list, json_pack("{s:s, s:b, s:b, s:s, s:s?}", "name", name, "ok", ok, "needed", needed,
                                              "detail", detail, "remedy", ok ? NULL : remedy));
}

bool cop_checks_pass(json_t *list)
{
        json_t *check;
        size_t i;

        json_array_foreach (list, i, check)
                if (!json_is_true(json_object_get(check, "ok")) && json_is_true(json_object_get(check, "needed")))
                        return false;
        return true;
}

static json_t *parse_line(const char *line, size_t n)
{
        struct {
                const char *at;
                size_t n;
        } fields[FIELDS] = {0};
        size_t count = 0;

        for (const char *end = line + n, *at = line; count < FIELDS; count++) {
                const char *tab = memchr(at, '\t', (size_t)(end - at));
                fields[count].at = at;
                fields[count].n = (size_t)((tab ? tab : end) - at);
                if (!tab)
                        break;
                at = tab + 1;
        }
        if (count != FIELDS - 1 || fields[0].n == 0)
                return NULL;
        bool ok = fields[1].n == 2 && memcmp(fields[1].at, "ok", 2) == 0;
        bool needed = fields[2].n == 6 && memcmp(fields[2].at, "needed", 6) == 0;
        return json_pack("{s:o, s:b, s:b, s:o, s:o}", "name", cop_json_foreign_string(fields[0].at, fields[0].n), "ok",
                         ok, "needed", needed, "detail", cop_json_foreign_string(fields[3].at, fields[3].n), "remedy",
                         ok ? json_null() : cop_json_foreign_string(fields[4].at, fields[4].n));
}

json_t *cop_checks_parse(const char *text, size_t n)
{
        json_t *list = json_array();

        for (const char *end = text + n, *newline;
             list && text < end && (newline = memchr(text, '\n', (size_t)(end - text))); text = newline + 1)
                json_array_append_new(list, parse_line(text, (size_t)(newline - text)));
        return list;
}
