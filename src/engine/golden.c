/* Golden states: what every new sandbox of an image would do first (start a kernel, import libraries) is done once, and saved as a node that
 * new sandboxes are thawed from.
 *
 * A throw-away sandbox of the image goes through
 *      START   a cold start
 *      RUN     the code, silently: it is not counted and leaves no history
 *      MARK    a node of it,
 *      TRY     and a cell of nothing: so the next node knows which pages a first cell writes (freezer/dump_hot.c)
 *      SAVE    that node, which the image's row then names
 *      END     it is removed; the node stays because the image needs it (N4)
 * Whatever fails, and a caller that goes away, ends it.  So does its time to live, should the daemon die meanwhile.
 *
 * A sandbox made from the node is a new one: own id, host name, limits, random numbers and environment, the last three brought to its
 * kernel before its first cell (COP_PREPARE_* in kernel.c).  What cannot be brought to a kernel that runs already makes it boot as if
 * there were no golden state: see cop_golden_for.
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/image.h"

#define TIMEOUT_DEFAULT (300 * USEC_PER_SEC)
#define AROUND_RUN (900 * USEC_PER_SEC) /* start and save at their slowest */

/* Imports without leaving a name; what the image lacks is left out. */
static const char default_code[] = "exec('''\n"
                                   "import importlib\n"
                                   "for name in ('numpy', 'pandas', 'matplotlib.pyplot'):\n"
                                   "    try:\n"
                                   "        importlib.import_module(name)\n"
                                   "    except ImportError:\n"
                                   "        pass\n"
                                   "''', {})\n";

enum warm_step {
        WARM_START,
        WARM_RUN,
        WARM_MARK,
        WARM_TRY,
        WARM_SAVE,
        WARM_END,
};

struct cop_warming {
        struct cop_warming *next;
        struct cop_engine *engine; /* borrowed */
        struct cop_op *op;         /* who waits */
        struct cop_op *step_op;    /* START, RUN, TRY: what is waited for */
        struct cop_source *timer;  /* owned */
        enum warm_step step;
        char image_id[COP_ID_MAX], sandbox_id[COP_ID_MAX];
        char *code; /* owned */
        usec_t timeout, begun;
        struct cop_error failure; /* of RUN or TRY; code 0 = none */
        uint64_t memory_bytes;    /* of both nodes: the first has all memory, the next one what changed since */
};

/* -- the object ---------------------------------------------------------------------------------------------------- */

static void warming_free(struct cop_warming *w)
{
        for (struct cop_warming **at = &w->engine->warmings; *at; at = &(*at)->next)
                if (*at == w) {
                        *at = w->next;
                        break;
                }
        cop_source_free(w->timer);
        free(w->code);
        free(w);
}

void cop_golden_drop(struct cop_engine *e)
{
        while (e->warmings)
                warming_free(e->warmings);
}

static void fail(struct cop_warming *w, const struct cop_error *why)
{
        struct cop_sandbox *sb = cop_sandbox_by_id(w->engine, w->sandbox_id);
        struct cop_op *op = w->op;
        struct cop_error err = *why;

        cop_error_wrap(&err, 0, "image %s has no new golden state", w->image_id);
        warming_free(w);
        if (sb)
                cop_sandbox_end(sb, "removed", NULL);
        cop_op_done(op, NULL, &err);
}

static void tell(struct cop_warming *w, const char *stage, const char *message)
{
        _cleanup_json_ json_t *event = json_pack("{s:s, s:s}", "stage", stage, "message", message);

        if (event)
                cop_op_progress(w->op, event);
}

static void on_cancel(void *data)
{
        struct cop_warming *w = data;
        struct cop_sandbox *sb = cop_sandbox_by_id(w->engine, w->sandbox_id);
        struct cop_op *step_op = TAKE_PTR(w->step_op);
        struct cop_error err;

        if (w->step == WARM_END)
                return; /* the node is there: only the end of the sandbox is awaited */
        if ((w->step == WARM_MARK || w->step == WARM_SAVE) && sb) {
                cop_sandbox_end(sb, "removed", NULL); /* on_saved hears of it */
                return;
        }
        cop_op_cancel(step_op);
        cop_error_set(&err, ECANCELED, COP_ERR_cancelled, "the caller went away");
        fail(w, &err);
}

/* -- END ----------------------------------------------------------------------------------------------------------- */

static void on_ended(json_t *result, const struct cop_error *err, void *userdata)
{
        struct cop_warming *w = userdata;
        struct cop_engine *e = w->engine;
        struct cop_op *op = w->op;
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = NULL;
        struct cop_error error;

        int r = cop_store_image_get(e->store, w->image_id, &row, &error);
        warming_free(w);
        cop_op_done_durable(op, r < 0 ? NULL : cop_image_view(e, row, true), r < 0 ? &error : NULL);
}

void cop_golden_release(struct cop_engine *e, const char *node)
{
        cop_spare_forget(e, node);
        cop_node_release(e, node);
}

/* The row of the image names the node; the one that was named before goes when nobody needs it. */
static int record(struct cop_warming *w, const char *node_id, struct cop_error *err)
{
        struct cop_engine *e = w->engine;
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = NULL;
        char old[COP_ID_MAX];

        int r = cop_store_image_get(e->store, w->image_id, &row, err);
        if (r < 0)
                return r;
        snprintf(old, sizeof(old), "%s", row->golden_node);
        snprintf(row->golden_node, sizeof(row->golden_node), "%s", node_id);
        _cleanup_json_ json_t *golden =
                json_pack("{s:s, s:f, s:I}", "code", w->code ? w->code : default_code, "duration_ms",
                          (double)(cop_now(CLOCK_MONOTONIC) - w->begun) / USEC_PER_MSEC, "memory_bytes",
                          (json_int_t)w->memory_bytes);
        free(row->golden);
        row->golden = golden ? json_dumps(golden, JSON_COMPACT) : NULL;
        if (!row->golden)
                return cop_error_errno(err, ENOMEM, "image %s", w->image_id);
        r = cop_store_image_set_golden(e->store, row, err);
        if (r < 0)
                return r;
        if (old[0])
                cop_golden_release(e, old);
        _cleanup_json_ json_t *detail =
                json_pack("{s:s, s:s?, s:s}", "image_id", row->id, "name", row->name, "node_id", node_id);
        cop_engine_event(e, "image.warmed", NULL, detail);
        return 0;
}

/* -- MARK, SAVE ---------------------------------------------------------------------------------------------------- */

static void run(struct cop_warming *w, enum warm_step step, const char *code);

static void on_saved(struct cop_node_row *node, const struct cop_error *err, void *userdata)
{
        struct cop_warming *w = userdata;
        struct cop_sandbox *sb = cop_sandbox_by_id(w->engine, w->sandbox_id);
        struct cop_error error;

        if (!err)
                w->memory_bytes += node->memory_bytes;
        if (!err && w->step == WARM_MARK) {
                run(w, WARM_TRY, "0");
                return;
        }
        if (!err && record(w, node->id, &error) < 0)
                err = &error;
        if (err) {
                fail(w, err);
                return;
        }
        w->step = WARM_END;
        struct cop_op *op = cop_op_new(w->engine, (struct cop_op_to){.done = on_ended, .userdata = w}, NULL, NULL);
        if (op && sb)
                cop_sandbox_end(sb, "removed", op);
        else
                cop_op_done(op, json_object(), NULL);
}

/* The cell's answer comes before its context is idle again, or may go away. */
static void after_run(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_warming *w = userdata;
        struct cop_sandbox *sb = cop_sandbox_by_id(w->engine, w->sandbox_id);
        const struct cop_node_params p = {.reason = COP_NODE_GOLDEN};
        struct cop_error err;

        if (w->failure.errnum) {
                fail(w, &w->failure);
                return;
        }
        if (!sb || sb->state != COP_SANDBOX_RUNNING) {
                cop_error_set(&err, ESHUTDOWN, COP_ERR_sandbox_ended, "the sandbox it was made in has ended");
                fail(w, &err);
                return;
        }
        w->step = w->step == WARM_RUN ? WARM_MARK : WARM_SAVE;
        if (w->step == WARM_MARK)
                tell(w, "save", "saving its memory");
        cop_node_make(sb, &p, on_saved, w);
}

/* -- RUN, TRY ------------------------------------------------------------------------------------------------------ */

/* What the cell of nothing says in a language that it is none of is the same. */
static int check_cell(json_t *cell, enum warm_step step, struct cop_error *err)
{
        const char *status = json_string_value(json_object_get(cell, "status"));
        json_t *error = json_object_get(cell, "error");
        const char *name = json_string_value(json_object_get(error, "name")),
                   *value = json_string_value(json_object_get(error, "value"));

        if (status && (strcmp(status, "ok") == 0 || (step == WARM_TRY && strcmp(status, "error") == 0)))
                return 0;
        cop_error_set(err, EIO, COP_ERR_image_build_failed, "its code ended with %s%s%.100s%s%.400s",
                      status ? status : "no status", name ? ": " : "", name ? name : "", value && *value ? ": " : "",
                      value ? value : "");
        cop_utf8_trim(err->message);
        return -EIO;
}

static void on_ran(json_t *cell, const struct cop_error *err, void *userdata)
{
        struct cop_warming *w = userdata;

        w->step_op = NULL;
        if (err)
                w->failure = *err;
        else
                check_cell(cell, w->step, &w->failure);
        if (!w->engine->closing)
                cop_source_set_time(w->timer, 0);
}

static void run(struct cop_warming *w, enum warm_step step, const char *code)
{
        const struct cop_cell_params p = {
                .code = code, .code_len = strlen(code), .timeout = w->timeout, .silent = true, .no_history = true};
        struct cop_op *step_op = NULL;

        w->step = step;
        cop_cell_run(w->engine, w->sandbox_id, &p, (struct cop_op_to){.done = on_ran, .userdata = w}, &step_op);
        if (step_op) /* else it has ended already, and w perhaps with it */
                w->step_op = step_op;
}

static void on_created(json_t *sandbox, const struct cop_error *err, void *userdata)
{
        struct cop_warming *w = userdata;

        w->step_op = NULL;
        if (err) {
                fail(w, err);
                return;
        }
        snprintf(w->sandbox_id, sizeof(w->sandbox_id), "%s", json_string_value(json_object_get(sandbox, "id")));
        tell(w, "run", "running the code");
        run(w, WARM_RUN, w->code ? w->code : default_code);
}

/* -- START --------------------------------------------------------------------------------------------------------- */

static void start(struct cop_warming *w, const char *name)
{
        _cleanup_json_ json_t *policy = json_pack("{s:i, s:s}", "idle_seconds", 0, "checkpoints", "off"),
                              *metadata = json_pack("{s:s}", "warming", name);
        struct cop_op *step_op = NULL;
        const struct cop_sandbox_params p = {
                .image = w->image_id,
                .ttl = w->timeout + AROUND_RUN,
                .policy = policy,
                .metadata = metadata,
                .start_kernel = true,
                .cold = true,
        };

        tell(w, "start", "starting a sandbox of the image");
        cop_sandbox_create(w->engine, &p, (struct cop_op_to){.done = on_created, .userdata = w}, &step_op);
        if (step_op)
                w->step_op = step_op;
}

static int check(struct cop_engine *e, const char *ref, const struct cop_warm_params *p, struct cop_image_row **ret,
                 struct cop_error *err)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = NULL;
        _cleanup_json_ json_t *kernelspecs = NULL;

        if (p->code && p->code_len > COP_WARM_CODE_MAX)
                return cop_error_set(err, EFBIG, COP_ERR_payload_too_large, "field \"code\": at most %u KiB",
                                     COP_WARM_CODE_MAX >> 10);
        int r = cop_image_lookup(e, ref, &row, &kernelspecs, NULL, err);
        if (r < 0)
                return r;
        if (json_array_size(kernelspecs) == 0)
                return cop_error_set(err, ENOENT, COP_ERR_kernelspec_not_found,
                                     "image \"%.80s\" has no kernel that could be started ahead", ref);
        for (const struct cop_warming *w = e->warmings; w; w = w->next)
                if (strcmp(w->image_id, row->id) == 0)
                        return cop_error_set(err, EBUSY, COP_ERR_in_use,
                                             "a golden state of image \"%.80s\" is being made already; wait for that",
                                             ref);
        *ret = TAKE_PTR(row);
        return 0;
}

static struct cop_warming *warming_new(struct cop_engine *e, const struct cop_image_row *image,
                                       const struct cop_warm_params *p, struct cop_error *err)
{
        struct cop_warming *w = calloc(1, sizeof(*w));

        if (w && p->code && !(w->code = strndup(p->code, p->code_len))) {
                free(w);
                w = NULL;
        }
        if (!w) {
                cop_error_errno(err, ENOMEM, "image %s", image->id);
                return NULL;
        }
        if (cop_loop_add_timer(e->loop, USEC_INFINITY, after_run, w, &w->timer, err) < 0) {
                free(w->code);
                free(w);
                return NULL;
        }
        w->engine = e;
        w->timeout = p->timeout ? p->timeout : TIMEOUT_DEFAULT;
        w->begun = cop_now(CLOCK_MONOTONIC);
        snprintf(w->image_id, sizeof(w->image_id), "%s", image->id);
        w->next = e->warmings;
        e->warmings = w;
        return w;
}

void cop_image_warm(struct cop_engine *e, const char *ref, const struct cop_warm_params *p, struct cop_op_to to,
                    struct cop_op **ret_op)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = NULL;
        struct cop_warming *w = NULL;
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (check(e, ref, p, &row, &err) < 0 || !(w = warming_new(e, row, p, &err))) {
                cop_answer(to, NULL, &err);
                return;
        }
        w->op = cop_op_new(e, to, on_cancel, w);
        if (!w->op) {
                warming_free(w);
                return;
        }
        uint64_t serial = cop_op_serial(w->op);
        start(w, row->name ? row->name : row->id);
        if (ret_op)
                *ret_op = cop_op_find(e, serial);
}

void cop_image_cool(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = NULL;
        char node[COP_ID_MAX];
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        int r = cop_image_lookup(e, ref, &row, NULL, NULL, &err);
        if (r == 0 && !row->golden_node[0])
                r = cop_error_set(&err, ENOENT, COP_ERR_node_not_found, "image \"%.80s\" has no golden state", ref);
        if (r == 0) {
                snprintf(node, sizeof(node), "%s", row->golden_node);
                row->golden_node[0] = '\0';
                row->golden = (free(row->golden), NULL);
                r = cop_store_image_set_golden(e->store, row, &err);
        }
        if (r < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        cop_golden_release(e, node);
        cop_answer_durable(e, to, cop_image_view(e, row, false), ret_op);
}

json_t *cop_golden_view(struct cop_engine *e, const struct cop_image_row *row)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *node = NULL;
        char stamp[COP_RFC3339_MAX];

        if (!row->golden_node[0] || cop_store_node_get(e->store, row->golden_node, &node, NULL) < 0)
                return json_null();
        json_t *view = json_pack("{s:s, s:s, s:I, s:I}", "node_id", node->id, "created_at",
                                 cop_rfc3339(node->created_at, stamp), "memory_bytes", (json_int_t)node->memory_bytes,
                                 "file_bytes", (json_int_t)node->file_bytes);
        _cleanup_json_ json_t *info = row->golden ? json_loads(row->golden, 0, NULL) : NULL;
        json_object_update(view, info); /* its memory_bytes are of all memory: the node is an incremental one */
        return view;
}

/* -- using it ------------------------------------------------------------------------------------------------------ */

/* Variables that are read when a program or library starts: setting them in a kernel that runs would tell it nothing. */
static bool is_read_at_start(const char *name)
{
        static const char *const beginnings[] = {"PYTHON",   "LD_",    "LC_",  "LANG",    "TZ",   "HOME",   "XDG_",
                                                 "MALLOC_",  "GLIBC_", "OMP_", "GOMP",    "MKL_", "BLIS",   "OPENBLAS_",
                                                 "NUMEXPR_", "NPY_",   "MPL",  "IPYTHON", "JPY_", "JUPYTER"};

        for (size_t i = 0; i < ELEMENTSOF(beginnings); i++)
                if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
                        return true;
        return false;
}

static bool env_fits(json_t *env, bool python)
{
        const char *name;
        json_t *value;

        if (!python && json_object_size(env) > 0)
                return false;
        json_object_foreach (env, name, value)
                if (is_read_at_start(name))
                        return false;
        return true;
}

/* As in cop_golden_view. */
static uint64_t memory_bytes(const struct cop_image_row *image, const struct cop_node_row *node)
{
        _cleanup_json_ json_t *info = image->golden ? json_loads(image->golden, 0, NULL) : NULL;
        json_t *all = json_object_get(info, "memory_bytes");

        return all ? (uint64_t)json_integer_value(all) : node->memory_bytes;
}

/* NULL when a sandbox of this row can begin as the node of this image. */
static const char *obstacle(const struct cop_sandbox_params *p, const struct cop_sandbox_row *row,
                            const struct cop_image_row *image, const struct cop_node_row *node)
{
        _cleanup_json_ json_t *spec = json_loads(node->spec, 0, NULL);
        json_t *context = json_array_get(json_object_get(spec, "contexts"), 0);
        const char *language = json_string_value(json_object_get(context, "language"));
        _cleanup_free_ char *text = json_dumps(json_object_get(spec, "limits"), JSON_COMPACT);
        bool python = language && strcmp(language, "python") == 0;
        struct cop_sandbox_limits want, had;

        cop_limits_from_json(row->limits, &want);
        cop_limits_from_json(text, &had);
        if (!p->start_kernel)
                return "start_kernel";
        if (!env_fits(p->env, python))
                return "env";
        if (want.nofile != had.nofile)
                return "nofile";
        if (want.memory < memory_bytes(image, node) || (!python && want.memory != had.memory))
                return "memory";
        return NULL;
}

struct cop_node_row *cop_golden_for(struct cop_engine *e, const struct cop_sandbox_params *p,
                                    const struct cop_sandbox_row *row, const char **ret_why)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *image = NULL;
        struct cop_node_row *node = NULL;

        *ret_why = NULL;
        if (cop_store_image_get(e->store, row->image_id, &image, NULL) < 0 || !image->golden_node[0])
                return NULL;
        if (p->cold) {
                *ret_why = "golden";
                return NULL;
        }
        if (cop_store_node_get(e->store, image->golden_node, &node, NULL) < 0)
                return NULL;
        *ret_why = obstacle(p, row, image, node);
        return *ret_why ? cop_node_row_free(node) : node;
}
