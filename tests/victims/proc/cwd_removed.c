/* Processes whose working folder has been removed: one that has it open, too, its child, which is there as well; and one with a removed
 * root.  A folder has the name of the removed one by now. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../victim.h"

static int in_folder(int fd, ino_t ino)
{
        char path[512];
        struct stat st, here;

        if (getcwd(path, sizeof(path)) != NULL || errno != ENOENT)
                return 3;
        if (fstat(fd, &st) != 0 || stat(".", &here) != 0 || st.st_ino != here.st_ino || st.st_nlink != 0 ||
            (st.st_mode & 07777) != 0711)
                return 4;
        return ino && ino != st.st_ino ? 5 : 0;
}

static int folder_of_two(int wait_fd)
{
        char c;
        int p[2], st;
        struct stat here;

        if (mkdir("gone", 0711) != 0 || pipe(p) != 0)
                return 1;
        int fd = open("gone", O_RDONLY);
        if (fd < 0 || chdir("gone") != 0 || rmdir("../gone") != 0 || mkdir("../gone", 0700) != 0)
                return 1;
        pid_t pid = fork();
        if (pid == 0) {
                ino_t ino;
                _exit(read(p[0], &ino, sizeof(ino)) == sizeof(ino) ? in_folder(fd, ino) : 6);
        }
        if (read(wait_fd, &c, 1) != 1)
                return 2;
        if (stat(".", &here) != 0 || write(p[1], &here.st_ino, sizeof(here.st_ino)) != sizeof(here.st_ino))
                return 7;
        if (waitpid(pid, &st, 0) != pid || st != 0)
                return 10 + WEXITSTATUS(st);
        return in_folder(fd, 0);
}

static int removed_root(int wait_fd)
{
        char c;
        struct stat st;

        if (mkdir("root", 0755) != 0 || chroot("root") != 0 || rmdir("root") != 0)
                return 1;
        if (read(wait_fd, &c, 1) != 1)
                return 2;
        return stat("/", &st) == 0 && st.st_nlink == 0 && (st.st_mode & 07777) == 0755 && access("/proc", F_OK) == -1
                       ? 0
                       : 3;
}

int main(void)
{
        int st, p[2];
        int (*const parts[])(int) = {folder_of_two, removed_root};
        pid_t pids[2];

        CHECK(pipe(p) == 0);
        for (int i = 0; i < 2; i++) {
                pids[i] = fork();
                if (pids[i] == 0) {
                        close(p[1]);
                        _exit(parts[i](p[0]));
                }
        }
        usleep(30000);
        victim_ready();
        victim_wait();
        CHECK(write(p[1], "xx", 2) == 2);
        for (int i = 0; i < 2; i++) {
                CHECK(waitpid(pids[i], &st, 0) == pids[i] && WIFEXITED(st));
                if (WEXITSTATUS(st))
                        victim_fail("process %d: check %d", i, WEXITSTATUS(st));
        }
        victim_pass();
}
