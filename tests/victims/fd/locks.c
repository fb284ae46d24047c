/* flock, POSIX and OFD locks are held after the thaw (others cannot take them), shared and exclusive, by their owners.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "../victim.h"

static int other(int (*take)(void))
{
        int st;
        pid_t pid = fork();

        if (pid == 0)
                _exit(take());
        return waitpid(pid, &st, 0) == pid && WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

static int take_flock(void)
{
        return flock(open("a", O_RDWR), LOCK_EX | LOCK_NB) == 0 ? 1 : errno == EWOULDBLOCK ? 0 : 2;
}
static int take_shared(void)
{
        return flock(open("s", O_RDWR), LOCK_SH | LOCK_NB) == 0 && flock(open("s", O_RDWR), LOCK_EX | LOCK_NB) == -1
                       ? 0
                       : 1;
}
static int take_posix(void)
{
        struct flock l = {.l_type = F_WRLCK, .l_start = 15, .l_len = 1},
                     before = {.l_type = F_WRLCK, .l_start = 9, .l_len = 1};
        int fd = open("b", O_RDWR);

        return fcntl(fd, F_SETLK, &before) == 0 && fcntl(fd, F_SETLK, &l) == -1 ? 0 : 1;
}
static int take_ofd(void)
{
        struct flock l = {.l_type = F_WRLCK, .l_start = 5, .l_len = 1}, beyond = {.l_type = F_WRLCK, .l_start = 10};
        int fd = open("c", O_RDWR);

        return fcntl(fd, F_OFD_SETLK, &beyond) == 0 && fcntl(fd, F_OFD_SETLK, &l) == -1 ? 0 : 1;
}

int main(void)
{
        int a = open("a", O_RDWR | O_CREAT, 0600), s = open("s", O_RDWR | O_CREAT, 0600),
            b = open("b", O_RDWR | O_CREAT, 0600), c = open("c", O_RDWR | O_CREAT, 0600);
        struct flock range = {.l_type = F_WRLCK, .l_start = 10, .l_len = 10},
                     ofd = {.l_type = F_RDLCK, .l_start = 0, .l_len = 10};

        CHECK(flock(a, LOCK_EX) == 0 && flock(s, LOCK_SH) == 0 && fcntl(b, F_SETLK, &range) == 0 &&
              fcntl(c, F_OFD_SETLK, &ofd) == 0);
        victim_ready();
        victim_wait();
        CHECK(other(take_flock) == 0);
        CHECK(other(take_shared) == 0);
        CHECK(other(take_posix) == 0);
        CHECK(other(take_ofd) == 0);
        range.l_type = F_UNLCK;
        CHECK(flock(a, LOCK_UN) == 0 && other(take_flock) == 1 && fcntl(b, F_SETLK, &range) == 0 &&
              other(take_posix) == 1);
        victim_pass();
}
