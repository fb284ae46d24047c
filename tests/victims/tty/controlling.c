/* A session with a controlling terminal: foreground group, ^C and window changes reach it, /dev/tty, background SIGTTIN. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <termios.h>

#include "../victim.h"

static volatile int *shared;
static volatile int intr, winch;

static void on(int sig)
{
        if (sig == SIGINT)
                intr = 1;
        else
                winch = 1;
}

static int leader(const char *name)
{
        setsid();
        int s = open(name, O_RDWR), st;
        if (s < 0)
                return 1;
        pid_t fg = fork();
        if (fg == 0) {
                setpgid(0, 0);
                signal(SIGINT, on);
                signal(SIGWINCH, on);
                shared[0] = 1;
                while (!shared[2])
                        usleep(1000);
                for (int i = 0; i < 3000 && (!intr || !winch); i++)
                        usleep(1000);
                if (!intr || !winch)
                        _exit(intr ? 2 : 3);
                _exit(tcgetpgrp(s) == getpid() && tcgetsid(s) == getppid() ? 0 : 4);
        }
        setpgid(fg, fg);
        signal(SIGTTOU, SIG_IGN);
        if (tcsetpgrp(s, fg) != 0)
                return 5;
        pid_t bg = fork();
        if (bg == 0) {
                char c;
                setpgid(0, 0);
                while (!shared[2])
                        usleep(1000);
                usleep(20000);
                _exit(read(s, &c, 1) < 0 ? 1 : 2); /* stopped by SIGTTIN */
        }
        setpgid(bg, bg);
        while (!shared[0])
                usleep(1000);
        shared[1] = 1;
        while (!shared[2])
                usleep(1000);
        int tty = open("/dev/tty", O_RDWR);
        if (tty < 0 || tcgetpgrp(tty) != fg)
                return 6;
        if (waitpid(bg, &st, WUNTRACED) != bg || !WIFSTOPPED(st) || WSTOPSIG(st) != SIGTTIN)
                return 7;
        kill(bg, SIGKILL);
        waitpid(bg, &st, 0);
        shared[3] = 1;
        if (waitpid(fg, &st, 0) != fg || !WIFEXITED(st))
                return 8;
        return WEXITSTATUS(st) ? 10 + WEXITSTATUS(st) : 0;
}

int main(void)
{
        char name[64];
        int m = posix_openpt(O_RDWR | O_NOCTTY), st;
        struct winsize w = {10, 20, 0, 0};

        shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(m >= 0 && grantpt(m) == 0 && unlockpt(m) == 0 && ptsname_r(m, name, sizeof(name)) == 0);
        pid_t pid = fork();
        if (pid == 0)
                _exit(leader(name));
        while (!shared[1])
                usleep(1000);
        victim_ready();
        victim_wait();
        shared[2] = 1;
        while (!shared[3] && waitpid(pid, &st, WNOHANG) == 0)
                usleep(1000);
        if (shared[3]) {
                CHECK(write(m, "\3", 1) == 1 && ioctl(m, TIOCSWINSZ, &w) == 0);
                CHECK(waitpid(pid, &st, 0) == pid);
        }
        if (st)
                victim_fail("the leader's check %d", WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st));
        victim_pass();
}
