/* A process whose threads have smaller ids than their leader: pids begin anew at pid_max, inside the tree and where the engine is.
 *
 * The test makes a pid namespace, so that it may say which number comes next, and runs the engine as its first process.  The tree
 * is a namespace within, whose first process forks the one in question once both namespaces are near their end. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/freezer.h"
#include "freezer/procfs.h"
#include "lib/test.h"

#define THREADS 4 /* with the leader */
#define CONTROL_FD 3

/* At _exit LeakSanitizer makes a thread, which it cannot where children would be born in another pid namespace. */
__attribute__((noreturn)) static void leave(void)
{
        for (;;)
                syscall(SYS_exit_group, 0);
}

static int mount_proc(void *userdata, struct cop_error *err)
{
        if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
                return cop_error_errno(err, errno, "mounting /proc");
        return 0;
}

/* The next process of this pid namespace gets the last number but two. */
static void go_near_the_end(void)
{
        struct cop_error err = COP_ERROR_NULL;
        _cleanup_free_ char *text = NULL;
        char next[16];

        ASSERT_OK(cop_read_file(AT_FDCWD, "/proc/sys/kernel/pid_max", 64, &text, NULL, &err), &err);
        snprintf(next, sizeof(next), "%d", atoi(text) - 3);
        ASSERT_OK(cop_write_kernel_file(AT_FDCWD, "/proc/sys/kernel/ns_last_pid", next, &err), &err);
}

/* ---- the process in question ---- */

static pthread_barrier_t barrier;
static pid_t ids[THREADS];
static bool right[THREADS];

static void *look_at_yourself(void *arg)
{
        size_t me = (size_t)arg;

        ids[me] = (pid_t)syscall(SYS_gettid);
        pthread_barrier_wait(&barrier);
        for (;;) {
                pthread_barrier_wait(&barrier);
                right[me] = ids[me] == (pid_t)syscall(SYS_gettid);
                pthread_barrier_wait(&barrier);
        }
        return NULL;
}

/* Answers every message with the ids of its threads that are still what they were, the leader's first. */
__attribute__((noreturn)) static void be_leader(void)
{
        pid_t answer[THREADS];
        pthread_t thread;
        char byte;

        ids[0] = getpid();
        pthread_barrier_init(&barrier, NULL, THREADS);
        for (size_t i = 1; i < THREADS; i++)
                if (pthread_create(&thread, NULL, look_at_yourself, (void *)i) != 0)
                        _exit(3);
        pthread_barrier_wait(&barrier);
        while (recv(CONTROL_FD, &byte, 1, 0) == 1) {
                memset(right, 0, sizeof(right));
                pthread_barrier_wait(&barrier);
                right[0] = ids[0] == (pid_t)syscall(SYS_gettid);
                pthread_barrier_wait(&barrier);
                for (size_t i = 0; i < THREADS; i++)
                        answer[i] = right[i] ? ids[i] : 0;
                if (send(CONTROL_FD, answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer))
                        break;
        }
        _exit(4);
}

static void ask(int control, pid_t *ret_ids)
{
        ASSERT(send(control, "?", 1, MSG_NOSIGNAL) == 1);
        ASSERT_EQ(recv(control, ret_ids, THREADS * sizeof(ret_ids[0]), 0), THREADS * sizeof(ret_ids[0]));
        ASSERT_GT(ret_ids[0], ret_ids[THREADS - 1]);
        ASSERT_GT(ret_ids[THREADS - 1], 0);
}

/* ---- the tree ---- */

__attribute__((noreturn)) static void be_first(int control)
{
        char byte;

        if (mount_proc(NULL, NULL) < 0 || setsid() < 0)
                _exit(1);
        int null = open("/dev/null", O_RDWR);
        if (dup2(control, 1000) < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
                _exit(1);
        dup2(1000, CONTROL_FD);
        close_range(CONTROL_FD + 1, ~0U, 0);
        if (recv(CONTROL_FD, &byte, 1, 0) != 1)
                _exit(1);
        go_near_the_end();
        pid_t child = fork();
        if (child == 0) {
                dup2(1, 2);
                be_leader();
        }
        dup2(1, 2);
        close(CONTROL_FD);
        for (;;)
                pause();
}

static pid_t start_tree(int control)
{
        pid_t pid = -1;
        int report[2];

        ASSERT(pipe(report) == 0);
        pid_t helper = fork();
        if (helper == 0) {
                if (unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWTIME) <
                    0)
                        _exit(1);
                pid = fork();
                if (pid == 0)
                        be_first(control);
                (void)!write(report[1], &pid, sizeof(pid));
                waitpid(pid, NULL, 0);
                leave();
        }
        ASSERT_EQ(read(report[0], &pid, sizeof(pid)), sizeof(pid));
        close(report[0]);
        close(report[1]);
        return pid;
}

/* As the engine sees it, too, the leader is not the first in the order of numbers. */
static void check_order(pid_t root)
{
        struct cop_error err = COP_ERROR_NULL;
        _cleanup_free_ char *text = NULL;
        _cleanup_free_ int *tids = NULL;
        char path[64];
        size_t n = 0;

        snprintf(path, sizeof(path), "/proc/%d/task/%d/children", root, root);
        ASSERT_OK(cop_read_file(AT_FDCWD, path, 4096, &text, NULL, &err), &err);
        int child = atoi(text);
        snprintf(path, sizeof(path), "/proc/%d/task", child);
        ASSERT_OK(cop_procfs_numbers(AT_FDCWD, path, &tids, &n, &err), &err);
        ASSERT_EQ(n, THREADS);
        ASSERT_LT(tids[0], child);
}

/* As the first process of a pid namespace. */
static void freeze_and_thaw(int image_fd)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_freeze_result frozen;
        struct cop_thaw_result thawed;
        pid_t before[THREADS], after[THREADS];
        int ends[2], status;
        struct stat st;

        ASSERT(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
        ASSERT_OK(mount_proc(NULL, &err), &err);
        ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0 && fstat(ends[1], &st) == 0);
        pid_t root = start_tree(ends[1]);
        go_near_the_end();
        ASSERT(send(ends[0], "!", 1, MSG_NOSIGNAL) == 1);
        ask(ends[0], before);
        check_order(root);

        struct cop_external out = {.name = "control", .dev = st.st_dev, .ino = st.st_ino, .fd = -EBADF};
        struct cop_freeze_request freeze = {.root = root,
                                            .image_dir_fd = image_fd,
                                            .parent_dir_fd = -EBADF,
                                            .flags = COP_FREEZE_KILL,
                                            .externals = &out,
                                            .external_count = 1};
        ASSERT_OK(cop_freeze(&freeze, &frozen, &err), &err);
        ASSERT_EQ(frozen.threads, 1 + THREADS);
        close(ends[0]);
        close(ends[1]);
        ASSERT(wait(NULL) > 0); /* the helper that was the tree's parent */

        ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        struct cop_external in = {.name = "control", .fd = ends[1]};
        struct cop_thaw_request thaw = {.image_dir_fd = image_fd,
                                        .namespaces = COP_THAW_NAMESPACES_NEW,
                                        .root_fd = -EBADF,
                                        .cgroup_fd = -EBADF,
                                        .externals = &in,
                                        .external_count = 1,
                                        .setup = mount_proc};
        ASSERT_OK(cop_thaw(&thaw, &thawed, &err), &err);
        close(ends[1]);
        ask(ends[0], after);
        ASSERT_MEM(before, after, sizeof(before));
        ASSERT(kill(thawed.root, SIGKILL) == 0 && waitpid(thawed.root, &status, 0) == thawed.root);
        cop_watch_free(thawed.watch);
        close(thawed.pidfd);
        close(ends[0]);
}

TEST(threads_may_have_smaller_ids_than_their_leader)
{
        int status;

        if (geteuid() != 0)
                SKIP("needs root");
        _cleanup_close_ int image_fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_close_ int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
        ASSERT(image_fd >= 0 && own >= 0 && unshare(CLONE_NEWPID) == 0);
        pid_t engine = fork();
        if (engine == 0) {
                freeze_and_thaw(image_fd);
                leave();
        }
        ASSERT(setns(own, CLONE_NEWPID) == 0);
        ASSERT(waitpid(engine, &status, 0) == engine);
        ASSERT(WIFEXITED(status));
        ASSERT_EQ(WEXITSTATUS(status), 0);
}
