/* Theory of operation: the spares
 *
 * A sandbox that begins with memory (a fork, a golden state) is thawed within some milliseconds, of which its keeper, folders, cgroup and
 * namespaces are a good part.  So two of these are kept ready, made a moment after the last such sandbox and like it, without a name:
 *
 *      empty     as prepared by sandbox-prepare.c, without files or memory: for the next fork of a sandbox like it
 *      golden    thawed ahead, once a sandbox began as its image's golden state: for the next that does
 *
 * An empty one costs a keeper that sleeps (2 MiB) and a range of uids, a golden one besides what a thawed tree takes that does nothing.
 * Each goes when nobody has made a sandbox like it for some minutes.
 *
 *      a sandbox was made from memory ── 0.2 s later ──► spare ──┬── cop_spare_take: the next one, when it fits
 *                                                                ├── SPARE_LIFE later, or another kind was made: gone
 *                                                                └── its golden state goes: gone
 */
#include "engine/sandbox.h"

#include <stdlib.h>
#include <string.h>

#define SPARE_AFTER (200 * USEC_PER_MSEC) /* not beside the first cell of the one that was just made */
#define SPARE_LIFE (300 * USEC_PER_SEC)

struct spare {
        struct cop_engine *engine;    /* borrowed */
        bool golden;                  /* thawed ahead: like->node_id */
        struct cop_sandbox *sandbox;  /* owned; NULL = there is none now */
        struct cop_sandbox_row *like; /* owned: what it is, or is to be */
        struct cop_source *timer;     /* owned: to be made, or to go */
};

struct cop_spares {
        struct spare empty, golden;
};

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct spare *spare = userdata;

        cop_source_set_time(s, USEC_INFINITY);
        if (spare->sandbox) { /* nobody wanted it, or it is spoiled */
                cop_sandbox_unprepare(TAKE_PTR(spare->sandbox));
                return;
        }
        spare->sandbox = spare->golden ? cop_sandbox_thaw_ahead(spare->engine, spare->like)
                                       : cop_sandbox_prepare(spare->engine, spare->like, NULL);
        if (spare->sandbox)
                cop_source_set_time(s, cop_usec_add(now, SPARE_LIFE));
}

/* Without one, and none to be made. */
static void empty_out(struct spare *spare)
{
        cop_sandbox_unprepare(TAKE_PTR(spare->sandbox));
        cop_sandbox_row_free(TAKE_PTR(spare->like));
        cop_source_set_time(spare->timer, USEC_INFINITY);
}

static struct cop_spares *get(struct cop_engine *e)
{
        struct cop_error err;

        if (e->spares || e->no_spare || e->closing)
                return e->spares;
        struct cop_spares *spares = calloc(1, sizeof(*spares));
        if (!spares)
                return NULL;
        spares->empty.engine = spares->golden.engine = e;
        spares->golden.golden = true;
        int r = cop_loop_add_timer(e->loop, USEC_INFINITY, on_timer, &spares->empty, &spares->empty.timer, &err);
        if (r == 0)
                r = cop_loop_add_timer(e->loop, USEC_INFINITY, on_timer, &spares->golden, &spares->golden.timer, &err);
        if (r < 0) {
                cop_log_debug("spare: %s", err.message);
                cop_source_free(spares->empty.timer);
                free(spares);
                return NULL;
        }
        return e->spares = spares;
}

static bool fits(const struct spare *spare, const struct cop_sandbox_row *row, const char *name)
{
        return !name && spare->sandbox && cop_sandbox_prepared_like(spare->sandbox, row);
}

bool cop_spare_fits(const struct cop_engine *e, const struct cop_sandbox_row *row, const char *name)
{
        return e->spares && fits(&e->spares->empty, row, name);
}

static void make_like(struct spare *spare, const struct cop_sandbox_row *row)
{
        usec_t now = cop_now(CLOCK_MONOTONIC);

        if (fits(spare, row, NULL)) {
                cop_source_set_time(spare->timer, cop_usec_add(now, SPARE_LIFE));
                return;
        }
        empty_out(spare);
        spare->like = cop_sandbox_row_like(row, NULL, spare->golden);
        if (spare->like)
                cop_source_set_time(spare->timer, cop_usec_add(now, SPARE_AFTER));
}

void cop_spare_make_like(struct cop_engine *e, const struct cop_sandbox_row *row, bool golden)
{
        struct cop_spares *spares = get(e);

        if (!spares)
                return;
        make_like(&spares->empty, row);
        if (golden)
                make_like(&spares->golden, row);
}

static struct cop_sandbox *take(struct spare *spare, const struct cop_sandbox_row *row)
{
        if (!fits(spare, row, row->name) || (spare->golden && !spare->sandbox->thawed_ahead))
                return NULL;
        cop_source_set_time(spare->timer, USEC_INFINITY);
        return TAKE_PTR(spare->sandbox);
}

struct cop_sandbox *cop_spare_take(struct cop_engine *e, const struct cop_sandbox_row *row)
{
        if (!e->spares)
                return NULL;
        struct cop_sandbox *golden = take(&e->spares->golden, row);
        return golden ? golden : take(&e->spares->empty, row);
}

void cop_spare_spoiled(const struct cop_sandbox *p)
{
        struct cop_spares *spares = p->engine->spares;

        if (spares && spares->empty.sandbox == p)
                cop_source_set_time(spares->empty.timer, 0);
        else if (spares && spares->golden.sandbox == p)
                cop_source_set_time(spares->golden.timer, 0);
}

void cop_spare_forget(struct cop_engine *e, const char *node)
{
        if (e->spares && e->spares->golden.like && strcmp(e->spares->golden.like->node_id, node) == 0)
                empty_out(&e->spares->golden);
}

void cop_spare_drop(struct cop_engine *e)
{
        if (!e->spares)
                return;
        empty_out(&e->spares->empty);
        empty_out(&e->spares->golden);
        cop_source_free(e->spares->empty.timer);
        cop_source_free(e->spares->golden.timer);
        free(e->spares);
        e->spares = NULL;
}
