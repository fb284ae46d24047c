#include "command.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sandbox/wire.h"

#define LOG_EVENT_GAP (2 * USEC_PER_MSEC)
#define LOG_MAX_DEFAULT (64ULL << 20)

static struct cop_command *find_key(struct cop_keep *k, const char *key)
{
        for (struct cop_command *c = k->commands; c; c = c->next)
                if (!c->forgotten && strcmp(c->key, key) == 0)
                        return c;
        return NULL;
}

static struct cop_command *find_pid(struct cop_keep *k, int64_t pid)
{
        for (struct cop_command *c = k->commands; c; c = c->next)
                if (!c->exited && c->pid == pid)
                        return c;
        return NULL;
}

static void command_free(struct cop_command *c)
{
        struct cop_keep *k = c->keep;

        for (struct cop_command **p = &k->commands; *p; p = &(*p)->next)
                if (*p == c) {
                        *p = c->next;
                        k->command_count--;
                        break;
                }
        if (!c->exited)
                k->running_count--;
        cop_source_free(c->timer);
        for (unsigned i = 0; i < 2; i++) {
                cop_source_free(c->out[i].source);
                cop_close(c->out[i].fd);
        }
        cop_logfile_close(&c->log);
        free(c);
}

void cop_keep_commands_free(struct cop_keep *k)
{
        while (k->commands)
                command_free(k->commands);
}

/* -- events ------------------------------------------------------------------------------------------------------ */

static void send_exit(struct cop_keep *k, struct cop_command *c)
{
        struct cop_cgroup_stats stats;
        struct cop_msg m;

        cop_keep_stats(k, &stats);
        cop_msg_init(&m, COP_WIRE_EVENT_EXIT, 0);
        cop_msg_add_str(&m, COP_TAG_KEY, c->key);
        cop_msg_add_u64(&m, COP_TAG_PID, (uint64_t)c->pid);
        cop_msg_add_u64(&m, COP_TAG_STATUS, (uint64_t)(unsigned)c->status);
        cop_msg_add_u64(&m, COP_TAG_TIMED_OUT, c->timed_out);
        cop_msg_add_u64(&m, COP_TAG_OOM_KILLS, stats.oom_kills);
        cop_msg_add_u64(&m, COP_TAG_MEMORY_PEAK, stats.memory_peak);
        cop_msg_add_u64(&m, COP_TAG_STDOUT_BYTES, c->out[0].bytes);
        cop_msg_add_u64(&m, COP_TAG_STDERR_BYTES, c->out[1].bytes);
        cop_msg_add_u64(&m, COP_TAG_LOG_SIZE, c->log.size);
        cop_link_send(k->client, &m);
}

static void send_size(struct cop_keep *k, struct cop_command *c, uint16_t type)
{
        struct cop_msg m;

        cop_msg_init(&m, type, 0);
        cop_msg_add_str(&m, COP_TAG_KEY, c->key);
        cop_msg_add_u64(&m, COP_TAG_LOG_SIZE, c->log.size);
        cop_link_send(k->client, &m);
}

/* Returns when this command wants to be looked at again, USEC_INFINITY = not by itself. */
static usec_t flush_command(struct cop_keep *k, struct cop_command *c, usec_t now)
{
        if (c->exit_event) {
                c->exit_event = c->log_event = false;
                send_exit(k, c);
        } else if (c->log_event && c->pid > 0) { /* not before the reply that makes the key known */
                if (now < c->log_event_next)
                        return c->log_event_next;
                c->log_event = false;
                c->log_event_next = now + LOG_EVENT_GAP;
                cop_logfile_sync_mark(&c->log, cop_now(CLOCK_REALTIME));
                send_size(k, c, COP_WIRE_EVENT_LOG);
        }
        if (c->eof_event && c->exited) {
                c->eof_event = false;
                send_size(k, c, COP_WIRE_EVENT_EOF);
        }
        return USEC_INFINITY;
}

void cop_keep_flush_events(struct cop_keep *k)
{
        usec_t now = cop_now(CLOCK_MONOTONIC), next = USEC_INFINITY;

        for (struct cop_command *c = k->commands, *following; c; c = following) {
                following = c->next;
                if (c->forgotten && c->exited && cop_output_eof(c)) {
                        command_free(c);
                        continue;
                }
                if (!c->forgotten && cop_keep_client_ready(k)) /* else when the socket is writable */
                        next = MIN_OF(next, flush_command(k, c, now));
        }
        cop_source_set_time(k->flush_timer, next);
}

void cop_keep_schedule_flush(struct cop_keep *k)
{
        cop_source_set_enabled(k->flush_defer, 1);
}

static void on_flush_timer(struct cop_source *s, usec_t now, void *userdata)
{
        cop_keep_flush_events(userdata);
}

static void on_flush_defer(struct cop_source *s, void *userdata)
{
        cop_source_set_enabled(s, 0);
        cop_keep_flush_events(userdata);
}

int cop_keep_commands_init(struct cop_keep *k, struct cop_error *err)
{
        int r = cop_loop_add_timer(k->loop, USEC_INFINITY, on_flush_timer, k, &k->flush_timer, err);

        return r < 0 ? r : cop_loop_add_defer(k->loop, on_flush_defer, k, &k->flush_defer, err);
}

/* -- EXEC -------------------------------------------------------------------------------------------------------- */

static int check_key(const struct cop_msg *m, char ret_key[static 64], struct cop_error *err)
{
        const void *data;
        size_t n;

        if (cop_msg_get_bytes(m, COP_TAG_KEY, 0, &data, &n) < 0 || n == 0 || n > 63)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "KEY must have 1 to 63 characters");
        for (size_t i = 0; i < n; i++) {
                char ch = ((const char *)data)[i];
                if (!((ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '_'))
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "KEY may only have a-z, 0-9 and _");
        }
        memcpy(ret_key, data, n);
        ret_key[n] = '\0';
        return 0;
}

static int check_room(struct cop_keep *k, const char *key, struct cop_error *err)
{
        if (k->state != COP_KEEP_RUNNING)
                return cop_error_set(err, EINVAL, COP_ERR_invalid_state, "the sandbox does not run");
        if (find_key(k, key))
                return cop_error_set(err, EEXIST, COP_ERR_in_use, "a command %s exists; FORGET it first", key);
        if (k->running_count >= COP_KEEP_RUNNING_MAX)
                return cop_error_set(err, EAGAIN, COP_ERR_too_many, "%d commands run already; wait or end some",
                                     COP_KEEP_RUNNING_MAX);
        if (k->command_count >= COP_KEEP_COMMANDS_MAX)
                return cop_error_set(
                        err, EAGAIN, COP_ERR_too_many,
                        "%d commands are kept, running, ended or with children that hold their output; forget or "
                        "end some",
                        COP_KEEP_COMMANDS_MAX);
        return 0;
}

static struct cop_command *command_new(struct cop_keep *k, const char *key, usec_t timeout)
{
        struct cop_command *c = calloc(1, sizeof(*c));

        if (!c)
                return NULL;
        *c = (struct cop_command){.keep = k, .log = COP_LOGFILE_NULL, .timeout = timeout, .next = k->commands};
        for (unsigned i = 0; i < 2; i++)
                c->out[i] = (struct cop_output){.command = c, .fd = -EBADF};
        memcpy(c->key, key, sizeof(c->key));
        k->commands = c;
        k->command_count++;
        k->running_count++;
        return c;
}

/* Makes the log, the pipes and stdin, and puts the three descriptors into m. */
static int prepare_io(struct cop_command *c, struct cop_msg *m, struct cop_error *err)
{
        struct cop_keep *k = c->keep;
        char name[sizeof(c->key) + 8];
        int r;

        if (m->fd_count > 1)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "EXEC takes at most one descriptor, stdin");
        if (m->fd_count == 0) /* a failure makes the message fail */
                cop_msg_add_fd(m, open("/dev/null", O_RDONLY | O_CLOEXEC));
        snprintf(name, sizeof(name), "%s.log", c->key);
        r = cop_logfile_create(k->logs_fd, name, cop_msg_u64_or(m, COP_TAG_LOG_MAX, LOG_MAX_DEFAULT), &c->log, err);
        for (unsigned i = 0; i < 2 && r == 0; i++) {
                int fd = -EBADF;
                r = cop_output_open(c, i, k->uid_base + k->default_uid, k->uid_base + k->default_gid, &fd, err);
                if (r == 0)
                        cop_msg_add_fd(m, fd);
        }
        return r < 0 ? r : cop_output_watch(c, err);
}

/* A command that never ran leaves nothing. */
static void abandon(struct cop_command *c)
{
        char name[sizeof(c->key) + 8];

        snprintf(name, sizeof(name), "%s.log", c->key);
        if (c->log.size > 0) /* it was made by us */
                unlinkat(c->keep->logs_fd, name, 0);
        command_free(c);
}

void cop_keep_exec(struct cop_keep *k, struct cop_msg *m)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_command *c = NULL;
        uint32_t id = m->id;
        char key[64] = "";
        int r = check_key(m, key, &err);

        if (r == 0)
                r = check_room(k, key, &err);
        if (r == 0 && !(c = command_new(k, key, cop_msg_u64_or(m, COP_TAG_TIMEOUT, 0))))
                r = cop_error_errno(&err, ENOMEM, "command");
        if (r == 0)
                r = prepare_io(c, m, &err);
        if (r == 0) {
                m->type = COP_WIRE_SPAWN; /* KEY, TIMEOUT and LOG_MAX go along unread */
                r = cop_keep_call(k, m, id, c, &err);
        }
        if (r < 0) {
                if (c)
                        abandon(c);
                cop_keep_reply_error(k, k->client_number, id, &err);
        }
}

static void kill_group(struct cop_keep *k, int64_t pid, int signo)
{
        struct cop_msg m;

        cop_msg_init(&m, COP_WIRE_KILL, 0);
        cop_msg_add_i64(&m, COP_TAG_PID, pid);
        cop_msg_add_u64(&m, COP_TAG_SIGNAL, (uint64_t)signo);
        cop_msg_add_u64(&m, COP_TAG_FLAGS, COP_EXEC_GROUP);
        cop_keep_call(k, &m, 0, NULL, NULL);
        cop_msg_done(&m);
}

static void on_timeout(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_command *c = userdata;

        if (c->exited)
                return;
        c->timed_out = true;
        kill_group(c->keep, c->pid, SIGKILL);
}

static int arm_timeout(struct cop_command *c, struct cop_error *err)
{
        c->deadline = cop_usec_add(cop_now(CLOCK_MONOTONIC), c->timeout);
        return cop_loop_add_timer(c->keep->loop, c->deadline, on_timeout, c, &c->timer, err);
}

void cop_command_spawned(struct cop_command *c, struct cop_call *call, struct cop_msg *reply)
{
        struct cop_keep *k = c->keep;
        struct cop_error err = COP_ERROR_NULL;
        struct cop_msg m;
        int64_t pid = 0;

        if (cop_msg_get_error(reply, &err)) {
                abandon(c);
                cop_keep_reply_error(k, call->client_number, call->client_id, &err);
                return;
        }
        if (cop_msg_get_i64(reply, COP_TAG_PID, &pid) < 0 || pid <= 1 || pid > INT32_MAX || find_pid(k, pid)) {
                abandon(c);
                cop_error_set(&err, EBADMSG, COP_ERR_internal, "init answered nonsense");
                cop_keep_reply_error(k, call->client_number, call->client_id, &err);
                return;
        }
        c->pid = pid;
        c->started = cop_now(CLOCK_REALTIME);
        /* Without memory for the timer it would run without limit. */
        if (c->timeout && arm_timeout(c, &err) < 0)
                kill_group(k, pid, SIGKILL);
        cop_msg_init(&m, COP_WIRE_REPLY, 0);
        cop_msg_add_i64(&m, COP_TAG_PID, pid);
        cop_keep_reply(k, call->client_number, call->client_id, &m);
        cop_keep_schedule_flush(k);
}

int cop_command_restore(struct cop_keep *k, const char *key, int64_t pid, bool exited, bool forgotten,
                        usec_t timeout_left, struct cop_command **ret, struct cop_error *err)
{
        char checked[64] = ""; /* LIST sends all of it */

        snprintf(checked, sizeof(checked), "%s", key);
        if ((!forgotten && find_key(k, checked)) || (!exited && find_pid(k, pid)) ||
            k->command_count >= COP_KEEP_COMMANDS_MAX)
                return cop_error_set(err, EBADMSG, COP_ERR_image_damaged, "the keeper's state in the node is damaged");
        struct cop_command *c = command_new(k, checked, timeout_left);
        if (!c)
                return cop_error_errno(err, ENOMEM, "command");
        c->pid = pid;
        c->forgotten = forgotten;
        *ret = c;
        if (exited) {
                c->exited = true;
                k->running_count--;
                return 0;
        }
        return timeout_left ? arm_timeout(c, err) : 0;
}

/* -- end --------------------------------------------------------------------------------------------------------- */

static void mark_exited(struct cop_command *c, int status)
{
        cop_output_drain(c);
        c->exited = true;
        c->status = status;
        c->ended = cop_now(CLOCK_REALTIME);
        c->timer = cop_source_free(c->timer);
        c->exit_event = true;
        c->keep->running_count--;
        cop_keep_schedule_flush(c->keep);
}

void cop_keep_child_ended(struct cop_keep *k, int64_t pid, int status)
{
        struct cop_command *c = pid > 0 ? find_pid(k, pid) : NULL;

        if (c)
                mark_exited(c, status);
}

void cop_keep_commands_killed(struct cop_keep *k)
{
        for (struct cop_command *c = k->commands, *next; c; c = next) {
                next = c->next;
                if (c->pid == 0) { /* its SPAWN was answered with an error by cop_keep_calls_fail */
                        abandon(c);
                        continue;
                }
                if (!c->exited)
                        mark_exited(c, SIGKILL);
                else
                        cop_output_drain(c);
                cop_output_close(c);
        }
}

/* -- SIGNAL, LIST, FORGET ---------------------------------------------------------------------------------------- */

static struct cop_command *need_key(struct cop_keep *k, const struct cop_msg *m, struct cop_error *err)
{
        char key[64];
        struct cop_command *c = check_key(m, key, err) == 0 ? find_key(k, key) : NULL;

        if (c && c->pid != 0)
                return c;
        if (err->errnum == 0)
                cop_error_set(err, ESRCH, COP_ERR_command_not_found, "no command %s", key);
        return NULL;
}

void cop_keep_signal(struct cop_keep *k, struct cop_msg *m)
{
        struct cop_error err = COP_ERROR_NULL;
        uint32_t id = m->id;
        int64_t pid;
        int r = 0;

        if (k->state != COP_KEEP_RUNNING)
                r = cop_error_set(&err, EINVAL, COP_ERR_invalid_state, "the sandbox does not run");
        else if (cop_msg_get_i64(m, COP_TAG_PID, &pid) < 0) {
                struct cop_command *c = need_key(k, m, &err);
                if (c)
                        cop_msg_add_i64(m, COP_TAG_PID, c->pid);
                else
                        r = -err.errnum;
        }
        if (r == 0) {
                m->type = COP_WIRE_KILL;
                r = cop_keep_call(k, m, id, NULL, &err);
        }
        if (r < 0)
                cop_keep_reply_error(k, k->client_number, id, &err);
}

void cop_keep_list(struct cop_keep *k, struct cop_msg *m)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_msg reply;

        _Static_assert(COP_KEEP_COMMANDS_MAX * (sizeof(struct cop_wire_entry) + 8) + 64 < COP_MSG_MAX,
                       "LIST fits a packet");
        if (k->ahead && k->sandbox && cop_cgroup_freeze(cop_sandbox_cgroup(k->sandbox), false, &err) < 0) {
                cop_keep_reply_error(k, k->client_number, m->id, &err);
                return;
        }
        k->ahead = false;
        cop_msg_init(&reply, COP_WIRE_REPLY, 0);
        for (struct cop_command *c = k->commands; c; c = c->next) {
                struct cop_wire_entry e = {.pid = (uint64_t)c->pid,
                                           .flags = (c->exited ? COP_ENTRY_EXITED : 0) |
                                                    (cop_output_eof(c) ? COP_ENTRY_EOF : 0) |
                                                    (c->timed_out ? COP_ENTRY_TIMED_OUT : 0),
                                           .status = (unsigned)c->status,
                                           .stdout_bytes = c->out[0].bytes,
                                           .stderr_bytes = c->out[1].bytes,
                                           .started = c->started,
                                           .ended = c->ended};
                if (c->forgotten || c->pid == 0)
                        continue;
                cop_logfile_sync_mark(&c->log, cop_now(CLOCK_REALTIME));
                e.log_size = c->log.size;
                memcpy(e.key, c->key, sizeof(e.key));
                cop_msg_add_bytes(&reply, COP_TAG_ENTRY, &e, sizeof(e));
        }
        cop_keep_reply(k, k->client_number, m->id, &reply);
}

void cop_keep_forget(struct cop_keep *k, struct cop_msg *m)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_msg reply;
        struct cop_command *c = need_key(k, m, &err);

        if (c && !c->exited) {
                cop_error_set(&err, EBUSY, COP_ERR_invalid_state, "the command %s still runs", c->key);
                c = NULL;
        }
        if (!c) {
                cop_keep_reply_error(k, k->client_number, m->id, &err);
                return;
        }
        c->forgotten = true; /* what still holds its pipes prints into the void: no SIGPIPE */
        cop_logfile_close(&c->log);
        if (cop_output_eof(c))
                command_free(c);
        cop_msg_init(&reply, COP_WIRE_REPLY, 0);
        cop_keep_reply(k, k->client_number, m->id, &reply);
}
