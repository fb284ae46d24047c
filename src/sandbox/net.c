#include "net.h"

#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/cleanup.h"

int cop_net_loopback_up(struct cop_error *err)
{
        _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK};

        /* The kernel gives lo its addresses 127.0.0.1/8 and ::1 when it comes up. */
        if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
                return cop_error_errno(err, errno, "bringing up the loopback interface of the sandbox");
        return 0;
}
