/* Stands in for coppice-init and lies: what it does is named in the file /hostile of its sandbox.  The keeper must answer its
 * client, stay small, and clear up. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/msg.h"
#include "sandbox/wire.h"

static void send_fields(uint16_t type, uint32_t id, int64_t pid, uint64_t status)
{
        struct cop_msg m;

        cop_msg_init(&m, type, id);
        cop_msg_add_u64(&m, COP_TAG_VERSION, COP_WIRE_VERSION);
        cop_msg_add_i64(&m, COP_TAG_PID, pid);
        cop_msg_add_u64(&m, COP_TAG_STATUS, status);
        cop_msg_send(COP_INIT_CONTROL_FD, &m);
        cop_msg_done(&m);
}

/* Answers every request with `pid`, and adds noise around it. */
static void answer(int64_t pid, bool noise)
{
        for (;;) {
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
                if (cop_msg_recv(COP_INIT_CONTROL_FD, &m) <= 0)
                        return;
                if (noise) {
                        send_fields(COP_WIRE_REPLY, m.id + 1000, 5, 0);
                        send_fields(COP_WIRE_CHILD, 0, -1, UINT64_MAX);
                        send_fields(COP_WIRE_CHILD, 0, INT64_MAX, 0);
                        send_fields(COP_WIRE_STOP, 1, 0, 0);
                        send_fields(0xffff, 1, 0, 0);
                        send_fields(COP_WIRE_READY, 0, 0, 0);
                }
                send_fields(COP_WIRE_REPLY, m.id, pid, 0);
                send_fields(COP_WIRE_REPLY, m.id, pid, 0); /* twice */
                if (noise)
                        send_fields(COP_WIRE_CHILD, 0, pid, UINT64_MAX);
        }
}

/* Every answer carries descriptors and as many bytes as fit. */
static void answer_large(void)
{
        static char big[COP_MSG_MAX - 200];

        for (;;) {
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply;
                if (cop_msg_recv(COP_INIT_CONTROL_FD, &m) <= 0)
                        return;
                cop_msg_init(&reply, COP_WIRE_REPLY, m.id);
                cop_msg_add_bytes(&reply, COP_TAG_NAME, big, sizeof(big));
                for (int i = 0; i < COP_MSG_FDS_MAX; i++)
                        cop_msg_add_fd(&reply, open("/", O_RDONLY | O_CLOEXEC));
                while (cop_msg_send(COP_INIT_CONTROL_FD, &reply) == -EAGAIN)
                        usleep(1000);
        }
}

static void flood(void)
{
        for (;;)
                send_fields(COP_WIRE_CHILD, 0, 77, 0);
}

static void garbage(void)
{
        unsigned char noise[512];
        int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);

        if (read(fd, noise, sizeof(noise)) == sizeof(noise))
                (void)!send(COP_INIT_CONTROL_FD, noise, sizeof(noise), MSG_NOSIGNAL);
        pause();
}

int main(void)
{
        _cleanup_free_ char *mode = NULL;

        if (cop_read_word(AT_FDCWD, "/hostile", &mode, NULL) < 0)
                return 1;
        if (strcmp(mode, "exit") == 0)
                return 3;
        if (strcmp(mode, "silent") == 0)
                pause();
        if (strcmp(mode, "garbage-first") == 0)
                garbage();
        send_fields(COP_WIRE_READY, 0, 0, 0);
        if (strcmp(mode, "garbage") == 0)
                garbage();
        if (strcmp(mode, "pids") == 0)
                answer(0, false);
        if (strcmp(mode, "negative") == 0)
                answer(-9, false);
        if (strcmp(mode, "noise") == 0)
                answer(7, true);
        if (strcmp(mode, "large") == 0)
                answer_large();
        if (strcmp(mode, "flood") == 0)
                flood();
        if (strcmp(mode, "deaf") == 0)
                pause();
        if (strcmp(mode, "closed") == 0) {
                close(COP_INIT_CONTROL_FD);
                pause();
        }
        return 0;
}
