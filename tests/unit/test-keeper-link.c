#include "lib/test.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "keeper/link.h"

struct state {
        struct cop_loop *loop;
        struct cop_link *link;
        int messages, closed, writable;
        bool echo;
};

static void on_message(struct cop_link *link, struct cop_msg *m, void *userdata)
{
        struct state *s = userdata;

        s->messages++;
        if (s->echo) {
                struct cop_msg reply;
                static char big[1000];
                cop_msg_init(&reply, 1, m->id);
                cop_msg_add_bytes(&reply, 7, big, sizeof(big));
                cop_link_send(link, &reply);
        }
}

static void on_writable(struct cop_link *link, void *userdata)
{
        ((struct state *)userdata)->writable++;
}

static void on_closed(struct cop_link *link, void *userdata)
{
        struct state *s = userdata;

        s->closed++;
        s->link = cop_link_free(link);
}

static const struct cop_link_calls calls = {.message = on_message, .writable = on_writable, .closed = on_closed};

static int start(struct state *s)
{
        struct cop_error err = COP_ERROR_NULL;
        int fds[2];

        ASSERT_OK(cop_loop_new(&s->loop, &err), &err);
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
        ASSERT_OK(cop_link_new(s->loop, fds[0], &calls, s, &s->link, &err), &err);
        return fds[1];
}

static void turns(struct state *s, int n)
{
        for (int i = 0; i < n; i++)
                ASSERT_OK(cop_loop_turn(s->loop, 1000), NULL);
}

static int send_one(int fd, uint32_t id)
{
        _cleanup_msg_ struct cop_msg m;

        cop_msg_init(&m, 2, id);
        return cop_msg_send(fd, &m);
}

TEST(end_of_file_is_told_once)
{
        struct state s = {0};
        int peer = start(&s);

        ASSERT_OK(send_one(peer, 1), NULL);
        close(peer);
        turns(&s, 5);
        ASSERT_EQ(s.messages, 1);
        ASSERT_EQ(s.closed, 1);
        cop_loop_free(s.loop);
}

TEST(garbage_ends_the_link)
{
        struct state s = {0};
        int peer = start(&s);

        ASSERT_EQ(send(peer, "garbage", 7, 0), 7);
        turns(&s, 5);
        ASSERT_EQ(s.messages, 0);
        ASSERT_EQ(s.closed, 1);
        close(peer);
        cop_loop_free(s.loop);
}

/* A peer that asks and never reads: the link stops reading from it, and goes on where it stopped. */
TEST(a_peer_that_does_not_read_is_not_read_from)
{
        struct state s = {.echo = true};
        int peer = start(&s), sent = 0, got = 0;

        for (int idle = 0; idle < 20;) {
                if (send_one(peer, (uint32_t)sent + 1) == 0)
                        sent++;
                else
                        idle++;
                turns(&s, 1);
        }
        ASSERT_GT(sent, 50);
        ASSERT_LT(s.messages, sent); /* some requests wait in the socket */
        ASSERT(cop_link_busy(s.link));
        while (got < sent) {
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
                int r = cop_msg_recv(peer, &m);
                if (r == -EAGAIN) {
                        turns(&s, 1);
                        continue;
                }
                ASSERT_EQ(r, 1);
                ASSERT_EQ(m.id, ++got); /* in order, none lost */
        }
        ASSERT_GE(s.writable, 1);
        ASSERT_EQ(s.closed, 0);
        cop_link_free(s.link);
        close(peer);
        cop_loop_free(s.loop);
}

TEST(sending_into_a_closed_link)
{
        struct state s = {0};
        int peer = start(&s);
        struct cop_msg m;

        close(peer);
        cop_msg_init(&m, 1, 1);
        cop_link_send(s.link, &m); /* the failure is told from the loop, not in the middle of the caller */
        ASSERT_EQ(s.closed, 0);
        ASSERT(cop_link_busy(s.link));
        cop_msg_init(&m, 1, 2);
        cop_link_send(s.link, &m);
        turns(&s, 3);
        ASSERT_EQ(s.closed, 1);
        cop_loop_free(s.loop);
}
