/* Shared file mappings between two processes; what is written after the thaw is in the file and in both.
 * In flavour fork both copies would share the file.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include "../mem.h"

int main(void)
{
        int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600), st;

        CHECK(fd >= 0 && ftruncate(fd, 8 * PAGE) == 0);
        char *m = mmap(NULL, 8 * PAGE, RW, MAP_SHARED, fd, 0),
             *ro = mmap(NULL, 4 * PAGE, PROT_READ, MAP_SHARED, fd, 4 * PAGE);
        CHECK(m != MAP_FAILED && ro != MAP_FAILED);
        fill(m, 8 * PAGE, 5);
        volatile int *word = (int *)m;
        word[0] = 0;
        pid_t pid = fork();
        if (pid == 0) {
                while (word[0] != 7)
                        usleep(1000);
                _exit(differs(m + 6 * PAGE, 2 * PAGE, 77) < 0 ? 0 : 1);
        }
        victim_ready();
        victim_wait();
        fill(m + 6 * PAGE, 2 * PAGE, 77);
        CHECK(memcmp(ro + 2 * PAGE, m + 6 * PAGE, 2 * PAGE) == 0);
        word[0] = 7;
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        static char back[2 * PAGE];
        CHECK(pread(fd, back, sizeof(back), 6 * PAGE) == (ssize_t)sizeof(back) && differs(back, sizeof(back), 77) < 0);
        CHECK(msync(m, 8 * PAGE, MS_SYNC) == 0);
        victim_pass();
}
