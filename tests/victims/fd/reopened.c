/* Files opened through /proc/self/fd, symbolic links by O_PATH, the socket file of a living socket by O_PATH, a folder outside a chroot
 * that its process is in, numbers above the limit.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../sock.h"

static int again(int fd, int flags)
{
        char path[32];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return open(path, flags);
}

static pid_t start_chrooted(int outside)
{
        pid_t pid = fork();

        if (pid != 0)
                return pid;
        if (chroot("room") != 0 || fchdir(outside) != 0)
                _exit(1);
        int fd = open("/in", O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0);
        victim_ready();
        victim_wait();
        _exit(write(fd, "x", 1) == 1 ? 0 : 2);
}

int main(void)
{
        char buf[64];
        int pair[2], st;
        struct sockaddr_un a;
        struct rlimit limit;
        int f = open("f", O_RDWR | O_CREAT, 0600), s = socket(AF_UNIX, SOCK_DGRAM, 0);

        CHECK(write(f, "abcdef", 6) == 6 && symlink("f", "link") == 0 && mkdir("room", 0700) == 0 && pipe(pair) == 0);
        int reader = again(f, O_RDONLY), appender = again(f, O_WRONLY | O_APPEND), both = again(pair[0], O_RDWR),
            link = open("link", O_PATH | O_NOFOLLOW), outside = open("/proc/self/cwd", O_RDONLY | O_DIRECTORY);
        CHECK(reader >= 0 && appender >= 0 && both >= 0 && link >= 0 && outside >= 0);
        CHECK(bind(s, (struct sockaddr *)&a, unix_name(&a, "socket", 6)) == 0);
        int file = open("socket", O_PATH);
        CHECK(file >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0 && fcntl(f, F_DUPFD, 900) == 900);
        limit.rlim_cur = 64;
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        pid_t pid = start_chrooted(outside);
        victim_wait();
        CHECK(read(reader, buf, sizeof(buf)) == 6 && write(appender, "g", 1) == 1 && pread(f, buf, 9, 6) == 1);
        CHECK(readlinkat(link, "", buf, sizeof(buf)) == 1 && faccessat(outside, "f", F_OK, 0) == 0);
        CHECK(write(both, "pipe", 4) == 4 && read(pair[0], buf, 9) == 4);
        int n = snprintf(buf, sizeof(buf), "/proc/self/fd/%d", file), c = socket(AF_UNIX, SOCK_DGRAM, 0);
        CHECK(connect(c, (struct sockaddr *)&a, unix_name(&a, buf, (size_t)n)) == 0);
        say(c, "through the file");
        expect(s, "through the file");
        CHECK(write(900, "h", 1) == 1 && fcntl(f, F_DUPFD, 100) == -1 && errno == EINVAL);
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        victim_pass();
}
