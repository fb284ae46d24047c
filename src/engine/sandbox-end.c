/* Theory of operation
 *
 * A sandbox ends because somebody removes it, its ttl runs out, it could not be started, or its processes are gone. The
 * steps are the same for all:
 *
 *      1  row "ending": the name is free.  Waiters, cells and commands are told
 *      2  STOP to the keeper, which kills everything, undoes mounts and cgroup, answers and exits.  When there is no keeper
 *         or it does not answer, it is killed and we clean up the cgroup ourselves
 *      3  files go to the trash, all but logs/
 *      4  row "ended": the uid range is free, the object is freed.  When that is on disk, the logs of one that was removed or never
 *         started go too, and callers are answered
 *
 * Each step may be repeated: a daemon that dies in between finds the row "ending" at its next start and begins again
 * at 2. Steps 2 and 3 keep this order because the kernel must be done with the files before they move.
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "sandbox/cgroup.h"

#define STOP_DEADLINE (10 * USEC_PER_SEC)
#define CLEAN_EVERY (20 * USEC_PER_MSEC)
#define SAVE_EVERY (1 * USEC_PER_SEC)
#define PRUNE_EVERY 16
#define CLEAN_TRIES 500 /* 10 s: a process in an uninterruptible sleep holds its cgroup */

struct ender {
        struct ender *next;
        struct cop_op *op;
};

struct cop_sandbox_end {
        char reason[32];
        struct ender *enders;
        struct cop_source *timer; /* owned */
        unsigned tries;
        bool stopped;   /* the keeper said that nothing is left */
        bool discarded; /* the files are in the trash */
};

/* -- step 4 -------------------------------------------------------------------------------------------------------- */

static void answer_enders(struct cop_sandbox *sb, json_t *view)
{
        while (sb->end->enders) {
                struct ender *ender = sb->end->enders;
                sb->end->enders = ender->next;
                cop_op_done_durable(ender->op, json_incref(view), NULL);
                free(ender);
        }
}

static void discard_files(struct cop_sandbox *sb)
{
        static const char *const parts[] = {"fs", "run"};
        char path[4200];

        for (size_t i = 0; i < ELEMENTSOF(parts); i++)
                if (cop_path_format(path, sizeof(path), "%s/%s", sb->dir, parts[i]) == 0)
                        cop_trash_add(sb->engine, path);
}

/* The row is what keeps name and uid range taken, so this is tried until it works: deleting the files makes the room that a
 * full disk lacks.  Callers do not wait for that. */
static void save_later(struct cop_sandbox *sb, const struct cop_error *err)
{
        if (sb->state != COP_SANDBOX_ENDED)
                cop_log_warning("the end of sandbox %s is not saved yet: %s", sb->id, err->message);
        sb->state = COP_SANDBOX_ENDED;
        _cleanup_json_ json_t *view = cop_sandbox_view(sb);
        answer_enders(sb, view);
        cop_source_set_time(sb->end->timer, cop_usec_add(cop_now(CLOCK_MONOTONIC), SAVE_EVERY));
}

static void finish(struct cop_sandbox *sb)
{
        struct cop_engine *e = sb->engine;
        bool removed = strcmp(sb->end->reason, "removed") == 0 || strcmp(sb->end->reason, "start_failed") == 0;
        struct cop_error err;

        if (!sb->end->discarded) {
                sb->row->ended_at = cop_now(CLOCK_REALTIME);
                free(sb->row->ended_reason);
                sb->row->ended_reason = strdup(sb->end->reason);
                discard_files(sb);
                cop_node_discard_pending(sb);
                sb->end->discarded = true;
        }
        if (cop_store_sandbox_ended(e->store, sb->id, sb->row->ended_at, sb->end->reason, removed, &err) < 0) {
                save_later(sb, &err);
                return;
        }
        if (sb->policy.copy)
                cop_store_sandbox_forget(e->store, sb->id, NULL);
        if (removed) {
                cop_trash_add_durable(e, sb->dir);
                cop_policy_purge(e);
        }
        sb->state = COP_SANDBOX_ENDED;
        _cleanup_json_ json_t *detail = json_pack("{s:s}", "reason", sb->end->reason);
        cop_engine_event(e, "sandbox.ended", sb->id, detail);
        _cleanup_json_ json_t *view = cop_sandbox_view(sb);
        char image_id[COP_ID_MAX];
        snprintf(image_id, sizeof(image_id), "%s", sb->row->image_id);
        answer_enders(sb, view);
        char id[COP_ID_MAX], origin[COP_ID_MAX], *layers = TAKE_PTR(sb->row->layers);
        bool copy = sb->policy.copy;
        snprintf(id, sizeof(id), "%s", sb->id);
        snprintf(origin, sizeof(origin), "%s", sb->row->origin_node);
        cop_sandbox_drop(sb);
        if (copy)
                cop_node_release_read(e, origin);
        else
                cop_nodes_release_of(e, id, layers);
        free(layers);
        cop_image_release(e, image_id);
        if (++e->ends_since_prune >= PRUNE_EVERY)
                cop_engine_prune(e);
}

/* -- step 2 -------------------------------------------------------------------------------------------------------- */

static void on_finish_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_sandbox *sb = userdata;
        struct cop_error err;

        if (!sb->end->stopped && !sb->end->discarded && cop_cgroup_cleanup(sb->id, 1, &err) == -EBUSY &&
            ++sb->end->tries < CLEAN_TRIES) {
                cop_source_set_time(s, cop_usec_add(now, CLEAN_EVERY));
                return;
        }
        if (sb->end->tries >= CLEAN_TRIES && !sb->end->discarded)
                cop_log_warning("processes of sandbox %s are left: %s", sb->id, err.message);
        finish(sb);
}

static void finish_later(struct cop_sandbox *sb)
{
        cop_source_set_time(sb->end->timer, 0);
}

static void on_stopped(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_sandbox *sb = userdata;

        sb->end->stopped = reply != NULL;
        if (err)
                cop_keeper_kill(sb->keeper);
        cop_sandbox_drop_keeper(sb);
        finish_later(sb);
}

static void stop(struct cop_sandbox *sb)
{
        struct cop_msg m;

        if (!sb->keeper) {
                finish_later(sb);
                return;
        }
        cop_msg_init(&m, COP_WIRE_STOP, 0);
        /* No grace: what a process would still write is deleted the moment after. */
        cop_msg_add_u64(&m, COP_TAG_TIMEOUT, 0);
        cop_keeper_call(sb->keeper, &m, STOP_DEADLINE, on_stopped, sb);
}

/* -- step 1 -------------------------------------------------------------------------------------------------------- */

static void add_ender(struct cop_sandbox *sb, struct cop_op *op)
{
        struct ender *ender;
        struct cop_error err;

        if (!op)
                return;
        ender = calloc(1, sizeof(*ender));
        if (!ender) {
                cop_error_errno(&err, ENOMEM, "waiting for the end of sandbox %s", sb->id);
                cop_op_done(op, NULL, &err);
                return;
        }
        ender->op = op;
        ender->next = sb->end->enders;
        sb->end->enders = ender;
}

static int end_new(struct cop_sandbox *sb, const char *reason, struct cop_error *err)
{
        struct cop_sandbox_end *end = calloc(1, sizeof(*end));

        if (!end)
                return cop_error_errno(err, ENOMEM, "ending sandbox %s", sb->id);
        int r = cop_loop_add_timer(sb->engine->loop, USEC_INFINITY, on_finish_timer, sb, &end->timer, err);
        if (r < 0) {
                free(end);
                return r;
        }
        snprintf(end->reason, sizeof(end->reason), "%s", reason);
        sb->end = end;
        return 0;
}

void cop_sandbox_end(struct cop_sandbox *sb, const char *reason, struct cop_op *op)
{
        struct cop_error err;

        if (sb->end) {
                add_ender(sb, op);
                return;
        }
        if (end_new(sb, reason, &err) < 0) {
                cop_op_done(op, NULL, &err);
                return;
        }
        cop_log_debug("sandbox %s ends: %s", sb->id, reason);
        add_ender(sb, op);
        sb->state = COP_SANDBOX_ENDING;
        if (cop_store_sandbox_ending(sb->engine->store, sb->id, &err) < 0)
                cop_log_warning("sandbox %s: %s", sb->id, err.message);
        cop_error_set(&err, ESHUTDOWN, COP_ERR_sandbox_ended, "sandbox %s has ended (%s)", sb->id, reason);
        cop_sandbox_start_abort(sb, &err);
        cop_sandbox_sleep_abort(sb, &err);
        cop_node_makings_abort(sb, &err);
        cop_replay_abort(sb, &err);
        cop_sandbox_answer_waiters(sb, &err);
        cop_contexts_end(sb, reason);
        cop_commands_end(sb, reason);
        stop(sb);
}

void cop_sandbox_end_drop(struct cop_sandbox *sb)
{
        if (!sb->end)
                return;
        cop_source_free(sb->end->timer);
        while (sb->end->enders) {
                struct ender *ender = sb->end->enders;
                sb->end->enders = ender->next;
                free(ender); /* the operation itself belongs to the engine */
        }
        free(TAKE_PTR(sb->end));
}

/* -- what has ended ------------------------------------------------------------------------------------------------ */

/* Logs of a sandbox that ended by itself, and its row's children. */
static int purge_ended(struct cop_engine *e, const struct cop_sandbox_row *row, struct cop_error *err)
{
        char path[4200];

        int r = cop_store_sandbox_ended(e->store, row->id, row->ended_at, row->ended_reason, true, err);
        if (r == 0 && cop_path_format(path, sizeof(path), "%s/sandboxes/%s", e->home, row->id) == 0)
                cop_trash_add_durable(e, path);
        cop_policy_purge(e);
        return r;
}

static void prune_files(struct cop_engine *e)
{
        _cleanup_(cop_sandbox_rows_freep) struct cop_sandbox_row **rows = NULL;
        char path[4200];

        if (cop_store_sandbox_prunable(e->store, COP_KEEP_LOGS, &rows, NULL) < 0)
                return;
        for (struct cop_sandbox_row **row = rows; *row; row++)
                if (cop_path_format(path, sizeof(path), "%s/sandboxes/%s", e->home, (*row)->id) == 0)
                        cop_trash_add(e, path);
}

void cop_engine_prune(struct cop_engine *e)
{
        _cleanup_(cop_sandbox_rows_freep) struct cop_sandbox_row **rows = NULL;

        e->ends_since_prune = 0;
        prune_files(e);
        if (cop_store_sandbox_prunable(e->store, COP_KEEP_ENDED, &rows, NULL) < 0)
                return;
        for (struct cop_sandbox_row **row = rows; *row; row++)
                cop_store_sandbox_forget(e->store, (*row)->id, NULL);
        cop_policy_purge(e);
}

/* -- operations ---------------------------------------------------------------------------------------------------- */

static void remove_ended(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op)
{
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *row = NULL;
        struct cop_sandbox *sb;
        struct cop_error err;

        int r = cop_store_sandbox_get(e->store, ref, &row, &err);
        if (r < 0 || (row->ended_reason && strcmp(row->ended_reason, "removed") == 0)) {
                cop_sandbox_find(e, ref, &sb, &err);
                cop_answer(to, NULL, &err);
                return;
        }
        json_t *view = cop_sandbox_row_view(e, row);
        r = purge_ended(e, row, &err);
        if (r == 0) {
                cop_answer_durable(e, to, view, ret_op);
                return;
        }
        json_decref(view);
        cop_answer(to, NULL, &err);
}

void cop_sandbox_remove(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op)
{
        struct cop_sandbox *sb = cop_sandbox_by_ref(e, ref);

        if (ret_op)
                *ret_op = NULL;
        if (!sb) {
                remove_ended(e, ref, to, ret_op);
                return;
        }
        struct cop_op *op = cop_op_new(e, to, NULL, NULL);
        if (!op)
                return;
        uint64_t serial = cop_op_serial(op);
        cop_sandbox_end(sb, "removed", op);
        if (ret_op)
                *ret_op = cop_op_find(e, serial);
}

/* Ends all and counts them back. */
struct sweep {
        struct cop_op *op;
        json_t *removed, *failed;
        size_t open;
};

static void sweep_one_done(json_t *result, const struct cop_error *err, void *userdata)
{
        struct sweep *s = userdata;

        if (result)
                json_array_append(s->removed, json_object_get(result, "id"));
        else
                json_array_append_new(s->failed, json_pack("{s:s, s:s}", "code", cop_err_code_name(err->code),
                                                           "message", err->message));
        if (--s->open > 0)
                return;
        cop_op_done_durable(s->op, json_pack("{s:o, s:o}", "removed", s->removed, "failed", s->failed), NULL);
        free(s);
}

void cop_sandbox_remove_all(struct cop_engine *e, struct cop_op_to to, struct cop_op **ret_op)
{
        _cleanup_(cop_sandbox_rows_freep) struct cop_sandbox_row **rows = NULL;
        struct sweep *s = calloc(1, sizeof(*s));
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (!s || !(s->op = cop_op_new(e, to, NULL, NULL))) {
                if (!s)
                        cop_answer(to, NULL, NULL);
                free(s);
                return;
        }
        uint64_t serial = cop_op_serial(s->op);
        *s = (struct sweep){.op = s->op, .removed = json_array(), .failed = json_array(), .open = 1};
        for (struct cop_sandbox *sb = e->sandboxes; sb; sb = sb->next) {
                struct cop_op *op =
                        cop_op_new(e, (struct cop_op_to){.done = sweep_one_done, .userdata = s}, NULL, NULL);
                s->open++;
                if (!op)
                        continue; /* sweep_one_done was called */
                cop_sandbox_end(sb, "removed", op);
        }
        if (cop_store_sandbox_list(e->store, COP_STORE_ENDED, 0, &rows, &err) == 0)
                for (struct cop_sandbox_row **row = rows; *row; row++)
                        if (!(*row)->ended_reason || strcmp((*row)->ended_reason, "removed") != 0)
                                purge_ended(e, *row, NULL);
        if (s->open == 1) {
                cop_op_done_durable(s->op, json_pack("{s:o, s:o}", "removed", s->removed, "failed", s->failed), NULL);
                free(s);
        } else {
                s->open--;
        }
        if (ret_op)
                *ret_op = cop_op_find(e, serial);
}
