#include "engine/node.h"

#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/parse.h"

#define STATS_DEADLINE (2 * USEC_PER_SEC)
#define LIMITS_DEADLINE (10 * USEC_PER_SEC)

struct cop_sandbox_waiter {
        struct cop_sandbox_waiter *next;
        cop_sandbox_fn fn;
        void *userdata;
};

/* -- the list, and the tree by which one of a thousand is found ---------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
        return strcmp(((const struct cop_sandbox *)a)->id, ((const struct cop_sandbox *)b)->id);
}

static int enlist(struct cop_sandbox *sb, struct cop_error *err)
{
        if (!tsearch(sb, &sb->engine->sandboxes_by_id, compare_ids))
                return cop_error_errno(err, ENOMEM, "sandbox");
        sb->next = sb->engine->sandboxes;
        sb->engine->sandboxes = sb;
        return 0;
}

void cop_sandbox_delist(struct cop_sandbox *sb)
{
        for (struct cop_sandbox **at = &sb->engine->sandboxes; *at; at = &(*at)->next)
                if (*at == sb) {
                        *at = sb->next;
                        tdelete(sb, &sb->engine->sandboxes_by_id, compare_ids);
                        break;
                }
}

/* -- making, freeing ----------------------------------------------------------------------------------------------- */

int cop_sandbox_new(struct cop_engine *e, struct cop_sandbox_row *row, struct cop_sandbox **ret, struct cop_error *err)
{
        struct cop_sandbox *sb = calloc(1, sizeof(*sb));

        if (!sb) {
                cop_sandbox_row_free(row);
                return cop_error_errno(err, ENOMEM, "sandbox");
        }
        *sb = (struct cop_sandbox){
                .engine = e, .state = COP_SANDBOX_STARTING, .row = row, .ipc_fd = -EBADF, .logs_fd = -EBADF};
        snprintf(sb->id, sizeof(sb->id), "%s", row->id);
        cop_policy_from_json(row->policy, &sb->policy);
        sb->last_activity = row->last_activity_at;
        int r = cop_path_format(sb->dir, sizeof(sb->dir), "%s/sandboxes/%s", e->home, row->id);
        if (r < 0)
                cop_error_errno(err, r, "%s", e->home);
        if (r == 0 && row->name && !(sb->name = strdup(row->name)))
                r = cop_error_errno(err, ENOMEM, "sandbox");
        if (r == 0)
                r = enlist(sb, err);
        if (r < 0) {
                cop_sandbox_drop(sb);
                return r;
        }
        *ret = sb;
        return 0;
}

void cop_sandbox_drop_keeper(struct cop_sandbox *sb)
{
        sb->keeper = cop_keeper_free(sb->keeper);
        cop_contexts_meet_done(sb);
}

void cop_sandbox_drop(struct cop_sandbox *sb)
{
        cop_sandbox_delist(sb);
        cop_sandbox_drop_keeper(sb);
        cop_sandbox_end_drop(sb);
        cop_sandbox_start_drop(sb);
        cop_sandbox_sleep_drop(sb);
        cop_checkpoint_drop(sb);
        cop_replay_drop(sb);
        json_decref(sb->replay_report);
        cop_node_makings_drop(sb);
        while (sb->waiters) {
                struct cop_sandbox_waiter *w = sb->waiters;
                sb->waiters = w->next;
                free(w);
        }
        cop_sandbox_row_free(sb->row);
        cop_close(sb->ipc_fd);
        cop_close(sb->logs_fd);
        json_decref(sb->kernelspecs);
        json_decref(sb->defaults);
        free(sb->name);
        free(sb);
}

int cop_sandbox_read_image(struct cop_sandbox *sb, struct cop_error *err)
{
        return cop_image_lookup(sb->engine, sb->row->image_id, NULL, &sb->kernelspecs, &sb->defaults, err);
}

int cop_sandbox_open_folders(struct cop_sandbox *sb, struct cop_error *err)
{
        char path[4200];

        if (sb->ipc_fd >= 0 && sb->logs_fd >= 0)
                return 0; /* it was started or thawed by this daemon, which then takes its kernels over */
        int r = cop_path_format(path, sizeof(path), "%s/run/ipc", sb->dir);
        sb->ipc_fd = r < 0 ? r : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sb->ipc_fd < 0)
                return cop_error_errno(err, r < 0 ? r : errno, "opening %s/run/ipc", sb->dir);
        r = cop_path_format(path, sizeof(path), "%s/logs", sb->dir);
        sb->logs_fd = r < 0 ? r : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sb->logs_fd < 0)
                return cop_error_errno(err, r < 0 ? r : errno, "opening %s/logs", sb->dir);
        return 0;
}

/* -- what the keeper tells ----------------------------------------------------------------------------------------- */

void cop_sandbox_note_memory(struct cop_sandbox *sb, const struct cop_msg *m)
{
        uint64_t kills = cop_msg_u64_or(m, COP_TAG_OOM_KILLS, 0), peak = cop_msg_u64_or(m, COP_TAG_MEMORY_PEAK, 0);

        sb->oom_kills = MAX_OF(sb->oom_kills, kills);
        sb->memory_peak = MAX_OF(sb->memory_peak, peak);
}

void cop_sandbox_on_event(struct cop_msg *event, void *userdata)
{
        struct cop_sandbox *sb = userdata;
        _cleanup_free_ char *reason = NULL;

        if (event->type == COP_WIRE_EVENT_TAKEN) {
                cop_node_taken(sb);
                return;
        }
        if (event->type == COP_WIRE_EVENT_BOUND) {
                if (sb->state == COP_SANDBOX_STARTING || sb->state == COP_SANDBOX_RESUMING) {
                        cop_sandbox_write_generation(sb);
                        cop_contexts_meet(sb, false);
                }
                return;
        }
        /* A tree that is frozen for a suspend ends with it: its processes are not over.  What ended of itself until then is in the
         * node, and told when that is thawed. */
        if (sb->state == COP_SANDBOX_SUSPENDING && sb->row->pending_node[0] && event->type != COP_WIRE_EVENT_ENDED)
                return;
        if (event->type != COP_WIRE_EVENT_ENDED) {
                /* The context compares the count of kills with the one it knew before, so it notes the event itself. */
                if (!cop_contexts_event(sb, event))
                        cop_commands_event(sb, event);
                if (event->type == COP_WIRE_EVENT_EXIT)
                        cop_sandbox_note_memory(sb, event);
                return;
        }
        /* The words of the API; what the keeper says beyond them is for its log. */
        bool oom = cop_msg_get_str(event, COP_TAG_REASON, 0, &reason) == 0 && strcmp(reason, "oom") == 0;
        cop_sandbox_end(sb, oom ? "oom" : "init_died", NULL);
}

void cop_sandbox_on_lost(const struct cop_error *err, void *userdata)
{
        struct cop_sandbox *sb = userdata;

        cop_log_debug("keeper of %s: %s", sb->id, err->message);
        if (sb->thawing) {
                cop_sandbox_thaw_failed(sb, err);
                return;
        }
        cop_sandbox_end(sb, "keeper_died", NULL);
}

/* -- finding ------------------------------------------------------------------------------------------------------- */

struct cop_sandbox *cop_sandbox_by_id(struct cop_engine *e, const char *id)
{
        struct cop_sandbox like;

        if (strlen(id) >= sizeof(like.id))
                return NULL;
        memcpy(like.id, id, strlen(id) + 1);
        struct cop_sandbox *const *found = tfind(&like, &e->sandboxes_by_id, compare_ids);
        return found ? *found : NULL;
}

struct cop_sandbox *cop_sandbox_by_ref(struct cop_engine *e, const char *ref)
{
        struct cop_sandbox *found = cop_sandbox_by_id(e, ref);

        /* No name is like an id (cop_name_valid). */
        for (struct cop_sandbox *sb = found ? NULL : e->sandboxes; sb; sb = sb->next)
                if (sb->name && sb->state < COP_SANDBOX_ENDING && strcmp(sb->name, ref) == 0)
                        return sb;
        return found;
}

static int ended_error(const char *ref, const char *reason, struct cop_error *err)
{
        cop_error_set(err, ESHUTDOWN, COP_ERR_sandbox_ended, "sandbox \"%.80s\" has ended (%s); create a new one", ref,
                      reason ? reason : "being removed");
        return -ESHUTDOWN;
}

int cop_sandbox_find(struct cop_engine *e, const char *ref, struct cop_sandbox **ret, struct cop_error *err)
{
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *row = NULL;
        struct cop_sandbox *sb = cop_sandbox_by_ref(e, ref);

        if (sb && sb->state < COP_SANDBOX_ENDING) {
                *ret = sb;
                return 0;
        }
        if (sb)
                return ended_error(ref, NULL, err);
        int r = cop_store_sandbox_get(e->store, ref, &row, err);
        if (r == -ENOENT)
                return cop_error_set(err, ENOENT, COP_ERR_sandbox_not_found,
                                     "no sandbox \"%.80s\"; `coppice ls` shows those that run, `coppice new` makes one",
                                     ref);
        return r < 0 ? r : ended_error(ref, row->ended_reason, err);
}

/* -- waiting ------------------------------------------------------------------------------------------------------- */

void cop_sandbox_when_running(struct cop_engine *e, const char *ref, cop_sandbox_fn fn, void *userdata)
{
        struct cop_sandbox *sb;
        struct cop_error err;

        if (cop_sandbox_find(e, ref, &sb, &err) < 0) {
                fn(NULL, &err, userdata);
                return;
        }
        sb->last_activity = cop_now(CLOCK_REALTIME);
        if (sb->state == COP_SANDBOX_RUNNING) {
                fn(sb, NULL, userdata);
                return;
        }
        struct cop_sandbox_waiter *w = calloc(1, sizeof(*w)), **end = &sb->waiters;
        if (!w) {
                cop_error_errno(&err, ENOMEM, "waiting for sandbox %s", sb->id);
                fn(NULL, &err, userdata);
                return;
        }
        while (*end)
                end = &(*end)->next;
        w->fn = fn;
        w->userdata = userdata;
        *end = w;
        if (sb->state == COP_SANDBOX_SUSPENDED)
                cop_sandbox_wake(sb);
}

void cop_op_when_running(struct cop_op *op, struct cop_engine *e, const char *ref, cop_sandbox_fn fn, void *userdata,
                         struct cop_op **ret_op)
{
        uint64_t serial = cop_op_serial(op);

        cop_sandbox_when_running(e, ref, fn, userdata);
        if (ret_op)
                *ret_op = cop_op_find(e, serial);
}

static void wait_again(struct cop_sandbox *sb, struct cop_sandbox_waiter *list)
{
        struct cop_sandbox_waiter **end = &list;

        while (*end)
                end = &(*end)->next;
        *end = sb->waiters;
        sb->waiters = list;
        if (sb->state == COP_SANDBOX_SUSPENDED)
                cop_sandbox_wake(sb);
}

void cop_sandbox_answer_waiters(struct cop_sandbox *sb, const struct cop_error *err)
{
        struct cop_sandbox_waiter *list = TAKE_PTR(sb->waiters);
        struct cop_error ended;

        if (!err)
                sb->last_activity = cop_now(CLOCK_REALTIME);

        while (list) {
                struct cop_sandbox_waiter *w = list;
                if (!err && sb->state > COP_SANDBOX_RUNNING && sb->state < COP_SANDBOX_ENDING) {
                        wait_again(sb, list); /* an earlier one sent it to sleep, or back */
                        return;
                }
                list = w->next;
                /* An earlier one may have ended the sandbox. */
                if (!err && sb->state != COP_SANDBOX_RUNNING) {
                        ended_error(sb->id, NULL, &ended);
                        err = &ended;
                }
                w->fn(err ? NULL : sb, err, w->userdata);
                free(w);
        }
}

void cop_sandbox_now_running(struct cop_sandbox *sb)
{
        sb->state = COP_SANDBOX_RUNNING;
        sb->last_activity = cop_now(CLOCK_REALTIME);
        sb->thawing = false;
        cop_policy_changed(sb->engine);
        cop_sandbox_answer_waiters(sb, NULL);
}

/* -- listing ------------------------------------------------------------------------------------------------------- */

static bool matches(json_t *filter, json_t *view)
{
        const char *state = json_string_value(json_object_get(filter, "state"));
        const char *name = json_string_value(json_object_get(filter, "name"));
        const char *own_name = json_string_value(json_object_get(view, "name")), *key;
        json_t *wanted;

        if (state && strcmp(state, json_string_value(json_object_get(view, "state"))) != 0)
                return false;
        if (name && (!own_name || strcmp(name, own_name) != 0))
                return false;
        json_object_foreach (json_object_get(filter, "labels"), key, wanted)
                if (!json_equal(wanted, json_object_get(json_object_get(view, "labels"), key)))
                        return false;
        return true;
}

/* Adds the view (stolen) when it matches; false once the limit is reached. */
static bool add_view(json_t *list, json_t *filter, size_t limit, json_t *view)
{
        if (json_array_size(list) < limit && view && matches(filter, view))
                json_array_append(list, view);
        json_decref(view);
        return json_array_size(list) < limit;
}

void cop_sandbox_list(struct cop_engine *e, json_t *filter, struct cop_op_to to)
{
        const char *state = json_string_value(json_object_get(filter, "state"));
        bool ended = json_is_true(json_object_get(filter, "all")) || (state && strcmp(state, "ended") == 0);
        json_int_t wanted = json_integer_value(json_object_get(filter, "limit"));
        size_t limit = wanted > 0 ? (size_t)wanted : 10000;
        _cleanup_(cop_sandbox_rows_freep) struct cop_sandbox_row **rows = NULL;
        _cleanup_json_ json_t *list = json_array();
        struct cop_error err;

        for (struct cop_sandbox *sb = e->sandboxes; sb; sb = sb->next)
                if (!sb->policy.copy && !add_view(list, filter, limit, cop_sandbox_view(sb)))
                        break;
        if (ended && cop_store_sandbox_list(e->store, COP_STORE_ENDED, 0, &rows, &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        for (struct cop_sandbox_row **row = rows; row && *row; row++) {
                struct cop_policy policy;
                cop_policy_from_json((*row)->policy, &policy);
                if (!policy.copy && !add_view(list, filter, limit, cop_sandbox_row_view(e, *row)))
                        break;
        }
        cop_answer(to, json_pack("{s:O}", "sandboxes", list), NULL);
}

/* -- one ----------------------------------------------------------------------------------------------------------- */

struct question { /* waits for the keeper on behalf of a GET or PATCH */
        struct cop_engine *engine;
        char id[COP_ID_MAX];
        struct cop_op *op;
        json_t *patch;
};

static void question_free(struct question *q)
{
        json_decref(q->patch);
        free(q);
}

static json_t *usage_view(const struct cop_msg *m)
{
        return json_pack("{s:I, s:I, s:I, s:I, s:I}", "memory_bytes", (json_int_t)cop_msg_u64_or(m, COP_TAG_MEMORY, 0),
                         "memory_peak_bytes", (json_int_t)cop_msg_u64_or(m, COP_TAG_MEMORY_PEAK, 0), "cpu_usec",
                         (json_int_t)cop_msg_u64_or(m, COP_TAG_CPU_USEC, 0), "pids",
                         (json_int_t)cop_msg_u64_or(m, COP_TAG_PIDS, 0), "oom_kills",
                         (json_int_t)cop_msg_u64_or(m, COP_TAG_OOM_KILLS, 0));
}

static void on_stats(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct question *q = userdata;
        struct cop_sandbox *sb = cop_sandbox_by_id(q->engine, q->id);
        struct cop_error gone;

        if (!sb) {
                ended_error(q->id, NULL, &gone);
                cop_op_done(q->op, NULL, &gone);
        } else {
                json_t *view = cop_sandbox_view(sb);
                if (reply) { /* without: the rest is worth having all the same */
                        cop_sandbox_note_memory(sb, reply);
                        json_object_set_new(view, "usage", usage_view(reply));
                }
                cop_op_done(q->op, view, NULL);
        }
        question_free(q);
}

static struct question *ask(struct cop_sandbox *sb, struct cop_op_to to, struct cop_op **ret_op)
{
        struct question *q = calloc(1, sizeof(*q));

        if (!q) {
                cop_answer(to, NULL, NULL);
                return NULL;
        }
        q->engine = sb->engine;
        snprintf(q->id, sizeof(q->id), "%s", sb->id);
        q->op = cop_op_new(sb->engine, to, NULL, NULL);
        if (!q->op) {
                free(q);
                return NULL;
        }
        if (ret_op)
                *ret_op = q->op;
        return q;
}

void cop_sandbox_get(struct cop_engine *e, const char *ref, bool usage, struct cop_op_to to, struct cop_op **ret_op)
{
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *row = NULL;
        struct cop_sandbox *sb = cop_sandbox_by_ref(e, ref);
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (sb && (!usage || !sb->keeper || sb->state != COP_SANDBOX_RUNNING)) {
                cop_answer(to, cop_sandbox_view(sb), NULL);
        } else if (sb) {
                struct question *q = ask(sb, to, ret_op);
                if (!q)
                        return;
                struct cop_msg m;
                cop_msg_init(&m, COP_WIRE_STATS, 0);
                cop_keeper_call(sb->keeper, &m, STATS_DEADLINE, on_stats, q);
        } else if (cop_store_sandbox_get(e->store, ref, &row, &err) == 0 && strcmp(row->id, ref) == 0) {
                cop_answer(to, cop_sandbox_row_view(e, row), NULL); /* by id, what has ended can still be looked at */
        } else {
                cop_sandbox_find(e, ref, &sb, &err);
                cop_answer(to, NULL, &err);
        }
}

void cop_sandbox_kernelspecs(struct cop_engine *e, const char *ref, struct cop_op_to to)
{
        struct cop_sandbox *sb;
        struct cop_error err;
        json_t *spec, *first = NULL;
        size_t i;

        if (cop_sandbox_find(e, ref, &sb, &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        json_array_foreach (sb->kernelspecs, i, spec) {
                const char *language = json_string_value(json_object_get(spec, "language"));
                if (!first || (language && strcmp(language, "python") == 0)) {
                        first = json_object_get(spec, "name");
                        if (language && strcmp(language, "python") == 0)
                                break;
                }
        }
        cop_answer(to, json_pack("{s:O?, s:O}", "default", first, "kernelspecs", sb->kernelspecs), NULL);
}

/* -- changing ------------------------------------------------------------------------------------------------------ */

static int patch_limits(json_t *patch, struct cop_sandbox_limits *l, bool *ret_changed, struct cop_error *err)
{
        json_t *memory = json_object_get(patch, "memory"), *cpus = json_object_get(patch, "cpus"),
               *pids = json_object_get(patch, "pids");

        *ret_changed = json_is_string(memory) || json_is_number(memory) || json_is_number(cpus) || json_is_number(pids);
        if (json_is_string(memory) && cop_parse_size(json_string_value(memory), &l->memory) < 0)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"memory\": expected a size such as \"2G\" or bytes");
        if (json_is_number(memory))
                l->memory = (uint64_t)MIN_OF(MAX_OF(json_number_value(memory), 0.0), 1e18);
        if (json_is_number(cpus))
                l->cpu_milli = (unsigned)(MIN_OF(MAX_OF(json_number_value(cpus), 0.0), 100000.0) * 1000 + 0.5);
        if (json_is_number(pids))
                l->pids = (unsigned)MIN_OF(MAX_OF(json_number_value(pids), 0.0), 4e9);
        return *ret_changed ? cop_limits_check(l, err) : 0;
}

static int set_text(char **at, char *text, struct cop_error *err)
{
        if (!text)
                return cop_error_errno(err, ENOMEM, "sandbox");
        free(*at);
        *at = text;
        return 0;
}

/* The row with the patch applied; what it cannot be is refused before anything is changed. */
static int patch_row(struct cop_sandbox *sb, json_t *patch, struct cop_sandbox_row *row, bool *ret_limits,
                     struct cop_error *err)
{
        json_t *name = json_object_get(patch, "name"), *labels = json_object_get(patch, "labels");
        json_t *metadata = json_object_get(patch, "metadata"), *ttl = json_object_get(patch, "ttl_seconds"),
               *policy = json_object_get(patch, "policy");
        struct cop_sandbox_limits limits;
        char *text = NULL;
        int r = 0;

        cop_limits_from_json(row->limits, &limits);
        r = patch_limits(patch, &limits, ret_limits, err);
        if (r == 0 && *ret_limits)
                r = set_text(&row->limits, cop_limits_to_json(&limits), err);
        if (r == 0 && json_is_string(name)) {
                r = cop_sandbox_check_name(sb->engine, json_string_value(name), sb, err);
                if (r == 0)
                        r = set_text(&row->name, strdup(json_string_value(name)), err);
        }
        if (r == 0 && json_is_object(labels)) {
                r = cop_labels_to_json(labels, "labels", &text, err);
                if (r == 0)
                        r = set_text(&row->labels, text, err);
        }
        if (r == 0 && json_is_object(metadata)) {
                r = cop_metadata_to_json(metadata, &text, err);
                if (r == 0)
                        r = set_text(&row->metadata, text, err);
        }
        if (r == 0 && json_is_object(policy)) {
                r = cop_policy_to_json(row->policy, policy, &text, err);
                if (r == 0)
                        r = set_text(&row->policy, text, err);
        }
        if (r == 0 && json_is_number(ttl)) {
                row->ttl = (usec_t)(json_number_value(ttl) * USEC_PER_SEC);
                row->expires_at = row->ttl ? cop_usec_add(cop_now(CLOCK_REALTIME), row->ttl) : 0;
        }
        return r;
}

static int apply_patch(struct cop_sandbox *sb, json_t *patch, struct cop_error *err)
{
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *row = NULL;
        bool limits;

        int r = cop_store_sandbox_get(sb->engine->store, sb->id, &row, err);
        if (r == 0)
                r = patch_row(sb, patch, row, &limits, err);
        char *name = r == 0 && row->name ? strdup(row->name) : NULL;
        if (r == 0)
                r = cop_store_sandbox_update(sb->engine->store, row, err);
        if (r < 0) {
                free(name);
                return r;
        }
        free(sb->name);
        sb->name = name;
        cop_sandbox_row_free(sb->row);
        sb->row = TAKE_PTR(row);
        cop_policy_from_json(sb->row->policy, &sb->policy);
        cop_snapshots_thin(sb);
        cop_policy_changed(sb->engine);
        return 0;
}

int cop_sandbox_patch_asleep(struct cop_sandbox *sb, json_t *patch, struct cop_error *err)
{
        int r = apply_patch(sb, patch, err);

        sb->new_limits = sb->new_limits || r == 0;
        return r;
}

static void on_limits(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct question *q = userdata;
        struct cop_sandbox *sb = cop_sandbox_by_id(q->engine, q->id);
        struct cop_error error;
        int r = err ? -err->errnum : 0;

        if (err)
                error = *err;
        else if (!sb || sb->state != COP_SANDBOX_RUNNING)
                r = ended_error(q->id, NULL, &error);
        else
                r = apply_patch(sb, q->patch, &error);
        cop_op_done(q->op, r < 0 ? NULL : cop_sandbox_view(sb), r < 0 ? &error : NULL);
        question_free(q);
}

static void send_limits(struct cop_sandbox *sb, const char *text, struct question *q)
{
        struct cop_sandbox_limits l;
        struct cop_msg m;

        cop_limits_from_json(text, &l);
        cop_msg_init(&m, COP_WIRE_LIMITS, 0);
        cop_msg_add_u64(&m, COP_TAG_MEMORY_MAX, l.memory);
        cop_msg_add_u64(&m, COP_TAG_CPU_MILLI, l.cpu_milli);
        cop_msg_add_u64(&m, COP_TAG_PIDS_MAX, l.pids);
        cop_keeper_call(sb->keeper, &m, LIMITS_DEADLINE, on_limits, q);
}

struct update { /* waits for the sandbox to run */
        struct cop_op *op;
        json_t *patch;
};

/* Returns 1 when the keeper has been asked and on_limits goes on with the operation. */
static int try_update(struct cop_sandbox *sb, struct update *u, struct cop_error *err)
{
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *row = NULL;
        bool limits = false;

        int r = cop_store_sandbox_get(sb->engine->store, sb->id, &row, err);
        if (r == 0)
                r = patch_row(sb, u->patch, row, &limits, err);
        if (r < 0)
                return r;
        if (!limits)
                return apply_patch(sb, u->patch, err);
        struct question *q = calloc(1, sizeof(*q));
        if (!q)
                return cop_error_errno(err, ENOMEM, "sandbox %s", sb->id);
        *q = (struct question){.engine = sb->engine, .op = u->op, .patch = TAKE_PTR(u->patch)};
        snprintf(q->id, sizeof(q->id), "%s", sb->id);
        send_limits(sb, row->limits, q);
        return 1;
}

static void update_now(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        struct update *u = userdata;
        struct cop_error error;

        if (err) {
                cop_op_done(u->op, NULL, err);
        } else {
                int r = try_update(sb, u, &error);
                if (r < 0)
                        cop_op_done(u->op, NULL, &error);
                else if (r == 0)
                        cop_op_done(u->op, cop_sandbox_view(sb), NULL);
        }
        json_decref(u->patch);
        free(u);
}

/* Only new limits are its keeper's affair. */
static bool may_sleep_on(struct cop_engine *e, const char *ref, json_t *patch, struct cop_sandbox **ret)
{
        return cop_sandbox_find(e, ref, ret, NULL) == 0 && (*ret)->state == COP_SANDBOX_SUSPENDED &&
               !cop_json_get(patch, "memory") && !cop_json_get(patch, "cpus") && !cop_json_get(patch, "pids");
}

void cop_sandbox_update(struct cop_engine *e, const char *ref, json_t *patch, struct cop_op_to to,
                        struct cop_op **ret_op)
{
        struct update *u = calloc(1, sizeof(*u));
        struct cop_sandbox *asleep;

        if (ret_op)
                *ret_op = NULL;
        if (!u) {
                cop_answer(to, NULL, NULL);
                return;
        }
        u->op = cop_op_new(e, to, NULL, NULL);
        if (!u->op) {
                free(u);
                return;
        }
        u->patch = json_deep_copy(patch);
        if (may_sleep_on(e, ref, patch, &asleep))
                update_now(asleep, NULL, u);
        else
                cop_op_when_running(u->op, e, ref, update_now, u, ret_op);
}
