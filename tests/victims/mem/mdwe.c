/* Memory that may be written never becomes executable (PR_SET_MDWE), in a process and in its child, but not in one whose parent keeps
 * it for itself; what was executable is. */
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../victim.h"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#endif
#define REFUSE_EXEC_GAIN 1
#define NO_INHERIT 2

static int denied(char *page)
{
        return mprotect(page, 4096, PROT_READ | PROT_EXEC) == -1 && errno == EACCES &&
               mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}

/* A process that is denied it itself, or has a child that is. */
static pid_t start(unsigned long flags, char *page, int (*code)(void))
{
        pid_t pid = fork();
        int status;

        if (pid != 0)
                return pid;
        if (flags && prctl(PR_SET_MDWE, flags, 0, 0, 0) != 0)
                _exit(77);
        pid_t child = fork();
        victim_wait();
        if (child == 0)
                _exit(denied(page) == (flags == REFUSE_EXEC_GAIN) && code() == 42 ? 0 : 1);
        int fine = prctl(PR_GET_MDWE, 0, 0, 0, 0) == (int)flags && denied(page) == (flags != 0) && code() == 42;
        _exit(waitpid(child, &status, 0) == child && status == 0 && fine ? 0 : 1);
}

int main(void)
{
        static const unsigned char answer[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov $42, %eax; ret */
        static const unsigned long flags[] = {0, REFUSE_EXEC_GAIN, REFUSE_EXEC_GAIN | NO_INHERIT};
        char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pid_t pids[3];
        int status;

        if (prctl(PR_GET_MDWE, 0, 0, 0, 0) < 0)
                victim_skip("no PR_SET_MDWE");
        memcpy(code, answer, sizeof(answer));
        CHECK(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0);
        page[0] = 1;
        for (int i = 0; i < 3; i++)
                CHECK((pids[i] = start(flags[i], page, (int (*)(void))(void *)code)) > 0);
        usleep(50000);
        victim_ready();
        victim_wait();
        for (int i = 0; i < 3; i++)
                if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
                        victim_fail("process %d ends with %#x", i, (unsigned)status);
        victim_pass();
}
