#include "freezer/pty.h"

#include <asm/termbits.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"

#ifndef FIONREAD
#define FIONREAD 0x541B
#endif
#define GET_TERMIOS2 0x802c542aUL
#define SET_TERMIOS2 0x402c542bUL

_Static_assert(sizeof(struct termios2) <= COP_PTY_STATE, "termios2 has grown");

/* Nothing is echoed, mapped, edited or taken for a signal; with lines or without, as the terminal has it, since a change of
 * that would end a line that is not complete. */
static struct termios2 inert(const struct termios2 *now, bool lines)
{
        struct termios2 t = *now;

        t.c_iflag = 0;
        t.c_oflag = 0;
        t.c_lflag = lines ? ICANON : 0;
        memset(t.c_cc, 0, sizeof(t.c_cc));
        return t;
}

static int queued(int fd)
{
        int n = 0;

        return ioctl(fd, FIONREAD, &n) < 0 ? 0 : n;
}

static int take(int fd, struct cop_buf *buf)
{
        for (int n; (n = queued(fd)) > 0;) {
                ssize_t got = cop_buf_read(buf, fd, (size_t)n);
                if (got <= 0)
                        return got < 0 ? (int)got : 0;
        }
        return 0;
}

int cop_pty_drain(int master, int slave, const void *state, struct cop_buf *typed, struct cop_buf *printed)
{
        struct termios2 was, raw;
        int r = take(master, printed);

        memcpy(&was, state, sizeof(was));
        raw = inert(&was, false); /* without lines, an incomplete one can be read, too */
        if (r < 0 || slave < 0)
                return r;
        if (ioctl(slave, SET_TERMIOS2, &raw) < 0)
                return -errno;
        r = take(slave, typed);
        if (ioctl(slave, SET_TERMIOS2, &was) < 0 && r == 0)
                r = -errno;
        return r;
}

/* The line discipline gets its input from a worker: wait until it has it. */
static void await_typed(int slave, const char *typed, size_t n, bool lines)
{
        const char *last = lines ? memrchr(typed, '\n', n) : typed + n - 1;
        int want = last ? (int)(last - typed) + 1 : 0;

        for (int i = 0; i < 100 && (i < 5 || queued(slave) < want); i++)
                usleep(500);
}

int cop_pty_fill(int master, int slave, const void *state, const struct iovec *typed, const struct iovec *printed)
{
        struct termios2 was, quiet;
        int r = 0;

        memcpy(&was, state, sizeof(was));
        bool lines = was.c_lflag & ICANON;
        quiet = inert(&was, lines);
        if (typed->iov_len == 0 && printed->iov_len == 0)
                return 0;
        if (ioctl(slave, SET_TERMIOS2, &quiet) < 0)
                return -errno;
        if (typed->iov_len > 0) {
                if (write(master, typed->iov_base, typed->iov_len) != (ssize_t)typed->iov_len)
                        r = -EIO;
                await_typed(slave, typed->iov_base, typed->iov_len, lines);
        }
        if (printed->iov_len > 0 && write(slave, printed->iov_base, printed->iov_len) != (ssize_t)printed->iov_len)
                r = -EIO;
        if (ioctl(slave, SET_TERMIOS2, &was) < 0)
                r = -errno;
        return r;
}
