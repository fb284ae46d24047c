/* Theory of operation: the spare
 *
 * A sandbox that begins with memory (a fork, a golden state) is thawed within some milliseconds, of which its keeper, folders, cgroup and
 * namespaces are a good part.  So one of these is kept ready, made a moment after the last such sandbox and like it: as
 * prepared by sandbox-prepare.c, without files, memory or name.  It costs a keeper that sleeps (2 MiB) and a range of uids, and goes when
 * nobody has made a sandbox like it for some minutes.
 *
 *      a sandbox was made from memory ── 0.2 s later ──► spare ──┬── cop_spare_take: the next one, when it fits
 *                                                                └── SPARE_LIFE later, or another kind was made: gone
 */
#include "engine/sandbox.h"

#include <stdlib.h>
#include <string.h>

#define SPARE_AFTER (200 * USEC_PER_MSEC) /* not beside the first cell of the one that was just made */
#define SPARE_LIFE (300 * USEC_PER_SEC)

struct cop_spare {
        struct cop_sandbox *sandbox;  /* owned; NULL = there is none now */
        struct cop_sandbox_row *like; /* owned: what it is, or is to be */
        struct cop_source *timer;     /* owned: to be made, or to go */
};

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_engine *e = userdata;
        struct cop_spare *spare = e->spare;

        cop_source_set_time(s, USEC_INFINITY);
        if (spare->sandbox) { /* nobody wanted it, or its keeper is gone */
                cop_sandbox_unprepare(TAKE_PTR(spare->sandbox));
                return;
        }
        spare->sandbox = cop_sandbox_prepare(e, spare->like, NULL);
        if (spare->sandbox)
                cop_source_set_time(s, cop_usec_add(now, SPARE_LIFE));
}

static struct cop_spare *get(struct cop_engine *e)
{
        struct cop_error err;

        if (e->spare || e->no_spare || e->closing)
                return e->spare;
        struct cop_spare *spare = calloc(1, sizeof(*spare));
        if (spare && cop_loop_add_timer(e->loop, USEC_INFINITY, on_timer, e, &spare->timer, &err) < 0) {
                cop_log_debug("spare: %s", err.message);
                free(spare);
                return NULL;
        }
        return e->spare = spare;
}

bool cop_spare_fits(const struct cop_engine *e, const struct cop_sandbox_row *row, const char *name)
{
        return !name && e->spare && e->spare->sandbox && cop_sandbox_prepared_like(e->spare->sandbox, row);
}

void cop_spare_make_like(struct cop_engine *e, const struct cop_sandbox_row *row)
{
        struct cop_spare *spare = get(e);

        if (!spare)
                return;
        usec_t now = cop_now(CLOCK_MONOTONIC);
        if (cop_spare_fits(e, row, NULL)) {
                cop_source_set_time(spare->timer, cop_usec_add(now, SPARE_LIFE));
                return;
        }
        cop_sandbox_unprepare(TAKE_PTR(spare->sandbox));
        cop_sandbox_row_free(spare->like);
        spare->like = cop_sandbox_row_like(row, NULL);
        cop_source_set_time(spare->timer, spare->like ? cop_usec_add(now, SPARE_AFTER) : USEC_INFINITY);
}

struct cop_sandbox *cop_spare_take(struct cop_engine *e, const struct cop_sandbox_row *row)
{
        if (!cop_spare_fits(e, row, row->name))
                return NULL;
        cop_source_set_time(e->spare->timer, USEC_INFINITY);
        return TAKE_PTR(e->spare->sandbox);
}

void cop_spare_drop(struct cop_engine *e)
{
        if (!e->spare)
                return;
        cop_sandbox_unprepare(e->spare->sandbox);
        cop_source_free(e->spare->timer);
        cop_sandbox_row_free(e->spare->like);
        free(e->spare);
        e->spare = NULL;
}
