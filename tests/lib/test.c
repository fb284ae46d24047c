/* Theory of operation
 *
 * The runner forks once per test.  The child leads a process group of its own, runs the test and compares its open
 * descriptors with those it began with.  What the child has to tell (skipped why, its folder) goes through one shared
 * page, so a test that dies in any way leaves it readable.  The runner is a subreaper: whatever a test leaves behind,
 * daemons included, becomes the runner's child and is killed before the next test begins.
 */
#include "lib/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STATUS_SKIPPED 77
#define FDS_MAX 1024

struct shared {
        char skip_reason[512];
        char dir[256];
};

static struct cop_test *first_test, **last_test = &first_test;
static struct shared *shared;
static pid_t test_pid;

void test_register(struct cop_test *test)
{
        *last_test = test;
        last_test = &test->next;
}

/* -- within a test ------------------------------------------------------------------------------------------------- */

/* Leaves at once: no destructors, no leak check, which would only add noise to the first fault. */
static _Noreturn void leave(int status)
{
        fflush(NULL);
        _exit(status);
}

void test_skip(const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        vsnprintf(shared->skip_reason, sizeof(shared->skip_reason), format, ap);
        va_end(ap);
        leave(STATUS_SKIPPED);
}

void test_fail(const char *file, int line, const char *format, ...)
{
        va_list ap;

        fflush(stdout);
        fprintf(stderr, "# %s:%d: %s", file, line, getpid() == test_pid ? "" : "(in a child process) ");
        va_start(ap, format);
        vfprintf(stderr, format, ap);
        va_end(ap);
        fputc('\n', stderr);
        leave(1);
}

void test_fail_error(const char *file, int line, const char *expression, long long r, const struct cop_error *err)
{
        test_fail(file, line, "%s gave %lld (%s): %s%s%s", expression, r, strerror((int)-r),
                  err ? cop_err_code_name(err->code) : "", err ? ": " : "", err ? err->message : "no error text");
}

void test_check_str(const char *file, int line, const char *expression, const char *a, const char *b)
{
        if ((a && b) ? strcmp(a, b) != 0 : a != b)
                test_fail(file, line, "%s is %s%s%s, expected %s%s%s", expression, a ? "\"" : "", a ? a : "NULL",
                          a ? "\"" : "", b ? "\"" : "", b ? b : "NULL", b ? "\"" : "");
}

void test_check_contains(const char *file, int line, const char *expression, const char *haystack, const char *needle)
{
        if (!haystack || !strstr(haystack, needle))
                test_fail(file, line, "%s is \"%s\", expected it to contain \"%s\"", expression,
                          haystack ? haystack : "NULL", needle);
}

void test_check_mem(const char *file, int line, const char *expression, const void *a, const void *b, size_t n)
{
        const unsigned char *x = a, *y = b;

        for (size_t i = 0; i < n; i++)
                if (x[i] != y[i])
                        test_fail(file, line, "%s differs at byte %zu of %zu: 0x%02x, expected 0x%02x", expression, i,
                                  n, x[i], y[i]);
}

void test_check_errno(const char *file, int line, const char *expression, long long r, int errnum)
{
        if (r != -errnum)
                test_fail(file, line, "%s gave %lld (%s), expected %d (%s)", expression, r,
                          r < 0 ? strerror((int)-r) : "no error", -errnum, strerror(errnum));
}

void test_check_code(const char *file, int line, const char *expression, long long r, const struct cop_error *err,
                     enum cop_err_code wanted)
{
        if (r >= 0)
                test_fail(file, line, "%s gave %lld, expected the error %s", expression, r, cop_err_code_name(wanted));
        if (err->code != wanted)
                test_fail(file, line, "%s gave the error %s (%s), expected %s", expression,
                          cop_err_code_name(err->code), err->message, cop_err_code_name(wanted));
}

const char *test_dir(void)
{
        const char *base = getenv("TMPDIR");

        if (shared->dir[0])
                return shared->dir;
        snprintf(shared->dir, sizeof(shared->dir), "%.200s/coppice-test-XXXXXX", base ? base : "/tmp");
        if (!mkdtemp(shared->dir)) {
                int saved = errno;
                shared->dir[0] = '\0';
                FAIL("no temporary folder: %s", strerror(saved));
        }
        return shared->dir;
}

/* The open descriptors in ascending order of readdir, without the one that reads them. */
static size_t list_fds(int *fds, size_t max)
{
        DIR *dir = opendir("/proc/self/fd");
        size_t n = 0;

        if (!dir)
                return 0;
        for (struct dirent *e; (e = readdir(dir));) {
                int fd = atoi(e->d_name);
                if (e->d_name[0] == '.' || fd == dirfd(dir))
                        continue;
                if (n < max)
                        fds[n] = fd;
                n++;
        }
        closedir(dir);
        return n;
}

size_t test_count_fds(void)
{
        return list_fds(NULL, 0);
}

static bool contains(const int *fds, size_t n, int fd)
{
        for (size_t i = 0; i < n; i++)
                if (fds[i] == fd)
                        return true;
        return false;
}

/* Prints each descriptor that is in `now` only; true when there was one. */
static bool report_leaks(const int *before, size_t n_before, const int *now, size_t n_now)
{
        bool leaked = false;

        for (size_t i = 0; i < n_now; i++) {
                char link[64], target[256];
                if (contains(before, n_before, now[i]))
                        continue;
                snprintf(link, sizeof(link), "/proc/self/fd/%d", now[i]);
                ssize_t n = readlink(link, target, sizeof(target) - 1);
                target[n < 0 ? 0 : n] = '\0';
                fprintf(stderr, "# descriptor %d (%s) was left open\n", now[i], target);
                leaked = true;
        }
        for (size_t i = 0; i < n_before; i++) {
                if (contains(now, n_now, before[i]))
                        continue;
                fprintf(stderr, "# descriptor %d was closed, but not opened, by the test\n", before[i]);
                leaked = true;
        }
        return leaked;
}

static _Noreturn void run_here(struct cop_test *test)
{
        static int before[FDS_MAX], now[FDS_MAX];

        test_pid = getpid();
        size_t n_before = list_fds(before, FDS_MAX);
        test->run();
        size_t n_now = list_fds(now, FDS_MAX);
        if (n_before > FDS_MAX || n_now > FDS_MAX)
                FAIL("more than %d descriptors are open", FDS_MAX);
        if (report_leaks(before, n_before, now, n_now))
                leave(1);
        exit(0); /* with destructors, so that LeakSanitizer looks */
}

/* -- the runner ---------------------------------------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
        if (remove(path) < 0)
                fprintf(stderr, "# left behind: %s\n", path);
        return 0;
}

/* Kills and reaps every child: what a test left behind has been handed to this process by now, or is as soon as its own
 * parent dies, hence the repetition. */
static void kill_strays(void)
{
        char text[4096];
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
        for (;;) {
                int fd = open(path, O_RDONLY | O_CLOEXEC);
                ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
                if (fd >= 0)
                        close(fd);
                text[n < 0 ? 0 : n] = '\0';
                char *rest = text;
                for (char *word; (word = strtok_r(rest, " \n", &rest));)
                        kill(atoi(word), SIGKILL);
                if (waitpid(-1, NULL, 0) < 0 && errno == ECHILD)
                        return;
        }
}

static unsigned limit_of(const struct cop_test *test)
{
        const char *text = getenv("TEST_TIMEOUT");
        int seconds = text ? atoi(text) : 0;

        return seconds > 0 ? (unsigned)seconds : test->limit_seconds;
}

/* Waits for the child; *ret_status is its wait status.  False when the limit came first (the child is then killed). */
static bool wait_for(pid_t pid, unsigned limit, int *ret_status)
{
        int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        struct pollfd p = {.fd = pidfd, .events = POLLIN};
        int n;

        do
                n = poll(&p, 1, (int)limit * 1000);
        while (n < 0 && errno == EINTR);
        if (pidfd >= 0)
                close(pidfd);
        kill(-pid, SIGKILL); /* the rest of its group, and itself when late */
        while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR)
                ;
        return n != 0;
}

enum outcome {
        PASSED,
        FAILED,
        SKIPPED,
};

static enum outcome judge(const struct cop_test *test, bool in_time, int status, char *why, size_t n)
{
        why[0] = '\0';
        if (!in_time)
                snprintf(why, n, "not done within %u s", limit_of(test));
        else if (WIFSIGNALED(status))
                snprintf(why, n, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
        else if (WEXITSTATUS(status) == 0)
                return PASSED;
        else if (WEXITSTATUS(status) != STATUS_SKIPPED)
                snprintf(why, n, "status %d", WEXITSTATUS(status));
        else if (getenv("MUST_WORK") && strcmp(getenv("MUST_WORK"), "1") == 0)
                snprintf(why, n, "skipped under MUST_WORK=1: %s", shared->skip_reason);
        else
                return SKIPPED;
        return FAILED;
}

static enum outcome run_test(struct cop_test *test, unsigned number)
{
        struct timespec begin, end;
        char why[600];
        int status = 0;

        memset(shared, 0, sizeof(*shared));
        fflush(NULL);
        clock_gettime(CLOCK_MONOTONIC, &begin);
        pid_t pid = fork();
        if (pid < 0) {
                perror("fork");
                exit(1);
        }
        if (pid == 0) {
                setpgid(0, 0);
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                dup2(STDERR_FILENO, STDOUT_FILENO); /* stdout is for TAP */
                run_here(test);
        }
        setpgid(pid, pid);
        bool in_time = wait_for(pid, limit_of(test), &status);
        kill_strays();
        if (shared->dir[0])
                nftw(shared->dir, remove_entry, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;

        enum outcome outcome = judge(test, in_time, status, why, sizeof(why));
        printf("%s %u - %s", outcome == FAILED ? "not ok" : "ok", number, test->name);
        if (outcome == SKIPPED)
                printf(" # SKIP %s\n", shared->skip_reason);
        else if (outcome == FAILED)
                printf(" # %s\n", why);
        else
                printf(" # %.3f s\n", seconds);
        return outcome;
}

static bool wanted(const struct cop_test *test, char **names)
{
        for (; *names; names++) {
                size_t n = strlen(*names);
                if (n > 0 && (*names)[n - 1] == '*' ? strncmp(test->name, *names, n - 1) == 0
                                                    : strcmp(test->name, *names) == 0)
                        return true;
        }
        return false;
}

static int run_all(char **names)
{
        unsigned counts[3] = {0}, number = 0, total = 0;

        for (struct cop_test *t = first_test; t; t = t->next)
                total += !*names || wanted(t, names);
        printf("1..%u\n", total);
        for (struct cop_test *t = first_test; t; t = t->next)
                if (!*names || wanted(t, names))
                        counts[run_test(t, ++number)]++;
        if (total == 0) {
                fprintf(stderr, "# no test%s\n", *names ? " of this name; --list shows them" : "s in this program");
                counts[FAILED]++;
        }
        printf("%u passed, %u failed, %u skipped\n", counts[PASSED], counts[FAILED], counts[SKIPPED]);
        return counts[FAILED] ? 1 : 0;
}

int main(int argc, char **argv)
{
        bool fork_each = true;

        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
                perror("test harness");
                return 1;
        }
        setvbuf(stdout, NULL, _IOLBF, 0);
        argv++;
        if (argc > 1 && strcmp(*argv, "--list") == 0) {
                for (struct cop_test *t = first_test; t; t = t->next)
                        puts(t->name);
                return 0;
        }
        if (argc > 1 && strcmp(*argv, "--no-fork") == 0) {
                fork_each = false;
                argv++;
        }
        for (struct cop_test *t = first_test; !fork_each && t; t = t->next)
                if (*argv && wanted(t, argv))
                        run_here(t);
        return run_all(argv);
}
