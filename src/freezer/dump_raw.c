/* Raw sockets and those for ICMP echo requests (ping).
 *
 * What they have received is left out, as the network may lose it: a packet sent again would reach all of them, and the kernel itself
 * would answer it.  The kernel does not name the peer of one that is connected to no port; it stands in /proc/PID/net.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/dump_sock.h"

static bool is_connected(int fd, bool six)
{
        int mtu;
        socklen_t length = sizeof(mtu);

        return getsockopt(fd, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU : IP_MTU, &mtu, &length) == 0;
}

/* "  58: 00000000:003A 0100007F:0000 01 00000000:00000000 00:00000000 00000000     0        0 1234 2 …": addresses in words of the
 * machine.  Whether it is the line of this socket. */
static bool read_line(const char *line, const struct img_file *f, struct sockaddr_in6 *six, struct sockaddr_in *four)
{
        char address[33];
        unsigned port, words[4] = {0};
        unsigned long long ino;

        if (sscanf(line, " %*d: %*[^:]:%*x %32[0-9A-Fa-f]:%x %*x %*x:%*x %*x:%*x %*x %*u %*d %llu", address, &port,
                   &ino) != 3 ||
            ino != f->ino)
                return false;
        for (size_t i = 0; i < strlen(address) / 8; i++)
                sscanf(address + 8 * i, "%8x", &words[i]);
        *six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
        *four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        memcpy(&six->sin6_addr, words, sizeof(six->sin6_addr));
        memcpy(&four->sin_addr, words, sizeof(four->sin_addr));
        return true;
}

static bool find_peer(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f)
{
        bool six = f->arg[IMG_SOCK_FAMILY] == AF_INET6, raw = f->arg[IMG_SOCK_TYPE] == SOCK_RAW;
        const char *name = raw ? six ? "net/raw6" : "net/raw" : six ? "net/icmp6" : "net/icmp";
        _cleanup_free_ char *text = NULL;
        struct sockaddr_in6 to6;
        struct sockaddr_in to4;

        if (cop_read_file(d->tree.procs[known->proc].dir_fd, name, 16UL << 20, &text, NULL, NULL) < 0)
                return false;
        for (const char *line = text; line; line = strchr(line, '\n')) {
                line += *line == '\n';
                if (!read_line(line, f, &to6, &to4))
                        continue;
                f->peer =
                        six ? cop_image_put(d->writer, &to6, sizeof(to6)) : cop_image_put(d->writer, &to4, sizeof(to4));
                return true;
        }
        return false;
}

int cop_dump_raw(struct cop_dump *d, const struct cop_dump_file *known, struct img_file *f, int fd,
                 struct cop_error *err)
{
        f->arg[IMG_SOCK_STATE] = IMG_SOCK_IDLE;
        if (f->peer.length <= sizeof(sa_family_t) && is_connected(fd, f->arg[IMG_SOCK_FAMILY] == AF_INET6) &&
            !find_peer(d, known, f))
                return cop_not_freezable(d, known->proc, err,
                                         "has connected a raw socket to somebody the kernel does not name (fd %d)",
                                         known->fd);
        return 0;
}
