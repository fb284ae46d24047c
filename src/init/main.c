/* coppice-init: pid 1 inside a sandbox.
 *
 * Theory of operation
 *
 * The keeper starts this program as root of the sandbox's user namespace, in all its namespaces, with the root already
 * pivoted, capabilities and seccomp filter in place, an empty environment and the control socket (SOCK_SEQPACKET,
 * wire.h) on descriptor 3.  One thread, one poll loop:
 *
 *      control socket  SPAWN -> spawn.c     fork, become the user, execve
 *                      KILL  -> children.c  only what SPAWN started
 *                      OPEN  -> worker.c    fork, become the user, one file operation (files.c …), reply, exit
 *      SIGCHLD         children.c           reaps everything; CHILD events for what SPAWN started
 *      report pipes    spawn.c              a child between fork and execve says why it failed, or closes the pipe
 *      result sockets  worker.c             the reply of a worker, forwarded
 *
 * Nothing that a program of the sandbox can slow down (path lookup, reading /etc/passwd, disk, pipes) happens in this
 * process: all of it is done by children, with a time limit.  What this process does itself: fork, kill, waitpid, and
 * send and recv on sockets that do not block.
 *
 * Packets that do not fit into the control socket wait in a queue.  While there are any, no request is read, so the
 * queue is bounded by one reply per running request and one event per child.
 *
 * For the freezer: the whole state is plain memory; descriptor 3 is the only one that leads outside, and the others
 * exist only while a start or a file operation is under way.  No epoll, signalfd or timerfd: SIGCHLD is blocked but
 * within ppoll.
 *
 * When the control socket closes, the program ends, and the kernel ends everything else in the pid namespace.
 */
#include "init.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "ops.h"
#include "sandbox/wire.h"

#define RETRY_USEC (10 * USEC_PER_MSEC) /* the kernel had no memory for a packet */

static void on_sigchld(int sig)
{
        /* Only there to end ppoll. */
}

/* -- sending --------------------------------------------------------------------------------------------------------
 */

void cop_init_send(struct cop_init *init, struct cop_msg *m)
{
        int r = init->first ? -EAGAIN : cop_msg_send(init->control_fd, m);

        if (r == 0)
                return;
        if (!cop_msg_again(r)) {
                init->closed = r != -E2BIG;
                return;
        }
        struct packet *p = malloc(sizeof(*p));
        if (!p) { /* losing an event would leave the keeper waiting for ever */
                init->closed = true;
                return;
        }
        p->next = NULL;
        p->msg = *m;
        *m = COP_MSG_NULL;
        if (init->last)
                init->last->next = p;
        else
                init->first = p;
        init->last = p;
}

void cop_init_send_error(struct cop_init *init, uint32_t id, const struct cop_error *err)
{
        _cleanup_msg_ struct cop_msg m;

        cop_msg_init(&m, COP_WIRE_REPLY, id);
        cop_msg_add_error(&m, err);
        cop_init_send(init, &m);
}

static void flush_queue(struct cop_init *init)
{
        while (init->first) {
                struct packet *p = init->first;
                int r = cop_msg_send(init->control_fd, &p->msg);
                if (cop_msg_again(r))
                        return;
                if (r < 0 && r != -E2BIG) {
                        init->closed = true;
                        return;
                }
                init->first = p->next;
                if (!init->first)
                        init->last = NULL;
                cop_msg_done(&p->msg);
                free(p);
        }
}

/* -- requests -------------------------------------------------------------------------------------------------------
 */

static void dispatch(struct cop_init *init, struct cop_msg *m)
{
        struct cop_error err;

        switch (m->type) {
        case COP_WIRE_SPAWN:
                cop_init_spawn_handle(init, m);
                break;
        case COP_WIRE_KILL:
                cop_init_child_handle_kill(init, m);
                break;
        case COP_WIRE_OPEN:
                cop_init_worker_handle(init, m);
                break;
        default:
                cop_error_set(&err, EBADMSG, COP_ERR_internal, "init does not know request type %u", m->type);
                cop_init_send_error(init, m->id, &err);
        }
}

static void read_request(struct cop_init *init)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
        int r = cop_msg_recv(init->control_fd, &m);

        if (r > 0)
                dispatch(init, &m);
        else if (r == 0)
                init->closed = true;
        else if (r == -EBADMSG) /* its id is unknown, so nothing can answer it */
                cop_log_warning("dropped a malformed request");
        else if (!cop_msg_again(r))
                init->closed = true;
}

/* -- loop -----------------------------------------------------------------------------------------------------------
 */

static void turn(struct cop_init *init, const sigset_t *wait_mask)
{
        struct pollfd fds[1 + COP_INIT_WORKERS_MAX + COP_INIT_SPAWNS_MAX];
        struct cop_init_worker *workers[COP_INIT_WORKERS_MAX];
        pid_t starting[COP_INIT_SPAWNS_MAX];
        size_t worker_count = 0, starting_count = 0, n = 0;
        usec_t now = cop_now(CLOCK_MONOTONIC), deadline = cop_init_spawn_expire(init, now);

        fds[n++] = (struct pollfd){.fd = init->control_fd, .events = init->first ? POLLOUT : POLLIN};
        for (struct cop_init_worker *w = init->workers; w < init->workers + COP_INIT_WORKERS_MAX; w++)
                if (w->pid > 0 && w->result_fd >= 0) {
                        workers[worker_count++] = w;
                        fds[n++] = (struct pollfd){.fd = w->result_fd, .events = POLLIN};
                }
        for (size_t i = 0; i < init->child_count && starting_count < COP_INIT_SPAWNS_MAX; i++)
                if (init->children[i].report_fd >= 0) {
                        starting[starting_count++] = init->children[i].pid;
                        fds[n++] = (struct pollfd){.fd = init->children[i].report_fd, .events = POLLIN};
                }
        if (init->first)
                deadline = MIN_OF(deadline, cop_usec_add(now, RETRY_USEC));
        usec_t wait = deadline > now ? deadline - now : 0;
        struct timespec ts = {(time_t)(wait / USEC_PER_SEC), (long)(wait % USEC_PER_SEC * 1000)};
        int r = ppoll(fds, n, deadline == USEC_INFINITY ? NULL : &ts, wait_mask);
        if (r > 0) {
                for (size_t i = 0; i < worker_count; i++)
                        if (fds[1 + i].revents)
                                cop_init_worker_forward(init, workers[i]);
                for (size_t i = 0; i < starting_count; i++) {
                        struct cop_init_child *c =
                                fds[1 + worker_count + i].revents ? cop_init_child_find(init, starting[i]) : NULL;
                        if (c && c->report_fd >= 0)
                                cop_init_spawn_finish(init, c);
                }
        }
        cop_init_child_reap_all(init);
        flush_queue(init);
        if (r > 0 && (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) && !init->first)
                read_request(init);
        if (r > 0 && (fds[0].revents & (POLLHUP | POLLERR)) && init->first)
                init->closed = true;
}

/* /proc/1/environ shows the memory in which the kernel put the environment. */
static void erase_environment(void)
{
        static char *empty[] = {NULL};

        for (char **e = environ; e && *e; e++)
                explicit_bzero(*e, strlen(*e));
        environ = empty;
}

static int parse_user(struct cop_init *init, const char *text)
{
        unsigned long uid, gid;
        char rest;

        if (sscanf(text, "%lu:%lu%c", &uid, &gid, &rest) != 2 || uid > 65535 || gid > 65535)
                return -EINVAL;
        init->default_uid = (uid_t)uid;
        init->default_gid = (gid_t)gid;
        return 0;
}

static int parse_arguments(struct cop_init *init, int argc, char **argv)
{
        for (int i = 1; i < argc; i++) {
                if (strncmp(argv[i], "--user=", 7) == 0 && parse_user(init, argv[i] + 7) == 0)
                        continue;
                if (strncmp(argv[i], "--workdir=/", 11) == 0) {
                        init->workdir = argv[i] + 10;
                        continue;
                }
                if (sscanf(argv[i], "--stall=%u", &cop_file_stall_seconds) == 1 && cop_file_stall_seconds > 0)
                        continue; /* tests do not wait a minute */
                cop_log_error("usage: coppice-init [--user=UID:GID] [--workdir=/DIR] [--stall=SECONDS]   (started by "
                              "coppice-keeper, "
                              "control socket on descriptor %d)",
                              COP_INIT_CONTROL_FD);
                return -EINVAL;
        }
        return 0;
}

static int prepare(sigset_t *wait_mask)
{
        struct sigaction action = {.sa_handler = on_sigchld} /* stops too: worker.c */;
        sigset_t blocked;
        struct stat st;

        if (fstat(COP_INIT_CONTROL_FD, &st) < 0 || !S_ISSOCK(st.st_mode)) {
                cop_log_error("descriptor %d is no socket: coppice-init is started by coppice-keeper",
                              COP_INIT_CONTROL_FD);
                return -ENOTSOCK;
        }
        /* Nobody inside looks into this process through /proc, and children are so until their execve. */
        prctl(PR_SET_DUMPABLE, 0);
        umask(022);
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGCHLD);
        sigprocmask(SIG_BLOCK, &blocked, NULL);
        sigemptyset(wait_mask);
        sigaction(SIGCHLD, &action, NULL);
        if (cop_set_cloexec(COP_INIT_CONTROL_FD, 1) < 0 || cop_set_nonblock(COP_INIT_CONTROL_FD, 1) < 0)
                return -errno;
        return 0;
}

int main(int argc, char **argv)
{
        static struct cop_init init = {
                .control_fd = COP_INIT_CONTROL_FD, .default_uid = 1000, .default_gid = 1000, .workdir = "/workspace"};
        sigset_t wait_mask;

        cop_log_init("init");
        erase_environment();
        if (parse_arguments(&init, argc, argv) < 0 || prepare(&wait_mask) < 0)
                return EXIT_FAILURE;

        _cleanup_msg_ struct cop_msg ready;
        cop_msg_init(&ready, COP_WIRE_READY, 0);
        cop_msg_add_u64(&ready, COP_TAG_VERSION, COP_WIRE_VERSION);
        cop_init_send(&init, &ready);
        while (!init.closed)
                turn(&init, &wait_mask);
        return EXIT_SUCCESS;
}
