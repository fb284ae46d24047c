/* SysV semaphores: values, key, undo of a process that ends after the thaw; without any process attached a segment stays. */
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#include "../mem.h"

int main(void)
{
        int st, sem = semget(0x815, 3, IPC_CREAT | 0600), shm = shmget(0x816, PAGE, IPC_CREAT | 0600);
        struct sembuf take = {1, -2, SEM_UNDO};

        CHECK(sem >= 0 && shm >= 0);
        char *m = shmat(shm, NULL, 0);
        fill(m, PAGE, 3);
        CHECK(shmdt(m) == 0);
        CHECK(semctl(sem, 0, SETVAL, 7) == 0 && semctl(sem, 1, SETVAL, 5) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                if (semop(sem, &take, 1) != 0)
                        _exit(1);
                victim_wait();
                _exit(0);
        }
        while (semctl(sem, 1, GETVAL) != 3)
                usleep(1000);
        victim_ready();
        victim_wait();
        CHECK(semget(0x815, 3, 0) == sem && semctl(sem, 0, GETVAL) == 7);
        CHECK(waitpid(pid, &st, 0) == pid && st == 0);
        CHECK(semctl(sem, 1, GETVAL) == 5);
        m = shmat(shmget(0x816, 0, 0), NULL, 0);
        CHECK(m != (void *)-1);
        CHECK_FILLED(m, PAGE, 3);
        victim_pass();
}
