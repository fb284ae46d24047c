/* coppice-kernel-drive: a developer's tool and the hand of tests/kernel.  Starts one kernel without a sandbox, speaks to it
 * through the client of this folder, and is itself driven by JSON lines.
 *
 *      coppice-kernel-drive --dir DIR [--inside PATH] [--stock] [--module-dir DIR] [--python PATH] [--cut N] [-- PREFIX…]
 *
 * DIR holds the connection file and the sockets; the kernel sees it at PATH.  PREFIX is put before the kernel's argv (a
 * chroot, say) and must exec it, so that its pid is the kernel's.  --stock: the plain kernelspec line.  Texts longer than N
 * bytes (65536) are printed in part, always with their length.
 *
 * In:  {"op": "execute", "code", "silent", "no_history", "allow_stdin", "stop_on_error", "user_expressions", "settle_ms"}
 *      {"op": "input", "value"}, {"op": "signal", "number", "group"}, {"op": "poke" | "interrupt" | "abandon" | "stats" |
 *      "quit"}, {"op": "shutdown", "restart"}, {"op": "stall", "ms"}: sleeps without reading,
 *      {"op": "reopen", "greeting", "idle", "met"}: another client; with code of a greeting it asks for nothing else; met: which was
 *      connected some time before it is opened
 * Out: one object a line, "event": ready, failed, output, input_request, done, exit, status, stats, error.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/child.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/utf8.h"
#include "jupyter/connection.h"
#include "jupyter/kernel.h"

#define MET_USEC 50000
#define LINE_MAX_BYTES (512 * 1024 * 1024)

struct drive {
        struct cop_loop *loop;
        struct cop_jupyter *jupyter;
        struct cop_kernel *kernel;
        struct cop_buf input;
        const char *dir, *inside, *python, *module_dir;
        char **prefix;
        char key[33], session[33];
        char running_id[300];
        int dir_fd;
        size_t cut;
        bool stock, exited;
        pid_t pid;
        usec_t started;
};

/* Takes the reference. */
static void emit(json_t *event)
{
        char *text = event ? json_dumps(event, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

        if (text) {
                fputs(text, stdout);
                fputc('\n', stdout);
                fflush(stdout);
        }
        free(text);
        json_decref(event);
}

static void emit_error(const char *event, const struct cop_error *err)
{
        emit(json_pack("{ss ss ss}", "event", event, "code", cop_err_code_name(err->code), "message", err->message));
}

static json_t *cut_text(const struct drive *d, const char *s, size_t n)
{
        return json_stringn(s, n > d->cut ? cop_utf8_cut(s, d->cut) : n);
}

/* A copy of value with long strings cut, one level deep: MIME bundles and tracebacks. */
static json_t *cut_values(const struct drive *d, json_t *value)
{
        const char *key;
        json_t *item, *copy;

        if (!json_is_object(value))
                return json_incref(value);
        copy = json_object();
        json_object_foreach (value, key, item) {
                if (!json_is_string(item)) {
                        json_object_set(copy, key, item);
                        continue;
                }
                json_object_set_new(copy, key, cut_text(d, json_string_value(item), json_string_length(item)));
        }
        return copy;
}

static json_t *output_json(const struct drive *d, const char *id, const struct cop_output *o, bool late)
{
        static const char *const kinds[] = {"stream", "display", "result", "update_display", "clear", "error"};
        json_t *j = json_pack("{ss ss? sb ss sb sf}", "event", "output", "id", id, "late", late, "kind", kinds[o->kind],
                              "parentless", o->parentless, "time", (double)o->time / 1e6);

        switch (o->kind) {
        case COP_OUTPUT_STREAM:
                json_object_set_new(j, "name", json_string(o->stream == COP_STREAM_STDERR ? "stderr" : "stdout"));
                json_object_set_new(j, "text", cut_text(d, o->text, o->text_len));
                json_object_set_new(j, "len", json_integer((json_int_t)o->text_len));
                break;
        case COP_OUTPUT_DISPLAY:
        case COP_OUTPUT_RESULT:
        case COP_OUTPUT_UPDATE_DISPLAY:
                json_object_set_new(j, "data", cut_values(d, o->data));
                json_object_set(j, "metadata", o->metadata);
                if (o->display_id)
                        json_object_set_new(j, "display_id", json_string(o->display_id));
                json_object_set_new(j, "execution_count", json_integer(o->execution_count));
                break;
        case COP_OUTPUT_CLEAR:
                json_object_set_new(j, "wait", json_boolean(o->wait));
                break;
        case COP_OUTPUT_ERROR:
                json_object_set_new(j, "ename", json_string(o->ename));
                json_object_set_new(j, "evalue", cut_text(d, o->evalue, strlen(o->evalue)));
                json_object_set(j, "traceback", o->traceback);
                break;
        }
        return j;
}

/* -- events of the client ---------------------------------------------------------------------------------------------- */

static void on_output(struct cop_execution *x, const struct cop_output *o, void *userdata)
{
        emit(output_json(userdata, cop_execution_id(x), o, false));
}

static void on_late(struct cop_kernel *k, const char *msg_id, const struct cop_output *o, void *userdata)
{
        emit(output_json(userdata, msg_id, o, true));
}

static void on_input_request(struct cop_execution *x, const char *prompt, bool password, void *userdata)
{
        emit(json_pack("{ss ss ss sb}", "event", "input_request", "id", cop_execution_id(x), "prompt", prompt,
                       "password", password));
}

static void on_done(struct cop_execution *x, const struct cop_execution_result *r, void *userdata)
{
        static const char *const statuses[] = {"ok", "error", "aborted", "no_reply"};

        emit(json_pack("{ss ss ss sI ss? ss? sO? sO? sb sb sf}", "event", "done", "id", cop_execution_id(x), "status",
                       statuses[r->status], "execution_count", (json_int_t)r->execution_count, "ename", r->ename,
                       "evalue", r->evalue, "traceback", r->traceback, "user_expressions", r->user_expressions,
                       "ask_exit", r->ask_exit, "output_incomplete", r->output_incomplete, "ms",
                       (double)r->duration / 1e3));
}

static const struct cop_execution_events execution_events = {on_output, on_input_request, on_done};

static void on_ready(struct cop_kernel *k, const struct cop_kernel_info *info, void *userdata)
{
        struct drive *d = userdata;

        emit(json_pack("{ss sf ss? ss? ss? ss? sI}", "event", "ready", "ms",
                       (double)(cop_now(CLOCK_MONOTONIC) - d->started) / 1e3, "protocol_version",
                       info->protocol_version, "implementation_version", info->implementation_version, "language",
                       info->language, "language_version", info->language_version, "pid", (json_int_t)d->pid));
        /* After reopen: go on with what the former client sent. */
        if (d->running_id[0])
                cop_kernel_adopt_execution(k, d->running_id, &execution_events, d, NULL, NULL);
        d->running_id[0] = '\0';
}

static void on_failed(struct cop_kernel *k, const struct cop_error *error, void *userdata)
{
        emit_error("failed", error);
}

static const struct cop_kernel_events kernel_events = {
        .ready = on_ready,
        .failed = on_failed,
        .late_output = on_late,
};

/* how: of the command that opens it anew, NULL = it has just been started. */
static int open_kernel(struct drive *d, json_t *how, struct cop_error *err)
{
        struct cop_kernel_options options = {
                .dir_fd = d->dir_fd,
                .key = d->key,
                .session = d->session,
                .adopt = how,
                .idle = json_is_true(json_object_get(how, "idle")),
                .holds_back = !d->stock,
        };

        if (json_is_true(json_object_get(how, "met"))) {
                int r = cop_kernel_meet(d->jupyter, &options, &options.met, err);
                if (r < 0)
                        return r;
                usleep(MET_USEC);
        }
        d->started = how ? cop_now(CLOCK_MONOTONIC) : d->started;
        return cop_kernel_open(d->jupyter, &options, &kernel_events, d, &d->kernel, err);
}

/* -- the kernel process ------------------------------------------------------------------------------------------------ */

static void on_exit_child(struct cop_source *s, const siginfo_t *si, void *userdata)
{
        struct drive *d = userdata;

        d->exited = true;
        if (d->kernel)
                cop_kernel_died(d->kernel);
        emit(json_pack("{ss si si}", "event", "exit", "rc", si->si_code == CLD_EXITED ? si->si_status : -1, "signal",
                       si->si_code == CLD_EXITED ? 0 : si->si_status));
}

static size_t count(char **list)
{
        size_t n = 0;

        while (list && list[n])
                n++;
        return n;
}

static int spawn(struct drive *d, const struct cop_launch *l, struct cop_error *err)
{
        size_t prefix = count(d->prefix), args = count(l->argv), inherited = count(environ), set = count(l->env);
        _cleanup_free_ const char **argv = calloc(prefix + args + 1, sizeof(*argv));
        _cleanup_free_ const char **env = calloc(inherited + set + 1, sizeof(*env));
        _cleanup_close_ int log_fd = openat(d->dir_fd, "log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

        if (!argv || !env || log_fd < 0)
                return cop_error_errno(err, errno, "starting the kernel");
        for (size_t i = 0; i < prefix; i++)
                argv[i] = d->prefix[i];
        for (size_t i = 0; i < args; i++)
                argv[prefix + i] = l->argv[i];
        /* Ours first: getenv finds the first one. */
        for (size_t i = 0; i < set; i++)
                env[i] = l->env[i];
        for (size_t i = 0; i < inherited; i++)
                env[set + i] = environ[i];
        struct cop_child_fd fds[] = {{log_fd, 1}, {log_fd, 2}};
        struct cop_child_spec spec = {
                .path = argv[0],
                .argv = argv,
                .env = env,
                .fds = fds,
                .fd_count = 2,
                .new_session = true,
                .death_signal = SIGKILL,
        };
        d->started = cop_now(CLOCK_MONOTONIC);
        int r = cop_child_spawn(&spec, &d->pid, err);
        return r < 0 ? r : cop_loop_add_child(d->loop, d->pid, on_exit_child, d, NULL, err);
}

static int start(struct drive *d, struct cop_error *err)
{
        _cleanup_buf_ struct cop_buf file = COP_BUF(4096);
        _cleanup_(cop_launch_done) struct cop_launch launch = {0};
        char connection_file[4096], base[4096];
        char *argv[] = {(char *)d->python,           (char *)"-m", (char *)"ipykernel_launcher", (char *)"-f",
                        (char *)"{connection_file}", NULL};
        struct cop_kernelspec spec = {.name = (char *)"python3", .argv = argv, .env = &argv[5]};
        struct cop_launch_options options = {
                .connection_file = connection_file,
                .parent_pid = getpid(),
                .coppice_kernel = !d->stock,
                .coppice_launcher = !d->stock,
                .module_dir = d->module_dir,
        };

        snprintf(connection_file, sizeof(connection_file), "%s/c.json", d->inside);
        snprintf(base, sizeof(base), "%s/k", d->inside);
        int r = cop_connection_file(base, d->key, "python3", &file, err);
        if (r >= 0)
                r = cop_write_file_atomic(d->dir_fd, "c.json", file.data, file.len, 0644, err);
        if (r >= 0)
                r = cop_launch_kernelspec(&spec, &options, &launch, err);
        if (r >= 0)
                r = spawn(d, &launch, err);
        return r < 0 ? r : open_kernel(d, NULL, err);
}

/* -- commands ---------------------------------------------------------------------------------------------------------- */

static int op_execute(struct drive *d, json_t *j, struct cop_error *err)
{
        json_t *code = json_object_get(j, "code");
        struct cop_execute_options options = {
                .silent = json_is_true(json_object_get(j, "silent")),
                .no_history = json_is_true(json_object_get(j, "no_history")),
                .allow_stdin = json_is_true(json_object_get(j, "allow_stdin")),
                .stop_on_error = json_is_true(json_object_get(j, "stop_on_error")),
                .user_expressions = json_object_get(j, "user_expressions"),
                .settle = (usec_t)json_integer_value(json_object_get(j, "settle_ms")) * USEC_PER_MSEC,
        };

        return cop_kernel_execute(d->kernel, json_string_value(code), json_string_length(code), &options,
                                  &execution_events, d, NULL, err);
}

static int op_signal(struct drive *d, json_t *j, struct cop_error *err)
{
        int number = (int)json_integer_value(json_object_get(j, "number"));
        pid_t target = json_is_true(json_object_get(j, "group")) ? -d->pid : d->pid;

        return kill(target, number) < 0 ? cop_error_errno(err, errno, "kill") : 0;
}

static int op_reopen(struct drive *d, json_t *j, struct cop_error *err)
{
        const struct cop_execute_options options = {.silent = true, .no_history = true, .greets = true};
        json_t *greeting = json_object_get(j, "greeting");
        struct cop_execution *x = cop_kernel_running(d->kernel);

        snprintf(d->running_id, sizeof(d->running_id), "%s", x ? cop_execution_id(x) : "");
        d->kernel = cop_kernel_free(d->kernel);
        int r = open_kernel(d, j, err);
        if (r < 0 || !greeting)
                return r;
        return cop_kernel_execute(d->kernel, json_string_value(greeting), json_string_length(greeting), &options,
                                  &execution_events, d, NULL, err);
}

static void op_stats(struct drive *d)
{
        struct cop_kernel_stats s;

        cop_kernel_get_stats(d->kernel, &s);
        emit(json_pack("{ss sI sI sI sI sI sI}", "event", "stats", "messages", (json_int_t)s.messages, "bytes",
                       (json_int_t)s.bytes, "bad_signature", (json_int_t)s.bad_signature, "malformed",
                       (json_int_t)s.malformed, "repaired", (json_int_t)s.repaired, "disconnects",
                       (json_int_t)s.disconnects));
}

static void command(struct drive *d, json_t *j)
{
        struct cop_error error = COP_ERROR_NULL;
        const char *op = json_string_value(json_object_get(j, "op"));
        json_t *value = json_object_get(j, "value");
        int r = 0;

        if (!op)
                r = cop_error_set(&error, EINVAL, COP_ERR_bad_request, "no op");
        else if (strcmp(op, "execute") == 0)
                r = op_execute(d, j, &error);
        else if (strcmp(op, "input") == 0 && cop_kernel_running(d->kernel))
                r = cop_execution_input(cop_kernel_running(d->kernel), json_string_value(value),
                                        json_string_length(value), &error);
        else if (strcmp(op, "signal") == 0)
                r = op_signal(d, j, &error);
        else if (strcmp(op, "poke") == 0)
                r = cop_kernel_poke(d->kernel, &error);
        else if (strcmp(op, "interrupt") == 0)
                r = cop_kernel_interrupt(d->kernel, &error);
        else if (strcmp(op, "shutdown") == 0)
                r = cop_kernel_shutdown(d->kernel, json_is_true(json_object_get(j, "restart")), &error);
        else if (strcmp(op, "abandon") == 0)
                cop_execution_abandon(cop_kernel_running(d->kernel));
        else if (strcmp(op, "reopen") == 0)
                r = op_reopen(d, j, &error);
        else if (strcmp(op, "stall") == 0)
                usleep((useconds_t)json_integer_value(json_object_get(j, "ms")) * 1000);
        else if (strcmp(op, "stats") == 0)
                op_stats(d);
        else if (strcmp(op, "quit") == 0)
                cop_loop_quit(d->loop, 0);
        else
                r = cop_error_set(&error, EINVAL, COP_ERR_bad_request, "cannot %s now", op);
        if (r < 0)
                emit_error("error", &error);
}

static void on_stdin(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct drive *d = userdata;
        ssize_t n = cop_buf_read(&d->input, fd, 65536);
        char *newline;

        if (n <= 0) {
                cop_loop_quit(d->loop, 0);
                return;
        }
        while (d->input.len && (newline = memchr(d->input.data, '\n', d->input.len))) {
                size_t len = (size_t)(newline - d->input.data);
                _cleanup_json_ json_t *j = json_loadb(d->input.data, len, JSON_ALLOW_NUL, NULL);
                cop_buf_consume(&d->input, len + 1);
                command(d, j);
        }
}

static int parse_args(struct drive *d, int argc, char **argv)
{
        static const struct option options[] = {
                {"dir", required_argument, NULL, 'd'},
                {"inside", required_argument, NULL, 'i'},
                {"stock", no_argument, NULL, 's'},
                {"module-dir", required_argument, NULL, 'm'},
                {"python", required_argument, NULL, 'p'},
                {"cut", required_argument, NULL, 'c'},
                {0},
        };

        for (int c; (c = getopt_long(argc, argv, "+", options, NULL)) >= 0;) {
                switch (c) {
                case 'd':
                        d->dir = optarg;
                        break;
                case 'i':
                        d->inside = optarg;
                        break;
                case 's':
                        d->stock = true;
                        break;
                case 'm':
                        d->module_dir = optarg;
                        break;
                case 'p':
                        d->python = optarg;
                        break;
                case 'c':
                        d->cut = strtoul(optarg, NULL, 10);
                        break;
                default:
                        return -EINVAL;
                }
        }
        if (!d->inside)
                d->inside = d->dir;
        d->prefix = argv + optind;
        return d->dir ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
        struct drive d = {
                .python = "/usr/bin/python3", .cut = 65536, .dir_fd = -EBADF, .input = COP_BUF(LINE_MAX_BYTES)};
        struct cop_error error = COP_ERROR_NULL;

        if (parse_args(&d, argc, argv) < 0) {
                fprintf(stderr, "usage: %s --dir DIR [--inside PATH] [--stock] [-- PREFIX…]; see drive.c\n", argv[0]);
                return 2;
        }
        cop_id_hex(d.key, 16);
        cop_id_hex(d.session, 16);
        d.dir_fd = open(d.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = d.dir_fd < 0 ? cop_error_errno(&error, errno, "opening %s", d.dir) : 0;
        if (r >= 0)
                r = cop_loop_new(&d.loop, &error);
        if (r >= 0)
                r = cop_jupyter_new(d.loop, 8, &d.jupyter, &error);
        if (r >= 0)
                r = cop_loop_add_io(d.loop, STDIN_FILENO, EPOLLIN, on_stdin, &d, NULL, &error);
        if (r >= 0)
                r = start(&d, &error);
        if (r < 0)
                emit_error("failed", &error);
        else
                cop_loop_run(d.loop);
        cop_kernel_free(d.kernel);
        cop_jupyter_free(d.jupyter);
        cop_loop_free(d.loop);
        if (d.pid > 0 && !d.exited) {
                kill(-d.pid, SIGKILL);
                waitpid(d.pid, NULL, 0);
        }
        cop_buf_done(&d.input);
        cop_close(d.dir_fd);
        return r < 0;
}
