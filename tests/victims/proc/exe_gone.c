/* Programs whose file is gone: removed, replaced by another of the same name, renamed. They run on, and are told so in /proc/self/exe.
 * victim: flavours=unfrozen,kill,twice,tracked,owner */
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../victim.h"

static void copy_self(const char *to)
{
        struct stat st;
        int in = open("/proc/self/exe", O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);

        CHECK(in >= 0 && out >= 0 && fstat(in, &st) == 0 && sendfile(out, in, NULL, (size_t)st.st_size) == st.st_size);
        close(in);
        close(out);
}

static int be_program(void)
{
        char link[512] = {0}, first[4] = {0};
        struct stat st;

        (void)!write(4, "x", 1);
        close(4);
        victim_wait();
        int fd = open("/proc/self/exe", O_RDONLY);
        if (readlink("/proc/self/exe", link, sizeof(link) - 1) < 0 || fd < 0 || fstat(fd, &st) != 0 ||
            read(fd, first, 4) != 4 || memcmp(first, "\177ELF", 4) != 0)
                return 1;
        return strstr(link, " (deleted)") ? 10 : strstr(link, "/renamed") ? 11 : 12;
}

static pid_t start(const char *program)
{
        int p[2];
        char byte;

        copy_self(program);
        CHECK(pipe(p) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                dup2(p[1], 4);
                close(p[0]);
                if (p[1] != 4)
                        close(p[1]);
                execl(program, program, "child", NULL);
                _exit(1);
        }
        close(p[1]);
        CHECK(read(p[0], &byte, 1) == 1);
        close(p[0]);
        return pid;
}

int main(int argc, char **argv)
{
        static const int wanted[] = {10, 10, 11};
        pid_t pids[3];
        int status;

        if (argc > 1)
                _exit(be_program());
        pids[0] = start("./removed");
        pids[1] = start("./replaced");
        pids[2] = start("./before");
        CHECK(unlink("removed") == 0 && unlink("replaced") == 0 && rename("before", "renamed") == 0);
        CHECK(close(open("replaced", O_WRONLY | O_CREAT, 0755)) == 0);
        victim_ready();
        victim_wait();
        for (int i = 0; i < 3; i++) {
                CHECK(waitpid(pids[i], &status, 0) == pids[i]);
                if (!WIFEXITED(status) || WEXITSTATUS(status) != wanted[i])
                        victim_fail("program %d ends with %#x", i, (unsigned)status);
        }
        victim_pass();
}
