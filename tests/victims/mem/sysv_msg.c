/* A SysV message queue: messages of several types and sizes in their order, its key and room; and what the namespace allows of System V
 * objects, without which they could not be made again.
 * victim: prepared=no */
#include <fcntl.h>
#include <stdbool.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#include "../victim.h"

struct message {
        long type;
        char text[4000];
};

/* Not where /proc/sys is read-only. */
static bool set_limit(const char *name, const char *value)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/sys/kernel/%s", name);
        int fd = open(path, O_WRONLY);
        bool done = fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
        close(fd);
        return done;
}

int main(void)
{
        static struct message m;
        struct msqid_ds ds;
        struct shminfo limits;
        struct seminfo semaphores;
        bool set =
                set_limit("msgmnb", "40000") && set_limit("shmmax", "123456789") && set_limit("sem", "320 3200 32 99");
        int q = msgget(0x4242, IPC_CREAT | 0600), large = msgget(IPC_PRIVATE, 0600);

        CHECK(q >= 0 && large >= 0 && msgctl(q, IPC_STAT, &ds) == 0);
        ds.msg_qbytes = 9000;
        CHECK(msgctl(q, IPC_SET, &ds) == 0);
        m.type = 1;
        for (int i = 0; set && i < 9; i++)
                CHECK(msgsnd(large, &m, sizeof(m.text), 0) == 0);
        if (set) {
                CHECK(msgctl(large, IPC_STAT, &ds) == 0 && ds.msg_qbytes == 40000 && set_limit("msgmnb", "20000"));
                CHECK(msgctl(large, IPC_STAT, &ds) == 0 && ds.msg_qbytes == 40000);
        }
        for (int i = 1; i <= 5; i++) {
                m.type = i % 2 + 1;
                memset(m.text, 'a' + i, sizeof(m.text));
                CHECK(msgsnd(q, &m, (size_t)i * 500, 0) == 0);
        }
        victim_ready();
        victim_wait();
        CHECK(msgget(0x4242, 0) == q && msgctl(q, IPC_STAT, &ds) == 0 && ds.msg_qnum == 5 && ds.msg_qbytes == 9000);
        if (set) {
                CHECK(msgctl(large, IPC_STAT, &ds) == 0 && ds.msg_qbytes == 40000 && ds.msg_qnum == 9);
                CHECK(shmctl(0, IPC_INFO, (struct shmid_ds *)(void *)&limits) >= 0 && limits.shmmax == 123456789);
                CHECK(semctl(0, 0, IPC_INFO, &semaphores) >= 0 && semaphores.semmsl == 320 && semaphores.semmni == 99);
        }
        CHECK(msgrcv(q, &m, sizeof(m.text), 1, IPC_NOWAIT) == 1000 && m.text[999] == 'c');
        for (int i = 1; i <= 5; i++)
                if (i != 2)
                        CHECK(msgrcv(q, &m, sizeof(m.text), 0, IPC_NOWAIT) == i * 500 && m.type == i % 2 + 1 &&
                              m.text[0] == 'a' + i);
        CHECK(msgrcv(q, &m, sizeof(m.text), 0, IPC_NOWAIT) == -1 && errno == ENOMSG);
        victim_pass();
}
