/* SysV shared memory: attached twice, by two processes, removed while attached, with its id, key and mode; detachable. */
#include <sys/ipc.h>
#include <sys/shm.h>

#include "../mem.h"

int main(void)
{
        struct shmid_ds ds;
        int st, id = shmget(0x4711, 20 * PAGE, IPC_CREAT | 0640),
                gone = shmget(IPC_PRIVATE, 4 * PAGE, IPC_CREAT | 0600);

        CHECK(id >= 0 && gone >= 0);
        char *a = shmat(id, NULL, 0), *ro = shmat(id, NULL, SHM_RDONLY), *g = shmat(gone, NULL, 0);
        CHECK(a != (void *)-1 && ro != (void *)-1 && g != (void *)-1 && shmctl(gone, IPC_RMID, NULL) == 0);
        fill(a, 20 * PAGE, 1);
        fill(g, 4 * PAGE, 2);
        pid_t pid = fork();
        if (pid == 0) {
                victim_wait();
                for (int i = 0; i < 5000 && *(volatile uint64_t *)g != 5; i++)
                        usleep(1000);
                *(volatile uint64_t *)(a + PAGE) = 6;
                _exit(*(uint64_t *)g == 5 ? 0 : 1);
        }
        victim_ready();
        victim_wait();
        CHECK_FILLED(ro, 20 * PAGE, 1);
        CHECK_FILLED(g, 4 * PAGE, 2);
        CHECK(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_segsz == 20 * PAGE && (ds.shm_perm.mode & 0777) == 0640 &&
              ds.shm_nattch == 4);
        CHECK(shmget(0x4711, 0, 0) == id);
        *(volatile uint64_t *)g = 5;
        CHECK(waitpid(pid, &st, 0) == pid && st == 0 && *(uint64_t *)(ro + PAGE) == 6);
        CHECK(shmdt(g) == 0 && shmdt(ro) == 0 && shmdt(a) == 0);
        char *again = shmat(id, NULL, 0);
        CHECK(again != (void *)-1 && *(uint64_t *)(again + PAGE) == 6);
        CHECK(shmctl(id, IPC_RMID, NULL) == 0 && shmdt(again) == 0);
        victim_pass();
}
