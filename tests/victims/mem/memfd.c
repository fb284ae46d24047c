/* memfds: contents, offset, size, name, all seals, mapped shared in two processes and private in one. */
#include "../mem.h"

int main(void)
{
        static char block[8 * PAGE];
        int fd = memfd_create("shared one", MFD_ALLOW_SEALING | MFD_CLOEXEC),
            sealed = memfd_create("sealed", MFD_ALLOW_SEALING), plain = memfd_create("plain", 0),
            grow = memfd_create("grow", MFD_ALLOW_SEALING), st;

        fill(block, sizeof(block), 1);
        CHECK(write(fd, block, sizeof(block)) == (ssize_t)sizeof(block) &&
              write(sealed, block, sizeof(block)) == (ssize_t)sizeof(block));
        CHECK(write(plain, block, 100) == 100 && lseek(plain, 50, SEEK_SET) == 50);
        CHECK(ftruncate(grow, 1 << 20) == 0 && pwrite(grow, "x", 1, 500000) == 1); /* sparse */
        char *m = mmap(NULL, 8 * PAGE, RW, MAP_SHARED, fd, 0), *priv = mmap(NULL, 8 * PAGE, RW, MAP_PRIVATE, fd, 0);
        CHECK(m != MAP_FAILED && priv != MAP_FAILED);
        fill(priv, PAGE, 9);
        CHECK(fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
        CHECK(fcntl(grow, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        char *ro = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, sealed, 0);
        CHECK(ro != MAP_FAILED);
        pid_t pid = fork();
        if (pid == 0) {
                victim_wait();
                for (int i = 0; i < 5000 && *(volatile uint64_t *)m != 0x77; i++)
                        usleep(1000);
                *(volatile uint64_t *)(m + PAGE) = 0x88;
                _exit(*(uint64_t *)m == 0x77 ? 0 : 1);
        }
        victim_ready();
        victim_wait();
        CHECK_FILLED(priv, PAGE, 9);
        CHECK(memcmp(m, block, sizeof(block)) == 0 && memcmp(priv + PAGE, block + PAGE, 7 * PAGE) == 0 &&
              memcmp(ro, block, PAGE) == 0);
        CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)sizeof(block) && lseek(plain, 0, SEEK_CUR) == 50);
        CHECK(fcntl(sealed, F_GET_SEALS) == (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
        CHECK(write(sealed, "x", 1) == -1 && errno == EPERM && fcntl(plain, F_GET_SEALS) == F_SEAL_SEAL &&
              fcntl(grow, F_GET_SEALS) == F_SEAL_SHRINK);
        CHECK(lseek(grow, 0, SEEK_END) == 1 << 20);
        char c = 0, link[64] = {0}, path[32];
        CHECK(pread(grow, &c, 1, 500000) == 1 && c == 'x' && pread(grow, &c, 1, 499999) == 1 && c == 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        CHECK(readlink(path, link, 63) > 0 && strncmp(link, "/memfd:shared one", 17) == 0);
        *(volatile uint64_t *)m = 0x77;
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        uint64_t w;
        CHECK(pread(fd, &w, 8, PAGE) == 8 && w == 0x88);
        victim_pass();
}
