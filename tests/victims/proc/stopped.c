/* Stopped processes: reported and unreported stops, a stopped process of threads, one continued but not yet reported. */
#include <pthread.h>
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
        pid_t seen = start(0), unseen = start(0), many = start(3), tstp = start(0);
        int st;

        kill(seen, SIGSTOP);
        kill(unseen, SIGSTOP);
        kill(many, SIGSTOP);
        setpgid(tstp, tstp); /* SIGTSTP is ignored in an orphaned group */
        kill(tstp, SIGTSTP);
        CHECK(waitpid(seen, &st, WUNTRACED) == seen && WIFSTOPPED(st));
        CHECK(waitpid(many, &st, WUNTRACED) == many);
        CHECK(waitpid(tstp, &st, WUNTRACED) == tstp);
        usleep(20000);
        victim_ready();
        victim_wait();
        CHECK(state(seen) == 'T' && state(unseen) == 'T' && state(many) == 'T' && state(tstp) == 'T');
        CHECK(waitpid(unseen, &st, WUNTRACED | WNOHANG) == unseen && WIFSTOPPED(st) && WSTOPSIG(st) == SIGSTOP);
        CHECK(waitpid(seen, &st, WUNTRACED | WNOHANG) == 0);
        CHECK(kill(many, SIGCONT) == 0 && waitpid(many, &st, WCONTINUED) == many && WIFCONTINUED(st));
        CHECK(kill(seen, SIGCONT) == 0);
        usleep(20000);
        CHECK(state(seen) != 'T' && state(many) != 'T');
        pid_t all[] = {seen, unseen, many, tstp};
        for (int i = 0; i < 4; i++) {
                kill(all[i], SIGKILL);
                CHECK(waitpid(all[i], &st, 0) == all[i] && WTERMSIG(st) == SIGKILL);
        }
        victim_pass();
}
