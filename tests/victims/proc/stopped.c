/* Stopped processes: reported and unreported stops, a stopped process of threads, one with a signal that it is to handle only when it
 * goes on.  Their parent is not told again. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../victim.h"

static void *spin(void *arg)
{
        for (;;)
                usleep(1000);
        return arg;
}

static pid_t start(int threads)
{
        pid_t pid = fork();

        if (pid == 0) {
                pthread_t t;
                for (int i = 0; i < threads; i++)
                        pthread_create(&t, NULL, spin, NULL);
                for (;;)
                        usleep(1000);
        }
        usleep(20000);
        return pid;
}

static volatile int *handled, told;

static void on_usr1(int sig)
{
        *handled = sig;
}

static void on_child(int sig)
{
        told += sig == SIGCHLD;
}

/* Returns when the parent has been told. */
static void stop(pid_t pid, int sig)
{
        int before = told;

        kill(pid, sig);
        while (told == before)
                usleep(500);
}

static char state(pid_t pid)
{
        char path[64], line[256] = {0};

        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
        FILE *f = fopen(path, "r");
        if (!f || !fgets(line, sizeof(line), f))
                return '?';
        fclose(f);
        return strrchr(line, ')')[2];
}

int main(void)
{
        handled = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(handled != MAP_FAILED);
        signal(SIGUSR1, on_usr1);
        pid_t seen = start(0), unseen = start(0), many = start(3), tstp = start(0);
        int st;

        signal(SIGCHLD, on_child);
        stop(seen, SIGSTOP);
        stop(unseen, SIGSTOP);
        stop(many, SIGSTOP);
        setpgid(tstp, tstp); /* SIGTSTP is ignored in an orphaned group */
        stop(tstp, SIGTSTP);
        told = 0;
        CHECK(waitpid(seen, &st, WUNTRACED) == seen && WIFSTOPPED(st));
        CHECK(waitpid(many, &st, WUNTRACED) == many);
        CHECK(waitpid(tstp, &st, WUNTRACED) == tstp);
        kill(seen, SIGUSR1);
        victim_ready();
        victim_wait();
        CHECK(told == 0 && *handled == 0);
        CHECK(state(seen) == 'T' && state(unseen) == 'T' && state(many) == 'T' && state(tstp) == 'T');
        CHECK(waitpid(unseen, &st, WUNTRACED | WNOHANG) == unseen && WIFSTOPPED(st) && WSTOPSIG(st) == SIGSTOP);
        CHECK(waitpid(seen, &st, WUNTRACED | WNOHANG) == 0);
        CHECK(kill(many, SIGCONT) == 0 && waitpid(many, &st, WCONTINUED) == many && WIFCONTINUED(st));
        CHECK(kill(seen, SIGCONT) == 0);
        for (int i = 0; i < 3000 && !*handled; i++)
                usleep(1000);
        CHECK(state(seen) != 'T' && state(many) != 'T' && *handled == SIGUSR1 && told > 0);
        pid_t all[] = {seen, unseen, many, tstp};
        for (int i = 0; i < 4; i++) {
                kill(all[i], SIGKILL);
                CHECK(waitpid(all[i], &st, 0) == all[i] && WTERMSIG(st) == SIGKILL);
        }
        victim_pass();
}
