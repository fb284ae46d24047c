/* OPEN: one forked worker per file operation (ops.c).  Here is pid 1's side and the way into the worker. */
#include "init.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "ops.h"
#include "sandbox/wire.h"
#include "user.h"

#define RESULT_FD 3
#define DATA_FD 4
#define PARKING 16

/* Only the two sockets stay: a path like /proc/self/fd/9 names a descriptor of this process. */
static int keep_sockets(int result_fd, int data_fd)
{
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        int result = fcntl(result_fd, F_DUPFD_CLOEXEC, PARKING);
        int data = data_fd >= 0 ? fcntl(data_fd, F_DUPFD_CLOEXEC, PARKING) : -EBADF;

        if (null_fd < 0 || result < 0 || (data_fd >= 0 && data < 0))
                return -errno;
        for (int fd = 0; fd <= STDERR_FILENO; fd++)
                if (dup2(null_fd, fd) < 0)
                        return -errno;
        if (dup2(result, RESULT_FD) < 0 || (data >= 0 && dup2(data, DATA_FD) < 0))
                return -errno;
        if (data >= 0)
                cop_set_nonblock(DATA_FD, 0);
        return close_range(data >= 0 ? DATA_FD + 1 : RESULT_FD + 1, ~0U, 0) < 0 ? -errno : 0;
}

/* A walk holds one or two descriptors per level. */
static void raise_nofile(void)
{
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return;
        limit.rlim_cur = MIN_OF(limit.rlim_max, (rlim_t)4096);
        setrlimit(RLIMIT_NOFILE, &limit);
}

static void __attribute__((noreturn))
run_worker(const struct cop_init *init, struct cop_file_request *q, const char *user)
{
        struct cop_error err;
        struct cop_user u;
        int r;

        cop_user_prepare_child();
        cop_file_progress();
        raise_nofile();
        r = keep_sockets(q->result_fd, q->data_fd);
        if (r < 0)
                _exit(EXIT_FAILURE);
        q->result_fd = RESULT_FD;
        q->data_fd = q->data_fd >= 0 ? DATA_FD : -EBADF;
        r = cop_user_find(user, init->default_uid, init->default_gid, &u, &err);
        if (r == 0)
                r = cop_user_become(&u, &err);
        if (r == 0 && chdir("/") < 0)
                r = cop_error_errno(&err, errno, "entering /");
        if (r < 0) {
                cop_msg_add_error(&q->reply, &err);
                cop_file_send_reply(q);
        } else {
                cop_file_run(q);
        }
        _exit(EXIT_SUCCESS);
}

static int start_worker(struct cop_init *init, const struct cop_msg *m, struct cop_error *err)
{
        __attribute__((cleanup(cop_file_request_done))) struct cop_file_request q;
        _cleanup_free_ char *user = NULL;
        struct cop_init_worker *w = init->workers;
        int sockets[2], r = cop_file_parse(m, init->workdir, &q, err);

        if (r < 0)
                return r;
        r = cop_msg_get_str(m, COP_TAG_USER, 0, &user);
        if (r < 0 && r != -ENOENT)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "the user's name has a NUL byte inside");
        while (w < init->workers + COP_INIT_WORKERS_MAX && w->pid > 0)
                w++;
        if (w == init->workers + COP_INIT_WORKERS_MAX)
                return cop_error_set(err, EAGAIN, COP_ERR_too_many,
                                     "%d file operations are under way in the sandbox; try again when one has ended",
                                     COP_INIT_WORKERS_MAX);
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
                return cop_error_errno(err, errno, "starting a file operation");
        _cleanup_close_ int ours = sockets[0], theirs = sockets[1];
        q.result_fd = theirs;
        cop_set_nonblock(ours, 1);
        pid_t pid = fork();
        if (pid < 0 && errno == EAGAIN)
                return cop_error_set(err, EAGAIN, COP_ERR_too_many,
                                     "the sandbox has reached its limit on processes; end some or raise it");
        if (pid < 0)
                return cop_error_errno(err, errno, "starting a file operation");
        if (pid == 0)
                run_worker(init, &q, user);
        *w = (struct cop_init_worker){.pid = pid, .id = m->id, .result_fd = TAKE_FD(ours)};
        return 0;
}

void cop_init_worker_handle(struct cop_init *init, struct cop_msg *m)
{
        struct cop_error err;

        if (start_worker(init, m, &err) < 0)
                cop_init_send_error(init, m->id, &err);
}

void cop_init_worker_forward(struct cop_init *init, struct cop_init_worker *w)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
        int r = cop_msg_recv(w->result_fd, &m);

        if (r == -EAGAIN || r == -ENOMEM)
                return;
        w->result_fd = cop_close(w->result_fd);
        if (r <= 0 || m.fd_count > 0)
                return; /* answered when it is reaped */
        m.type = COP_WIRE_REPLY;
        m.id = w->id;
        cop_init_send(init, &m);
        w->replied = true;
}

static void explain_death(int status, struct cop_error *err)
{
        int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

        if (sig == SIGALRM)
                cop_error_set(err, ETIMEDOUT, COP_ERR_timeout,
                              "the file operation made no progress for %u s and was stopped", cop_file_stall_seconds);
        else if (sig == SIGKILL)
                cop_error_set(
                        err, EINTR, COP_ERR_io_error,
                        "the file operation was killed, by the memory limit or a process of the sandbox; try again");
        else
                cop_error_set(err, EIO, COP_ERR_io_error,
                              "the file operation ended without a result (%s %d); try again", sig ? "signal" : "status",
                              sig ? sig : WEXITSTATUS(status));
}

bool cop_init_worker_reaped(struct cop_init *init, pid_t pid, int status)
{
        struct cop_error err;

        for (struct cop_init_worker *w = init->workers; w < init->workers + COP_INIT_WORKERS_MAX; w++) {
                if (w->pid != pid)
                        continue;
                /* Whoever stops a worker (it has the user's uid) would hold the slot for ever. */
                if (WIFSTOPPED(status)) {
                        kill(pid, SIGKILL);
                        return true;
                }
                if (w->result_fd >= 0)
                        cop_init_worker_forward(init, w);
                if (!w->replied) {
                        explain_death(status, &err);
                        cop_init_send_error(init, w->id, &err);
                }
                cop_close(w->result_fd);
                *w = (struct cop_init_worker){.result_fd = -EBADF};
                return true;
        }
        return false;
}
