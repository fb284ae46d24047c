#include "rights.h"

#include <string.h>

void cop_rights_put(struct msghdr *m, const int *fds, size_t n)
{
        m->msg_controllen = COP_RIGHTS_SPACE(n);
        struct cmsghdr *c = CMSG_FIRSTHDR(m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
}

struct cmsghdr *cop_rights_find(struct msghdr *m)
{
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
                if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
                        return c;
        return NULL;
}

size_t cop_rights_count(const struct cmsghdr *c)
{
        return c ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
}
