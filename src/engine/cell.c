/* Theory of operation: the life of a cell
 *
 *      queued     the row is in the store, the record is open (followers may come); it waits for its context
 *      running    sent to the kernel; outputs go to the record (all, up to its cap) and to the kept outputs (head and tail)
 *      ended      ok, error          the kernel answered
 *                 timeout            its limit was reached (stage: what ended it); the kernel may have been killed
 *                 interrupted        a user's interrupt ended it
 *                 died, oom          the kernel process ended under it
 *                 cancelled          its context was removed before its turn
 *                 lost               the daemon was restarted and the outcome could not be learnt
 *
 * One cell of a context runs at a time, in the order of arrival; contexts run side by side.  The caller may go away: the cell goes on
 * unless on_disconnect says "interrupt".  The reply is sent after the row and the closing line of the record were written, so
 * whoever has seen the reply finds the same in the store.
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "jupyter/message.h"

#define TIMEOUT_DEFAULT (30 * USEC_PER_SEC)
#define STATS_DEADLINE (2 * USEC_PER_SEC)
#define EXIT_GRACE (1500 * USEC_PER_MSEC) /* exit() ends the process within about a second */
#define SANDBOX_LOG_TEXT 4096             /* bytes of a cell's code and streams that the sandbox's log repeats */

/* -- making, freeing ------------------------------------------------------------------------------------------------------- */

static void cell_free(struct cop_cell *cell)
{
        cop_source_free(cell->timer);
        cop_record_detach(cell->record);
        cop_outputs_free(cell->outputs);
        cop_cell_row_free(cell->row);
        json_decref(cell->error);
        json_decref(cell->state_lost);
        json_decref(cell->warnings);
        json_decref(cell->user_expressions);
        free(cell);
}

static void enqueue(struct cop_context *c, struct cop_cell *cell)
{
        cell->context = c;
        cell->next = NULL;
        if (c->queue_tail)
                c->queue_tail->next = cell;
        else
                c->queue_head = cell;
        c->queue_tail = cell;
        c->queued++;
}

static struct cop_cell *dequeue(struct cop_context *c)
{
        struct cop_cell *cell = c->queue_head;

        if (!cell)
                return NULL;
        c->queue_head = cell->next;
        if (!c->queue_head)
                c->queue_tail = NULL;
        c->queued--;
        cell->next = NULL;
        return cell;
}

static void warn(struct cop_cell *cell, const char *message)
{
        if (!cell->warnings)
                cell->warnings = json_array();
        json_array_append_new(cell->warnings, json_string(message));
}

/* An error that no code raised. */
static json_t *own_error(const char *name, const char *message)
{
        return json_pack("{s:s, s:s, s:[]}", "name", name, "value", message, "traceback");
}

struct cop_cell *cop_cell_find_live(struct cop_sandbox *sb, const char *id)
{
        for (struct cop_context *c = sb->contexts; c; c = c->next) {
                if (c->running && strcmp(c->running->row->id, id) == 0)
                        return c->running;
                for (struct cop_cell *cell = c->queue_head; cell; cell = cell->next)
                        if (strcmp(cell->row->id, id) == 0)
                                return cell;
        }
        return NULL;
}

/* -- ending -------------------------------------------------------------------------------------------------------------------- */

static const char *final_status(struct cop_cell *cell)
{
        struct cop_context *c = cell->context;

        if (cell->cause == COP_CAUSE_TIMEOUT)
                return "timeout";
        if (c->end.set && c->running == cell)
                return c->end.oom ? "oom" : strcmp(c->end.reason, "exit") == 0 ? "ok" : "died";
        if (cell->cause == COP_CAUSE_USER && cell->reply != COP_EXECUTION_OK)
                return "interrupted";
        if (cell->reply == COP_EXECUTION_OK)
                return "ok";
        if (cell->reply == COP_EXECUTION_NO_REPLY && cell->adopted)
                return "lost";
        return cell->reply == COP_EXECUTION_ABORTED ? "cancelled" : "error";
}

/* A short entry in the sandbox's own log, which `coppice logs` prints. */
static void log_cell(struct cop_cell *cell, json_t *items)
{
        struct cop_sandbox *sb = cell->context->sandbox;
        const struct cop_cell_row *row = cell->row;
        char stamp[COP_RFC3339_MAX];
        _cleanup_json_ json_t *entry =
                json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "type", "cell", "at", cop_rfc3339(row->ended_at, stamp),
                          "cell_id", row->id, "context_id", row->context_id, "status", row->status, "execution_count",
                          (json_int_t)row->execution_count);
        _cleanup_json_ json_t *spread = json_object();

        if (!entry || !spread)
                return;
        size_t n = cop_utf8_cut(row->code, MIN_OF(row->code_len, (size_t)SANDBOX_LOG_TEXT));
        json_object_set_new(entry, "code", json_stringn_nocheck(row->code, n));
        cop_outputs_spread(spread, json_incref(items));
        for (int i = 0; i < 2; i++) {
                const char *name = i ? "stderr" : "stdout";
                json_t *text = json_object_get(spread, name);
                n = json_string_length(text);
                if (n > SANDBOX_LOG_TEXT)
                        n = cop_utf8_cut(json_string_value(text), SANDBOX_LOG_TEXT);
                if (n > 0)
                        json_object_set_new(entry, name, json_stringn_nocheck(json_string_value(text), n));
        }
        if (cell->error)
                json_object_set(entry, "error", cell->error);
        cop_sandbox_log(sb->engine, sb->logs_fd, sb->id, entry);
}

/* Writes the outcome: record, row (with what changes of the context, if any), log.  Frees nothing, and answers nobody: returns what
 * whoever waits is to get.  That answer comes last, when the cell is gone: it may begin anything, the end of the context too. */
static json_t *settle(struct cop_cell *cell, const char *status, const struct cop_context_row *context)
{
        struct cop_sandbox *sb = cell->context->sandbox;
        struct cop_cell_row *row = cell->row;
        struct cop_error err;

        snprintf(row->status, sizeof(row->status), "%s", status);
        row->ended_at = cop_now(CLOCK_REALTIME);
        json_t *items = cell->outputs ? cop_outputs_items(cell->outputs) : json_array();
        json_t *view = cop_cell_summary(cell);
        row->log_bytes = cop_record_bytes(cell->record);
        row->log_complete = cop_record_complete(cell->record);
        row->summary = json_dumps(view, JSON_COMPACT);
        row->outputs = json_dumps(items, JSON_COMPACT);
        if (cop_store_cell_end(sb->engine->store, row, context, &err) < 0)
                cop_log_warning("cell %s was not saved: %s", row->id, err.message);
        log_cell(cell, items);

        if (cell->record) {
                _cleanup_json_ json_t *end = json_pack("{s:s, s:O}", "type", "end", "cell", view);
                cop_record_end(TAKE_PTR(cell->record), end);
        }
        if (cell->op) {
                json_object_set_new(view, "code", json_stringn_nocheck(row->code, row->code_len));
                cop_outputs_spread(view, items);
                return view;
        }
        json_decref(items);
        json_decref(view);
        return NULL;
}

static void settle_and_free(struct cop_cell *cell, const char *status)
{
        json_t *answer = settle(cell, status, NULL);
        struct cop_op *op = TAKE_PTR(cell->op);

        cell_free(cell);
        cop_op_done(op, answer, NULL);
}

void cop_cell_finish(struct cop_cell *cell)
{
        struct cop_context *c = cell->context;

        if (c->end.set && c->end.oom && cell->cause != COP_CAUSE_TIMEOUT && !cell->error)
                cell->error = own_error("OutOfMemory", "the kernel was killed at the sandbox's memory limit");
        const char *status = final_status(cell);
        bool failed = strcmp(status, "timeout") == 0 || strcmp(status, "died") == 0 || strcmp(status, "oom") == 0;
        char before[COP_ID_MAX];
        memcpy(before, cell->before, sizeof(before));
        c->sandbox->last_activity = cop_now(CLOCK_REALTIME);
        c->exiting = cell->ask_exit && !c->end.set;
        if (!cell->silent && !cell->no_history && cell->row->execution_count > 0)
                c->row->execution_count = cell->row->execution_count;
        if (!c->end.set)
                cop_context_note_state(c, c->exiting ? "restarting" : "idle");
        json_t *answer = settle(cell, status, c->row);
        struct cop_op *op = TAKE_PTR(cell->op);
        if (cell->row->replay_of[0])
                cop_replay_cell_ended(cell);
        cop_checkpoint_cell_ended(c->sandbox, before, failed && !cell->row->replay_of[0]);
        if (cell->row->msg_id) {
                struct cop_recent_cell *recent = &c->recent[c->recent_next++ % COP_RECENT_MAX];
                snprintf(recent->msg_id, sizeof(recent->msg_id), "%s", cell->row->msg_id);
                snprintf(recent->cell_id, sizeof(recent->cell_id), "%s", cell->row->id);
                recent->started = cell->row->started_at;
        }
        c->running = NULL;
        cell_free(cell);
        if (c->end.set)
                cop_context_replace_kernel(c);
        else
                cop_context_run_next(c);
        cop_op_done(op, answer, NULL);
}

void cop_cells_abort(struct cop_context *c, const char *status, const struct cop_error *why)
{
        struct cop_cell *cell;

        while ((cell = c->running ? c->running : dequeue(c))) {
                if (c->running == cell)
                        c->running = NULL;
                cell->execution = cop_execution_abandon(cell->execution);
                if (!cell->error)
                        cell->error = own_error(cop_err_code_name(why->code), why->message);
                settle_and_free(cell, status);
        }
}

void cop_cells_detach(struct cop_context *c)
{
        struct cop_cell *cell;

        while ((cell = c->running ? c->running : dequeue(c))) {
                if (c->running == cell)
                        c->running = NULL;
                cell_free(cell);
        }
}

/* -- running ----------------------------------------------------------------------------------------------------------------------- */

static void on_output(struct cop_execution *x, const struct cop_output *o, void *userdata)
{
        struct cop_cell *cell = userdata;
        _cleanup_json_ json_t *event = cop_outputs_add(cell->outputs, o);

        if (o->kind == COP_OUTPUT_ERROR) {
                json_decref(cell->error);
                cell->error =
                        json_pack("{s:s, s:s, s:O}", "name", o->ename, "value", o->evalue, "traceback", o->traceback);
        }
        if (event)
                cop_record_add(cell->record, event);
}

static void on_input_request(struct cop_execution *x, const char *prompt, bool password, void *userdata)
{
        struct cop_cell *cell = userdata;
        _cleanup_json_ json_t *event =
                json_pack("{s:s, s:s, s:b}", "type", "input_request", "prompt", prompt, "password", password);

        cell->input_open = true;
        if (event)
                cop_record_add(cell->record, event);
}

static void on_stats(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_context *c = userdata;

        c->call = NULL;
        if (reply)
                cop_sandbox_note_memory(c->sandbox, reply);
        if (c->running)
                cop_cell_finish(c->running);
}

static void on_exit_late(struct cop_source *s, usec_t now, void *userdata)
{
        cop_context_kill_kernel(userdata, "exit");
}

static void on_done(struct cop_execution *x, const struct cop_execution_result *result, void *userdata)
{
        struct cop_cell *cell = userdata;
        struct cop_context *c = cell->context;

        cell->execution = NULL;
        cell->replied = true;
        cell->timer = cop_source_free(cell->timer);
        cell->reply = result->status;
        cell->row->execution_count = result->execution_count;
        cell->user_expressions = json_incref(result->user_expressions);
        cell->ask_exit = result->ask_exit;
        if (result->status == COP_EXECUTION_ERROR && !cell->error)
                cell->error = json_pack("{s:s, s:s, s:O}", "name", result->ename, "value", result->evalue, "traceback",
                                        result->traceback);
        if (result->status == COP_EXECUTION_OK && cell->error)
                warn(cell, "an error was shown although the cell went through (a failing representation?)");
        if (result->status == COP_EXECUTION_OK)
                cell->error = (json_decref(cell->error), NULL);
        if (result->output_incomplete && !c->end.set)
                warn(cell, "some output may be missing: the kernel did not say that it was finished");
        if (result->status == COP_EXECUTION_NO_REPLY && !c->end.set && cell->cause == COP_CAUSE_NONE &&
            !cell->adopted && !cell->error)
                cell->error = own_error("NoReply", "the kernel ended the cell without a reply; the session goes on");
        if (cell->ask_exit && !c->end.set)
                cop_loop_add_timer(c->sandbox->engine->loop, cop_usec_add(cop_now(CLOCK_MONOTONIC), EXIT_GRACE),
                                   on_exit_late, c, &c->exit_timer, NULL);
        /* After an error ask how much memory was used: a child, or an allocation, may have hit the limit. */
        if (result->status == COP_EXECUTION_ERROR && !c->end.set && c->sandbox->keeper && !c->call) {
                struct cop_msg m;
                cop_msg_init(&m, COP_WIRE_STATS, 0);
                c->call = cop_keeper_call(c->sandbox->keeper, &m, STATS_DEADLINE, on_stats, c);
                return;
        }
        cop_cell_finish(cell);
}

static const struct cop_execution_events execution_events = {
        .output = on_output,
        .input_request = on_input_request,
        .done = on_done,
};

void cop_cell_resume(struct cop_cell *cell)
{
        struct cop_error err;

        if (!cell->row->msg_id || cop_kernel_adopt_execution(cell->context->kernel, cell->row->msg_id,
                                                             &execution_events, cell, &cell->execution, &err) < 0) {
                cell->reply = COP_EXECUTION_NO_REPLY;
                cop_cell_finish(cell);
                return;
        }
        cop_cell_arm_limit(cell);
}

/* Says in the row that the cell runs, under which id its request will go out.  The row is written before the request: a daemon that
 * dies in between finds a running cell of which the kernel knows nothing, and says so; it never runs a cell twice. */
static void mark_started(struct cop_context *c, struct cop_cell *cell)
{
        struct cop_cell_row *row = cell->row;
        char id[COP_MESSAGE_ID_MAX];

        snprintf(row->status, sizeof(row->status), "running");
        row->started_at = cop_now(CLOCK_REALTIME);
        row->generation = c->row->generation;
        cop_kernel_new_id(c->kernel, id, sizeof(id));
        row->msg_id = strdup(id);
}

static void record_start(struct cop_cell *cell)
{
        const struct cop_cell_row *row = cell->row;
        _cleanup_json_ json_t *event =
                json_pack("{s:s, s:s, s:s, s:s, s:I}", "type", "start", "cell_id", row->id, "sandbox_id",
                          row->sandbox_id, "context_id", row->context_id, "generation", (json_int_t)row->generation);

        if (event && cell->state_lost)
                json_object_set(event, cop_loss_key(cell->state_lost), cell->state_lost);
        if (event)
                cop_record_add(cell->record, event);
}

/* Sends a cell that is written as running. */
static void launch(struct cop_context *c, struct cop_cell *cell)
{
        struct cop_execute_options options = {
                .id = cell->row->msg_id,
                .silent = cell->silent,
                .no_history = cell->no_history,
                .allow_stdin = cell->stdin_open,
        };
        struct cop_error err;

        c->running = cell;
        cop_checkpoint_cell_begins(c->sandbox, cell->before);
        cell->outputs = cop_outputs_new(cell->output_max, cop_now(CLOCK_REALTIME));
        int r = cell->outputs && cell->row->msg_id
                        ? cop_kernel_execute(c->kernel, cell->row->code, cell->row->code_len, &options,
                                             &execution_events, cell, &cell->execution, &err)
                        : cop_error_errno(&err, ENOMEM, "cell %s", cell->row->id);
        if (r < 0) {
                c->running = NULL;
                cell->error = own_error(cop_err_code_name(err.code), err.message);
                json_t *answer = settle(cell, "error", NULL);
                struct cop_op *op = TAKE_PTR(cell->op);
                if (cell->row->replay_of[0])
                        cop_replay_cell_ended(cell);
                cell_free(cell);
                cop_op_done(op, answer, NULL);
                return;
        }
        cop_context_note_state(c, "busy");
        cell->oom_kills_before = c->sandbox->oom_kills;
        if (!cell->row->replay_of[0]) {
                cell->state_lost = TAKE_PTR(c->state_lost);
                c->row->state_lost = (free(c->row->state_lost), NULL);
        }
        record_start(cell);
        cop_cell_arm_limit(cell);
}

/* What is run again needs no checkpoint before it: it makes what there was. */
static bool may_run(struct cop_context *c)
{
        return !c->running && !c->prepare && c->kernel && cop_kernel_is_ready(c->kernel) && !c->end.set &&
               !c->removing && strcmp(c->row->state, "idle") == 0 &&
               !(c->replay ? c->sandbox->held : cop_checkpoint_first(c->sandbox));
}

void cop_context_run_next(struct cop_context *c)
{
        while ((c->replay || c->queue_head) && may_run(c)) {
                struct cop_cell *cell = c->replay ? cop_replay_next(c) : dequeue(c);
                struct cop_error err;
                if (!cell)
                        continue;
                mark_started(c, cell);
                if (cop_store_cell_start(c->sandbox->engine->store, cell->row, &err) < 0)
                        cop_log_warning("cell %s was not saved: %s", cell->row->id, err.message);
                launch(c, cell);
        }
}

/* -- late output --------------------------------------------------------------------------------------------------------------------- */

/* Output of a thread or task after its cell: kept with that cell, labelled, and in its record. */
void cop_context_late_output(struct cop_context *c, const char *msg_id, const struct cop_output *o)
{
        struct cop_sandbox *sb = c->sandbox;
        struct cop_recent_cell *recent = NULL;

        if (!msg_id && c->recent_next > 0)
                recent = &c->recent[(c->recent_next - 1) % COP_RECENT_MAX];
        for (unsigned i = 0; msg_id && i < COP_RECENT_MAX; i++)
                if (strcmp(c->recent[i].msg_id, msg_id) == 0)
                        recent = &c->recent[i];
        if (!recent || !recent->cell_id[0])
                return;
        _cleanup_json_ json_t *event = cop_output_event(o, recent->started);
        if (!event)
                return;
        json_object_set_new(event, "late", json_true());
        cop_record_add_late(sb->engine, sb->logs_fd, recent->cell_id, event);

        _cleanup_(cop_cell_row_freep) struct cop_cell_row *row = NULL;
        if (cop_store_cell_get(sb->engine->store, sb->id, recent->cell_id, &row, NULL) < 0 || !row->outputs ||
            strlen(row->outputs) > COP_OUTPUT_RICH_BYTES)
                return;
        _cleanup_json_ json_t *items = json_loads(row->outputs, JSON_ALLOW_NUL, NULL);
        size_t late = 0, i;
        json_t *item;
        json_array_foreach (items, i, item)
                late += json_is_true(json_object_get(item, "late"));
        if (!json_is_array(items) || late >= COP_OUTPUT_RICH_ITEMS)
                return;
        json_array_append(items, event);
        free(row->outputs);
        row->outputs = json_dumps(items, JSON_COMPACT);
        if (row->outputs)
                cop_store_cell_end(sb->engine->store, row, NULL, NULL);
}

/* -- operations ------------------------------------------------------------------------------------------------------------------------ */

static int check_params(const struct cop_cell_params *p, struct cop_error *err)
{
        if (p->code_len > COP_CELL_CODE_MAX)
                return cop_error_set(err, EFBIG, COP_ERR_payload_too_large,
                                     "field \"code\": at most %u MiB; write a file and import it",
                                     COP_CELL_CODE_MAX >> 20);
        if (memchr(p->code, '\0', p->code_len))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"code\": contains a NUL character, which Python refuses too");
        if (!cop_utf8_valid(p->code, p->code_len))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"code\": is not UTF-8 (a lone surrogate?)");
        if (p->timeout > COP_CELL_TIMEOUT_MAX)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"timeout\": at most 86400 seconds");
        if (p->output_max && (p->output_max < COP_OUTPUT_MAX_LEAST || p->output_max > COP_OUTPUT_MAX_MOST))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"output_max\": expected %u to %u bytes",
                                     COP_OUTPUT_MAX_LEAST, COP_OUTPUT_MAX_MOST);
        return 0;
}

static struct cop_cell *cell_new(const struct cop_cell_params *p)
{
        struct cop_cell *cell = calloc(1, sizeof(*cell));
        struct cop_cell_row *row = calloc(1, sizeof(*row));

        if (!cell || !row || !(row->code = malloc(p->code_len + 1))) {
                free(row);
                free(cell);
                return NULL;
        }
        memcpy(row->code, p->code, p->code_len);
        row->code[p->code_len] = '\0';
        row->code_len = p->code_len;
        row->execution_count = -1;
        cop_id_new(row->id, "cell_", 10);
        snprintf(row->status, sizeof(row->status), "queued");
        cell->row = row;
        cell->timeout = p->timeout ? p->timeout : TIMEOUT_DEFAULT;
        cell->output_max = p->output_max ? p->output_max : COP_OUTPUT_MAX_DEFAULT;
        cell->stdin_open = p->stdin_open;
        cell->silent = p->silent;
        cell->no_history = p->no_history;
        cell->taken = p->taken;
        cell->interrupt_on_disconnect = p->interrupt_on_disconnect;
        row->pure = p->pure;
        return cell;
}

static void save_options(struct cop_cell *cell)
{
        _cleanup_json_ json_t *options = json_pack(
                "{s:I, s:I, s:b, s:b, s:b, s:b, s:b}", "timeout_usec", (json_int_t)cell->timeout, "output_max",
                (json_int_t)cell->output_max, "stdin_open", cell->stdin_open, "silent", cell->silent, "no_history",
                cell->no_history, "taken", cell->taken, "interrupt_on_disconnect", cell->interrupt_on_disconnect);

        cell->row->options = options ? json_dumps(options, JSON_COMPACT) : NULL;
}

static void load_options(struct cop_cell *cell)
{
        _cleanup_json_ json_t *options = cell->row->options ? json_loads(cell->row->options, 0, NULL) : NULL;

        cell->timeout = (usec_t)json_integer_value(json_object_get(options, "timeout_usec"));
        cell->output_max = (size_t)json_integer_value(json_object_get(options, "output_max"));
        cell->stdin_open = json_is_true(json_object_get(options, "stdin_open"));
        cell->silent = json_is_true(json_object_get(options, "silent"));
        cell->no_history = json_is_true(json_object_get(options, "no_history"));
        cell->interrupt_on_disconnect = json_is_true(json_object_get(options, "interrupt_on_disconnect"));
        if (cell->timeout == 0)
                cell->timeout = TIMEOUT_DEFAULT;
        if (cell->output_max < COP_OUTPUT_MAX_LEAST || cell->output_max > COP_OUTPUT_MAX_MOST)
                cell->output_max = COP_OUTPUT_MAX_DEFAULT;
}

/* A cell on its way into its context. */
struct pending_cell {
        struct cop_engine *engine;
        struct cop_op *op;
        struct cop_cell *cell;
        char *context;
        bool stream;
};

static void pending_free(struct pending_cell *p)
{
        if (p->cell)
                cell_free(p->cell);
        free(p->context);
        free(p);
}

/* The caller of a cell that is under way goes away. */
static void on_caller_gone(void *data)
{
        struct cop_cell *cell = data;

        cop_op_done(TAKE_PTR(cell->op), NULL, NULL);
        if (cell->interrupt_on_disconnect && cell->execution)
                cop_cell_begin_interrupt(cell, COP_CAUSE_USER);
}

/* Into the store and with a record, in a context. */
static int register_cell(struct cop_cell *cell, struct cop_context *c, struct cop_error *err)
{
        struct cop_sandbox *sb = c->sandbox;
        struct cop_cell_row *row = cell->row;

        snprintf(row->sandbox_id, sizeof(row->sandbox_id), "%s", sb->id);
        snprintf(row->context_id, sizeof(row->context_id), "%s", c->row->id);
        row->generation = c->row->generation;
        save_options(cell);
        if (asprintf(&row->record, "%s.ndjson", row->id) < 0)
                return cop_error_errno(err, ENOMEM, "cell");
        int r = cop_record_begin(sb->engine, sb->logs_fd, row->id, COP_RECORD_CELL_MAX, &cell->record, err);
        return r < 0 ? r : cop_store_cell_insert(sb->engine->store, row, err);
}

int cop_cell_repeat(struct cop_context *c, const struct cop_cell_row *of, struct cop_cell **ret, struct cop_error *err)
{
        const struct cop_cell_params p = {.code = of->code, .code_len = of->code_len, .pure = of->pure};
        struct cop_cell *cell = cell_new(&p);

        if (!cell || !(cell->row->options = of->options ? strdup(of->options) : strdup("{}"))) {
                if (cell)
                        cell_free(cell);
                return cop_error_errno(err, ENOMEM, "cell %s", of->id);
        }
        load_options(cell);
        cell->stdin_open = false; /* nobody is there to answer */
        cell->row->options = (free(cell->row->options), NULL);
        cell->row->created_at = cop_now(CLOCK_REALTIME);
        memcpy(cell->row->replay_of, of->id, sizeof(cell->row->replay_of));
        int r = register_cell(cell, c, err);
        if (r < 0) {
                cell_free(cell);
                return r;
        }
        cell->context = c;
        *ret = cell;
        return 0;
}

static int submit(struct pending_cell *p, struct cop_sandbox *sb, struct cop_error *err)
{
        struct cop_cell *cell = p->cell;
        struct cop_context *c;

        int r = cop_context_find(sb, p->context ? p->context : "default", &c, err);
        if (r < 0)
                return r;
        if (c->queued >= COP_QUEUE_MAX)
                return cop_error_set(err, EAGAIN, COP_ERR_too_many,
                                     "context %s has %u cells waiting, the most there can be; wait for them",
                                     c->row->id, c->queued);
        cell->row->created_at = cop_now(CLOCK_REALTIME);
        /* One that need not wait is written once: as running. */
        bool at_once = !c->queue_head && !c->replay && may_run(c);
        if (at_once)
                mark_started(c, cell);
        r = register_cell(cell, c, err);
        if (r < 0)
                return r;
        p->cell = NULL;
        cell->context = c;
        if (!at_once)
                enqueue(c, cell);
        if (p->stream) {
                cop_op_done(p->op, cop_cell_view(cell), NULL);
        } else {
                cell->op = p->op;
                cop_op_on_cancel(p->op, on_caller_gone, cell);
        }
        if (at_once)
                launch(c, cell);
        else if (strcmp(c->row->state, "dead") == 0)
                cop_context_start_kernel(c);
        else
                cop_context_run_next(c);
        return 0;
}

static void on_sandbox_ready(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        struct pending_cell *p = userdata;
        struct cop_error error;

        if (err)
                cop_op_done(p->op, NULL, err);
        else if (submit(p, sb, &error) < 0)
                cop_op_done(p->op, NULL, &error);
        pending_free(p);
}

void cop_cell_run(struct cop_engine *e, const char *ref, const struct cop_cell_params *params, struct cop_op_to to,
                  struct cop_op **ret_op)
{
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (check_params(params, &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        struct pending_cell *p = calloc(1, sizeof(*p));
        struct cop_cell *cell = p ? cell_new(params) : NULL;
        if (!cell) {
                free(p);
                cop_error_errno(&err, ENOMEM, "cell");
                cop_answer(to, NULL, &err);
                return;
        }
        *p = (struct pending_cell){.engine = e,
                                   .cell = cell,
                                   .context = params->context ? strdup(params->context) : NULL,
                                   .stream = params->stream || params->detach};
        p->op = cop_op_new(e, to, NULL, NULL);
        if (!p->op) {
                pending_free(p);
                return;
        }
        cop_op_when_running(p->op, e, ref, on_sandbox_ready, p, ret_op);
}

void cop_cell_get(struct cop_engine *e, const char *ref, const char *id, struct cop_op_to to)
{
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *sandbox = NULL;
        _cleanup_(cop_cell_row_freep) struct cop_cell_row *row = NULL;
        struct cop_sandbox *sb;
        struct cop_error err;

        if (cop_sandbox_find(e, ref, &sb, NULL) == 0) {
                struct cop_cell *cell = cop_cell_find_live(sb, id);
                if (cell) {
                        cop_answer(to, cop_cell_view(cell), NULL);
                        return;
                }
        }
        if (cop_store_sandbox_get(e->store, ref, &sandbox, &err) < 0 ||
            cop_store_cell_get(e->store, sandbox->id, id, &row, &err) < 0)
                cop_answer(to, NULL, &err);
        else
                cop_answer(to, cop_cell_row_view(row, true), NULL);
}

void cop_cell_list(struct cop_engine *e, const char *ref, json_t *filter, struct cop_op_to to)
{
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *sandbox = NULL;
        _cleanup_(cop_cell_rows_freep) struct cop_cell_row **rows = NULL;
        _cleanup_(cop_cell_row_freep) struct cop_cell_row *before = NULL;
        const char *before_id = json_string_value(json_object_get(filter, "before"));
        bool outputs = json_is_true(json_object_get(filter, "outputs"));
        struct cop_error err;

        if (cop_store_sandbox_get(e->store, ref, &sandbox, &err) < 0 ||
            (before_id && cop_store_cell_get(e->store, sandbox->id, before_id, &before, &err) < 0)) {
                cop_answer(to, NULL, &err);
                return;
        }
        struct cop_cell_filter f = {
                .sandbox_id = sandbox->id,
                .context_id = json_string_value(json_object_get(filter, "context")),
                .before_seq = before ? before->seq : 0,
                .limit = (unsigned)json_integer_value(json_object_get(filter, "limit")),
                .code = true,
                .outputs = outputs,
        };
        if (cop_store_cell_list(e->store, &f, &rows, &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        json_t *list = json_array();
        for (struct cop_cell_row **row = rows; *row; row++)
                json_array_append_new(list, cop_cell_row_view(*row, outputs));
        cop_answer(to, json_pack("{s:o}", "cells", list), NULL);
}

/* The live cell of this id, or the reason why there is none. */
static struct cop_cell *live_cell(struct cop_engine *e, const char *ref, const char *id, struct cop_error *err)
{
        _cleanup_(cop_cell_row_freep) struct cop_cell_row *row = NULL;
        struct cop_sandbox *sb;

        if (cop_sandbox_find(e, ref, &sb, err) < 0)
                return NULL;
        struct cop_cell *cell = cop_cell_find_live(sb, id);
        if (!cell && cop_store_cell_get(e->store, sb->id, id, &row, err) == 0)
                cop_error_set(err, EALREADY, COP_ERR_invalid_state, "cell %s has ended already (%s)", id, row->status);
        return cell;
}

void cop_cell_interrupt(struct cop_engine *e, const char *ref, const char *id, struct cop_op_to to)
{
        struct cop_error err;
        struct cop_cell *cell = live_cell(e, ref, id, &err);

        if (!cell) {
                cop_answer(to, NULL, &err);
                return;
        }
        if (cell->context->running == cell) {
                cop_cell_begin_interrupt(cell, COP_CAUSE_USER);
                cop_answer(to, cop_cell_view(cell), NULL);
                return;
        }
        /* Still waiting: it is taken out of the queue. */
        struct cop_context *c = cell->context;
        struct cop_cell **at = &c->queue_head, *previous = NULL;
        for (; *at != cell; at = &(*at)->next)
                previous = *at;
        *at = cell->next;
        if (c->queue_tail == cell)
                c->queue_tail = previous;
        c->queued--;
        json_t *answer = settle(cell, "cancelled", NULL), *view = cop_cell_row_view(cell->row, true);
        struct cop_op *op = TAKE_PTR(cell->op);
        cell_free(cell);
        cop_op_done(op, answer, NULL);
        cop_answer(to, view, NULL);
}

void cop_cell_input(struct cop_engine *e, const char *ref, const char *id, const char *value, struct cop_op_to to)
{
        struct cop_error err;
        struct cop_cell *cell = live_cell(e, ref, id, &err);

        if (!cell) {
                cop_answer(to, NULL, &err);
                return;
        }
        if (!cell->execution) {
                cop_error_set(&err, EINVAL, COP_ERR_invalid_state, "cell %s is not running yet", id);
                cop_answer(to, NULL, &err);
                return;
        }
        if (cop_execution_input(cell->execution, value, strlen(value), &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        cell->input_open = false;
        cop_answer(to, json_pack("{s:s, s:b}", "id", id, "accepted", 1), NULL);
}

void cop_cell_disconnected(struct cop_engine *e, const char *ref, const char *id)
{
        struct cop_cell *cell = live_cell(e, ref, id, NULL);

        if (cell && cell->interrupt_on_disconnect && cell->context->running == cell)
                cop_cell_begin_interrupt(cell, COP_CAUSE_USER);
}

/* -- adoption --------------------------------------------------------------------------------------------------------------------------- */

static struct cop_cell *adopted_cell(struct cop_context *c, struct cop_cell_row *row /* stolen */)
{
        struct cop_cell *cell = calloc(1, sizeof(*cell));

        if (!cell) {
                cop_cell_row_free(row);
                return NULL;
        }
        cell->row = row;
        cell->context = c;
        load_options(cell);
        cop_record_begin(c->sandbox->engine, c->sandbox->logs_fd, row->id, COP_RECORD_CELL_MAX, &cell->record, NULL);
        return cell;
}

/* Cells that were waiting wait again, in their order; the one that ran is followed to its end once the kernel is connected. */
void cop_cells_adopt(struct cop_context *c)
{
        _cleanup_(cop_cell_rows_freep) struct cop_cell_row **rows = NULL;
        struct cop_cell_filter f = {
                .sandbox_id = c->sandbox->id,
                .context_id = c->row->id,
                .open = true,
                .oldest_first = true,
                .limit = COP_QUEUE_MAX + 1,
                .code = true,
        };
        struct cop_error err;

        if (cop_store_cell_list(c->sandbox->engine->store, &f, &rows, &err) < 0) {
                cop_log_warning("cells of %s/%s cannot be read: %s", c->sandbox->id, c->row->id, err.message);
                return;
        }
        for (size_t i = 0; rows[i]; i++) {
                struct cop_cell_row *row = calloc(1, sizeof(*row));
                if (!row)
                        break;
                *row = *rows[i];
                memset(rows[i], 0, sizeof(*row)); /* its strings are the new row's now */
                struct cop_cell *cell = adopted_cell(c, row);
                if (!cell)
                        break;
                if (strcmp(row->status, "running") != 0) {
                        enqueue(c, cell);
                        continue;
                }
                cell->adopted = true;
                cell->outputs = cop_outputs_new(cell->output_max, row->started_at);
                warn(cell,
                     "the daemon was restarted while this cell ran; output of the time in between may be missing");
                c->running = cell;
        }
}
