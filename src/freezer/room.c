/* Room for the pages of an image, made before there are any.
 *
 * Theory of operation.  The first write to a page of a file takes 2 us and more, most of it for a page of memory that the system has to
 * give (and a virtual machine has to ask its host for); to write over one takes 0.6 us.  So who knows that a freeze is likely to come
 * makes a file full of zeros while nobody waits, and the freeze writes over these, cuts off the rest, and gives the file its name.  The
 * file has no name before (O_TMPFILE): whatever happens, nothing of it is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/freezer.h"
#include "freezer/image.h"

#define WANTED_MIN (1u << 20)
#define WANTED_MAX (8u << 20)

int cop_freeze_room_new(int dir_fd, struct cop_freeze_room **ret, struct cop_error *err)
{
        struct cop_freeze_room *room = calloc(1, sizeof(*room));

        if (!room)
                return cop_error_errno(err, ENOMEM, "making room for pages");
        room->fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (room->fd < 0) {
                int r = cop_error_errno(err, errno, "making room for pages");
                free(room);
                return r;
        }
        *ret = room;
        return 0;
}

int cop_freeze_room_grow(struct cop_freeze_room *room, size_t bytes, struct cop_error *err)
{
        static const char zeros[128 << 10];
        uint64_t end = room->size + bytes;

        while (room->size < end) {
                ssize_t n = pwrite(room->fd, zeros, MIN_OF(sizeof(zeros), end - room->size), (off_t)room->size);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return cop_error_errno(err, n < 0 ? errno : EIO, "making room for pages");
                room->size += (uint64_t)n;
        }
        return 0;
}

uint64_t cop_freeze_room_wanted(uint64_t pages)
{
        uint64_t bytes = pages * IMG_PAGE;

        return MIN_OF(MAX_OF(bytes + bytes / 4, (uint64_t)WANTED_MIN), (uint64_t)WANTED_MAX);
}

uint64_t cop_freeze_room_size(const struct cop_freeze_room *room)
{
        return room->size;
}

struct cop_freeze_room *cop_freeze_room_free(struct cop_freeze_room *room)
{
        if (room)
                cop_close(room->fd);
        free(room);
        return NULL;
}
