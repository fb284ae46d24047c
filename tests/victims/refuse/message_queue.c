/* A POSIX message queue that is open: its messages are nowhere but in the kernel.
 * victim: refuse=message queue
 * victim: libs=-lrt */
#include <fcntl.h>
#include <mqueue.h>

#include "../victim.h"

int main(void)
{
        struct mq_attr attr = {.mq_maxmsg = 4, .mq_msgsize = 64};
        mqd_t mq = mq_open("/victim-queue", O_RDWR | O_CREAT, 0600, &attr);
        char text[64];

        if (mq < 0)
                victim_skip("no message queues here");
        CHECK(mq_send(mq, "hello", 5, 1) == 0);
        victim_ready();
        victim_wait();
        CHECK(mq_receive(mq, text, sizeof(text), NULL) == 5 && memcmp(text, "hello", 5) == 0);
        victim_pass();
}
