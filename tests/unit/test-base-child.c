#include "lib/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/child.h"
#include "base/cleanup.h"

/* Runs a shell script with the given spec and returns what it wrote to descriptor 1; *ret_status is its wait status. */
static char *shell(struct cop_child_spec spec, const char *script, int *ret_status)
{
        const char *argv[] = {"sh", "-c", script, NULL};
        _cleanup_buf_ struct cop_buf out = COP_BUF(65536);
        struct cop_error err = COP_ERROR_NULL;
        int out_fd = -EBADF;
        pid_t pid = -1;

        spec.path = "/bin/sh";
        spec.argv = argv;
        ASSERT_OK(cop_child_spawn_output(&spec, &pid, &out_fd, &err), &err);
        while (cop_buf_read(&out, out_fd, 4096) > 0)
                ;
        close(out_fd);
        if (!spec.detached)
                ASSERT_EQ(waitpid(pid, ret_status, 0), pid);
        return cop_buf_take(&out);
}

TEST(runs_a_program)
{
        int status = -1;
        _cleanup_free_ char *out = shell((struct cop_child_spec){0}, "echo hi; exit 3", &status);

        ASSERT_STR(out, "hi\n");
        ASSERT(WIFEXITED(status));
        ASSERT_EQ(WEXITSTATUS(status), 3);
}

TEST(environment_and_folder)
{
        static const char *const env[] = {"A=1", NULL};
        int status;
        _cleanup_free_ char *out =
                shell((struct cop_child_spec){.env = env, .cwd = "/usr"}, "echo $A-$HOME-$(/bin/pwd)", &status);

        ASSERT_STR(out, "1--/usr\n");
}

TEST(only_the_named_descriptors_are_open)
{
        int status, stray = open("/dev/null", O_RDONLY); /* not close-on-exec on purpose */
        /* Without a pipe: the shell would still hold its end, or not, while ls looks. */
        _cleanup_free_ char *out = shell((struct cop_child_spec){0}, "ls /proc/$$/fd; readlink /proc/$$/fd/0", &status);

        close(stray);
        /* 10 is the shell's own, when it makes one. */
        if (strcmp(out, "0\n1\n2\n/dev/null\n") != 0 && strcmp(out, "0\n1\n10\n2\n/dev/null\n") != 0)
                FAIL("open: %s", out);
}

TEST(descriptors_may_swap_places)
{
        int a[2], b[2], status;

        ASSERT_OK(pipe2(a, O_CLOEXEC), NULL);
        ASSERT_OK(pipe2(b, O_CLOEXEC), NULL);
        /* Each one's target is the other's source. */
        struct cop_child_fd fds[] = {{a[1], b[1]}, {b[1], a[1]}};
        char script[100], c = 0;
        snprintf(script, sizeof(script), "printf A >&%d; printf B >&%d", b[1], a[1]);
        free(shell((struct cop_child_spec){.fds = fds, .fd_count = 2}, script, &status));
        ASSERT_EQ(read(a[0], &c, 1), 1);
        ASSERT_EQ(c, 'A');
        ASSERT_EQ(read(b[0], &c, 1), 1);
        ASSERT_EQ(c, 'B');
        for (int i = 0; i < 2; i++) {
                close(a[i]);
                close(b[i]);
        }
}

TEST(a_failed_exec_is_an_error_and_leaves_no_child)
{
        const char *argv[] = {"x", NULL};
        struct cop_child_spec spec = {.path = "/nonexistent/program", .argv = argv};
        struct cop_error err = COP_ERROR_NULL;
        pid_t pid = 1234;

        ASSERT_ERRNO(cop_child_spawn(&spec, &pid, &err), ENOENT);
        ASSERT_CONTAINS(err.message, "/nonexistent/program");
        ASSERT_EQ(pid, 1234);
        ASSERT_EQ(waitpid(-1, NULL, WNOHANG), -1);
        spec.detached = true;
        ASSERT_ERRNO(cop_child_spawn(&spec, &pid, &err), ENOENT);
        ASSERT_EQ(waitpid(-1, NULL, WNOHANG), -1);
        spec = (struct cop_child_spec){.path = "/bin/true", .argv = argv, .cwd = "/nonexistent"};
        ASSERT_ERRNO(cop_child_spawn(&spec, &pid, &err), ENOENT);
}

TEST(the_pipe_of_the_output_is_the_callers)
{
        static const char *const argv[] = {"sh", "-c", "echo out; echo other >&2", NULL};
        int other[2], out_fd = -EBADF;
        pid_t pid;

        ASSERT_OK(pipe2(other, O_CLOEXEC | O_NONBLOCK), NULL);
        const struct cop_child_fd fd = {other[1], STDERR_FILENO};
        const struct cop_child_spec spec = {.path = "/bin/sh", .argv = argv, .fds = &fd, .fd_count = 1};
        struct cop_error err = COP_ERROR_NULL;
        char text[20] = "";

        ASSERT_OK(cop_child_spawn_output(&spec, &pid, &out_fd, &err), &err);
        ASSERT_EQ(fcntl(out_fd, F_GETFD), FD_CLOEXEC);
        ASSERT_EQ(fcntl(out_fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDONLY);
        ASSERT_EQ(read(out_fd, text, sizeof(text)), 4);
        ASSERT(memcmp(text, "out\n", 4) == 0);
        ASSERT_EQ(read(out_fd, text, sizeof(text)), 0); /* nobody here holds the other end */
        ASSERT_EQ(waitpid(pid, NULL, 0), pid);
        ASSERT_EQ(read(other[0], text, sizeof(text)), 6);
        ASSERT(memcmp(text, "other\n", 6) == 0);
        close(out_fd);
        close(other[0]);
        close(other[1]);
}

/* The harness looks for descriptors that were left open. */
TEST(without_a_program_there_is_no_pipe)
{
        static const char *const argv[] = {"x", NULL};
        struct cop_child_spec spec = {.path = "/nonexistent/program", .argv = argv};
        struct cop_child_fd fds[16] = {{0, STDIN_FILENO}, {0, STDOUT_FILENO}};
        struct cop_error err = COP_ERROR_NULL;
        int out_fd = 1234;
        pid_t pid = 1234;

        ASSERT_ERRNO(cop_child_spawn_output(&spec, &pid, &out_fd, &err), ENOENT);
        ASSERT_CONTAINS(err.message, "/nonexistent/program");
        spec.path = "/bin/true";
        spec.fds = fds;
        spec.fd_count = 2;
        ASSERT_ERRNO(cop_child_spawn_output(&spec, &pid, &out_fd, &err), EINVAL);
        for (int i = 0; i < 16; i++)
                fds[i].target = 10 + i;
        spec.fd_count = 16;
        ASSERT_ERRNO(cop_child_spawn_output(&spec, &pid, &out_fd, &err), EINVAL);
        ASSERT_EQ(pid, 1234);
        ASSERT_EQ(out_fd, 1234);
        ASSERT_EQ(waitpid(-1, NULL, WNOHANG), -1);
}

TEST(targets_out_of_range_are_refused)
{
        const char *argv[] = {"true", NULL};
        struct cop_child_fd fd = {0, 64};
        struct cop_child_spec spec = {.path = "/bin/true", .argv = argv, .fds = &fd, .fd_count = 1};

        ASSERT_ERRNO(cop_child_spawn(&spec, NULL, NULL), EINVAL);
        fd.target = -1;
        ASSERT_ERRNO(cop_child_spawn(&spec, NULL, NULL), EINVAL);
        spec.fd_count = 17;
        ASSERT_ERRNO(cop_child_spawn(&spec, NULL, NULL), EINVAL);
}

TEST(signals_are_reset)
{
        sigset_t set;
        int status;

        signal(SIGPIPE, SIG_IGN);
        sigfillset(&set);
        sigprocmask(SIG_SETMASK, &set, NULL);
        _cleanup_free_ char *out = shell((struct cop_child_spec){0},
                                         "grep -E '^Sig(Blk|Ign)' /proc/self/status | cut -f2 | tr '\\n' ' '", &status);
        ASSERT_STR(out, "0000000000000000 0000000000000000 ");
}

TEST(a_detached_program_is_no_child)
{
        int status;
        _cleanup_free_ char *out = shell((struct cop_child_spec){.detached = true, .new_session = true},
                                         "cut -d' ' -f4,6 /proc/$$/stat; echo $$", &status);
        int parent = 0, session = 0, pid = 0;

        ASSERT_EQ(sscanf(out, "%d %d %d", &parent, &session, &pid), 3);
        ASSERT_NE(parent, getpid());
        ASSERT_EQ(session, pid);
        ASSERT_EQ(waitpid(-1, NULL, WNOHANG), -1);
}

TEST(the_detached_pid_is_the_programs_own)
{
        const char *argv[] = {"sleep", "60", NULL};
        struct cop_child_spec spec = {.path = "/bin/sleep", .argv = argv, .detached = true};
        struct cop_error err = COP_ERROR_NULL;
        char path[64], comm[16] = "";
        pid_t pid = -1;

        ASSERT_OK(cop_child_spawn(&spec, &pid, &err), &err);
        snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ASSERT_GT(read(fd, comm, sizeof(comm) - 1), 0);
        close(fd);
        ASSERT_STR(comm, "sleep\n");
        kill(pid, SIGKILL);
}

TEST(death_signal)
{
        const char *argv[] = {"sleep", "60", NULL};
        struct cop_child_spec spec = {.path = "/bin/sleep", .argv = argv, .death_signal = SIGKILL};
        int report[2];
        pid_t grandchild = -1;

        ASSERT_OK(pipe2(report, O_CLOEXEC), NULL);
        pid_t middle = fork();
        if (middle == 0) {
                pid_t pid;
                ASSERT_OK(cop_child_spawn(&spec, &pid, NULL), NULL);
                ASSERT_EQ(write(report[1], &pid, sizeof(pid)), sizeof(pid));
                _exit(0);
        }
        ASSERT_EQ(read(report[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
        ASSERT_EQ(waitpid(middle, NULL, 0), middle);
        for (int i = 0; i < 1000 && kill(grandchild, 0) == 0; i++) {
                char path[64], stat[256] = "";
                snprintf(path, sizeof(path), "/proc/%d/stat", grandchild);
                int fd = open(path, O_RDONLY | O_CLOEXEC);
                ssize_t n = read(fd, stat, sizeof(stat) - 1);
                close(fd);
                if (n <= 0 || strstr(stat, ") Z "))
                        break;
                usleep(5000);
                ASSERT_LT(i, 999);
        }
        close(report[0]);
        close(report[1]);
}
