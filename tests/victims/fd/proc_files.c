/* Descriptors on /proc: of oneself, of the system, of another process, a folder; and /proc/self/ns. */
#include <fcntl.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        char buf[512] = {0};
        int st;
        pid_t kid = fork();

        if (kid == 0) {
                victim_wait();
                usleep(100000);
                _exit(0);
        }
        char path[64];
        snprintf(path, sizeof(path), "/proc/%d/stat", kid);
        int self = open("/proc/self/status", O_RDONLY), cpu = open("/proc/meminfo", O_RDONLY),
            dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY), other = open(path, O_RDONLY);
        CHECK(self >= 0 && cpu >= 0 && dir >= 0 && other >= 0 && read(cpu, buf, 10) == 10);
        victim_ready();
        victim_wait();
        CHECK(read(self, buf, 500) > 100 && strncmp(buf, "Name:", 5) == 0);
        CHECK(read(cpu, buf, 100) > 0 && lseek(cpu, 0, SEEK_SET) == 0 && read(cpu, buf, 9) == 9 &&
              memcmp(buf, "MemTotal:", 9) == 0);
        CHECK(faccessat(dir, "0", F_OK, 0) == 0);
        CHECK(read(other, buf, 100) > 0 && atoi(buf) == kid);
        CHECK(waitpid(kid, &st, 0) == kid);
        victim_pass();
}
