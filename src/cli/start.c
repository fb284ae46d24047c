/* Theory of operation
 *
 * The daemon is started with one end of a pipe as --ready-fd.  It writes one line when it listens and closes the pipe; an end
 * of file without a line means that it failed, and what it had to say is at the end of its log.  A lock on a file in the home
 * makes callers that come at the same time wait for the one that starts it; then they find it running.
 */
#include "start.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/child.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"

#define READY_TIMEOUT (30 * USEC_PER_SEC)
#define READY_FD 3
#define LOG_TAIL 1200

int cop_place_find(struct cop_place *ret, struct cop_error *err)
{
        const char *home = getenv("COPPICE_HOME"), *user = getenv("HOME");
        char cwd[COP_HOME_PATH_MAX];
        int r;

        if (home && *home == '/') {
                r = cop_path_format(ret->home, sizeof(ret->home), "%s", home);
        } else if (home && *home) {
                if (!getcwd(cwd, sizeof(cwd)))
                        return cop_error_errno(err, errno, "COPPICE_HOME is relative and the current folder is gone");
                r = cop_path_format(ret->home, sizeof(ret->home), "%s/%s", cwd, home);
        } else if (geteuid() == 0) {
                r = cop_path_format(ret->home, sizeof(ret->home), "/var/lib/coppice");
        } else if (user && *user == '/') {
                r = cop_path_format(ret->home, sizeof(ret->home), "%s/.local/share/coppice", user);
        } else {
                return cop_error_set(err, ENOENT, COP_ERR_bad_request, "neither COPPICE_HOME nor HOME is set");
        }
        for (size_t n = strlen(ret->home); r == 0 && n > 1 && ret->home[n - 1] == '/'; n--)
                ret->home[n - 1] = '\0';
        if (r == 0)
                r = cop_path_format(ret->socket, sizeof(ret->socket), "%s/coppice.sock", ret->home);
        if (r == 0)
                r = cop_path_format(ret->log, sizeof(ret->log), "%s/coppiced.log", ret->home);
        return r < 0 ? cop_error_errno(err, r, "COPPICE_HOME") : 0;
}

static bool is_program(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

int cop_daemon_path(char *ret, size_t n, struct cop_error *err)
{
        static const char *const beside[] = {"coppiced", "../libexec/coppice/coppiced", "../sbin/coppiced"};
        const char *given = getenv("COPPICE_DAEMON"), *search = getenv("PATH");
        char self[COP_HOME_PATH_MAX];
        ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

        if (given && *given)
                return cop_path_format(ret, n, "%s", given);
        self[len < 0 ? 0 : len] = '\0';
        char *slash = strrchr(self, '/');
        if (slash)
                *slash = '\0';
        for (size_t i = 0; slash && i < ELEMENTSOF(beside); i++)
                if (cop_path_format(ret, n, "%s/%s", self, beside[i]) == 0 && is_program(ret))
                        return 0;
        _cleanup_free_ char *copy = strdup(search ? search : "");
        char *rest = copy;
        for (char *folder; copy && (folder = strsep(&rest, ":"));)
                if (*folder && cop_path_format(ret, n, "%s/coppiced", folder) == 0 && is_program(ret))
                        return 0;
        return cop_error_set(err, ENOENT, COP_ERR_unavailable,
                             "coppiced is neither beside this program (%s) nor in PATH; set COPPICE_DAEMON to its path",
                             self);
}

bool cop_place_answers(const struct cop_place *place)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0 || cop_path_format(address.sun_path, sizeof(address.sun_path), "%s", place->socket) < 0)
                return false;
        return connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
}

/* What the daemon wrote to its log from `start` on, the end of it, on one line. */
static void log_since(const struct cop_place *place, off_t start, char text[static LOG_TAIL])
{
        _cleanup_close_ int fd = open(place->log, O_RDONLY | O_CLOEXEC);
        struct stat st;
        ssize_t n = -1;

        if (fd >= 0 && fstat(fd, &st) == 0) {
                off_t from = st.st_size - start > LOG_TAIL - 1 ? st.st_size - (LOG_TAIL - 1) : start;
                n = pread(fd, text, LOG_TAIL - 1, from);
        }
        while (n > 0 && text[n - 1] == '\n')
                n--;
        text[n < 0 ? 0 : n] = '\0';
}

/* Reads the ready line.  1 ready, 0 end of file without it, negative on a time-out or error. */
static int await_ready(int fd)
{
        _cleanup_buf_ struct cop_buf line = COP_BUF(4096);
        usec_t deadline = cop_usec_add(cop_now(CLOCK_MONOTONIC), READY_TIMEOUT);

        for (;;) {
                usec_t now = cop_now(CLOCK_MONOTONIC);
                struct pollfd p = {.fd = fd, .events = POLLIN};
                if (now >= deadline)
                        return -ETIMEDOUT;
                if (poll(&p, 1, (int)((deadline - now) / USEC_PER_MSEC) + 1) <= 0)
                        continue;
                ssize_t n = cop_buf_read(&line, fd, 512);
                if (n == 0 || (n < 0 && n != -EINTR))
                        return (int)n;
                if (n > 0 && memchr(line.data, '\n', line.len))
                        return 1;
        }
}

static int spawn(const struct cop_place *place, const char *program, int log_fd, struct cop_error *err)
{
        const char *argv[] = {"coppiced", "--ready-fd", "3", NULL};
        _cleanup_close_ int read_fd = -EBADF, write_fd = -EBADF;
        char said[LOG_TAIL];
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return cop_error_errno(err, errno, "pipe");
        read_fd = fds[0];
        write_fd = fds[1];
        struct cop_child_fd child_fds[] = {{log_fd, STDOUT_FILENO}, {log_fd, STDERR_FILENO}, {write_fd, READY_FD}};
        struct cop_child_spec spec = {.path = program,
                                      .argv = argv,
                                      .cwd = "/",
                                      .fds = child_fds,
                                      .fd_count = ELEMENTSOF(child_fds),
                                      .new_session = true,
                                      .detached = true};
        off_t start = lseek(log_fd, 0, SEEK_END);
        pid_t pid = -1;
        if (setenv("COPPICE_HOME", place->home, 1) < 0)
                return cop_error_errno(err, errno, "starting a daemon");
        int r = cop_child_spawn(&spec, &pid, err);
        if (r < 0)
                return r;
        write_fd = cop_close(write_fd);
        r = await_ready(read_fd);
        if (r > 0)
                return 0;
        log_since(place, start < 0 ? 0 : start, said);
        if (r == -ETIMEDOUT)
                return cop_error_set(err, ETIMEDOUT, COP_ERR_unavailable,
                                     "the daemon (pid %d) was started, but did not become ready within %d s; see %s",
                                     (int)pid, (int)(READY_TIMEOUT / USEC_PER_SEC), place->log);
        return cop_error_set(err, ECHILD, COP_ERR_unavailable, "the daemon could not start%s%s (log: %s)",
                             said[0] ? ":\n" : "", said, place->log);
}

int cop_daemon_start(const struct cop_place *place, struct cop_error *err)
{
        char program[COP_HOME_PATH_MAX], lock[COP_HOME_PATH_MAX];
        int r;

        if ((r = cop_daemon_path(program, sizeof(program), err)) < 0 || (r = cop_mkdir_p(place->home, 0700, err)) < 0)
                return r;
        r = cop_path_format(lock, sizeof(lock), "%s/.start", place->home);
        if (r < 0)
                return cop_error_errno(err, r, "COPPICE_HOME");
        _cleanup_close_ int lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (lock_fd < 0)
                return cop_error_errno(err, errno, "opening %s", lock);
        while (flock(lock_fd, LOCK_EX) < 0)
                if (errno != EINTR)
                        return cop_error_errno(err, errno, "locking %s", lock);
        if (cop_place_answers(place))
                return 0; /* somebody else started it while we waited */
        _cleanup_close_ int log_fd = open(place->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (log_fd < 0)
                return cop_error_errno(err, errno, "opening %s", place->log);
        return spawn(place, program, log_fd, err);
}
