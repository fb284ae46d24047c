/* A tree of three levels and 40 processes: pids, parents and who waits for whom are as before. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "../victim.h"

struct shared {
        volatile int here, go;
};

static int node(struct shared *s, int level)
{
        pid_t kid[3], me = getpid(), parent = getppid();
        int status;

        for (int i = 0; level < 3 && i < 3; i++) {
                kid[i] = fork();
                if (kid[i] == 0)
                        _exit(node(s, level + 1));
        }
        __atomic_add_fetch(&s->here, 1, __ATOMIC_SEQ_CST);
        while (!s->go)
                usleep(3000);
        if (getpid() != me || getppid() != parent)
                return 1;
        for (int i = 0; level < 3 && i < 3; i++)
                if (waitpid(kid[i], &status, 0) != kid[i] || status != 0)
                        return 2;
        return waitpid(-1, &status, 0) == -1 && errno == ECHILD ? 0 : 3;
}

int main(void)
{
        struct shared *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int status;
        pid_t pid = fork();

        if (pid == 0)
                _exit(node(s, 0));
        while (s->here < 40)
                usleep(1000);
        victim_ready();
        victim_wait();
        s->go = 1;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        victim_pass();
}
