/* What happens by itself.
 *
 * The end of a sandbox: expires_at is absolute.  It is set when the sandbox starts and again whenever its
 * ttl is changed; use does not move it.  A running cell does not hold it off: the caller who wants more time says so.
 */
#include "engine/sandbox.h"

#define LOOK_AGAIN (60 * USEC_PER_SEC)  /* the wall clock may be set */
#define PURGE_SLICE (2 * USEC_PER_MSEC) /* of work, then */
#define PURGE_PAUSE (5 * USEC_PER_MSEC)
#define PURGE_RETRY (10 * USEC_PER_SEC) /* the disk may be full */

static void look(struct cop_engine *e)
{
        usec_t now = cop_now(CLOCK_REALTIME), wait = LOOK_AGAIN;
        bool any = false;

        for (struct cop_sandbox *sb = e->sandboxes; sb; sb = sb->next) {
                if (sb->state != COP_SANDBOX_RUNNING || !sb->row->expires_at)
                        continue;
                if (sb->row->expires_at <= now) {
                        cop_sandbox_end(sb, "ttl", NULL);
                        continue;
                }
                any = true;
                wait = MIN_OF(wait, sb->row->expires_at - now);
        }
        cop_source_set_time(e->ttl_timer, any ? cop_usec_add(cop_now(CLOCK_MONOTONIC), wait) : USEC_INFINITY);
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
        int r = cop_loop_add_timer(e->loop, USEC_INFINITY, on_timer, e, &e->ttl_timer, err);

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
