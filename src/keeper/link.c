#include "link.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/fs.h"

#define READS_PER_TURN 16 /* so that one talkative peer does not keep the pipes waiting */
#define LAST_READS 1000   /* of one that has gone */

struct waiting {
        struct waiting *next;
        struct cop_msg msg;
};

struct cop_link {
        int fd;                    /* owned */
        struct cop_source *source; /* owned */
        struct cop_source *defer;  /* owned; reports a failure of sending outside of the sender's call */
        const struct cop_link_calls *calls;
        void *userdata; /* borrowed */
        struct waiting *first, *last;
        size_t count, bytes;
        bool failed;
        bool unheard; /* the other end has gone without hearing us, and may have said something before */
};

static void fail(struct cop_link *link)
{
        link->failed = true;
        cop_source_set_events(link->source, 0);
        cop_source_set_enabled(link->defer, 1);
}

/* What the other end had said before it went is heard all the same: a STOP, perhaps, of a daemon that did not wait for an answer.  That
 * it went without reading ours is told once, before the rest can be read. */
static void hear_the_rest(struct cop_link *link)
{
        bool reset = false;

        for (int i = 0; i < LAST_READS; i++) {
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
                int r = cop_msg_recv(link->fd, &m);
                if (r > 0)
                        link->calls->message(link, &m, link->userdata);
                else if (r == -ECONNRESET && !reset)
                        reset = true;
                else
                        return;
        }
}

static void fail_with(struct cop_link *link, int r)
{
        link->unheard = r == -EPIPE || r == -ECONNRESET;
        fail(link);
}

static void on_failed(struct cop_source *s, void *userdata)
{
        struct cop_link *link = userdata;

        cop_source_set_enabled(s, 0);
        if (link->unheard)
                hear_the_rest(link);
        link->calls->closed(link, link->userdata);
}

static void set_events(struct cop_link *link)
{
        if (!link->failed && cop_source_set_events(link->source, link->first ? EPOLLOUT : EPOLLIN) < 0)
                fail(link);
}

static void flush(struct cop_link *link)
{
        while (link->first) {
                struct waiting *w = link->first;
                int r = cop_msg_send(link->fd, &w->msg);
                if (cop_msg_again(r))
                        return;
                if (r < 0 && r != -E2BIG) {
                        fail_with(link, r);
                        return;
                }
                link->first = w->next;
                if (!link->first)
                        link->last = NULL;
                link->count--;
                link->bytes -= w->msg.fields.len;
                cop_msg_done(&w->msg);
                free(w);
        }
        set_events(link);
        if (!link->failed && link->calls->writable)
                link->calls->writable(link, link->userdata);
}

static void receive(struct cop_link *link, int most)
{
        for (int i = 0; i < most && !link->failed && !link->first; i++) {
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
                int r = cop_msg_recv(link->fd, &m);
                if (cop_msg_again(r))
                        return;
                if (r <= 0) {
                        fail_with(link, r);
                        return;
                }
                link->calls->message(link, &m, link->userdata);
                /* A callback never frees its own link: replacing a client goes through the listening socket, the end of
                 * init through its process. */
        }
}

static void on_io(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_link *link = userdata;

        if (link->failed)
                return;
        if (link->first)
                flush(link);
        else
                receive(link, READS_PER_TURN);
}

int cop_link_new(struct cop_loop *loop, int fd, const struct cop_link_calls *calls, void *userdata,
                 struct cop_link **ret, struct cop_error *err)
{
        struct cop_link *link = calloc(1, sizeof(*link));
        int r;

        if (!link || cop_set_nonblock(fd, 1) < 0) {
                free(link);
                cop_close(fd);
                return cop_error_errno(err, ENOMEM, "connection");
        }
        link->fd = fd;
        link->calls = calls;
        link->userdata = userdata;
        r = cop_loop_add_io(loop, fd, EPOLLIN, on_io, link, &link->source, err);
        if (r == 0)
                r = cop_loop_add_defer(loop, on_failed, link, &link->defer, err);
        if (r < 0) {
                cop_link_free(link);
                return r;
        }
        *ret = link;
        return 0;
}

struct cop_link *cop_link_free(struct cop_link *link)
{
        if (!link)
                return NULL;
        cop_source_free(link->source);
        cop_source_free(link->defer);
        while (link->first) {
                struct waiting *w = link->first;
                link->first = w->next;
                cop_msg_done(&w->msg);
                free(w);
        }
        cop_close(link->fd);
        free(link);
        return NULL;
}

void cop_link_send(struct cop_link *link, struct cop_msg *m)
{
        int r = link->failed ? -EPIPE : link->first ? -EAGAIN : cop_msg_send(link->fd, m);

        if (cop_msg_again(r)) {
                bool room = link->count < COP_LINK_QUEUE_MAX && link->bytes + m->fields.len <= COP_LINK_BYTES_MAX;
                struct waiting *w = room ? malloc(sizeof(*w)) : NULL;
                if (w) {
                        *w = (struct waiting){.msg = *m};
                        *m = COP_MSG_NULL;
                        if (link->last)
                                link->last->next = w;
                        else
                                link->first = w;
                        link->last = w;
                        link->count++;
                        link->bytes += w->msg.fields.len;
                        set_events(link);
                } else {
                        fail(link); /* a lost answer would be worse than a lost connection */
                }
        } else if (r < 0 && r != -E2BIG && !link->failed) {
                fail_with(link, r);
        }
        cop_msg_done(m);
}

void cop_link_drain(struct cop_link *link)
{
        receive(link, INT_MAX);
}

bool cop_link_busy(const struct cop_link *link)
{
        return link->first || link->failed;
}

size_t cop_link_waiting(const struct cop_link *link)
{
        return link->bytes;
}
