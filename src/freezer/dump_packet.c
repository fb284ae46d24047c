/* Packet sockets, as sock_diag tells of them.  What they have received is left out, as a network that is busy loses it. */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/packet_diag.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "freezer/dump_sock.h"

#define MEMBERSHIPS_MAX 64

struct state {
        uint32_t ino; /* of the socket that is looked for */
        bool found;
        uint16_t protocol;
        struct packet_diag_info info;
        struct img_sockopt late[3]; /* two rings and a fanout group */
        size_t late_count;
        struct packet_diag_mclist members[MEMBERSHIPS_MAX];
        size_t member_count;
        bool too_many;
};

static void add_late(struct state *s, int name, const void *value, size_t length)
{
        struct img_sockopt *o = &s->late[s->late_count++];

        *o = (struct img_sockopt){.level = SOL_PACKET, .name = name, .length = (uint32_t)length};
        memcpy(o->value, value, length);
}

static void add_ring(struct state *s, int name, const struct packet_diag_ring *ring)
{
        struct tpacket_req3 request = {.tp_block_size = ring->pdr_block_size,
                                       .tp_block_nr = ring->pdr_block_nr,
                                       .tp_frame_size = ring->pdr_frame_size,
                                       .tp_frame_nr = ring->pdr_frame_nr,
                                       .tp_retire_blk_tov = ring->pdr_retire_tmo,
                                       .tp_sizeof_priv = ring->pdr_sizeof_priv,
                                       .tp_feature_req_word = ring->pdr_features};

        if (request.tp_block_nr)
                add_late(s, name, &request, sizeof(request));
}

static void read_attribute(struct state *s, const struct nlattr *a)
{
        const void *value = a + 1;
        size_t n = a->nla_len - sizeof(*a);

        switch (a->nla_type) {
        case PACKET_DIAG_INFO:
                memcpy(&s->info, value, MIN_OF(n, sizeof(s->info)));
                break;
        case PACKET_DIAG_RX_RING:
        case PACKET_DIAG_TX_RING:
                if (n >= sizeof(struct packet_diag_ring))
                        add_ring(s, a->nla_type == PACKET_DIAG_RX_RING ? PACKET_RX_RING : PACKET_TX_RING, value);
                break;
        case PACKET_DIAG_FANOUT:
                if (n >= sizeof(uint32_t))
                        add_late(s, PACKET_FANOUT, value, sizeof(uint32_t));
                break;
        case PACKET_DIAG_MCLIST:
                s->member_count = MIN_OF(n / sizeof(s->members[0]), (size_t)MEMBERSHIPS_MAX);
                s->too_many = n / sizeof(s->members[0]) > MEMBERSHIPS_MAX;
                memcpy(s->members, value, s->member_count * sizeof(s->members[0]));
                break;
        default:
                break;
        }
}

static int parse(void *table, const struct nlmsghdr *h)
{
        struct state *s = table;
        const struct packet_diag_msg *m = NLMSG_DATA(h);

        if (m->pdiag_ino != s->ino || s->found)
                return 0;
        s->found = true;
        s->protocol = m->pdiag_num;
        for (const struct nlattr *a = NULL; (a = cop_sock_diag_next(h, sizeof(*m), a));)
                read_attribute(s, a);
        return 0;
}

static bool name_interface(int fd, uint32_t index, char *ret)
{
        struct ifreq request = {.ifr_ifindex = (int)index};

        if (ioctl(fd, SIOCGIFNAME, &request) < 0)
                return false;
        memcpy(ret, request.ifr_name, IFNAMSIZ);
        return true;
}

static void put_members(struct cop_dump *d, struct img_file *f, int fd, const struct state *s)
{
        struct img_packet_membership list[MEMBERSHIPS_MAX];
        size_t n = 0;

        for (size_t i = 0; i < s->member_count; i++) {
                const struct packet_diag_mclist *m = &s->members[i];
                struct img_packet_membership r = {.type = m->pdmc_type, .length = m->pdmc_alen, .count = m->pdmc_count};
                memcpy(r.address, m->pdmc_addr, sizeof(r.address));
                if (name_interface(fd, m->pdmc_index, r.interface))
                        list[n++] = r;
        }
        f->groups = cop_image_put(d->writer, list, n * sizeof(list[0]));
}

int cop_dump_packet(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f, int fd,
                    struct cop_error *err)
{
        struct {
                struct nlmsghdr h;
                struct packet_diag_req r;
        } request = {
                .h = {.nlmsg_len = sizeof(request),
                      .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                      .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                .r = {.sdiag_family = AF_PACKET,
                      .pdiag_show = PACKET_SHOW_INFO | PACKET_SHOW_MCLIST | PACKET_SHOW_RING_CFG | PACKET_SHOW_FANOUT},
        };
        struct state s = {.ino = (uint32_t)f->ino};
        struct sockaddr_ll own = {.sll_family = AF_PACKET};
        char name[IFNAMSIZ];

        if (cop_sock_diag_ask(d->net_diag_fd, &request, sizeof(request), parse, &s, NULL) < 0 || !s.found || s.too_many)
                return cop_not_freezable(d, known->proc, err,
                                         "holds a packet socket that the kernel does not tell of (fd %d)", known->fd);
        for (size_t i = 0; i < s.late_count; i++)
                if (s.late[i].name == PACKET_FANOUT && s.late[i].value[2] >= PACKET_FANOUT_CBPF)
                        return cop_not_freezable(d, known->proc, err,
                                                 "has a program share out packets (PACKET_FANOUT, fd %d)", known->fd);
        f->kind = IMG_FILE_PACKET;
        f->arg[IMG_SOCK_STATE] = IMG_SOCK_IDLE;
        f->arg[IMG_SOCK_PROTOCOL] = 0; /* in its address, in network order */
        own.sll_protocol = htons(s.protocol);
        f->path = cop_image_put(d->writer, &own, sizeof(own));
        f->place = (struct img_ref){0};
        if (s.info.pdi_index && name_interface(fd, s.info.pdi_index, name))
                f->place = cop_image_puts(d->writer, name);
        f->peer = cop_image_put(d->writer, s.late, s.late_count * sizeof(s.late[0]));
        put_members(d, f, fd, &s);
        return 0;
}
