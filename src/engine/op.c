#include <stdlib.h>

#include "engine/internal.h"

struct cop_op {
        struct cop_engine *engine; /* borrowed */
        struct cop_op *next, *prev;
        struct cop_op_to to;
        void (*cancel)(void *data);
        void *data;
        uint64_t serial;
        bool cancelled;
};

void cop_answer(struct cop_op_to to, json_t *result, const struct cop_error *err)
{
        if (to.done && err)
                to.done(NULL, err, to.userdata);
        else if (to.done && !result)
                to.done(NULL, &(struct cop_error){ENOMEM, COP_ERR_no_memory, "out of memory in the daemon"},
                        to.userdata);
        else if (to.done)
                to.done(result, NULL, to.userdata);
        json_decref(result);
}

struct cop_op *cop_op_new(struct cop_engine *e, struct cop_op_to to, void (*cancel)(void *data), void *data)
{
        struct cop_op *op = calloc(1, sizeof(*op));

        if (!op) {
                cop_answer(to, NULL, NULL);
                return NULL;
        }
        *op = (struct cop_op){
                .engine = e, .next = e->ops, .to = to, .cancel = cancel, .data = data, .serial = ++e->op_serial};
        if (e->ops)
                e->ops->prev = op;
        e->ops = op;
        return op;
}

void cop_op_done(struct cop_op *op, json_t *result, const struct cop_error *err)
{
        if (!op) {
                json_decref(result);
                return;
        }
        struct cop_op_to to = op->to;
        bool cancelled = op->cancelled;

        if (op->prev)
                op->prev->next = op->next;
        else
                op->engine->ops = op->next;
        if (op->next)
                op->next->prev = op->prev;
        free(op);
        /* Last: the callback may begin or cancel other operations. */
        if (cancelled)
                json_decref(result);
        else
                cop_answer(to, result, err);
}

void cop_op_progress(struct cop_op *op, json_t *event)
{
        if (op && !op->cancelled && op->to.progress)
                op->to.progress(event, op->to.userdata);
}

void cop_op_on_cancel(struct cop_op *op, void (*cancel)(void *data), void *data)
{
        if (!op)
                return;
        op->cancel = cancel;
        op->data = data;
}

bool cop_op_cancelled(const struct cop_op *op)
{
        return op && op->cancelled;
}

struct cop_engine *cop_op_engine(const struct cop_op *op)
{
        return op->engine;
}

uint64_t cop_op_serial(const struct cop_op *op)
{
        return op->serial;
}

struct cop_op *cop_op_find(struct cop_engine *e, uint64_t serial)
{
        for (struct cop_op *op = e->ops; op; op = op->next)
                if (op->serial == serial)
                        return op;
        return NULL;
}

void cop_op_cancel(struct cop_op *op)
{
        if (!op || op->cancelled)
                return;
        op->cancelled = true;
        if (op->cancel)
                op->cancel(op->data); /* may end and free op */
}
