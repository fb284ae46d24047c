/* Lingering close.  A server that closes a socket with unread bytes makes the kernel send a reset, and a reset makes the client's
 * kernel throw away the reply that had already arrived.  So after an early reply ("too large") the socket is shut down for writing
 * and read empty for a while: until the client closes, is silent for 5 s, or after 30 s at most.  At most 32 at a time; more are
 * closed at once.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "http.h"

#define LINGER_MAX 32
#define LINGER_SILENCE (5 * USEC_PER_SEC)
#define LINGER_TOTAL (30 * USEC_PER_SEC)

struct lingering {
        struct cop_lingers *lingers;
        int fd; /* owned */
        usec_t last, end;
        struct cop_source *io;
};

struct cop_lingers {
        struct cop_loop *loop;
        struct cop_source *timer;
        struct lingering slots[LINGER_MAX];
};

static void linger_end(struct lingering *l)
{
        l->io = cop_source_free(l->io);
        l->fd = cop_close(l->fd);
}

static void on_readable(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        static char scratch[256 * 1024];
        struct lingering *l = userdata;
        ssize_t n = recv(fd, scratch, sizeof(scratch), MSG_DONTWAIT);

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
                linger_end(l);
        else
                l->last = cop_loop_now(l->lingers->loop);
}

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_lingers *all = userdata;
        bool any = false;

        for (size_t i = 0; i < LINGER_MAX; i++) {
                struct lingering *l = &all->slots[i];
                if (l->fd < 0)
                        continue;
                if (now >= l->end || now - l->last >= LINGER_SILENCE)
                        linger_end(l);
                else
                        any = true;
        }
        if (any)
                cop_source_set_time(s, now + USEC_PER_SEC);
}

int cop_lingers_new(struct cop_loop *loop, struct cop_lingers **ret, struct cop_error *err)
{
        struct cop_lingers *all = calloc(1, sizeof(*all));

        if (!all)
                return cop_error_errno(err, ENOMEM, "server");
        all->loop = loop;
        for (size_t i = 0; i < LINGER_MAX; i++)
                all->slots[i] = (struct lingering){.lingers = all, .fd = -EBADF};
        int r = cop_loop_add_timer(loop, USEC_INFINITY, on_timer, all, &all->timer, err);
        if (r < 0) {
                free(all);
                return r;
        }
        *ret = all;
        return 0;
}

struct cop_lingers *cop_lingers_free(struct cop_lingers *all)
{
        if (!all)
                return NULL;
        for (size_t i = 0; i < LINGER_MAX; i++)
                linger_end(&all->slots[i]);
        cop_source_free(all->timer);
        free(all);
        return NULL;
}

void cop_linger_add(struct cop_lingers *all, int fd)
{
        usec_t now = cop_loop_now(all->loop);

        shutdown(fd, SHUT_WR);
        for (size_t i = 0; i < LINGER_MAX; i++) {
                struct lingering *l = &all->slots[i];
                if (l->fd >= 0)
                        continue;
                if (cop_loop_add_io(all->loop, fd, EPOLLIN, on_readable, l, &l->io, NULL) < 0)
                        break;
                l->fd = fd;
                l->last = now;
                l->end = now + LINGER_TOTAL;
                cop_source_set_time(all->timer, now + USEC_PER_SEC);
                return;
        }
        cop_close(fd);
}
