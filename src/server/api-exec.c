/* /api/sandboxes/{sb}/exec and /commands: running programs. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "fields.h"
#include "request.h"
#include "stream.h"

#define STDIN_MAX (64u << 20)
#define EXEC_BODY_MAX (STDIN_MAX / 3 * 4 + (2u << 20)) /* as base64, with arguments and environment */
#define ARGV_MAX 4096
#define TIMEOUT_MIN (100 * USEC_PER_MSEC)

/* What parsing makes and the request must free. */
struct exec {
        struct cop_exec_params params;
        const char **argv; /* owned array of borrowed strings */
        char *input;       /* owned: decoded base64 */
};

static void exec_done(struct exec *e)
{
        free(e->argv);
        free(e->input);
}

static int parse_argv(json_t *body, struct exec *e, struct cop_error *err)
{
        json_t *array = NULL, *value;
        size_t i;
        int r = cop_json_get_array(body, "argv", &array, err);

        if (r <= 0)
                return r;
        if (json_array_size(array) == 0 || json_array_size(array) > ARGV_MAX)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"argv\": expected 1 to %d strings",
                                     ARGV_MAX);
        e->argv = calloc(json_array_size(array) + 1, sizeof(*e->argv));
        if (!e->argv)
                return cop_error_errno(err, ENOMEM, "arguments");
        json_array_foreach (array, i, value) {
                if (!json_is_string(value))
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"argv[%zu]\": expected a string",
                                             i);
                e->argv[i] = json_string_value(value);
        }
        if (!e->argv[0] || !*e->argv[0])
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"argv[0]\": the program's name is empty");
        e->params.argv = e->argv;
        return 1;
}

static int parse_stdin(json_t *body, struct exec *e, struct cop_error *err)
{
        const char *text = NULL, *base64 = NULL;
        int r;

        if ((r = cop_json_get_str(body, "stdin", &text, err)) < 0 ||
            (r = cop_json_get_str(body, "stdin_base64", &base64, err)) < 0)
                return r;
        if (text && base64)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "give \"stdin\" or \"stdin_base64\", not both");
        if (text) {
                e->params.stdin_data = text;
                e->params.stdin_len = json_string_length(json_object_get(body, "stdin"));
        } else if (base64) {
                size_t n = json_string_length(json_object_get(body, "stdin_base64"));
                e->input = malloc(n / 4 * 3 + 2);
                if (!e->input)
                        return cop_error_errno(err, ENOMEM, "stdin");
                if (cop_base64_decode_strict(base64, n, e->input, &e->params.stdin_len) < 0)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"stdin_base64\": not base64");
                e->params.stdin_data = e->input;
        }
        if (e->params.stdin_len > STDIN_MAX)
                return cop_error_set(err, EMSGSIZE, COP_ERR_payload_too_large,
                                     "stdin is over the limit of %u MiB; upload a file and redirect it",
                                     STDIN_MAX >> 20);
        return 0;
}

static int parse_timeout(json_t *body, struct cop_exec_params *p, struct cop_error *err)
{
        usec_t timeout = 0;
        int r = cop_json_get_seconds(body, "timeout", COP_CELL_TIMEOUT_MAX, &timeout, err);

        if (r < 0)
                return r;
        if (r == 0)
                timeout = p->detach ? USEC_INFINITY : 0;
        else if (timeout == 0 && !p->detach)
                return cop_error_set(
                        err, EINVAL, COP_ERR_bad_request,
                        "field \"timeout\": 0 (no limit) is only possible with \"detach\"; give 0.1 to 86400 seconds");
        else if (timeout == 0)
                timeout = USEC_INFINITY;
        else if (timeout < TIMEOUT_MIN)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "field \"timeout\": expected a number of seconds from 0.1 to 86400");
        p->timeout = timeout;
        return 0;
}

static int parse_params(json_t *body, struct exec *e, struct cop_error *err)
{
        static const char *const fields[] = {"command",    "argv",         "cwd",     "env",    "user",
                                             "stdin",      "stdin_base64", "timeout", "detach", "on_disconnect",
                                             "output_max", "restart",      NULL};
        static const char *const gone_words[] = {"continue", "kill", NULL};
        struct cop_exec_params *p = &e->params;
        unsigned gone = 0;
        int r;

        if ((r = cop_json_check_keys(body, fields, err)) < 0 ||
            (r = cop_field_text(body, "command", &p->command, err)) < 0 || (r = parse_argv(body, e, err)) < 0)
                return r;
        if (!p->command == !p->argv)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     p->argv ? "give \"command\" or \"argv\", not both"
                                             : "field \"command\" (a shell string) or \"argv\" is missing");
        if ((r = cop_field_text(body, "cwd", &p->cwd, err)) < 0 ||
            (r = cop_field_text(body, "user", &p->user, err)) < 0 ||
            (r = cop_field_env(body, "env", &p->env, err)) < 0 || (r = parse_stdin(body, e, err)) < 0 ||
            (r = cop_json_get_bool(body, "detach", &p->detach, err)) < 0 ||
            (r = cop_json_get_bool(body, "restart", &p->restart, err)) < 0 || (r = parse_timeout(body, p, err)) < 0 ||
            (r = cop_field_word(body, "on_disconnect", gone_words, &gone, err)) < 0 ||
            (r = cop_field_output_max(body, &p->output_max, err)) < 0)
                return r;
        p->kill_on_disconnect = gone == 1;
        return 0;
}

/* -- running ------------------------------------------------------------------------------------------------------ */

static void stream_gone(struct cop_request *r)
{
        if (r->state)
                cop_command_disconnected(r->engine, cop_request_param(r, 0), r->state);
}

static void started(json_t *result, const struct cop_error *err, void *userdata)
{
        cop_stream_begun(userdata, COP_RECORD_COMMAND, result, err);
}

static void run(struct cop_request *r)
{
        enum cop_accept format = cop_accept_parse(cop_request_header(r, "Accept"), COP_ACCEPT_JSON);
        __attribute__((cleanup(exec_done))) struct exec e = {0};
        struct cop_error err = COP_ERROR_NULL;

        if (parse_params(r->json, &e, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        if (format == COP_ACCEPT_JSON || e.params.detach) {
                cop_command_run(r->engine, cop_request_param(r, 0), &e.params, cop_request_to(r), &r->op);
                return;
        }
        e.params.stream = true;
        r->on_gone = stream_gone;
        cop_command_run(r->engine, cop_request_param(r, 0), &e.params, cop_request_to_fn(r, started, NULL), &r->op);
}

/* -- commands ----------------------------------------------------------------------------------------------------- */

static void list(struct cop_request *r)
{
        cop_command_list(r->engine, cop_request_param(r, 0), cop_request_to(r));
}

static void get(struct cop_request *r)
{
        cop_command_get(r->engine, cop_request_param(r, 0), cop_request_param(r, 1), cop_request_to(r));
}

static void stream(struct cop_request *r)
{
        static const char *const names[] = {"after", NULL};
        struct cop_error err = COP_ERROR_NULL;
        uint64_t after = 0;

        if (cop_query_check(&r->uri, names, NULL, &err) < 0 ||
            cop_query_u64(&r->uri, "after", 0, INT64_MAX, &after, &err) < 0) {
                cop_reply_error(r, &err);
                return;
        }
        cop_stream_record(r, COP_RECORD_COMMAND, cop_request_param(r, 0), cop_request_param(r, 1), after, true);
}

/* "TERM", "SIGTERM", 15 */
static int parse_signal(json_t *body, int *ret, struct cop_error *err)
{
        json_t *value = json_object_get(body, "signal");

        if (!value || json_is_null(value))
                return 0;
        if (json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= 64) {
                *ret = (int)json_integer_value(value);
                return 1;
        }
        const char *name = json_is_string(value) ? json_string_value(value) : "";
        if (strncasecmp(name, "SIG", 3) == 0)
                name += 3;
        for (int n = 1; n < 32; n++) {
                const char *known = sigabbrev_np(n);
                if (known && strcasecmp(known, name) == 0) {
                        *ret = n;
                        return 1;
                }
        }
        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                             "field \"signal\": expected a name such as \"TERM\" or a number from 1 to 64");
}

static void kill_one(struct cop_request *r)
{
        static const char *const fields[] = {"signal", "group", NULL};
        struct cop_error err = COP_ERROR_NULL;
        int signo = SIGTERM;
        bool group = true;

        if (cop_json_check_keys(r->json, fields, &err) < 0 || parse_signal(r->json, &signo, &err) < 0 ||
            cop_json_get_bool(r->json, "group", &group, &err) < 0)
                cop_reply_error(r, &err);
        else
                cop_command_kill(r->engine, cop_request_param(r, 0), cop_request_param(r, 1), signo, group,
                                 cop_request_to(r), &r->op);
}

const struct cop_route cop_api_exec[] = {
        {"POST", "/api/sandboxes/{sb}/exec", COP_AUTH_TOKEN, COP_BODY_JSON, EXEC_BODY_MAX, run},
        {"GET", "/api/sandboxes/{sb}/commands", COP_AUTH_TOKEN, COP_BODY_NONE, 0, list},
        {"GET", "/api/sandboxes/{sb}/commands/{cmd}", COP_AUTH_TOKEN, COP_BODY_NONE, 0, get},
        {"GET", "/api/sandboxes/{sb}/commands/{cmd}/stream", COP_AUTH_TOKEN, COP_BODY_NONE, 0, stream},
        {"POST", "/api/sandboxes/{sb}/commands/{cmd}/kill", COP_AUTH_TOKEN, COP_BODY_JSON, 0, kill_one},
        {0},
};
