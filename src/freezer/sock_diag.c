/* Questions to sock_diag, and its answers as tables. */
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "freezer/sock_diag.h"

/* One more record in a growing list. */
static void *grow(void *list, size_t count, size_t *allocated, size_t size)
{
        if (count < *allocated)
                return list;
        size_t more = *allocated ? 2 * *allocated : 64;
        void *bigger = reallocarray(list, more, size);
        if (bigger)
                *allocated = more;
        return bigger;
}

int cop_sock_diag_ask(int fd, const void *request, size_t size, int (*parse)(void *table, const struct nlmsghdr *h),
                      void *table, struct cop_error *err)
{
        char buf[32768] __attribute__((aligned(8)));

        if (send(fd, request, size, 0) < 0)
                return cop_error_errno(err, errno, "asking about sockets");
        for (;;) {
                ssize_t n = recv(fd, buf, sizeof(buf), 0);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return cop_error_errno(err, n < 0 ? errno : EIO, "asking about sockets");
                for (struct nlmsghdr *h = (struct nlmsghdr *)buf; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
                        if (h->nlmsg_type == NLMSG_DONE)
                                return 0;
                        if (h->nlmsg_type == NLMSG_ERROR)
                                return cop_error_set(err, EIO, COP_ERR_internal,
                                                     "the kernel does not tell about sockets (sock_diag)");
                        if (parse(table, h) < 0)
                                return cop_error_errno(err, ENOMEM, "asking about sockets");
                }
        }
}

const struct nlattr *cop_sock_diag_next(const struct nlmsghdr *h, size_t header, const struct nlattr *last)
{
        const char *start = (const char *)h;
        size_t at = last ? (size_t)((const char *)last - start) + NLA_ALIGN(last->nla_len)
                         : NLMSG_LENGTH(NLMSG_ALIGN(header));
        const struct nlattr *a = (const void *)(start + at);

        return at + sizeof(*a) <= h->nlmsg_len && a->nla_len >= sizeof(*a) && a->nla_len <= h->nlmsg_len - at ? a
                                                                                                              : NULL;
}

/* ---- unix ---- */

static int add_icons(struct cop_unix_table *t, struct cop_unix_info *u, const uint32_t *inos, size_t n)
{
        if (n == 0)
                return 0;
        if (t->icon_count + n > t->icons_allocated) {
                size_t room = 2 * (t->icon_count + n);
                uint32_t *bigger = reallocarray(t->icons, room, sizeof(*bigger));
                if (!bigger)
                        return -ENOMEM;
                t->icons = bigger;
                t->icons_allocated = room;
        }
        memcpy(t->icons + t->icon_count, inos, n * sizeof(*inos));
        u->icon_first = (uint32_t)t->icon_count;
        u->icons = (uint32_t)n;
        t->icon_count += n;
        return 0;
}

static int parse_unix(void *table, const struct nlmsghdr *h)
{
        struct cop_unix_table *t = table;
        const struct unix_diag_msg *m = NLMSG_DATA(h);
        struct cop_unix_info u = {.ino = m->udiag_ino, .state = m->udiag_state, .type = m->udiag_type};
        int r = 0;

        for (const struct nlattr *a = NULL; (a = cop_sock_diag_next(h, sizeof(*m), a));) {
                const void *value = a + 1;
                size_t n = a->nla_len - sizeof(*a);
                if (a->nla_type == UNIX_DIAG_PEER && n >= 4)
                        memcpy(&u.peer, value, 4);
                else if (a->nla_type == UNIX_DIAG_RQLEN && n >= 8) {
                        memcpy(&u.queued, value, 4);
                        memcpy(&u.backlog, (const char *)value + 4, 4);
                } else if (a->nla_type == UNIX_DIAG_SHUTDOWN && n >= 1)
                        u.shutdown = *(const uint8_t *)value;
                else if (a->nla_type == UNIX_DIAG_ICONS && r == 0)
                        r = add_icons(t, &u, value, n / 4);
        }
        struct cop_unix_info *list = r == 0 ? grow(t->list, t->count, &t->allocated, sizeof(*t->list)) : NULL;
        if (!list)
                return -ENOMEM;
        t->list = list;
        t->list[t->count++] = u;
        return 0;
}

static int compare_unix(const void *a, const void *b)
{
        uint32_t x = ((const struct cop_unix_info *)a)->ino, y = ((const struct cop_unix_info *)b)->ino;

        return (x > y) - (x < y);
}

int cop_unix_table_collect(int diag_fd, struct cop_unix_table *t, struct cop_error *err)
{
        struct {
                struct nlmsghdr h;
                struct unix_diag_req r;
        } request = {
                .h = {.nlmsg_len = sizeof(request),
                      .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                      .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                .r = {.sdiag_family = AF_UNIX,
                      .udiag_states = ~0U,
                      .udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_ICONS | UDIAG_SHOW_RQLEN},
        };
        int r = cop_sock_diag_ask(diag_fd, &request, sizeof(request), parse_unix, t, err);

        if (r == 0 && t->count > 1)
                qsort(t->list, t->count, sizeof(*t->list), compare_unix);
        return r;
}

void cop_unix_table_done(struct cop_unix_table *t)
{
        free(t->list);
        free(t->icons);
        *t = (struct cop_unix_table){0};
}

const struct cop_unix_info *cop_unix_table_find(const struct cop_unix_table *t, uint64_t ino)
{
        struct cop_unix_info key = {.ino = (uint32_t)ino};

        return t->count ? bsearch(&key, t->list, t->count, sizeof(key), compare_unix) : NULL;
}

/* ---- TCP and UDP ---- */

static struct sockaddr_in6 as_ipv6(int family, const void *address, uint16_t port)
{
        static const uint8_t any[4];
        struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = port};

        if (family == AF_INET6)
                memcpy(&a.sin6_addr, address, 16);
        else if (memcmp(address, any, sizeof(any)) != 0) {
                a.sin6_addr.s6_addr[10] = a.sin6_addr.s6_addr[11] = 0xff;
                memcpy(&a.sin6_addr.s6_addr[12], address, 4);
        }
        return a;
}

bool cop_socket_as_ipv6(const void *address, size_t length, struct sockaddr_in6 *ret)
{
        union {
                struct sockaddr any;
                struct sockaddr_in in;
                struct sockaddr_in6 in6;
        } a = {0};

        memcpy(&a, address, length < sizeof(a) ? length : sizeof(a));
        if (a.any.sa_family == AF_INET6 && length >= sizeof(a.in6))
                *ret = a.in6;
        else if (a.any.sa_family == AF_INET && length >= sizeof(a.in))
                *ret = as_ipv6(AF_INET, &a.in.sin_addr, a.in.sin_port);
        else
                return false;
        return true;
}

static uint32_t shutdown_of(const struct nlmsghdr *h)
{
        for (const struct nlattr *a = NULL; (a = cop_sock_diag_next(h, sizeof(struct inet_diag_msg), a));)
                if (a->nla_type == INET_DIAG_SHUTDOWN && a->nla_len > sizeof(*a))
                        return *(const uint8_t *)(a + 1);
        return 0;
}

static int parse_tcp(void *table, const struct nlmsghdr *h)
{
        struct cop_tcp_table *t = table;
        const struct inet_diag_msg *m = NLMSG_DATA(h);
        struct cop_tcp_info *list = grow(t->list, t->count, &t->allocated, sizeof(*t->list));

        if (!list)
                return -ENOMEM;
        t->list = list;
        t->list[t->count++] = (struct cop_tcp_info){
                .local = as_ipv6(m->idiag_family, m->id.idiag_src, m->id.idiag_sport),
                .remote = as_ipv6(m->idiag_family, m->id.idiag_dst, m->id.idiag_dport),
                .ino = m->idiag_inode,
                .queued = m->idiag_rqueue,
                .state = m->idiag_state,
                .shutdown = shutdown_of(h),
        };
        return 0;
}

static int collect_inet(int diag_fd, uint8_t protocol, uint32_t states, struct cop_tcp_table *t, struct cop_error *err)
{
        struct {
                struct nlmsghdr h;
                struct inet_diag_req_v2 r;
        } request = {
                .h = {.nlmsg_len = sizeof(request),
                      .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                      .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                .r = {.sdiag_protocol = protocol, .idiag_states = states},
        };
        static const uint8_t families[] = {AF_INET, AF_INET6};
        int r = 0;

        for (size_t i = 0; i < sizeof(families) && r == 0; i++) {
                request.r.sdiag_family = families[i];
                r = cop_sock_diag_ask(diag_fd, &request, sizeof(request), parse_tcp, t, err);
        }
        return r;
}

int cop_tcp_table_collect(int diag_fd, struct cop_tcp_table *t, struct cop_error *err)
{
        return collect_inet(diag_fd, IPPROTO_TCP,
                            1U << TCP_ESTABLISHED | 1U << TCP_FIN_WAIT1 | 1U << TCP_FIN_WAIT2 | 1U << TCP_TIME_WAIT |
                                    1U << TCP_CLOSE_WAIT | 1U << TCP_LAST_ACK | 1U << TCP_CLOSING,
                            t, err);
}

int cop_tcp_table_collect_served(int diag_fd, struct cop_tcp_table *t, struct cop_error *err)
{
        return collect_inet(diag_fd, IPPROTO_TCP, 1U << TCP_ESTABLISHED | 1U << TCP_CLOSE_WAIT | 1U << TCP_NEW_SYN_RECV,
                            t, err);
}

int cop_udp_table_collect(int diag_fd, struct cop_tcp_table *t, struct cop_error *err)
{
        return collect_inet(diag_fd, IPPROTO_UDP, 1U << TCP_ESTABLISHED | 1U << TCP_CLOSE, t, err);
}

void cop_tcp_table_done(struct cop_tcp_table *t)
{
        free(t->list);
        *t = (struct cop_tcp_table){0};
}
