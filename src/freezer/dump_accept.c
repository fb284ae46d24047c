/* Unix connections that are not accepted yet, with what was sent into them.
 *
 * As with TCP (dump_waiting.c) only accepting them shows that, but a client of a unix socket can never be connected again.  So it is done
 * as the last thing in the stop (cop_dump_accept), and a tree that runs on gets new clients (dump_reconnect.c), whatever comes of the
 * image.  Not every client can be replaced, so in one that is to be ended nothing should fail after that: room for what is queued is made
 * before, in memory and on the disk, and so is it for descriptors.  What may still be in the way is a descriptor in flight there that
 * cannot be frozen, and a disk that fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/dump_sock.h"

int cop_dump_hold_room(struct cop_dump *d, size_t n)
{
        struct cop_dump_waiting *bigger = reallocarray(d->waiting, d->waiting_room + n + 1, sizeof(*bigger));

        if (!bigger)
                return -ENOMEM;
        d->waiting = bigger;
        d->waiting_room += n;
        return 0;
}

void cop_dump_hold(struct cop_dump *d, uint32_t file, int fd)
{
        d->waiting[d->waiting_count++] = (struct cop_dump_waiting){.file = file, .fd = fd};
}

/* ---- before ---- */

/* The clients that wait at a listener, in order; IMG_NONE: not of the tree. */
static uint32_t client_at(struct cop_dump *d, const struct cop_unix_table *t, const struct cop_unix_info *u,
                          uint32_t listener, uint32_t place)
{
        uint32_t ino = t->icons[u->icon_first + place];

        return ino ? cop_dump_unix_socket(d, cop_dump_file_at(d, listener), ino) : IMG_NONE;
}

/* What one has sent and nobody has read, with what the kernel adds to each message. */
static size_t sent_by(const struct cop_dump *d, uint32_t client)
{
        const struct cop_dump_file *known = cop_dump_known_socket(d, client);
        int out = 0;

        return known && known->own_fd >= 0 && ioctl(known->own_fd, SIOCOUTQ, &out) == 0 && out > 0 ? (size_t)out : 0;
}

/* Whether of those that wait at a listener one has sent something, or has closed. */
static bool has_sent(struct cop_dump *d, const struct cop_unix_table *t, const struct cop_unix_info *u,
                     uint32_t listener)
{
        for (uint32_t i = 0; u && i < u->icons; i++) {
                uint32_t client = client_at(d, t, u, listener, i);
                if (t->icons[u->icon_first + i] == 0 || (client != IMG_NONE && sent_by(d, client) > 0))
                        return true;
        }
        return false;
}

void cop_dump_unix_waiting(struct cop_dump *d, const struct cop_unix_table *t, uint32_t listener)
{
        const struct cop_unix_info *u = cop_unix_table_find(t, cop_dump_file_at(d, listener)->ino);

        for (uint32_t i = 0; u && i < u->icons; i++) {
                uint32_t client = client_at(d, t, u, listener, i);
                if (client != IMG_NONE) {
                        cop_dump_file_at(d, client)->arg[IMG_SOCK_STATE] = IMG_SOCK_PENDING;
                        cop_dump_file_at(d, client)->arg[IMG_SOCK_LISTENER] = listener;
                        cop_dump_file_at(d, client)->arg[IMG_SOCK_BACKLOG] = i;
                }
        }
        if (has_sent(d, t, u, listener))
                d->accept = true;
}

/* ---- making room ---- */

/* Numbers for so many descriptors. */
static int probe_descriptors(size_t n, struct cop_error *err)
{
        _cleanup_free_ int *list = malloc(n * sizeof(*list));
        size_t have = 0;
        int r = 0;

        while (list && have < n && r == 0) {
                list[have] = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
                if (list[have] < 0)
                        r = -errno;
                else
                        have++;
        }
        for (size_t i = 0; i < have; i++)
                close(list[i]);
        if (r == 0 && !list)
                r = -ENOMEM;
        return r < 0 ? cop_error_errno(err, -r, "making room for what waits to be accepted") : 0;
}

/* Of one that has been closed nothing is told: it may have sent this much, unless it has changed its buffer. */
#define SENT_MAX (1UL << 18)
/* What the kernel needs for a message at least. */
#define MESSAGE_MIN 256

static int make_room(struct cop_dump *d, const struct cop_unix_table *t, struct cop_error *err)
{
        size_t bytes = 0, count = 0;

        for (uint32_t i = 0; i < cop_image_count(d->writer, IMG_FILES); i++) {
                const struct img_file *f = cop_dump_file_at(d, i);
                const struct cop_unix_info *u = f->kind == IMG_FILE_UNIX && f->arg[IMG_SOCK_STATE] == IMG_SOCK_LISTENING
                                                        ? cop_unix_table_find(t, f->ino)
                                                        : NULL;
                for (uint32_t k = 0; u && k < u->icons; k++, count++)
                        bytes += t->icons[u->icon_first + k] ? sent_by(d, client_at(d, t, u, i, k)) : SENT_MAX;
        }
        int r = cop_dump_hold_room(d, count);
        if (r < 0)
                return cop_error_errno(err, -r, "making room for what waits to be accepted");
        r = probe_descriptors(count + 600, err); /* and for what is in flight */
        return r < 0 ? r
                     : cop_image_make_room(d->writer, bytes + (count + 64) * 1024, bytes / MESSAGE_MIN + count,
                                           d->request->flags & COP_FREEZE_SYNC, err);
}

/* Whether all that wait at a listener can be put back again. */
static int may_put_back(struct cop_dump *d, const struct cop_unix_table *t, uint32_t listener, struct cop_error *err)
{
        const struct cop_unix_info *u = cop_unix_table_find(t, cop_dump_file_at(d, listener)->ino);
        const struct cop_dump_file *known = cop_dump_known_socket(d, listener);
        int r = 0;

        if (!known || !has_sent(d, t, u, listener))
                return 0;
        if (u->icons > u->backlog + 1)
                return cop_not_freezable(d, known->proc, err,
                                         "listens (fd %d) where more wait with data than its queue takes by now, "
                                         "which only a suspend can keep",
                                         known->fd);
        for (uint32_t i = 0; i < u->icons && r == 0; i++) {
                uint32_t client = client_at(d, t, u, listener, i);
                if (client != IMG_NONE)
                        r = cop_dump_may_reconnect(d, client, err);
                else if (t->icons[u->icon_first + i] != 0)
                        r = cop_not_freezable(d, known->proc, err,
                                              "listens (fd %d) where a connection from outside waits beside those in "
                                              "which data waits, which only a suspend can keep",
                                              known->fd);
        }
        return r;
}

/* ---- accepting ---- */

static struct img_file new_left(struct cop_dump *d, uint32_t listener, int fd)
{
        const struct img_file *l = cop_dump_file_at(d, listener);
        struct img_file f = {.kind = IMG_FILE_UNIX, .flags = O_RDWR};
        struct sockaddr_un address = {0};
        socklen_t length = sizeof(address);

        for (int i = 0; i <= IMG_SOCK_PROTOCOL; i++)
                f.arg[i] = l->arg[i];
        f.arg[IMG_SOCK_CWD] = l->arg[IMG_SOCK_CWD];
        f.arg[IMG_SOCK_PEER] = IMG_NONE;
        /* A name in the file system may be another's by now. */
        if (getpeername(fd, (struct sockaddr *)&address, &length) == 0 &&
            length > offsetof(struct sockaddr_un, sun_path) && address.sun_path[0] == '\0')
                f.path = cop_image_put(d->writer, &address, length);
        return f;
}

/* Copies: descriptors in flight add to the tables. */
static int dump_waiting(struct cop_dump *d, uint32_t listener, uint32_t client, uint32_t place, int fd, bool queue,
                        struct cop_error *err)
{
        struct cop_dump_file known = *cop_dump_known_socket(d, client == IMG_NONE ? listener : client);
        struct img_file f = client == IMG_NONE ? new_left(d, listener, fd) : *cop_dump_file_at(d, client);
        struct ucred who = {0};
        socklen_t length = sizeof(who);

        f.arg[IMG_SOCK_STATE] = client == IMG_NONE ? IMG_SOCK_LEFT : IMG_SOCK_WAITING;
        f.arg[IMG_SOCK_LISTENER] = listener;
        f.arg[IMG_SOCK_BACKLOG] = place;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0)
                f.peer = cop_dump_credentials(d, &who);
        int r = queue ? cop_dump_queue(d, &known, &f, fd, err) : 0;
        if (client == IMG_NONE)
                client = cop_image_add(d->writer, IMG_FILES, &f);
        else
                *cop_dump_file_at(d, client) = f;
        cop_dump_hold(d, client, fd);
        return r;
}

static int accept_at(struct cop_dump *d, const struct cop_unix_table *t, uint32_t listener, struct cop_error *err)
{
        const struct cop_unix_info *u = cop_unix_table_find(t, cop_dump_file_at(d, listener)->ino);
        const struct cop_dump_file *known = cop_dump_known_socket(d, listener);
        int from = known ? known->own_fd : -EBADF, r = 0;
        bool any = has_sent(d, t, u, listener);

        /* After an error, too: they are put back in order. */
        for (uint32_t i = 0; any && i < u->icons; i++) {
                struct pollfd p = {.fd = from, .events = POLLIN};
                uint32_t client = client_at(d, t, u, listener, i);
                int fd = poll(&p, 1, 0) > 0 ? accept4(from, NULL, NULL, SOCK_CLOEXEC) : -1, dumped = 0;
                if (fd < 0)
                        return r < 0 ? r : cop_error_errno(err, errno, "accepting a connection to see what was sent");
                if (client == IMG_NONE && t->icons[u->icon_first + i] != 0)
                        cop_dump_hold(d, IMG_NONE, fd); /* from outside */
                else
                        dumped = dump_waiting(d, listener, client, i, fd, r == 0, r < 0 ? NULL : err);
                r = r < 0 ? r : dumped;
        }
        return r;
}

/* Calls visit for each unix listener, until it does not return 0. */
static int for_each_listener(struct cop_dump *d, const struct cop_unix_table *t,
                             int (*visit)(struct cop_dump *d, const struct cop_unix_table *t, uint32_t listener,
                                          struct cop_error *err),
                             struct cop_error *err)
{
        int r = 0;

        for (uint32_t i = 0, n = cop_image_count(d->writer, IMG_FILES); i < n && r == 0; i++)
                if (cop_dump_file_at(d, i)->kind == IMG_FILE_UNIX &&
                    cop_dump_file_at(d, i)->arg[IMG_SOCK_STATE] == IMG_SOCK_LISTENING)
                        r = visit(d, t, i, err);
        return r;
}

int cop_dump_accept(struct cop_dump *d, struct cop_error *err)
{
        struct cop_unix_table t = {0};
        size_t known = d->file_count;
        bool end = d->request->flags & COP_FREEZE_KILL;

        if (!d->accept)
                return 0;
        int r = cop_unix_table_collect(d->net_diag_fd, &t, err);
        if (r == 0)
                r = make_room(d, &t, err);
        if (r == 0)
                r = end ? cop_dump_tcp_waiting(d, true, err) : for_each_listener(d, &t, may_put_back, err);
        if (r == 0)
                r = for_each_listener(d, &t, accept_at, err);
        cop_unix_table_done(&t);
        if (r == 0)
                r = cop_dump_descriptors_again(d, known, err);
        int back = end && r == 0 ? 0 : cop_dump_reconnect(d, r < 0 ? NULL : err);
        return r < 0 ? r : back;
}
