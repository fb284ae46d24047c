/* What a caller may ask of a sandbox: limits, labels, metadata, environment. */
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "engine/sandbox.h"

#define MEMORY_MIN (32ULL << 20) /* below it the first program of the sandbox does not start */
#define MEMORY_MAX (1ULL << 46)
#define CPU_MILLI_MIN 10
#define CPU_MILLI_MAX (4096 * 1000)
#define PIDS_MIN 8
#define PIDS_MAX (1u << 22)
#define NOFILE_MIN 64
#define ENTRIES_MAX 128
#define LABEL_MAX 256
#define METADATA_MAX (64u << 10)
#define ENV_MAX (96u << 10) /* travels in one message with a command's arguments: COP_MSG_MAX */

int cop_limits_check(const struct cop_sandbox_limits *l, struct cop_error *err)
{
        char low[COP_SIZE_MAX];

        if (l->memory < MEMORY_MIN || l->memory > MEMORY_MAX)
                return cop_error_set(err, ERANGE, COP_ERR_bad_request, "field \"memory\": expected at least %s",
                                     cop_format_size(MEMORY_MIN, low));
        if (l->cpu_milli < CPU_MILLI_MIN || l->cpu_milli > CPU_MILLI_MAX)
                return cop_error_set(err, ERANGE, COP_ERR_bad_request,
                                     "field \"cpus\": expected a number from 0.01 to 4096");
        if (l->pids < PIDS_MIN || l->pids > PIDS_MAX)
                return cop_error_set(err, ERANGE, COP_ERR_bad_request,
                                     "field \"pids\": expected a number from %d to %u", PIDS_MIN, PIDS_MAX);
        if (l->nofile < NOFILE_MIN)
                return cop_error_set(err, ERANGE, COP_ERR_bad_request, "field \"nofile\": expected at least %d",
                                     NOFILE_MIN);
        return 0;
}

char *cop_limits_to_json(const struct cop_sandbox_limits *l)
{
        _cleanup_json_ json_t *object =
                json_pack("{s:I, s:f, s:i, s:i}", "memory_bytes", (json_int_t)l->memory, "cpus",
                          (double)l->cpu_milli / 1000, "pids", (int)l->pids, "nofile", (int)l->nofile);

        return object ? json_dumps(object, JSON_COMPACT) : NULL;
}

void cop_limits_from_json(const char *text, struct cop_sandbox_limits *ret)
{
        _cleanup_json_ json_t *object = text ? json_loads(text, 0, NULL) : NULL;

        *ret = (struct cop_sandbox_limits){
                .memory = (uint64_t)json_integer_value(json_object_get(object, "memory_bytes")),
                .cpu_milli = (unsigned)(json_number_value(json_object_get(object, "cpus")) * 1000 + 0.5),
                .pids = (unsigned)json_integer_value(json_object_get(object, "pids")),
                .nofile = (unsigned)json_integer_value(json_object_get(object, "nofile")),
        };
}

static int dump(json_t *object, const char *field, size_t max, char **ret, struct cop_error *err)
{
        char *text = object ? json_dumps(object, JSON_COMPACT) : strdup("{}");

        if (!text)
                return cop_error_errno(err, ENOMEM, "field \"%s\"", field);
        if (strlen(text) > max) {
                free(text);
                return cop_error_set(err, E2BIG, COP_ERR_bad_request, "field \"%s\": at most %zu KiB as JSON", field,
                                     max >> 10);
        }
        *ret = text;
        return 0;
}

int cop_labels_to_json(json_t *object, const char *field, char **ret, struct cop_error *err)
{
        const char *key;
        json_t *value;

        if (json_object_size(object) > ENTRIES_MAX)
                return cop_error_set(err, E2BIG, COP_ERR_bad_request, "field \"%s\": at most %d entries", field,
                                     ENTRIES_MAX);
        json_object_foreach (object, key, value)
                if (!*key || strlen(key) > LABEL_MAX || !json_is_string(value) || json_string_length(value) > LABEL_MAX)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                             "field \"%s\": \"%.60s\": expected a name and a text of at most %d bytes",
                                             field, key, LABEL_MAX);
        return dump(object, field, METADATA_MAX, ret, err);
}

int cop_metadata_to_json(json_t *object, char **ret, struct cop_error *err)
{
        return dump(object, "metadata", METADATA_MAX, ret, err);
}

int cop_env_to_json(json_t *object, char **ret, struct cop_error *err)
{
        const char *key;
        json_t *value;

        json_object_foreach (object, key, value) {
                if (!*key || strchr(key, '='))
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                             "field \"env\": \"%.60s\" cannot be the name of a variable", key);
                if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                             "field \"env\": \"%.60s\": expected a text without NUL", key);
        }
        return dump(object, "env", ENV_MAX, ret, err);
}

int cop_sandbox_check_name(struct cop_engine *e, const char *name, const struct cop_sandbox *but, struct cop_error *err)
{
        if (!cop_name_valid(name))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"name\": \"%.80s\" is not 1-63 of letters, digits and . _ -, beginning "
                                     "with a letter or digit, "
                                     "and unlike an id",
                                     name);
        const struct cop_sandbox *sb = cop_sandbox_by_ref(e, name);
        return !sb || sb == but ? 0
                                : cop_error_set(err, EEXIST, COP_ERR_name_taken,
                                                "sandbox %s is already named \"%s\"; choose another name or remove it",
                                                sb->id, name);
}
