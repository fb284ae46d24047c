/* The queues of a pty: what was typed and not read yet, what was printed and not read yet.  Neither can be peeked, so they are
 * taken out and, where the terminal goes on, put back in the same stop. */
#pragma once

#include <stddef.h>
#include <sys/uio.h>

#include "base/buf.h"

#define COP_PTY_STATE 64 /* room for struct termios2 */

/* What has stopped a terminal's output. */
enum cop_pty_stop { COP_PTY_RUNS, COP_PTY_TCFLOW, COP_PTY_CHARACTER /* ^S */ };

/* Master and slave are descriptors of ours; state is the slave's termios2, left as it was.  Both buffers have limits.  Output that is
 * stopped goes on until it is stopped again by cop_pty_fill().  The master may be in packet mode, of which statuses that were not read
 * are lost. */
int cop_pty_drain(int master, int slave, const void *state, struct cop_buf *typed, struct cop_buf *printed,
                  enum cop_pty_stop *ret_stop);
int cop_pty_fill(int master, int slave, const void *state, const struct iovec *typed, const struct iovec *printed,
                 enum cop_pty_stop stop);
