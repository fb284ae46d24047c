#include "freezer/restore_pass.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/cleanup.h"

int cop_pass_send(int fd, const struct cop_passed *f)
{
        char control[COP_RIGHTS_SPACE(COP_RIGHTS_MAX)] __attribute__((aligned(8)));
        struct iovec iov = {.iov_base = (void *)(uintptr_t)f->number, .iov_len = f->count * sizeof(f->number[0])};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};

        cop_rights_put(&m, f->fd, f->count);
        return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int cop_pass_receive(int fd, struct cop_passed *ret)
{
        char control[COP_RIGHTS_SPACE(COP_RIGHTS_MAX)] __attribute__((aligned(8)));
        struct iovec iov = {.iov_base = ret->number, .iov_len = sizeof(ret->number)};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        ret->count = 0;
        if (n < 0)
                return -errno;
        const struct cmsghdr *c = cop_rights_find(&m);
        ret->count = cop_rights_count(c);
        if (ret->count > 0)
                memcpy(ret->fd, CMSG_DATA(c), ret->count * sizeof(ret->fd[0]));
        if (ret->count > 0 && (size_t)n == ret->count * sizeof(ret->number[0]) && !(m.msg_flags & MSG_CTRUNC))
                return 0;
        cop_pass_close(ret); /* no numbers were left for the rest */
        return -EMFILE;
}

void cop_pass_close(struct cop_passed *f)
{
        for (size_t i = 0; i < f->count; i++)
                close(f->fd[i]);
        f->count = 0;
}
