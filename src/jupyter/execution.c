/* Theory of operation
 *
 * An execution ends when both halves are there: the execute_reply on shell and `status: idle` on iopub.  Their order is
 * not defined, and either may be missing (notes/jupyter.md 1.4):
 *
 *      reply + idle            done, after `settle` when the kernel has a stock OutStream
 *      reply, no idle          done after idle_timeout, output_incomplete
 *      idle, no reply          done after reply_timeout, NO_REPLY: the kernel is usable
 *      the kernel died/failed  done with what is there
 *
 * There is no time limit here: interrupting is the engine's part.  While the kernel is inside the user's code neither half
 * comes, and nothing ends.
 *
 * A greeting (cop_execute_options.greets) ends by its reply alone: its idle may be missed, because the subscription to iopub may
 * not be known to the kernel yet.
 *
 * An adopted execution may have ended while nobody listened.  Kernels answer shell in order, so a kernel_info_request sent
 * after the adoption is answered only when the cell is over: that answer stands in for a half that was missed.
 */
#include "kernel-internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/utf8.h"

#define DEFAULT_IDLE_TIMEOUT (4 * USEC_PER_SEC)
#define DEFAULT_REPLY_TIMEOUT (1500 * USEC_PER_MSEC)
/* What was published before the probe's answer is at most this far behind it. */
#define PROBE_SETTLE (100 * USEC_PER_MSEC)

void cop_execution_free(struct cop_execution *x)
{
        if (!x)
                return;
        cop_source_free(x->timer);
        json_decref(x->reply);
        json_decref(x->input_header);
        free(x);
}

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_execution *x = userdata;
        struct cop_kernel *k = x->kernel;

        cop_kernel_enter(k);
        cop_execution_finish(x);
        (void)!cop_kernel_leave(k);
}

static int execution_new(struct cop_kernel *k, bool greets, const struct cop_execution_events *events, void *userdata,
                         struct cop_execution **ret, struct cop_error *err)
{
        if (k->freed || k->state != (greets ? KERNEL_CONNECTING : KERNEL_READY))
                return cop_error_set(err, ENOTCONN, COP_ERR_invalid_state, "the kernel is not ready");
        if (k->running)
                return cop_error_set(err, EBUSY, COP_ERR_invalid_state, "the kernel runs another cell");
        struct cop_execution *x = calloc(1, sizeof(*x));
        if (!x)
                return cop_error_errno(err, ENOMEM, "execution");
        x->kernel = k;
        x->greets = greets;
        x->events = *events;
        x->userdata = userdata;
        x->idle_timeout = DEFAULT_IDLE_TIMEOUT;
        x->reply_timeout = DEFAULT_REPLY_TIMEOUT;
        x->started = cop_now(CLOCK_REALTIME);
        x->started_monotonic = cop_now(CLOCK_MONOTONIC);
        int r = cop_loop_add_timer(k->loop, USEC_INFINITY, on_timer, x, &x->timer, err);
        if (r < 0) {
                cop_execution_free(x);
                return r;
        }
        *ret = x;
        return 0;
}

/* Sends the request whose answer ends the execution; on failure the execution is freed. */
static int begin(struct cop_execution *x, const char *type, const char *id, json_t *content,
                 struct cop_execution **ret_execution, struct cop_error *err)
{
        int r = cop_kernel_send(x->kernel, COP_CHANNEL_SHELL, type, id, NULL, content, err);

        if (r < 0) {
                cop_execution_free(x);
                return r;
        }
        x->kernel->running = x;
        if (ret_execution)
                *ret_execution = x;
        return 0;
}

static json_t *execute_content(const char *code, size_t len, const struct cop_execute_options *o)
{
        json_t *text = json_stringn(code, len);
        json_t *expressions = o->user_expressions ? json_incref(o->user_expressions) : json_object();

        return json_pack("{so sb sb so sb sb}", "code", text, "silent", o->silent, "store_history", !o->no_history,
                         "user_expressions", expressions, "allow_stdin", o->allow_stdin, "stop_on_error",
                         o->stop_on_error);
}

int cop_kernel_execute(struct cop_kernel *k, const char *code, size_t len, const struct cop_execute_options *options,
                       const struct cop_execution_events *events, void *userdata, struct cop_execution **ret_execution,
                       struct cop_error *err)
{
        static const struct cop_execute_options defaults = {0};
        struct cop_execution *x;

        if (!options)
                options = &defaults;
        if (!cop_utf8_valid(code, len))
                return cop_error_set(err, EILSEQ, COP_ERR_bad_request, "the code is not UTF-8");
        int r = execution_new(k, options->greets, events, userdata, &x, err);
        if (r < 0)
                return r;
        x->settle = options->settle;
        if (options->idle_timeout)
                x->idle_timeout = options->idle_timeout;
        if (options->reply_timeout)
                x->reply_timeout = options->reply_timeout;
        if (options->id)
                snprintf(x->id, sizeof(x->id), "%s", options->id);
        else
                cop_kernel_new_id(k, x->id, sizeof(x->id));
        _cleanup_json_ json_t *content = execute_content(code, len, options);
        if (options->greets && content) {
                k->greeting = TAKE_PTR(content);
                k->running = x;
                if (ret_execution)
                        *ret_execution = x;
                return 0;
        }
        return begin(x, "execute_request", x->id, content, ret_execution, err);
}

int cop_kernel_adopt_execution(struct cop_kernel *k, const char *msg_id, const struct cop_execution_events *events,
                               void *userdata, struct cop_execution **ret_execution, struct cop_error *err)
{
        _cleanup_json_ json_t *content = json_object();
        struct cop_execution *x;

        if (strlen(msg_id) >= sizeof(x->id))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "message id is too long");
        int r = execution_new(k, false, events, userdata, &x, err);
        if (r < 0)
                return r;
        memcpy(x->id, msg_id, strlen(msg_id) + 1);
        cop_kernel_new_id(k, x->probe_id, sizeof(x->probe_id));
        return begin(x, "kernel_info_request", x->probe_id, content, ret_execution, err);
}

const char *cop_execution_id(const struct cop_execution *x)
{
        return x->id;
}

void *cop_execution_userdata(const struct cop_execution *x)
{
        return x->userdata;
}

struct cop_kernel *cop_execution_kernel(const struct cop_execution *x)
{
        return x->kernel;
}

struct cop_execution *cop_execution_abandon(struct cop_execution *x)
{
        if (!x || x->detached)
                return NULL;
        x->kernel->running = NULL;
        cop_execution_free(x);
        return NULL;
}

/* -- input ----------------------------------------------------------------------------------------------------------- */

int cop_execution_input(struct cop_execution *x, const char *value, size_t len, struct cop_error *err)
{
        if (x->detached || !x->input_header)
                return cop_error_set(err, ENOENT, COP_ERR_invalid_state, "the cell does not wait for input");
        _cleanup_json_ json_t *text = cop_json_foreign_string(value, len);
        _cleanup_json_ json_t *content = text ? json_pack("{sO}", "value", text) : NULL;
        int r = cop_kernel_send(x->kernel, COP_CHANNEL_STDIN, "input_reply", NULL, x->input_header, content, err);
        if (r < 0)
                return r;
        json_decref(TAKE_PTR(x->input_header));
        return 0;
}

void cop_execution_on_input_request(struct cop_execution *x, const struct cop_message *m)
{
        _cleanup_json_ json_t *content = NULL;

        if (cop_message_content(m, &content, NULL, NULL) < 0)
                return;
        json_decref(x->input_header);
        x->input_header = json_incref(m->header);
        const char *prompt = json_string_value(json_object_get(content, "prompt"));
        if (x->events.input_request)
                x->events.input_request(x, prompt ? prompt : "", json_is_true(json_object_get(content, "password")),
                                        x->userdata);
}

/* -- output and end ---------------------------------------------------------------------------------------------------- */

void cop_execution_on_output(struct cop_execution *x, const struct cop_output *o)
{
        if (x->events.output)
                x->events.output(x, o, x->userdata);
}

/* A pager page (obj?) travels in the reply; for a caller without a pager it is one more output. */
static bool payload_has(json_t *reply, const char *source, json_t **ret)
{
        json_t *item;
        size_t i;

        json_array_foreach (json_object_get(reply, "payload"), i, item) {
                const char *s = json_string_value(json_object_get(item, "source"));
                if (s && strcmp(s, source) == 0) {
                        *ret = item;
                        return true;
                }
        }
        return false;
}

static void deliver_page(struct cop_execution *x)
{
        json_t *item, *data;

        if (!payload_has(x->reply, "page", &item) || !json_is_object(data = json_object_get(item, "data")))
                return;
        _cleanup_json_ json_t *metadata = json_object();
        struct cop_output o = {
                .kind = COP_OUTPUT_DISPLAY,
                .time = cop_now(CLOCK_REALTIME),
                .data = data,
                .metadata = metadata,
                .execution_count = -1,
        };
        if (metadata)
                cop_execution_on_output(x, &o);
}

static void fill_result(const struct cop_execution *x, struct cop_execution_result *r, json_t **ret_traceback)
{
        json_t *item, *count = json_object_get(x->reply, "execution_count");
        json_t *expressions = json_object_get(x->reply, "user_expressions");
        const char *status = json_string_value(json_object_get(x->reply, "status"));

        *r = (struct cop_execution_result){
                .status = COP_EXECUTION_NO_REPLY,
                .execution_count = json_is_integer(count) ? json_integer_value(count) : -1,
                .user_expressions = json_is_object(expressions) ? expressions : NULL,
                .ask_exit = payload_has(x->reply, "ask_exit", &item),
                .output_incomplete = x->incomplete || !x->got_idle,
                .started = x->started,
                .ended = x->ended ? x->ended : cop_now(CLOCK_REALTIME),
        };
        r->duration = (x->ended ? x->ended_monotonic : cop_now(CLOCK_MONOTONIC)) - x->started_monotonic;
        if (!x->reply)
                return;
        if (status && strcmp(status, "ok") == 0) {
                r->status = COP_EXECUTION_OK;
        } else if (status && strncmp(status, "abort", 5) == 0) {
                r->status = COP_EXECUTION_ABORTED;
        } else {
                const char *ename = json_string_value(json_object_get(x->reply, "ename"));
                const char *evalue = json_string_value(json_object_get(x->reply, "evalue"));
                r->status = COP_EXECUTION_ERROR;
                r->ename = ename ? ename : "";
                r->evalue = evalue ? evalue : "";
                *ret_traceback = cop_output_traceback(json_object_get(x->reply, "traceback"));
                r->traceback = *ret_traceback;
        }
}

void cop_execution_finish(struct cop_execution *x)
{
        struct cop_execution_result result;
        _cleanup_json_ json_t *traceback = NULL;

        if (x->detached)
                return;
        /* No longer in flight while done() runs, so that it may start the next one or free the kernel. */
        x->detached = true;
        x->kernel->running = NULL;
        x->timer = cop_source_free(x->timer);
        if (x->probe_id[0] && !x->got_reply)
                cop_kernel_reopen_shell(x->kernel);
        fill_result(x, &result, &traceback);
        x->events.done(x, &result, x->userdata);
        cop_execution_free(x);
}

static void half_arrived(struct cop_execution *x)
{
        usec_t now = cop_now(CLOCK_MONOTONIC);

        x->ended = cop_now(CLOCK_REALTIME);
        x->ended_monotonic = now;
        if (x->greets && x->got_reply)
                cop_execution_finish(x);
        else if (!x->got_reply || !x->got_idle)
                cop_source_set_time(x->timer, cop_usec_add(now, x->got_reply ? x->idle_timeout : x->reply_timeout));
        else if (x->settle)
                cop_source_set_time(x->timer, cop_usec_add(now, x->settle));
        else
                cop_execution_finish(x);
}

void cop_execution_on_idle(struct cop_execution *x)
{
        if (x->got_idle)
                return;
        x->got_idle = true;
        half_arrived(x);
}

void cop_execution_on_reply(struct cop_execution *x, const struct cop_message *m)
{
        struct cop_kernel *k = x->kernel;

        if (x->got_reply)
                return;
        if (cop_message_content(m, &x->reply, NULL, NULL) < 0) {
                k->stats.malformed++;
                x->incomplete = true;
                return;
        }
        x->got_reply = true;
        deliver_page(x);
        /* The page's callback may have abandoned this execution or freed the kernel. */
        if (!k->freed && k->running == x)
                half_arrived(x);
}

void cop_execution_on_probe(struct cop_execution *x, const char *parent_id)
{
        if (!x->probe_id[0] || strcmp(x->probe_id, parent_id) != 0)
                return;
        if (x->got_reply && x->got_idle)
                return;
        x->incomplete = true;
        cop_source_set_time(x->timer, cop_now(CLOCK_MONOTONIC) + PROBE_SETTLE);
}
