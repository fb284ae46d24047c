/* What is open and has no name keeps its owner, mode and times: a file, a folder, a symbolic link (with where it leads), a memfd; the
 * name that the kernel tells is the old one. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "../victim.h"

static const struct timespec times[2] = {{123456, 789}, {-1000, 42}};

static void check(int fd, mode_t mode, uid_t uid, gid_t gid)
{
        struct stat st;

        CHECK(fstat(fd, &st) == 0 && st.st_mode == mode && st.st_uid == uid && st.st_gid == gid);
        CHECK(st.st_mtim.tv_sec == -1000 && st.st_mtim.tv_nsec == 42);
        /* A freeze has to read a link, which sets this time. */
        CHECK(S_ISLNK(mode) || (st.st_atim.tv_sec == 123456 && st.st_atim.tv_nsec == 789));
}

int main(void)
{
        char path[64], name[4096] = {0}, now[4096] = {0}, target[64] = {0};
        uid_t uid = 1234;
        gid_t gid = 4321;
        int file = open("file", O_RDWR | O_CREAT, 0600), memory = memfd_create("memory", 0);

        CHECK(mkdir("folder", 0700) == 0 && symlink("no/where", "link") == 0);
        int folder = open("folder", O_RDONLY), link = open("link", O_PATH | O_NOFOLLOW),
            again = open("link", O_PATH | O_NOFOLLOW);
        CHECK(file >= 0 && folder >= 0 && link >= 0 && again >= 0 && memory >= 0);
        CHECK(write(file, "file", 4) == 4 && write(memory, "memory", 6) == 6);
        CHECK(fchown(file, uid, gid) == 0 && fchown(folder, uid, gid) == 0 && lchown("link", uid, gid) == 0 &&
              fchown(memory, uid, gid) == 0);
        CHECK(fchmod(file, 02741) == 0 && fchmod(folder, 01732) == 0 && fchmod(memory, 0604) == 0);
        CHECK(utimensat(AT_FDCWD, "link", times, AT_SYMLINK_NOFOLLOW) == 0 && unlink("file") == 0 &&
              unlink("link") == 0 && rmdir("folder") == 0);
        CHECK(futimens(file, times) == 0 && futimens(folder, times) == 0 && futimens(memory, times) == 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
        CHECK(readlink(path, name, sizeof(name) - 1) > 0);
        victim_ready();
        victim_wait();
        check(file, S_IFREG | 02741, uid, gid);
        check(folder, S_IFDIR | 01732, uid, gid);
        check(link, S_IFLNK | 0777, uid, gid);
        check(again, S_IFLNK | 0777, uid, gid);
        check(memory, S_IFREG | 0604, uid, gid);
        CHECK(readlinkat(link, "", target, sizeof(target)) == 8 && strcmp(target, "no/where") == 0);
        CHECK(fcntl(link, F_GETFL) == fcntl(again, F_GETFL) && fcntl(link, F_GETFL) & O_NOFOLLOW);
        CHECK(access("link", F_OK) == -1 && access("file", F_OK) == -1 && access("folder", F_OK) == -1);
        CHECK(readlink(path, now, sizeof(now) - 1) > 0 && strcmp(name, now) == 0);
        victim_pass();
}
