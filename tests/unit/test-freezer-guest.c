/* Work in the namespaces of a tree by who could not come back from there: the owner of its user namespace. */
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/guest.h"
#include "lib/test.h"

#define OWNER 123456

static void become(uid_t uid)
{
        if (geteuid() != 0)
                return;
        ASSERT(setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0);
        ASSERT(prctl(PR_SET_DUMPABLE, 1) == 0);
}

/* A process of OWNER's in namespaces of its own, with a host name that tells them. */
static pid_t start_tree(void)
{
        int pair[2];
        char byte;

        ASSERT(pipe2(pair, O_CLOEXEC) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                become(OWNER);
                if (unshare(CLONE_NEWUSER | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWIPC) < 0 ||
                    sethostname("inside", 6) < 0)
                        _exit(1);
                (void)!write(pair[1], "x", 1);
                pause();
                _exit(0);
        }
        close(pair[1]);
        ssize_t n = read(pair[0], &byte, 1);
        close(pair[0]);
        if (n != 1)
                SKIP("no user namespaces here");
        return pid;
}

static void end_tree(pid_t pid)
{
        kill(pid, SIGKILL);
        ASSERT_EQ(waitpid(pid, NULL, 0), pid);
}

struct seen {
        char hostname[65], network[64];
        pid_t pid;
        int fd;
        sigset_t mask;
};

static int look(void *userdata)
{
        struct seen *s = userdata;
        struct utsname u;

        uname(&u);
        snprintf(s->hostname, sizeof(s->hostname), "%s", u.nodename);
        (void)!readlink("/proc/self/ns/net", s->network, sizeof(s->network) - 1);
        s->pid = getpid();
        s->fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        sigprocmask(SIG_BLOCK, NULL, &s->mask);
        return 42;
}

TEST(root_can_come_back)
{
        if (geteuid() != 0)
                SKIP("needs root");
        ASSERT(!cop_guest_needed());
        become(OWNER);
        ASSERT(cop_guest_needed());
}

TEST(an_owner_works_inside_and_stays_outside)
{
        struct cop_error err = COP_ERROR_NULL;
        char home[64] = "", after[64] = "", there[64] = "", path[64];
        struct utsname before, now;
        sigset_t mask;
        pid_t tree = start_tree();

        become(OWNER);
        uname(&before);
        ASSERT(readlink("/proc/self/ns/net", home, sizeof(home) - 1) > 0);
        snprintf(path, sizeof(path), "/proc/%d/ns/net", tree);
        ASSERT(readlink(path, there, sizeof(there) - 1) > 0);
        for (int i = 0; i < 20; i++) {
                struct seen s = {.fd = -1};
                ASSERT_EQ(cop_guest_run(tree, look, &s, &err), 42);
                ASSERT_STR(s.hostname, "inside");
                ASSERT_STR(s.network, there);
                ASSERT(s.pid > 0 && s.pid != getpid());
                ASSERT(kill(s.pid, 0) < 0 && errno == ESRCH);
                ASSERT_EQ(sigismember(&s.mask, SIGUSR1), 1);
                /* What it opened is ours. */
                ASSERT_EQ(fcntl(s.fd, F_GETFD), FD_CLOEXEC);
                close(s.fd);
        }
        ASSERT(waitpid(-1, NULL, WNOHANG) == 0); /* the tree's process is the only child */
        uname(&now);
        ASSERT_STR(now.nodename, before.nodename);
        ASSERT(readlink("/proc/self/ns/net", after, sizeof(after) - 1) > 0);
        ASSERT_STR(after, home);
        ASSERT(sigprocmask(SIG_BLOCK, NULL, &mask) == 0 && sigismember(&mask, SIGUSR1) == 0);
        ASSERT_EQ(prctl(PR_GET_DUMPABLE), 1);
        end_tree(tree);
}

static int die(void *userdata)
{
        kill(getpid(), SIGKILL);
        return 0;
}

TEST(failures_are_told)
{
        struct cop_error err = COP_ERROR_NULL;
        struct seen s = {.fd = -1};
        pid_t tree = start_tree(), stranger;
        int status;

        if (geteuid() != 0)
                SKIP("needs root");
        stranger = fork();
        if (stranger == 0) {
                become(OWNER + 1);
                int r = cop_guest_run(tree, look, &s, &err);
                _exit(r < 0 && s.pid == 0 && err.message[0] ? 0 : 1);
        }
        ASSERT(waitpid(stranger, &status, 0) == stranger && status == 0);
        become(OWNER);
        ASSERT(cop_guest_run(tree, die, NULL, &err) < 0);
        ASSERT_CONTAINS(err.message, "died");
        end_tree(tree);
        ASSERT(cop_guest_run(tree, look, &s, &err) < 0);
        ASSERT_CONTAINS(err.message, "looking at the namespaces");
}
