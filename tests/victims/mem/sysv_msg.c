/* A SysV message queue: messages of several types and sizes in their order, its key and limits. */
#include <sys/ipc.h>
#include <sys/msg.h>

#include "../victim.h"

struct message {
        long type;
        char text[4000];
};

int main(void)
{
        static struct message m;
        struct msqid_ds ds;
        int q = msgget(0x4242, IPC_CREAT | 0600);

        CHECK(q >= 0);
        for (int i = 1; i <= 5; i++) {
                m.type = i % 2 + 1;
                memset(m.text, 'a' + i, sizeof(m.text));
                CHECK(msgsnd(q, &m, (size_t)i * 500, 0) == 0);
        }
        victim_ready();
        victim_wait();
        CHECK(msgget(0x4242, 0) == q && msgctl(q, IPC_STAT, &ds) == 0 && ds.msg_qnum == 5);
        CHECK(msgrcv(q, &m, sizeof(m.text), 1, IPC_NOWAIT) == 1000 && m.text[999] == 'c');
        for (int i = 1; i <= 5; i++)
                if (i != 2)
                        CHECK(msgrcv(q, &m, sizeof(m.text), 0, IPC_NOWAIT) == i * 500 && m.type == i % 2 + 1 &&
                              m.text[0] == 'a' + i);
        CHECK(msgrcv(q, &m, sizeof(m.text), 0, IPC_NOWAIT) == -1 && errno == ENOMSG);
        victim_pass();
}
