/* Jobs of a terminal that were stopped for using it from the background: by reading (SIGTTIN), by writing where that is not allowed
 * (SIGTTOU), and one on the terminal opened as /dev/tty; each goes on when it comes to the foreground. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <termios.h>

#include "../victim.h"

static int slave;

static pid_t start(int (*job)(void))
{
        pid_t pid = fork();

        if (pid == 0) {
                setpgid(0, 0);
                signal(SIGTTOU, SIG_DFL);
                _exit(job());
        }
        setpgid(pid, pid);
        return pid;
}

static int reading(void)
{
        char line[16];

        return read(slave, line, sizeof(line)) == 5 ? 0 : 1;
}

static int writing(void)
{
        return write(slave, "out", 3) == 3 ? 0 : 1;
}

static int reading_by_name(void)
{
        int tty = open("/dev/tty", O_RDWR);
        char line[16];

        return tty >= 0 && read(tty, line, sizeof(line)) == 5 ? 0 : 1;
}

static int lead(const char *name, int ready)
{
        static const int signals[] = {SIGTTIN, SIGTTOU, SIGTTIN};
        int (*const jobs[])(void) = {reading, writing, reading_by_name};
        struct termios t;
        pid_t pids[3];
        int status;

        setsid();
        signal(SIGTTOU, SIG_IGN);
        slave = open(name, O_RDWR);
        if (slave < 0 || tcgetattr(slave, &t) != 0)
                return 1;
        t.c_lflag |= TOSTOP;
        tcsetattr(slave, TCSANOW, &t);
        for (int i = 0; i < 3; i++) {
                pids[i] = start(jobs[i]);
                if (waitpid(pids[i], &status, WUNTRACED) != pids[i] || !WIFSTOPPED(status) ||
                    WSTOPSIG(status) != signals[i])
                        return 2;
        }
        (void)!write(ready, "x", 1);
        victim_wait();
        if (waitpid(-1, &status, WUNTRACED | WNOHANG) != 0 || tcgetpgrp(slave) != getpid())
                return 3;
        for (int i = 0; i < 3; i++) {
                if (tcsetpgrp(slave, pids[i]) != 0 || kill(-pids[i], SIGCONT) != 0)
                        return 4;
                if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
                        return 5 + i;
        }
        return 0;
}

int main(void)
{
        char name[64], byte;
        int m = posix_openpt(O_RDWR | O_NOCTTY), p[2], status;

        CHECK(m >= 0 && unlockpt(m) == 0 && ptsname_r(m, name, sizeof(name)) == 0 && pipe(p) == 0);
        pid_t pid = fork();
        if (pid == 0)
                _exit(lead(name, p[1]));
        CHECK(read(p[0], &byte, 1) == 1);
        victim_ready();
        victim_wait();
        for (int i = 0; i < 2; i++)
                CHECK(write(m, "line\n", 5) == 5);
        CHECK(waitpid(pid, &status, 0) == pid);
        if (status)
                victim_fail("check %d of the session's leader", WEXITSTATUS(status));
        victim_pass();
}
