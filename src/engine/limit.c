/* Theory of operation: the ladder (notes/jupyter.md 1.6)
 *
 *      0 s        SIGINT to the kernel's process group (or interrupt_request)
 *      +150 ms    a kernel_info_request on shell: a top-level `await` only notices the interrupt when its loop is woken
 *      +1, 2, 3 s the same again: a bare `except:` swallows one each
 *      +4 s       SIGKILL for the group when the cell's limit was the cause; the context restarts with a new generation.
 *                 A user's interrupt never kills: it stops trying, and the cell runs on.
 *
 * So a cell ends within its limit + 5 s whatever it does.  The stage that ended it stands in the reply.
 */
#include "engine/context.h"

#define POKE_DELAY (150 * USEC_PER_MSEC)
#define REPEAT_DELAY (1 * USEC_PER_SEC)
#define REPEATS 4

static void on_timer(struct cop_source *s, usec_t now, void *userdata);

static void schedule(struct cop_cell *cell, usec_t delay)
{
        if (cell->timer)
                cop_source_set_time(cell->timer, cop_usec_add(cop_now(CLOCK_MONOTONIC), delay));
}

void cop_cell_arm_limit(struct cop_cell *cell)
{
        struct cop_loop *loop = cell->context->sandbox->engine->loop;
        usec_t already = 0, now = cop_now(CLOCK_REALTIME);

        /* A cell taken over from a former daemon has used part of its time. */
        if (cell->adopted && now > cell->row->started_at)
                already = now - cell->row->started_at;
        cell->begun = cop_now(CLOCK_MONOTONIC) - MIN_OF(already, cop_now(CLOCK_MONOTONIC));
        if (cop_loop_add_timer(loop, cop_usec_add(cell->begun, cell->timeout), on_timer, cell, &cell->timer, NULL) < 0)
                cop_log_warning("no timer for cell %s: it has no limit", cell->row->id);
}

static void interrupt_once(struct cop_cell *cell)
{
        cell->interrupts++;
        cop_context_send_interrupt(cell->context);
        schedule(cell, POKE_DELAY);
}

/* Every interrupt is followed by one poke: odd steps interrupt, even ones poke. */
static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_cell *cell = userdata;
        usec_t since = now - cell->interrupt_begun;

        if (cell->cause == COP_CAUSE_NONE) {
                cop_cell_begin_interrupt(cell, COP_CAUSE_TIMEOUT);
                return;
        }
        if (since < (cell->interrupts - 1) * REPEAT_DELAY + POKE_DELAY + REPEAT_DELAY / 2) {
                if (cell->context->kernel)
                        cop_kernel_poke(cell->context->kernel, NULL);
                usec_t next = cell->interrupts * REPEAT_DELAY;
                schedule(cell, next > since ? next - since : 0);
                return;
        }
        if (cell->interrupts < REPEATS) {
                interrupt_once(cell);
                return;
        }
        if (cell->cause == COP_CAUSE_USER) {
                usec_t limit = cop_usec_add(cell->begun, cell->timeout);
                cell->cause = COP_CAUSE_NONE; /* it would not stop: its own limit still holds */
                cop_source_set_time(cell->timer, limit);
                return;
        }
        cell->killed = true;
        cop_context_kill_kernel(cell->context, "timeout");
}

void cop_cell_begin_interrupt(struct cop_cell *cell, enum cop_interrupt_cause cause)
{
        if (cell->cause == COP_CAUSE_TIMEOUT || !cell->execution)
                return;
        if (cell->cause == COP_CAUSE_USER && cause == COP_CAUSE_USER)
                return;
        cell->cause = cause;
        cell->interrupts = 0;
        cell->interrupt_begun = cop_now(CLOCK_MONOTONIC);
        interrupt_once(cell);
}

json_t *cop_cell_timeout_view(struct cop_cell *cell)
{
        if (cell->cause != COP_CAUSE_TIMEOUT)
                return NULL;
        const char *stage = cell->killed ? "kill" : cell->interrupts > 1 ? "interrupt_repeated" : "interrupt";
        return json_pack("{s:f, s:s, s:f}", "limit_seconds", (double)cell->timeout / 1e6, "stage", stage,
                         "ended_after_ms", (double)(cop_now(CLOCK_MONOTONIC) - cell->begun) / 1000);
}
