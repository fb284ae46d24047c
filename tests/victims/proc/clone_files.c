/* Descriptors that a process shares with its child and grandchild (CLONE_FILES): what one opens or closes, all do; a POSIX lock of one is
 * all theirs; one of them has a session of its own, and memory that is watched. A second child has its own. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../victim.h"

#define SIZE (8UL << 20)

static volatile int *shared; /* step, descriptor */

static void await(int step)
{
        for (int i = 0; i < 5000 && shared[0] < step; i++)
                usleep(1000);
        CHECK(shared[0] == step);
}

static pid_t clone_sharing(void)
{
        return (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
}

static void grandchild(int gone)
{
        char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        setsid();
        memset(memory, 'm', SIZE);
        shared[0] = 1;
        await(3);
        CHECK(memory[SIZE - 1] == 'm' && madvise(memory, SIZE, MADV_DONTNEED) == 0 && memory[0] == 0);
        CHECK(fcntl(gone, F_GETFD) == -1 && errno == EBADF);
        shared[1] = fcntl(1, F_DUPFD, 100);
        shared[0] = 4;
        _exit(shared[1] >= 0 ? 0 : 1);
}

static void child(int gone, int locked)
{
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10};
        int status;
        pid_t pid = clone_sharing();

        if (pid == 0)
                grandchild(gone);
        await(2);
        CHECK(fcntl(locked, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK); /* our own is in nobody's way */
        CHECK(close(gone) == 0);
        shared[0] = 3;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        shared[0] = 5;
        _exit(0);
}

static void separate(int gone, int locked)
{
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10};

        await(5);
        CHECK(fcntl(locked, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_pid == getppid());
        CHECK(fcntl(shared[1], F_GETFD) == -1 && fcntl(gone, F_GETFD) >= 0);
        for (int fd = 3; fd < 200; fd++)
                CHECK(fcntl(fd, F_GETFD) == -1 || fd == gone || fd == locked);
        _exit(0);
}

int main(void)
{
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10};
        int status;

        shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int locked = memfd_create("locked", 0), gone = open("/dev/zero", O_RDONLY);
        CHECK(locked >= 0 && gone >= 0 && fcntl(locked, F_SETLK, &lock) == 0);
        pid_t alone = fork();
        if (alone == 0)
                separate(gone, locked);
        pid_t pid = clone_sharing();
        CHECK(alone > 0 && pid >= 0);
        if (pid == 0)
                child(gone, locked);
        await(1);
        victim_ready();
        victim_wait();
        shared[0] = 2;
        await(5);
        CHECK(fcntl(gone, F_GETFD) == -1 && fcntl(shared[1], F_GETFD) >= 0 && waitpid(pid, &status, 0) == pid &&
              status == 0);
        CHECK(waitpid(alone, &status, 0) == alone && status == 0);
        victim_pass();
}
