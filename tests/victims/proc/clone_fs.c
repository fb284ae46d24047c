/* Working folder, root and umask that a process shares with its child and grandchild (CLONE_FS), as they share them after the thaw: what
 * one changes, all have.  A second child has its own. */
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

static volatile int *step;

static void await(int number)
{
        for (int i = 0; i < 5000 && *step < number; i++)
                usleep(1000);
        CHECK(*step == number);
}

static void check_folder(const char *name)
{
        char cwd[512];

        CHECK(getcwd(cwd, sizeof(cwd)) && strcmp(strrchr(cwd, '/'), name) == 0);
}

static pid_t clone_sharing(void)
{
        return (pid_t)syscall(SYS_clone, CLONE_FS | SIGCHLD, 0, 0, 0, 0);
}

static void grandchild(void)
{
        setsid();
        await(1);
        check_folder("/one");
        CHECK(umask(022) == 0123 && chdir("../two") == 0);
        *step = 2;
        _exit(0);
}

static void child(void)
{
        int status;
        pid_t pid = clone_sharing();

        if (pid == 0)
                grandchild();
        await(2);
        check_folder("/two");
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        *step = 3;
        _exit(0);
}

int main(void)
{
        int status;

        step = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK((mkdir("one", 0755) == 0 || errno == EEXIST) && (mkdir("two", 0755) == 0 || errno == EEXIST));
        umask(0125);
        pid_t alone = fork();
        if (alone == 0) {
                await(3);
                _exit(umask(0) == 0125 && access("one", F_OK) == 0 ? 0 : 1);
        }
        pid_t pid = clone_sharing();
        CHECK(alone > 0 && pid >= 0);
        if (pid == 0)
                child();
        usleep(20000);
        victim_ready();
        victim_wait();
        CHECK(chdir("one") == 0 && umask(0123) == 0125);
        *step = 1;
        await(3);
        check_folder("/two");
        CHECK(umask(0) == 022);
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        CHECK(waitpid(alone, &status, 0) == alone && status == 0);
        victim_pass();
}
