/* A descriptor whose signals go to one thread of another process than the first that has it (F_OWNER_TID).
 * victim: refuse=told of what comes */
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include "../victim.h"

static int ends[2];

static void *own_it(void *unused)
{
        struct f_owner_ex owner = {F_OWNER_TID, gettid()}, now;

        if (fcntl(ends[0], F_SETOWN_EX, &owner) != 0 || write(ends[1], "x", 1) != 1)
                _exit(1);
        victim_wait();
        if (fcntl(ends[0], F_GETOWN_EX, &now) != 0 || now.type != F_OWNER_TID || now.pid != owner.pid)
                _exit(2);
        return unused;
}

int main(void)
{
        int status;
        char byte;

        CHECK(pipe(ends) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                pthread_t t;
                _exit(pthread_create(&t, NULL, own_it, NULL) == 0 && pthread_join(t, NULL) == 0 ? 0 : 3);
        }
        CHECK(read(ends[0], &byte, 1) == 1);
        victim_ready();
        victim_wait();
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        victim_pass();
}
