/* Sessions and groups: several groups in one session, a group whose leader is gone, a session whose leader is gone. */
#include <sys/mman.h>
#include <sys/wait.h>

#include "../victim.h"

struct row {
        volatile pid_t pid, pgid, sid;
        volatile int done, ok;
};

static void stay(struct row *r, volatile int *go)
{
        r->pgid = getpgid(0);
        r->sid = getsid(0);
        r->pid = getpid();
        while (!*go)
                usleep(2000);
        r->ok = getpgid(0) == r->pgid && getsid(0) == r->sid && getpid() == r->pid;
        r->done = 1;
        _exit(0);
}

int main(void)
{
        struct row *row = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        volatile int *go = (int *)((char *)row + 4000);
        int status;

        pid_t leader = fork();
        if (leader == 0) { /* ends, and leaves two groups of its session behind */
                setsid();
                if (fork() == 0)
                        stay(&row[0], go);
                pid_t g = fork();
                if (g == 0) { /* leader of a group, ends too */
                        setpgid(0, 0);
                        if (fork() == 0)
                                stay(&row[1], go);
                        while (!row[1].pid)
                                usleep(500);
                        _exit(0);
                }
                waitpid(g, NULL, 0);
                while (!row[0].pid)
                        usleep(500);
                _exit(0);
        }
        CHECK(waitpid(leader, &status, 0) == leader);
        pid_t a = fork();
        if (a == 0) {
                setpgid(0, 0);
                stay(&row[2], go);
        }
        while (!row[2].pid)
                usleep(500);
        pid_t b = fork();
        if (b == 0) { /* joins the group of its sibling */
                if (setpgid(0, a) != 0)
                        _exit(1);
                stay(&row[3], go);
        }
        while (!row[3].pid)
                usleep(500);
        CHECK(row[1].pgid != row[1].pid && row[1].sid == leader && row[0].pgid == leader && row[3].pgid == a);
        victim_ready();
        victim_wait();
        CHECK(kill(-a, 0) == 0 && getpgid(b) == a && getsid(row[1].pid) == leader);
        *go = 1;
        for (int i = 0; i < 4; i++) {
                for (int k = 0; k < 3000 && !row[i].done; k++)
                        usleep(1000);
                if (!row[i].ok)
                        victim_fail("process %d has another session or group", i);
        }
        CHECK(waitpid(a, &status, 0) == a && waitpid(b, &status, 0) == b);
        victim_pass();
}
