/* A memfd that nobody may map writable any more (F_SEAL_FUTURE_WRITE), while a mapping of before may still write, and readers that were
 * given a read-only descriptor see it; and its seals are kept. */
#include "../mem.h"

#include <linux/memfd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

int main(void)
{
        const int seals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
        char path[64];
        int status, fd = memfd_create("sealed", MFD_ALLOW_SEALING);

        CHECK(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0);
        char *writer = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, fd, 0);
        CHECK(writer != MAP_FAILED);
        fill(writer, 4 * PAGE, 1);
        CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int ro = open(path, O_RDONLY);
        char *reader = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, ro, PAGE);
        CHECK(ro >= 0 && reader != MAP_FAILED);
        pid_t pid = fork();
        if (pid == 0) {
                munmap(writer, 4 * PAGE);
                victim_wait();
                for (int i = 0; i < 5000 && differs(reader, PAGE, 7) >= 0; i++)
                        usleep(1000);
                _exit(differs(reader, PAGE, 7) < 0 && mprotect(reader, PAGE, RW) == -1 ? 0 : 1);
        }
        victim_ready();
        victim_wait();
        CHECK_FILLED(writer, 4 * PAGE, 1);
        CHECK(fcntl(fd, F_GET_SEALS) == seals);
        fill(writer + PAGE, PAGE, 7);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
        CHECK(write(fd, "x", 1) == -1 && errno == EPERM);
        CHECK(mprotect(reader, PAGE, RW) == -1 && errno == EACCES);
        victim_pass();
}
