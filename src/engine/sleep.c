/* Theory of operation: suspend, resume, goto
 *
 *      RUNNING ─ suspend ─► SUSPENDING ─ frozen ─► SUSPENDED ─ a request needs it ─► RESUMING ─► RUNNING
 *         ▲                     │ failed                ▲                               │ failed twice
 *         └─────────────────────┘                       └───────────────────────────────┘
 *
 * Suspend waits until the sandbox is quiet (no cell runs or waits, no attached command, no kernel being started), at most
 * QUIET_MAX; what arrives meanwhile waits and wakes it again.  Then a node is made that ends the tree (node.c), clients of kernels
 * are closed, and the folders of the running sandbox go: its files are the node's layer.
 *
 * Resume makes fresh folders and a new keeper, which thaws the node; kernels and commands are then connected as after a restart of
 * the daemon (adopt.c).  When memory cannot be had back (another CPU or kernel, a damaged image) the sandbox boots cold from the same
 * node's files, says so in memoryRestored and resumeReason, and each context tells it with its next cell.
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "sandbox/cgroup.h"

#define QUIET_MAX (30 * USEC_PER_SEC)
#define THAW_TRIES 3
#define QUIET_LOOK (10 * USEC_PER_MSEC)
#define STOP_DEADLINE (10 * USEC_PER_SEC)

struct sleeper {
        struct sleeper *next;
        struct cop_op *op;
};

struct cop_sandbox_sleep {
        struct sleeper *ops;      /* who waits for a suspend */
        struct cop_source *timer; /* owned */
        usec_t begun;             /* CLOCK_MONOTONIC */
        bool cold;                /* memory was given up: resume_reason says why */
        unsigned thaws;           /* tries so far */
        bool idle;                /* nobody asked for this suspend: whoever comes wins */
};

/* -- the object of a transition ---------------------------------------------------------------------------------------------- */

void cop_sandbox_sleep_drop(struct cop_sandbox *sb)
{
        struct cop_sandbox_sleep *sleep = TAKE_PTR(sb->sleep);

        if (!sleep)
                return;
        cop_source_free(sleep->timer);
        while (sleep->ops) {
                struct sleeper *s = sleep->ops;
                sleep->ops = s->next;
                free(s);
        }
        free(sleep);
}

int cop_sandbox_sleep_new(struct cop_sandbox *sb, struct cop_error *err)
{
        sb->sleep = calloc(1, sizeof(*sb->sleep));
        if (!sb->sleep)
                return cop_error_errno(err, ENOMEM, "sandbox %s", sb->id);
        sb->sleep->begun = cop_now(CLOCK_MONOTONIC);
        return 0;
}

static void add_sleeper(struct cop_sandbox *sb, struct cop_op *op)
{
        struct sleeper *s = calloc(1, sizeof(*s));
        struct cop_error err;

        if (!s) {
                cop_error_errno(&err, ENOMEM, "suspending sandbox %s", sb->id);
                cop_op_done(op, NULL, &err);
                return;
        }
        s->op = op;
        s->next = sb->sleep->ops;
        sb->sleep->ops = s;
}

/* N7: the node was synced with its whole filesystem after the row had named it as pending_node: when the store lies there too, a start after a
 * power cut goes on from that, whatever became of the commits since. */
static bool is_durable(const struct cop_engine *e)
{
        char store[4200], nodes[4200];
        struct stat a, b;

        return cop_path_format(store, sizeof(store), "%s/coppice.db", e->home) == 0 &&
               cop_path_format(nodes, sizeof(nodes), "%s/nodes", e->home) == 0 && stat(store, &a) == 0 &&
               stat(nodes, &b) == 0 && a.st_dev == b.st_dev;
}

static void answer_sleepers(struct cop_sandbox *sb, const struct cop_error *err)
{
        struct sleeper *list = TAKE_PTR(sb->sleep->ops);
        bool durable = err || is_durable(sb->engine);

        while (list) {
                struct sleeper *s = list;
                list = s->next;
                if (durable)
                        cop_op_done(s->op, err ? NULL : cop_sandbox_view(sb), err);
                else
                        cop_op_done_durable(s->op, cop_sandbox_view(sb), NULL);
                free(s);
        }
}

void cop_sandbox_sleep_abort(struct cop_sandbox *sb, const struct cop_error *err)
{
        if (!sb->sleep)
                return;
        sb->sleep->timer = cop_source_free(sb->sleep->timer);
        answer_sleepers(sb, err);
}

static void set_state(struct cop_sandbox *sb, enum cop_sandbox_state state, const char *name)
{
        struct cop_error err;

        sb->state = state;
        snprintf(sb->row->state, sizeof(sb->row->state), "%s", name);
        if (cop_store_sandbox_set_node(sb->engine->store, sb->row, &err) < 0)
                cop_log_warning("sandbox %s: %s", sb->id, err.message);
}

void cop_sandbox_discard_folders(struct cop_sandbox *sb)
{
        static const char *const parts[] = {"fs", "run"};
        char path[4200];

        sb->ipc_fd = cop_close(sb->ipc_fd);
        sb->logs_fd = cop_close(sb->logs_fd);
        for (size_t i = 0; i < ELEMENTSOF(parts); i++)
                if (cop_path_format(path, sizeof(path), "%s/%s", sb->dir, parts[i]) == 0)
                        cop_trash_add(sb->engine, path);
}

/* -- resume ------------------------------------------------------------------------------------------------------------------------ */

static void boot(struct cop_sandbox *sb);

static const char *reason_of(const struct cop_error *err)
{
        static const char *const mismatches[] = {"kernel_mismatch", "cpu_mismatch"};

        for (size_t i = 0; err->code == COP_ERR_image_mismatch && i < ELEMENTSOF(mismatches); i++)
                if (strstr(err->message, mismatches[i]))
                        return mismatches[i];
        return "restore_failed"; /* among it: written by another version of Coppice */
}

static void asleep_again(struct cop_sandbox *sb, const struct cop_error *err)
{
        struct cop_error error = *err;

        cop_keeper_kill(sb->keeper);
        cop_sandbox_drop_keeper(sb);
        sb->row->pending_node[0] = '\0';
        cop_sandbox_sleep_drop(sb);
        sb->thawing = sb->require_memory = sb->replay_due = false;
        sb->replay_asked = 0;
        set_state(sb, COP_SANDBOX_SUSPENDED, "suspended");
        cop_policy_changed(sb->engine);
        cop_error_wrap(&error, 0, "sandbox %s could not be resumed; its state is kept", sb->id);
        cop_sandbox_answer_waiters(sb, &error);
}

void cop_sandbox_thaw_failed(struct cop_sandbox *sb, const struct cop_error *err)
{
        cop_log_warning("sandbox %s was lost while it was resumed and sleeps again: %s", sb->id, err->message);
        cop_contexts_detach(sb);
        cop_commands_detach(sb);
        asleep_again(sb, err);
}

/* The kernels of a cold boot are new ones: each context says so with its next cell. */
static void lose_memory(struct cop_sandbox *sb)
{
        _cleanup_(cop_context_rows_freep) struct cop_context_row **rows = NULL;
        char stamp[COP_RFC3339_MAX];

        cop_commands_detach(sb);
        if (cop_store_context_list(sb->engine->store, sb->id, &rows, NULL) < 0)
                return;
        for (struct cop_context_row **row = rows; *row; row++) {
                _cleanup_json_ json_t *lost = json_pack(
                        "{s:s, s:I, s:s, s:s}", "reason", sb->resume_reason, "generation",
                        (json_int_t)(*row)->generation, "at", cop_rfc3339(cop_now(CLOCK_REALTIME), stamp), "message",
                        "the sandbox was started again from its files; variables, imports and processes are gone");
                free((*row)->state_lost);
                (*row)->state_lost = json_dumps(lost, JSON_COMPACT);
                (*row)->kernel_key[0] = '\0';
                (*row)->kernel_pid = 0;
                snprintf((*row)->state, sizeof((*row)->state), "starting");
                cop_store_context_update(sb->engine->store, *row, NULL);
        }
}

static void boot_failed(struct cop_sandbox *sb, const struct cop_error *err)
{
        if (sb->sleep->cold) {
                asleep_again(sb, err);
                return;
        }
        cop_log_warning("memory of sandbox %s: %s", sb->id, err->message);
        /* What the image or the host lacks, another try will not bring; a race of the rebuilding, or what ended the keeper, may
         * not come again. */
        bool lasting = err->code != COP_ERR_start_failed && err->code != COP_ERR_unavailable;
        if (lasting || ++sb->sleep->thaws >= THAW_TRIES) {
                snprintf(sb->resume_reason, sizeof(sb->resume_reason), "%s", reason_of(err));
                snprintf(sb->resume_message, sizeof(sb->resume_message), "%s", err->message);
                if (sb->require_memory) {
                        asleep_again(sb, err);
                        return;
                }
                sb->sleep->cold = true;
        }
        cop_keeper_kill(sb->keeper);
        cop_sandbox_drop_keeper(sb);
        boot(sb);
}

static void on_booted(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_sandbox *sb = userdata;

        if (sb->state != COP_SANDBOX_RESUMING)
                return; /* it is being removed */
        if (err) {
                boot_failed(sb, err);
                return;
        }
        cop_sandbox_take_over(sb);
        if (!sb->sleep->cold)
                sb->resume_reason[0] = sb->resume_message[0] = '\0'; /* an earlier try's */
        cop_sandbox_write_generation(sb);
        sb->require_memory = false;
        sb->memory_restored = !sb->sleep->cold;
        sb->replay_due = sb->sleep->cold;
        sb->new_limits = false;
        if (sb->sleep->cold)
                lose_memory(sb);
        else
                sb->replay_asked = 0;
        sb->resume_time = cop_now(CLOCK_MONOTONIC) - sb->sleep->begun;
        sb->row->pending_node[0] = '\0';
        snprintf(sb->row->state, sizeof(sb->row->state), "running");
        cop_store_sandbox_set_node(sb->engine->store, sb->row, NULL);
        cop_sandbox_sleep_drop(sb);
        _cleanup_json_ json_t *detail =
                json_pack("{s:b, s:s}", "memoryRestored", sb->memory_restored, "resumeReason", sb->resume_reason);
        cop_engine_event(sb->engine, "sandbox.resumed", sb->id, detail);
}

static void cut_layers(struct cop_sandbox *sb)
{
        char *cut = sb->row->layers ? cop_layers_cut(sb->engine, sb->row->layers) : NULL;

        if (!cut)
                return;
        free(sb->row->layers);
        sb->row->layers = cut;
}

/* Fresh folders, a new keeper, START from the node. */
static void boot_now(struct cop_sandbox *sb)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *node = NULL;
        struct cop_error err;

        int r = cop_store_node_get(sb->engine->store, sb->row->node_id, &node, &err);
        if (r == 0 && strcmp(node->kind, "memory") != 0 && !sb->sleep->cold) {
                sb->sleep->cold = true;
                snprintf(sb->resume_reason, sizeof(sb->resume_reason), "no_memory_snapshot");
        }
        cop_sandbox_discard_folders(sb);
        if (r == 0)
                r = cop_sandbox_make_folders(sb, &err);
        if (r == 0)
                r = cop_sandbox_start_keeper(sb, &err);
        /* Back at the state it was made from: as when it was made. */
        bool foreign = r == 0 && strcmp(node->sandbox_id, sb->id) != 0;
        sb->prepare = (foreign ? cop_node_prepare(node) : 0) | (sb->new_limits ? COP_PREPARE_LIMIT : 0);
        if (sb->sleep->cold)
                sb->prepare = 0;
        if (r == 0)
                r = cop_sandbox_send_start(sb, sb->sleep->cold ? NULL : sb->row->node_id, foreign ? COP_THAW_FORK : 0,
                                           on_booted, sb, &err);
        if (r < 0)
                asleep_again(sb, &err);
}

struct boot_later {
        struct cop_engine *engine;
        char sandbox_id[COP_ID_MAX];
};

/* When that has failed, the start will say what is wrong. */
static void on_flattened(int result, void *userdata)
{
        struct boot_later *later = userdata;
        struct cop_sandbox *sb = cop_sandbox_by_id(later->engine, later->sandbox_id);

        free(later);
        if (!sb || sb->state != COP_SANDBOX_RESUMING || !sb->sleep)
                return;
        cut_layers(sb);
        boot_now(sb);
}

static void boot(struct cop_sandbox *sb)
{
        struct boot_later *later;

        cut_layers(sb);
        if (!cop_layers_too_deep(sb->row->layers) || !(later = calloc(1, sizeof(*later)))) {
                boot_now(sb);
                return;
        }
        later->engine = sb->engine;
        snprintf(later->sandbox_id, sizeof(later->sandbox_id), "%s", sb->id);
        cop_node_flatten(sb->engine, sb->row->node_id, on_flattened, later);
}

void cop_sandbox_resume_head(struct cop_sandbox *sb)
{
        sb->resume_reason[0] = '\0';
        sb->resume_message[0] = '\0';
        sb->replay_report = (json_decref(sb->replay_report), NULL);
        snprintf(sb->row->boot_id, strlen(sb->row->boot_id) + 1, "%s", sb->engine->boot_id);
        memcpy(sb->row->pending_node, sb->row->node_id, sizeof(sb->row->pending_node));
        sb->thawing = true;
        sb->held = false;
        cop_checkpoint_is_at(sb, sb->row->node_id);
        set_state(sb, COP_SANDBOX_RESUMING, "resuming");
        boot(sb);
}

void cop_sandbox_wake(struct cop_sandbox *sb)
{
        struct cop_error err;

        if (sb->state != COP_SANDBOX_SUSPENDED)
                return;
        if (cop_sandbox_sleep_new(sb, &err) < 0) {
                cop_sandbox_answer_waiters(sb, &err);
                return;
        }
        cop_sandbox_resume_head(sb);
}

/* -- suspend ----------------------------------------------------------------------------------------------------------------------- */

static const char *busy_kernels(const struct cop_sandbox *sb)
{
        for (struct cop_context *c = sb->contexts; c; c = c->next) {
                if (c->running || c->queue_head || c->replay)
                        return "a cell is running";
                if (c->removing || c->call || c->waiting || c->prepare ||
                    (c->kernel && !cop_kernel_is_ready(c->kernel)))
                        return "a kernel is being started or ended";
        }
        return NULL;
}

const char *cop_sandbox_busy_with(struct cop_sandbox *sb)
{
        const char *busy = busy_kernels(sb);

        return busy ? busy : cop_commands_attached(sb) ? "a command is attached" : NULL;
}

bool cop_sandbox_busy_with_cells(struct cop_sandbox *sb)
{
        return busy_kernels(sb) != NULL;
}

bool cop_sandbox_busy_with_running(const struct cop_sandbox *sb)
{
        for (const struct cop_context *c = sb->contexts; c; c = c->next)
                if (c->running)
                        return true;
        return false;
}

static void awake_again(struct cop_sandbox *sb, const struct cop_error *err)
{
        struct cop_error error = *err;

        sb->row->pending_node[0] = '\0';
        cop_error_wrap(&error, 0, "sandbox %s could not be suspended and runs on", sb->id);
        if (sb->sleep->idle) { /* it is tried again an idle time later, not at once */
                _cleanup_json_ json_t *detail =
                        json_pack("{s:s, s:s}", "code", cop_err_code_name(err->code), "message", err->message);
                cop_engine_event(sb->engine, "suspend.failed", sb->id, detail);
        }
        sb->last_activity = cop_now(CLOCK_REALTIME);
        cop_policy_changed(sb->engine);
        answer_sleepers(sb, &error);
        cop_sandbox_sleep_drop(sb);
        set_state(sb, COP_SANDBOX_RUNNING, "running");
        if (sb->contexts || !sb->keeper) {
                cop_sandbox_answer_waiters(sb, NULL);
                return;
        }
        sb->state = COP_SANDBOX_RESUMING; /* until kernels are connected again */
        cop_sandbox_take_over(sb);
}

static void on_frozen(struct cop_node_row *row, const struct cop_error *err, void *userdata)
{
        struct cop_sandbox *sb = userdata;

        if (sb->state != COP_SANDBOX_SUSPENDING)
                return; /* it is being removed */
        if (err) {
                awake_again(sb, err);
                return;
        }
        cop_sandbox_drop_keeper(sb);
        sb->state = COP_SANDBOX_SUSPENDED;
        sb->held = false;
        cop_policy_changed(sb->engine);
        _cleanup_json_ json_t *detail =
                json_pack("{s:s, s:f}", "node_id", row->id, "duration_ms", (double)row->duration / 1000);
        /* Before its own log, where that is written, too, is closed. */
        cop_engine_event(sb->engine, "sandbox.suspended", sb->id, detail);
        cop_sandbox_discard_folders(sb);
        answer_sleepers(sb, NULL);
        cop_sandbox_sleep_drop(sb);
        if (sb->waiters)
                cop_sandbox_wake(sb);
}

/* A request came in the same instant as the decision: it wins, and nothing has happened. */
static void give_up_idle(struct cop_sandbox *sb)
{
        cop_sandbox_sleep_drop(sb);
        set_state(sb, COP_SANDBOX_RUNNING, "running");
        sb->last_activity = cop_now(CLOCK_REALTIME);
        cop_policy_changed(sb->engine);
        cop_sandbox_answer_waiters(sb, NULL);
}

static void look_for_quiet(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_sandbox *sb = userdata;
        const char *busy = cop_sandbox_busy_with(sb);
        struct cop_error err;

        if (sb->sleep->idle && (busy || sb->waiters)) {
                give_up_idle(sb);
                return;
        }
        if (busy && now - sb->sleep->begun < QUIET_MAX) {
                cop_source_set_time(sb->sleep->timer, cop_usec_add(now, QUIET_LOOK));
                return;
        }
        if (busy) {
                cop_error_set(&err, EBUSY, COP_ERR_invalid_state, "%s; interrupt or await it", busy);
                awake_again(sb, &err);
                return;
        }
        const struct cop_node_params p = {.reason = COP_NODE_SUSPEND, .end = true};
        cop_node_make(sb, &p, on_frozen, sb);
        if (sb->state == COP_SANDBOX_SUSPENDING)
                cop_contexts_detach(sb); /* their rows are what wakes up */
}

/* op NULL: nobody waits for it. */
static void begin_suspend(struct cop_sandbox *sb, struct cop_op *op)
{
        struct cop_error err;

        if (sb->state == COP_SANDBOX_SUSPENDING) {
                sb->sleep->idle = false;
                add_sleeper(sb, op);
                return;
        }
        if (cop_sandbox_sleep_new(sb, &err) < 0 ||
            cop_loop_add_timer(sb->engine->loop, 0, look_for_quiet, sb, &sb->sleep->timer, &err) < 0) {
                cop_sandbox_sleep_drop(sb);
                cop_op_done(op, NULL, &err);
                return;
        }
        if (op)
                add_sleeper(sb, op);
        sb->row->last_activity_at = sb->last_activity;
        set_state(sb, COP_SANDBOX_SUSPENDING, "suspending");
}

void cop_sandbox_suspend_idle(struct cop_sandbox *sb)
{
        if (sb->state != COP_SANDBOX_RUNNING)
                return;
        begin_suspend(sb, NULL);
        if (sb->sleep)
                sb->sleep->idle = true;
}

static void on_suspend_possible(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        if (sb)
                begin_suspend(sb, userdata);
        else
                cop_op_done(userdata, NULL, err);
}

void cop_sandbox_suspend(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op)
{
        struct cop_op *op = cop_op_new(e, to, NULL, NULL);
        struct cop_sandbox *sb = cop_sandbox_by_ref(e, ref);

        if (ret_op)
                *ret_op = NULL;
        if (!op)
                return;
        uint64_t serial = cop_op_serial(op);
        if (sb && sb->state == COP_SANDBOX_SUSPENDED)
                cop_op_done(op, cop_sandbox_view(sb), NULL);
        else if (sb && sb->state == COP_SANDBOX_SUSPENDING)
                begin_suspend(sb, op);
        else
                cop_sandbox_when_running(e, ref, on_suspend_possible, op);
        if (ret_op)
                *ret_op = cop_op_find(e, serial);
}

/* -- after a daemon's restart ------------------------------------------------------------------------------------------------------ */

static void adopted_asleep(struct cop_sandbox *sb)
{
        cop_sandbox_drop_keeper(sb);
        sb->row->pending_node[0] = '\0';
        if (cop_cgroup_cleanup(sb->id, 200, NULL) < 0)
                cop_log_warning("processes of sandbox %s are left over from a daemon that died", sb->id);
        cop_sandbox_discard_folders(sb);
        set_state(sb, COP_SANDBOX_SUSPENDED, "suspended");
        if (sb->waiters)
                cop_sandbox_wake(sb);
}

static void on_half_thawed_stopped(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_sandbox *sb = userdata;

        if (sb->state == COP_SANDBOX_RESUMING) /* else it is being removed */
                adopted_asleep(sb);
}

/* resuming: what was thawed half way goes, the node is still there.  suspending: no keeper is left, so either the node was completed,
 * or the sandbox died while it was being made. */
void cop_sandbox_adopt_sleeping(struct cop_sandbox *sb, const char *was)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *node = NULL;
        struct cop_error err;

        if (strcmp(was, "suspending") == 0) {
                if (cop_node_recover(sb->engine, sb->row->pending_node, &node, &err) < 0) {
                        bool same_boot = sb->row->boot_id && strcmp(sb->row->boot_id, sb->engine->boot_id) == 0;
                        cop_log_warning("sandbox %s was lost while it was suspended: %s", sb->id, err.message);
                        cop_sandbox_end(sb, same_boot ? "keeper_died" : "host_reboot", NULL);
                        return;
                }
                memcpy(sb->row->node_id, node->id, sizeof(sb->row->node_id));
                char *layers = strdup(node->layers);
                if (layers) {
                        free(sb->row->layers);
                        sb->row->layers = layers;
                }
        }
        if (strcmp(was, "resuming") != 0 || !sb->keeper) {
                adopted_asleep(sb);
                return;
        }
        struct cop_msg m;
        sb->state = COP_SANDBOX_RESUMING; /* who needs it waits */
        cop_msg_init(&m, COP_WIRE_STOP, 0);
        cop_msg_add_u64(&m, COP_TAG_TIMEOUT, 0);
        cop_keeper_call(sb->keeper, &m, STOP_DEADLINE, on_half_thawed_stopped, sb);
}
