#include "engine/context.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/parse.h"

#define SHUTDOWN_GRACE (1 * USEC_PER_SEC) /* between shutdown_request and SIGKILL (notes/jupyter.md 1.7) */

/* -- state ------------------------------------------------------------------------------------------------------------------ */

void cop_context_save(struct cop_context *c)
{
        struct cop_error err;

        if (cop_store_context_update(c->sandbox->engine->store, c->row, &err) < 0)
                cop_log_warning("context %s/%s was not saved: %s", c->sandbox->id, c->row->id, err.message);
}

void cop_context_note_state(struct cop_context *c, const char *state)
{
        snprintf(c->row->state, sizeof(c->row->state), "%s", state);
        c->row->last_activity_at = cop_now(CLOCK_REALTIME);
}

void cop_context_set_state(struct cop_context *c, const char *state)
{
        struct cop_error err;

        cop_context_note_state(c, state);
        if (cop_store_context_touch(c->sandbox->engine->store, c->row, &err) < 0)
                cop_log_warning("context %s/%s was not saved: %s", c->sandbox->id, c->row->id, err.message);
}

static void set_string(json_t *object, const char *key, const char *value)
{
        json_object_set_new(object, key, value ? json_string(value) : json_null());
}

static void set_time(json_t *object, const char *key, usec_t at)
{
        char stamp[COP_RFC3339_MAX];

        json_object_set_new(object, key, at ? json_string(cop_rfc3339(at, stamp)) : json_null());
}

json_t *cop_context_view(struct cop_context *c)
{
        const struct cop_context_row *row = c->row;
        json_t *view = json_object();

        json_object_set_new(view, "id", json_string(row->id));
        set_string(view, "name", row->name);
        set_string(view, "kernelspec", row->kernelspec);
        set_string(view, "language", row->language);
        set_string(view, "cwd", row->cwd);
        json_object_set_new(view, "state", json_string(row->state));
        json_object_set_new(view, "generation", json_integer((json_int_t)row->generation));
        json_object_set_new(view, "execution_count", json_integer(row->execution_count));
        json_object_set_new(view, "kernel_pid", row->kernel_pid ? json_integer(row->kernel_pid) : json_null());
        json_object_set_new(view, "queued", json_integer(c->queued));
        set_time(view, "created_at", row->created_at);
        set_time(view, "last_activity_at", row->last_activity_at);
        json_object_set_new(view, "state_lost", json_null());
        if (c->state_lost)
                json_object_set(view, cop_loss_key(c->state_lost), c->state_lost);
        return view;
}

json_t *cop_contexts_view(struct cop_sandbox *sb)
{
        json_t *list = json_array();

        for (struct cop_context *c = sb->contexts; c; c = c->next)
                if (!c->removing)
                        json_array_append_new(list, cop_context_view(c));
        return list;
}

int cop_context_find(struct cop_sandbox *sb, const char *ref, struct cop_context **ret, struct cop_error *err)
{
        for (struct cop_context *c = sb->contexts; c; c = c->next) {
                if (c->removing)
                        continue;
                if (strcmp(c->row->id, ref) == 0 || (c->row->name && strcmp(c->row->name, ref) == 0)) {
                        *ret = c;
                        return 0;
                }
        }
        return cop_error_set(err, ENOENT, COP_ERR_context_not_found,
                             "no context \"%.80s\" in sandbox %s; `coppice context ls %s` lists them", ref, sb->id,
                             sb->id);
}

void cop_context_answer_waiting(struct cop_context *c, const struct cop_error *err)
{
        while (c->waiting) {
                struct cop_waiting_op *w = c->waiting;
                c->waiting = w->next;
                cop_op_done(w->op, err ? NULL : cop_context_view(c), err);
                free(w);
        }
}

bool cop_context_is_coming(const struct cop_context *c)
{
        return strcmp(c->row->state, "starting") == 0 || strcmp(c->row->state, "restarting") == 0 ||
               (c->kernel && !cop_kernel_is_ready(c->kernel));
}

void cop_context_when_ready(struct cop_context *c, struct cop_op *op)
{
        struct cop_waiting_op *w = calloc(1, sizeof(*w));

        if (!w) {
                struct cop_error err;
                cop_error_errno(&err, ENOMEM, "context %s", c->row->id);
                cop_op_done(op, NULL, &err);
                return;
        }
        w->op = op;
        w->next = c->waiting;
        c->waiting = w;
}

/* -- making and freeing --------------------------------------------------------------------------------------------------------- */

static int context_new(struct cop_sandbox *sb, struct cop_context_row *row /* stolen */, struct cop_context **ret,
                       struct cop_error *err)
{
        struct cop_context *c = calloc(1, sizeof(*c));

        if (!c || cop_kernelspecs_from_json(sb->kernelspecs, &c->specs, err) < 0) {
                cop_context_row_free(row);
                free(c);
                return c ? -EINVAL : cop_error_errno(err, ENOMEM, "context");
        }
        c->sandbox = sb;
        c->dir_fd = -EBADF;
        c->row = row;
        c->env = row->env ? json_loads(row->env, 0, NULL) : NULL;
        c->state_lost = row->state_lost ? json_loads(row->state_lost, 0, NULL) : NULL;
        c->spec = (struct cop_kernelspec *)cop_kernelspecs_find(&c->specs, row->kernelspec);
        struct cop_context **end = &sb->contexts;
        while (*end)
                end = &(*end)->next;
        *end = c;
        *ret = c;
        return 0;
}

static void context_release(struct cop_context *c)
{
        cop_replay_stop(c);
        while (c->waiting) {
                struct cop_waiting_op *w = c->waiting;
                c->waiting = w->next;
                free(w);
        }
        cop_kernelspecs_done(&c->specs);
        cop_context_row_free(c->row);
        json_decref(c->env);
        json_decref(c->state_lost);
        free(c);
}

void cop_context_free(struct cop_context *c)
{
        struct cop_sandbox *sb = c->sandbox;
        struct cop_error err;

        for (struct cop_context **at = &sb->contexts; *at; at = &(*at)->next)
                if (*at == c) {
                        *at = c->next;
                        break;
                }
        cop_error_set(&err, ENOENT, COP_ERR_context_not_found, "context %s was removed", c->row->id);
        cop_context_answer_waiting(c, &err);
        cop_cells_abort(c, "cancelled", &err);
        cop_context_drop_kernel(c);
        if (c->removing)
                cop_store_context_delete(sb->engine->store, sb->id, c->row->id, NULL);
        cop_op_done(c->remove_op, json_pack("{s:s, s:b}", "id", c->row->id, "removed", 1), NULL);
        context_release(c);
}

static int check_params(struct cop_sandbox *sb, const struct cop_context_params *p, struct cop_error *err)
{
        unsigned count = 0;

        if (p->name && !cop_name_valid(p->name))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"name\": expected 1-63 of letters, digits, . _ -");
        if (p->cwd && (p->cwd[0] != '/' || strlen(p->cwd) > 4000))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"cwd\": expected an absolute path");
        for (struct cop_context *c = sb->contexts; c; c = c->next) {
                count++;
                if (p->name && c->row->name && !c->removing && strcmp(c->row->name, p->name) == 0)
                        return cop_error_set(err, EEXIST, COP_ERR_name_taken, "sandbox %s already has a context \"%s\"",
                                             sb->id, p->name);
        }
        if (count >= COP_CONTEXTS_MAX)
                return cop_error_set(err, EBUSY, COP_ERR_too_many,
                                     "sandbox %s has %u contexts, the most there can be; remove one first", sb->id,
                                     count);
        return 0;
}

static int make_context(struct cop_sandbox *sb, const char *id, const struct cop_context_params *p,
                        struct cop_context **ret, struct cop_error *err)
{
        struct cop_kernelspecs specs = {0};
        const char *wanted = p->kernelspec ? p->kernelspec : p->language ? p->language : "python";

        int r = cop_kernelspecs_from_json(sb->kernelspecs, &specs, err);
        if (r < 0)
                return r;
        const struct cop_kernelspec *spec = cop_kernelspecs_find(&specs, wanted);
        if (!spec && !p->kernelspec && !p->language && specs.count > 0)
                spec = &specs.list[0];
        if (!spec) {
                cop_kernelspecs_done(&specs);
                return cop_error_set(
                        err, ENOENT, COP_ERR_kernelspec_not_found,
                        "the image of sandbox %s has no kernel \"%.60s\"; install one in an image, or choose one of "
                        "/api/sandboxes/%s/kernelspecs",
                        sb->id, wanted, sb->id);
        }
        struct cop_context_row *row = calloc(1, sizeof(*row));
        if (!row) {
                cop_kernelspecs_done(&specs);
                return cop_error_errno(err, ENOMEM, "context");
        }
        const char *workdir = json_string_value(json_object_get(sb->defaults, "workdir"));
        const char *cwd = p->cwd ? p->cwd : workdir ? workdir : "/";
        snprintf(row->sandbox_id, sizeof(row->sandbox_id), "%s", sb->id);
        snprintf(row->id, sizeof(row->id), "%s", id);
        snprintf(row->state, sizeof(row->state), "starting");
        row->name = p->name ? strdup(p->name) : NULL;
        row->kernelspec = strdup(spec->name);
        row->language = strdup(spec->language);
        row->cwd = strdup(cwd);
        row->env = p->env ? json_dumps(p->env, JSON_COMPACT) : NULL;
        row->created_at = row->last_activity_at = cop_now(CLOCK_REALTIME);
        cop_kernelspecs_done(&specs);
        r = cop_store_context_insert(sb->engine->store, row, err);
        if (r < 0) {
                cop_context_row_free(row);
                return r;
        }
        return context_new(sb, row, ret, err);
}

/* -- hooks of sandbox.c ---------------------------------------------------------------------------------------------------------- */

void cop_contexts_start(struct cop_sandbox *sb, bool start_kernel)
{
        struct cop_context_params p = {0};
        struct cop_context *c;
        struct cop_error err;

        if (json_array_size(sb->kernelspecs) == 0)
                return; /* an image without kernels: commands and files only */
        if (make_context(sb, "default", &p, &c, &err) < 0) {
                cop_log_warning("sandbox %s has no default context: %s", sb->id, err.message);
                return;
        }
        if (start_kernel)
                cop_context_start_kernel(c);
        else
                cop_context_set_state(c, "dead"); /* the first cell starts it */
}

void cop_contexts_adopt(struct cop_sandbox *sb)
{
        _cleanup_(cop_context_rows_freep) struct cop_context_row **rows = NULL;
        struct cop_error err;

        if (cop_store_context_list(sb->engine->store, sb->id, &rows, &err) < 0) {
                cop_log_warning("contexts of %s cannot be read: %s", sb->id, err.message);
                return;
        }
        for (struct cop_context_row **row = rows; *row; row++) {
                struct cop_context *c;
                struct cop_context_row *own = *row;
                *row = NULL;
                bool more = row[1] != NULL;
                if (context_new(sb, own, &c, &err) < 0) {
                        cop_log_warning("context of %s cannot be taken over: %s", sb->id, err.message);
                } else {
                        cop_cells_adopt(c);
                        bool live = strcmp(c->row->state, "idle") == 0 || strcmp(c->row->state, "busy") == 0;
                        if (live && c->row->kernel_key[0])
                                cop_context_adopt_kernel(c);
                        else if (strcmp(c->row->state, "dead") != 0)
                                cop_context_start_kernel(c); /* it was being started: begin again */
                        else if (c->queue_head)
                                cop_context_start_kernel(c);
                }
                if (!more)
                        break;
        }
}

void cop_contexts_end(struct cop_sandbox *sb, const char *reason)
{
        struct cop_error err;

        cop_error_set(&err, EPIPE, COP_ERR_sandbox_ended, "sandbox %s ended: %s", sb->id, reason);
        while (sb->contexts) {
                struct cop_context *c = sb->contexts;
                cop_context_answer_waiting(c, &err);
                cop_cells_abort(c,
                                strcmp(reason, "oom") == 0       ? "oom"
                                : strcmp(reason, "removed") == 0 ? "cancelled"
                                                                 : "died",
                                &err);
                cop_context_set_state(c, "dead");
                cop_context_free(c);
        }
}

/* The daemon stops: clients are closed, rows and kernels stay as they are for the next daemon. */
void cop_contexts_detach(struct cop_sandbox *sb)
{
        while (sb->contexts) {
                struct cop_context *c = sb->contexts;
                cop_context_drop_kernel(c);
                cop_cells_detach(c);
                sb->contexts = c->next;
                context_release(c);
        }
}

bool cop_contexts_event(struct cop_sandbox *sb, struct cop_msg *event)
{
        _cleanup_free_ char *key = NULL;

        if (cop_msg_get_str(event, COP_TAG_KEY, 0, &key) < 0 || strncmp(key, "ker_", 4) != 0)
                return false;
        for (struct cop_context *c = sb->contexts; c; c = c->next)
                if (strcmp(c->row->kernel_key, key) == 0) {
                        if (event->type == COP_WIRE_EVENT_EXIT)
                                cop_context_kernel_ended(c, event);
                        break;
                }
        return true; /* a kernel that nobody wants any more is no command either */
}

/* -- operations --------------------------------------------------------------------------------------------------------------------- */

/* Parameters of an operation that first waits for its sandbox. */
struct pending {
        struct cop_op_to to;
        struct cop_engine *engine;
        struct cop_op *op;
        char *context, *kernelspec, *language, *name, *cwd;
        json_t *env;
        void (*go)(struct pending *p, struct cop_sandbox *sb);
};

static void pending_free(struct pending *p)
{
        free(p->context);
        free(p->kernelspec);
        free(p->language);
        free(p->name);
        free(p->cwd);
        json_decref(p->env);
        free(p);
}

static void pending_go(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        struct pending *p = userdata;

        if (err)
                cop_op_done(p->op, NULL, err);
        else
                p->go(p, sb);
        pending_free(p);
}

static void begin(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to,
                  struct cop_op **ret_op, void (*go)(struct pending *p, struct cop_sandbox *sb), struct pending *p)
{
        if (ret_op)
                *ret_op = NULL;
        p->go = go;
        p->engine = e;
        p->context = context ? strdup(context) : NULL;
        p->op = cop_op_new(e, to, NULL, NULL);
        if (!p->op) {
                pending_free(p);
                return;
        }
        cop_op_when_running(p->op, e, ref, pending_go, p, ret_op);
}

static struct pending *pending_new(struct cop_op_to to)
{
        struct pending *p = calloc(1, sizeof(*p));

        if (!p) {
                struct cop_error err;
                cop_error_errno(&err, ENOMEM, "context");
                cop_answer(to, NULL, &err);
        }
        return p;
}

static void go_create(struct pending *p, struct cop_sandbox *sb)
{
        struct cop_context_params params = {
                .kernelspec = p->kernelspec, .language = p->language, .name = p->name, .cwd = p->cwd, .env = p->env};
        struct cop_context *c;
        struct cop_error err;
        char id[COP_ID_MAX];

        if (check_params(sb, &params, &err) < 0 ||
            make_context(sb, cop_id_new(id, "ctx_", 10), &params, &c, &err) < 0) {
                cop_op_done(p->op, NULL, &err);
                return;
        }
        cop_context_when_ready(c, p->op);
        cop_context_start_kernel(c);
}

static char *copy(const char *s)
{
        return s ? strdup(s) : NULL;
}

void cop_context_create(struct cop_engine *e, const char *ref, const struct cop_context_params *params,
                        struct cop_op_to to, struct cop_op **ret_op)
{
        struct pending *p = pending_new(to);

        if (!p)
                return;
        p->kernelspec = copy(params->kernelspec);
        p->language = copy(params->language);
        p->name = copy(params->name);
        p->cwd = copy(params->cwd);
        p->env = json_incref(params->env);
        begin(e, ref, NULL, to, ret_op, go_create, p);
}

void cop_context_list(struct cop_engine *e, const char *ref, struct cop_op_to to)
{
        struct cop_sandbox *sb;
        struct cop_error err;

        if (cop_sandbox_find(e, ref, &sb, &err) < 0)
                cop_answer(to, NULL, &err);
        else
                cop_answer(to, json_pack("{s:o}", "contexts", cop_contexts_view(sb)), NULL);
}

void cop_context_get(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to)
{
        struct cop_sandbox *sb;
        struct cop_context *c;
        struct cop_error err;

        if (cop_sandbox_find(e, ref, &sb, &err) < 0 || cop_context_find(sb, context, &c, &err) < 0)
                cop_answer(to, NULL, &err);
        else
                cop_answer(to, cop_context_view(c), NULL);
}

/* Finds the context of a pending operation, or answers with the error. */
static struct cop_context *pending_context(struct pending *p, struct cop_sandbox *sb)
{
        struct cop_context *c;
        struct cop_error err;

        if (cop_context_find(sb, p->context, &c, &err) == 0)
                return c;
        cop_op_done(p->op, NULL, &err);
        return NULL;
}

static void on_shutdown_late(struct cop_source *s, usec_t now, void *userdata)
{
        cop_context_kill_kernel(userdata, "removed");
}

static void go_remove(struct pending *p, struct cop_sandbox *sb)
{
        struct cop_context *c = pending_context(p, sb);
        struct cop_error err;

        if (!c)
                return;
        c->removing = true;
        c->remove_op = p->op;
        cop_error_set(&err, ENOENT, COP_ERR_context_not_found, "context %s was removed", c->row->id);
        cop_context_answer_waiting(c, &err);
        cop_cells_abort(c, "cancelled", &err);
        if (!c->row->kernel_key[0] || c->row->kernel_pid == 0) {
                cop_context_free(c);
                return;
        }
        bool polite = c->kernel && cop_kernel_is_ready(c->kernel) && cop_kernel_shutdown(c->kernel, false, NULL) == 0;
        usec_t grace = polite ? SHUTDOWN_GRACE : 0;
        c->exit_timer = cop_source_free(c->exit_timer);
        cop_loop_add_timer(sb->engine->loop, cop_usec_add(cop_now(CLOCK_MONOTONIC), grace), on_shutdown_late, c,
                           &c->exit_timer, NULL);
}

void cop_context_remove(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to,
                        struct cop_op **ret_op)
{
        struct pending *p = pending_new(to);

        if (p)
                begin(e, ref, context, to, ret_op, go_remove, p);
}

static void go_restart(struct pending *p, struct cop_sandbox *sb)
{
        struct cop_context *c = pending_context(p, sb);

        if (!c)
                return;
        cop_context_when_ready(c, p->op);
        if (strcmp(c->row->state, "dead") == 0)
                cop_context_start_kernel(c);
        else if (strcmp(c->row->state, "idle") == 0 || strcmp(c->row->state, "busy") == 0)
                cop_context_kill_kernel(c, "restarted"); /* its end starts the next one */
}

void cop_context_restart(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to,
                         struct cop_op **ret_op)
{
        struct pending *p = pending_new(to);

        if (p)
                begin(e, ref, context, to, ret_op, go_restart, p);
}

static void go_interrupt(struct pending *p, struct cop_sandbox *sb)
{
        struct cop_context *c = pending_context(p, sb);

        if (!c)
                return;
        if (c->running)
                cop_cell_begin_interrupt(c->running, COP_CAUSE_USER);
        cop_op_done(p->op, cop_context_view(c), NULL);
}

void cop_context_interrupt(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to,
                           struct cop_op **ret_op)
{
        struct pending *p = pending_new(to);

        if (p)
                begin(e, ref, context, to, ret_op, go_interrupt, p);
}
