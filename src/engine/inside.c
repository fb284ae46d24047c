#include "engine/inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/context.h"
#include "engine/sandbox.h"

#define MIME "application/vnd.coppice.inside+json"

struct inside {
        struct cop_engine *engine;
        cop_inside_fn fn;
        void *userdata;
        char context[COP_ID_MAX];
        struct cop_source *later; /* owned */
        json_t *answer;           /* owned */
        struct cop_error err;     /* errnum != 0: failed */
};

static void deliver(struct inside *in)
{
        in->fn(in->err.errnum ? NULL : in->answer, in->err.errnum ? &in->err : NULL, in->userdata);
        cop_source_free(in->later);
        json_decref(in->answer);
        free(in);
}

static void on_later(struct cop_source *s, void *userdata)
{
        deliver(userdata);
}

static json_t *find_answer(json_t *cell)
{
        json_t *output;
        size_t i;

        json_array_foreach (json_object_get(cell, "outputs"), i, output) {
                json_t *answer = json_object_get(json_object_get(output, "data"), MIME);
                if (json_is_object(answer))
                        return answer;
        }
        return NULL;
}

static int read_cell(json_t *cell, const char *context, json_t **ret, struct cop_error *err)
{
        const char *status = json_string_value(json_object_get(cell, "status"));
        json_t *error = json_object_get(cell, "error"), *memory = json_object_get(cell, "memory");
        const char *name = json_string_value(json_object_get(error, "name")),
                   *value = json_string_value(json_object_get(error, "value"));

        if (status && strcmp(status, "timeout") == 0)
                return cop_error_set(err, ETIMEDOUT, COP_ERR_timeout,
                                     "context %s did not answer in time; a cell may be running in it", context);
        if (!status || strcmp(status, "ok") != 0)
                return cop_error_set(err, EIO, COP_ERR_unavailable, "context %s did not answer: %.60s: %.300s", context,
                                     name     ? name
                                     : status ? status
                                              : "?",
                                     value ? value : "");
        if (json_is_false(json_object_get(memory, "kept")))
                return cop_error_set(err, EIO, COP_ERR_unavailable, "the memory of context %s was lost", context);
        *ret = find_answer(cell);
        return *ret ? 0
                    : cop_error_set(
                              err, EIO, COP_ERR_unavailable,
                              "context %s gave no answer that can be used; its kernel is no IPython, or was changed",
                              context);
}

static void on_cell(json_t *cell, const struct cop_error *err, void *userdata)
{
        struct inside *in = userdata;
        json_t *answer = NULL;

        if (err)
                in->err = *err;
        else if (read_cell(cell, in->context, &answer, &in->err) == 0)
                in->err = COP_ERROR_NULL;
        in->answer = json_incref(answer);
        /* From the loop: the cell is still in the middle of its end, and who gets the answer may end its sandbox. */
        if (in->engine->closing)
                deliver(in);
        else
                cop_source_set_enabled(in->later, 1);
}

/* exec with globals of its own; what the user did to the names of his cells does not matter. */
static int make_code(const struct cop_inside_params *p, struct cop_buf *out)
{
        _cleanup_json_ json_t *program = json_stringn(p->program, p->program_len);
        _cleanup_free_ char *request = json_dumps(p->request, JSON_COMPACT);
        _cleanup_json_ json_t *request_text = request ? json_string(request) : NULL;
        /* A JSON string without escapes for what is not ASCII is a literal of Python too. */
        _cleanup_free_ char *a = program ? json_dumps(program, JSON_ENCODE_ANY) : NULL;
        _cleanup_free_ char *b = request_text ? json_dumps(request_text, JSON_ENCODE_ANY) : NULL;

        if (!a || !b)
                return -ENOMEM;
        return cop_buf_addf(out,
                            "# coppice: %s\n__import__('builtins').exec(%s, {'__name__': 'coppice', 'request': "
                            "__import__('json').loads(%s)})",
                            p->title, a, b);
}

int cop_inside_check(struct cop_engine *e, const char *sandbox_id, const char *context, struct cop_error *err)
{
        struct cop_sandbox *sb;
        struct cop_context *c;

        context = context ? context : "default";
        int r = cop_sandbox_find(e, sandbox_id, &sb, err);
        if (r == 0 && sb->state == COP_SANDBOX_RUNNING)
                r = cop_context_find(sb, context, &c, err);
        if (r == 0 && sb->state == COP_SANDBOX_RUNNING && c->row->language && strcmp(c->row->language, "python") != 0)
                r = cop_error_set(err, EINVAL, COP_ERR_invalid_state,
                                  "context %s runs %s; only Python's variables can be read", context, c->row->language);
        return r;
}

void cop_inside_run(struct cop_engine *e, const char *sandbox_id, const struct cop_inside_params *p, cop_inside_fn fn,
                    void *userdata)
{
        _cleanup_buf_ struct cop_buf code = COP_BUF(1u << 20);
        const char *context = p->context ? p->context : "default";
        struct cop_error err;

        struct inside *in = calloc(1, sizeof(*in));
        int r = in ? cop_inside_check(e, sandbox_id, context, &err)
                   : cop_error_errno(&err, ENOMEM, "context %s", context);
        if (r == 0 && (r = make_code(p, &code)) < 0)
                cop_error_errno(&err, r, "asking context %s", context);
        if (r == 0)
                r = cop_loop_add_defer(e->loop, on_later, in, &in->later, &err);
        if (!in || r < 0) {
                free(in);
                fn(NULL, &err, userdata);
                return;
        }
        in->engine = e;
        in->fn = fn;
        in->userdata = userdata;
        snprintf(in->context, sizeof(in->context), "%s", context);
        const struct cop_cell_params cell = {
                .code = code.data,
                .code_len = code.len,
                .context = context,
                .timeout = p->timeout,
                .silent = true,
                .no_history = true,
                .taken = p->taken,
        };
        cop_cell_run(e, sandbox_id, &cell, (struct cop_op_to){.done = on_cell, .userdata = in}, NULL);
}
