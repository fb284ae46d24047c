/* Descriptors that go with a message of a unix socket (SCM_RIGHTS of unix(7)). */
#pragma once

#include <stddef.h>
#include <sys/socket.h>

#define COP_RIGHTS_MAX 253UL /* with one message (SCM_MAX_FD of Linux) */
#define COP_RIGHTS_SPACE(n) CMSG_SPACE((n) * sizeof(int))

/* Puts n descriptors into the message's control buffer, COP_RIGHTS_SPACE(n) bytes and aligned as a struct cmsghdr, which becomes its
 * length. */
void cop_rights_put(struct msghdr *m, const int *fds, size_t n);
/* The first that a received message has, or NULL; how many descriptors those are (NULL: none). */
struct cmsghdr *cop_rights_find(struct msghdr *m);
size_t cop_rights_count(const struct cmsghdr *c);
