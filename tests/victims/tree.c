/* Processes: sessions, groups, a zombie, a stopped one, an orphan of a dead leader, shared descriptors and memory. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "victim.h"

struct shared {
        volatile int ready, go, ok, orphan_ok;
        volatile pid_t orphan, orphan_sid;
};

static void settle(struct shared *s)
{
        __atomic_add_fetch(&s->ready, 1, __ATOMIC_SEQ_CST); /* several do so at once */
        while (!s->go)
                usleep(2000);
}

int main(void)
{
        struct shared *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int p[2], status;

        CHECK(s != MAP_FAILED && pipe(p) == 0);
        pid_t zombie = fork();
        if (zombie == 0)
                _exit(7);
        pid_t killed = fork();
        if (killed == 0) {
                raise(SIGKILL);
        }
        pid_t leader = fork();
        if (leader == 0) {
                setsid();
                pid_t inner = fork();
                if (inner == 0) {
                        pid_t sid = getsid(0);
                        setpgid(0, 0);
                        settle(s);
                        _exit(getsid(0) == sid && getpgrp() == getpid() ? 3 : 4);
                }
                settle(s);
                int st;
                if (waitpid(inner, &st, 0) == inner && WEXITSTATUS(st) == 3 && getsid(0) == getpid())
                        s->ok++;
                _exit(0);
        }
        pid_t stopped = fork();
        if (stopped == 0) {
                raise(SIGSTOP);
                settle(s);
                char c = 'x';
                _exit(write(p[1], &c, 1) == 1 ? 5 : 6);
        }
        pid_t daemon = fork();
        if (daemon == 0) {
                setsid();
                if (fork() == 0) {
                        s->orphan = getpid();
                        s->orphan_sid = getsid(0);
                        usleep(20000);
                        settle(s);
                        s->orphan_ok = getpid() == s->orphan && getsid(0) == s->orphan_sid && getppid() == 1;
                        _exit(0);
                }
                _exit(0);
        }
        CHECK(waitpid(daemon, &status, 0) == daemon);
        CHECK(waitpid(stopped, &status, WUNTRACED) == stopped && WIFSTOPPED(status));
        while (s->ready < 3)
                usleep(1000);
        pid_t pgrp = getpgrp(), sid = getsid(0);
        siginfo_t info;
        CHECK(waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT) == 0);
        CHECK(waitid(P_PID, (id_t)killed, &info, WEXITED | WNOWAIT) == 0);
        victim_ready();
        victim_wait();
        s->go = 1;
        CHECK(getpgrp() == pgrp && getsid(0) == sid);
        CHECK(waitpid(zombie, &status, 0) == zombie && WIFEXITED(status) && WEXITSTATUS(status) == 7);
        CHECK(waitpid(killed, &status, 0) == killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK(waitpid(leader, &status, 0) == leader && status == 0);
        CHECK(s->ok == 1);
        usleep(20000);
        CHECK(waitpid(stopped, &status, WNOHANG) == 0);
        CHECK(kill(stopped, SIGCONT) == 0);
        CHECK(waitpid(stopped, &status, 0) == stopped && WIFEXITED(status) && WEXITSTATUS(status) == 5);
        char c = 0;
        CHECK(read(p[0], &c, 1) == 1 && c == 'x');
        for (int i = 0; i < 500 && !s->orphan_ok; i++)
                usleep(2000);
        CHECK(s->orphan_ok);
        victim_pass();
}
