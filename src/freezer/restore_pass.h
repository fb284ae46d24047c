/* The socket between the engine and the stubs of a thaw, for descriptors: the engine gives the first process files that it has opened, and
 * each process that is watched gives the engine its watch.  Each descriptor goes with a number that says what it is.  It keeps messages
 * apart (SOCK_SEQPACKET), and all stubs share one end. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/rights.h"

struct cop_passed {
        uint32_t number[COP_RIGHTS_MAX];
        int fd[COP_RIGHTS_MAX];
        size_t count;
};

/* Neither waits.  0 or -errno: -EAGAIN, -ETOOMANYREFS; -EAGAIN when nothing has come, -EMFILE when something has come to nothing.  What
 * was received is owned by the caller; what was sent is still owned by it, too. */
int cop_pass_send(int fd, const struct cop_passed *f);
int cop_pass_receive(int fd, struct cop_passed *ret);
void cop_pass_close(struct cop_passed *f);
