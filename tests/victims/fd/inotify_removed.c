/* Watches on what has no name: a removed file that is open, a removed folder that is open, another that is only a working folder, a
 * memfd; on a symbolic link itself; and on a file of another mount, which has a number of its own there.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../victim.h"

static char buf[4096] __attribute__((aligned(8)));

/* The next event must be this one. */
static void expect(int fd, int wd, uint32_t mask)
{
        static ssize_t n, at;

        if (at >= n) {
                at = 0;
                for (int i = 0; i < 1000 && (n = read(fd, buf, sizeof(buf))) < 0; i++)
                        usleep(1000);
        }
        struct inotify_event *e = (struct inotify_event *)(buf + at);
        if (n <= 0)
                victim_fail("no event %#x of watch %d", mask, wd);
        at += (ssize_t)sizeof(*e) + e->len;
        if (e->wd != wd || (e->mask & ~(unsigned)IN_ISDIR) != mask)
                victim_fail("event %#x of watch %d, not %#x of %d", e->mask, e->wd, mask, wd);
}

int main(void)
{
        char path[64], other[64];
        int st, pair[2], fd = inotify_init1(IN_NONBLOCK), memory = memfd_create("memory", 0);
        int file = open("file", O_RDWR | O_CREAT, 0600);

        CHECK(mkdir("folder", 0755) == 0 && mkdir("cwd", 0755) == 0 && symlink("nowhere", "link") == 0 &&
              pipe(pair) == 0);
        int folder = open("folder", O_RDONLY);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
        int again = open(path, O_RDWR); /* the first one reports nothing */
        snprintf(other, sizeof(other), "/dev/shm/victim-%08x", (unsigned)time(NULL));
        int away = open(other, O_RDWR | O_CREAT | O_EXCL, 0600);
        int on_file = inotify_add_watch(fd, "file", IN_MODIFY), on_folder = inotify_add_watch(fd, "folder", IN_ATTRIB),
            on_cwd = inotify_add_watch(fd, "cwd", IN_ATTRIB), on_memory = inotify_add_watch(fd, path, IN_MODIFY),
            on_link = inotify_add_watch(fd, "link", IN_ATTRIB | IN_DONT_FOLLOW),
            on_away = away < 0 ? -1 : inotify_add_watch(fd, other, IN_MODIFY);
        CHECK(on_file > 0 && on_folder > 0 && on_cwd > 0 && on_memory > 0 && on_link > 0 && (away < 0 || on_away > 0));
        pid_t pid = fork();
        if (pid == 0) {
                char c;
                if (chdir("cwd") != 0 || rmdir("../cwd") != 0 || read(pair[0], &c, 1) != 1)
                        _exit(1);
                _exit(chmod(".", 0700) == 0 ? 0 : 3);
        }
        while (access("cwd", F_OK) == 0)
                usleep(1000);
        CHECK(unlink("file") == 0 && rmdir("folder") == 0);
        victim_ready();
        victim_wait();
        CHECK(pwrite(file, "x", 1, 0) == 1);
        expect(fd, on_file, IN_MODIFY);
        CHECK(fchmod(folder, 0700) == 0);
        expect(fd, on_folder, IN_ATTRIB);
        CHECK(pwrite(again, "x", 1, 0) == 1);
        expect(fd, on_memory, IN_MODIFY);
        CHECK(lchown("link", 0, 0) == 0);
        expect(fd, on_link, IN_ATTRIB);
        if (away >= 0) {
                CHECK(pwrite(away, "x", 1, 0) == 1);
                expect(fd, on_away, IN_MODIFY);
                unlink(other);
        }
        CHECK(write(pair[1], "g", 1) == 1);
        expect(fd, on_cwd, IN_ATTRIB);
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        victim_pass();
}
