#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "input.h"
#include "interrupt.h"
#include "params.h"
#include "print.h"
#include "show.h"
#include "verbs.h"

#define CODE_MAX (256u << 20) /* the daemon has its own, smaller limit and says so */
#define ANSWER_MAX 65536

static struct {
        const char *file, *context, *attach;
        usec_t timeout;
        uint64_t output_max;
        bool json, detach, input, quiet, interrupt_on_disconnect, pure;
} opt;

static const struct cop_option options[] = {
        {"file", 'f', COP_OPTION_STRING, &opt.file, "FILE", "read the code from a file, - for standard input"},
        {"context", 'c', COP_OPTION_STRING, &opt.context, "CONTEXT", "run there instead of in the default context"},
        {"timeout", 't', COP_OPTION_DURATION, &opt.timeout, "TIME", "limit of this cell (30s), at most 24h"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "print the whole cell as JSON when it has ended"},
        {"detach", 'd', COP_OPTION_FLAG, &opt.detach, NULL, "do not wait: print the cell's id"},
        {"attach", 'a', COP_OPTION_STRING, &opt.attach, "CELL",
         "show a cell that runs or has ended, from its beginning"},
        {"stdin", 'i', COP_OPTION_FLAG, &opt.input, NULL, "answer input() from standard input"},
        {"output-max", 0, COP_OPTION_SIZE, &opt.output_max, "SIZE", "bytes kept of each stream (1M)"},
        {"interrupt-on-disconnect", 0, COP_OPTION_FLAG, &opt.interrupt_on_disconnect, NULL,
         "end the cell when this program goes away"},
        {"pure", 0, COP_OPTION_FLAG, &opt.pure, NULL,
         "the code may be run again without harm: see coppice resume --replay pure"},
        {"quiet", 'q', COP_OPTION_FLAG, &opt.quiet, NULL, "no status line"},
        {0},
};

struct running {
        struct cop_show show;
        const char *sandbox;
        int interrupts;
};

static void call_cell(struct running *r, const char *what, json_t *body)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/cells/%s/%s", r->sandbox, r->show.id, what);
        struct cop_error err = COP_ERROR_NULL;

        if (path && r->show.id[0] && cop_client_call(r->show.cli->client, "POST", path, body, NULL, &err) < 0)
                cop_cli_note(r->show.cli, "%s: %s", what, err.message);
}

static void answer_input(struct running *r, json_t *event)
{
        _cleanup_buf_ struct cop_buf answer = COP_BUF(ANSWER_MAX);
        _cleanup_json_ json_t *body = json_object();
        struct cop_error err = COP_ERROR_NULL;

        if (cop_input_ask(cop_member(event, "prompt", ""), json_is_true(json_object_get(event, "password")), &answer,
                          &err) < 0) {
                cop_cli_note(r->show.cli, "the code waits for input, but %s: the cell is interrupted", err.message);
                call_cell(r, "interrupt", NULL);
                return;
        }
        json_object_set_new(body, "value", cop_json_foreign_string(answer.data, answer.len));
        call_cell(r, "input", body);
        r->show.at_line_start = true;
}

static int on_event(json_t *event, void *userdata)
{
        struct running *r = userdata;

        if (strcmp(cop_member(event, "type", ""), "input_request") == 0)
                answer_input(r, event);
        else
                cop_show_event(&r->show, event);
        return 0;
}

static int on_interrupt(void *userdata)
{
        struct running *r = userdata;

        if (cop_interrupt_take() == 0)
                return 0;
        cop_cli_note(r->show.cli, "interrupting the cell; once more leaves it running");
        call_cell(r, "interrupt", NULL);
        return 0;
}

static int stream(struct cop_cli *cli, const char *sandbox, const char *method, const char *path, json_t *body)
{
        struct running r = {.sandbox = sandbox};
        struct cop_stream_request request = {.method = method,
                                             .path = path,
                                             .body = body,
                                             .event = on_event,
                                             .wake_fd = cop_interrupt_catch(),
                                             .woken = on_interrupt,
                                             .userdata = &r};
        int exit;

        cop_show_init(&r.show, cli);
        r.show.quiet = opt.quiet;
        if (opt.attach)
                snprintf(r.show.id, sizeof(r.show.id), "%s", opt.attach);
        int k = cop_client_stream(cli->client, &request, &cli->err);
        if (k < 0) {
                exit = cop_cli_fail(cli);
                if (r.show.id[0])
                        cop_cli_note(cli, "the cell may go on: coppice run %s --attach %s", sandbox, r.show.id);
        } else if (!r.show.end) {
                cop_cli_note(cli, "the stream ended before the cell did");
                exit = COP_EXIT_LOST;
        } else {
                exit = cop_show_cell_status(&r.show, r.show.end);
        }
        cop_show_done(&r.show);
        return exit;
}

static int print_whole(struct cop_cli *cli, const char *method, const char *path, json_t *body)
{
        _cleanup_json_ json_t *cell = NULL;
        struct cop_show show;

        if (!cop_cli_call(cli, method, path, body, &cell))
                return COP_EXIT_ERROR;
        if (opt.detach && !opt.json) {
                puts(cop_member(cell, "id", ""));
                return COP_EXIT_OK;
        }
        cop_print_json(cell, cli->out_tty);
        if (opt.detach)
                return COP_EXIT_OK;
        cop_show_init(&show, cli);
        show.quiet = true;
        return cop_show_cell_status(&show, cell);
}

static json_t *make_body(const struct cop_buf *code)
{
        json_t *body = json_object();

        json_object_set_new(body, "code", cop_json_foreign_string(code->data ? code->data : "", code->len));
        cop_param_str(body, "context", opt.context);
        cop_param_seconds(body, "timeout", opt.timeout);
        cop_param_u64(body, "output_max", opt.output_max);
        if (opt.input)
                cop_param_str(body, "stdin", "open");
        if (opt.interrupt_on_disconnect)
                cop_param_str(body, "on_disconnect", "interrupt");
        if (opt.detach)
                json_object_set_new(body, "detach", json_true());
        if (opt.pure)
                json_object_set_new(body, "pure", json_true());
        return body;
}

static int read_code(struct cop_cli *cli, size_t argc, char **argv, struct cop_buf *code)
{
        const char *file = opt.file;

        if (!file && argc > 1 && strcmp(argv[1], "-") != 0)
                return cop_buf_adds(code, argv[1]);
        if (!file && argc < 2 && !cop_input_piped())
                return cop_error_set(&cli->err, EINVAL, COP_ERR_bad_request,
                                     "the code is missing: give it as argument, with -f FILE, or on standard input");
        return cop_input_read(file ? file : "-", code, &cli->err);
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_buf_ struct cop_buf code = COP_BUF(CODE_MAX);
        _cleanup_free_ char *path = NULL;
        _cleanup_json_ json_t *body = NULL;

        if (opt.attach) {
                if (argc > 1 || opt.file || opt.detach)
                        return cop_cli_usage(cli, "--attach takes no code");
                path = cop_cli_path(opt.json ? "/api/sandboxes/%s/cells/%s" : "/api/sandboxes/%s/cells/%s/stream",
                                    argv[0], opt.attach);
                if (!cop_cli_connect(cli))
                        return COP_EXIT_NO_DAEMON;
                return opt.json ? print_whole(cli, "GET", path, NULL) : stream(cli, argv[0], "GET", path, NULL);
        }
        if (argc > 1 && opt.file)
                return cop_cli_usage(cli, "give the code either as argument or with -f, not both");
        if (opt.input && opt.json)
                return cop_cli_usage(cli, "--stdin and --json exclude each other: nobody could see the question");
        if (read_code(cli, argc, argv, &code) < 0)
                return cop_cli_usage(cli, "%s", cli->err.message);
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        body = make_body(&code);
        path = cop_cli_path("/api/sandboxes/%s/cells", argv[0]);
        if (opt.json || opt.detach)
                return print_whole(cli, "POST", path, body);
        return stream(cli, argv[0], "POST", path, body);
}

const struct cop_verb cop_verb_run = {
        .name = "run",
        .args = "SANDBOX [CODE | -f FILE | -]",
        .summary = "run code in a sandbox; variables stay for the next run",
        .notes = "The program's standard output and the text of results go to standard output, everything else to "
                 "standard error,\n"
                 "the status line [ok #3] last. Exit status: 0 ok, 1 the code raised an error, 124 timeout, 130 "
                 "interrupted,\n"
                 "137 the kernel died or ran out of memory, 126 the result is lost. Ctrl-C interrupts the cell.",
        .examples = "coppice run demo 'x = 41'\n"
                    "coppice run demo 'print(x + 1)'\n"
                    "coppice run demo -f script.py --timeout 5m\n"
                    "echo '1 + 1' | coppice run demo --json\n"
                    "coppice run demo --detach 'train()'      # prints cell_…\n"
                    "coppice run demo --attach cell_…         # shows it from the beginning",
        .options = options,
        .args_min = 1,
        .args_max = 2,
        .run = run,
};
