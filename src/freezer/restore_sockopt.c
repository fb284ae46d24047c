/* What was set on sockets: options, filters, the groups that they are in. */
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/socket.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "freezer/restore_sock.h"

int cop_socket_option(int fd, int name)
{
        int value = 0;
        socklen_t length = sizeof(value);

        return getsockopt(fd, SOL_SOCKET, name, &value, &length) < 0 ? 0 : value;
}

void cop_socket_set_buffer(int fd, int name, int size)
{
        int value = size / 2; /* the kernel doubles what it is told */

        if (setsockopt(fd, SOL_SOCKET, name == SO_SNDBUF ? SO_SNDBUFFORCE : SO_RCVBUFFORCE, &value, sizeof(value)) < 0)
                (void)setsockopt(fd, SOL_SOCKET, name, &value,
                                 sizeof(value)); /* an owner without rights: up to the limit */
}

static void set_option(int fd, const struct img_sockopt *o)
{
        (void)setsockopt(fd, o->level, o->name, o->value, MIN_OF(o->length, (uint32_t)sizeof(o->value)));
}

/* What is to come when queues are full again: it holds back what is sent, cuts it up, or forbids to attach a filter. */
static bool is_last(const struct img_sockopt *o)
{
        return (o->level == IPPROTO_TCP && o->name == TCP_CORK) ||
               (o->level == IPPROTO_UDP && (o->name == UDP_CORK || o->name == UDP_SEGMENT)) ||
               (o->level == SOL_SOCKET && o->name == SO_LOCK_FILTER);
}

static bool is_before_bind(const struct img_sockopt *o)
{
        return (o->level == SOL_SOCKET && (o->name == SO_REUSEPORT || o->name == SO_BINDTODEVICE)) ||
               (o->level == IPPROTO_IP && (o->name == IP_FREEBIND || o->name == IP_TRANSPARENT)) ||
               (o->level == IPPROTO_IPV6 &&
                (o->name == IPV6_V6ONLY || o->name == IPV6_FREEBIND || o->name == IPV6_TRANSPARENT));
}

static void set_chosen(const struct img_sockopt *o, size_t n, int fd, bool (*chosen)(const struct img_sockopt *o))
{
        for (size_t i = 0; i < n; i++)
                if (chosen(&o[i]))
                        set_option(fd, &o[i]);
}

void cop_socket_set_before_bind(struct cop_restore *r, const struct img_file *f, int fd)
{
        set_chosen(cop_image_at(r->image, &f->data), f->data.length / sizeof(struct img_sockopt), fd, is_before_bind);
}

void cop_socket_apply_last(const struct img_file *f, const void *filter, const struct img_sockopt *list, int fd)
{
        struct sock_fprog program = {.len = (unsigned short)(f->filter.length / sizeof(struct sock_filter)),
                                     .filter = (void *)(uintptr_t)filter};

        if (program.len > 0)
                (void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
        set_chosen(list, f->data.length / sizeof(*list), fd, is_last);
}

void cop_socket_set_last(struct cop_restore *r, const struct img_file *f, int fd)
{
        cop_socket_apply_last(f, cop_image_at(r->image, &f->filter), cop_image_at(r->image, &f->data), fd);
}

static void join_netlink_groups(struct cop_restore *r, const struct img_file *f, int fd)
{
        const uint32_t *bits = cop_image_at(r->image, &f->groups);

        for (uint32_t i = 0; i < f->groups.length / sizeof(*bits) * 32; i++) {
                int group = (int)i + 1;
                if (bits[i / 32] >> i % 32 & 1)
                        (void)setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group));
        }
}

/* An interface that is not there: the network is the caller's affair. */
static void join_groups(struct cop_restore *r, const struct img_file *f, int fd)
{
        const struct img_membership *m = cop_image_at(r->image, &f->groups);

        for (size_t i = 0; i < f->groups.length / sizeof(*m); i++) {
                char name[sizeof(m->interface) + 1] = {0};
                bool six = m[i].family == AF_INET6;
                memcpy(name, m[i].interface, sizeof(m->interface));
                struct group_req request = {.gr_interface = if_nametoindex(name)};
                request.gr_group.ss_family = m[i].family;
                memcpy((char *)&request.gr_group + (six ? offsetof(struct sockaddr_in6, sin6_addr)
                                                        : offsetof(struct sockaddr_in, sin_addr)),
                       m[i].address, six ? 16 : 4);
                if (request.gr_interface)
                        (void)setsockopt(fd, six ? IPPROTO_IPV6 : IPPROTO_IP, MCAST_JOIN_GROUP, &request,
                                         sizeof(request));
        }
}

void cop_socket_apply_options(const struct img_file *f, const struct img_sockopt *o, int fd)
{
        int locked = 0;

        for (size_t i = 0; i < f->data.length / sizeof(*o); i++) {
                int value = 0;
                memcpy(&value, o[i].value, sizeof(value));
                if (o[i].level == SOL_SOCKET && o[i].name == SO_BUF_LOCK)
                        locked = value;
                else if (o[i].level == SOL_SOCKET && (o[i].name == SO_SNDBUF || o[i].name == SO_RCVBUF)) {
                        int bit = o[i].name == SO_SNDBUF ? SOCK_SNDBUF_LOCK : SOCK_RCVBUF_LOCK;
                        int now = cop_socket_option(fd, o[i].name);
                        /* Setting it would end TCP's own tuning. */
                        if (now != value &&
                            (f->arg[IMG_SOCK_TYPE] != SOCK_STREAM || f->kind == IMG_FILE_UNIX || locked & bit))
                                cop_socket_set_buffer(fd, o[i].name, value);
                } else if (!is_last(&o[i]))
                        set_option(fd, &o[i]);
        }
        (void)setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &locked, sizeof(locked)); /* setting a size has changed it */
}

void cop_socket_set_options(struct cop_restore *r, const struct img_file *f, int fd)
{
        cop_socket_apply_options(f, cop_image_at(r->image, &f->data), fd);
        if (f->kind == IMG_FILE_NETLINK)
                join_netlink_groups(r, f, fd);
        else if (f->kind == IMG_FILE_INET)
                join_groups(r, f, fd);
}
