/* Makes the steps of a commit visible, and stops at each: a test sees what the disk holds just then, or kills somebody.
 *
 * Every call that orders writes (fsync, fdatasync, syncfs) or moves a name (rename) first says so on the socket $COPPICE_STEPS, "PROGRAM PID
 * CALL PATH", and goes on when a byte comes back or the other side hangs up.  Without a listener nothing happens.  As a library to preload
 * for programs that are linked dynamically; linked into a copy of those that are not, where it takes the place of the C library's.
 *
 * A connection for each call: forked children close what they inherit.
 *
 * The preloaded library also gives the host another boot id, that of the file $COPPICE_BOOT_ID.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static void step(const char *call, const char *path)
{
        const char *where = getenv("COPPICE_STEPS");
        struct sockaddr_un addr = {.sun_family = AF_UNIX};
        char text[4400], answer;
        int saved = errno;

        if (where && strlen(where) < sizeof(addr.sun_path)) {
                int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
                strcpy(addr.sun_path, where);
                int n = snprintf(text, sizeof(text), "%s %d %s %.4096s\n", program_invocation_short_name, getpid(),
                                 call, path);
                if (fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
                    send(fd, text, (size_t)n, MSG_NOSIGNAL) == n)
                        while (read(fd, &answer, 1) < 0 && errno == EINTR)
                                ;
                if (fd >= 0)
                        close(fd);
        }
        errno = saved;
}

static void step_of_fd(const char *call, int fd)
{
        char link[40], path[4097];

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, path, sizeof(path) - 1);
        path[n < 0 ? 0 : n] = '\0';
        step(call, path);
}

#ifdef __PIC__
int openat64(int dir_fd, const char *path, int flags, ...)
{
        const char *boot_id = getenv("COPPICE_BOOT_ID");
        mode_t mode = 0;

        if (flags & (O_CREAT | O_TMPFILE)) {
                va_list args;
                va_start(args, flags);
                mode = va_arg(args, mode_t);
                va_end(args);
        }
        if (boot_id && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0)
                path = boot_id;
        return (int)syscall(SYS_openat, dir_fd, path, flags, mode);
}
#endif

int fsync(int fd)
{
        step_of_fd("fsync", fd);
        return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
        step_of_fd("fdatasync", fd);
        return (int)syscall(SYS_fdatasync, fd);
}

int syncfs(int fd)
{
        step_of_fd("syncfs", fd);
        return (int)syscall(SYS_syncfs, fd);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
        step("rename", to);
        int r = (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
        step("renamed", to);
        return r;
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
        return renameat2(from_fd, from, to_fd, to, 0);
}

int rename(const char *from, const char *to)
{
        return renameat(AT_FDCWD, from, AT_FDCWD, to);
}
