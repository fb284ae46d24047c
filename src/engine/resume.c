/* The operation of a resume: who asks for it, and with what; sleep.c does the waking.
 *
 * It is answered when the sandbox runs and, if its cells are run again, after the last of them.  With `wait` also its kernels have to answer
 * first: those of a cold boot take a second, and whoever sends a cell meanwhile waits with it in the queue.
 */
#include "engine/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *cop_sandbox_resumed_view(struct cop_sandbox *sb)
{
        json_t *view = cop_sandbox_view(sb);

        if (!view)
                return NULL;
        json_object_set_new(view, "memoryRestored", json_boolean(sb->memory_restored || !sb->resume_reason[0]));
        if (sb->resume_reason[0])
                json_object_set_new(view, "resumeReason", json_string(sb->resume_reason));
        if (sb->resume_message[0])
                json_object_set_new(view, "resumeMessage", json_string(sb->resume_message));
        json_object_set_new(view, "resume_ms", json_real((double)sb->resume_time / 1000));
        if (sb->replay_report && !sb->memory_restored)
                json_object_set(view, "replay", sb->replay_report);
        return view;
}

void cop_sandbox_answer_resumed(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        if (!sb || !cop_replay_wait(sb, userdata))
                cop_op_done(userdata, sb ? cop_sandbox_resumed_view(sb) : NULL, err);
}

/* -- wait: until its kernels answer --------------------------------------------------------------------------------------------- */

struct resume_wait {
        struct cop_engine *engine;
        struct cop_op *op;
        char sandbox_id[COP_ID_MAX];
};

static void on_running(struct cop_sandbox *sb, const struct cop_error *err, void *userdata);

/* One kernel answers, or will not: the next. */
static void on_kernel(json_t *context, const struct cop_error *err, void *userdata)
{
        struct resume_wait *w = userdata;

        if (w->engine->closing)
                on_running(NULL, err, w);
        else
                cop_sandbox_when_running(w->engine, w->sandbox_id, on_running, w);
}

static void on_running(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        struct resume_wait *w = userdata;
        struct cop_op *kernel, *op = w->op;

        for (struct cop_context *c = sb ? sb->contexts : NULL; c; c = c->next) {
                if (!cop_context_is_coming(c))
                        continue;
                snprintf(w->sandbox_id, sizeof(w->sandbox_id), "%s", sb->id);
                kernel = cop_op_new(w->engine, (struct cop_op_to){.done = on_kernel, .userdata = w}, NULL, NULL);
                if (kernel)
                        cop_context_when_ready(c, kernel);
                return; /* without one, on_kernel was called already */
        }
        free(w);
        cop_sandbox_answer_resumed(sb, err, op);
}

static void answer_when_ready(struct cop_engine *e, const char *ref, bool wait, struct cop_op *op)
{
        struct resume_wait *w = wait ? calloc(1, sizeof(*w)) : NULL;

        if (wait && !w) {
                cop_op_done(op, NULL, NULL);
                return;
        }
        if (w)
                *w = (struct resume_wait){.engine = e, .op = op};
        cop_sandbox_when_running(e, ref, w ? on_running : cop_sandbox_answer_resumed, w ? (void *)w : op);
}

/* -- the operation ---------------------------------------------------------------------------------------------------------------- */

/* A resume of a sandbox that need not be woken, with other limits. */
struct resume_update {
        struct cop_engine *engine;
        struct cop_op *op;
        bool wait;
};

static void on_updated(json_t *sandbox, const struct cop_error *err, void *userdata)
{
        struct resume_update u = *(struct resume_update *)userdata;

        free(userdata);
        if (err)
                cop_op_done(u.op, NULL, err);
        else
                answer_when_ready(u.engine, json_string_value(json_object_get(sandbox, "id")), u.wait, u.op);
}

static void resume_with_limits(struct cop_engine *e, const char *ref, const struct cop_resume_params *p,
                               struct cop_op *op)
{
        struct resume_update *u = calloc(1, sizeof(*u));

        if (!u) {
                cop_op_done(op, NULL, NULL);
                return;
        }
        *u = (struct resume_update){.engine = e, .op = op, .wait = p->wait};
        cop_sandbox_update(e, ref, p->limits, (struct cop_op_to){.done = on_updated, .userdata = u}, NULL);
}

static unsigned replay_mode(const char *word)
{
        static const char *const words[] = {"none", "all", "pure"}; /* in the order of enum cop_replay_mode */

        for (unsigned i = 0; word && i < ELEMENTSOF(words); i++)
                if (strcmp(word, words[i]) == 0)
                        return i + 1;
        return 0;
}

void cop_sandbox_resume(struct cop_engine *e, const char *ref, const struct cop_resume_params *p, struct cop_op_to to,
                        struct cop_op **ret_op)
{
        struct cop_op *op = cop_op_new(e, to, NULL, NULL);
        struct cop_sandbox *sb = cop_sandbox_by_ref(e, ref);
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (!op)
                return;
        bool asleep = sb && sb->state == COP_SANDBOX_SUSPENDED;
        if (asleep && p->limits && cop_sandbox_patch_asleep(sb, p->limits, &err) < 0) {
                cop_op_done(op, NULL, &err);
                return;
        }
        if (asleep) {
                sb->require_memory = p->require_memory;
                sb->replay_asked = replay_mode(p->replay);
        }
        if (sb && sb->state == COP_SANDBOX_RUNNING && !sb->replay)
                sb->memory_restored = true; /* it never lost it */
        uint64_t serial = cop_op_serial(op);
        if (p->limits && !asleep)
                resume_with_limits(e, ref, p, op);
        else
                answer_when_ready(e, ref, p->wait, op);
        if (ret_op)
                *ret_op = cop_op_find(e, serial);
}
