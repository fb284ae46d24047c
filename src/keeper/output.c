/* Theory of operation
 *
 * Each command has two pipes.  The loop calls on_readable for a pipe that has data; one call takes at most READ_MAX bytes
 * and returns, so that with many commands at full speed every one gets its turn and the client's requests get theirs.
 * One static buffer serves all.  When the log is full the bytes go from the pipe to /dev/null with splice, which moves
 * pages without copying: a command that prints for its whole life costs the keeper next to nothing.
 *
 * A pipe is read until its end of file, even long after the main process ended: a child in the background that printed
 * into a pipe without reader would die of SIGPIPE.
 */
#include "command.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define READ_MAX 65536
#define PIPE_SIZE (1024 * 1024)

static int null_fd = -EBADF; /* for splice; opened once, kept for the life of the process */

static ssize_t throw_away(struct cop_output *o, size_t n)
{
        if (null_fd < 0)
                null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
        return splice(o->fd, NULL, null_fd, NULL, n, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
}

/* Takes up to n bytes out; what read(2) returned. */
static ssize_t take(struct cop_command *c, unsigned i, size_t n)
{
        static char buffer[READ_MAX];
        struct cop_output *o = &c->out[i];
        bool full = cop_logfile_full(&c->log);
        ssize_t got;

        do
                got = full ? throw_away(o, n) : read(o->fd, buffer, MIN_OF(n, sizeof(buffer)));
        while (got < 0 && errno == EINTR);
        if (got <= 0)
                return got;
        o->bytes += (uint64_t)got;
        if (full)
                cop_logfile_drop(&c->log, (uint64_t)got);
        else
                cop_logfile_append(&c->log, (unsigned char)(i + 1), buffer, (size_t)got, cop_now(CLOCK_REALTIME));
        if (!c->forgotten) {
                c->log_event = true;
                cop_keep_schedule_flush(c->keep);
        }
        return got;
}

static void close_stream(struct cop_command *c, unsigned i)
{
        struct cop_output *o = &c->out[i];

        o->source = cop_source_free(o->source);
        o->fd = cop_close(o->fd);
        if (!cop_output_eof(c))
                return;
        cop_logfile_sync_mark(&c->log, cop_now(CLOCK_REALTIME));
        cop_logfile_close(&c->log);
        c->eof_event = true;
        cop_keep_schedule_flush(c->keep);
}

static void on_readable(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_output *o = userdata;
        struct cop_command *c = o->command;
        unsigned i = (unsigned)(o - c->out);
        ssize_t n = take(c, i, cop_logfile_full(&c->log) ? PIPE_SIZE : READ_MAX);

        if (n == 0 || (n < 0 && errno != EAGAIN))
                close_stream(c, i);
}

int cop_output_open(struct cop_command *c, unsigned i, uint32_t owner_uid, uint32_t owner_gid, int *ret_write_fd,
                    struct cop_error *err)
{
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return cop_error_errno(err, errno, "output pipe");
        c->out[i].fd = fds[0];
        fcntl(fds[1], F_SETPIPE_SZ, PIPE_SIZE); /* over the user's share of pipe memory it stays at 64 KiB */
        /* A program that opens /dev/stdout goes through the file system's checks: the pipe must belong to its user. */
        if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 || fchown(fds[1], owner_uid, owner_gid) < 0 ||
            fchmod(fds[1], 0622) < 0) {
                int saved = errno;
                close(fds[1]);
                return cop_error_errno(err, saved, "output pipe");
        }
        *ret_write_fd = fds[1];
        return 0;
}

int cop_output_watch(struct cop_command *c, struct cop_error *err)
{
        for (unsigned i = 0; i < 2; i++) {
                if (c->out[i].fd < 0) /* of a thawed command: at its end already */
                        continue;
                int r = cop_loop_add_io(c->keep->loop, c->out[i].fd, EPOLLIN, on_readable, &c->out[i],
                                        &c->out[i].source, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

void cop_output_drain(struct cop_command *c)
{
        for (unsigned i = 0; i < 2; i++) {
                int left = 0;
                if (c->out[i].fd < 0 || ioctl(c->out[i].fd, FIONREAD, &left) < 0)
                        continue;
                /* Not until EAGAIN: a child in the background may print for ever. */
                while (left > 0) {
                        ssize_t n = take(c, i, (size_t)left);
                        if (n <= 0)
                                break;
                        left -= (int)n;
                }
        }
        cop_logfile_sync_mark(&c->log, cop_now(CLOCK_REALTIME));
}

void cop_output_close(struct cop_command *c)
{
        for (unsigned i = 0; i < 2; i++)
                if (c->out[i].fd >= 0)
                        close_stream(c, i);
        cop_logfile_close(&c->log);
}

bool cop_output_eof(const struct cop_command *c)
{
        return c->out[0].fd < 0 && c->out[1].fd < 0;
}
