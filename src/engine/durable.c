/* Theory of operation: what has to survive a power cut
 *
 * The store does not wait for the disk (store/sync.c), and most of what it holds need not: a sandbox that runs ends with the host.  Two
 * things must not come before the rows they depend on are on disk:
 *
 *      an answer that promises something to last (a snapshot, a removal): cop_op_done_durable
 *      the end of a folder whose row was deleted: after a power cut the row would be back, and name files that are gone
 *
 * Both wait here.  All that is queued in one turn of the loop shares one sync, asked for at the end of the turn: so it covers what the
 * same turn still commits.
 */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

struct waiting {
        struct waiting *next;
        uint64_t number; /* of the sync; 0: not asked for yet */
        cop_durable_fn fn;
        void *userdata;
};

struct cop_durable {
        struct waiting *first, **end;
        struct cop_source *io, *defer; /* owned */
};

static void serve(struct cop_engine *e, uint64_t upto, const struct cop_error *err)
{
        struct cop_durable *d = e->durable;

        while (d->first && d->first->number && d->first->number <= upto) {
                struct waiting *w = d->first;
                d->first = w->next;
                if (!d->first)
                        d->end = &d->first;
                w->fn(err, w->userdata);
                free(w);
        }
}

static void on_synced(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_engine *e = userdata;
        struct cop_error err;
        uint64_t upto;

        int r = cop_store_sync_done(e->store, &upto, &err);
        if (r < 0)
                cop_log_error("what was promised may not survive the host: %s", err.message);
        serve(e, upto, r < 0 ? &err : NULL);
}

static void ask(struct cop_engine *e)
{
        uint64_t number = cop_store_sync_begin(e->store);

        for (struct waiting *w = e->durable->first; w; w = w->next)
                w->number = w->number ? w->number : number;
}

static void on_turn_end(struct cop_source *s, void *userdata)
{
        cop_source_set_enabled(s, 0);
        ask(userdata);
}

int cop_durable_new(struct cop_engine *e, struct cop_error *err)
{
        struct cop_durable *d = e->durable = calloc(1, sizeof(*d));

        if (!d)
                return cop_error_errno(err, ENOMEM, "engine");
        d->end = &d->first;
        int r = cop_loop_add_io(e->loop, cop_store_sync_fd(e->store), EPOLLIN, on_synced, e, &d->io, err);
        if (r == 0)
                r = cop_loop_add_defer(e->loop, on_turn_end, e, &d->defer, err);
        return r;
}

void cop_durable_free(struct cop_engine *e)
{
        struct cop_error err;

        while (e->durable && e->durable->first) { /* what is answered may bring more */
                ask(e);
                int r = cop_store_sync(e->store, &err);
                serve(e, UINT64_MAX, r < 0 ? &err : NULL);
        }
        if (e->durable) {
                cop_source_free(e->durable->io);
                cop_source_free(e->durable->defer);
        }
        free(TAKE_PTR(e->durable));
}

void cop_engine_when_durable(struct cop_engine *e, cop_durable_fn fn, void *userdata)
{
        struct waiting *w = e->durable ? calloc(1, sizeof(*w)) : NULL;
        struct cop_error err;

        if (!w) { /* no memory, or the engine ends: so it waits */
                int r = cop_store_sync(e->store, &err);
                fn(r < 0 ? &err : NULL, userdata);
                return;
        }
        *w = (struct waiting){.fn = fn, .userdata = userdata};
        *e->durable->end = w;
        e->durable->end = &w->next;
        cop_source_set_enabled(e->durable->defer, 1);
}

/* -- answers -------------------------------------------------------------------------------------------------------------------- */

struct answer {
        struct cop_engine *engine;
        uint64_t op;
        json_t *result; /* owned */
};

static void give_answer(const struct cop_error *err, void *userdata)
{
        struct answer *a = userdata;

        cop_op_done(cop_op_find(a->engine, a->op), a->result, err);
        free(a);
}

void cop_op_done_durable(struct cop_op *op, json_t *result, const struct cop_error *err)
{
        if (!op || !result || err) {
                cop_op_done(op, result, err);
                return;
        }
        struct answer *a = calloc(1, sizeof(*a));
        if (!a) {
                json_decref(result);
                cop_op_done(op, NULL, NULL);
                return;
        }
        cop_op_on_cancel(op, NULL, NULL); /* it has happened */
        *a = (struct answer){.engine = cop_op_engine(op), .op = cop_op_serial(op), .result = result};
        cop_engine_when_durable(a->engine, give_answer, a);
}

void cop_answer_durable(struct cop_engine *e, struct cop_op_to to, json_t *result, struct cop_op **ret_op)
{
        struct cop_op *op = cop_op_new(e, to, NULL, NULL);

        if (ret_op)
                *ret_op = NULL;
        if (!op) {
                json_decref(result);
                return;
        }
        uint64_t serial = cop_op_serial(op);
        cop_op_done_durable(op, result, NULL);
        if (ret_op)
                *ret_op = cop_op_find(e, serial);
}
