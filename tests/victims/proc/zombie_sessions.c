/* Leaders of sessions and groups that have ended and are not waited for yet, while members of theirs live on: a session's, a group's,
 * and a zombie in the group of a leader that is gone. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "../victim.h"

static volatile struct {
        pid_t pid, pgid, sid;
        int ok;
} * row;

static void stay(int i)
{
        row[i].pgid = getpgid(0);
        row[i].sid = getsid(0);
        row[i].pid = getpid();
        victim_wait();
        row[i].ok = getpgid(0) == row[i].pgid && getsid(0) == row[i].sid ? 1 : -1;
        _exit(0);
}

static pid_t start_member(int i)
{
        pid_t pid = fork();

        if (pid == 0)
                stay(i);
        while (!row[i].pid)
                usleep(500);
        return pid;
}

/* A zombie that leaves a member behind, as a daemon's launcher does that nobody waits for. */
static pid_t start_leader(int i, int (*lead)(void))
{
        siginfo_t info;
        pid_t pid = fork();

        if (pid == 0) {
                lead();
                start_member(i);
                _exit(7);
        }
        CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
        return pid;
}

static int own_session(void)
{
        return setsid();
}

static int own_group(void)
{
        return setpgid(0, 0);
}

int main(void)
{
        int status;
        siginfo_t info;

        row = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pid_t session = start_leader(0, own_session), group = start_leader(1, own_group);
        pid_t first = fork(); /* leads a group that two zombies are left of */
        if (first == 0) {
                setpgid(0, 0);
                pause();
        }
        setpgid(first, first);
        pid_t left = fork();
        if (left == 0) {
                setpgid(0, first);
                _exit(9);
        }
        CHECK(waitid(P_PID, (id_t)left, &info, WEXITED | WNOWAIT) == 0);
        CHECK(kill(first, SIGKILL) == 0 && waitpid(first, &status, 0) == first);
        CHECK(row[0].sid == session && row[1].pgid == group && getpgid(left) == first);
        victim_ready();
        victim_wait();
        for (int i = 0; i < 2; i++) {
                for (int k = 0; k < 5000 && !row[i].ok; k++)
                        usleep(1000);
                if (row[i].ok != 1)
                        victim_fail("the member %d has another group or session", i);
        }
        CHECK(getsid(session) == session && getpgid(group) == group);
        if (getpgid(left) != first)
                victim_fail("the zombie's group is %d", getpgid(left));
        CHECK(waitpid(-first, &status, 0) == left && WEXITSTATUS(status) == 9);
        CHECK(waitpid(session, &status, 0) == session && WEXITSTATUS(status) == 7);
        CHECK(waitpid(group, &status, 0) == group && WEXITSTATUS(status) == 7);
        victim_pass();
}
