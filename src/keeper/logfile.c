#include "logfile.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sandbox/wire.h"

#define FRAME_MAX 65536
#define HEADER sizeof(struct cop_log_frame)

int cop_logfile_create(int dir_fd, const char *name, uint64_t max, struct cop_logfile *ret, struct cop_error *err)
{
        const uint32_t header[2] = {COP_LOG_MAGIC, 0};
        _cleanup_close_ int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

        if (fd < 0 && errno == EEXIST)
                return cop_error_set(err, EEXIST, COP_ERR_in_use, "the log %s exists; choose another key or remove it",
                                     name);
        if (fd < 0)
                return cop_error_errno(err, errno, "creating the log %s", name);
        if (write(fd, header, sizeof(header)) != sizeof(header)) {
                int saved = errno;
                unlinkat(dir_fd, name, 0);
                return cop_error_errno(err, saved, "writing the log %s", name);
        }
        *ret = (struct cop_logfile){.fd = TAKE_FD(fd), .size = sizeof(header), .room = max};
        return 0;
}

int cop_logfile_reopen(int dir_fd, const char *name, uint64_t size, uint64_t room, uint64_t dropped, uint64_t mark_at,
                       struct cop_logfile *ret, struct cop_error *err)
{
        _cleanup_close_ int fd = openat(dir_fd, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return cop_error_errno(err, errno, "going on with the log %s", name);
        if ((uint64_t)st.st_size < size) /* never longer than it was: zeros are no frames */
                size = (uint64_t)st.st_size;
        if (ftruncate(fd, (off_t)size) < 0)
                return cop_error_errno(err, errno, "going on with the log %s", name);
        if (mark_at + sizeof(dropped) > size)
                mark_at = 0;
        *ret = (struct cop_logfile){
                .fd = TAKE_FD(fd), .size = size, .room = room, .dropped = dropped, .mark_at = mark_at};
        return 0;
}

/* One frame at the end of the file, all or nothing. */
static int write_frame(struct cop_logfile *l, unsigned char stream, const void *data, size_t n, usec_t realtime)
{
        struct cop_log_frame frame = {.stream = stream, .length = (unsigned)n, .time = realtime};
        struct iovec iov[2] = {{&frame, sizeof(frame)}, {(void *)data, n}};
        ssize_t done;

        do
                done = pwritev(l->fd, iov, 2, (off_t)l->size);
        while (done < 0 && errno == EINTR);
        if (done == (ssize_t)(sizeof(frame) + n)) {
                l->size += sizeof(frame) + n;
                return 0;
        }
        if (done > 0 && ftruncate(l->fd, (off_t)l->size) < 0)
                return -errno; /* the reader stops at the first frame that is not whole */
        return -ENOSPC;
}

void cop_logfile_append(struct cop_logfile *l, unsigned char stream, const void *data, size_t n, usec_t realtime)
{
        const char *p = data;

        while (n > 0 && l->room > HEADER && l->fd >= 0) {
                size_t most = l->room - HEADER < FRAME_MAX ? (size_t)(l->room - HEADER) : FRAME_MAX;
                size_t part = MIN_OF(n, most);
                if (write_frame(l, stream, p, part, realtime) < 0) {
                        l->room = 0; /* after a gap nothing may follow as if there were none */
                        break;
                }
                l->room -= HEADER + part;
                p += part;
                n -= part;
        }
        if (n > 0)
                l->room = 0; /* the same when only a header would still fit */
        cop_logfile_drop(l, n);
}

void cop_logfile_drop(struct cop_logfile *l, uint64_t n)
{
        if (n == 0)
                return;
        l->dropped += n;
        l->mark_stale = true;
}

bool cop_logfile_full(const struct cop_logfile *l)
{
        return l->room <= HEADER || l->fd < 0;
}

void cop_logfile_sync_mark(struct cop_logfile *l, usec_t realtime)
{
        if (!l->mark_stale || l->fd < 0)
                return;
        if (l->mark_at == 0) {
                uint64_t at = l->size + sizeof(struct cop_log_frame);
                if (write_frame(l, 3, &l->dropped, sizeof(l->dropped), realtime) < 0)
                        return; /* disk full: again when more is dropped or at the end */
                l->mark_at = at;
                l->mark_stale = false;
        } else if (pwrite(l->fd, &l->dropped, sizeof(l->dropped), (off_t)l->mark_at) == sizeof(l->dropped)) {
                l->mark_stale = false;
        }
}

void cop_logfile_close(struct cop_logfile *l)
{
        l->fd = cop_close(l->fd);
}
