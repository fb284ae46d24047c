/* SIGTRAPs that are pending, which the engine's own traps must not be taken for: of the process, of one of its threads, of a stopped one
 * that does not block it, of one with a seccomp filter; their handler is not called before, and stays.
 * victim: owner_refuse=seccomp filter */
#include <pthread.h>
#include <sys/wait.h>

#include "../forbid.h"

static volatile int handled, ready;

static void handle(int sig)
{
        handled += sig;
}

static void take(int code, int value) /* the value, or who sent it */
{
        struct timespec none = {0, 0};
        siginfo_t info;
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGTRAP);
        CHECK(sigtimedwait(&set, &info, &none) == SIGTRAP && info.si_code == code &&
              (code == SI_USER ? info.si_pid : info.si_value.sival_int) == value);
}

static void *have_own(void *arg)
{
        siginfo_t info = {.si_signo = SIGTRAP, .si_code = SI_QUEUE, .si_value.sival_int = 77};

        CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGTRAP, &info) == 0);
        ready++;
        victim_wait();
        take(SI_QUEUE, 77);
        return arg;
}

static void confine(void)
{
        CHECK(kill(getpid(), SIGTRAP) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(forbid(SYS_getpriority, 77, 0) == 0);
        victim_wait();
        CHECK(fails_with(SYS_getpriority, 77));
        take(SI_USER, getpid());
        _exit(0);
}

/* It is stopped when it gets the signal, which it handles as soon as it goes on. */
static void be_stopped(sigset_t *set)
{
        sigprocmask(SIG_UNBLOCK, set, NULL);
        kill(getpid(), SIGSTOP);
        for (int i = 0; i < 3000 && !handled; i++)
                usleep(1000);
        _exit(handled == SIGTRAP ? 0 : 1);
}

static int is_stopped(pid_t pid)
{
        siginfo_t info = {0};

        return waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

int main(void)
{
        pid_t child[2];
        struct sigaction action;
        sigset_t set;
        pthread_t t;
        int status;

        sigemptyset(&set);
        sigaddset(&set, SIGTRAP);
        CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
        signal(SIGTRAP, handle);
        if ((child[0] = fork()) == 0)
                be_stopped(&set);
        if ((child[1] = fork()) == 0)
                confine();
        while (!is_stopped(child[0]))
                usleep(1000);
        CHECK(kill(child[0], SIGTRAP) == 0);
        pthread_create(&t, NULL, have_own, NULL);
        CHECK(kill(getpid(), SIGTRAP) == 0);
        while (!ready)
                usleep(1000);
        usleep(20000);
        victim_ready();
        victim_wait();
        pthread_join(t, NULL);
        take(SI_USER, getpid());
        CHECK(sigaction(SIGTRAP, NULL, &action) == 0 && action.sa_handler == handle && handled == 0);
        CHECK(kill(child[0], SIGCONT) == 0);
        for (int i = 0; i < 2; i++)
                CHECK(waitpid(child[i], &status, 0) == child[i] && status == 0);
        victim_pass();
}
