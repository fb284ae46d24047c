/* Uids and gids (real, effective, saved, file system), supplementary groups; checked by what may be opened, too.
 * victim: owner_again=may not be traced */
#include <fcntl.h>
#include <grp.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../victim.h"

int main(void)
{
        gid_t groups[] = {7, 42, 1000, 4000}, now[16];
        int st;

        int fd = open("secret", O_CREAT | O_WRONLY, 0600);
        CHECK(fd >= 0);
        close(fd);
        pid_t pid = fork();
        if (pid == 0) {
                uid_t r, e, s;
                gid_t rg, eg, sg;
                if (setgroups(4, groups) != 0 || setresgid(10, 20, 30) != 0 || setresuid(11, 22, 33) != 0)
                        _exit(1);
                setfsuid(33);
                victim_wait();
                getresuid(&r, &e, &s);
                getresgid(&rg, &eg, &sg);
                if (r != 11 || e != 22 || s != 33 || rg != 10 || eg != 20 || sg != 30)
                        _exit(2);
                if (setfsuid((uid_t)-1) != 33)
                        _exit(3);
                if (getgroups(16, now) != 4 || memcmp(groups, now, sizeof(groups)) != 0)
                        _exit(4);
                if (open("secret", O_RDONLY) >= 0)
                        _exit(5);
                if (seteuid(33) != 0 || setuid(0) == 0)
                        _exit(6);
                _exit(0);
        }
        usleep(30000);
        CHECK(waitpid(pid, &st, WNOHANG) == 0);
        victim_ready();
        victim_wait();
        CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st));
        if (WEXITSTATUS(st))
                victim_fail("the child's check %d", WEXITSTATUS(st));
        victim_pass();
}
