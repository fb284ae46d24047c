#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli.h"
#include "input.h"
#include "interrupt.h"
#include "params.h"
#include "print.h"
#include "show.h"
#include "verbs.h"

#define STDIN_MAX (64u << 20)

static struct {
        const char *user, *cwd, *status, *logs, *kill, *signal;
        struct cop_list env;
        usec_t timeout;
        uint64_t output_max;
        bool detach, input, no_input, restart, json, list, kill_on_disconnect;
} opt = {.timeout = USEC_INFINITY};

static const struct cop_option options[] = {
        {"user", 'u', COP_OPTION_STRING, &opt.user, "USER", "run as this user of the sandbox"},
        {"cwd", 'w', COP_OPTION_STRING, &opt.cwd, "DIR", "working directory"},
        {"env", 'e', COP_OPTION_LIST, &opt.env, "K=V", "environment; may be repeated"},
        {"timeout", 't', COP_OPTION_DURATION, &opt.timeout, "TIME", "limit (30s; none with --detach)"},
        {"stdin", 'i', COP_OPTION_FLAG, &opt.input, NULL, "send standard input, also from a terminal"},
        {"no-stdin", 'n', COP_OPTION_FLAG, &opt.no_input, NULL, "never read standard input"},
        {"detach", 'd', COP_OPTION_FLAG, &opt.detach, NULL, "do not wait: print {\"pid\":…}"},
        {"restart", 0, COP_OPTION_FLAG, &opt.restart, NULL,
         "with --detach: start it again when the sandbox loses its memory"},
        {"output-max", 0, COP_OPTION_SIZE, &opt.output_max, "SIZE",
         "bytes kept of each stream (1M); what is shown live is never cut"},
        {"kill-on-disconnect", 0, COP_OPTION_FLAG, &opt.kill_on_disconnect, NULL,
         "end the command when this program goes away"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "print the whole command as JSON when it has ended"},
        {"status", 0, COP_OPTION_STRING, &opt.status, "PID", "print the state of a command as JSON"},
        {"logs", 0, COP_OPTION_STRING, &opt.logs, "PID", "show the output of a command, live while it runs"},
        {"kill", 0, COP_OPTION_STRING, &opt.kill, "PID", "end a command and its process group"},
        {"signal", 's', COP_OPTION_STRING, &opt.signal, "NAME", "signal for --kill (TERM)"},
        {"list", 0, COP_OPTION_FLAG, &opt.list, NULL, "list the commands of the sandbox"},
        {0},
};

struct running {
        struct cop_show show;
        const char *sandbox;
        bool attached_only; /* --logs: Ctrl-C leaves the command alone */
};

/* -- running -------------------------------------------------------------------------------------------------------- */

static int on_event(json_t *event, void *userdata)
{
        struct running *r = userdata;

        cop_show_event(&r->show, event);
        return 0;
}

static int on_interrupt(void *userdata)
{
        struct running *r = userdata;
        struct cop_error err = COP_ERROR_NULL;
        int signo = cop_interrupt_take();

        if (signo == 0)
                return 0;
        if (r->attached_only)
                return 1;
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/commands/%s/kill", r->sandbox, r->show.id);
        _cleanup_json_ json_t *body = json_pack("{s:s}", "signal", signo == SIGINT ? "INT" : "TERM");
        if (path && r->show.id[0] && cop_client_call(r->show.cli->client, "POST", path, body, NULL, &err) < 0)
                cop_cli_note(r->show.cli, "%s", err.message);
        return 0;
}

static int stream(struct cop_cli *cli, const char *sandbox, const char *method, const char *path, json_t *body)
{
        struct running r = {.sandbox = sandbox, .attached_only = opt.logs != NULL};
        struct cop_stream_request request = {.method = method,
                                             .path = path,
                                             .body = body,
                                             .event = on_event,
                                             .wake_fd = cop_interrupt_catch(),
                                             .woken = on_interrupt,
                                             .userdata = &r};
        int exit;

        cop_show_init(&r.show, cli);
        int k = cop_client_stream(cli->client, &request, &cli->err);
        if (k < 0) {
                cop_cli_fail(cli);
                exit = COP_EXIT_FAILED;
        } else if (k > 0) {
                exit = COP_EXIT_INTERRUPTED;
        } else if (!r.show.end) {
                cop_cli_note(cli, "the stream ended before the command did");
                exit = COP_EXIT_FAILED;
        } else {
                exit = cop_show_command_status(&r.show, r.show.end);
        }
        cop_show_done(&r.show);
        return opt.logs && k == 0 ? COP_EXIT_OK : exit;
}

static int add_input(struct cop_cli *cli, json_t *body)
{
        _cleanup_buf_ struct cop_buf input = COP_BUF(STDIN_MAX);
        int r;

        if (opt.no_input || (!opt.input && (opt.detach || !cop_input_piped())))
                return 0;
        r = cop_input_read("-", &input, &cli->err);
        if (r == 0 && input.len > 0) {
                _cleanup_free_ char *text = cop_base64_encode(input.data, input.len);
                r = text && json_object_set_new(body, "stdin_base64", json_string(text)) == 0 ? 0 : -ENOMEM;
        }
        return r;
}

/* One argument is a line for the shell, several (or any behind --) are a program and its arguments. */
static void add_command(struct cop_cli *cli, json_t *body, size_t argc, char **argv)
{
        json_t *list;

        if (argc == 1 && cli->after_dashes == 0) {
                cop_param_str(body, "command", argv[0]);
                return;
        }
        list = json_array();
        for (size_t i = 0; i < argc; i++)
                json_array_append_new(list, cop_json_foreign_string(argv[i], strlen(argv[i])));
        json_object_set_new(body, "argv", list);
}

static json_t *make_body(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_json_ json_t *body = json_object();

        add_command(cli, body, argc, argv);
        cop_param_str(body, "user", opt.user);
        cop_param_str(body, "cwd", opt.cwd);
        if (cop_param_map(body, "env", &opt.env, &cli->err) < 0 || add_input(cli, body) < 0)
                return NULL;
        if (opt.timeout == 0 || (opt.detach && opt.timeout == USEC_INFINITY))
                json_object_set_new(body, "timeout", json_integer(0)); /* a server that was detached is meant to stay */
        else if (opt.timeout != USEC_INFINITY)
                cop_param_seconds(body, "timeout", opt.timeout);
        cop_param_u64(body, "output_max", opt.output_max);
        if (opt.detach)
                json_object_set_new(body, "detach", json_true());
        if (opt.restart)
                json_object_set_new(body, "restart", json_true());
        if (opt.kill_on_disconnect)
                cop_param_str(body, "on_disconnect", "kill");
        return TAKE_PTR(body);
}

/* -- about commands ------------------------------------------------------------------------------------------------- */

/* The command with what one asks for first: pid, status, running. */
static json_t *pid_first(json_t *command)
{
        static const char *const first[] = {"pid", "status", "running"};
        json_t *ordered = json_object();

        for (size_t i = 0; i < ELEMENTSOF(first); i++)
                if (json_object_get(command, first[i]))
                        json_object_set(ordered, first[i], json_object_get(command, first[i]));
        json_object_update(ordered, command);
        return ordered;
}

static int print_command(struct cop_cli *cli, const char *method, const char *path, json_t *body)
{
        _cleanup_json_ json_t *command = NULL;

        if (!cop_cli_call(cli, method, path, body, &command))
                return COP_EXIT_FAILED;
        _cleanup_json_ json_t *ordered = pid_first(command);
        cop_print_json(ordered, false);
        if (!opt.json || opt.detach || opt.status)
                return COP_EXIT_OK;
        struct cop_show show;
        cop_show_init(&show, cli);
        return cop_show_command_status(&show, command);
}

static int kill_command(struct cop_cli *cli, const char *sandbox)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/commands/%s/kill", sandbox, opt.kill);
        _cleanup_json_ json_t *body = json_object();

        cop_param_str(body, "signal", opt.signal);
        return cop_cli_call(cli, "POST", path, body, NULL) ? COP_EXIT_OK : COP_EXIT_ERROR;
}

static int list_commands(struct cop_cli *cli, const char *sandbox)
{
        static const char *const headings[] = {"PID", "STATUS", "EXIT", "AGE", "COMMAND"};
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/commands", sandbox);
        _cleanup_json_ json_t *reply = NULL;
        json_t *command;
        size_t i;

        if (!cop_cli_call(cli, "GET", path, NULL, &reply))
                return COP_EXIT_ERROR;
        if (opt.json) {
                cop_print_json(json_object_get(reply, "commands"), cli->out_tty);
                return COP_EXIT_OK;
        }
        struct cop_table *t = cop_table_new(ELEMENTSOF(headings), headings);
        json_array_foreach (json_object_get(reply, "commands"), i, command) {
                char pid[24], code[24] = "", age[24];
                _cleanup_free_ char *text = cop_command_text(command);
                snprintf(pid, sizeof(pid), "%lld", (long long)json_integer_value(json_object_get(command, "pid")));
                if (json_is_integer(json_object_get(command, "exit_code")))
                        snprintf(code, sizeof(code), "%lld",
                                 (long long)json_integer_value(json_object_get(command, "exit_code")));
                const char *cells[] = {pid, cop_member(command, "status", ""), code,
                                       cop_age(cop_member(command, "started_at", NULL), age, sizeof(age)), text};
                cop_table_add(t, cells);
        }
        cop_table_print(t);
        cop_table_free(t);
        return COP_EXIT_OK;
}

static int about(struct cop_cli *cli, const char *sandbox)
{
        _cleanup_free_ char *path = NULL;

        if (opt.kill)
                return kill_command(cli, sandbox);
        if (opt.list)
                return list_commands(cli, sandbox);
        path = opt.status ? cop_cli_path("/api/sandboxes/%s/commands/%s", sandbox, opt.status)
                          : cop_cli_path("/api/sandboxes/%s/commands/%s/stream", sandbox, opt.logs);
        return opt.status ? print_command(cli, "GET", path, NULL) : stream(cli, sandbox, "GET", path, NULL);
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_json_ json_t *body = NULL;
        int questions = !!opt.status + !!opt.logs + !!opt.kill + opt.list;

        if (questions > 1)
                return cop_cli_usage(cli, "--status, --logs, --kill and --list exclude each other");
        if (questions == 1 && argc > 1)
                return cop_cli_usage(cli, "--status, --logs, --kill and --list take no command");
        if (questions == 0 && argc < 2)
                return cop_cli_usage(cli, "the command is missing");
        if (questions == 1)
                return cop_cli_connect(cli) ? about(cli, argv[0]) : COP_EXIT_NO_DAEMON;
        if (!(body = make_body(cli, argc - 1, argv + 1)))
                return cop_cli_usage(cli, "%s", cli->err.message);
        if (!cop_cli_connect(cli))
                return COP_EXIT_FAILED;
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/exec", argv[0]);
        if (opt.detach || opt.json)
                return print_command(cli, "POST", path, body);
        return stream(cli, argv[0], "POST", path, body);
}

const struct cop_verb cop_verb_exec = {
        .name = "exec",
        .args = "SANDBOX COMMAND | SANDBOX -- PROGRAM [ARG…]",
        .summary = "run a shell command in a sandbox: its output, its exit status",
        .notes = "One argument is a line for the shell; several are a program with its arguments. Piped standard input "
                 "is sent\n"
                 "along. Exit status: the command's own; 127 unknown command, 124 at the time limit, 128+n ended by "
                 "signal n,\n"
                 "125 when Coppice itself failed. Ctrl-C is passed on as SIGINT.",
        .examples = "coppice exec demo 'ls -la ~ && echo $?'\n"
                    "coppice exec demo --cwd /workspace -- git log --oneline\n"
                    "tar c . | coppice exec demo 'tar x -C /workspace'\n"
                    "coppice exec demo --detach 'python3 -m http.server 8000'   # {\"pid\":578,…}\n"
                    "coppice exec demo --status 578\n"
                    "coppice exec demo --logs 578\n"
                    "coppice exec demo --kill 578",
        .options = options,
        .args_min = 1,
        .args_max = 1000,
        .run = run,
};
