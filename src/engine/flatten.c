/* Theory of operation: deep stacks of layers
 *
 * Every suspend, and every step back that something is run after, puts a layer on the stack below a sandbox, and an overlay takes only
 * so many.  A node whose stack is deep gets nodes/<id>/flat, the whole stack as one layer (`coppice-keeper --merge`, in the
 * background, one at a time), and its row then names "<id>/flat" alone.  Layers stay as they are (N3), and what shows is the same.
 *
 * Other stacks that go through such a node are cut short when they are next used: the part from it downward is replaced by what its row
 * says.  Never the stack that a running sandbox has mounted: sandboxes.layers keeps the layers below alive (N4).
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>

#include "base/child.h"
#include "base/fs.h"

#define DEEP 32      /* from here on it is worth the work */
#define TOO_DEEP 300 /* from here on it cannot wait; COP_LAYERS_MAX is the end */
#define FLAT "/flat"

struct cop_flattening {
        struct cop_flattening *next;
        struct cop_engine *engine;
        char node_id[COP_ID_MAX];
        struct cop_source *child; /* owned; NULL: waits for its turn */
        cop_flattened_fn fn;      /* NULL = nobody waits */
        void *userdata;
};

static size_t depth_of(const char *layers)
{
        _cleanup_json_ json_t *list = layers ? json_loads(layers, 0, NULL) : NULL;

        return json_array_size(list);
}

bool cop_layers_too_deep(const char *layers)
{
        return depth_of(layers) >= TOO_DEEP;
}

void cop_layer_node(const char *layer, char ret[static COP_ID_MAX])
{
        snprintf(ret, COP_ID_MAX, "%.*s", (int)strcspn(layer, "/"), layer);
}

int cop_layer_path(const struct cop_engine *e, const char *layer, char *path, size_t size, struct cop_error *err)
{
        int r = cop_path_format(path, size, strchr(layer, '/') ? "%s/nodes/%s" : "%s/nodes/%s/layer", e->home, layer);

        return r < 0 ? cop_error_errno(err, r, "%s", e->home) : 0;
}

/* -- cutting short ---------------------------------------------------------------------------------------------------------- */

/* What the row of this layer's node says now, when that is less than what lies below it in the stack. */
static json_t *flat_of(struct cop_engine *e, const char *layer)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        _cleanup_json_ json_t *list = NULL;

        if (strchr(layer, '/') || cop_store_node_get(e->store, layer, &row, NULL) < 0)
                return NULL;
        list = json_loads(row->layers, 0, NULL);
        const char *top = json_string_value(json_array_get(list, 0));
        return top && strchr(top, '/') ? TAKE_PTR(list) : NULL;
}

char *cop_layers_cut(struct cop_engine *e, const char *layers)
{
        _cleanup_json_ json_t *list = json_loads(layers, 0, NULL), *cut = json_array();
        json_t *layer;
        size_t i;

        if (json_array_size(list) < DEEP)
                return strdup(layers);
        json_array_foreach (list, i, layer) {
                _cleanup_json_ json_t *flat = flat_of(e, json_string_value(layer));
                if (flat) {
                        json_array_extend(cut, flat);
                        break;
                }
                json_array_append(cut, layer);
        }
        return json_dumps(cut, JSON_COMPACT);
}

/* -- merging ------------------------------------------------------------------------------------------------------------------- */

static void start_next(struct cop_engine *e);

static void flattening_done(struct cop_flattening *f, int result)
{
        struct cop_engine *e = f->engine;

        for (struct cop_flattening **at = &e->flattenings; *at; at = &(*at)->next)
                if (*at == f) {
                        *at = f->next;
                        break;
                }
        cop_source_free(f->child);
        if (f->fn)
                f->fn(result, f->userdata);
        free(f);
        start_next(e);
}

/* The merged layer is on disk: the row says so, and what only served the stack goes. */
static int note_flat(struct cop_engine *e, const char *id, struct cop_error *err)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        char layers[COP_ID_MAX + 16];

        int r = cop_store_node_get(e->store, id, &row, err);
        snprintf(layers, sizeof(layers), "[\"%s" FLAT "\"]", id);
        if (r == 0)
                r = cop_store_node_set_layers(e->store, id, layers, err);
        if (r == 0)
                cop_nodes_release_layers(e, row->layers);
        return r;
}

static void on_merged(struct cop_source *s, const siginfo_t *si, void *userdata)
{
        struct cop_flattening *f = userdata;
        struct cop_error err;
        int r = 0;

        if (si->si_code != CLD_EXITED || si->si_status != 0)
                r = cop_error_set(&err, EIO, COP_ERR_io_error, "coppice-keeper --merge failed");
        if (r == 0)
                r = note_flat(f->engine, f->node_id, &err);
        if (r < 0 && r != -ENOENT) /* the node may be gone by now */
                cop_log_warning("merging the layers of node %s: %s", f->node_id, err.message);
        flattening_done(f, r);
}

static int spawn_merge(struct cop_engine *e, json_t *layers, const char *target, pid_t *ret_pid, struct cop_error *err)
{
        size_t count = json_array_size(layers), i;
        _cleanup_free_ const char **argv = calloc(count + 4, sizeof(*argv));
        _cleanup_free_ char *paths = malloc(count * 4200 + 1);
        json_t *layer;
        int r = 0;

        if (!argv || !paths)
                return cop_error_errno(err, ENOMEM, "merging layers");
        argv[0] = e->keeper_path;
        argv[1] = "--merge";
        argv[2] = target;
        json_array_foreach (layers, i, layer) {
                argv[3 + i] = paths + i * 4200;
                if (r == 0)
                        r = cop_layer_path(e, json_string_value(layer), paths + i * 4200, 4200, err);
        }
        const struct cop_child_spec spec = {.path = e->keeper_path,
                                            .argv = argv,
                                            .cwd = "/",
                                            .fds = (const struct cop_child_fd[]){{STDERR_FILENO, STDERR_FILENO}},
                                            .fd_count = 1,
                                            .death_signal = SIGKILL};
        return r < 0 ? r : cop_child_spawn(&spec, ret_pid, err);
}

static int start(struct cop_flattening *f, struct cop_error *err)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        struct cop_engine *e = f->engine;
        char target[4200];
        pid_t pid = 0;

        int r = cop_store_node_get(e->store, f->node_id, &row, err);
        if (r < 0)
                return r;
        _cleanup_free_ char *cut = cop_layers_cut(e, row->layers);
        _cleanup_json_ json_t *layers = cut ? json_loads(cut, 0, NULL) : NULL;
        if (json_array_size(layers) == 0)
                return cop_error_errno(err, ENOMEM, "merging layers");
        r = cop_path_format(target, sizeof(target), "%s/nodes/%s" FLAT, e->home, f->node_id);
        if (r < 0)
                return cop_error_errno(err, r, "%s", e->home);
        r = spawn_merge(e, layers, target, &pid, err);
        return r < 0 ? r : cop_loop_add_child(e->loop, pid, on_merged, f, &f->child, err);
}

static void start_next(struct cop_engine *e)
{
        struct cop_error err;

        while (!e->closing && e->flattenings && !e->flattenings->child) {
                struct cop_flattening *f = e->flattenings;
                int r = start(f, &err);
                if (r == 0)
                        return;
                if (r != -ENOENT)
                        cop_log_warning("merging the layers of node %s: %s", f->node_id, err.message);
                flattening_done(f, r);
        }
}

static void enqueue(struct cop_engine *e, const char *node_id, cop_flattened_fn fn, void *userdata)
{
        struct cop_flattening *f = calloc(1, sizeof(*f)), **end = &e->flattenings;

        if (!f) {
                if (fn)
                        fn(-ENOMEM, userdata);
                return;
        }
        *f = (struct cop_flattening){.engine = e, .fn = fn, .userdata = userdata};
        snprintf(f->node_id, sizeof(f->node_id), "%s", node_id);
        while (*end)
                end = &(*end)->next;
        *end = f;
        start_next(e);
}

void cop_node_flatten(struct cop_engine *e, const char *node_id, cop_flattened_fn fn, void *userdata)
{
        enqueue(e, node_id, fn, userdata);
}

void cop_node_flatten_if_deep(struct cop_engine *e, const struct cop_node_row *node)
{
        if (depth_of(node->layers) < DEEP)
                return;
        for (const struct cop_flattening *f = e->flattenings; f; f = f->next) {
                _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
                if (cop_store_node_get(e->store, f->node_id, &row, NULL) == 0 &&
                    strcmp(row->sandbox_id, node->sandbox_id) == 0)
                        return; /* this stack will be cut short by that */
        }
        enqueue(e, node->id, NULL, NULL);
}

void cop_flattenings_drop(struct cop_engine *e)
{
        while (e->flattenings) {
                struct cop_flattening *f = e->flattenings;
                e->flattenings = f->next;
                cop_source_free(f->child);
                free(f);
        }
}
