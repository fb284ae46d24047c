/* The row of a node as it travels.  What comes back is foreign: of the manifest only what has a known form is taken, and only that.
 *
 * A node may have several layers, and the folder of each belongs to a node.  Here the lower ones have none, so each becomes a node of
 * files without a name, below the one that was unpacked; they go with it (N4).
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/pack.h"
#include "base/parse.h"
#include "engine/command.h"
#include "engine/pack.h"

#define CONTEXTS_MAX 100
#define COMMANDS_MAX 1024 /* as many as a keeper has */
#define TEXT_MAX 4096
#define WORDS "abcdefghijklmnopqrstuvwxyz0123456789_"

/* -- out ------------------------------------------------------------------------------------------------------------------ */

char **cop_pack_layers_free(char **layers)
{
        for (char **l = layers; l && *l; l++)
                free(*l);
        free(layers);
        return NULL;
}

static int layer_paths(struct cop_engine *e, const struct cop_node_row *row, char ***ret, size_t *ret_count,
                       struct cop_error *err)
{
        _cleanup_json_ json_t *ids = json_loads(row->layers, 0, NULL);
        size_t n = json_array_size(ids);

        if (n < 1 || n > COP_PACK_LAYERS_MAX)
                return cop_error_set(err, EINVAL, COP_ERR_unsupported, "node %s has %zu layers; a pack holds up to %d",
                                     row->id, n, COP_PACK_LAYERS_MAX);
        char **list = calloc(n + 1, sizeof(*list));
        for (size_t i = 0; list && i < n; i++) {
                char path[4200];
                int r = cop_layer_path(e, json_string_value(json_array_get(ids, i)), path, sizeof(path), NULL);
                if (r < 0 || !(list[i] = strdup(path)))
                        list = cop_pack_layers_free(list);
        }
        if (!list)
                return cop_error_errno(err, ENOMEM, "packing");
        *ret = list;
        *ret_count = n;
        return 0;
}

int cop_pack_describe(struct cop_engine *e, const struct cop_node_row *row, char **ret_manifest, char ***ret_layers,
                      struct cop_error *err)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *image = NULL;
        _cleanup_json_ json_t *manifest = NULL;
        json_t *spec = json_loads(row->spec, 0, NULL);
        char **layers = NULL;
        size_t count = 0;

        int r = cop_store_image_get(e->store, row->image_id, &image, err);
        if (r == 0 && (!image->digest || !spec))
                r = cop_error_set(
                        err, EINVAL, COP_ERR_unsupported,
                        "node %s stands on an image without a digest, which no other machine could find; import the "
                        "image again",
                        row->id);
        if (r == 0)
                r = layer_paths(e, row, &layers, &count, err);
        if (r == 0)
                manifest = json_pack("{s:i, s:s, s:I, s:{s:s?, s:s}, s:{s:s, s:s, s:s?, s:I, s:I, s:I, s:I, s:O}}",
                                     COP_PACK_FORMAT_KEY, COP_PACK_FORMAT, "engine", COPPICE_VERSION, "layers",
                                     (json_int_t)count, "image", "name", image->name, "digest", image->digest, "node",
                                     "id", row->id, "kind", row->kind, "name", row->name, "created_at",
                                     (json_int_t)row->created_at, "memory_bytes", (json_int_t)row->memory_bytes,
                                     "file_bytes", (json_int_t)row->file_bytes, "files", (json_int_t)row->files, "spec",
                                     spec);
        json_decref(spec);
        if (r == 0 && (!manifest || !(*ret_manifest = json_dumps(manifest, JSON_COMPACT))))
                r = cop_error_errno(err, ENOMEM, "packing");
        if (r < 0) {
                cop_pack_layers_free(layers);
                return r;
        }
        *ret_layers = layers;
        return 0;
}

/* -- in ------------------------------------------------------------------------------------------------------------------- */

char *cop_unpack_spec(struct cop_engine *e, bool files_only)
{
        _cleanup_(cop_image_rows_freep) struct cop_image_row **rows = NULL;
        json_t *images = json_array();

        if (cop_store_image_list(e->store, &rows, NULL) == 0)
                for (struct cop_image_row **row = rows; *row; row++)
                        if ((*row)->digest)
                                json_array_append_new(images, json_string((*row)->digest));
        _cleanup_json_ json_t *spec = json_pack("{s:o, s:b}", "images", images, "files_only", files_only);
        return spec ? json_dumps(spec, JSON_COMPACT) : NULL;
}

static int damaged(const char *what, struct cop_error *err)
{
        return cop_error_set(err, EBADMSG, COP_ERR_pack_damaged, "the pack's manifest is damaged: %s", what);
}

/* Absent, or text of which each character is one of `set` (NULL = any but control characters). */
static bool text_is(json_t *object, const char *key, const char *set, size_t max)
{
        json_t *value = json_object_get(object, key);
        const char *text = json_string_value(value);

        if (!value || json_is_null(value))
                return true;
        if (!text || strlen(text) > max)
                return false;
        if (set)
                return strspn(text, set) == strlen(text);
        for (; *text; text++)
                if ((unsigned char)*text < ' ')
                        return false;
        return true;
}

static bool number_is(json_t *object, const char *key)
{
        json_t *value = json_object_get(object, key);

        return !value || (json_is_integer(value) && json_integer_value(value) >= 0);
}

/* Columns that hold JSON. */
static bool json_is(json_t *object, const char *key)
{
        const char *text = json_string_value(json_object_get(object, key));
        _cleanup_json_ json_t *value = text ? json_loads(text, 0, NULL) : NULL;

        return text_is(object, key, NULL, 1 << 20) && (!text || json_is_object(value));
}

/* kernel_dir becomes a path below the sandbox's ipc folder, key and session are sent to its kernels. */
static bool context_is_sound(json_t *c)
{
        static const char *const fields[] = {"id",        "name",       "kernelspec", "language",        "cwd",
                                             "env",       "state",      "kernel_key", "kernel_dir",      "key",
                                             "session",   "state_lost", "generation", "execution_count", "kernel_pid",
                                             "last_cell", NULL};

        return json_is_object(c) && cop_json_check_keys(c, fields, NULL) >= 0 &&
               json_is_string(json_object_get(c, "id")) && text_is(c, "id", WORDS, COP_STORE_ID_MAX - 1) &&
               text_is(c, "state", WORDS, COP_STORE_STATE_MAX - 1) &&
               text_is(c, "kernel_key", WORDS, COP_STORE_ID_MAX - 1) && text_is(c, "kernel_dir", WORDS, 31) &&
               text_is(c, "key", WORDS, 128) && text_is(c, "session", WORDS "-", 64) && text_is(c, "name", NULL, 100) &&
               text_is(c, "kernelspec", NULL, 100) && text_is(c, "language", NULL, 100) &&
               text_is(c, "cwd", NULL, TEXT_MAX) && json_is(c, "env") && json_is(c, "state_lost") &&
               number_is(c, "generation") && number_is(c, "execution_count") && number_is(c, "kernel_pid");
}

static bool argv_is_sound(json_t *argv)
{
        json_t *arg;
        size_t i;

        json_array_foreach (argv, i, arg)
                if (!json_is_string(arg))
                        return false;
        return !argv || json_is_array(argv);
}

/* What was asked for: a service of it is started with that again. */
static bool asked_is_sound(json_t *c)
{
        static const char *const fields[] = {
                "timeout_seconds", "output_max", "on_disconnect", "command", "argv", "cwd", "user",
                "restart",         "env",        "restart_of",    NULL};
        const char *text = json_string_value(json_object_get(c, "spec"));
        _cleanup_json_ json_t *spec = text ? json_loads(text, 0, NULL) : NULL;
        json_t *limit = json_object_get(spec, "timeout_seconds"), *max = json_object_get(spec, "output_max"),
               *env = json_object_get(spec, "env"), *command = json_object_get(spec, "command");
        _cleanup_free_ char *pairs = NULL;

        return json_is_object(spec) && cop_json_check_keys(spec, fields, NULL) >= 0 &&
               (!limit || json_is_null(limit) || (json_is_number(limit) && json_number_value(limit) >= 0)) &&
               (!max || (json_is_integer(max) && json_integer_value(max) > 0 &&
                         json_integer_value(max) <= (json_int_t)COP_COMMAND_LOG_MAX)) &&
               text_is(spec, "on_disconnect", WORDS, 20) && (!command || json_is_string(command)) &&
               argv_is_sound(json_object_get(spec, "argv")) && text_is(spec, "cwd", NULL, TEXT_MAX) &&
               text_is(spec, "user", NULL, 100) && text_is(spec, "restart_of", WORDS, COP_STORE_ID_MAX - 1) &&
               (!env || (json_is_object(env) && cop_env_to_json(env, &pairs, NULL) >= 0));
}

/* Its id is the key by which the keeper knows it, and the name of its log. */
static bool command_is_sound(json_t *c)
{
        static const char *const fields[] = {"id", "pid", "detached", "started_at", "spec", NULL};
        const char *id = json_string_value(json_object_get(c, "id"));

        return json_is_object(c) && cop_json_check_keys(c, fields, NULL) >= 0 && id && strncmp(id, "cmd_", 4) == 0 &&
               text_is(c, "id", WORDS, COP_STORE_ID_MAX - 1) && number_is(c, "pid") && number_is(c, "started_at") &&
               json_is_boolean(json_object_get(c, "detached")) && asked_is_sound(c);
}

static bool commands_are_sound(json_t *commands)
{
        json_t *command;
        size_t i;

        if (commands && (!json_is_array(commands) || json_array_size(commands) > COMMANDS_MAX))
                return false;
        json_array_foreach (commands, i, command)
                if (!command_is_sound(command))
                        return false;
        return true;
}

static int check_spec(json_t *spec, struct cop_error *err)
{
        static const char *const fields[] = {"contexts", "commands", "generation",  "limits",  "env",
                                             "ordinal",  "policy",   "travel_cell", "history", NULL};
        json_t *contexts = json_object_get(spec, "contexts"), *env = json_object_get(spec, "env"), *context;
        _cleanup_free_ char *text = NULL, *policy = NULL;
        size_t i;

        if (!json_is_object(spec) || cop_json_check_keys(spec, fields, NULL) < 0 || !json_is_array(contexts) ||
            json_array_size(contexts) > CONTEXTS_MAX || !number_is(spec, "generation") ||
            !json_is_object(json_object_get(spec, "limits")))
                return damaged("what it says of the sandbox makes no sense", err);
        json_array_foreach (contexts, i, context)
                if (!context_is_sound(context))
                        return damaged("what it says of a context makes no sense", err);
        if (!commands_are_sound(json_object_get(spec, "commands")))
                return damaged("what it says of a command makes no sense", err);
        if (cop_env_to_json(env, &text, NULL) < 0 || !json_is_object(json_object_get(spec, "policy")) ||
            cop_policy_to_json(NULL, json_object_get(spec, "policy"), &policy, NULL) < 0)
                return damaged("its environment or policy makes no sense", err);
        return 0;
}

/* Its cells stayed where they were run: nothing here is to be replayed or counted by them. */
static void forget_cells(json_t *spec)
{
        json_object_del(spec, "history");
}

static int find_image(struct cop_engine *e, json_t *manifest, char ret[static COP_STORE_ID_MAX], struct cop_error *err)
{
        const char *digest = json_string_value(json_object_get(json_object_get(manifest, "image"), "digest"));
        _cleanup_(cop_image_rows_freep) struct cop_image_row **rows = NULL;
        int r = cop_store_image_list(e->store, &rows, err);

        ret[0] = '\0';
        for (struct cop_image_row **row = rows; r == 0 && *row; row++)
                if (digest && (*row)->digest && strcmp((*row)->digest, digest) == 0 && (!ret[0] || (*row)->name))
                        memcpy(ret, (*row)->id, COP_STORE_ID_MAX);
        if (r == 0 && !ret[0])
                r = cop_error_set(err, ENOENT, COP_ERR_image_not_found,
                                  "image %.100s was removed while the pack that needs it was read",
                                  digest ? digest : "?");
        return r;
}

/* The name that was asked for, else the pack's when it is free here. */
static char *choose_name(struct cop_engine *e, const char *wanted, json_t *node)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *taken = NULL;
        const char *name = wanted ? wanted : json_string_value(json_object_get(node, "name"));

        if (!name || !cop_name_valid(name) || strncmp(name, "nd_", 3) == 0)
                return NULL;
        if (!wanted && cop_store_node_get(e->store, name, &taken, NULL) == 0)
                return NULL;
        return strdup(name);
}

static uint64_t count_of(json_t *node, const char *key)
{
        json_int_t n = json_integer_value(json_object_get(node, key));

        return n > 0 ? (uint64_t)n : 0;
}

static struct cop_node_row *row_new(const char *id, const char *image_id, const char *kind, json_t *layers, size_t at)
{
        _cleanup_json_ json_t *own = json_array();
        struct cop_node_row *row = calloc(1, sizeof(*row));

        for (size_t i = at; i < json_array_size(layers); i++)
                json_array_append(own, json_array_get(layers, i));
        if (!row)
                return NULL;
        snprintf(row->id, sizeof(row->id), "%s", id);
        snprintf(row->kind, sizeof(row->kind), "%s", kind);
        snprintf(row->reason, sizeof(row->reason), "%s",
                 at == 0 ? "unpack" : "layer"); /* only what was packed is wanted for itself */
        snprintf(row->image_id, sizeof(row->image_id), "%s", image_id);
        snprintf(row->parent_id, sizeof(row->parent_id), "%s",
                 json_array_size(own) > 1 ? json_string_value(json_array_get(own, 1)) : "");
        row->layers = json_dumps(own, JSON_COMPACT);
        row->created_at = cop_now(CLOCK_REALTIME);
        return row;
}

static int insert_rows(struct cop_engine *e, struct cop_node_row *top, json_t *ids, struct cop_error *err)
{
        size_t n = json_array_size(ids);
        int r = cop_store_begin(e->store, err);

        if (r < 0)
                return r;
        for (size_t i = n - 1; r == 0 && i > 0; i--) {
                _cleanup_(cop_node_row_freep) struct cop_node_row *row =
                        row_new(json_string_value(json_array_get(ids, i)), top->image_id, "files", ids, i);
                if (row)
                        row->spec = strdup("{}");
                r = row && row->layers && row->spec ? cop_store_node_insert(e->store, row, err)
                                                    : cop_error_errno(err, ENOMEM, "node");
        }
        if (r == 0)
                r = cop_store_node_insert(e->store, top, err);
        if (r == 0)
                return cop_store_commit(e->store, err);
        cop_store_rollback(e->store);
        return r;
}

static void discard(struct cop_engine *e, const char *id)
{
        char path[4200];

        if (cop_path_format(path, sizeof(path), "%s/nodes/%s", e->home, id) == 0)
                cop_trash_add(e, path);
}

/* nodes/ID/below/I → nodes/ID2/layer, on disk when it returns. */
static int move_layers(int nodes_fd, json_t *ids, struct cop_error *err)
{
        const char *top = json_string_value(json_array_get(ids, 0));
        char from[100], to[100];

        for (size_t i = 1; i < json_array_size(ids); i++) {
                const char *id = json_string_value(json_array_get(ids, i));
                snprintf(from, sizeof(from), "%s/below/%zu", top, i);
                snprintf(to, sizeof(to), "%s/layer", id);
                _cleanup_close_ int fd =
                        mkdirat(nodes_fd, id, 0700) < 0 ? -1 : openat(nodes_fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd < 0 || renameat(nodes_fd, from, nodes_fd, to) < 0 || fsync(fd) < 0)
                        return cop_error_errno(err, errno, "moving a layer of %s", top);
        }
        snprintf(from, sizeof(from), "%s/below", top);
        if ((unlinkat(nodes_fd, from, AT_REMOVEDIR) < 0 && errno != ENOENT) || fsync(nodes_fd) < 0)
                return cop_error_errno(err, errno, "unpacking %s", top);
        return 0;
}

static int read_manifest(struct cop_engine *e, const char *id, json_t **ret, struct cop_error *err)
{
        _cleanup_free_ char *text = NULL;
        char path[4200];
        size_t len;

        int r = cop_path_format(path, sizeof(path), "%s/nodes/%s/" COP_PACK_MANIFEST, e->home, id);
        r = r < 0 ? cop_error_errno(err, r, "%s", e->home)
                  : cop_read_file(AT_FDCWD, path, COP_PACK_MANIFEST_MAX, &text, &len, err);
        if (r == 0)
                r = cop_json_parse(text, len, false, ret, err);
        return r;
}

/* ret_ids: of all layers, the node's own id first. */
static int make_row(struct cop_engine *e, const char *id, const char *name, bool files_only, struct cop_node_row **ret,
                    json_t *ids, struct cop_error *err)
{
        _cleanup_json_ json_t *manifest = NULL;
        char image[COP_STORE_ID_MAX], fresh[COP_ID_MAX];

        int r = read_manifest(e, id, &manifest, err);
        json_t *node = json_object_get(manifest, "node"), *spec = json_object_get(node, "spec");
        json_int_t layers = json_integer_value(json_object_get(manifest, "layers"));
        const char *kind = json_string_value(json_object_get(node, "kind"));
        if (r == 0)
                r = check_spec(spec, err);
        if (r == 0)
                r = find_image(e, manifest, image, err);
        if (r < 0)
                return r;
        bool memory = kind && strcmp(kind, "memory") == 0 && !files_only;
        json_array_append_new(ids, json_string(id));
        for (json_int_t i = 1; i < layers && i < COP_PACK_LAYERS_MAX; i++)
                json_array_append_new(ids, json_string(cop_id_new(fresh, "nd_", 10)));
        struct cop_node_row *row = row_new(id, image, memory ? "memory" : "files", ids, 0);
        if (!row)
                return cop_error_errno(err, ENOMEM, "node");
        forget_cells(spec);
        row->spec = json_dumps(spec, JSON_COMPACT);
        row->name = choose_name(e, name, node);
        row->memory_bytes = memory ? count_of(node, "memory_bytes") : 0;
        row->file_bytes = count_of(node, "file_bytes");
        row->files = count_of(node, "files");
        *ret = row;
        return row->layers && row->spec ? 0 : cop_error_errno(err, ENOMEM, "node");
}

int cop_unpack_commit(struct cop_engine *e, const char *id, const char *name, bool files_only,
                      struct cop_node_row **ret, struct cop_error *err)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        _cleanup_json_ json_t *ids = json_array();
        _cleanup_close_ int nodes_fd = -EBADF;
        char path[4200];

        int r = make_row(e, id, name, files_only, &row, ids, err);
        if (r == 0 && cop_path_format(path, sizeof(path), "%s/nodes", e->home) == 0 &&
            (nodes_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
                r = cop_error_errno(err, errno, "opening %s", path);
        if (r == 0)
                r = move_layers(nodes_fd, ids, err);
        if (r == 0) /* N1 */
                r = insert_rows(e, row, ids, err);
        for (size_t i = 1; r < 0 && i < json_array_size(ids); i++)
                discard(e, json_string_value(json_array_get(ids, i)));
        if (r == 0)
                *ret = TAKE_PTR(row);
        return r;
}
