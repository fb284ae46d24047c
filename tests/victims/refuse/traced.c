/* A process that another one traces is refused by name; the tracer goes on tracing.
 * victim: refuse=trace */
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        int st;
        pid_t pid = fork();

        if (pid == 0) {
                ptrace(PTRACE_TRACEME, 0, NULL, NULL);
                raise(SIGSTOP);
                _exit(9);
        }
        CHECK(waitpid(pid, &st, 0) == pid && WIFSTOPPED(st));
        victim_ready();
        victim_wait();
        errno = 0;
        CHECK(ptrace(PTRACE_PEEKUSER, pid, NULL, NULL) != -1 || errno == 0);
        CHECK(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
        CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 9);
        victim_pass();
}
