/* An answer of the kernel that waits in a netlink socket: nobody else can send it again.
 * victim: refuse=netlink */
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include "../sock.h"

int main(void)
{
        struct {
                struct nlmsghdr header;
                struct rtgenmsg what;
        } request = {
                {.nlmsg_len = sizeof(request), .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                {.rtgen_family = AF_UNSPEC}};
        char buf[8192];
        int fd = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE);

        CHECK(send(fd, &request, sizeof(request), 0) == sizeof(request));
        victim_ready();
        victim_wait();
        CHECK(recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0);
        victim_pass();
}
