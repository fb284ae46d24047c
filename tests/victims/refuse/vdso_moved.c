/* A vdso that is elsewhere than its data, which works no more: no thaw could map them so.
 * victim: refuse=a part of its vdso */
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                void *vdso = (void *)getauxval(AT_SYSINFO_EHDR);
                char *there = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (mremap(vdso, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, there + 65536) == MAP_FAILED &&
                    mremap(vdso, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, there + 65536) == MAP_FAILED)
                        _exit(1);
                victim_wait();
                _exit(memcmp(there + 65536, "\177ELF", 4) == 0 ? 0 : 2);
        }
        usleep(50000);
        CHECK(waitpid(pid, &status, WNOHANG) == 0);
        victim_ready();
        victim_wait();
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        victim_pass();
}
