/* Theory of operation
 *
 *      target runs ─► source ─► variables given ─► each file ─► their pickle ─► variables received ─► end
 *                       │           in a copy        (pump.c)      (pump.c)        in the target
 *                       └ files alone, of a sandbox that runs: read where it is; else a copy of its node
 *
 * A pickle is made and read only by kernels, each within its sandbox; the daemon passes its bytes on.  Both sides are hostile: each
 * answer is checked, sizes are bounded, and a copy and a pickle go at the end, whatever became of the caller.
 */
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "engine/copy.h"
#include "engine/inside.h"
#include "engine/pump.h"
#include "engine/sandbox.h"
#include "sandbox/wire.h"

#define INSIDE_TIMEOUT (120 * USEC_PER_SEC)
#define FILE_BYTES_MAX (4ULL << 30)     /* of one file or folder */
#define VARIABLE_BYTES_MAX (512u << 20) /* of all variables of a call */
#define NAME_MAX_BYTES 200

struct take {
        struct cop_engine *engine;
        uint64_t serial;           /* of the caller's operation */
        char *from, *context;      /* owned */
        json_t *files, *variables; /* owned arrays */
        char target[COP_ID_MAX], source[COP_ID_MAX], copy[COP_ID_MAX], node[COP_ID_MAX];
        struct cop_state_hold *held; /* owned: the node */
        char pickle[64];             /* path, in both */
        bool pickled;                /* it may lie in the target */
        size_t next_file;
        json_t *taken; /* owned: of the answer */
        uint64_t bytes;
        usec_t begun, step_begun; /* CLOCK_MONOTONIC */
        json_t *timings;          /* owned */
};

/* -- the end --------------------------------------------------------------------------------------------------------------- */

static void ignore(json_t *result, const struct cop_error *err, void *userdata)
{
}

/* The program in the target removes it; this is for when that did not run. */
static void remove_pickle(struct take *t)
{
        const struct cop_file_params p = {.op = COP_FILE_REMOVE, .path = t->pickle};
        struct cop_sandbox *sb = cop_sandbox_by_id(t->engine, t->target);

        if (t->pickled && sb && sb->state == COP_SANDBOX_RUNNING && !t->engine->closing)
                cop_file_do(t->engine, t->target, &p, (struct cop_op_to){.done = ignore}, NULL);
}

static void take_free(struct take *t)
{
        cop_copy_drop(t->engine, t->copy);
        cop_state_let_go(t->held);
        json_decref(t->files);
        json_decref(t->variables);
        json_decref(t->taken);
        json_decref(t->timings);
        free(t->from);
        free(t->context);
        free(t);
}

static void failed(struct take *t, const struct cop_error *err)
{
        struct cop_op *op = cop_op_find(t->engine, t->serial);
        struct cop_error own = *err;

        remove_pickle(t);
        take_free(t);
        cop_op_done(op, NULL, &own);
}

static void step_done(struct take *t, const char *name)
{
        usec_t now = cop_now(CLOCK_MONOTONIC);

        json_object_set_new(t->timings, name, json_real((double)(now - t->step_begun) / USEC_PER_MSEC));
        t->step_begun = now;
}

static void succeeded(struct take *t)
{
        struct cop_op *op = cop_op_find(t->engine, t->serial);

        json_object_set_new(t->timings, "total_ms",
                            json_real((double)(cop_now(CLOCK_MONOTONIC) - t->begun) / USEC_PER_MSEC));
        json_t *view = json_pack("{s:s, s:O, s:O, s:I, s:O}", "sandbox_id", t->target, "files", t->files, "variables",
                                 t->taken, "bytes", (json_int_t)t->bytes, "timings", t->timings);
        take_free(t);
        cop_op_done(op, view, NULL);
}

/* -- variables ------------------------------------------------------------------------------------------------------------- */

static int inside_failed(struct take *t, json_t *reply, struct cop_error *err)
{
        const char *what = json_string_value(json_object_get(reply, "error")),
                   *name = json_string_value(json_object_get(reply, "name")),
                   *message = json_string_value(json_object_get(reply, "message"));
        char max[COP_SIZE_MAX];

        if (!what)
                return 0;
        name = name ? name : "?";
        message = message ? message : "";
        if (strcmp(what, "missing") == 0)
                cop_error_set(err, ENOENT, COP_ERR_variable_not_found,
                              "%.80s has no variable \"%.200s\" in context %.40s", t->from, name,
                              t->context ? t->context : "default");
        else if (strcmp(what, "too_large") == 0)
                cop_error_set(
                        err, EFBIG, COP_ERR_payload_too_large,
                        "variable \"%.200s\" has more than the %s that can be taken; write it to a file and take that",
                        name, cop_format_size(VARIABLE_BYTES_MAX, max));
        else if (strcmp(what, "not_loadable") == 0)
                cop_error_set(err, EINVAL, COP_ERR_not_picklable, "\"%.200s\" cannot be loaded in the target: %.300s",
                              name, message);
        else
                cop_error_set(err, EINVAL, COP_ERR_not_picklable, "variable \"%.200s\" cannot be pickled: %.300s", name,
                              message);
        return -err->errnum;
}

static void run_inside(struct take *t, const char *sandbox, const char *what, cop_inside_fn fn)
{
        _cleanup_json_ json_t *request = json_pack("{s:s, s:O, s:s, s:i}", "do", what, "names", t->variables, "path",
                                                   t->pickle, "bytes", (int)VARIABLE_BYTES_MAX);
        char title[160];
        size_t n = 0;
        json_t *name;
        size_t i;

        title[0] = '\0';
        n += (size_t)snprintf(title, sizeof(title), "take");
        json_array_foreach (t->variables, i, name)
                if (n < 120)
                        n += (size_t)snprintf(title + n, sizeof(title) - n, "%s %.30s", i ? "," : "",
                                              json_string_value(name));
        cop_utf8_trim(title);
        const struct cop_inside_params p = {
                .context = t->context,
                .program = cop_inside_take,
                .program_len = cop_inside_take_len,
                .title = title,
                .request = request,
                .timeout = INSIDE_TIMEOUT,
                .taken = strcmp(sandbox, t->target) == 0,
        };
        cop_inside_run(t->engine, sandbox, &p, fn, t);
}

/* False when the program inside did not do what it was to: the take has failed then. */
static bool went_well(struct take *t, json_t *reply, const struct cop_error *err)
{
        struct cop_error error;

        if (!err && inside_failed(t, reply, &error) < 0)
                err = &error;
        if (err)
                failed(t, err);
        return !err;
}

static void on_received(json_t *reply, const struct cop_error *err, void *userdata)
{
        struct take *t = userdata;

        if (!went_well(t, reply, err))
                return;
        step_done(t, "receive_ms");
        succeeded(t);
}

static void on_pickle_moved(uint64_t bytes, const struct cop_error *err, void *userdata)
{
        struct take *t = userdata;

        if (err) {
                failed(t, err);
                return;
        }
        t->bytes += bytes;
        step_done(t, "move_ms");
        run_inside(t, t->target, "receive", on_received);
}

static void move_pickle(struct take *t)
{
        const struct cop_pump_params p = {
                .from_sandbox = t->source,
                .to_sandbox = t->target,
                .from = {.op = COP_FILE_READ, .path = t->pickle},
                .to = {.op = COP_FILE_WRITE, .path = t->pickle, .mode = 0600, .flags = COP_FILE_EXCLUSIVE},
                .max = VARIABLE_BYTES_MAX,
        };

        t->pickled = true;
        cop_pump(t->engine, &p, on_pickle_moved, t);
}

/* -- files ------------------------------------------------------------------------------------------------------------------- */

static void next_file(struct take *t);

static void on_file_moved(uint64_t bytes, const struct cop_error *err, void *userdata)
{
        struct take *t = userdata;

        if (err) {
                failed(t, err);
                return;
        }
        t->bytes += bytes;
        t->next_file++;
        next_file(t);
}

/* An archive names what it holds relative to the folder that the path lies in. */
static void next_file(struct take *t)
{
        const char *path = json_string_value(json_array_get(t->files, t->next_file));
        char folder[4096];

        if (!path) {
                if (t->next_file > 0)
                        step_done(t, "files_ms");
                if (json_array_size(t->variables) > 0)
                        move_pickle(t);
                else
                        succeeded(t);
                return;
        }
        snprintf(folder, sizeof(folder), "%.*s", (int)MAX_OF(strrchr(path, '/') - path, (ptrdiff_t)1), path);
        const struct cop_pump_params p = {
                .from_sandbox = t->source,
                .to_sandbox = t->target,
                .from = {.op = COP_FILE_TAR, .path = path},
                .to = {.op = COP_FILE_UNTAR, .path = folder, .flags = COP_FILE_PARENTS},
                .max = FILE_BYTES_MAX,
        };
        cop_pump(t->engine, &p, on_file_moved, t);
}

/* -- the source ---------------------------------------------------------------------------------------------------------------- */

/* Names and types for the answer; the kernel's word, so each is looked at. */
static void note_given(struct take *t, json_t *reply)
{
        json_t *entry;
        size_t i;

        json_array_foreach (json_object_get(reply, "variables"), i, entry) {
                json_t *name = json_array_get(t->variables, i), *type = json_object_get(entry, "type");
                bool good = json_is_string(type) && json_string_length(type) <= 300;
                if (name)
                        json_array_append_new(t->taken, json_pack("{s:O, s:s}", "name", name, "type",
                                                                  good ? json_string_value(type) : "?"));
        }
}

static void on_given(json_t *reply, const struct cop_error *err, void *userdata)
{
        struct take *t = userdata;

        if (!went_well(t, reply, err))
                return;
        note_given(t, reply);
        step_done(t, "give_ms");
        next_file(t);
}

static void on_copy(const char *id, const struct cop_error *err, void *userdata)
{
        struct take *t = userdata;

        if (err) {
                failed(t, err);
                return;
        }
        step_done(t, "copy_ms");
        snprintf(t->copy, sizeof(t->copy), "%s", id);
        snprintf(t->source, sizeof(t->source), "%s", id);
        if (json_array_size(t->variables) > 0)
                run_inside(t, t->copy, "give", on_given);
        else
                next_file(t);
}

static void on_state(struct cop_node_row *row, struct cop_state_hold *held, const struct cop_error *err, void *userdata)
{
        struct take *t = userdata;
        bool variables = json_array_size(t->variables) > 0, empty = false;
        struct cop_error error;

        if (row) {
                snprintf(t->node, sizeof(t->node), "%s", row->id);
                t->held = held;
                step_done(t, "node_ms");
        }
        if (!err && variables && cop_state_check_context(row, t->context, &empty, &error) < 0) {
                cop_error_wrap(&error, 0, "%.80s", t->from);
                err = &error;
        }
        if (!err && variables && empty) {
                cop_error_set(&error, ENOENT, COP_ERR_variable_not_found,
                              "%.80s has no variables: no kernel has run there", t->from);
                err = &error;
        }
        if (err)
                failed(t, err);
        else
                cop_copy_make(t->engine, t->node, !variables, on_copy, t);
}

static void on_target(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        struct take *t = userdata;
        struct cop_error error;

        if (sb && json_array_size(t->variables) > 0 && cop_inside_check(t->engine, sb->id, t->context, &error) < 0)
                err = &error;
        if (err) {
                failed(t, err);
                return;
        }
        snprintf(t->target, sizeof(t->target), "%s", sb->id);
        t->step_begun = cop_now(CLOCK_MONOTONIC);
        struct cop_sandbox *from = cop_sandbox_by_ref(t->engine, t->from);
        if (json_array_size(t->variables) == 0 && from && from->state == COP_SANDBOX_RUNNING) {
                snprintf(t->source, sizeof(t->source), "%s", from->id);
                next_file(t);
        } else {
                cop_state_find(t->engine, t->from, json_array_size(t->variables) == 0, on_state, t);
        }
}

/* -- the operation --------------------------------------------------------------------------------------------------------------- */

/* Absolute, and with a last part that has a name. */
static int check_path(const char *path, struct cop_error *err)
{
        const char *last = strrchr(path, '/');

        if (path[0] != '/' || strlen(path) >= 4096 || !last[1] || strcmp(last, "/.") == 0 || strcmp(last, "/..") == 0)
                return cop_error_set(
                        err, EINVAL, COP_ERR_bad_request,
                        "field \"files\": expected absolute paths of files or folders, without / at the end, not "
                        "\"%.200s\"",
                        path);
        return 0;
}

static int check_variable(const char *name, struct cop_error *err)
{
        size_t n = strlen(name);
        bool good = n > 0 && n <= NAME_MAX_BYTES && name[0] != '_';

        for (const unsigned char *c = (const unsigned char *)name; *c; c++)
                good = good &&
                       (*c >= 0x80 || *c == '_' || (*c >= '0' && *c <= '9' && c != (const unsigned char *)name) ||
                        (*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z'));
        return good ? 0
                    : cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                    "field \"variables\": expected names of variables that do not begin with _, not "
                                    "\"%.200s\"",
                                    name);
}

static int check_list(json_t *list, const char *field, int (*check)(const char *text, struct cop_error *err),
                      struct cop_error *err)
{
        json_t *item;
        size_t i;

        if (json_array_size(list) > COP_TAKE_MAX)
                return cop_error_set(err, E2BIG, COP_ERR_bad_request, "field \"%s\": at most %d", field, COP_TAKE_MAX);
        json_array_foreach (list, i, item) {
                int r = json_is_string(item) ? check(json_string_value(item), err)
                                             : cop_json_expected(field, "an array of strings", err);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int check_params(const struct cop_take_params *p, struct cop_error *err)
{
        int r = check_list(p->files, "files", check_path, err);

        if (r == 0)
                r = check_list(p->variables, "variables", check_variable, err);
        if (r == 0 && json_array_size(p->files) + json_array_size(p->variables) == 0)
                r = cop_error_set(err, EINVAL, COP_ERR_bad_request, "nothing to take: name \"files\" or \"variables\"");
        return r;
}

static struct take *take_new(struct cop_engine *e, const struct cop_take_params *p)
{
        struct take *t = calloc(1, sizeof(*t));
        char id[24];

        if (!t)
                return NULL;
        t->engine = e;
        t->begun = t->step_begun = cop_now(CLOCK_MONOTONIC);
        t->from = strdup(p->from);
        t->context = p->context ? strdup(p->context) : NULL;
        t->files = p->files ? json_deep_copy(p->files) : json_array();
        t->variables = p->variables ? json_deep_copy(p->variables) : json_array();
        t->taken = json_array();
        t->timings = json_object();
        snprintf(t->pickle, sizeof(t->pickle), "/tmp/.coppice-%s", cop_id_new(id, "take-", 12));
        if (!t->from || (p->context && !t->context) || !t->files || !t->variables || !t->taken || !t->timings) {
                take_free(t);
                return NULL;
        }
        return t;
}

void cop_take(struct cop_engine *e, const char *ref, const struct cop_take_params *p, struct cop_op_to to,
              struct cop_op **ret_op)
{
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (check_params(p, &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        struct take *t = take_new(e, p);
        struct cop_op *op = t ? cop_op_new(e, to, NULL, NULL) : NULL;
        if (!op) {
                if (t)
                        take_free(t); /* and `to` was told */
                else
                        cop_answer(to, NULL, NULL);
                return;
        }
        t->serial = cop_op_serial(op);
        cop_op_when_running(op, e, ref, on_target, t, ret_op);
}
