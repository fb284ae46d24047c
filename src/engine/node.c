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
#include "engine/command.h"
#include "sandbox/cgroup.h"

#define CLEANUP_WAIT 200 /* ms */
#define STILL_DEADLINE (10 * USEC_PER_SEC)
#define FREEZE_DEADLINE (600 * USEC_PER_SEC) /* gigabytes to a slow disk */

static const char *const reasons[] = {"snapshot", "checkpoint", "suspend", "fork", "golden"};

/* -- what a node remembers of the sandbox --------------------------------------------------------------------------------------- */

static json_t *context_spec(const struct cop_context_row *row)
{
        return json_pack("{s:s, s:s?, s:s?, s:s?, s:s?, s:s?, s:s, s:s, s:s?, s:s?, s:s?, s:s?, s:I, s:I, s:I}", "id",
                         row->id, "name", row->name, "kernelspec", row->kernelspec, "language", row->language, "cwd",
                         row->cwd, "env", row->env, "state", row->state, "kernel_key", row->kernel_key, "kernel_dir",
                         row->kernel_dir, "key", row->key, "session", row->session, "state_lost", row->state_lost,
                         "generation", (json_int_t)row->generation, "execution_count", (json_int_t)row->execution_count,
                         "kernel_pid", (json_int_t)row->kernel_pid);
}

static char *make_spec(struct cop_sandbox *sb)
{
        _cleanup_json_ json_t *spec = json_object();
        json_t *contexts = json_array();

        for (struct cop_context *c = sb->contexts; c; c = c->next)
                if (!c->removing)
                        json_array_append_new(contexts, context_spec(c->row));
        json_object_set_new(spec, "contexts", contexts);
        json_object_set_new(spec, "commands", cop_commands_spec(sb));
        json_object_set_new(spec, "generation", json_integer((json_int_t)sb->row->generation));
        json_object_set_new(spec, "limits", sb->row->limits ? json_loads(sb->row->limits, 0, NULL) : json_object());
        json_object_set_new(spec, "env", sb->row->env ? json_loads(sb->row->env, 0, NULL) : json_object());
        json_object_set_new(spec, "policy", sb->row->policy ? json_loads(sb->row->policy, 0, NULL) : json_object());
        json_object_set_new(spec, "history", cop_history_of_sandbox(sb->engine, sb->row, true));
        return json_dumps(spec, JSON_COMPACT);
}

static void copy_id(json_t *object, const char *key, char *ret, size_t size)
{
        const char *text = json_string_value(json_object_get(object, key));

        snprintf(ret, size, "%s", text ? text : "");
}

static struct cop_context_row *context_row(const struct cop_sandbox *sb, json_t *spec)
{
        struct cop_context_row *row = calloc(1, sizeof(*row));

        if (!row)
                return NULL;
        snprintf(row->sandbox_id, sizeof(row->sandbox_id), "%s", sb->id);
        copy_id(spec, "id", row->id, sizeof(row->id));
        copy_id(spec, "state", row->state, sizeof(row->state));
        copy_id(spec, "kernel_key", row->kernel_key, sizeof(row->kernel_key));
        row->name = cop_json_copy_str(spec, "name");
        row->kernelspec = cop_json_copy_str(spec, "kernelspec");
        row->language = cop_json_copy_str(spec, "language");
        row->cwd = cop_json_copy_str(spec, "cwd");
        row->env = cop_json_copy_str(spec, "env");
        row->kernel_dir = cop_json_copy_str(spec, "kernel_dir");
        row->key = cop_json_copy_str(spec, "key");
        row->session = cop_json_copy_str(spec, "session");
        row->state_lost = cop_json_copy_str(spec, "state_lost");
        row->generation = (uint64_t)json_integer_value(json_object_get(spec, "generation"));
        row->execution_count = json_integer_value(json_object_get(spec, "execution_count"));
        row->kernel_pid = json_integer_value(json_object_get(spec, "kernel_pid"));
        row->created_at = row->last_activity_at = cop_now(CLOCK_REALTIME);
        return row;
}

int cop_node_forget_contexts(struct cop_sandbox *sb, struct cop_error *err)
{
        _cleanup_(cop_context_rows_freep) struct cop_context_row **rows = NULL;

        sb->row->generation = 0;
        int r = cop_store_context_list(sb->engine->store, sb->id, &rows, err);
        for (struct cop_context_row **row = rows; r == 0 && row && *row; row++)
                r = cop_store_context_delete(sb->engine->store, sb->id, (*row)->id, err);
        return r == 0 ? cop_store_sandbox_set_generation(sb->engine->store, sb->id, 0, err) : r;
}

unsigned cop_node_prepare(const struct cop_node_row *node)
{
        /* A fork goes on in the environment of its source; a golden state has none worth keeping. */
        bool golden = strcmp(node->reason, reasons[COP_NODE_GOLDEN]) == 0;

        return COP_PREPARE_SEED | COP_PREPARE_LIMIT | (golden ? COP_PREPARE_ENV : 0);
}

static int context_rows(const struct cop_sandbox *sb, json_t *contexts, struct cop_context_row ***ret,
                        struct cop_error *err)
{
        _cleanup_(cop_context_rows_freep) struct cop_context_row **rows =
                calloc(json_array_size(contexts) + 1, sizeof(struct cop_context_row *));
        json_t *spec;
        size_t i;

        if (!rows)
                return cop_error_errno(err, ENOMEM, "contexts of %s", sb->id);
        json_array_foreach (contexts, i, spec)
                if (!(rows[i] = context_row(sb, spec)))
                        return cop_error_errno(err, ENOMEM, "contexts of %s", sb->id);
        *ret = TAKE_PTR(rows);
        return 0;
}

int cop_node_contexts(const struct cop_sandbox *sb, const char *node, struct cop_context_row ***ret,
                      struct cop_error *err)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        int r = cop_store_node_get(sb->engine->store, node, &row, err);
        _cleanup_json_ json_t *spec = r == 0 ? json_loads(row->spec, 0, NULL) : NULL;

        return r < 0 ? r : context_rows(sb, json_object_get(spec, "contexts"), ret, err);
}

static int replace_contexts(struct cop_sandbox *sb, json_t *contexts, uint64_t generation, bool env,
                            struct cop_error *err)
{
        _cleanup_(cop_context_rows_freep) struct cop_context_row **rows = NULL;
        struct cop_store *store = sb->engine->store;

        int r = context_rows(sb, contexts, &rows, err);
        if (r == 0)
                r = cop_node_forget_contexts(sb, err);
        if (r < 0)
                return r;
        sb->row->generation = generation;
        r = cop_store_sandbox_set_generation(store, sb->id, generation, err);
        for (struct cop_context_row **row = rows; *row && r == 0; row++) {
                if (!env)
                        (*row)->env = (free((*row)->env), NULL);
                r = cop_store_context_insert(store, *row, err);
        }
        return r;
}

int cop_node_restore_contexts(struct cop_sandbox *sb, const struct cop_node_row *node, bool env, struct cop_error *err)
{
        _cleanup_json_ json_t *spec = json_loads(node->spec, 0, NULL);
        struct cop_store *store = sb->engine->store;

        if (!spec)
                return cop_error_set(err, EIO, COP_ERR_image_damaged, "what node %s says of its contexts is unreadable",
                                     node->id);
        uint64_t generation = (uint64_t)json_integer_value(json_object_get(spec, "generation"));
        int r = cop_store_begin(store, err);
        if (r < 0)
                return r;
        r = replace_contexts(sb, json_object_get(spec, "contexts"), generation, env, err);
        if (r == 0)
                r = cop_commands_restore(sb, json_object_get(spec, "commands"), env, err);
        if (r < 0) {
                cop_store_rollback(store);
                return r;
        }
        return cop_store_commit(store, err);
}

/* -- making --------------------------------------------------------------------------------------------------------------------------- */

/* One at a time for a sandbox, in the order of arrival; the first of the list is at the keeper. */
struct cop_making {
        struct cop_making *next;
        struct cop_engine *engine;
        char sandbox_id[COP_ID_MAX];
        struct cop_node_row *row; /* owned; NULL: no node, only fn is to be called in its turn */
        bool end, files_only, lazy, sent, taken;
        bool fork;                 /* the head will do, where it is the state still */
        struct cop_node_row *head; /* owned, while the keeper is asked whether it is */
        int64_t before;            /* not lazy: nodes up to this seq were written before the keeper begins to sync */
        usec_t begun, lifetime;
        cop_node_fn fn; /* NULL: was told already */
        void *userdata;
};

static void making_free(struct cop_making *m)
{
        cop_node_row_free(m->row);
        cop_node_row_free(m->head);
        free(m);
}

static int node_path(struct cop_engine *e, const char *id, char *path, size_t size, struct cop_error *err)
{
        int r = cop_path_format(path, size, "%s/nodes/%s", e->home, id);

        return r < 0 ? cop_error_errno(err, r, "%s", e->home) : 0;
}

/* The keeper writes `keep` last, after everything else is synced (K1). */
static bool is_complete(struct cop_engine *e, const char *id)
{
        char path[4200];

        return cop_path_format(path, sizeof(path), "%s/nodes/%s/keep", e->home, id) == 0 && access(path, F_OK) == 0;
}

/* N1: the row, and with it the head of the sandbox, in one transaction. */
static int commit(struct cop_sandbox *sb, struct cop_making *m, struct cop_error *err)
{
        struct cop_sandbox_row *row = sb->row;
        struct cop_store *store = m->engine->store;
        char old_node[COP_STORE_ID_MAX], old_state[COP_STORE_STATE_MAX];
        char *old_layers = row->layers;

        int r = cop_store_begin(store, err);
        if (r < 0)
                return r;
        if (m->lazy)
                snprintf(m->row->written_boot, sizeof(m->row->written_boot), "%s", m->engine->boot_id);
        else /* the whole filesystem was synced */
                r = cop_store_nodes_synced(store, m->before, err);
        if (r == 0)
                r = cop_store_node_insert(store, m->row, err);
        memcpy(old_node, row->node_id, sizeof(old_node));
        memcpy(old_state, row->state, sizeof(old_state));
        /* What changed in memory is told against the newest node that has memory: a node of files alone taken from
         * a live sandbox is never its head, or the next freeze would build on pages that are not there. */
        if (m->end || strcmp(m->row->kind, "files") != 0)
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

static void make_next(struct cop_engine *e, const char *sandbox_id);

static void run_held_cells(struct cop_sandbox *sb)
{
        sb->held = false;
        for (struct cop_context *c = sb->contexts; c; c = c->next)
                cop_context_run_next(c);
}

static void unlink_making(struct cop_sandbox *sb, struct cop_making *m)
{
        for (struct cop_making **at = &sb->makings; *at; at = &(*at)->next)
                if (*at == m) {
                        *at = m->next;
                        return;
                }
}

/* One snapshot more: another may have to go, or a time has come to wait for. */
static void kept_anew(struct cop_engine *e, const struct cop_making *m)
{
        struct cop_sandbox *sb = cop_sandbox_by_id(e, m->sandbox_id);

        if (sb)
                cop_snapshots_thin(sb);
        if (m->row->expires_at)
                cop_policy_changed(e);
}

/* K1: the tree has ended, and all of it is on disk.  Only the answer is missing, because the keeper died. */
static bool died_after_keep(struct cop_engine *e, const struct cop_making *m)
{
        if (!m->end || !is_complete(e, m->row->id))
                return false;
        cop_log_warning("the keeper of %s died when it had just suspended it", m->sandbox_id);
        cop_cgroup_cleanup(m->sandbox_id, CLEANUP_WAIT, NULL);
        return true;
}

static void tell_made(struct cop_making *m, const struct cop_error *err)
{
        if (m->fn) /* before the cells: a failure tells them not to wait for another try */
                m->fn(err ? NULL : m->row, err, m->userdata);
        struct cop_sandbox *sb = cop_sandbox_by_id(m->engine, m->sandbox_id);
        if (sb && sb->held && !(sb->makings && sb->makings->sent))
                run_held_cells(sb);
}

static void making_over(struct cop_making *m)
{
        make_next(m->engine, m->sandbox_id);
        making_free(m);
}

static void on_frozen(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_making *m = userdata;
        struct cop_engine *e = m->engine;
        struct cop_sandbox *sb = cop_sandbox_by_id(e, m->sandbox_id);
        struct cop_error error;

        if (sb)
                unlink_making(sb, m);
        if (err && died_after_keep(e, m))
                err = NULL;
        if (!err && (!sb || sb->state >= COP_SANDBOX_ENDING)) {
                cop_error_set(&error, ESHUTDOWN, COP_ERR_sandbox_ended, "sandbox %s has ended", m->sandbox_id);
                err = &error;
        }
        if (!err && reply) {
                m->row->pause = cop_msg_u64_or(reply, COP_TAG_PAUSE, 0);
                m->row->memory_bytes = cop_msg_u64_or(reply, COP_TAG_MEMORY_BYTES, 0);
                m->row->file_bytes = cop_msg_u64_or(reply, COP_TAG_FILE_BYTES, 0);
                m->row->files = cop_msg_u64_or(reply, COP_TAG_FILES, 0);
                m->row->duration = cop_now(CLOCK_MONOTONIC) - m->begun;
        }
        if (!err && commit(sb, m, &error) < 0)
                err = &error;
        if (err) {
                cop_node_discard_folder(e, m->row->id);
                if (sb)
                        cop_checkpoint_is_not_at(sb, m->row->id);
        } else {
                cop_engine_event(e, "node.created", m->sandbox_id, NULL);
                cop_node_flatten_if_deep(e, m->row);
                if (!m->taken && !m->end && !m->files_only) /* the keeper did not tell earlier */
                        cop_checkpoint_is_at(sb, m->row->id);
                if (!m->files_only)
                        cop_spare_follow(e, m->row);
        }
        tell_made(m, err);
        if (!err && strcmp(m->row->reason, "snapshot") == 0)
                kept_anew(e, m);
        making_over(m);
}

void cop_node_discard_pending(struct cop_sandbox *sb)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *node = NULL;
        const char *id = sb->row->pending_node;

        if (id[0] && !cop_node_is_being_made(sb->engine, id) &&
            cop_store_node_get(sb->engine->store, id, &node, NULL) == -ENOENT)
                cop_node_discard_folder(sb->engine, id);
        sb->row->pending_node[0] = '\0';
}

bool cop_node_is_being_made(struct cop_engine *e, const char *id)
{
        for (struct cop_sandbox *sb = e->sandboxes; sb; sb = sb->next)
                for (const struct cop_making *m = sb->makings; m; m = m->next)
                        if (m->row && strcmp(m->row->id, id) == 0)
                                return true;
        return false;
}

void cop_node_taken(struct cop_sandbox *sb)
{
        struct cop_making *m = sb->makings;

        if (!m || !m->sent || m->taken)
                return;
        m->taken = true;
        if (!cop_sandbox_busy_with_running(sb))
                cop_checkpoint_is_at(sb, m->row->id);
        run_held_cells(sb);
}

bool cop_node_soon_made(const struct cop_sandbox *sb)
{
        for (const struct cop_making *m = sb->makings; m; m = m->next)
                if (!m->lazy)
                        return false;
        return true;
}

/* Its own layer on top of those below the sandbox. */
static char *node_layers(struct cop_sandbox *sb, const char *id)
{
        _cleanup_json_ json_t *below = sb->row->layers ? json_loads(sb->row->layers, 0, NULL) : NULL;
        _cleanup_json_ json_t *layers = json_array();

        json_array_append_new(layers, json_string(id));
        if (below)
                json_array_extend(layers, below);
        _cleanup_free_ char *text = json_dumps(layers, JSON_COMPACT);
        return text ? cop_layers_cut(sb->engine, text) : NULL;
}

static struct cop_node_row *node_row(struct cop_sandbox *sb, const struct cop_node_params *p)
{
        struct cop_node_row *row = calloc(1, sizeof(*row));

        if (!row)
                return NULL;
        cop_id_new(row->id, "nd_", 10);
        snprintf(row->sandbox_id, sizeof(row->sandbox_id), "%s", sb->id);
        snprintf(row->kind, sizeof(row->kind), "%s", p->files_only ? "files" : "memory");
        snprintf(row->reason, sizeof(row->reason), "%s", reasons[p->reason]);
        memcpy(row->image_id, sb->row->image_id, sizeof(row->image_id));
        row->name = p->name ? strdup(p->name) : NULL;
        row->spec = make_spec(sb);
        return row;
}

/* What may have changed while it waited for its turn.  (The contexts of a sandbox that falls asleep are closed by then.) */
static void complete_row(struct cop_sandbox *sb, struct cop_making *m)
{
        struct cop_node_row *row = m->row;
        bool new_cell;

        memcpy(row->parent_id, sb->row->node_id, sizeof(row->parent_id));
        if (strcmp(row->reason, reasons[COP_NODE_GOLDEN]) != 0) /* what was run there is of no sandbox's history */
                cop_history_last_cell(sb, row->cell_id, &new_cell);
        row->ordinal = cop_checkpoint_next_ordinal(sb);
        free(row->layers);
        row->layers = node_layers(sb, row->id);
        if (!m->end) {
                free(row->spec);
                row->spec = make_spec(sb);
        }
        row->created_at = cop_now(CLOCK_REALTIME);
        row->expires_at = m->lifetime ? cop_usec_add(row->created_at, m->lifetime) : 0;
        m->begun = cop_now(CLOCK_MONOTONIC);
}

/* What the row will say, in the folder itself: a daemon that starts after a crash has nothing else (cop_node_recover).  The keeper
 * syncs it with the rest of a node that has to outlive the host. */
static int write_note(const struct cop_making *m, const char *folder, struct cop_error *err)
{
        const struct cop_node_row *row = m->row;
        _cleanup_json_ json_t *note = json_pack(
                "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s?, s:I, s:I, s:I}", "sandbox_id", row->sandbox_id,
                "parent_id", row->parent_id, "kind", row->kind, "reason", row->reason, "image_id", row->image_id,
                "cell_id", row->cell_id, "layers", row->layers, "spec", row->spec, "name", row->name, "created_at",
                (json_int_t)row->created_at, "ordinal", (json_int_t)row->ordinal, "before", (json_int_t)m->before);
        _cleanup_free_ char *text = note ? json_dumps(note, JSON_COMPACT) : NULL;
        char path[4200];

        int r = text ? cop_path_format(path, sizeof(path), "%s/node.json", folder) : -ENOMEM;
        return r < 0 ? cop_error_errno(err, r, "node %s", row->id)
                     : cop_write_file_unsynced(AT_FDCWD, path, text, strlen(text), 0600, err);
}

static struct cop_node_row *row_of_note(const char *id, json_t *note)
{
        struct cop_node_row *row = calloc(1, sizeof(*row));

        if (!row)
                return NULL;
        snprintf(row->id, sizeof(row->id), "%s", id);
        copy_id(note, "sandbox_id", row->sandbox_id, sizeof(row->sandbox_id));
        copy_id(note, "parent_id", row->parent_id, sizeof(row->parent_id));
        copy_id(note, "kind", row->kind, sizeof(row->kind));
        copy_id(note, "reason", row->reason, sizeof(row->reason));
        copy_id(note, "image_id", row->image_id, sizeof(row->image_id));
        copy_id(note, "cell_id", row->cell_id, sizeof(row->cell_id));
        row->layers = cop_json_copy_str(note, "layers");
        row->spec = cop_json_copy_str(note, "spec");
        row->name = cop_json_copy_str(note, "name");
        row->created_at = (usec_t)json_integer_value(json_object_get(note, "created_at"));
        row->ordinal = json_integer_value(json_object_get(note, "ordinal"));
        return row;
}

int cop_node_recover(struct cop_engine *e, const char *id, struct cop_node_row **ret, struct cop_error *err)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        _cleanup_free_ char *text = NULL;
        char path[4200];
        size_t len;

        if (!id[0] || !is_complete(e, id))
                return cop_error_set(err, ENOENT, COP_ERR_node_not_found, "node %s was not completed", id);
        if (cop_store_node_get(e->store, id, ret, NULL) == 0) /* an earlier start came as far as that */
                return 0;
        int r = cop_path_format(path, sizeof(path), "%s/nodes/%s/node.json", e->home, id);
        if (r == 0)
                r = cop_read_file(AT_FDCWD, path, 16u << 20, &text, &len, err);
        if (r < 0)
                return r;
        _cleanup_json_ json_t *note = json_loads(text, 0, NULL);
        if (!note)
                return cop_error_set(err, EIO, COP_ERR_image_damaged, "%s is unreadable", path);
        row = row_of_note(id, note);
        if (!row || !row->layers || !row->spec)
                return cop_error_set(err, EIO, COP_ERR_image_damaged, "%s is incomplete", path);
        r = cop_store_nodes_synced(e->store, (int64_t)json_integer_value(json_object_get(note, "before")), err);
        if (r == 0)
                r = cop_store_node_insert(e->store, row, err);
        if (r == 0)
                *ret = TAKE_PTR(row);
        return r;
}

static int send_freeze(struct cop_sandbox *sb, struct cop_making *m, struct cop_error *err)
{
        char path[4200], parent[4200];
        struct cop_msg msg;

        int r = node_path(m->engine, m->row->id, path, sizeof(path), err);
        if (r == 0 && mkdir(path, 0700) < 0)
                r = cop_error_errno(err, errno, "making %s", path);
        if (r == 0 && !m->lazy)
                r = cop_store_node_newest(m->engine->store, &m->before, err);
        if (r == 0 && !m->lazy)
                r = write_note(m, path, err);
        if (r == 0 && m->row->parent_id[0])
                r = node_path(m->engine, m->row->parent_id, parent, sizeof(parent), err);
        if (r < 0)
                return r;
        cop_msg_init(&msg, COP_WIRE_FREEZE, 0);
        cop_msg_add_str(&msg, COP_TAG_NODE, path);
        if (m->row->parent_id[0])
                cop_msg_add_str(&msg, COP_TAG_PARENT, parent);
        cop_msg_add_u64(&msg, COP_TAG_FLAGS,
                        (m->end ? COP_NODE_END : 0) | (m->files_only ? COP_NODE_FILES : 0) |
                                (m->lazy ? COP_NODE_LAZY : 0));
        cop_keeper_call(sb->keeper, &msg, FREEZE_DEADLINE, on_frozen, m);
        /* The keeper works by now.  Of a checkpoint only a daemon that dies before the answer would miss it: then that is none. */
        if (m->lazy)
                (void)write_note(m, path, NULL);
        return 0;
}

/* -- when nothing has happened since the head was made: it is told, and no other is made ------------------------------------------ */

/* The daemon's part of it: what it would write into the row is what the head's says. */
static bool head_may_do(struct cop_making *m)
{
        return m->fork && cop_store_node_get(m->engine->store, m->row->parent_id, &m->head, NULL) == 0 &&
               strcmp(m->head->sandbox_id, m->sandbox_id) == 0 && strcmp(m->head->kind, "memory") == 0 &&
               m->head->spec && strcmp(m->head->spec, m->row->spec) == 0;
}

static void on_still(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_making *m = userdata;
        struct cop_sandbox *sb = cop_sandbox_by_id(m->engine, m->sandbox_id);
        struct cop_error error;
        int r = 0;

        if (!sb || sb->state >= COP_SANDBOX_ENDING || !sb->keeper) {
                r = cop_error_set(&error, ESHUTDOWN, COP_ERR_sandbox_ended, "sandbox %s has ended", m->sandbox_id);
        } else if (reply && cop_msg_u64_or(reply, COP_TAG_FLAGS, 0)) {
                cop_node_row_free(m->row);
                m->row = TAKE_PTR(m->head);
        } else { /* a keeper that does not know the question is as good as one that says no */
                complete_row(sb, m);
                r = send_freeze(sb, m, &error);
                if (r == 0)
                        return;
                cop_node_discard_folder(m->engine, m->row->id);
        }
        if (sb)
                unlink_making(sb, m);
        tell_made(m, r < 0 ? &error : NULL);
        making_over(m);
}

/* 1 = the keeper is being asked. */
static int ask_if_still(struct cop_sandbox *sb, struct cop_making *m, struct cop_error *err)
{
        char parent[4200];
        struct cop_msg msg;

        if (!head_may_do(m))
                return 0;
        int r = node_path(m->engine, m->row->parent_id, parent, sizeof(parent), err);
        if (r < 0)
                return r;
        cop_msg_init(&msg, COP_WIRE_STILL, 0);
        cop_msg_add_str(&msg, COP_TAG_PARENT, parent);
        cop_keeper_call(sb->keeper, &msg, STILL_DEADLINE, on_still, m);
        return 1;
}

static int begin_making(struct cop_sandbox *sb, struct cop_making *m, struct cop_error *err)
{
        int r = 0;

        if (sb->state >= COP_SANDBOX_ENDING || !sb->keeper)
                return cop_error_set(err, ESHUTDOWN, COP_ERR_sandbox_ended, "sandbox %s does not run any more", sb->id);
        complete_row(sb, m);
        if (!m->row->layers || !m->row->spec)
                return cop_error_errno(err, ENOMEM, "node");
        if (m->end) { /* N2: a daemon that starts in the middle finds out from this whose folder it is */
                memcpy(sb->row->pending_node, m->row->id, sizeof(sb->row->pending_node));
                r = cop_store_sandbox_set_node(sb->engine->store, sb->row, err);
        }
        if (r == 0)
                r = ask_if_still(sb, m, err);
        if (r == 0)
                r = send_freeze(sb, m, err);
        if (r < 0)
                return r;
        m->sent = sb->held = true;
        return 0;
}

static void make_next(struct cop_engine *e, const char *sandbox_id)
{
        char id[COP_ID_MAX];
        struct cop_sandbox *sb;
        struct cop_error err;

        snprintf(id, sizeof(id), "%s", sandbox_id); /* the callbacks may free what it belongs to */
        while ((sb = cop_sandbox_by_id(e, id)) && sb->makings && !sb->makings->sent) {
                struct cop_making *m = sb->makings;
                int r = m->row ? begin_making(sb, m, &err) : 0;
                if (m->sent)
                        return;
                sb->makings = m->next;
                if (m->row)
                        cop_node_discard_folder(e, m->row->id);
                m->fn(NULL, r < 0 ? &err : NULL, m->userdata);
                making_free(m);
        }
}

static int enqueue(struct cop_sandbox *sb, const struct cop_node_params *p, cop_node_fn fn, void *userdata,
                   struct cop_error *err)
{
        struct cop_making *m = calloc(1, sizeof(*m)), **end = &sb->makings;

        if (!m)
                return cop_error_errno(err, ENOMEM, "node");
        *m = (struct cop_making){.engine = sb->engine, .fn = fn, .userdata = userdata};
        snprintf(m->sandbox_id, sizeof(m->sandbox_id), "%s", sb->id);
        if (p) {
                m->end = p->end;
                m->files_only = p->files_only;
                m->fork = p->reason == COP_NODE_FORK && !p->files_only;
                m->lazy = p->reason == COP_NODE_CHECKPOINT || p->reason == COP_NODE_FORK;
                m->lifetime = p->lifetime;
                m->row = node_row(sb, p);
                if (!m->row) {
                        free(m);
                        return cop_error_errno(err, ENOMEM, "node");
                }
        }
        while (*end)
                end = &(*end)->next;
        *end = m;
        make_next(sb->engine, m->sandbox_id);
        return 0;
}

void cop_node_make(struct cop_sandbox *sb, const struct cop_node_params *p, cop_node_fn fn, void *userdata)
{
        struct cop_error err;

        if (enqueue(sb, p, fn, userdata, &err) < 0)
                fn(NULL, &err, userdata);
}

void cop_node_after_makings(struct cop_sandbox *sb, cop_node_fn fn, void *userdata)
{
        struct cop_error err;

        if (enqueue(sb, NULL, fn, userdata, &err) < 0)
                fn(NULL, &err, userdata);
}

void cop_node_makings_abort(struct cop_sandbox *sb, const struct cop_error *err)
{
        struct cop_making *m, *sent = sb->makings && sb->makings->sent ? sb->makings : NULL;

        while ((m = sent ? sent->next : sb->makings)) {
                if (sent)
                        sent->next = m->next;
                else
                        sb->makings = m->next;
                m->fn(NULL, err, m->userdata);
                making_free(m);
        }
        if (sent && sent->fn) { /* its folder goes when the keeper has answered */
                cop_node_fn fn = sent->fn;
                sent->fn = NULL;
                fn(NULL, err, sent->userdata);
        }
}

void cop_node_makings_drop(struct cop_sandbox *sb)
{
        while (sb->makings) {
                struct cop_making *m = sb->makings;
                sb->makings = m->next;
                if (m->sent && !m->fn) /* the sandbox has ended */
                        cop_node_discard_folder(sb->engine, m->row->id);
                making_free(m);
        }
}
