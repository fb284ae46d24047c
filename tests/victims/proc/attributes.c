/* umask, cwd (also a removed one in a child), dumpable, oom_score_adj, login uid (where one may be set), name and command line, environment, executable.
 * victim: owner_again=may not be traced */
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../victim.h"

static char *slurp(const char *path, char *buf, size_t size)
{
        int fd = open(path, O_RDONLY);
        ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

        if (fd >= 0)
                close(fd);
        for (ssize_t i = 0; i < n; i++)
                if (buf[i] == '\0')
                        buf[i] = '|';
        buf[n > 0 ? n : 0] = '\0';
        return buf;
}

int main(int argc, char **argv)
{
        static char cmd[4096], cmd2[4096], env[8192], env2[8192], exe[512], exe2[512], cwd[512], cwd2[512], oom[32],
                login[32];
        int st;

        umask(0137);
        CHECK(mkdir("sub", 0755) == 0 || errno == EEXIST);
        CHECK(chdir("sub") == 0 && getcwd(cwd, sizeof(cwd)));
        CHECK(prctl(PR_SET_NAME, "odd) name\n(") == 0);
        int fd = open("/proc/self/oom_score_adj", O_WRONLY);
        CHECK(fd >= 0 && write(fd, "321", 3) == 3);
        close(fd);
        fd = open("/proc/self/loginuid", O_WRONLY);
        (void)!write(fd, "3", 1);
        close(fd);
        slurp("/proc/self/loginuid", login, sizeof(login));
        strncpy(argv[0], "renamed", strlen(argv[0])); /* as setproctitle does */
        slurp("/proc/self/cmdline", cmd, sizeof(cmd));
        slurp("/proc/self/environ", env, sizeof(env));
        CHECK(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
        pid_t pid = fork();
        if (pid == 0) { /* not dumpable, as a program that changed its ids is */
                prctl(PR_SET_DUMPABLE, 0);
                while (access("../go", F_OK) != 0)
                        usleep(2000);
                _exit(prctl(PR_GET_DUMPABLE) == 0 ? 0 : 1);
        }
        victim_ready();
        while (access("../go", F_OK) != 0)
                usleep(2000);
        CHECK(umask(0) == 0137);
        CHECK(getcwd(cwd2, sizeof(cwd2)) && strcmp(cwd, cwd2) == 0);
        char name[32] = {0};
        CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "odd) name\n(") == 0);
        CHECK(atoi(slurp("/proc/self/oom_score_adj", oom, sizeof(oom))) == 321);
        CHECK(strcmp(slurp("/proc/self/loginuid", oom, sizeof(oom)), login) == 0);
        CHECK(strcmp(slurp("/proc/self/cmdline", cmd2, sizeof(cmd2)), cmd) == 0);
        CHECK(strcmp(slurp("/proc/self/environ", env2, sizeof(env2)), env) == 0);
        CHECK(readlink("/proc/self/exe", exe2, sizeof(exe2) - 1) > 0 && strcmp(exe, exe2) == 0);
        CHECK(prctl(PR_GET_DUMPABLE) == 1);
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        victim_pass();
}
