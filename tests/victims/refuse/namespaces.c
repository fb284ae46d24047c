/* A process in a network namespace of its own: refused by name, as are those of other kinds; a thaw would put it into its parent's.
 * victim: refuse=has a namespace of its own (net) */
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../victim.h"

static ino_t network(const char *path)
{
        struct stat st;

        CHECK(stat(path, &st) == 0);
        return st.st_ino;
}

int main(void)
{
        int go[2], status;

        CHECK(pipe(go) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                ino_t before = network("/proc/self/ns/net");
                if (unshare(CLONE_NEWNET) != 0)
                        _exit(77);
                ino_t own = network("/proc/self/ns/net");
                (void)!write(go[1], "x", 1);
                victim_wait();
                _exit(own != before && network("/proc/self/ns/net") == own ? 0 : 1);
        }
        close(go[1]);
        if (read(go[0], &status, 1) != 1)
                victim_skip("no network namespaces here");
        victim_ready();
        victim_wait();
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        victim_pass();
}
