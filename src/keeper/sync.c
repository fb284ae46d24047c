/* Theory of operation: what is written to disk after the answer
 *
 * A lazy node is answered when it is written, not when it is on disk.  Another process, `coppice-keeper --sync`, gets its folder through a
 * socket, waits a second, syncs the filesystem once for all that came meanwhile, and says so in each node (`synced`).  What uses the
 * nodes now, the copies of a fork first of all, makes files and would wait for the journal; no promise waits for this sync: what
 * outlives the host syncs for itself (N1).
 *
 * It is a process, so that a keeper that is killed takes no node along, and a program that is executed: a fork of the keeper would share its
 * memory, and each page of it that the next freeze writes to would be copied first, with a message to the other processors (2 ms of
 * a checkpoint, measured).  It ends with the socket, after a minute without work, or by SIGTERM, which a host sends that goes down in
 * good order: always after it has synced what it was given.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/child.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/msg.h"
#include "keeper/node.h"

#define SYNC_AFTER (1 * USEC_PER_SEC)
#define IDLE_MAX (60 * USEC_PER_SEC)
#define NODES_MAX 64
#define MSG_NODE 1 /* with the folder, and nothing else */

/* ---- in the keeper ---- */

static int start(struct cop_keep *k, struct cop_error *err)
{
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
                return cop_error_errno(err, errno, "socketpair");
        const struct cop_child_fd fd = {.source = pair[1], .target = STDIN_FILENO};
        const struct cop_child_spec spec = {.path = "/proc/self/exe",
                                            .argv = (const char *const[]){"coppice-keeper", "--sync", NULL},
                                            .fds = &fd,
                                            .fd_count = 1,
                                            .detached = true};
        int r = cop_child_spawn(&spec, NULL, err);
        cop_close(pair[1]);
        if (r < 0)
                cop_close(pair[0]);
        else
                k->sync_fd = pair[0];
        return r;
}

static bool give(int to, int fd)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

        if (copy < 0)
                return false;
        cop_msg_init(&m, MSG_NODE, 0);
        cop_msg_add_fd(&m, copy);
        return cop_msg_send(to, &m) == 0;
}

void cop_keep_sync_later(struct cop_keep *k, int node_fd)
{
        struct cop_error err = {.message = "the other process does not take it"};

        for (int i = 0; i < 2; i++) {
                if (k->sync_fd < 0 && start(k, &err) < 0)
                        break;
                if (give(k->sync_fd, node_fd))
                        return;
                k->sync_fd = cop_close(k->sync_fd); /* it is gone, or has too much to do: another one */
        }
        cop_log_error("a node of %s is not said to be on disk: %s", k->id, err.message);
}

/* ---- in the other process ---- */

static volatile sig_atomic_t asked_to_end;

static void on_term(int number)
{
        asked_to_end = 1;
}

/* The descriptor; -EAGAIN: none now; -ENODATA: no more will come. */
static int take(int from)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
        int r = cop_msg_recv(from, &m);
        int fd = r == 1 ? cop_msg_take_fd(&m, 0) : -EBADF;

        return fd >= 0 ? fd : r == -EAGAIN ? r : -ENODATA;
}

/* They lie on one filesystem. */
static void sync_all(int *nodes, size_t *count)
{
        bool synced = *count > 0 && syncfs(nodes[0]) == 0;

        for (size_t i = 0; i < *count; i++) {
                int fd = synced ? openat(nodes[i], "synced", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -EBADF;
                if (fd >= 0 && fsync(fd) == 0)
                        fsync(nodes[i]);
                cop_close(fd);
                cop_close(nodes[i]);
        }
        *count = 0;
}

static struct timespec time_left(usec_t until)
{
        usec_t now = cop_now(CLOCK_MONOTONIC), left = until > now ? until - now : 0;

        return (struct timespec){.tv_sec = (time_t)(left / USEC_PER_SEC),
                                 .tv_nsec = (long)(left % USEC_PER_SEC) * 1000};
}

int cop_keep_sync_main(int from)
{
        const struct sigaction end = {.sa_handler = on_term};
        sigset_t none, term;
        int nodes[NODES_MAX];
        size_t count = 0;
        usec_t until = cop_usec_add(cop_now(CLOCK_MONOTONIC), IDLE_MAX);

        sigemptyset(&none);
        sigemptyset(&term);
        sigaddset(&term, SIGTERM);
        sigprocmask(SIG_BLOCK, &term, NULL); /* but while it waits */
        sigaction(SIGTERM, &end, NULL);
        for (bool more = true; more;) {
                struct pollfd p = {.fd = from, .events = POLLIN};
                struct timespec left = time_left(until);
                int n = ppoll(&p, 1, &left, &none);
                if (n > 0) {
                        int fd = take(from);
                        more = fd >= 0 || fd == -EAGAIN;
                        if (fd >= 0 && count == 0)
                                until = cop_usec_add(cop_now(CLOCK_MONOTONIC), SYNC_AFTER);
                        if (fd >= 0)
                                nodes[count++] = fd;
                }
                bool late = cop_now(CLOCK_MONOTONIC) >= until;
                if (asked_to_end || (late && count == 0))
                        shutdown(from, SHUT_RD); /* the keeper will ask another; what was sent already can be read */
                if (late || count == NODES_MAX) {
                        sync_all(nodes, &count);
                        until = cop_usec_add(cop_now(CLOCK_MONOTONIC), IDLE_MAX);
                }
        }
        sync_all(nodes, &count);
        return 0;
}
