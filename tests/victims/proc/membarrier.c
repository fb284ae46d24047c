/* What a process has registered for with membarrier works without registering again; a child that has not is refused still. */
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

static int membarrier(int command)
{
        return (int)syscall(SYS_membarrier, command, 0, 0);
}

static void *idle(void *unused)
{
        victim_wait();
        return unused;
}

int main(void)
{
        static const int pairs[][2] = {
                {MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, MEMBARRIER_CMD_PRIVATE_EXPEDITED},
                {MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE},
                {MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ},
                {MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0},
        };
        const int get = 1 << 9; /* MEMBARRIER_CMD_GET_REGISTRATIONS */
        int offered = membarrier(MEMBARRIER_CMD_QUERY), status, registered;
        pthread_t t;

        if (offered < 0 || !(offered & get))
                victim_skip("no membarrier that tells of registrations");
        pid_t plain = fork();
        if (plain == 0) {
                victim_wait();
                _exit(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == -1 && errno == EPERM ? 0 : 1);
        }
        for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
                CHECK(!(offered & pairs[i][0]) || membarrier(pairs[i][0]) == 0);
        CHECK((registered = membarrier(get)) > 0);
        CHECK(pthread_create(&t, NULL, idle, NULL) == 0);
        victim_ready();
        victim_wait();
        CHECK(membarrier(get) == registered);
        for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
                CHECK(!(offered & pairs[i][1]) || membarrier(pairs[i][1]) == 0);
        CHECK(pthread_join(t, NULL) == 0);
        CHECK(waitpid(plain, &status, 0) == plain && status == 0);
        victim_pass();
}
