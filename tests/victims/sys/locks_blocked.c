/* Blocked in flock, in a POSIX lock and in an OFD lock that another process holds: got once it lets go, after the thaw.
 * victim: flavours=unfrozen,kill,run-on,twice,tracked */
#include <sys/file.h>

#include "../blocked.h"

static int by_flock(void)
{
        int fd = open("a", O_RDWR | O_CREAT, 0600);
        return flock(fd, LOCK_EX) == 0 ? 3 : 1;
}
static int by_posix(void)
{
        int fd = open("b", O_RDWR | O_CREAT, 0600);
        struct flock l = {.l_type = F_WRLCK, .l_start = 10, .l_len = 5};
        return fcntl(fd, F_SETLKW, &l) == 0 ? 3 : 1;
}
static int by_ofd(void)
{
        int fd = open("c", O_RDWR | O_CREAT, 0600);
        struct flock l = {.l_type = F_WRLCK};
        return fcntl(fd, F_OFD_SETLKW, &l) == 0 ? 3 : 1;
}

int main(void)
{
        int a = open("a", O_RDWR | O_CREAT, 0600), b = open("b", O_RDWR | O_CREAT, 0600),
            c = open("c", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        struct flock l = {.l_type = F_WRLCK}, part = {.l_type = F_WRLCK, .l_start = 12, .l_len = 9};

        CHECK(flock(a, LOCK_EX) == 0 && fcntl(b, F_SETLK, &part) == 0 && fcntl(c, F_OFD_SETLK, &l) == 0);
        /* The children share the descriptions of a and c but open the files anew. */
        pid_t k1 = block_process(SYS_flock, by_flock), k2 = block_process(SYS_fcntl, by_posix),
              k3 = block_process(SYS_fcntl, by_ofd);
        victim_ready();
        victim_wait();
        usleep(20000);
        CHECK(waitpid(k1, NULL, WNOHANG) == 0 && waitpid(k2, NULL, WNOHANG) == 0 && waitpid(k3, NULL, WNOHANG) == 0);
        CHECK(flock(a, LOCK_UN) == 0);
        CHECK(status_of(k1) == 3);
        part.l_type = F_UNLCK;
        CHECK(fcntl(b, F_SETLK, &part) == 0);
        CHECK(status_of(k2) == 3);
        l.l_type = F_UNLCK;
        CHECK(fcntl(c, F_OFD_SETLK, &l) == 0);
        CHECK(status_of(k3) == 3);
        victim_pass();
}
