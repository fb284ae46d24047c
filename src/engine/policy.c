/* When sandboxes end by themselves: expires_at is absolute.  It is set when the sandbox starts and again whenever its
 * ttl is changed; use does not move it.  A running cell does not hold it off: the caller who wants more time says so.
 */
#include "engine/sandbox.h"

#define LOOK_AGAIN (60 * USEC_PER_SEC) /* the wall clock may be set */

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

int cop_policy_new(struct cop_engine *e, struct cop_error *err)
{
        return cop_loop_add_timer(e->loop, USEC_INFINITY, on_timer, e, &e->ttl_timer, err);
}

void cop_policy_changed(struct cop_engine *e)
{
        /* From the loop: the caller may be in the middle of something. */
        cop_source_set_time(e->ttl_timer, 0);
}
