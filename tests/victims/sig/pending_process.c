/* Signals pending for the process: standard ones once, real-time ones queued in order, siginfo of kill and sigqueue. */
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        sigset_t set;
        siginfo_t info;
        struct timespec zero = {0};
        union sigval v;

        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigaddset(&set, SIGUSR2);
        sigaddset(&set, SIGRTMIN + 3);
        sigaddset(&set, SIGCHLD);
        sigprocmask(SIG_BLOCK, &set, NULL);
        pid_t pid = fork();
        if (pid == 0) {
                kill(getppid(), SIGUSR1);
                _exit(6);
        }
        CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
        CHECK(kill(getpid(), SIGUSR1) == 0); /* lost: it is pending already */
        for (int i = 0; i < 20; i++) {
                v.sival_int = i * 7;
                CHECK(sigqueue(getpid(), SIGRTMIN + 3, v) == 0);
        }
        v.sival_ptr = &zero;
        CHECK(sigqueue(getpid(), SIGUSR2, v) == 0);
        victim_ready();
        victim_wait();
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, SIGUSR1);
        CHECK(sigtimedwait(&one, &info, &zero) == SIGUSR1 && info.si_code == SI_USER && info.si_pid == pid &&
              info.si_uid == getuid());
        CHECK(sigtimedwait(&one, &info, &zero) == -1);
        CHECK(sigtimedwait(&set, &info, &zero) == SIGUSR2 && info.si_code == SI_QUEUE && info.si_ptr == &zero &&
              info.si_pid == getpid());
        sigemptyset(&one);
        sigaddset(&one, SIGCHLD);
        CHECK(sigtimedwait(&one, &info, &zero) == SIGCHLD && info.si_pid == pid && info.si_code == CLD_EXITED &&
              info.si_status == 6);
        for (int i = 0; i < 20; i++)
                CHECK(sigtimedwait(&set, &info, &zero) == SIGRTMIN + 3 && info.si_int == i * 7 &&
                      info.si_code == SI_QUEUE);
        CHECK(sigtimedwait(&set, &info, &zero) == -1 && errno == EAGAIN);
        victim_pass();
}
