/* Theory of operation
 *
 * Keepers outlive the daemon.  At its start the engine looks at every row that has not ended:
 *
 *      running     connect; HELLO says whether the sandbox lives, LIST what became of its commands and kernels.  Until both
 *                  are answered the sandbox is STARTING in memory, so that requests wait for it
 *      starting    its creator died before it told anybody: ended, start_failed
 *      suspended   nothing runs; the first request wakes it
 *      suspending, resuming    sleep.c finds out how far it came
 *      ending      ended again with what remains to be done; the reason was not stored, so it is "removed"
 *
 * No keeper: ended with host_reboot (the row is of another boot) or keeper_died.  HELLO says "ended": ended with what
 * it says.  Kernels are compared with LIST in both directions: one that ended while nobody listened is told to its
 * context as an event; one that no context knows any more is killed.
 *
 * Folders below sandboxes/ without a row (a database that was lost) may still have a keeper: it is stopped first.
 */
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "engine/context.h"
#include "engine/node.h"
#include "sandbox/cgroup.h"

#define HELLO_DEADLINE (10 * USEC_PER_SEC)
#define STOP_DEADLINE (10 * USEC_PER_SEC)

/* -- what the keeper knows ----------------------------------------------------------------------------------------- */

static void fill_message(const struct cop_wire_entry *entry, struct cop_msg *m)
{
        cop_msg_init(m, COP_WIRE_EVENT_EXIT, 0);
        cop_msg_add_str(m, COP_TAG_KEY, entry->key);
        cop_msg_add_u64(m, COP_TAG_PID, entry->pid);
        cop_msg_add_u64(m, COP_TAG_FLAGS, entry->flags);
        cop_msg_add_u64(m, COP_TAG_STATUS, entry->status);
        cop_msg_add_u64(m, COP_TAG_TIMED_OUT, !!(entry->flags & COP_ENTRY_TIMED_OUT));
        cop_msg_add_u64(m, COP_TAG_STDOUT_BYTES, entry->stdout_bytes);
        cop_msg_add_u64(m, COP_TAG_STDERR_BYTES, entry->stderr_bytes);
        cop_msg_add_u64(m, COP_TAG_LOG_SIZE, entry->log_size);
        cop_msg_add_u64(m, COP_TAG_STARTED, entry->started);
        cop_msg_add_u64(m, COP_TAG_ENDED, entry->ended);
}

static bool get_entry(const struct cop_msg *list, unsigned i, struct cop_wire_entry *ret)
{
        const void *data;
        size_t n;

        if (cop_msg_get_bytes(list, COP_TAG_ENTRY, i, &data, &n) < 0 || n != sizeof(*ret))
                return false;
        memcpy(ret, data, n);
        ret->key[sizeof(ret->key) - 1] = '\0';
        return true;
}

static void ignore_reply(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
}

static void kill_stray_kernel(struct cop_sandbox *sb, const char *key)
{
        struct cop_msg m;

        cop_msg_init(&m, COP_WIRE_SIGNAL, 0);
        cop_msg_add_str(&m, COP_TAG_KEY, key);
        cop_msg_add_u64(&m, COP_TAG_SIGNAL, SIGKILL);
        cop_msg_add_u64(&m, COP_TAG_FLAGS, COP_EXEC_GROUP);
        cop_keeper_call(sb->keeper, &m, STOP_DEADLINE, ignore_reply, NULL);
        cop_msg_init(&m, COP_WIRE_FORGET, 0);
        cop_msg_add_str(&m, COP_TAG_KEY, key);
        cop_keeper_call(sb->keeper, &m, STOP_DEADLINE, ignore_reply, NULL);
}

static bool is_kernel(const struct cop_wire_entry *entry)
{
        return strncmp(entry->key, "ker_", 4) == 0;
}

/* The keys that the contexts had before they were taken over: taking over may start new kernels. */
struct kernel_keys {
        char (*keys)[COP_ID_MAX];
        size_t count;
};

static int note_kernel_keys(struct cop_sandbox *sb, struct kernel_keys *ret, struct cop_error *err)
{
        _cleanup_(cop_context_rows_freep) struct cop_context_row **rows = NULL;
        size_t n = 0;

        int r = cop_store_context_list(sb->engine->store, sb->id, &rows, err);
        if (r < 0)
                return r;
        while (rows[n])
                n++;
        ret->keys = calloc(n + 1, sizeof(*ret->keys));
        if (!ret->keys)
                return cop_error_errno(err, ENOMEM, "sandbox %s", sb->id);
        for (size_t i = 0; i < n; i++)
                snprintf(ret->keys[i], sizeof(ret->keys[i]), "%s", rows[i]->kernel_key);
        ret->count = n;
        return 0;
}

static bool is_of_a_context(const struct cop_sandbox *sb, const char *key)
{
        for (const struct cop_context *c = sb->contexts; c; c = c->next)
                if (strcmp(c->row->kernel_key, key) == 0)
                        return true;
        return false;
}

/* A kernel that the row calls live and the keeper does not know was lost between the two: it counts as killed. */
static void tell_lost_kernels(struct cop_sandbox *sb, const struct cop_msg *list, const struct kernel_keys *known)
{
        for (size_t k = 0; k < known->count; k++) {
                struct cop_wire_entry entry = {.status = SIGKILL, .flags = COP_ENTRY_EXITED};
                struct cop_wire_entry seen;
                bool found = !known->keys[k][0];
                for (unsigned i = 0; !found && get_entry(list, i, &seen); i++)
                        found = strcmp(seen.key, known->keys[k]) == 0;
                if (found)
                        continue;
                snprintf(entry.key, sizeof(entry.key), "%s", known->keys[k]);
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
                fill_message(&entry, &m);
                cop_contexts_event(sb, &m);
        }
}

static void take_over(struct cop_sandbox *sb, const struct cop_msg *list, const struct kernel_keys *known)
{
        struct cop_wire_entry entry;

        cop_contexts_adopt(sb);
        for (unsigned i = 0; get_entry(list, i, &entry); i++) {
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
                fill_message(&entry, &m);
                if (!is_kernel(&entry))
                        cop_commands_adopt(sb, &m);
                else if (!is_of_a_context(sb, entry.key)) /* a context that was starting has begun anew */
                        kill_stray_kernel(sb, entry.key);
                else if (entry.flags & COP_ENTRY_EXITED)
                        cop_contexts_event(sb, &m);
        }
        cop_commands_adopted(sb);
        tell_lost_kernels(sb, list, known);
}

/* -- one sandbox --------------------------------------------------------------------------------------------------- */

static void on_list(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_sandbox *sb = userdata;
        struct kernel_keys known = {0};
        struct cop_error error;

        if (sb->state != COP_SANDBOX_STARTING && sb->state != COP_SANDBOX_RESUMING)
                return;
        int r = err ? -err->errnum : cop_sandbox_open_folders(sb, &error);
        if (r == 0)
                r = note_kernel_keys(sb, &known, &error);
        if (r < 0) {
                cop_log_warning("sandbox %s cannot be taken over: %s", sb->id, err ? err->message : error.message);
                if (sb->thawing) {
                        cop_sandbox_thaw_failed(sb, err ? err : &error);
                        return;
                }
                cop_sandbox_end(sb, "keeper_died", NULL);
                return;
        }
        sb->state = COP_SANDBOX_RUNNING;
        if (strcmp(sb->row->state, "running") != 0) { /* a daemon died before it could suspend it */
                cop_node_discard_pending(sb);
                snprintf(sb->row->state, sizeof(sb->row->state), "running");
                cop_store_sandbox_set_node(sb->engine->store, sb->row, NULL);
        }
        take_over(sb, reply, &known);
        cop_contexts_meet_done(sb);
        free(known.keys);
        cop_log_info("sandbox %s goes on", sb->id);
        if (sb->replay_due)
                cop_replay_begin(sb); /* before those who wait */
        if (sb->state == COP_SANDBOX_RUNNING)
                cop_sandbox_now_running(sb);
}

void cop_sandbox_take_over(struct cop_sandbox *sb)
{
        struct cop_msg m;

        cop_msg_init(&m, COP_WIRE_LIST, 0);
        cop_keeper_call(sb->keeper, &m, HELLO_DEADLINE, on_list, sb);
}

static void on_hello(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_sandbox *sb = userdata;
        _cleanup_free_ char *state = NULL, *reason = NULL;

        if (sb->state != COP_SANDBOX_STARTING)
                return;
        bool usable = !err && cop_msg_get_str(reply, COP_TAG_STATE, 0, &state) >= 0;
        if (usable && cop_msg_u64_or(reply, COP_TAG_VERSION, 0) != COP_WIRE_VERSION) {
                cop_log_error("sandbox %s: its keeper is of another version of Coppice and cannot be talked to",
                              sb->id);
                usable = false;
        }
        if (strcmp(sb->row->state, "suspending") == 0 && (!usable || strcmp(state, "running") != 0)) {
                cop_sandbox_adopt_sleeping(sb, "suspending"); /* the keeper was at it, and is done */
                return;
        }
        if (!usable) {
                cop_sandbox_end(sb, "keeper_died", NULL);
                return;
        }
        if (strcmp(state, "running") != 0) {
                bool oom = cop_msg_get_str(reply, COP_TAG_REASON, 0, &reason) == 0 && strcmp(reason, "oom") == 0;
                cop_sandbox_end(sb, oom ? "oom" : "init_died", NULL);
                return;
        }
        cop_sandbox_take_over(sb);
}

/* It sleeps, or shall: on a state that is there? */
static bool head_is_whole(struct cop_sandbox *sb)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *node = NULL;

        /* One that cannot be read, or is not there, is told of when it is woken. */
        return cop_store_node_get(sb->engine->store, sb->row->node_id, &node, NULL) < 0 ||
               cop_node_is_whole(sb->engine, node);
}

static void adopt_one(struct cop_engine *e, struct cop_sandbox_row *row)
{
        bool same_boot = row->boot_id && strcmp(row->boot_id, e->boot_id) == 0;
        char was[COP_STORE_STATE_MAX], id[COP_ID_MAX], path[4200];
        struct cop_sandbox *sb;
        struct cop_error err;
        struct cop_msg m;

        snprintf(was, sizeof(was), "%s", row->state);
        snprintf(id, sizeof(id), "%s", row->id);
        if (cop_sandbox_new(e, row, &sb, &err) < 0) {
                cop_log_error("sandbox %s cannot be taken over: %s", id, err.message);
                return;
        }
        if (cop_sandbox_read_image(sb, &err) < 0) /* it runs all the same; only new kernels need what is missing */
                cop_log_warning("sandbox %s: %s", id, err.message);
        bool asleep = strcmp(was, "suspended") == 0, resuming = strcmp(was, "resuming") == 0;
        if ((asleep || resuming) && !head_is_whole(sb)) {
                cop_sandbox_end(sb, "host_reboot", NULL);
                return;
        }
        if (asleep && !sb->policy.copy) {
                sb->state = COP_SANDBOX_SUSPENDED;
                return;
        }
        /* What is thawed half way only has to go: its end is not that of the sandbox. */
        const struct cop_keeper_events all = {cop_sandbox_on_event, cop_sandbox_on_lost, sb}, none = {0};
        const struct cop_keeper_events events = resuming ? none : all;
        int r = cop_path_format(path, sizeof(path), "%s/run/keeper.sock", sb->dir);
        if (r == 0 && same_boot)
                r = cop_keeper_connect(e->loop, path, &events, &sb->keeper, &err);
        if (resuming || (strcmp(was, "suspending") == 0 && (r < 0 || !same_boot)))
                cop_sandbox_adopt_sleeping(sb, was);
        else if (strcmp(was, "ending") == 0 || sb->policy.copy) /* who read a copy is gone */
                cop_sandbox_end(sb, "removed", NULL);
        else if (strcmp(was, "starting") == 0)
                cop_sandbox_end(sb, "start_failed", NULL);
        else if (!same_boot)
                cop_sandbox_end(sb, "host_reboot", NULL);
        else if (r < 0)
                cop_sandbox_end(sb, "keeper_died", NULL);
        else {
                cop_msg_init(&m, COP_WIRE_HELLO, 0);
                cop_msg_add_u64(&m, COP_TAG_VERSION, COP_WIRE_VERSION);
                cop_keeper_call(sb->keeper, &m, HELLO_DEADLINE, on_hello, sb);
        }
}

/* -- folders without a row ----------------------------------------------------------------------------------------- */

struct cop_adoption {
        struct cop_adoption *next;
        struct cop_engine *engine;
        struct cop_keeper *keeper;
        char id[COP_ID_MAX];
};

static void adoption_free(struct cop_adoption *a)
{
        for (struct cop_adoption **at = &a->engine->adoptions; *at; at = &(*at)->next)
                if (*at == a) {
                        *at = a->next;
                        break;
                }
        cop_keeper_free(a->keeper);
        free(a);
}

static void discard(struct cop_engine *e, const char *id)
{
        char path[4200];

        if (cop_cgroup_cleanup(id, 200, NULL) < 0)
                cop_log_warning("processes of sandbox %s, of which nothing else is known, are left", id);
        if (cop_path_format(path, sizeof(path), "%s/sandboxes/%s", e->home, id) == 0)
                cop_trash_add(e, path);
}

static void on_orphan_stopped(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_adoption *a = userdata;

        if (err)
                cop_keeper_kill(a->keeper);
        discard(a->engine, a->id);
        adoption_free(a);
}

void cop_engine_end_orphan(struct cop_engine *e, const char *id, struct cop_keeper *keeper)
{
        struct cop_adoption *a = calloc(1, sizeof(*a));
        const struct cop_keeper_events no_events = {0};
        char path[4200];
        struct cop_msg m;

        if (!a) {
                cop_keeper_free(keeper);
                return;
        }
        *a = (struct cop_adoption){.next = e->adoptions, .engine = e, .keeper = keeper};
        e->adoptions = a;
        snprintf(a->id, sizeof(a->id), "%.*s", COP_ID_MAX - 1, id);
        if (keeper)
                cop_keeper_set_events(keeper, &no_events);
        else if (cop_path_format(path, sizeof(path), "%s/sandboxes/%s/run/keeper.sock", e->home, id) < 0 ||
                 cop_keeper_connect(e->loop, path, &no_events, &a->keeper, NULL) < 0) {
                discard(e, id);
                adoption_free(a);
                return;
        }
        cop_msg_init(&m, COP_WIRE_STOP, 0);
        cop_msg_add_u64(&m, COP_TAG_TIMEOUT, 0);
        cop_keeper_call(a->keeper, &m, STOP_DEADLINE, on_orphan_stopped, a);
}

void cop_engine_adopt_drop(struct cop_engine *e)
{
        while (e->adoptions)
                adoption_free(e->adoptions);
}

static void sweep_folders(struct cop_engine *e)
{
        _cleanup_closedir_ DIR *dir = NULL;
        char path[4200];
        struct dirent *entry;

        if (cop_path_format(path, sizeof(path), "%s/sandboxes", e->home) < 0 || !(dir = opendir(path)))
                return;
        while ((entry = readdir(dir))) {
                _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *row = NULL;
                if (entry->d_name[0] == '.' || strlen(entry->d_name) >= COP_ID_MAX)
                        continue;
                int r = cop_store_sandbox_get(e->store, entry->d_name, &row, NULL);
                if (r == -ENOENT) {
                        cop_log_info("removing what is left of sandbox %s, of which the database knows nothing",
                                     entry->d_name);
                        cop_engine_end_orphan(e, entry->d_name, NULL);
                } else if (r == 0 && strcmp(row->state, "ended") == 0 && row->ended_reason &&
                           strcmp(row->ended_reason, "removed") == 0)
                        discard(e, entry->d_name); /* the daemon died between the row and the files */
        }
}

int cop_engine_adopt(struct cop_engine *e, struct cop_error *err)
{
        _cleanup_free_ struct cop_sandbox_row **rows = NULL; /* the rows themselves are handed over */

        int r = cop_store_sandbox_list(e->store, COP_STORE_LIVE, 100000, &rows, err);
        if (r < 0)
                return r;
        size_t n = 0;
        while (rows[n])
                n++;
        while (n > 0) /* oldest first: the list in memory is newest first */
                adopt_one(e, rows[--n]);
        sweep_folders(e);
        cop_nodes_drop_torn(e);
        cop_nodes_sweep(e);
        cop_engine_prune(e);
        return 0;
}
