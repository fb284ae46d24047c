#include "engine/node.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/parse.h"

#define FREEZE_DEADLINE (600 * USEC_PER_SEC) /* gigabytes to a slow disk */

static const char *const reasons[] = {"snapshot", "checkpoint", "suspend", "fork"};

/* -- what a node remembers of the sandbox --------------------------------------------------------------------------------------- */

static json_t *context_spec(const struct cop_context_row *row)
{
        return json_pack("{s:s, s:s?, s:s?, s:s?, s:s?, s:s?, s:s, s:s, s:s?, s:s?, s:s?, s:s?, s:I, s:I, s:I}", "id", row->id, "name",
                         row->name, "kernelspec", row->kernelspec, "language", row->language, "cwd", row->cwd, "env", row->env, "state",
                         row->state, "kernel_key", row->kernel_key, "kernel_dir", row->kernel_dir, "key", row->key, "session",
                         row->session, "state_lost", row->state_lost, "generation", (json_int_t)row->generation, "execution_count",
                         (json_int_t)row->execution_count, "kernel_pid", (json_int_t)row->kernel_pid);
}

static char *make_spec(struct cop_sandbox *sb)
{
        _cleanup_json_ json_t *spec = json_object();
        json_t *contexts = json_array();

        for (struct cop_context *c = sb->contexts; c; c = c->next)
                if (!c->removing)
                        json_array_append_new(contexts, context_spec(c->row));
        json_object_set_new(spec, "contexts", contexts);
        json_object_set_new(spec, "generation", json_integer((json_int_t)sb->row->generation));
        json_object_set_new(spec, "limits", sb->row->limits ? json_loads(sb->row->limits, 0, NULL) : json_object());
        json_object_set_new(spec, "env", sb->row->env ? json_loads(sb->row->env, 0, NULL) : json_object());
        return json_dumps(spec, JSON_COMPACT);
}

static char *copy_text(json_t *object, const char *key)
{
        const char *text = json_string_value(json_object_get(object, key));

        return text ? strdup(text) : NULL;
}

static void copy_id(json_t *object, const char *key, char *ret, size_t size)
{
        const char *text = json_string_value(json_object_get(object, key));

        snprintf(ret, size, "%s", text ? text : "");
}

static struct cop_context_row *context_row(struct cop_sandbox *sb, json_t *spec)
{
        struct cop_context_row *row = calloc(1, sizeof(*row));

        if (!row)
                return NULL;
        snprintf(row->sandbox_id, sizeof(row->sandbox_id), "%s", sb->id);
        copy_id(spec, "id", row->id, sizeof(row->id));
        copy_id(spec, "state", row->state, sizeof(row->state));
        copy_id(spec, "kernel_key", row->kernel_key, sizeof(row->kernel_key));
        row->name = copy_text(spec, "name");
        row->kernelspec = copy_text(spec, "kernelspec");
        row->language = copy_text(spec, "language");
        row->cwd = copy_text(spec, "cwd");
        row->env = copy_text(spec, "env");
        row->kernel_dir = copy_text(spec, "kernel_dir");
        row->key = copy_text(spec, "key");
        row->session = copy_text(spec, "session");
        row->state_lost = copy_text(spec, "state_lost");
        row->generation = (uint64_t)json_integer_value(json_object_get(spec, "generation"));
        row->execution_count = json_integer_value(json_object_get(spec, "execution_count"));
        row->kernel_pid = json_integer_value(json_object_get(spec, "kernel_pid"));
        row->created_at = row->last_activity_at = cop_now(CLOCK_REALTIME);
        return row;
}

static int replace_contexts(struct cop_sandbox *sb, json_t *contexts, struct cop_error *err)
{
        _cleanup_(cop_context_rows_freep) struct cop_context_row **old = NULL;
        struct cop_store *store = sb->engine->store;
        json_t *spec;
        size_t i;

        int r = cop_store_context_list(store, sb->id, &old, err);
        for (struct cop_context_row **row = old; r == 0 && row && *row; row++)
                r = cop_store_context_delete(store, sb->id, (*row)->id, err);
        json_array_foreach (contexts, i, spec) {
                _cleanup_(cop_context_row_freep) struct cop_context_row *row = context_row(sb, spec);
                if (r == 0 && !row)
                        r = cop_error_errno(err, ENOMEM, "contexts of %s", sb->id);
                if (r == 0)
                        r = cop_store_context_insert(store, row, err);
        }
        return r;
}

int cop_node_restore_contexts(struct cop_sandbox *sb, const struct cop_node_row *node, struct cop_error *err)
{
        _cleanup_json_ json_t *spec = json_loads(node->spec, 0, NULL);
        struct cop_store *store = sb->engine->store;

        if (!spec)
                return cop_error_set(err, EIO, COP_ERR_image_damaged, "what node %s says of its contexts is unreadable", node->id);
        sb->row->generation = (uint64_t)json_integer_value(json_object_get(spec, "generation"));
        int r = cop_store_begin(store, err);
        if (r < 0)
                return r;
        r = replace_contexts(sb, json_object_get(spec, "contexts"), err);
        if (r < 0) {
                cop_store_rollback(store);
                return r;
        }
        return cop_store_commit(store, err);
}

/* -- making --------------------------------------------------------------------------------------------------------------------------- */

struct making {
        struct cop_engine *engine;
        char sandbox_id[COP_ID_MAX];
        struct cop_node_row *row; /* owned */
        bool end;
        usec_t begun;
        cop_node_fn fn;
        void *userdata;
};

static void making_free(struct making *m)
{
        cop_node_row_free(m->row);
        free(m);
}

static int node_path(struct cop_engine *e, const char *id, char *path, size_t size, struct cop_error *err)
{
        int r = cop_path_format(path, size, "%s/nodes/%s", e->home, id);

        return r < 0 ? cop_error_errno(err, r, "%s", e->home) : 0;
}

static void discard_folder(struct cop_engine *e, const char *id)
{
        char path[4200];

        if (node_path(e, id, path, sizeof(path), NULL) == 0)
                cop_trash_add(e, path);
}

/* N1: the row, and with it the head of the sandbox, in one transaction. */
static int commit(struct cop_sandbox *sb, struct making *m, struct cop_error *err)
{
        struct cop_sandbox_row *row = sb->row;
        struct cop_store *store = m->engine->store;
        char old_node[COP_STORE_ID_MAX], old_state[COP_STORE_STATE_MAX];
        char *old_layers = row->layers;

        int r = cop_store_begin(store, err);
        if (r < 0)
                return r;
        r = cop_store_node_insert(store, m->row, err);
        memcpy(old_node, row->node_id, sizeof(old_node));
        memcpy(old_state, row->state, sizeof(old_state));
        memcpy(row->node_id, m->row->id, sizeof(row->node_id));
        row->pending_node[0] = '\0';
        if (m->end) { /* N5 */
                snprintf(row->state, sizeof(row->state), "suspended");
                row->layers = strdup(m->row->layers);
        }
        if (r == 0)
                r = cop_store_sandbox_set_node(store, row, err);
        if (r == 0)
                r = cop_store_commit(store, err);
        else
                cop_store_rollback(store);
        if (r < 0) {
                memcpy(row->node_id, old_node, sizeof(row->node_id));
                memcpy(row->state, old_state, sizeof(row->state));
                if (m->end)
                        free(row->layers);
                row->layers = old_layers;
                return r;
        }
        if (m->end)
                free(old_layers);
        return 0;
}

static void on_frozen(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct making *m = userdata;
        struct cop_sandbox *sb = cop_sandbox_by_id(m->engine, m->sandbox_id);
        struct cop_error error;

        if (!err && !sb) {
                cop_error_set(&error, ESHUTDOWN, COP_ERR_sandbox_ended, "sandbox %s has ended", m->sandbox_id);
                err = &error;
        }
        if (!err) {
                m->row->pause = cop_msg_u64_or(reply, COP_TAG_PAUSE, 0);
                m->row->memory_bytes = cop_msg_u64_or(reply, COP_TAG_MEMORY_BYTES, 0);
                m->row->file_bytes = cop_msg_u64_or(reply, COP_TAG_FILE_BYTES, 0);
                m->row->files = cop_msg_u64_or(reply, COP_TAG_FILES, 0);
                m->row->duration = cop_now(CLOCK_MONOTONIC) - m->begun;
                if (commit(sb, m, &error) < 0)
                        err = &error;
        }
        if (err)
                discard_folder(m->engine, m->row->id);
        else
                cop_engine_event(m->engine, "node.created", m->sandbox_id, NULL);
        m->fn(err ? NULL : m->row, err, m->userdata);
        making_free(m);
}

/* Its own layer on top of those below the sandbox. */
static char *node_layers(struct cop_sandbox *sb, const char *id)
{
        _cleanup_json_ json_t *below = sb->row->layers ? json_loads(sb->row->layers, 0, NULL) : NULL;
        _cleanup_json_ json_t *layers = json_array();

        json_array_append_new(layers, json_string(id));
        if (below)
                json_array_extend(layers, below);
        return json_dumps(layers, JSON_COMPACT);
}

static void last_cell(struct cop_sandbox *sb, char ret[static COP_STORE_ID_MAX])
{
        _cleanup_(cop_cell_rows_freep) struct cop_cell_row **rows = NULL;
        struct cop_cell_filter f = {.sandbox_id = sb->id, .limit = 1};

        if (cop_store_cell_list(sb->engine->store, &f, &rows, NULL) == 0 && rows[0])
                memcpy(ret, rows[0]->id, COP_STORE_ID_MAX);
}

static struct cop_node_row *node_row(struct cop_sandbox *sb, const struct cop_node_params *p)
{
        struct cop_node_row *row = calloc(1, sizeof(*row));

        if (!row)
                return NULL;
        cop_id_new(row->id, "nd_", 10);
        snprintf(row->sandbox_id, sizeof(row->sandbox_id), "%s", sb->id);
        memcpy(row->parent_id, sb->row->node_id, sizeof(row->parent_id));
        snprintf(row->kind, sizeof(row->kind), "%s", p->files_only ? "files" : "memory");
        snprintf(row->reason, sizeof(row->reason), "%s", reasons[p->reason]);
        memcpy(row->image_id, sb->row->image_id, sizeof(row->image_id));
        last_cell(sb, row->cell_id);
        row->name = p->name ? strdup(p->name) : NULL;
        row->layers = node_layers(sb, row->id);
        row->spec = make_spec(sb);
        row->created_at = cop_now(CLOCK_REALTIME);
        return row;
}

/* What the row will say, in the folder itself: a daemon that starts after a crash has nothing else (cop_node_recover). */
static int write_note(const struct cop_node_row *row, const char *folder, struct cop_error *err)
{
        _cleanup_json_ json_t *note = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s?, s:I}", "sandbox_id", row->sandbox_id,
                                                "parent_id", row->parent_id, "kind", row->kind, "reason", row->reason, "image_id",
                                                row->image_id, "cell_id", row->cell_id, "layers", row->layers, "spec", row->spec,
                                                "name", row->name, "created_at", (json_int_t)row->created_at);
        _cleanup_free_ char *text = note ? json_dumps(note, JSON_COMPACT) : NULL;
        char path[4200];

        int r = text ? cop_path_format(path, sizeof(path), "%s/node.json", folder) : -ENOMEM;
        return r < 0 ? cop_error_errno(err, r, "node %s", row->id)
                     : cop_write_file_atomic(AT_FDCWD, path, text, strlen(text), 0600, err);
}

int cop_node_recover(struct cop_engine *e, const char *id, struct cop_node_row **ret, struct cop_error *err)
{
        _cleanup_free_ char *text = NULL;
        char path[4200];
        size_t len;

        /* The keeper writes `keep` last, after everything else is synced. */
        int r = cop_path_format(path, sizeof(path), "%s/nodes/%s/keep", e->home, id);
        if (r < 0 || access(path, F_OK) < 0)
                return cop_error_set(err, ENOENT, COP_ERR_node_not_found, "node %s was not completed", id);
        r = cop_path_format(path, sizeof(path), "%s/nodes/%s/node.json", e->home, id);
        if (r == 0)
                r = cop_read_file(AT_FDCWD, path, 16u << 20, &text, &len, err);
        if (r < 0)
                return r;
        _cleanup_json_ json_t *note = json_loads(text, 0, NULL);
        struct cop_node_row *row = note ? calloc(1, sizeof(*row)) : NULL;
        if (!row)
                return cop_error_set(err, EIO, COP_ERR_image_damaged, "%s is unreadable", path);
        snprintf(row->id, sizeof(row->id), "%s", id);
        copy_id(note, "sandbox_id", row->sandbox_id, sizeof(row->sandbox_id));
        copy_id(note, "parent_id", row->parent_id, sizeof(row->parent_id));
        copy_id(note, "kind", row->kind, sizeof(row->kind));
        copy_id(note, "reason", row->reason, sizeof(row->reason));
        copy_id(note, "image_id", row->image_id, sizeof(row->image_id));
        copy_id(note, "cell_id", row->cell_id, sizeof(row->cell_id));
        row->layers = copy_text(note, "layers");
        row->spec = copy_text(note, "spec");
        row->name = copy_text(note, "name");
        row->created_at = (usec_t)json_integer_value(json_object_get(note, "created_at"));
        r = row->layers && row->spec ? cop_store_node_insert(e->store, row, err)
                                     : cop_error_set(err, EIO, COP_ERR_image_damaged, "%s is incomplete", path);
        if (r < 0) {
                cop_node_row_free(row);
                return r;
        }
        *ret = row;
        return 0;
}

static int send_freeze(struct cop_sandbox *sb, struct making *m, const struct cop_node_params *p, struct cop_error *err)
{
        char path[4200], parent[4200];
        struct cop_msg msg;

        int r = cop_path_format(path, sizeof(path), "%s/nodes", m->engine->home);
        if (r == 0)
                r = cop_mkdir_p(path, 0700, err);
        if (r == 0)
                r = node_path(m->engine, m->row->id, path, sizeof(path), err);
        if (r == 0 && mkdir(path, 0700) < 0)
                r = cop_error_errno(err, errno, "making %s", path);
        if (r == 0)
                r = write_note(m->row, path, err);
        if (r == 0 && m->row->parent_id[0])
                r = node_path(m->engine, m->row->parent_id, parent, sizeof(parent), err);
        if (r < 0)
                return r;
        cop_msg_init(&msg, COP_WIRE_FREEZE, 0);
        cop_msg_add_str(&msg, COP_TAG_NODE, path);
        if (m->row->parent_id[0])
                cop_msg_add_str(&msg, COP_TAG_PARENT, parent);
        cop_msg_add_u64(&msg, COP_TAG_FLAGS, (p->end ? COP_NODE_END : 0) | (p->files_only ? COP_NODE_FILES : 0));
        cop_keeper_call(sb->keeper, &msg, FREEZE_DEADLINE, on_frozen, m);
        return 0;
}

void cop_node_make(struct cop_sandbox *sb, const struct cop_node_params *p, cop_node_fn fn, void *userdata)
{
        struct making *m = calloc(1, sizeof(*m));
        struct cop_error err;

        int r = m ? 0 : cop_error_errno(&err, ENOMEM, "node");
        if (r == 0) {
                *m = (struct making){.engine = sb->engine,
                                     .row = node_row(sb, p),
                                     .end = p->end,
                                     .begun = cop_now(CLOCK_MONOTONIC),
                                     .fn = fn,
                                     .userdata = userdata};
                snprintf(m->sandbox_id, sizeof(m->sandbox_id), "%s", sb->id);
                if (!m->row || !m->row->layers || !m->row->spec)
                        r = cop_error_errno(&err, ENOMEM, "node");
        }
        if (r == 0 && p->end) { /* N2: a daemon that starts in the middle finds out from this whose folder it is */
                memcpy(sb->row->pending_node, m->row->id, sizeof(sb->row->pending_node));
                r = cop_store_sandbox_set_node(sb->engine->store, sb->row, &err);
        }
        if (r == 0)
                r = send_freeze(sb, m, p, &err);
        if (r < 0) {
                if (m)
                        making_free(m);
                fn(NULL, &err, userdata);
        }
}

/* -- views, listing ------------------------------------------------------------------------------------------------------------------ */

json_t *cop_node_view(const struct cop_node_row *row)
{
        char stamp[COP_RFC3339_MAX];
        json_t *view = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f}", "id", row->id, "sandbox_id",
                                 row->sandbox_id, "kind", row->kind, "reason", row->reason, "image_id", row->image_id, "created_at",
                                 cop_rfc3339(row->created_at, stamp), "memory_bytes", (json_int_t)row->memory_bytes, "file_bytes",
                                 (json_int_t)row->file_bytes, "files", (json_int_t)row->files, "pause_ms", (double)row->pause / 1000,
                                 "duration_ms", (double)row->duration / 1000);
        if (!view)
                return NULL;
        if (row->name)
                json_object_set_new(view, "name", json_string(row->name));
        if (row->parent_id[0])
                json_object_set_new(view, "parent_id", json_string(row->parent_id));
        if (row->cell_id[0])
                json_object_set_new(view, "cell_id", json_string(row->cell_id));
        return view;
}

void cop_node_list(struct cop_engine *e, const char *sandbox_ref, struct cop_op_to to)
{
        _cleanup_(cop_node_rows_freep) struct cop_node_row **rows = NULL;
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *sandbox = NULL;
        struct cop_node_filter f = {.named = sandbox_ref == NULL};
        struct cop_error err;

        int r = sandbox_ref ? cop_store_sandbox_get(e->store, sandbox_ref, &sandbox, &err) : 0;
        f.sandbox_id = sandbox ? sandbox->id : NULL;
        if (r == 0)
                r = cop_store_node_list(e->store, &f, &rows, &err);
        if (r < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        json_t *list = json_array();
        for (struct cop_node_row **row = rows; *row; row++)
                json_array_append_new(list, cop_node_view(*row));
        cop_answer(to, sandbox ? json_pack("{s:s, s:s, s:o}", "sandbox_id", sandbox->id, "head", sandbox->node_id, "nodes", list)
                               : json_pack("{s:o}", "snapshots", list), NULL);
}

void cop_node_get(struct cop_engine *e, const char *ref, struct cop_op_to to)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        struct cop_error err;

        if (cop_store_node_get(e->store, ref, &row, &err) < 0)
                cop_answer(to, NULL, &err);
        else
                cop_answer(to, cop_node_view(row), NULL);
}

/* -- removing --------------------------------------------------------------------------------------------------------------------------- */

void cop_node_release(struct cop_engine *e, const char *id)
{
        char next[COP_STORE_ID_MAX];

        snprintf(next, sizeof(next), "%s", id);
        while (next[0]) {
                _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
                if (cop_store_node_get(e->store, next, &row, NULL) < 0 || row->name || cop_store_node_in_use(e->store, row->id, NULL) != 0 ||
                    cop_store_node_delete(e->store, row->id, NULL) < 0)
                        return;
                discard_folder(e, row->id);
                memcpy(next, row->parent_id, sizeof(next));
        }
}

void cop_nodes_release_of(struct cop_engine *e, const char *sandbox_id)
{
        _cleanup_(cop_node_rows_freep) struct cop_node_row **rows = NULL;
        struct cop_node_filter f = {.sandbox_id = sandbox_id};
        size_t n = 0;

        if (cop_store_node_list(e->store, &f, &rows, NULL) < 0)
                return;
        while (rows[n])
                n++;
        while (n > 0) /* children before parents */
                cop_node_release(e, rows[--n]->id);
}

void cop_node_remove(struct cop_engine *e, const char *ref, struct cop_op_to to)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        struct cop_error err;

        int r = cop_store_node_get(e->store, ref, &row, &err);
        if (r == 0)
                r = cop_store_node_in_use(e->store, row->id, &err);
        if (r > 0) /* what stands on it keeps it; it is no snapshot of anybody's any more */
                r = cop_store_node_set_name(e->store, row->id, NULL, &err);
        else if (r == 0 && (r = cop_store_node_delete(e->store, row->id, &err)) == 0) {
                discard_folder(e, row->id);
                cop_node_release(e, row->parent_id);
        }
        if (r < 0)
                cop_answer(to, NULL, &err);
        else
                cop_answer(to, cop_node_view(row), NULL);
}

void cop_nodes_sweep(struct cop_engine *e)
{
        _cleanup_closedir_ DIR *dir = NULL;
        char path[4200];
        struct dirent *entry;

        if (cop_path_format(path, sizeof(path), "%s/nodes", e->home) < 0 || !(dir = opendir(path)))
                return;
        while ((entry = readdir(dir))) {
                _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
                if (!cop_id_valid(entry->d_name, "nd_", 10) || cop_store_node_get(e->store, entry->d_name, &row, NULL) != -ENOENT)
                        continue;
                if (cop_store_node_in_use(e->store, entry->d_name, NULL) == 0)
                        discard_folder(e, entry->d_name);
        }
}
