/* Outputs of a cell, as a kernel's words end up in the store, become outputs of a notebook: whatever they are, these are well formed.
 *
 * Input: JSON, an array of cells, each an array of outputs. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/nbformat.h"

#define REQUIRE(condition)        \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int is(json_t *output, const char *type)
{
        return strcmp(json_string_value(json_object_get(output, "output_type")), type) == 0;
}

static void check_lines(json_t *list)
{
        json_t *line;
        size_t i;

        REQUIRE(json_is_array(list));
        json_array_foreach (list, i, line)
                REQUIRE(json_is_string(line));
}

static void check_data(json_t *output)
{
        json_t *data = json_object_get(output, "data"), *value;
        const char *mime;

        REQUIRE(json_is_object(data) && json_is_object(json_object_get(output, "metadata")));
        json_object_foreach (data, mime, value)
                if (strncmp(mime, "application/", 12) != 0 && !json_is_string(value))
                        check_lines(value);
}

static void check(json_t *output)
{
        REQUIRE(json_is_string(json_object_get(output, "output_type")));
        if (is(output, "stream")) {
                REQUIRE(json_is_string(json_object_get(output, "name")));
                REQUIRE(json_is_string(json_object_get(output, "text")));
        } else if (is(output, "error")) {
                REQUIRE(json_is_string(json_object_get(output, "ename")));
                REQUIRE(json_is_string(json_object_get(output, "evalue")));
                check_lines(json_object_get(output, "traceback"));
        } else {
                REQUIRE(is(output, "display_data") || is(output, "execute_result"));
                REQUIRE(is(output, "execute_result") == (json_object_get(output, "execution_count") != NULL));
                check_data(output);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_json_ json_t *cells = json_loadb((const char *)data, size, JSON_ALLOW_NUL, NULL);
        struct cop_nbformat_displays d;
        json_t *items, *output;
        size_t i, k;

        REQUIRE(cop_nbformat_displays_init(&d) == 0);
        json_array_foreach (cells, i, items)
                cop_nbformat_displays_note(&d, items, (int64_t)i + 1);
        json_array_foreach (cells, i, items) {
                _cleanup_json_ json_t *outputs = cop_nbformat_outputs(&d, items, (int64_t)i + 1, NULL, -1);
                json_array_foreach (outputs, k, output)
                        check(output);
        }
        cop_nbformat_displays_done(&d);
        return 0;
}
