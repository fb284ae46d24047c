/* Shared memory of which pieces are left: anonymous memory unmapped in the middle and moved, a segment of a size that is no multiple of
 * a page, attached three times with holes, one of them read-only; a name on shared memory; memory that may not be changed (mseal). */
#include "../mem.h"

#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif
#define SYS_mseal_ 462

static int has_line(const void *p, const char *text)
{
        char line[512], start[32];
        FILE *f = fopen("/proc/self/maps", "r");
        int found = 0;

        snprintf(start, sizeof(start), "%lx-", (unsigned long)p);
        while (f && fgets(line, sizeof(line), f))
                found = found || (strncmp(line, start, strlen(start)) == 0 && strstr(line, text));
        fclose(f);
        return found;
}

int main(void)
{
        const size_t odd = 5 * PAGE + 123;
        int status, id = shmget(IPC_PRIVATE, odd, IPC_CREAT | 0600);
        char *m = mmap(NULL, 16 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *target = ANON(4 * PAGE, PROT_NONE);
        char *a = shmat(id, NULL, 0), *b = shmat(id, NULL, SHM_RDONLY), *c = shmat(id, NULL, 0);

        char *fixed = ANON(8 * PAGE, RW); /* before there are holes */
        CHECK(m != MAP_FAILED && id >= 0 && a != (void *)-1 && b != (void *)-1 && c != (void *)-1);
        int named = prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, m, 16 * PAGE, "our own") == 0;
        named = named && has_line(m, "our own");
        fill(m, 16 * PAGE, 1);
        fill(a, 5 * PAGE, 2);
        memset(a + 5 * PAGE, 'z', PAGE);
        CHECK(munmap(m + 4 * PAGE, 2 * PAGE) == 0);
        CHECK(mremap(m + 12 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
        CHECK(munmap(b + PAGE, PAGE) == 0 && munmap(c, 2 * PAGE) == 0 && munmap(c + 4 * PAGE, PAGE) == 0);
        fill(fixed, 8 * PAGE, 3);
        CHECK(mprotect(fixed, 8 * PAGE, PROT_READ) == 0);
        int sealed = syscall(SYS_mseal_, fixed, 8 * PAGE, 0) == 0;
        pid_t pid = fork();
        if (pid == 0) {
                victim_wait();
                for (int i = 0; i < 5000 && *(volatile uint64_t *)(c + 2 * PAGE) != 8; i++)
                        usleep(1000);
                m[0] = 77;
                _exit(*(uint64_t *)(b + 2 * PAGE) == 8 && a[5 * PAGE + 200] == 'z' ? 0 : 1);
        }
        victim_ready();
        victim_wait();
        CHECK(differs(m, 4 * PAGE, 1) < 0 && msync(m + 4 * PAGE, PAGE, MS_ASYNC) == -1 &&
              msync(m + 5 * PAGE, PAGE, MS_ASYNC) == -1);
        for (size_t i = 0; i < 4 * PAGE / 8; i++)
                CHECK(((uint64_t *)target)[i] == 2 * 0x9e3779b97f4a7c15UL + (12 * PAGE / 8 + i) * 0xff51afd7ed558ccdUL);
        CHECK(differs(a, 5 * PAGE, 2) < 0 && a[5 * PAGE] == 'z' && a[6 * PAGE - 1] == 'z');
        CHECK(msync(b + PAGE, PAGE, MS_ASYNC) == -1 && msync(c, 2 * PAGE, MS_ASYNC) == -1 &&
              msync(c + 4 * PAGE, PAGE, MS_ASYNC) == -1);
        CHECK(msync(b, PAGE, MS_ASYNC) == 0 && msync(c + 5 * PAGE, PAGE, MS_ASYNC) == 0 && mprotect(b, PAGE, RW) == -1);
        *(volatile uint64_t *)(c + 2 * PAGE) = 8;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0 && m[0] == 77);
        CHECK(!named || has_line(m, "our own"));
        CHECK_FILLED(fixed, 8 * PAGE, 3);
        CHECK(!sealed || (mprotect(fixed, PAGE, RW) == -1 && errno == EPERM && munmap(fixed + PAGE, PAGE) == -1));
        victim_pass();
}
