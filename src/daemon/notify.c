#include "daemon/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"

void cop_notify(const char *lines)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        const char *path = getenv("NOTIFY_SOCKET");
        _cleanup_close_ int fd = -EBADF;

        if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof(address.sun_path))
                return;
        memcpy(address.sun_path, path, strlen(path)); /* zeroed behind it */
        socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
        if (*path == '@')
                address.sun_path[0] = '\0';
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd >= 0)
                (void)!sendto(fd, lines, strlen(lines), MSG_NOSIGNAL, (struct sockaddr *)&address, len);
}
