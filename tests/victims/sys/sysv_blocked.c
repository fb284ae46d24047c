/* Blocked in semop, semtimedop and msgrcv: ended by a partner after the thaw, or by time, never by EINTR. */
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

#include "../blocked.h"

static int sem, msg;

static long by_semop(void)
{
        struct sembuf op = {0, -1, 0};
        return semop(sem, &op, 1);
}
static long by_timed(void)
{
        struct sembuf op = {1, -1, 0};
        struct timespec ts = {0, 500000000};
        return semtimedop(sem, &op, 1, &ts);
}
static long by_msgrcv(void)
{
        struct {
                long type;
                char text[32];
        } m;
        return msgrcv(msg, &m, sizeof(m.text), 7, 0);
}

int main(void)
{
        struct blocked rows[] = {
                {.name = "semop", .nr = -1, .run = by_semop},
                {.name = "semtimedop", .nr = -1, .run = by_timed, .want = -EAGAIN},
                {.name = "msgrcv", .nr = SYS_msgrcv, .run = by_msgrcv, .want = 5},
        };
        struct {
                long type;
                char text[8];
        } m = {7, "hello"};

        sem = semget(IPC_PRIVATE, 2, IPC_CREAT | 0600);
        msg = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
        CHECK(sem >= 0 && msg >= 0);
        block_all(rows, ROWS(rows));
        victim_ready();
        victim_wait();
        struct sembuf op = {0, 1, 0};
        CHECK(semop(sem, &op, 1) == 0 && msgsnd(msg, &m, 5, 0) == 0);
        join_all(rows, ROWS(rows));
        victim_pass();
}
