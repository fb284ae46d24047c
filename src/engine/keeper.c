/* Theory of operation
 *
 * One SEQPACKET connection, non-blocking.  A call is put at the end of `calls`; what could not be sent at once keeps
 * its message and waits for EPOLLOUT, in order.  Replies find their call by id.  A call that failed on our side is only
 * marked; a deferred source answers it, so that fn never runs inside cop_keeper_call.
 *
 * Every callback may free the keeper.  While one runs, `busy` is set and cop_keeper_free only empties the object; the
 * outermost function that set `busy` frees the memory.
 *
 * End of file is the one sign that the keeper is gone.  A failed send is not: replies and events may still lie in the
 * socket, and are read first.
 */
#include "engine/keeper.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "base/child.h"
#include "base/cleanup.h"
#include "base/fs.h"

#define WAITING_MAX 4096
#define READS_A_TURN 64
#define LISTEN_FD 3
#define HOLD_FD 4

struct cop_keeper_call {
        struct cop_keeper *keeper; /* borrowed */
        struct cop_keeper_call *next, *prev;
        uint32_t id;
        bool unsent; /* msg is filled and waits */
        int failed;  /* negative errno of the send */
        struct cop_msg msg;
        usec_t deadline; /* CLOCK_MONOTONIC */
        cop_keeper_reply_fn fn;
        void *userdata;
};

struct cop_keeper {
        struct cop_loop *loop;                   /* borrowed */
        int fd;                                  /* owned */
        int pid_fd;                              /* owned; -EBADF when the keeper was not started by us */
        struct cop_source *io, *timer, *failing; /* owned */
        struct cop_keeper_events events;
        struct cop_keeper_call *calls, *last;
        size_t unsent;
        uint32_t next_id;
        unsigned busy;
        bool freed, lost;
};

/* -- calls --------------------------------------------------------------------------------------------------------- */

static void unlink_call(struct cop_keeper_call *call)
{
        struct cop_keeper *k = call->keeper;

        if (call->prev)
                call->prev->next = call->next;
        else
                k->calls = call->next;
        if (call->next)
                call->next->prev = call->prev;
        else
                k->last = call->prev;
        if (call->unsent) {
                k->unsent--;
                cop_msg_done(&call->msg);
        }
        free(call);
}

/* fn may free the keeper: check k->freed afterwards. */
static void answer(struct cop_keeper_call *call, struct cop_msg *reply, const struct cop_error *err)
{
        cop_keeper_reply_fn fn = call->fn;
        void *userdata = call->userdata;

        unlink_call(call);
        if (fn)
                fn(reply, err, userdata);
}

static void arm_timer(struct cop_keeper *k)
{
        usec_t first = USEC_INFINITY;

        for (struct cop_keeper_call *c = k->calls; c; c = c->next)
                first = MIN_OF(first, c->deadline);
        cop_source_set_time(k->timer, first);
}

static void leave(struct cop_keeper *k)
{
        if (--k->busy == 0 && k->freed)
                free(k);
}

static void on_deadline(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_keeper *k = userdata;
        struct cop_error err;

        k->busy++;
        for (struct cop_keeper_call *c = k->calls; c && !k->freed;) {
                if (c->deadline > now) {
                        c = c->next;
                        continue;
                }
                cop_error_set(&err, ETIMEDOUT, COP_ERR_timeout, "the sandbox's keeper did not answer in time");
                answer(c, NULL, &err);
                c = k->freed ? NULL : k->calls; /* anything may have changed */
        }
        if (!k->freed)
                arm_timer(k);
        leave(k);
}

static void on_failing(struct cop_source *s, void *userdata)
{
        struct cop_keeper *k = userdata;
        struct cop_error err;

        cop_source_set_enabled(s, 0);
        k->busy++;
        for (struct cop_keeper_call *c = k->calls; c && !k->freed;) {
                if (!c->failed) {
                        c = c->next;
                        continue;
                }
                if (c->failed == -E2BIG)
                        cop_error_set(&err, E2BIG, COP_ERR_bad_request,
                                      "the request is too large for the sandbox (arguments and environment together "
                                      "are over %d KiB)",
                                      COP_MSG_MAX / 1024);
                else if (c->failed == -ENOBUFS)
                        cop_error_set(&err, ENOBUFS, COP_ERR_too_many, "too many requests wait for this sandbox");
                else
                        cop_error_set(&err, -c->failed, COP_ERR_unavailable,
                                      "the sandbox's keeper cannot be reached: %s", strerror(-c->failed));
                answer(c, NULL, &err);
                c = k->freed ? NULL : k->calls;
        }
        leave(k);
}

static void fail_later(struct cop_keeper_call *call, int r)
{
        struct cop_keeper *k = call->keeper;

        call->failed = r;
        if (call->unsent) {
                call->unsent = false;
                k->unsent--;
                cop_msg_done(&call->msg);
        }
        cop_source_set_enabled(k->failing, 1);
}

static void send_waiting(struct cop_keeper *k)
{
        for (struct cop_keeper_call *c = k->calls; c && k->unsent; c = c->next) {
                if (!c->unsent)
                        continue;
                int r = cop_msg_send(k->fd, &c->msg);
                if (r == -EAGAIN)
                        break;
                if (r < 0) {
                        fail_later(c, r);
                        continue;
                }
                c->unsent = false;
                k->unsent--;
                cop_msg_done(&c->msg);
        }
        cop_source_set_events(k->io, k->unsent ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

struct cop_keeper_call *cop_keeper_call(struct cop_keeper *k, struct cop_msg *m, usec_t deadline,
                                        cop_keeper_reply_fn fn, void *userdata)
{
        struct cop_keeper_call *call = calloc(1, sizeof(*call));

        if (!call) {
                /* Nothing can be answered later without memory; the one exception to "from the loop". */
                struct cop_error err;
                cop_error_errno(&err, ENOMEM, "asking the keeper");
                cop_msg_done(m);
                if (fn)
                        fn(NULL, &err, userdata);
                return NULL;
        }
        if (++k->next_id == 0)
                k->next_id = 1;
        *call = (struct cop_keeper_call){
                .keeper = k, .prev = k->last, .id = k->next_id, .fn = fn, .userdata = userdata};
        call->deadline = deadline == USEC_INFINITY ? USEC_INFINITY : cop_usec_add(cop_now(CLOCK_MONOTONIC), deadline);
        call->msg = *m;
        call->msg.id = call->id;
        call->unsent = true;
        *m = COP_MSG_NULL;
        k->unsent++;
        if (k->last)
                k->last->next = call;
        else
                k->calls = call;
        k->last = call;
        if (k->lost)
                fail_later(call, -ECONNRESET);
        else if (k->unsent > WAITING_MAX)
                fail_later(call, -ENOBUFS);
        else
                send_waiting(k);
        arm_timer(k);
        return call;
}

void cop_keeper_call_cancel(struct cop_keeper_call *call)
{
        if (!call)
                return;
        call->fn = NULL;
        if (call->unsent || call->failed)
                unlink_call(call);
}

/* -- receiving ----------------------------------------------------------------------------------------------------- */

static void lose(struct cop_keeper *k, const struct cop_error *err)
{
        k->lost = true;
        k->io = cop_source_free(k->io);
        while (k->calls && !k->freed)
                answer(k->calls, NULL, err);
        if (!k->freed && k->events.lost)
                k->events.lost(err, k->events.userdata);
}

static void on_message(struct cop_keeper *k, struct cop_msg *m)
{
        struct cop_error err;

        if (m->id == 0) {
                if (k->events.event)
                        k->events.event(m, k->events.userdata);
                return;
        }
        for (struct cop_keeper_call *c = k->calls; c; c = c->next) {
                if (c->id != m->id || c->unsent)
                        continue;
                if (cop_msg_get_error(m, &err))
                        answer(c, NULL, &err);
                else
                        answer(c, m, NULL);
                return;
        }
        /* Cancelled or timed out: nobody waits. */
}

static void on_io(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_keeper *k = userdata;
        struct cop_error err;

        k->busy++;
        if (revents & EPOLLOUT)
                send_waiting(k);
        for (int i = 0; i < READS_A_TURN && !k->freed && !k->lost; i++) {
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
                int r = cop_msg_recv(fd, &m);
                if (r == -EAGAIN)
                        break;
                if (r > 0) {
                        on_message(k, &m);
                        continue;
                }
                if (r == -EBADMSG)
                        cop_error_set(&err, EBADMSG, COP_ERR_unavailable,
                                      "the sandbox's keeper sent what is no message");
                else
                        cop_error_set(&err, r ? -r : ECONNRESET, COP_ERR_unavailable, "the sandbox's keeper is gone");
                lose(k, &err);
        }
        if (!k->freed && !k->lost)
                arm_timer(k);
        leave(k);
}

/* -- life ---------------------------------------------------------------------------------------------------------- */

struct cop_keeper *cop_keeper_free(struct cop_keeper *k)
{
        if (!k || k->freed)
                return NULL;
        k->freed = true;
        k->io = cop_source_free(k->io);
        k->timer = cop_source_free(k->timer);
        k->failing = cop_source_free(k->failing);
        while (k->calls)
                unlink_call(k->calls);
        k->fd = cop_close(k->fd);
        k->pid_fd = cop_close(k->pid_fd);
        if (k->busy == 0)
                free(k);
        return NULL;
}

void cop_keeper_set_events(struct cop_keeper *k, const struct cop_keeper_events *e)
{
        k->events = *e;
}

void cop_keeper_kill(struct cop_keeper *k)
{
        if (k && k->pid_fd >= 0)
                syscall(SYS_pidfd_send_signal, k->pid_fd, SIGKILL, NULL, 0);
}

/* sun_path has room for 107 bytes and COPPICE_HOME may be longer: the folder is opened and named through /proc. */
static int socket_address(const char *path, struct sockaddr_un *ret, int *ret_dir_fd, struct cop_error *err)
{
        const char *slash = strrchr(path, '/');
        char dir[4096];

        if (!slash || cop_path_format(dir, sizeof(dir), "%.*s", (int)(slash - path), path) < 0)
                return cop_error_set(err, EINVAL, COP_ERR_internal, "not a socket path: %s", path);
        int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return cop_error_errno(err, errno, "opening %s", dir);
        *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
        int n = snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", fd, slash + 1);
        if (n < 0 || (size_t)n >= sizeof(ret->sun_path)) {
                cop_close(fd);
                return cop_error_set(err, ENAMETOOLONG, COP_ERR_internal, "socket name too long: %s", slash + 1);
        }
        *ret_dir_fd = fd;
        return 0;
}

int cop_keeper_connect(struct cop_loop *loop, const char *socket_path, const struct cop_keeper_events *events,
                       struct cop_keeper **ret, struct cop_error *err)
{
        _cleanup_close_ int fd = -EBADF, dir_fd = -EBADF;
        struct sockaddr_un address;

        int r = socket_address(socket_path, &address, &dir_fd, err);
        if (r < 0)
                return r;
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return cop_error_errno(err, errno, "socket");
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return cop_error_errno(err, errno, "connecting to the keeper at %s", socket_path);
        struct cop_keeper *k = calloc(1, sizeof(*k));
        if (!k)
                return cop_error_errno(err, ENOMEM, "keeper");
        *k = (struct cop_keeper){.loop = loop, .fd = TAKE_FD(fd), .pid_fd = -EBADF, .events = *events};
        r = cop_loop_add_io(loop, k->fd, EPOLLIN, on_io, k, &k->io, err);
        if (r == 0)
                r = cop_loop_add_timer(loop, USEC_INFINITY, on_deadline, k, &k->timer, err);
        if (r == 0)
                r = cop_loop_add_defer(loop, on_failing, k, &k->failing, err);
        if (r < 0) {
                cop_keeper_free(k);
                return r;
        }
        *ret = k;
        return 0;
}

static int listen_at(const char *socket_path, struct cop_error *err)
{
        _cleanup_close_ int fd = -EBADF, dir_fd = -EBADF;
        struct sockaddr_un address;

        int r = socket_address(socket_path, &address, &dir_fd, err);
        if (r < 0)
                return r;
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return cop_error_errno(err, errno, "socket");
        /* bind(2) makes the file with the mode of the socket's inode: it never exists with a wider one. */
        if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 8) < 0)
                return cop_error_errno(err, errno, "listening at %s", socket_path);
        return TAKE_FD(fd);
}

int cop_keeper_start(struct cop_loop *loop, const struct cop_keeper_start *start,
                     const struct cop_keeper_events *events, struct cop_keeper **ret, struct cop_error *err)
{
        _cleanup_close_ int listen_fd = -EBADF, log_fd = -EBADF, pid_fd = -EBADF;
        bool hold = start->hold_fd >= 0;
        pid_t pid = 0;

        log_fd = open(start->log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (log_fd < 0)
                return cop_error_errno(err, errno, "opening %s", start->log_path);
        listen_fd = listen_at(start->socket_path, err);
        if (listen_fd < 0)
                return listen_fd;
        const struct cop_child_spec spec = {
                .path = start->keeper_path,
                .argv = (const char *const[]){"coppice-keeper", "--socket-fd", "3", hold ? "--hold-fd" : NULL, "4",
                                              NULL},
                .cwd = "/",
                .fds = (const struct cop_child_fd[]){{log_fd, STDERR_FILENO},
                                                     {listen_fd, LISTEN_FD},
                                                     {start->hold_fd, HOLD_FD}},
                .fd_count = hold ? 3 : 2,
                .new_session = true,
                .detached = true,
        };
        int r = cop_child_spawn(&spec, &pid, err);
        if (r < 0) {
                unlink(start->socket_path);
                return r;
        }
        /* It waits for our connection, so the pid is still its own. */
        pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
        r = cop_keeper_connect(loop, start->socket_path, events, ret, err);
        if (r < 0) {
                if (pid_fd >= 0)
                        syscall(SYS_pidfd_send_signal, pid_fd, SIGKILL, NULL, 0);
                unlink(start->socket_path);
                return r;
        }
        (*ret)->pid_fd = TAKE_FD(pid_fd);
        return 0;
}
