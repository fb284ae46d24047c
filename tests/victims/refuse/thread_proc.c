/* A file of a single thread in /proc: a thaw makes threads after descriptors.
 * victim: refuse=comm of a single thread */
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "../victim.h"

static volatile pid_t tid;

static void *thread(void *argument)
{
        (void)argument;
        tid = (pid_t)syscall(SYS_gettid);
        for (;;)
                pause();
        return NULL;
}

int main(void)
{
        pthread_t t;

        CHECK(pthread_create(&t, NULL, thread, NULL) == 0);
        while (tid == 0)
                usleep(100);
        char path[64], name[16];
        snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0);
        victim_ready();
        victim_wait();
        CHECK(read(fd, name, sizeof(name)) > 0);
        victim_pass();
}
