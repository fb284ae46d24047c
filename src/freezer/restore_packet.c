/* Packet sockets.  Without a protocol they receive nothing: they get it when all other sockets are there, so that they do not see what a
 * thaw sends. */
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "freezer/restore_sock.h"

int cop_socket_new_packet(const struct cop_restore *r, const struct img_file *f)
{
        struct sockaddr_ll own = {0};

        /* The old kind cannot be given one later. */
        memcpy(&own, cop_socket_address(r, &f->path), MIN_OF((size_t)f->path.length, sizeof(own)));
        return socket(AF_PACKET, (int)f->arg[IMG_SOCK_TYPE] | SOCK_CLOEXEC,
                      f->arg[IMG_SOCK_TYPE] == SOCK_PACKET ? own.sll_protocol : 0);
}

void cop_socket_drop_received(int fd)
{
        char byte;

        while (recv(fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) >= 0)
                ;
}

static void join(int fd, const struct img_packet_membership *m)
{
        char name[sizeof(m->interface) + 1] = {0};
        struct {
                int interface;
                unsigned short type, length;
                unsigned char address[32];
        } request = {.type = m->type, .length = (unsigned short)MIN_OF((size_t)m->length, sizeof(request.address))};

        memcpy(name, m->interface, sizeof(m->interface));
        memcpy(request.address, m->address, sizeof(request.address));
        request.interface = (int)if_nametoindex(name);
        for (uint32_t i = 0; request.interface && i < MIN_OF(m->count, 64U); i++)
                (void)setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof(request));
}

/* An interface that is not there: the network is the caller's affair.  Then nothing is received. */
static int bind_to(struct cop_restore *r, const struct img_file *f, int fd)
{
        struct sockaddr_ll own = {0};
        const char *name = cop_restore_string(r, &f->place);
        struct sockaddr old = {.sa_family = AF_PACKET};

        memcpy(&own, cop_socket_address(r, &f->path), MIN_OF((size_t)f->path.length, sizeof(own)));
        own.sll_ifindex = *name ? (int)if_nametoindex(name) : 0;
        if (*name && !own.sll_ifindex)
                return 0;
        if (f->arg[IMG_SOCK_TYPE] != SOCK_PACKET)
                return bind(fd, (const struct sockaddr *)&own, sizeof(own));
        snprintf(old.sa_data, sizeof(old.sa_data), "%s", name);
        return *name ? bind(fd, &old, sizeof(old)) : 0;
}

int cop_socket_finish_packet(struct cop_restore *r, const struct img_file *f, int fd, struct cop_error *err)
{
        const struct img_sockopt *late = cop_image_at(r->image, &f->peer);
        const struct img_packet_membership *m = cop_image_at(r->image, &f->groups);

        cop_socket_drop_received(fd);
        for (int fanout = 0; fanout < 2; fanout++) { /* a group takes only who is bound */
                if (fanout && bind_to(r, f, fd) < 0)
                        return cop_socket_complain(err, f, "binding its address");
                for (size_t i = 0; i < f->peer.length / sizeof(*late); i++)
                        if ((late[i].name == PACKET_FANOUT) == fanout)
                                (void)setsockopt(fd, late[i].level, late[i].name, late[i].value,
                                                 MIN_OF(late[i].length, (uint32_t)sizeof(late[i].value)));
        }
        for (size_t i = 0; i < f->groups.length / sizeof(*m); i++)
                join(fd, &m[i]);
        return 0;
}
