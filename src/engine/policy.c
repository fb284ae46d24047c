/* What happens by itself: the policy of a sandbox, and the timer behind it.
 *
 * ttl        expires_at is absolute.  It is set when the sandbox starts and again whenever its ttl is changed; use does not move
 *            it.  A running cell does not hold it off, nor does sleep: the caller who wants more time says so.
 * idle       after idle_seconds without a request, and with no cell running and no command attached, it is suspended with its
 *            memory.  Listing, looking, logs and its own background work do not count as use.
 * retention  one that has slept for retention_days is ended; an event and the view tell of it before.
 * snapshots  of a sandbox the newest snapshot_keep are kept; one with a time of its own goes then (retention.c).
 *
 * `persistent` turns the two ends into a suspend.  The decision is looked at again at the moment of the freeze (sleep.c).
 */
#include <stdlib.h>
#include <string.h>

#include "engine/node.h"

#define LOOK_AGAIN (60 * USEC_PER_SEC) /* the wall clock may be set */
#define LOOK_BUSY (1 * USEC_PER_SEC)   /* while it is in the middle of something */
#define IDLE_DEFAULT 600               /* seconds */
#define IDLE_MAX (365 * 86400)
#define KEEP_DEFAULT 50
#define BYTES_DEFAULT (4ULL << 30)
#define RETENTION_DEFAULT 14 /* days */
#define DAY (86400 * USEC_PER_SEC)
#define RETENTION_WARN (2 * DAY)        /* before the end, or for the last quarter of a short retention */
#define PURGE_SLICE (2 * USEC_PER_MSEC) /* of work, then */
#define PURGE_PAUSE (5 * USEC_PER_MSEC)
#define PURGE_RETRY (10 * USEC_PER_SEC) /* the disk may be full */

static const char *const checkpoint_words[] = {"off", "after_cell", "before_cell"};
static const char *const timeout_words[] = {"keep", "restore"};
static const char *const replay_words[] = {"none", "all", "pure"};

/* -- the object ---------------------------------------------------------------------------------------------------- */

static int check_word(json_t *object, const char *key, const char *const *words, size_t count, const char *expected,
                      struct cop_error *err)
{
        json_t *value = json_object_get(object, key);

        if (!value || json_is_null(value))
                return 0;
        for (size_t i = 0; i < count; i++)
                if (json_is_string(value) && strcmp(json_string_value(value), words[i]) == 0)
                        return 0;
        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"policy.%s\": expected %s", key, expected);
}

static int check(json_t *object, struct cop_error *err)
{
        static const char *const fields[] = {
                "idle_seconds",     "persistent",     "checkpoints", "on_timeout",    "checkpoint_keep",
                "checkpoint_bytes", "retention_days", "replay",      "snapshot_keep", NULL};
        usec_t idle;
        bool persistent;
        int64_t n;
        int r = cop_json_check_keys(object, fields, err);

        if (r >= 0)
                r = cop_json_get_seconds(object, "idle_seconds", IDLE_MAX * USEC_PER_SEC, &idle, err);
        if (r >= 0)
                r = cop_json_get_bool(object, "persistent", &persistent, err);
        if (r >= 0)
                r = check_word(object, "checkpoints", checkpoint_words, ELEMENTSOF(checkpoint_words),
                               "after_cell, before_cell or off", err);
        if (r >= 0)
                r = check_word(object, "on_timeout", timeout_words, ELEMENTSOF(timeout_words), "keep or restore", err);
        if (r >= 0)
                r = check_word(object, "replay", replay_words, ELEMENTSOF(replay_words), "none, all or pure", err);
        if (r >= 0)
                r = cop_json_get_i64(object, "checkpoint_keep", 1, 10000, &n, err);
        if (r >= 0)
                r = cop_json_get_i64(object, "checkpoint_bytes", 0, INT64_MAX, &n, err);
        if (r >= 0)
                r = cop_json_get_i64(object, "retention_days", 1, 3650, &n, err);
        if (r >= 0)
                r = cop_json_get_i64(object, "snapshot_keep", 0, 10000, &n, err);
        return MIN_OF(r, 0);
}

int cop_policy_to_json(const char *old, json_t *object, char **ret, struct cop_error *err)
{
        _cleanup_json_ json_t *merged = old ? json_loads(old, 0, NULL) : NULL;
        const char *key;
        json_t *value;

        int r = check(object, err);
        if (r < 0)
                return r;
        if (!merged && !(merged = json_object()))
                return cop_error_errno(err, ENOMEM, "policy");
        json_object_foreach (object, key, value) {
                if (json_is_null(value)) /* back to the default */
                        json_object_del(merged, key);
                else
                        json_object_set(merged, key, value);
        }
        *ret = json_dumps(merged, JSON_COMPACT);
        return *ret ? 0 : cop_error_errno(err, ENOMEM, "policy");
}

static unsigned word_of(json_t *object, const char *key, const char *const *words, size_t count, unsigned otherwise)
{
        const char *text = json_string_value(json_object_get(object, key));

        for (unsigned i = 0; text && i < count; i++)
                if (strcmp(text, words[i]) == 0)
                        return i;
        return otherwise;
}

static json_int_t number_of(json_t *object, const char *key, json_int_t otherwise)
{
        json_t *value = json_object_get(object, key);

        return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

void cop_policy_from_json(const char *text, struct cop_policy *ret)
{
        _cleanup_json_ json_t *object = text ? json_loads(text, 0, NULL) : NULL;
        json_t *idle = json_object_get(object, "idle_seconds");

        *ret = (struct cop_policy){
                .idle = (usec_t)((json_is_number(idle) ? json_number_value(idle) : IDLE_DEFAULT) * USEC_PER_SEC),
                .persistent = json_is_true(json_object_get(object, "persistent")),
                .checkpoints = word_of(object, "checkpoints", checkpoint_words, ELEMENTSOF(checkpoint_words),
                                       COP_CHECKPOINTS_DEFAULT),
                .copy = json_is_true(json_object_get(object, "copy")),
                .restore_on_timeout = word_of(object, "on_timeout", timeout_words, ELEMENTSOF(timeout_words), 0),
                .replay = word_of(object, "replay", replay_words, ELEMENTSOF(replay_words), COP_REPLAY_NONE),
                .checkpoint_keep = (unsigned)number_of(object, "checkpoint_keep", KEEP_DEFAULT),
                .checkpoint_bytes = (uint64_t)number_of(object, "checkpoint_bytes", BYTES_DEFAULT),
                .retention_days = (unsigned)number_of(object, "retention_days", RETENTION_DEFAULT),
                .snapshot_keep = (unsigned)number_of(object, "snapshot_keep", 0),
        };
}

json_t *cop_policy_view(const struct cop_policy *p)
{
        return json_pack("{s:f, s:b, s:s, s:s, s:i, s:I, s:i, s:s, s:i}", "idle_seconds",
                         (double)p->idle / USEC_PER_SEC, "persistent", p->persistent, "checkpoints",
                         checkpoint_words[p->checkpoints], "on_timeout", timeout_words[p->restore_on_timeout],
                         "checkpoint_keep", (int)p->checkpoint_keep, "checkpoint_bytes",
                         (json_int_t)p->checkpoint_bytes, "retention_days", (int)p->retention_days, "replay",
                         replay_words[p->replay], "snapshot_keep", (int)p->snapshot_keep);
}

/* -- when ---------------------------------------------------------------------------------------------------------- */

static usec_t retained_until(const struct cop_sandbox *sb)
{
        if (sb->policy.persistent || !sb->row->last_activity_at)
                return 0;
        return cop_usec_add(sb->row->last_activity_at, sb->policy.retention_days * DAY);
}

/* From when on its end is told of. */
static usec_t warned_from(const struct cop_sandbox *sb, usec_t until)
{
        return until - MIN_OF(RETENTION_WARN, sb->policy.retention_days * DAY / 4);
}

static void add_warning(const struct cop_sandbox *sb, usec_t until, json_t *view)
{
        char text[200], stamp[COP_RFC3339_MAX];

        snprintf(text, sizeof(text),
                 "it has slept so long that it will be removed at %s, unless it is used before, or policy.persistent "
                 "or a "
                 "longer policy.retention_days is set",
                 cop_rfc3339(until, stamp));
        json_object_set_new(view, "warning", json_string(text));
}

void cop_policy_add_times(struct cop_sandbox *sb, json_t *view)
{
        char stamp[COP_RFC3339_MAX];
        usec_t last = sb->state == COP_SANDBOX_SUSPENDED ? sb->row->last_activity_at : sb->last_activity;

        if (last)
                json_object_set_new(view, "last_activity_at", json_string(cop_rfc3339(last, stamp)));
        if (sb->state == COP_SANDBOX_RUNNING && sb->policy.idle && !cop_sandbox_busy_with(sb))
                json_object_set_new(view, "idle_at",
                                    json_string(cop_rfc3339(cop_usec_add(last, sb->policy.idle), stamp)));
        usec_t until = sb->state == COP_SANDBOX_SUSPENDED ? retained_until(sb) : 0;
        if (!until)
                return;
        json_object_set_new(view, "retained_until", json_string(cop_rfc3339(until, stamp)));
        if (warned_from(sb, until) <= cop_now(CLOCK_REALTIME))
                add_warning(sb, until, view);
}

static void note_wait(usec_t *wait, usec_t now, usec_t at)
{
        *wait = MIN_OF(*wait, at > now ? at - now : 0);
}

/* Once for each end, also when the daemon was started anew meanwhile. */
static void tell_of_end(struct cop_sandbox *sb, usec_t until)
{
        char stamp[COP_RFC3339_MAX];

        if (sb->row->warned_until == until)
                return;
        sb->row->warned_until = until;
        if (cop_store_sandbox_update(sb->engine->store, sb->row, NULL) < 0)
                return;
        _cleanup_json_ json_t *detail = json_pack("{s:s}", "retained_until", cop_rfc3339(until, stamp));
        cop_engine_event(sb->engine, "sandbox.retention_ending", sb->id, detail);
}

/* Returns true when its time is over and that was seen to. */
static bool look_at_end(struct cop_sandbox *sb, usec_t now, usec_t *wait)
{
        usec_t expires = sb->row->expires_at, until = sb->state == COP_SANDBOX_SUSPENDED ? retained_until(sb) : 0;

        if (sb->state != COP_SANDBOX_RUNNING && sb->state != COP_SANDBOX_SUSPENDED) {
                if (expires)
                        note_wait(wait, 0, LOOK_BUSY);
                return false;
        }
        if (expires && expires <= now && sb->policy.persistent) {
                sb->row->expires_at = 0;
                cop_store_sandbox_update(sb->engine->store, sb->row, NULL);
                if (sb->state == COP_SANDBOX_RUNNING)
                        cop_sandbox_suspend_idle(sb);
                return true;
        }
        if ((expires && expires <= now) || (until && until <= now)) {
                cop_sandbox_end(sb, expires && expires <= now ? "ttl" : "retention", NULL);
                return true;
        }
        if (expires)
                note_wait(wait, now, expires);
        if (until && warned_from(sb, until) <= now)
                tell_of_end(sb, until);
        else if (until)
                note_wait(wait, now, warned_from(sb, until));
        if (until)
                note_wait(wait, now, until);
        return false;
}

static void look_at_idle(struct cop_sandbox *sb, usec_t now, usec_t *wait)
{
        if (sb->state != COP_SANDBOX_RUNNING || !sb->policy.idle)
                return;
        if (cop_sandbox_busy_with(sb))
                sb->last_activity = now;
        usec_t at = cop_usec_add(sb->last_activity, sb->policy.idle);
        if (at <= now)
                cop_sandbox_suspend_idle(sb);
        else
                note_wait(wait, now, at);
}

static void look(struct cop_engine *e)
{
        usec_t now = cop_now(CLOCK_REALTIME), wait = LOOK_AGAIN;
        bool any = false;

        usec_t expiry = cop_snapshots_expire(e, now);
        if (expiry) {
                any = true;
                note_wait(&wait, now, expiry);
        }
        for (struct cop_sandbox *sb = e->sandboxes; sb; sb = sb->next) {
                any = true;
                if (!look_at_end(sb, now, &wait))
                        look_at_idle(sb, now, &wait);
        }
        cop_source_set_time(e->ttl_timer,
                            any ? cop_usec_add(cop_now(CLOCK_MONOTONIC), MAX_OF(wait, USEC_PER_MSEC)) : USEC_INFINITY);
}

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        look(userdata);
}

static void on_purge_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_engine *e = userdata;
        usec_t end = cop_usec_add(cop_now(CLOCK_MONOTONIC), PURGE_SLICE);
        int r = 1;

        while (r > 0 && cop_now(CLOCK_MONOTONIC) < end)
                r = cop_store_purge_step(e->store, NULL);
        if (r != 0)
                cop_source_set_time(s, cop_usec_add(now, r > 0 ? PURGE_PAUSE + PURGE_SLICE : PURGE_RETRY));
}

int cop_policy_new(struct cop_engine *e, struct cop_error *err)
{
        int r = cop_loop_add_timer(e->loop, 0, on_timer, e, &e->ttl_timer, err);

        return r < 0 ? r : cop_loop_add_timer(e->loop, 0, on_purge_timer, e, &e->purge_timer, err);
}

void cop_policy_purge(struct cop_engine *e)
{
        cop_source_set_time(e->purge_timer, 0);
}

void cop_policy_changed(struct cop_engine *e)
{
        /* From the loop: the caller may be in the middle of something. */
        cop_source_set_time(e->ttl_timer, 0);
}
