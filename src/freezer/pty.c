#include "freezer/pty.h"

#include <asm/termbits.h>
#include <errno.h>
#include <poll.h>
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

/* An empty terminal can be written to, unless its output is stopped.  Much that was printed may still be on its way. */
static bool is_stopped(int slave)
{
        struct pollfd p = {.fd = slave, .events = POLLOUT};

        return poll(&p, 1, 20) == 0;
}

/* In packet mode what is read is not what was written. */
static bool leave_packets(int master)
{
        int on = 0, off = 0;

        return ioctl(master, TIOCGPKT, &on) == 0 && on && ioctl(master, TIOCPKT, &off) == 0;
}

static void enter_packets(int master)
{
        int on = 1;

        (void)ioctl(master, TIOCPKT, &on);
}

/* Only what TCOOFF has stopped is started by TCOON: with both, the other is, too. */
static int start_output(int slave, enum cop_pty_stop *ret_stop)
{
        *ret_stop = COP_PTY_RUNS;
        if (!is_stopped(slave))
                return 0;
        if (ioctl(slave, TCXONC, TCOON) < 0)
                return -errno;
        *ret_stop = is_stopped(slave) ? COP_PTY_CHARACTER : COP_PTY_TCFLOW;
        if (*ret_stop == COP_PTY_CHARACTER && (ioctl(slave, TCXONC, TCOOFF) < 0 || ioctl(slave, TCXONC, TCOON) < 0))
                return -errno;
        return 0;
}

int cop_pty_drain(int master, int slave, const void *state, struct cop_buf *typed, struct cop_buf *printed,
                  enum cop_pty_stop *ret_stop)
{
        struct termios2 was, raw;
        bool packets = leave_packets(master);
        int r = take(master, printed);

        memcpy(&was, state, sizeof(was));
        raw = inert(&was, false); /* without lines, an incomplete one can be read, too */
        if (r == 0 && slave >= 0)
                r = start_output(slave, ret_stop);
        if (r == 0 && slave >= 0) {
                r = ioctl(slave, SET_TERMIOS2, &raw) < 0 ? -errno : take(slave, typed);
                if (ioctl(slave, SET_TERMIOS2, &was) < 0 && r == 0)
                        r = -errno;
        }
        if (packets)
                enter_packets(master);
        return r;
}

static int stop_output(int master, int slave, const struct termios2 *was, enum cop_pty_stop stop)
{
        struct termios2 t = inert(was, was->c_lflag & ICANON);

        t.c_iflag = IXON;
        t.c_cc[VSTART] = was->c_cc[VSTART];
        t.c_cc[VSTOP] = was->c_cc[VSTOP];
        if (stop == COP_PTY_CHARACTER && (ioctl(slave, SET_TERMIOS2, &t) < 0 || write(master, &t.c_cc[VSTOP], 1) != 1))
                return -errno;
        for (int i = 0; stop == COP_PTY_CHARACTER && i < 100 && !is_stopped(slave); i++)
                usleep(500);
        /* Also when the character did nothing, being none by now. */
        return is_stopped(slave) || ioctl(slave, TCXONC, TCOOFF) == 0 ? 0 : -errno;
}

/* The line discipline gets its input from a worker: wait until it has it. */
static void await_typed(int slave, const char *typed, size_t n, bool lines)
{
        const char *last = lines ? memrchr(typed, '\n', n) : typed + n - 1;
        int want = last ? (int)(last - typed) + 1 : 0;

        for (int i = 0; i < 100 && (i < 5 || queued(slave) < want); i++)
                usleep(500);
}

int cop_pty_fill(int master, int slave, const void *state, const struct iovec *typed, const struct iovec *printed,
                 enum cop_pty_stop stop)
{
        struct termios2 was, quiet;
        int r = 0;

        memcpy(&was, state, sizeof(was));
        bool lines = was.c_lflag & ICANON;
        quiet = inert(&was, lines);
        if (typed->iov_len == 0 && printed->iov_len == 0 && stop == COP_PTY_RUNS)
                return 0;
        bool packets = leave_packets(master);
        if (ioctl(slave, SET_TERMIOS2, &quiet) < 0)
                r = -errno;
        if (r == 0 && typed->iov_len > 0) {
                if (write(master, typed->iov_base, typed->iov_len) != (ssize_t)typed->iov_len)
                        r = -EIO;
                await_typed(slave, typed->iov_base, typed->iov_len, lines);
        }
        if (r == 0 && printed->iov_len > 0 &&
            write(slave, printed->iov_base, printed->iov_len) != (ssize_t)printed->iov_len)
                r = -EIO;
        if (r == 0 && stop != COP_PTY_RUNS)
                r = stop_output(master, slave, &was, stop);
        if (ioctl(slave, SET_TERMIOS2, &was) < 0)
                r = -errno;
        if (packets)
                enter_packets(master);
        return r;
}
