/* Pipes: capacities of all sizes, F_SETSIG without an owner, a FIFO with a writer and no reader, one between two processes, a flock held
 * through a duplicate and a child.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../victim.h"

#define N 4
static const int sizes[N] = {4096, 16384, 65536, 262144};

static void child(int answer)
{
        char buf[8];
        int fifo = open("between", O_RDONLY);

        victim_ready();
        victim_wait();
        int data = read(fifo, buf, sizeof(buf)) == 5, locked = flock(open("lock", O_RDWR), LOCK_EX | LOCK_NB) == -1;
        _exit(write(answer, data && locked ? "y" : "n", 1) == 1 ? 0 : 1);
}

int main(void)
{
        int pipes[N][2], answer[2], lock = open("lock", O_RDWR | O_CREAT, 0600);
        char c;

        signal(SIGPIPE, SIG_IGN);
        for (int i = 0; i < N; i++)
                CHECK(pipe(pipes[i]) == 0 && fcntl(pipes[i][1], F_SETPIPE_SZ, sizes[i]) == sizes[i]);
        CHECK(fcntl(pipes[0][0], F_SETSIG, SIGUSR1) == 0 && pipe(answer) == 0 && mkfifo("alone", 0600) == 0 &&
              mkfifo("between", 0600) == 0);
        int reader = open("alone", O_RDONLY | O_NONBLOCK), writer = open("alone", O_WRONLY);
        CHECK(writer >= 0 && close(reader) == 0 && flock(lock, LOCK_EX) == 0);
        int held = dup(lock);
        CHECK(held >= 0 && close(lock) == 0);
        pid_t pid = fork();
        if (pid == 0)
                child(answer[1]);
        int between = open("between", O_WRONLY);
        CHECK(between >= 0 && write(between, "five!", 5) == 5);
        victim_wait();
        for (int i = 0; i < N; i++)
                CHECK(fcntl(pipes[i][1], F_GETPIPE_SZ) == sizes[i]);
        CHECK(fcntl(pipes[0][0], F_GETSIG) == SIGUSR1);
        CHECK(write(writer, "x", 1) == -1 && errno == EPIPE);
        reader = open("alone", O_RDONLY | O_NONBLOCK);
        CHECK(write(writer, "x", 1) == 1 && read(reader, &c, 1) == 1);
        CHECK(read(answer[0], &c, 1) == 1 && c == 'y' && waitpid(pid, NULL, 0) == pid);
        victim_pass();
}
