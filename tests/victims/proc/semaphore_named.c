/* A named POSIX semaphore: what is mapped was made under another name, which is gone; who opens the name it has gets the same one.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>

#include "../victim.h"

int main(void)
{
        char name[64], path[80];
        int value;

        snprintf(name, sizeof(name), "/victim-kept-%ld-%d", (long)time(NULL), (int)getpid());
        snprintf(path, sizeof(path), "/dev/shm/sem.%s", name + 1);
        sem_t *kept = sem_open(name, O_CREAT | O_EXCL, 0600, 3);
        CHECK(kept != SEM_FAILED);
        victim_ready();
        victim_wait();
        int fd = open(path, O_RDWR);
        CHECK(fd >= 0);
        sem_t *again = mmap(NULL, sizeof(*again), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(again != MAP_FAILED && sem_unlink(name) == 0);
        CHECK(sem_post(again) == 0 && sem_getvalue(kept, &value) == 0 && value == 4);
        victim_pass();
}
