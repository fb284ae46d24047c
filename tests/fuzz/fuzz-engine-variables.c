/* What two kernels say of their variables: the input is both, a newline between.  What comes out keeps the promises of the API. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/diff-variables.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_side(json_t *side)
{
        json_t *shape = json_object_get(side, "shape"), *bytes = json_object_get(side, "size"), *n;
        const char *const texts[] = {"type", "digest", "note", "preview"};
        size_t i;

        if (!json_is_string(json_object_get(side, "type")) || (shape && !json_is_array(shape)) ||
            (bytes && json_integer_value(bytes) < 0))
                abort();
        json_array_foreach (shape, i, n)
                if (!json_is_integer(n) || json_integer_value(n) < 0)
                        abort();
        for (i = 0; i < sizeof(texts) / sizeof(*texts); i++)
                if (json_object_get(side, texts[i]) && !json_is_string(json_object_get(side, texts[i])))
                        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const uint8_t *newline = size ? memchr(data, '\n', size) : NULL;
        size_t first = newline ? (size_t)(newline - data) : size;
        _cleanup_json_ json_t *a = json_loadb((const char *)data, first, JSON_DECODE_ANY, NULL);
        _cleanup_json_ json_t *b =
                newline ? json_loadb((const char *)newline + 1, size - first - 1, JSON_DECODE_ANY, NULL) : NULL;
        _cleanup_json_ json_t *result = cop_diff_variables(a, b);
        json_t *change;
        size_t i;

        json_array_foreach (json_object_get(result, "changes"), i, change) {
                json_t *x = json_object_get(change, "a"), *y = json_object_get(change, "b");
                if (!x && !y)
                        abort();
                if (x)
                        check_side(x);
                if (y)
                        check_side(y);
        }
        return 0;
}
