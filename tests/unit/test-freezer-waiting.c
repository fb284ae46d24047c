/* Connections that are not accepted yet, with data in them, when a client from outside the tree waits among them, and when a freeze
 * fails before or after it has accepted what waits. */
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/freezer.h"
#include "lib/test.h"

#define PORT 4711

static int loopback_up(void)
{
        struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP};
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), done = ioctl(fd, SIOCSIFFLAGS, &r);

        close(fd);
        return done;
}

static int set_up(void *userdata, struct cop_error *err)
{
        if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 || loopback_up() < 0)
                return cop_error_errno(err, errno, "setting up");
        return 0;
}

static struct sockaddr_in tcp_name(void)
{
        return (struct sockaddr_in){
                .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int connect_and_say(const char *text)
{
        struct sockaddr_in a = tcp_name();
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        return connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && send(fd, text, strlen(text), 0) > 0 ? fd : -1;
}

/* ---- inside ---- */

/* What each that waits has sent, in order. */
static size_t accept_all(int listener, char *text, size_t size)
{
        size_t n = 0;

        for (int fd; (fd = accept(listener, NULL, NULL)) >= 0 && n + 32 < size; text[n++] = '|') {
                ssize_t got = recv(fd, text + n, 31, MSG_DONTWAIT);
                n += got > 0 ? (size_t)got : 0;
        }
        return n;
}

static void be_init(int control, bool local_too)
{
        struct sockaddr_in a = tcp_name();
        struct sockaddr_un u = {.sun_family = AF_UNIX, .sun_path = "\0waiting"};
        socklen_t length = offsetof(struct sockaddr_un, sun_path) + 8;
        int tcp = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0),
            local = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        int client = socket(AF_UNIX, SOCK_STREAM, 0);
        char text[256];

        if (set_up(NULL, NULL) < 0 || bind(tcp, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(tcp, 8) < 0 ||
            bind(local, (struct sockaddr *)&u, length) < 0 || listen(local, 8) < 0 ||
            connect(client, (struct sockaddr *)&u, length) < 0 || (local_too && send(client, "unix", 4, 0) != 4) ||
            connect_and_say("inside") < 0 || send(control, "ready", 5, 0) != 5)
                _exit(1);
        while (recv(control, text, sizeof(text), 0) > 0) {
                size_t n = accept_all(tcp, text, sizeof(text));
                n += accept_all(local, text + n, sizeof(text) - n);
                if (send(control, text, n, MSG_NOSIGNAL) < 0)
                        break;
        }
        _exit(2);
}

/* ---- outside ---- */

struct tree {
        pid_t root, helper;
        int control, inner, outsider;
        char dir[32];
        int image_fd;
        struct cop_external external;
};

/* Its answer: what waited, if it is asked. */
static void expect(const struct tree *t, const char *expected)
{
        char text[256] = {0};
        struct pollfd p = {.fd = t->control, .events = POLLIN};

        ASSERT(poll(&p, 1, 10000) == 1 && recv(t->control, text, sizeof(text) - 1, 0) > 0);
        ASSERT_STR(text, expected);
}

static void ask(const struct tree *t, const char *expected)
{
        ASSERT(send(t->control, "?", 1, MSG_NOSIGNAL) == 1);
        expect(t, expected);
}

static void connect_from_outside(struct tree *t)
{
        char path[64];
        int s[2];
        char byte;

        ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) == 0);
        snprintf(path, sizeof(path), "/proc/%d/ns/net", t->root);
        pid_t pid = fork();
        if (pid == 0) {
                close(s[0]);
                int ns = open(path, O_RDONLY),
                    fd = ns >= 0 && setns(ns, CLONE_NEWNET) == 0 ? connect_and_say("outside") : -1;
                (void)!send(s[1], fd >= 0 ? "y" : "n", 1, 0);
                (void)!recv(s[1], &byte, 1, 0);
                _exit(0);
        }
        close(s[1]);
        ASSERT(recv(s[0], &byte, 1, 0) == 1 && byte == 'y');
        t->outsider = s[0];
}

/* With a client from outside the tree, and with data in a unix connection. */
static void start(struct tree *t, bool outsider, bool local_too)
{
        struct stat st;
        int s[2], report[2];

        *t = (struct tree){.outsider = -1, .dir = "/tmp/test-freezer-XXXXXX"};
        ASSERT(mkdtemp(t->dir) && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) == 0 && pipe(report) == 0);
        t->helper = fork();
        if (t->helper == 0) {
                if (unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWTIME) <
                            0 ||
                    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                        _exit(1);
                pid_t pid = fork();
                if (pid == 0) {
                        setsid();
                        dup2(open("/dev/null", O_RDWR), 0);
                        dup2(0, 1);
                        dup2(0, 2);
                        dup2(s[1], 1003);
                        dup2(1003, 3);
                        close_range(4, ~0U, 0);
                        be_init(3, local_too);
                }
                (void)!write(report[1], &pid, sizeof(pid));
                waitpid(pid, NULL, 0);
                _exit(0);
        }
        ASSERT(read(report[0], &t->root, sizeof(t->root)) == sizeof(t->root));
        close(report[0]);
        close(report[1]);
        t->control = s[0];
        t->inner = s[1];
        ASSERT(fstat(s[1], &st) == 0);
        t->external = (struct cop_external){.name = "control", .dev = st.st_dev, .ino = st.st_ino, .fd = -1};
        t->image_fd = open(t->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        expect(t, "ready");
        if (outsider)
                connect_from_outside(t);
}

static int fail(void *userdata, struct cop_error *err)
{
        return cop_error_set(err, EIO, COP_ERR_internal, "on purpose");
}

static int freeze(struct tree *t, unsigned flags, bool failing, struct cop_error *err)
{
        struct cop_freeze_result result;
        struct cop_freeze_request request = {.root = t->root,
                                             .image_dir_fd = t->image_fd,
                                             .parent_dir_fd = -EBADF,
                                             .flags = flags,
                                             .externals = &t->external,
                                             .external_count = 1,
                                             .stopped = failing ? fail : NULL};

        return cop_freeze(&request, &result, err);
}

static void end(struct tree *t)
{
        struct cop_error err = COP_ERROR_NULL;

        if (t->root)
                kill(t->root, SIGKILL);
        waitpid(t->helper, NULL, 0);
        close(t->control);
        close(t->inner);
        cop_close(t->outsider);
        if (t->outsider >= 0)
                wait(NULL);
        close(t->image_fd);
        ASSERT_OK(cop_remove_tree(AT_FDCWD, t->dir, &err), &err);
}

TEST(who_comes_from_outside_is_not_harmed_by_a_tree_that_runs_on)
{
        struct cop_error err = COP_ERROR_NULL;
        struct tree t;

        if (geteuid() != 0)
                SKIP("needs root");
        start(&t, true, false);
        ASSERT(freeze(&t, 0, false, &err) < 0);
        ASSERT_EQ(err.code, COP_ERR_not_freezable);
        ASSERT_CONTAINS(err.message, "where a connection from outside waits");
        ask(&t, "inside|outside||");
        end(&t);
}

TEST(a_freeze_that_fails_before_the_last_moment_has_accepted_nothing)
{
        struct cop_error err = COP_ERROR_NULL;
        struct tree t;

        if (geteuid() != 0)
                SKIP("needs root");
        start(&t, true, true);
        ASSERT(freeze(&t, COP_FREEZE_KILL, true, &err) < 0);
        ASSERT_CONTAINS(err.message, "on purpose");
        ASSERT(!strstr(err.message, "lost"));
        ask(&t, "inside|outside|unix|");
        end(&t);
}

/* What is from outside is told of. */
static void fail_to_commit(bool outsider, const char *lost, const char *waits)
{
        struct cop_error err = COP_ERROR_NULL;
        struct tree t;

        start(&t, outsider, true);
        ASSERT(mkdirat(t.image_fd, "meta.img", 0700) == 0);
        ASSERT(freeze(&t, COP_FREEZE_KILL | COP_FREEZE_SYNC, false, &err) < 0);
        if (lost)
                ASSERT_CONTAINS(err.message, lost);
        else
                ASSERT(!strstr(err.message, "lost"));
        ask(&t, waits);
        end(&t);
}

TEST(a_commit_that_fails_puts_back_what_was_accepted)
{
        if (geteuid() != 0)
                SKIP("needs root");
        fail_to_commit(false, NULL, "inside|unix|");
        fail_to_commit(true, "1 connections that nobody had accepted yet are lost", "inside|unix|");
}

TEST(what_the_tree_has_sent_itself_is_kept)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_thaw_result thawed;
        struct tree t;
        int s[2];

        if (geteuid() != 0)
                SKIP("needs root");
        start(&t, true, true);
        ASSERT_OK(freeze(&t, COP_FREEZE_KILL, false, &err), &err);
        t.root = 0;
        ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) == 0);
        struct cop_external in = {.name = "control", .fd = s[1]};
        struct cop_thaw_request thaw = {.image_dir_fd = t.image_fd,
                                        .namespaces = COP_THAW_NAMESPACES_NEW,
                                        .root_fd = -EBADF,
                                        .cgroup_fd = -EBADF,
                                        .externals = &in,
                                        .external_count = 1,
                                        .setup = set_up};
        ASSERT_OK(cop_thaw(&thaw, &thawed, &err), &err);
        int old = t.control;
        t.control = s[0];
        ask(&t, "inside|unix|");
        t.control = old;
        ASSERT(kill(thawed.root, SIGKILL) == 0 && waitpid(thawed.root, NULL, 0) == thawed.root);
        cop_watch_free(thawed.watch);
        close(thawed.pidfd);
        close(s[0]);
        close(s[1]);
        end(&t);
}
