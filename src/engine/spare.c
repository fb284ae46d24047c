/* Theory of operation: the spares
 *
 * A sandbox that begins with memory (a fork, a golden state) is thawed within some milliseconds, which whoever asked for it waits.  So
 * what the next one may be is kept ready, made a moment after the last such sandbox and like it.  It gets its name when it is taken:
 *
 *      empty     as prepared by sandbox-prepare.c, without files or memory: for the next of the same image and limits
 *      golden    thawed ahead, once a sandbox began as its image's golden state: for the next that does
 *      branch    thawed ahead, once a session was forked, or a sandbox made from a snapshot: for the next from there.  It follows a
 *                session that goes on: after a cell, as soon as the session has come to rest, it is its new head.  Where several
 *                were asked for at once, several are kept
 *
 * What is thawed ahead stands still (COP_THAW_AHEAD): nothing runs in it before somebody has it.  An empty one costs a keeper that sleeps
 * (2 MiB) and a range of uids, the others besides what the tree's own pages take, some MiB.  Each goes when nobody has made a sandbox
 * like it for a while.
 *
 *      a sandbox was made from memory ── 0.2 s later ──► spare ──┬── cop_spare_take: the next one, when it fits
 *                       the session has a new head ──────► ▲     ├── nobody wanted it, or another kind was made: gone
 *                                                                └── its node goes, its session sleeps or has ended: gone
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>

#define SPARE_AFTER (200 * USEC_PER_MSEC) /* not beside the first cell of the one that was just made */
#define SPARE_LIFE (300 * USEC_PER_SEC)
#define BRANCH_LIFE (60 * USEC_PER_SEC)  /* since the last branch: it is made anew with each cell */
#define BRANCHES_MAX 4                   /* each costs memory, and time of a processor with each cell */
#define BRANCH_STEP (40 * USEC_PER_MSEC) /* from one to the next: about what a thaw takes */

enum spare_kind { SPARE_EMPTY, SPARE_GOLDEN, SPARE_BRANCH };
#define SPARES_MAX (SPARE_BRANCH + BRANCHES_MAX) /* those from SPARE_BRANCH on are branches */

struct spare {
        struct cop_engine *engine; /* borrowed */
        enum spare_kind kind;
        struct cop_sandbox *sandbox;  /* owned; NULL = there is none now */
        struct cop_sandbox_row *like; /* owned: what it is, or is to be; NULL = nothing */
        char source[COP_ID_MAX];      /* BRANCH: the session whose head it is; "" = a node that stays as it is */
        usec_t wanted;                /* CLOCK_MONOTONIC: when one like it was made last */
        usec_t after;                 /* how long something like it was made before it is */
        struct cop_source *timer;     /* owned: to be made, or to go */
};

struct cop_spares {
        struct spare list[SPARES_MAX];
};

static bool is_outdated(const struct spare *spare)
{
        return spare->sandbox && strcmp(spare->sandbox->row->node_id, spare->like->node_id) != 0;
}

/* Without one, and none to be made. */
static void empty_out(struct spare *spare)
{
        cop_sandbox_unprepare(TAKE_PTR(spare->sandbox));
        cop_sandbox_row_free(TAKE_PTR(spare->like));
        spare->source[0] = '\0';
        cop_source_set_time(spare->timer, USEC_INFINITY);
}

static usec_t end_of_life(const struct spare *spare)
{
        return cop_usec_add(spare->wanted, spare->kind == SPARE_BRANCH ? BRANCH_LIFE : SPARE_LIFE);
}

static void try_soon(struct spare *spare)
{
        cop_source_set_time(spare->timer, cop_usec_add(cop_now(CLOCK_MONOTONIC), spare->after));
}

static void make(struct spare *spare)
{
        struct cop_sandbox *source = spare->source[0] ? cop_sandbox_by_id(spare->engine, spare->source) : NULL;

        if (spare->source[0] && (!source || source->state != COP_SANDBOX_RUNNING)) {
                empty_out(spare);
                return;
        }
        if (source && cop_sandbox_busy_with(source)) { /* what comes of that may have no node */
                try_soon(spare);
                return;
        }
        spare->sandbox = spare->kind == SPARE_EMPTY ? cop_sandbox_prepare(spare->engine, spare->like)
                                                    : cop_sandbox_thaw_ahead(spare->engine, spare->like);
        if (spare->sandbox)
                cop_source_set_time(spare->timer, end_of_life(spare));
}

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct spare *spare = userdata;
        bool gone = spare->sandbox && !is_outdated(spare); /* nobody wanted it, or it is spoiled */

        cop_source_set_time(s, USEC_INFINITY);
        cop_sandbox_unprepare(TAKE_PTR(spare->sandbox));
        if (now >= end_of_life(spare))
                empty_out(spare);
        else if (!gone)
                make(spare);
}

static struct cop_spares *get(struct cop_engine *e)
{
        struct cop_error err;

        if (e->spares || e->no_spare || e->closing)
                return e->spares;
        struct cop_spares *spares = e->spares = calloc(1, sizeof(*spares));
        for (unsigned i = 0; spares && i < SPARES_MAX; i++) {
                struct spare *spare = &spares->list[i];
                *spare = (struct spare){.engine = e,
                                        .kind = MIN_OF(i, (unsigned)SPARE_BRANCH),
                                        .after = SPARE_AFTER +
                                                 (i > SPARE_BRANCH ? (i - SPARE_BRANCH) * BRANCH_STEP : 0)};
                if (cop_loop_add_timer(e->loop, USEC_INFINITY, on_timer, spare, &spare->timer, &err) < 0) {
                        cop_log_debug("spare: %s", err.message);
                        cop_spare_drop(e);
                        break;
                }
        }
        return e->spares;
}

static bool fits(const struct spare *spare, const struct cop_sandbox_row *row)
{
        return spare->sandbox && (spare->kind == SPARE_EMPTY || spare->sandbox->thawed_ahead) &&
               cop_sandbox_prepared_like(spare->sandbox, row);
}

unsigned cop_spare_fits(const struct cop_engine *e, const struct cop_sandbox_row *row)
{
        unsigned n = 0;

        for (unsigned i = 0; e->spares && i < SPARES_MAX; i++)
                n += fits(&e->spares->list[i], row);
        return n;
}

static void make_soon(struct spare *spare, struct cop_sandbox_row *like)
{
        cop_sandbox_row_free(spare->like);
        spare->like = like;
        try_soon(spare);
}

static void make_like(struct spare *spare, const struct cop_sandbox_row *row)
{
        spare->wanted = cop_now(CLOCK_MONOTONIC);
        if (spare->sandbox && cop_sandbox_prepared_like(spare->sandbox, row)) {
                cop_source_set_time(spare->timer, end_of_life(spare));
                return;
        }
        empty_out(spare);
        struct cop_sandbox_row *like = cop_sandbox_row_like(row, spare->kind != SPARE_EMPTY);
        if (like)
                make_soon(spare, like);
}

static void make_branches_like(struct cop_spares *spares, const struct cop_sandbox_row *row,
                               const struct cop_spare_branch *branch)
{
        for (unsigned i = 0; i < MIN_OF(branch->count, (unsigned)BRANCHES_MAX); i++) {
                struct spare *spare = &spares->list[SPARE_BRANCH + i];
                make_like(spare, row);
                memcpy(spare->source, branch->source, sizeof(spare->source));
        }
}

void cop_spare_make_like(struct cop_engine *e, const struct cop_sandbox_row *row, const struct cop_spare_branch *branch)
{
        struct cop_spares *spares = get(e);

        if (!spares)
                return;
        make_like(&spares->list[SPARE_EMPTY], row);
        if (branch)
                make_branches_like(spares, row, branch);
        else
                make_like(&spares->list[SPARE_GOLDEN], row);
}

static void follow(struct spare *spare, const struct cop_node_row *head)
{
        struct cop_sandbox_row *like;

        if (!spare->like || strcmp(spare->source, head->sandbox_id) != 0 ||
            !(like = cop_sandbox_row_like(spare->like, true)))
                return;
        memcpy(like->node_id, head->id, sizeof(like->node_id));
        free(like->layers);
        like->layers = cop_layers_cut(spare->engine, head->layers);
        make_soon(spare, like);
}

void cop_spare_follow(struct cop_engine *e, const struct cop_node_row *head)
{
        for (unsigned i = SPARE_BRANCH; e->spares && i < SPARES_MAX; i++)
                follow(&e->spares->list[i], head);
}

struct cop_sandbox *cop_spare_take(struct cop_engine *e, const struct cop_sandbox_row *row)
{
        for (unsigned i = SPARES_MAX; e->spares && i > 0; i--) { /* the empty one last */
                struct spare *spare = &e->spares->list[i - 1];
                if (!fits(spare, row))
                        continue;
                cop_source_set_time(spare->timer, USEC_INFINITY);
                return TAKE_PTR(spare->sandbox);
        }
        return NULL;
}

void cop_spare_spoiled(const struct cop_sandbox *p)
{
        struct cop_spares *spares = p->engine->spares;

        for (unsigned i = 0; spares && i < SPARES_MAX; i++)
                if (spares->list[i].sandbox == p)
                        cop_source_set_time(spares->list[i].timer, 0);
}

void cop_spare_forget(struct cop_engine *e, const char *node)
{
        for (unsigned i = 0; e->spares && i < SPARES_MAX; i++) {
                struct spare *spare = &e->spares->list[i];
                if ((spare->like && strcmp(spare->like->node_id, node) == 0) ||
                    (spare->sandbox && strcmp(spare->sandbox->row->node_id, node) == 0))
                        empty_out(spare);
        }
}

void cop_spare_drop(struct cop_engine *e)
{
        struct cop_spares *spares = TAKE_PTR(e->spares);

        for (unsigned i = 0; spares && i < SPARES_MAX; i++) {
                if (spares->list[i].timer)
                        empty_out(&spares->list[i]);
                cop_source_free(spares->list[i].timer);
        }
        free(spares);
}
