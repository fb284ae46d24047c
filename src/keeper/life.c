/* Theory of operation: from START to the end
 *
 *      NEW ── START ──► STARTING ── READY of init ──► RUNNING ── STOP ──► STOPPING ── nothing left ──► reply, exit
 *                          │ init dies or is late        │ init dies
 *                          ▼                             ▼
 *                       reply with error, NEW         ENDED: EVENT_ENDED, or kept for HELLO, until STOP
 *
 * PREPARE leaves the state NEW: what it made waits for START, and goes with a START that fails, with STOP and with us.
 *
 * One way down for all: init is killed or dies (with it the kernel kills everything in the pid namespace), its end is
 * reported by a pidfd, the cgroup is removed (the last zombies may need a moment: retried every millisecond), commands are
 * marked as killed, the folder of sockets is emptied.  Only then somebody is told.
 */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "keeper/command.h"
#include "keeper/keep.h"
#include "keeper/node.h"
#include "sandbox/wire.h"

#define READY_TIMEOUT (10 * USEC_PER_SEC)
#define REMOVE_TIMEOUT (5 * USEC_PER_SEC)
#define STOP_POLL (5 * USEC_PER_MSEC)
#define NEW_IDLE_LIMIT (30 * USEC_PER_SEC)
#define ENDED_IDLE_LIMIT (600 * USEC_PER_SEC)
#define REPLY_TIMEOUT (1 * USEC_PER_SEC)

/* -- small things ------------------------------------------------------------------------------------------------ */

void cop_keep_stats(struct cop_keep *k, struct cop_cgroup_stats *ret)
{
        if (!k->sandbox || cop_cgroup_stats(cop_sandbox_cgroup(k->sandbox), ret, NULL) < 0)
                *ret = k->last_stats;
}

void cop_keep_arm_idle(struct cop_keep *k)
{
        usec_t limit = USEC_INFINITY;

        if (!k->client && (k->state == COP_KEEP_NEW || k->ahead))
                limit = NEW_IDLE_LIMIT;
        else if (!k->client && k->state == COP_KEEP_ENDED && k->end_told)
                limit = ENDED_IDLE_LIMIT;
        cop_source_set_time(k->idle_timer, cop_usec_add(cop_now(CLOCK_MONOTONIC), limit));
}

static void on_idle(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_keep *k = userdata;

        if (k->ahead && k->sandbox)
                cop_keep_stop(k, 0, 0, 0);
        else
                cop_loop_quit(k->loop, 0);
}

static void remove_socket(struct cop_keep *k)
{
        struct sockaddr_un addr = {0};
        socklen_t n = sizeof(addr);
        struct stat st;

        if (getsockname(k->listen_fd, (struct sockaddr *)&addr, &n) == 0 && addr.sun_path[0] == '/' &&
            lstat(addr.sun_path, &st) == 0 && S_ISSOCK(st.st_mode))
                unlink(addr.sun_path);
}

/* Its content belongs to the sandbox: sockets and key files of kernels that no longer live. */
static void empty_ipc(struct cop_keep *k)
{
        _cleanup_closedir_ DIR *dir = k->ipc_path ? opendir(k->ipc_path) : NULL;
        struct dirent *entry;

        while (dir && (entry = readdir(dir)))
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        cop_remove_tree(dirfd(dir), entry->d_name, NULL);
}

/* -- the way down ------------------------------------------------------------------------------------------------ */

static void send_ended(struct cop_keep *k)
{
        struct cop_msg m;

        if (!k->client)
                return; /* HELLO tells it */
        cop_keep_flush_events(k);
        cop_msg_init(&m, COP_WIRE_EVENT_ENDED, 0);
        cop_msg_add_str(&m, COP_TAG_REASON, k->reason);
        cop_link_send(k->client, &m);
        k->end_told = true;
}

static void on_reply_late(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_keep *k = userdata;

        cop_loop_quit(k->loop, 0);
}

static void finish_stop(struct cop_keep *k)
{
        struct cop_msg m;

        remove_socket(k);
        cop_keep_flush_events(k);
        cop_msg_init(&m, COP_WIRE_REPLY, 0);
        cop_keep_add_frozen(k, &m);
        cop_keep_reply(k, k->stop_client, k->stop_id, &m);
        if (!k->client || !cop_link_busy(k->client))
                cop_loop_quit(k->loop, 0);
        else if (cop_loop_add_timer(k->loop, cop_now(CLOCK_MONOTONIC) + REPLY_TIMEOUT, on_reply_late, k, NULL, NULL) <
                 0)
                cop_loop_quit(k->loop, 0);
}

/* Nothing of the sandbox is left. */
static void finish(struct cop_keep *k)
{
        struct cop_error err = COP_ERROR_NULL;
        bool starting = k->start_id != 0;

        cop_source_set_time(k->stop_timer, USEC_INFINITY);
        cop_source_set_time(k->start_timer, USEC_INFINITY);
        k->sandbox = cop_sandbox_free(k->sandbox);
        k->init_pid = 0;
        cop_keep_node_abort(k, "the sandbox ends");
        cop_keep_memory_done(k);
        cop_error_set(&err, EPIPE, starting ? COP_ERR_start_failed : COP_ERR_sandbox_ended, "the sandbox ended: %s",
                      k->reason);
        cop_keep_calls_fail(k, &err);
        cop_keep_commands_killed(k);
        empty_ipc(k);
        if (starting) {
                cop_keep_reply_error(k, k->start_client, k->start_id, &err);
                k->start_id = 0;
        }
        if (k->state == COP_KEEP_STOPPING) {
                finish_stop(k);
                return;
        }
        if (starting) {
                k->state = COP_KEEP_NEW;
        } else {
                k->state = COP_KEEP_ENDED;
                send_ended(k);
        }
        cop_keep_arm_idle(k);
}

/* Of a tree that stands still nothing is to run any more: v1's freezer lets go of nobody before, not even of those who are killed. */
static void kill_all(struct cop_keep *k)
{
        struct cop_cgroup *cgroup = cop_sandbox_cgroup(k->sandbox);

        cop_sandbox_kill(k->sandbox);
        if (!k->ahead)
                return;
        cop_cgroup_kill(cgroup);
        (void)cop_cgroup_freeze(cgroup, false, NULL);
}

static void on_stop_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_keep *k = userdata;
        bool init_lives = k->init_source;

        if (!k->sandbox)
                return;
        if (init_lives) { /* the grace of STOP */
                if (!k->kill_sent && (now >= k->stop_deadline ||
                                      cop_cgroup_signal(cop_sandbox_cgroup(k->sandbox), 0, k->init_pid) == 0)) {
                        kill_all(k);
                        k->kill_sent = true;
                }
                if (!k->kill_sent)
                        cop_source_set_time(s, now + STOP_POLL);
                return;
        }
        if (cop_sandbox_wipe(k->sandbox) == -EBUSY && now < k->stop_deadline)
                cop_source_set_time(s, now + USEC_PER_MSEC);
        else
                finish(k);
}

static void set_reason(struct cop_keep *k, const siginfo_t *si)
{
        if (k->state == COP_KEEP_STOPPING)
                snprintf(k->reason, sizeof(k->reason), "stopped");
        else if (k->state == COP_KEEP_STARTING && k->reason[0])
                return; /* we killed it, and said why */
        else if (si->si_code == CLD_EXITED)
                snprintf(k->reason, sizeof(k->reason), "init_exited_%d", si->si_status);
        else if (si->si_status == SIGKILL && k->last_stats.oom_kills > 0)
                snprintf(k->reason, sizeof(k->reason), "oom");
        else
                snprintf(k->reason, sizeof(k->reason), "init_signal_%d", si->si_status);
}

static void on_init_end(struct cop_source *s, const siginfo_t *si, void *userdata)
{
        struct cop_keep *k = userdata;

        cop_keep_stats(k, &k->last_stats);
        set_reason(k, si);
        k->init_source = cop_source_free(s);
        k->init = cop_link_free(k->init);
        k->stop_deadline = cop_now(CLOCK_MONOTONIC) + REMOVE_TIMEOUT;
        on_stop_timer(k->stop_timer, cop_now(CLOCK_MONOTONIC), k);
}

void cop_keep_stop(struct cop_keep *k, uint64_t client, uint32_t id, usec_t grace)
{
        bool first = k->state != COP_KEEP_STOPPING;

        if (id) { /* a second STOP takes over the answer: the first asker is gone or impatient */
                k->stop_client = client;
                k->stop_id = id;
        }
        cop_keep_node_abort(k, "the sandbox ends");
        k->state = COP_KEEP_STOPPING;
        if (!k->sandbox) {
                k->prepared = cop_sandbox_free(k->prepared);
                if (first)
                        finish_stop(k);
                return;
        }
        if (!k->init_source) /* already on the way down */
                return;
        usec_t deadline = cop_usec_add(cop_now(CLOCK_MONOTONIC), grace);
        k->stop_deadline = first ? deadline : MIN_OF(deadline, k->stop_deadline);
        if (first && grace > 0)
                cop_cgroup_signal(cop_sandbox_cgroup(k->sandbox), SIGTERM, k->init_pid);
        on_stop_timer(k->stop_timer, cop_now(CLOCK_MONOTONIC), k);
}

/* -- PREPARE, START --------------------------------------------------------------------------------------------- */

static void on_start_late(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_keep *k = userdata;

        if (k->state != COP_KEEP_STARTING || !k->sandbox)
                return;
        snprintf(k->reason, sizeof(k->reason), "init_not_ready");
        cop_sandbox_kill(k->sandbox);
}

void cop_keep_ready(struct cop_keep *k)
{
        struct cop_msg m;

        if (k->state != COP_KEEP_STARTING)
                return;
        k->state = COP_KEEP_RUNNING;
        cop_source_set_time(k->start_timer, USEC_INFINITY);
        cop_msg_init(&m, COP_WIRE_REPLY, 0);
        cop_msg_add_u64(&m, COP_TAG_INIT_PID, (uint64_t)k->init_pid);
        cop_msg_add_u64(&m, COP_TAG_DURATION, cop_now(CLOCK_MONOTONIC) - k->start_began);
        cop_keep_reply(k, k->start_client, k->start_id, &m);
        k->start_id = 0;
}

/* coppice-init lies next to this program, or next to the link by which it was called. */
static int find_init(char path[static PATH_MAX], struct cop_error *err)
{
        ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);

        if (n < 0)
                return cop_error_errno(err, errno, "finding this program");
        path[n] = '\0';
        char *slash = strrchr(path, '/');
        if (!slash || cop_path_format(slash + 1, PATH_MAX - (size_t)(slash + 1 - path), "coppice-init") < 0)
                return cop_error_set(err, ENAMETOOLONG, COP_ERR_internal, "the path of this program is too long");
        if (access(path, X_OK) < 0)
                return cop_error_errno(err, errno, "finding %s (it must be installed next to coppice-keeper)", path);
        return 0;
}

struct start_strings {
        char **lower;
        size_t lower_count;
        char *upper, *ipc, *logs, *hostname, *cgroup, *workdir, *thaw;
};

static void start_strings_done(struct start_strings *s)
{
        cop_strv_free(s->lower);
        free(s->upper);
        free(s->ipc);
        free(s->logs);
        free(s->hostname);
        free(s->cgroup);
        free(s->workdir);
        free(s->thaw);
}

static int need_str(const struct cop_msg *m, uint16_t tag, const char *name, bool optional, char **ret,
                    struct cop_error *err)
{
        int r = cop_msg_get_str(m, tag, 0, ret);

        if (r == -ENOENT && optional)
                return 0;
        if (r == -ENOMEM)
                return cop_error_errno(err, ENOMEM, "%s", name);
        return r < 0 ? cop_error_set(err, EINVAL, COP_ERR_bad_request, "a start needs a valid %s", name) : 0;
}

static int parse_strings(const struct cop_msg *m, struct start_strings *s, struct cop_error *err)
{
        int r = cop_msg_get_strv(m, COP_TAG_LOWER, &s->lower, &s->lower_count);

        if (r < 0)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "a start needs valid LOWER fields");
        r = need_str(m, COP_TAG_UPPER, "UPPER", false, &s->upper, err);
        if (r == 0)
                r = need_str(m, COP_TAG_LOGS, "LOGS", false, &s->logs, err);
        if (r == 0)
                r = need_str(m, COP_TAG_CGROUP, "CGROUP", false, &s->cgroup, err);
        if (r == 0)
                r = need_str(m, COP_TAG_IPC, "IPC", true, &s->ipc, err);
        if (r == 0)
                r = need_str(m, COP_TAG_HOSTNAME, "HOSTNAME", true, &s->hostname, err);
        if (r == 0)
                r = need_str(m, COP_TAG_CWD, "CWD", true, &s->workdir, err);
        if (r == 0)
                r = need_str(m, COP_TAG_THAW, "THAW", true, &s->thaw, err);
        return r;
}

/* After the sandbox's processes exist; a failure kills them. */
static int attach(struct cop_keep *k, struct cop_error *err)
{
        int control_fd = fcntl(cop_sandbox_control_fd(k->sandbox), F_DUPFD_CLOEXEC, 0);

        if (control_fd < 0)
                return cop_error_errno(err, errno, "control socket");
        int r = cop_link_new(k->loop, control_fd, &cop_keep_init_calls, k, &k->init, err);
        if (r == 0)
                r = cop_loop_add_child(k->loop, k->init_pid, on_init_end, k, &k->init_source, err);
        if (r < 0)
                k->init = cop_link_free(k->init);
        return r;
}

/* s and init_path own what the spec borrows. */
static int read_spec(struct cop_keep *k, const struct cop_msg *m, struct start_strings *s,
                     char init_path[static PATH_MAX], struct cop_sandbox_spec *ret, struct cop_error *err)
{
        int r = parse_strings(m, s, err);

        if (r < 0 || (r = find_init(init_path, err)) < 0)
                return r;
        uint32_t uid_base = (uint32_t)cop_msg_u64_or(m, COP_TAG_UID_BASE, 0);
        if (k->prepared && (uid_base != k->uid_base || strcmp(s->cgroup, k->id) != 0))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "START of %s, and %s was prepared", s->cgroup,
                                     k->id);
        k->uid_base = uid_base;
        k->default_uid = (uint32_t)cop_msg_u64_or(m, COP_TAG_DEFAULT_UID, 1000);
        k->default_gid = (uint32_t)cop_msg_u64_or(m, COP_TAG_DEFAULT_GID, 1000);
        snprintf(k->id, sizeof(k->id), "%.63s", s->cgroup);
        *ret = (struct cop_sandbox_spec){
                .lower = (const char *const *)s->lower,
                .lower_count = s->lower_count,
                .upper = s->upper,
                .ipc = s->ipc,
                .hostname = s->hostname,
                .cgroup = s->cgroup,
                .uid_base = k->uid_base,
                .limits = {.memory_max = cop_msg_u64_or(m, COP_TAG_MEMORY_MAX, 0),
                           .cpu_milli = cop_msg_u64_or(m, COP_TAG_CPU_MILLI, 0),
                           .pids_max = cop_msg_u64_or(m, COP_TAG_PIDS_MAX, 0)},
                .nofile = cop_msg_u64_or(m, COP_TAG_NOFILE, 0),
                .default_uid = k->default_uid,
                .default_gid = k->default_gid,
                .workdir = s->workdir,
                .init_path = init_path,
                .hold = s->thaw != NULL,
        };
        return 0;
}

static int set_folders(struct cop_keep *k, const struct start_strings *s, struct cop_error *err)
{
        cop_close(k->logs_fd);
        k->logs_fd = open(s->logs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (k->logs_fd < 0)
                return cop_error_errno(err, errno, "opening the folder of logs %s", s->logs);
        free(k->ipc_path);
        k->ipc_path = s->ipc ? strdup(s->ipc) : NULL;
        free(k->upper_path);
        k->upper_path = strdup(s->upper);
        return k->upper_path && (k->ipc_path || !s->ipc) ? 0 : cop_error_errno(err, ENOMEM, "START");
}

static int start(struct cop_keep *k, const struct cop_msg *m, struct start_strings *s, struct cop_error *err)
{
        char init_path[PATH_MAX];
        struct cop_sandbox_spec spec;
        int r = read_spec(k, m, s, init_path, &spec, err);

        if (r == 0)
                r = set_folders(k, s, err);
        if (r < 0)
                return r;
        k->sandbox = TAKE_PTR(k->prepared);
        if (s->thaw)
                r = cop_keep_thaw(k, &spec, s->thaw, (unsigned)cop_msg_u64_or(m, COP_TAG_FLAGS, 0), err);
        else
                r = cop_sandbox_start(&spec, &k->sandbox, err);
        if (r < 0)
                return r;
        k->init_pid = cop_sandbox_pid(k->sandbox);
        r = attach(k, err);
        if (r < 0)
                cop_keep_thaw_undo(k);
        return r;
}

void cop_keep_prepare(struct cop_keep *k, struct cop_msg *m)
{
        struct cop_error err = COP_ERROR_NULL;
        struct start_strings strings = {0};
        struct cop_sandbox_spec spec;
        char init_path[PATH_MAX];
        usec_t began = cop_now(CLOCK_MONOTONIC);
        struct cop_msg reply;
        int r;

        if (k->state != COP_KEEP_NEW || k->prepared)
                r = cop_error_set(&err, EINVAL, COP_ERR_invalid_state, "this keeper has had its PREPARE or START");
        else
                r = read_spec(k, m, &strings, init_path, &spec, &err);
        if (r == 0)
                r = cop_sandbox_prepare(&spec, &k->prepared, &err);
        start_strings_done(&strings);
        if (r < 0) {
                cop_keep_reply_error(k, k->client_number, m->id, &err);
                return;
        }
        cop_msg_init(&reply, COP_WIRE_REPLY, 0);
        cop_msg_add_u64(&reply, COP_TAG_DURATION, cop_now(CLOCK_MONOTONIC) - began);
        cop_keep_reply(k, k->client_number, m->id, &reply);
}

void cop_keep_start(struct cop_keep *k, struct cop_msg *m)
{
        struct cop_error err = COP_ERROR_NULL;
        struct start_strings strings = {0};
        usec_t began = cop_now(CLOCK_MONOTONIC);
        bool fresh = k->state == COP_KEEP_NEW;
        int r;

        if (!fresh)
                r = cop_error_set(&err, EINVAL, COP_ERR_invalid_state, "this keeper has had its START");
        else
                r = start(k, m, &strings, &err);
        bool thawed = strings.thaw != NULL;
        start_strings_done(&strings);
        if (r < 0) {
                if (fresh)
                        k->prepared = cop_sandbox_free(k->prepared);
                if (thawed)
                        empty_ipc(k); /* what follows may be a cold start */
                cop_keep_reply_error(k, k->client_number, m->id, &err);
                return;
        }
        k->state = COP_KEEP_STARTING;
        k->ahead = cop_msg_u64_or(m, COP_TAG_FLAGS, 0) & COP_THAW_AHEAD;
        k->reason[0] = '\0';
        k->start_began = began;
        k->start_id = m->id;
        k->start_client = k->client_number;
        cop_source_set_time(k->start_timer, began + READY_TIMEOUT);
        if (thawed) /* its init said READY in an earlier life */
                cop_keep_ready(k);
}

void cop_keep_name(struct cop_keep *k, struct cop_msg *m)
{
        _cleanup_free_ char *name = NULL;
        struct cop_error err = COP_ERROR_NULL;
        struct cop_msg reply;
        int r = 0;

        if (!k->ahead || !k->sandbox)
                r = cop_error_set(&err, EINVAL, COP_ERR_invalid_state, "what runs keeps its name");
        else if (cop_msg_get_str(m, COP_TAG_HOSTNAME, 0, &name) < 0)
                r = cop_error_set(&err, EINVAL, COP_ERR_bad_request, "NAME needs a valid HOSTNAME");
        if (r == 0)
                r = cop_sandbox_rename(k->sandbox, name, &err);
        if (r < 0) {
                cop_keep_reply_error(k, k->client_number, m->id, &err);
                return;
        }
        cop_msg_init(&reply, COP_WIRE_REPLY, 0);
        cop_keep_reply(k, k->client_number, m->id, &reply);
}

int cop_keep_life_init(struct cop_keep *k, struct cop_error *err)
{
        int r = cop_loop_add_timer(k->loop, USEC_INFINITY, on_idle, k, &k->idle_timer, err);

        if (r == 0)
                r = cop_loop_add_timer(k->loop, USEC_INFINITY, on_start_late, k, &k->start_timer, err);
        if (r == 0)
                r = cop_loop_add_timer(k->loop, USEC_INFINITY, on_stop_timer, k, &k->stop_timer, err);
        return r;
}
