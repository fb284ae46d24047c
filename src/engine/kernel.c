/* Theory of operation
 *
 * Starting a generation takes three steps, each an answer of the keeper:
 *      1. FILE WRITE   /run/coppice/<dir>/c.json, the connection file; makes the folder
 *      2. EXEC         the kernelspec's line, key ker_<id>
 *      3. sockets      the client connects through the folder's host side until the kernel answers: ready
 * A new folder, key and session per generation: a request meant for a dead kernel can never reach the next one.
 *
 * The end of the process is told by the keeper (EVENT_EXIT).  If a cell runs, the client first delivers what still lies in the
 * sockets; then the cell ends as `died`, `oom` or `timeout`, the loss is remembered for the next cell, and the next generation
 * starts by itself.  A kernel that cannot be started leaves the context `dead`; the next cell tries again.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/utf8.h"
#include "engine/context.h"
#include "engine/sandbox.h"
#include "jupyter/connection.h"

#define KEEPER_DEADLINE (30 * USEC_PER_SEC)
#define KERNEL_READY_MAX (60 * USEC_PER_SEC)
#define KERNEL_LOG_MAX (1u << 20)
#define PREPARE_MAX (1u << 20)
#define DATA_SLACK (256ULL << 20) /* RLIMIT_DATA over the memory limit: thread stacks, never touched arenas */

static void on_kernel_ready(struct cop_kernel *k, const struct cop_kernel_info *info, void *userdata);
static void on_kernel_failed(struct cop_kernel *k, const struct cop_error *error, void *userdata);
static void on_late_output(struct cop_kernel *k, const char *msg_id, const struct cop_output *o, void *userdata);

static const struct cop_kernel_events kernel_events = {
        .ready = on_kernel_ready,
        .failed = on_kernel_failed,
        .late_output = on_late_output,
};

static void ignore_reply(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
}

static struct cop_keeper *keeper_of(struct cop_context *c)
{
        return c->sandbox->keeper;
}

static char *strdup_or_null(const char *s)
{
        return s ? strdup(s) : NULL;
}

static void replace_string(char **where, const char *value)
{
        free(*where);
        *where = strdup_or_null(value);
}

/* -- what the kernel said last ----------------------------------------------------------------------------------------- */

/* The end of the kernel's own log (frames of wire.h), as text for an error message. */
static char *log_tail(struct cop_context *c, size_t max)
{
        _cleanup_buf_ struct cop_buf text = COP_BUF(2 * KERNEL_LOG_MAX);
        _cleanup_free_ char *raw = NULL;
        char name[COP_ID_MAX + 8];
        size_t len, at = 8;

        snprintf(name, sizeof(name), "%s.log", c->row->kernel_key);
        if (cop_read_file(c->sandbox->logs_fd, name, 4 * KERNEL_LOG_MAX, &raw, &len, NULL) < 0)
                return strdup("");
        while (len - at >= sizeof(struct cop_log_frame) && at < len) {
                struct cop_log_frame frame;
                memcpy(&frame, raw + at, sizeof(frame));
                at += sizeof(frame);
                if (frame.length > len - at)
                        break;
                if (frame.stream == 1 || frame.stream == 2)
                        cop_buf_add(&text, raw + at, frame.length);
                at += frame.length;
        }
        size_t skip = text.len > max ? text.len - max : 0;
        while (text.len > skip && strchr("\n ", text.data[text.len - 1]))
                text.data[--text.len] = '\0';
        return cop_utf8_repair(text.data ? text.data + MIN_OF(skip, text.len) : "", text.len - MIN_OF(skip, text.len),
                               NULL);
}

/* -- starting -------------------------------------------------------------------------------------------------------------- */

static void start_failed(struct cop_context *c, const struct cop_error *why)
{
        struct cop_error err = *why;

        c->start_failures++;
        cop_context_drop_kernel(c);
        c->row->kernel_key[0] = '\0';
        c->row->kernel_pid = 0;
        cop_context_set_state(c, "dead");
        cop_error_wrap(&err, 0, "kernel %s of context %s", c->row->kernelspec, c->row->id);
        if (err.code != COP_ERR_sandbox_ended && err.code != COP_ERR_disk_full)
                err.code = COP_ERR_kernel_start_failed;
        _cleanup_json_ json_t *detail = json_pack("{s:s, s:s}", "context_id", c->row->id, "message", err.message);
        cop_engine_event(c->sandbox->engine, "kernel.start_failed", c->sandbox->id, detail);
        cop_replay_stop(c);
        cop_context_answer_waiting(c, &err);
        cop_cells_abort(c, "died", &err);
}

int cop_engine_jupyter(struct cop_engine *e, struct cop_error *err)
{
        return e->jupyter ? 0 : cop_jupyter_new(e->loop, 0, &e->jupyter, err);
}

bool cop_sandbox_tunes(const struct cop_sandbox *sb, const struct cop_kernelspec *spec)
{
        return json_is_true(json_object_get(sb->defaults, "coppice_kernel")) && spec &&
               cop_kernelspec_is_ipykernel(spec);
}

static int open_client(struct cop_context *c, bool adopt, struct cop_error *err)
{
        struct cop_engine *e = c->sandbox->engine;
        int r = cop_engine_jupyter(e, err);

        if (r < 0)
                return r;
        c->dir_fd = cop_open_beneath(c->sandbox->ipc_fd, c->row->kernel_dir, O_PATH | O_DIRECTORY, 0, true, err);
        if (c->dir_fd < 0)
                return c->dir_fd;
        struct cop_kernel_options options = {
                .dir_fd = c->dir_fd,
                .key = c->row->key,
                .session = c->row->session,
                .timeout = KERNEL_READY_MAX,
                .adopt = adopt,
                .idle = !c->running && strcmp(c->row->state, "idle") == 0,
                .holds_back = cop_sandbox_tunes(c->sandbox, c->spec),
                .met = adopt ? cop_context_met(c) : NULL,
        };
        return cop_kernel_open(e->jupyter, &options, &kernel_events, c, &c->kernel, err);
}

static void on_exec_reply(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_context *c = userdata;
        struct cop_error error;

        c->call = NULL;
        if (err) {
                start_failed(c, err);
                return;
        }
        c->row->kernel_pid = (int64_t)cop_msg_u64_or(reply, COP_TAG_PID, 0);
        cop_context_save(c);
        if (open_client(c, false, &error) < 0) {
                cop_context_kill_kernel(c, "died");
                start_failed(c, &error);
        }
}

/* A clean MemoryError keeps the session; the cgroup's OOM killer ends it (notes/jupyter.md case 11). 0 = no limit. */
static uint64_t data_limit(const struct cop_context *c)
{
        struct cop_sandbox_limits limits;

        cop_limits_from_json(c->sandbox->row->limits, &limits);
        return limits.memory > 0 ? limits.memory + DATA_SLACK : 0;
}

static void exec_kernel(struct cop_context *c)
{
        char connection_file[200], ipython_dir[200];
        struct cop_launch launch = {0};
        struct cop_error err;
        struct cop_msg m;

        snprintf(connection_file, sizeof(connection_file), COP_INSIDE_IPC "/%s/c.json", c->row->kernel_dir);
        snprintf(ipython_dir, sizeof(ipython_dir), COP_INSIDE_IPC "/%s/ipython", c->row->kernel_dir);
        struct cop_launch_options options = {
                .connection_file = connection_file,
                .ipython_dir = ipython_dir,
                .parent_pid = 1,
                .coppice_kernel = json_is_true(json_object_get(c->sandbox->defaults, "coppice_kernel")),
                .coppice_launcher = json_is_true(json_object_get(c->sandbox->defaults, "coppice_launcher")),
        };
        if (cop_launch_kernelspec(c->spec, &options, &launch, &err) < 0) {
                start_failed(c, &err);
                return;
        }
        cop_msg_init(&m, COP_WIRE_EXEC, 0);
        cop_msg_add_str(&m, COP_TAG_KEY, c->row->kernel_key);
        for (char **arg = launch.argv; *arg; arg++)
                cop_msg_add_str(&m, COP_TAG_ARGV, *arg);
        cop_msg_add_env(&m, c->sandbox, c->env, launch.env);
        cop_msg_add_str(&m, COP_TAG_CWD, c->row->cwd);
        cop_msg_add_u64(&m, COP_TAG_FLAGS, COP_EXEC_KERNEL);
        cop_msg_add_u64(&m, COP_TAG_LOG_MAX, KERNEL_LOG_MAX);
        if (data_limit(c) > 0)
                cop_msg_add_u64(&m, COP_TAG_RLIMIT_DATA, data_limit(c));
        cop_launch_done(&launch);
        c->call = cop_keeper_call(keeper_of(c), &m, KEEPER_DEADLINE, on_exec_reply, c);
}

static void on_connection_file_written(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_context *c = userdata;

        c->call = NULL;
        if (err)
                start_failed(c, err);
        else
                exec_kernel(c);
}

/* The file is small: it fits into the socket's buffer, so no step is needed for its data. */
static int write_connection_file(struct cop_context *c, struct cop_error *err)
{
        _cleanup_buf_ struct cop_buf text = COP_BUF(4096);
        char base[200], path[200];
        int pair[2];

        snprintf(base, sizeof(base), COP_INSIDE_IPC "/%s/k", c->row->kernel_dir);
        snprintf(path, sizeof(path), COP_INSIDE_IPC "/%s/c.json", c->row->kernel_dir);
        int r = cop_connection_file(base, c->row->key, c->row->kernelspec, &text, err);
        if (r < 0)
                return r;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return cop_error_errno(err, errno, "socketpair");
        r = cop_write_all(pair[0], text.data, text.len);
        cop_close(pair[0]);
        if (r < 0) {
                cop_close(pair[1]);
                return cop_error_errno(err, r, "writing the connection file");
        }
        struct cop_msg m;
        cop_msg_init(&m, COP_WIRE_FILE, 0);
        cop_msg_add_u64(&m, COP_TAG_OP, COP_FILE_WRITE);
        cop_msg_add_str(&m, COP_TAG_PATH, path);
        cop_msg_add_u64(&m, COP_TAG_MODE, 0600);
        cop_msg_add_u64(&m, COP_TAG_FLAGS, COP_FILE_PARENTS | COP_FILE_EXCLUSIVE);
        cop_msg_add_u64(&m, COP_TAG_LENGTH, text.len);
        cop_msg_add_fd(&m, pair[1]);
        c->call = cop_keeper_call(keeper_of(c), &m, KEEPER_DEADLINE, on_connection_file_written, c);
        return 0;
}

void cop_context_start_kernel(struct cop_context *c)
{
        char dir[24], key[80], session[40];
        struct cop_error err;

        cop_context_drop_kernel(c);
        c->end = (struct cop_kernel_end){0};
        c->kill_reason = NULL;
        c->exiting = false;
        c->row->generation++;
        c->row->execution_count = 0;
        c->row->kernel_pid = 0;
        cop_id_new(c->row->kernel_key, "ker_", 10);
        replace_string(&c->row->kernel_dir, cop_id_new(dir, "k", 10));
        replace_string(&c->row->key, cop_id_hex(key, 32));
        replace_string(&c->row->session, cop_id_hex(session, 16));
        cop_context_set_state(c, c->row->generation == 1 ? "starting" : "restarting");
        cop_context_save(c);
        if (c->row->generation > c->sandbox->row->generation) {
                c->sandbox->row->generation = c->row->generation;
                cop_store_sandbox_set_generation(c->sandbox->engine->store, c->sandbox->id, c->row->generation, NULL);
        }
        if (!keeper_of(c)) {
                cop_error_set(&err, EPIPE, COP_ERR_sandbox_ended, "the sandbox has ended");
                start_failed(c, &err);
                return;
        }
        if (write_connection_file(c, &err) < 0)
                start_failed(c, &err);
}

/* -- kernels that were started elsewhere ---------------------------------------------------------------------------------------- */

/* Each line leaves no name, no history and no count behind.  What was loaded goes on with random numbers of its own.  By the first line
 * coppice_kernel (hooks.py) knows that it need not be run as a cell. */
static const char prepare_mark[] = "# coppice: prepare\n";
static const char seed_line[] = "(lambda m: [m[n].seed() for n in ('random', 'numpy.random') if n in m and "
                                "hasattr(m[n], 'seed')])(__import__('sys').modules)\n";
static const char limit_line[] = "(lambda r: r.setrlimit(r.RLIMIT_DATA, (%llu, r.getrlimit(r.RLIMIT_DATA)[1])))"
                                 "(__import__('resource'))\n";
static const char env_line[] = "__import__('os').environ.update(__import__('json').loads(%s))\n";

/* As a literal of Python: what is ASCII and without halves of surrogate pairs means the same there as in JSON. */
static char *env_literal(const struct cop_sandbox *sb)
{
        _cleanup_json_ json_t *env = sb->row->env ? json_loads(sb->row->env, 0, NULL) : NULL;
        _cleanup_free_ char *text = json_object_size(env) > 0 ? json_dumps(env, JSON_ENSURE_ASCII) : NULL;
        _cleanup_json_ json_t *string = text ? json_string(text) : NULL;

        return string ? json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
}

/* What a line may fail at must not keep the ones behind it from running, so the surest come first. */
static void add_prepare_code(const struct cop_context *c, struct cop_buf *code)
{
        unsigned what = c->sandbox->prepare;
        _cleanup_free_ char *env = what & COP_PREPARE_ENV ? env_literal(c->sandbox) : NULL;

        if (env)
                cop_buf_addf(code, env_line, env);
        if (what & COP_PREPARE_SEED)
                cop_buf_adds(code, seed_line);
        if (what & COP_PREPARE_LIMIT && data_limit(c) > 0)
                cop_buf_addf(code, limit_line, (unsigned long long)data_limit(c));
}

static void on_prepare_output(struct cop_execution *x, const struct cop_output *o, void *userdata)
{
}

static void on_prepared(struct cop_execution *x, const struct cop_execution_result *result, void *userdata)
{
        struct cop_context *c = userdata;

        c->prepare = NULL;
        if (result->status != COP_EXECUTION_OK)
                cop_log_warning("kernel of %s/%s has the environment, random numbers or limits of its source: %s",
                                c->sandbox->id, c->row->id, result->evalue ? result->evalue : "no answer");
        cop_context_run_next(c);
}

/* True when its first cell has to wait for it: as the first thing that is asked of the kernel, or when it is known what it speaks. */
static bool prepare(struct cop_context *c, bool greets)
{
        static const struct cop_execution_events events = {.output = on_prepare_output, .done = on_prepared};
        const struct cop_execute_options options = {.silent = true, .no_history = true, .greets = greets};
        _cleanup_buf_ struct cop_buf code = COP_BUF(PREPARE_MAX);

        if (!c->sandbox->prepare || c->prepared || !c->row->language || strcmp(c->row->language, "python") != 0)
                return false;
        c->prepared = true;
        cop_buf_adds(&code, prepare_mark);
        add_prepare_code(c, &code);
        return code.len > sizeof(prepare_mark) - 1 &&
               cop_kernel_execute(c->kernel, code.data, code.len, &options, &events, c, &c->prepare, NULL) == 0;
}

void cop_context_adopt_kernel(struct cop_context *c)
{
        struct cop_error err;

        if (open_client(c, true, &err) < 0) {
                cop_log_warning("kernel of %s/%s cannot be taken over: %s", c->sandbox->id, c->row->id, err.message);
                cop_context_kill_kernel(c, "daemon");
        } else if (!c->running) {
                (void)prepare(c, true);
        }
}

/* -- events of the client ------------------------------------------------------------------------------------------------------ */

static void on_kernel_ready(struct cop_kernel *k, const struct cop_kernel_info *info, void *userdata)
{
        struct cop_context *c = userdata;

        c->start_failures = 0;
        c->dir_fd = cop_close(c->dir_fd);
        if (info->language && (!c->row->language || strcmp(info->language, c->row->language) != 0))
                replace_string(&c->row->language, info->language);
        cop_context_set_state(c, c->running ? "busy" : "idle");
        _cleanup_json_ json_t *detail =
                json_pack("{s:s, s:I, s:I}", "context_id", c->row->id, "generation", (json_int_t)c->row->generation,
                          "kernel_pid", (json_int_t)c->row->kernel_pid);
        cop_engine_event(c->sandbox->engine, "kernel.started", c->sandbox->id, detail);
        cop_context_answer_waiting(c, NULL);
        if (c->running)
                cop_cell_resume(c->running);
        else if (!prepare(c, false))
                cop_context_run_next(c);
}

static void on_kernel_failed(struct cop_kernel *k, const struct cop_error *error, void *userdata)
{
        struct cop_context *c = userdata;
        bool ready = strcmp(c->row->state, "idle") == 0 || strcmp(c->row->state, "busy") == 0;

        if (c->end.set)
                return; /* the process is gone anyway: its end is being handled */
        if (ready) {
                cop_log_warning("kernel of %s/%s: %s", c->sandbox->id, c->row->id, error->message);
                cop_context_kill_kernel(c, "transport");
                return; /* EVENT_EXIT does the rest */
        }
        _cleanup_free_ char *tail = log_tail(c, 600);
        struct cop_error err;
        cop_error_set(&err, error->errnum, COP_ERR_kernel_start_failed, "%s%s%s", error->message,
                      tail && *tail ? "; its last output: " : "", tail ? tail : "");
        cop_context_kill_kernel(c, "died");
        start_failed(c, &err);
}

static void on_late_output(struct cop_kernel *k, const char *msg_id, const struct cop_output *o, void *userdata)
{
        cop_context_late_output(userdata, msg_id, o);
}

/* -- interrupting, ending -------------------------------------------------------------------------------------------------------- */

static void send_signal(struct cop_context *c, int signo)
{
        struct cop_msg m;

        if (!keeper_of(c) || !c->row->kernel_key[0])
                return;
        cop_msg_init(&m, COP_WIRE_SIGNAL, 0);
        cop_msg_add_str(&m, COP_TAG_KEY, c->row->kernel_key);
        cop_msg_add_u64(&m, COP_TAG_SIGNAL, (uint64_t)signo);
        cop_msg_add_u64(&m, COP_TAG_FLAGS, COP_EXEC_GROUP);
        cop_keeper_call(keeper_of(c), &m, KEEPER_DEADLINE, ignore_reply, NULL);
}

void cop_context_send_interrupt(struct cop_context *c)
{
        if (c->spec && c->spec->interrupt_mode == COP_INTERRUPT_MESSAGE && c->kernel)
                cop_kernel_interrupt(c->kernel, NULL);
        else
                send_signal(c, SIGINT);
}

void cop_context_kill_kernel(struct cop_context *c, const char *reason)
{
        if (!c->kill_reason)
                c->kill_reason = reason;
        send_signal(c, SIGKILL);
}

void cop_context_drop_kernel(struct cop_context *c)
{
        cop_keeper_call_cancel(c->call);
        c->call = NULL;
        c->exit_timer = cop_source_free(c->exit_timer);
        c->kernel = cop_kernel_free(c->kernel);
        c->prepare = NULL;
        c->dir_fd = cop_close(c->dir_fd);
}

/* The old generation's folder and the keeper's note of it. */
static void forget_kernel_files(struct cop_context *c)
{
        char path[200];
        struct cop_msg m;

        if (!keeper_of(c) || !c->row->kernel_dir)
                return;
        snprintf(path, sizeof(path), COP_INSIDE_IPC "/%s", c->row->kernel_dir);
        cop_msg_init(&m, COP_WIRE_FILE, 0);
        cop_msg_add_u64(&m, COP_TAG_OP, COP_FILE_REMOVE);
        cop_msg_add_str(&m, COP_TAG_PATH, path);
        cop_msg_add_u64(&m, COP_TAG_FLAGS, COP_FILE_RECURSIVE);
        cop_keeper_call(keeper_of(c), &m, KEEPER_DEADLINE, ignore_reply, NULL);

        cop_msg_init(&m, COP_WIRE_FORGET, 0);
        cop_msg_add_str(&m, COP_TAG_KEY, c->row->kernel_key);
        cop_keeper_call(keeper_of(c), &m, KEEPER_DEADLINE, ignore_reply, NULL);
}

static const char *loss_message(const struct cop_kernel_end *end)
{
        if (strcmp(end->reason, "oom") == 0)
                return "the kernel was killed because the sandbox was out of memory; variables and imports are gone, "
                       "files are kept";
        if (strcmp(end->reason, "timeout") == 0)
                return "the kernel did not react to interrupts at the cell's limit and was killed; variables and "
                       "imports are gone, files "
                       "are kept";
        if (strcmp(end->reason, "restarted") == 0)
                return "the kernel was restarted on request; variables and imports are gone, files are kept";
        if (strcmp(end->reason, "exit") == 0)
                return "the code called exit(), which ends the kernel; variables and imports are gone, files are kept";
        return "the kernel process ended; variables and imports are gone, files are kept";
}

static void remember_loss(struct cop_context *c)
{
        char stamp[COP_RFC3339_MAX];

        json_decref(c->state_lost);
        c->state_lost =
                json_pack("{s:s, s:I, s:s, s:s}", "reason", c->end.reason, "generation", (json_int_t)c->row->generation,
                          "at", cop_rfc3339(cop_now(CLOCK_REALTIME), stamp), "message", loss_message(&c->end));
        free(c->row->state_lost);
        c->row->state_lost = json_dumps(c->state_lost, JSON_COMPACT);
}

void cop_context_replace_kernel(struct cop_context *c)
{
        remember_loss(c);
        cop_replay_stop(c);
        _cleanup_json_ json_t *detail =
                json_pack("{s:s, s:s, s:I, s:i}", "context_id", c->row->id, "reason", c->end.reason, "generation",
                          (json_int_t)c->row->generation, "status", c->end.status);
        cop_engine_event(c->sandbox->engine, "kernel.ended", c->sandbox->id, detail);
        send_signal(c, SIGKILL); /* children that the kernel left in its group */
        forget_kernel_files(c);
        if (c->sandbox->state == COP_SANDBOX_RUNNING && !c->removing)
                cop_context_start_kernel(c);
}

void cop_context_kernel_ended(struct cop_context *c, struct cop_msg *event)
{
        uint64_t kills = cop_msg_u64_or(event, COP_TAG_OOM_KILLS, 0), known = c->sandbox->oom_kills;
        bool starting =
                !c->exiting && (strcmp(c->row->state, "starting") == 0 || strcmp(c->row->state, "restarting") == 0);

        if (c->end.set)
                return;
        cop_sandbox_note_memory(c->sandbox, event);
        c->end.set = true;
        c->end.status = (int)cop_msg_u64_or(event, COP_TAG_STATUS, 0);
        c->end.peak = cop_msg_u64_or(event, COP_TAG_MEMORY_PEAK, 0);
        if (c->running)
                known = MIN_OF(known, c->running->oom_kills_before);
        c->end.oom =
                !c->kill_reason && WIFSIGNALED(c->end.status) && WTERMSIG(c->end.status) == SIGKILL && kills > known;
        c->end.reason = c->kill_reason ? c->kill_reason : c->end.oom ? "oom" : "died";
        if (c->exiting || (c->running && c->running->ask_exit))
                c->end.reason = "exit";
        c->exit_timer = cop_source_free(c->exit_timer);

        if (c->removing) {
                forget_kernel_files(c);
                cop_context_free(c);
                return;
        }
        if (starting && !c->running) {
                _cleanup_free_ char *tail = log_tail(c, 600);
                struct cop_error err;
                cop_error_set(&err, ECHILD, COP_ERR_kernel_start_failed, "ended before it was ready (status %d)%s%s",
                              c->end.status, tail && *tail ? "; its last output: " : "", tail ? tail : "");
                forget_kernel_files(c);
                start_failed(c, &err);
                return;
        }
        if (!c->running)
                cop_context_replace_kernel(c);
        else if (c->running->execution && c->kernel)
                cop_kernel_died(c->kernel); /* delivers the rest, then the cell's done() goes on */
        else if (!c->running->replied)
                cop_cell_finish(c->running); /* taken over from a former daemon, but never reached */
}
