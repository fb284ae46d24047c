/* Netlink sockets: fresh ones after the thaw, with their port, that answer a new request. */
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "../victim.h"

int main(void)
{
        struct sockaddr_nl a = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK}, now = {0};
        socklen_t n = sizeof(now);
        int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE),
            un = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE);

        CHECK(fd >= 0 && un >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
              getsockname(fd, (struct sockaddr *)&a, &n) == 0);
        victim_ready();
        victim_wait();
        CHECK(getsockname(fd, (struct sockaddr *)&now, &n) == 0 && now.nl_pid == a.nl_pid &&
              now.nl_groups == a.nl_groups);
        struct {
                struct nlmsghdr h;
                struct ifinfomsg m;
        } req = {.h = {.nlmsg_len = sizeof(req),
                       .nlmsg_type = RTM_GETLINK,
                       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                       .nlmsg_seq = 1}};
        static char buf[16384];
        for (int i = 0; i < 2; i++) {
                int s = i ? un : fd;
                CHECK(send(s, &req, sizeof(req), 0) == (ssize_t)sizeof(req));
                CHECK(recv(s, buf, sizeof(buf), 0) > 0 && ((struct nlmsghdr *)buf)->nlmsg_type == RTM_NEWLINK);
        }
        victim_pass();
}
