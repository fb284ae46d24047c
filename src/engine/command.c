/* Commands: what exec starts.
 *
 * Theory of operation
 *
 *      cop_command_run ─ sandbox runs ─► row in the store, EXEC to the keeper ─► pid ─► … EVENT_EXIT ─► row ended, answer
 *
 * The row comes before the process, so that a daemon that dies in between finds it: a command that the keeper knows is
 * taken over (cop_commands_adopt), one that it does not know is "lost" (cop_commands_adopted).
 *
 * The output is in the keeper's log and nowhere in the daemon's memory; it is read for a result, for a reader of the
 * stream, and once at the end for the row.  What a result keeps is bounded by output_max.
 *
 * A command that ended stays known to the keeper (EVENT_EOF may come much later, and its process group can still be
 * killed) until ENDED_KEEP newer ones have ended.
 *
 * A command that cannot be started is one that ended: 127 when there is no such program, 126 when it cannot be executed,
 * with the reason on stderr, as a shell would.  A wrong folder or user is an error of the request.
 */
#include "engine/command.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/utf8.h"
#include "engine/context.h"
#include "sandbox/wire.h"

#define START_DEADLINE (60 * USEC_PER_SEC)
#define SIGNAL_DEADLINE (30 * USEC_PER_SEC)
#define DEFAULT_TIMEOUT (30 * USEC_PER_SEC)
#define ENDED_KEEP 64            /* ended commands that the keeper still knows, per sandbox */
#define ENDED_KEEP_OPEN 256      /* and with those whose output is still held open */
#define LOGS_KEEP (256ULL << 20) /* bytes of logs of ended commands kept on disk, per sandbox */
#define OUTPUT_LEAST (1u << 10)
#define OUTPUT_MOST (64u << 20)
#define DATA_SLACK (256ULL << 20) /* as for kernels: RLIMIT_DATA over the memory limit */
#define LOG_TEXT 4096             /* bytes of each stream in the sandbox's own log */

static const char *const shells[] = {"/bin/bash", "/bin/sh"};

static void send_exec(struct cop_command *c);

/* -- objects -------------------------------------------------------------------------------------------------------- */

static struct cop_command_start *start_free(struct cop_command_start *s)
{
        if (!s)
                return NULL;
        cop_command_row_free(s->row);
        json_decref(s->env);
        cop_strv_free(s->argv);
        cop_close(s->stdin_fd);
        free(s);
        return NULL;
}

static void command_free(struct cop_command *c)
{
        struct cop_sandbox *sb = c->sandbox;

        for (struct cop_command **p = &sb->commands; *p; p = &(*p)->next)
                if (*p == c) {
                        *p = c->next;
                        break;
                }
        cop_keeper_call_cancel(c->call);
        cop_command_row_free(c->row);
        start_free(c->start);
        free(c);
}

struct cop_command *cop_command_find_live(struct cop_sandbox *sb, const char *id)
{
        for (struct cop_command *c = sb->commands; c; c = c->next)
                if (strcmp(c->row->id, id) == 0)
                        return c;
        return NULL;
}

static struct cop_command *find_by_event(struct cop_sandbox *sb, const struct cop_msg *m)
{
        _cleanup_free_ char *key = NULL;

        return cop_msg_get_str(m, COP_TAG_KEY, 0, &key) == 0 ? cop_command_find_live(sb, key) : NULL;
}

static void ignore_reply(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
}

static void ask_signal(struct cop_command *c, int signo, bool group, cop_keeper_reply_fn fn, void *userdata)
{
        struct cop_msg m;

        cop_msg_init(&m, COP_WIRE_SIGNAL, 0);
        cop_msg_add_str(&m, COP_TAG_KEY, c->row->id);
        cop_msg_add_u64(&m, COP_TAG_SIGNAL, (uint64_t)signo);
        cop_msg_add_u64(&m, COP_TAG_FLAGS, group ? COP_EXEC_GROUP : 0);
        cop_keeper_call(c->sandbox->keeper, &m, SIGNAL_DEADLINE, fn, userdata);
}

static void forget(struct cop_sandbox *sb, const char *id)
{
        char name[COP_ID_MAX + 8];
        struct cop_msg m;

        cop_msg_init(&m, COP_WIRE_FORGET, 0);
        cop_msg_add_str(&m, COP_TAG_KEY, id);
        cop_keeper_call(sb->keeper, &m, SIGNAL_DEADLINE, ignore_reply, NULL);
        /* From now on the row answers for it: what a result kept of the output. */
        if (cop_path_format(name, sizeof(name), "%s.log", id) == 0)
                unlinkat(sb->logs_fd, name, 0);
}

/* The list is newest first; the newest that ended stays whatever its size. */
static void forget_old(struct cop_sandbox *sb)
{
        unsigned ended = 0;
        uint64_t bytes = 0;

        for (struct cop_command *c = sb->commands, *next; c; c = next) {
                next = c->next;
                if (!c->exited)
                        continue;
                ended++;
                bytes += c->row->log_bytes;
                if (ended > ENDED_KEEP_OPEN || (ended > ENDED_KEEP && c->eof) || (ended > 1 && bytes > LOGS_KEEP)) {
                        forget(sb, c->row->id);
                        command_free(c);
                }
        }
}

/* -- the end ---------------------------------------------------------------------------------------------------------- */

static void log_command(struct cop_command *c, json_t *view)
{
        struct cop_sandbox *sb = c->sandbox;
        char stamp[COP_RFC3339_MAX];
        _cleanup_json_ json_t *entry = json_pack(
                "{s:s, s:s, s:s, s:I, s:s, s:O?, s:O?}", "type", "command", "at", cop_rfc3339(c->row->ended_at, stamp),
                "command_id", c->row->id, "pid", (json_int_t)c->row->pid, "status", c->row->status, "exit_code",
                json_object_get(view, "exit_code"), "command",
                json_object_get(view, json_object_get(view, "command") ? "command" : "argv"));

        if (!entry)
                return;
        for (int i = 0; i < 2; i++) {
                json_t *text = json_object_get(view, i ? "stderr" : "stdout");
                size_t n = json_string_length(text);
                if (n > LOG_TEXT)
                        n = cop_utf8_cut(json_string_value(text), LOG_TEXT);
                if (n > 0)
                        json_object_set_new(entry, i ? "stderr" : "stdout",
                                            json_stringn_nocheck(json_string_value(text), n));
        }
        cop_sandbox_log(sb->engine, sb->logs_fd, sb->id, entry);
        _cleanup_json_ json_t *detail =
                json_pack("{s:s, s:I, s:s, s:O?}", "command_id", c->row->id, "pid", (json_int_t)c->row->pid, "status",
                          c->row->status, "exit_code", json_object_get(view, "exit_code"));
        cop_engine_event(sb->engine, "command.ended", sb->id, detail);
}

static void add_oom(struct cop_command *c, json_t *view)
{
        struct cop_sandbox *sb = c->sandbox;
        _cleanup_json_ json_t *limits = sb->row->limits ? json_loads(sb->row->limits, 0, NULL) : NULL;

        if (c->row->pid == 0 || sb->oom_kills <= c->oom_kills_before)
                return;
        json_object_set_new(
                view, "oom",
                json_pack("{s:O?, s:I, s:b, s:s}", "limit_bytes", json_object_get(limits, "memory_bytes"), "peak_bytes",
                          (json_int_t)sb->memory_peak, "killed", c->row->signal == SIGKILL, "message",
                          "a process was killed at the sandbox's memory limit while this command ran; raise it "
                          "with memory or use less"));
}

/* row has status, exit_code, signal and the counts.  message (may be NULL) stands in for stderr.  Returns the view, for who waits:
 * to be answered last, because an answer may end the sandbox and free c. */
static json_t *settle(struct cop_command *c, const char *message)
{
        struct cop_sandbox *sb = c->sandbox;
        struct cop_command_row *row = c->row;
        __attribute__((cleanup(cop_command_output_done))) struct cop_command_output output = {0};
        struct cop_error err;

        c->exited = true;
        if (!row->ended_at)
                row->ended_at = cop_now(CLOCK_REALTIME);
        uint64_t size = row->log_bytes ? row->log_bytes : UINT64_MAX;
        if (row->pid &&
            cop_command_output_read(sb->logs_fd, row->id, size, cop_command_output_max(row), &output, &err) < 0)
                cop_log_warning("command %s: %s", row->id, err.message);
        /* Where no exit was told (the sandbox ended), the log is all that is known. */
        row->stdout_bytes = MAX_OF(row->stdout_bytes, output.streams[0].bytes);
        row->stderr_bytes = MAX_OF(row->stderr_bytes, output.streams[1].bytes);
        row->log_complete =
                output.streams[0].bytes == row->stdout_bytes && output.streams[1].bytes == row->stderr_bytes;
        json_t *view = cop_command_view(row, &output);
        if (view && message) {
                json_object_set_new(view, "stderr", cop_json_foreign_string(message, strlen(message)));
                json_object_set_new(view, "stderr_bytes", json_integer((json_int_t)strlen(message)));
        }
        if (view)
                add_oom(c, view);
        row->summary = view ? json_dumps(view, JSON_COMPACT) : NULL;
        if (cop_store_command_end(sb->engine->store, row, &err) < 0)
                cop_log_warning("command %s was not saved: %s", row->id, err.message);
        free(TAKE_PTR(row->summary)); /* the store has it; ended commands stay in memory for a while */
        if (view)
                log_command(c, view);
        cop_record_wake(sb->engine, row->id);
        return view;
}

static void set_status(struct cop_command_row *row, int status, bool timed_out)
{
        bool killed = WIFSIGNALED(status);

        row->signal = killed ? WTERMSIG(status) : 0;
        row->exit_code = timed_out ? 124 : killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        snprintf(row->status, sizeof(row->status), "%s", timed_out ? "timeout" : killed ? "killed" : "exited");
}

static void on_exit_event(struct cop_command *c, const struct cop_msg *m)
{
        struct cop_command_row *row = c->row;
        struct cop_sandbox *sb = c->sandbox;

        if (c->exited)
                return;
        /* Counted before the end is told: whether memory ran out stands in the result. */
        cop_sandbox_note_memory(sb, m);
        set_status(row, (int)cop_msg_u64_or(m, COP_TAG_STATUS, 0), cop_msg_u64_or(m, COP_TAG_TIMED_OUT, 0));
        row->stdout_bytes = cop_msg_u64_or(m, COP_TAG_STDOUT_BYTES, 0);
        row->stderr_bytes = cop_msg_u64_or(m, COP_TAG_STDERR_BYTES, 0);
        row->log_bytes = cop_msg_u64_or(m, COP_TAG_LOG_SIZE, 0);
        row->ended_at = cop_msg_u64_or(m, COP_TAG_ENDED, 0);
        json_t *view = settle(c, NULL);
        struct cop_op *op = TAKE_PTR(c->op);
        forget_old(sb);
        cop_op_done(op, view, NULL);
}

/* -- starting ------------------------------------------------------------------------------------------------------------ */

/* The request itself was wrong or could not be carried out: the caller gets an error, the history an entry. */
static void start_failed(struct cop_command *c, const struct cop_error *err)
{
        struct cop_op *op = TAKE_PTR(c->start->op);
        struct cop_error copy = *err; /* may belong to the call that is freed here */

        c->row->exit_code = 126;
        snprintf(c->row->status, sizeof(c->row->status), "exited");
        json_decref(settle(c, err->message));
        command_free(c);
        cop_op_done(op, NULL, &copy);
}

static void never_ran(struct cop_command *c, const struct cop_error *err)
{
        _cleanup_free_ char *message = NULL;

        if (asprintf(&message, "%s\n", err->message) < 0)
                message = NULL;
        c->row->exit_code = err->errnum == ENOENT ? 127 : 126;
        snprintf(c->row->status, sizeof(c->row->status), "exited");
        struct cop_op *op = TAKE_PTR(c->start->op);
        json_t *view = settle(c, message);
        command_free(c);
        cop_op_done(op, view, NULL);
}

static void on_caller_gone(void *data)
{
        struct cop_command *c = data;
        struct cop_op *op = c->op ? TAKE_PTR(c->op) : c->start ? TAKE_PTR(c->start->op) : NULL;

        if (cop_command_kill_on_disconnect(c->row) && c->row->pid)
                ask_signal(c, SIGKILL, true, ignore_reply, NULL);
        cop_op_done(op, NULL, NULL);
}

static void on_started(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_command *c = userdata;
        struct cop_command_start *s = c->start;
        struct cop_error error;

        c->call = NULL;
        if (err) {
                bool no_program = err->code == COP_ERR_exec_failed && err->errnum != ENOTDIR;
                if (no_program && s->shell + 1 < ELEMENTSOF(shells) && strcmp(s->argv[0], shells[s->shell]) == 0) {
                        s->shell++;
                        send_exec(c);
                } else if (no_program) {
                        never_ran(c, err);
                } else {
                        start_failed(c, err);
                }
                return;
        }
        c->row->pid = (int64_t)cop_msg_u64_or(reply, COP_TAG_PID, 0);
        if (cop_store_command_set_pid(c->sandbox->engine->store, c->row->sandbox_id, c->row->id, c->row->pid, &error) <
            0)
                cop_log_warning("command %s: its pid was not saved: %s", c->row->id, error.message);
        struct cop_op *op = TAKE_PTR(s->op);
        if (!op && !c->row->detached && cop_command_kill_on_disconnect(c->row)) /* gone while it was being started */
                ask_signal(c, SIGKILL, true, ignore_reply, NULL);
        bool answer_now = s->stream || c->row->detached;
        c->start = start_free(s);
        if (!answer_now) {
                c->op = op;
                return;
        }
        struct cop_command_output none = {0};
        cop_op_done(op, cop_command_view(c->row, &none), NULL);
}

static void add_limits(struct cop_msg *m, const struct cop_sandbox *sb)
{
        _cleanup_json_ json_t *limits = sb->row->limits ? json_loads(sb->row->limits, 0, NULL) : NULL;
        json_int_t memory = json_integer_value(json_object_get(limits, "memory_bytes"));

        if (memory > 0)
                cop_msg_add_u64(m, COP_TAG_RLIMIT_DATA, (uint64_t)memory + DATA_SLACK);
}

static void send_exec(struct cop_command *c)
{
        struct cop_command_start *s = c->start;
        _cleanup_json_ json_t *spec = json_loads(c->row->spec, 0, NULL);
        double timeout = json_number_value(json_object_get(spec, "timeout_seconds"));
        struct cop_msg m;

        cop_msg_init(&m, COP_WIRE_EXEC, 0);
        cop_msg_add_str(&m, COP_TAG_KEY, c->row->id);
        if (json_object_get(spec, "command")) {
                free(s->argv[0]);
                s->argv[0] = strdup(shells[s->shell]);
        }
        for (char **arg = s->argv; *arg; arg++)
                cop_msg_add_str(&m, COP_TAG_ARGV, *arg);
        cop_msg_add_env(&m, c->sandbox, s->env, NULL);
        cop_msg_add_str(&m, COP_TAG_CWD, json_string_value(json_object_get(spec, "cwd")));
        cop_msg_add_str(&m, COP_TAG_USER, json_string_value(json_object_get(spec, "user")));
        cop_msg_add_u64(&m, COP_TAG_FLAGS, c->row->detached ? COP_EXEC_DETACHED : 0);
        cop_msg_add_u64(&m, COP_TAG_TIMEOUT, timeout > 0 ? (uint64_t)(timeout * 1e6 + 0.5) : 0);
        cop_msg_add_u64(&m, COP_TAG_LOG_MAX, COP_COMMAND_LOG_MAX);
        add_limits(&m, c->sandbox);
        if (s->stdin_fd >= 0)
                cop_msg_add_fd(&m, fcntl(s->stdin_fd, F_DUPFD_CLOEXEC, 3)); /* the second shell needs it again */
        c->call = cop_keeper_call(c->sandbox->keeper, &m, START_DEADLINE, on_started, c);
}

/* Defaults of the sandbox into the spec, so that the Command shows what was in force. */
static int complete_spec(struct cop_command_row *row, const struct cop_sandbox *sb)
{
        _cleanup_json_ json_t *spec = json_loads(row->spec, 0, NULL);
        const char *user = sb->row->user, *workdir = sb->row->workdir;

        if (user && !json_object_get(spec, "user"))
                json_object_set_new(spec, "user", json_string(user));
        if (workdir && !json_object_get(spec, "cwd"))
                json_object_set_new(spec, "cwd", json_string(workdir));
        char *text = spec ? json_dumps(spec, JSON_COMPACT) : NULL;
        if (!text)
                return -ENOMEM;
        free(row->spec);
        row->spec = text;
        return 0;
}

static int begin(struct cop_command_start *s, struct cop_sandbox *sb, struct cop_error *err)
{
        struct cop_command *c = calloc(1, sizeof(*c));

        if (!c || complete_spec(s->row, sb) < 0) {
                free(c);
                return cop_error_errno(err, ENOMEM, "command");
        }
        snprintf(s->row->sandbox_id, sizeof(s->row->sandbox_id), "%s", sb->id);
        s->row->started_at = cop_now(CLOCK_REALTIME);
        int r = cop_store_command_insert(sb->engine->store, s->row, err);
        if (r < 0) {
                free(c);
                return r;
        }
        *c = (struct cop_command){.sandbox = sb,
                                  .next = sb->commands,
                                  .row = TAKE_PTR(s->row),
                                  .start = s,
                                  .oom_kills_before = sb->oom_kills};
        sb->commands = c;
        cop_op_on_cancel(s->op, on_caller_gone, c);
        send_exec(c);
        return 0;
}

static void on_sandbox_ready(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        struct cop_command_start *s = userdata;
        struct cop_error error;
        int r = err ? -err->errnum : 0;

        if (r == 0 && cop_op_cancelled(s->op)) /* nobody is there any more, and nothing was begun */
                r = cop_error_set(&error, ECANCELED, COP_ERR_cancelled, "the caller went away");
        else if (r == 0)
                r = begin(s, sb, &error);
        if (r == 0)
                return;
        cop_op_done(s->op, NULL, err ? err : &error);
        start_free(s);
}

static char **copy_argv(const struct cop_exec_params *p)
{
        const char *const shell[] = {shells[0], "-c", p->command, NULL}, *const *from = p->command ? shell : p->argv;
        size_t n = 0;

        while (from[n])
                n++;
        char **argv = calloc(n + 1, sizeof(*argv));
        for (size_t i = 0; argv && i < n; i++)
                if (!(argv[i] = strdup(from[i])))
                        return cop_strv_free(argv);
        return argv;
}

/* Sealed, so that the program inside cannot grow it in our name. */
static int make_stdin(const void *data, size_t n, struct cop_error *err)
{
        _cleanup_close_ int fd = memfd_create("stdin", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        if (fd < 0)
                return cop_error_errno(err, errno, "stdin of the command");
        int r = cop_write_all(fd, data, n);
        if (r == 0 && (lseek(fd, 0, SEEK_SET) < 0 ||
                       fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0))
                r = -errno;
        return r < 0 ? cop_error_errno(err, -r, "stdin of the command") : TAKE_FD(fd);
}

static char *make_spec(const struct cop_exec_params *p)
{
        usec_t timeout = p->timeout == 0 ? DEFAULT_TIMEOUT : p->timeout == USEC_INFINITY ? 0 : p->timeout;
        json_t *limit = timeout ? json_real((double)timeout / 1e6) : json_null();
        _cleanup_json_ json_t *spec = json_pack("{s:o, s:I, s:s}", "timeout_seconds", limit, "output_max",
                                                (json_int_t)(p->output_max ? p->output_max : COP_COMMAND_OUTPUT_MAX),
                                                "on_disconnect", p->kill_on_disconnect ? "kill" : "continue");

        if (p->command)
                json_object_set_new(spec, "command", cop_json_foreign_string(p->command, strlen(p->command)));
        for (const char *const *arg = p->command ? NULL : p->argv; arg && *arg; arg++) {
                json_t *argv = json_object_get(spec, "argv");
                if (!argv)
                        json_object_set_new(spec, "argv", argv = json_array());
                json_array_append_new(argv, cop_json_foreign_string(*arg, strlen(*arg)));
        }
        if (p->cwd)
                json_object_set_new(spec, "cwd", cop_json_foreign_string(p->cwd, strlen(p->cwd)));
        if (p->user && p->user[0])
                json_object_set_new(spec, "user", cop_json_foreign_string(p->user, strlen(p->user)));
        if (p->restart) { /* what a later start needs */
                json_object_set_new(spec, "restart", json_true());
                if (p->env)
                        json_object_set(spec, "env", p->env);
        }
        if (p->restart_of)
                json_object_set_new(spec, "restart_of", json_string(p->restart_of));
        return spec ? json_dumps(spec, JSON_COMPACT) : NULL;
}

static int check_params(const struct cop_exec_params *p, struct cop_error *err)
{
        if (!p->command == !(p->argv && p->argv[0]))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "exec needs either a command or an argv that is not empty");
        if (p->output_max && (p->output_max < OUTPUT_LEAST || p->output_max > OUTPUT_MOST))
                return cop_error_set(err, ERANGE, COP_ERR_bad_request, "output_max must lie between 1 KiB and 64 MiB");
        if (p->restart && (!p->detach || p->stdin_data))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "restart is for commands that are detached and read no standard input");
        if (p->stdin_len > COP_COMMAND_STDIN_MAX)
                return cop_error_set(err, EMSGSIZE, COP_ERR_payload_too_large,
                                     "stdin is over 64 MiB; write a file and redirect it");
        return 0;
}

static struct cop_command_start *start_new(struct cop_engine *e, const struct cop_exec_params *p, struct cop_error *err)
{
        struct cop_command_start *s = calloc(1, sizeof(*s));

        if (s)
                *s = (struct cop_command_start){.engine = e,
                                                .stdin_fd = -EBADF,
                                                .stream = p->stream,
                                                .row = calloc(1, sizeof(*s->row)),
                                                .argv = copy_argv(p),
                                                .env = p->env ? json_deep_copy(p->env) : NULL};
        if (!s || !s->row || !s->argv || (p->env && !s->env) || !(s->row->spec = make_spec(p))) {
                cop_error_errno(err, ENOMEM, "command");
                return start_free(s);
        }
        if (p->stdin_data && (s->stdin_fd = make_stdin(p->stdin_data, p->stdin_len, err)) < 0)
                return start_free(s);
        cop_id_new(s->row->id, "cmd_", 10);
        snprintf(s->row->status, sizeof(s->row->status), "running");
        s->row->exit_code = -1;
        s->row->detached = p->detach;
        return s;
}

void cop_command_run(struct cop_engine *e, const char *ref, const struct cop_exec_params *p, struct cop_op_to to,
                     struct cop_op **ret_op)
{
        struct cop_command_start *s = NULL;
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (check_params(p, &err) < 0 || !(s = start_new(e, p, &err))) {
                cop_answer(to, NULL, &err);
                return;
        }
        s->op = cop_op_new(e, to, NULL, NULL);
        if (!s->op) {
                start_free(s);
                return;
        }
        cop_op_when_running(s->op, e, ref, on_sandbox_ready, s, ret_op);
}

/* -- looking ------------------------------------------------------------------------------------------------------------------ */

static int find_row(struct cop_engine *e, const char *ref, const char *pid_or_id, struct cop_command_row **ret,
                    struct cop_error *err)
{
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *sandbox = NULL;
        int r = cop_store_sandbox_get(e->store, ref, &sandbox, err);

        return r < 0 ? r : cop_store_command_get(e->store, sandbox->id, pid_or_id, ret, err);
}

static json_t *view_now(struct cop_engine *e, const struct cop_command_row *row)
{
        __attribute__((cleanup(cop_command_output_done))) struct cop_command_output output = {0};

        if (row->ended_at)
                return cop_command_row_view(row, true);
        _cleanup_close_ int logs_fd = cop_command_logs_open(e, row->sandbox_id);
        if (logs_fd >= 0)
                cop_command_output_read(logs_fd, row->id, UINT64_MAX, cop_command_output_max(row), &output, NULL);
        return cop_command_view(row, &output);
}

void cop_command_get(struct cop_engine *e, const char *ref, const char *pid_or_id, struct cop_op_to to)
{
        _cleanup_(cop_command_row_freep) struct cop_command_row *row = NULL;
        struct cop_error err;

        if (find_row(e, ref, pid_or_id, &row, &err) < 0)
                cop_answer(to, NULL, &err);
        else
                cop_answer(to, view_now(e, row), NULL);
}

void cop_command_list(struct cop_engine *e, const char *ref, struct cop_op_to to)
{
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *sandbox = NULL;
        _cleanup_(cop_command_rows_freep) struct cop_command_row **rows = NULL;
        struct cop_command_filter filter = {0};
        struct cop_error err;

        if (cop_store_sandbox_get(e->store, ref, &sandbox, &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        filter.sandbox_id = sandbox->id;
        if (cop_store_command_list(e->store, &filter, &rows, &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        json_t *list = json_array();
        for (struct cop_command_row **row = rows; *row; row++)
                json_array_append_new(list, cop_command_row_view(*row, false));
        cop_answer(to, json_pack("{s:o}", "commands", list), NULL);
}

/* -- signals -------------------------------------------------------------------------------------------------------------------- */

struct killing {
        struct cop_engine *engine;
        struct cop_op *op;
        char sandbox_id[COP_ID_MAX], id[COP_ID_MAX];
};

static void on_signalled(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct killing *k = userdata;
        _cleanup_(cop_command_row_freep) struct cop_command_row *row = NULL;
        struct cop_error error;

        if (err && err->errnum == ESRCH)
                cop_error_set(&error, ESRCH, COP_ERR_invalid_state,
                              "command %s has ended, and nothing of its group is left", k->id);
        else if (err)
                error = *err;
        if (err || cop_store_command_get(k->engine->store, k->sandbox_id, k->id, &row, &error) < 0)
                cop_op_done(k->op, NULL, &error);
        else
                cop_op_done(k->op, view_now(k->engine, row), NULL);
        free(k);
}

void cop_command_kill(struct cop_engine *e, const char *ref, const char *pid_or_id, int signo, bool group,
                      struct cop_op_to to, struct cop_op **ret_op)
{
        _cleanup_(cop_command_row_freep) struct cop_command_row *row = NULL;
        struct cop_sandbox *sb;
        struct cop_command *c;
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        int r = cop_sandbox_find(e, ref, &sb, &err);
        if (r == 0)
                r = cop_store_command_get(e->store, sb->id, pid_or_id, &row, &err);
        if (r == 0 && (!(c = cop_command_find_live(sb, row->id)) || !sb->keeper || c->row->pid == 0))
                r = cop_error_set(&err, ESRCH, COP_ERR_invalid_state, "command %s has ended", row->id);
        struct killing *k = r == 0 ? calloc(1, sizeof(*k)) : NULL;
        if (r == 0 && !k)
                cop_error_errno(&err, ENOMEM, "signal");
        if (!k) {
                cop_answer(to, NULL, &err);
                return;
        }
        *k = (struct killing){.engine = e, .op = cop_op_new(e, to, NULL, NULL)};
        snprintf(k->sandbox_id, sizeof(k->sandbox_id), "%s", sb->id);
        snprintf(k->id, sizeof(k->id), "%s", row->id);
        if (!k->op) {
                free(k);
                return;
        }
        if (ret_op)
                *ret_op = k->op;
        ask_signal(c, signo, group, on_signalled, k);
}

void cop_command_disconnected(struct cop_engine *e, const char *ref, const char *id)
{
        struct cop_sandbox *sb;
        struct cop_command *c;

        if (cop_sandbox_find(e, ref, &sb, NULL) == 0 && (c = cop_command_find_live(sb, id)) && !c->exited &&
            c->row->pid && sb->keeper && cop_command_kill_on_disconnect(c->row))
                ask_signal(c, SIGKILL, true, ignore_reply, NULL);
}

/* -- hooks of sandbox.c and adopt.c ------------------------------------------------------------------------------------------------ */

bool cop_commands_event(struct cop_sandbox *sb, struct cop_msg *event)
{
        struct cop_command *c = find_by_event(sb, event);

        if (!c)
                return false;
        switch (event->type) {
        case COP_WIRE_EVENT_EXIT:
                on_exit_event(c, event);
                break;
        case COP_WIRE_EVENT_EOF:
                c->eof = true;
                cop_record_wake(sb->engine, c->row->id);
                forget_old(sb);
                break;
        default:
                cop_record_wake(sb->engine, c->row->id);
        }
        return true;
}

/* It had ended when its sandbox went back to a state in which it runs. */
static void revive(struct cop_engine *e, struct cop_command_row *row)
{
        struct cop_error err;

        snprintf(row->status, sizeof(row->status), "running");
        row->exit_code = -1;
        row->signal = 0;
        row->ended_at = 0;
        row->summary = (free(row->summary), NULL);
        row->stdout_bytes = row->stderr_bytes = row->log_bytes = 0;
        if (cop_store_command_end(e->store, row, &err) < 0)
                cop_log_warning("command %s was not saved: %s", row->id, err.message);
}

void cop_commands_adopt(struct cop_sandbox *sb, const struct cop_msg *entry)
{
        _cleanup_(cop_command_row_freep) struct cop_command_row *row = NULL;
        _cleanup_free_ char *key = NULL;
        uint64_t flags = cop_msg_u64_or(entry, COP_TAG_FLAGS, 0);

        if (cop_msg_get_str(entry, COP_TAG_KEY, 0, &key) < 0)
                return;
        struct cop_command *known = cop_command_find_live(sb, key);
        if (known) { /* the sandbox slept: it may have ended in its last moment */
                if ((flags & COP_ENTRY_EXITED) && !known->exited)
                        on_exit_event(known, entry);
                return;
        }
        struct cop_command *c =
                cop_store_command_get(sb->engine->store, sb->id, key, &row, NULL) < 0 ? NULL : calloc(1, sizeof(*c));
        if (!c) {
                if (flags & COP_ENTRY_EXITED) /* else it runs on unknown: better than killing what a user may need */
                        forget(sb, key);
                return;
        }
        if (row->ended_at && !(flags & COP_ENTRY_EXITED))
                revive(sb->engine, row);
        bool exited = row->ended_at != 0;
        *c = (struct cop_command){.sandbox = sb,
                                  .next = sb->commands,
                                  .row = TAKE_PTR(row),
                                  .exited = exited,
                                  .eof = flags & COP_ENTRY_EOF,
                                  .oom_kills_before = sb->oom_kills};
        sb->commands = c;
        if (c->row->pid == 0) { /* the former daemon died before it knew */
                c->row->pid = (int64_t)cop_msg_u64_or(entry, COP_TAG_PID, 0);
                cop_store_command_set_pid(sb->engine->store, sb->id, c->row->id, c->row->pid, NULL);
        }
        if (flags & COP_ENTRY_EXITED)
                on_exit_event(c, entry);
}

bool cop_commands_attached(struct cop_sandbox *sb)
{
        for (struct cop_command *c = sb->commands; c; c = c->next)
                if (c->op || c->start)
                        return true;
        return false;
}

void cop_commands_adopted(struct cop_sandbox *sb)
{
        _cleanup_(cop_command_rows_freep) struct cop_command_row **rows = NULL;
        struct cop_command_filter filter = {.sandbox_id = sb->id, .status = "running"};
        struct cop_error err;

        if (cop_store_command_list(sb->engine->store, &filter, &rows, &err) < 0) {
                cop_log_warning("sandbox %s: %s", sb->id, err.message);
                return;
        }
        for (struct cop_command_row **row = rows; *row; row++) {
                if (cop_command_find_live(sb, (*row)->id))
                        continue;
                struct cop_command lost = {.sandbox = sb, .row = *row};
                snprintf((*row)->status, sizeof((*row)->status), "lost");
                json_decref(settle(&lost, NULL));
                if (sb->replay_due)
                        cop_service_start_again(sb, *row);
        }
}

void cop_commands_end(struct cop_sandbox *sb, const char *reason)
{
        while (sb->commands) {
                struct cop_command *c = sb->commands;
                struct cop_error err;
                cop_error_set(&err, ESHUTDOWN, COP_ERR_sandbox_ended, "sandbox %s has ended (%s)", sb->id, reason);
                if (c->start) {
                        start_failed(c, &err);
                        continue;
                }
                json_t *view = NULL;
                if (!c->exited) { /* everything in a sandbox ends with it, by SIGKILL at the latest */
                        set_status(c->row, SIGKILL, false);
                        view = settle(c, NULL);
                }
                struct cop_op *op = TAKE_PTR(c->op);
                command_free(c);
                cop_op_done(op, view, NULL);
        }
}

void cop_commands_detach(struct cop_sandbox *sb)
{
        while (sb->commands) {
                struct cop_command *c = sb->commands;
                struct cop_op *op = c->op ? TAKE_PTR(c->op) : c->start ? TAKE_PTR(c->start->op) : NULL;
                struct cop_error err;
                cop_error_set(&err, ESHUTDOWN, COP_ERR_unavailable, "the daemon stops; the command runs on as %s",
                              c->row->id);
                command_free(c);
                cop_op_done(op, NULL, &err);
        }
}
