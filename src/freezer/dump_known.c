/* What is known already while descriptors are collected: descriptions, and the objects behind them.
 *
 * Objects (inodes) are in a hash table.  The descriptions of one object (thousands, for the inode that all eventfds share) are a
 * binary tree in the order of their flags and then of kcmp, which orders descriptions by their scrambled addresses: so the tree
 * needs no balancing, and a descriptor is compared with a handful of others.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "freezer/dump.h"

static size_t slot_of(const struct cop_dump *d, uint64_t dev, uint64_t ino)
{
        uint64_t h = (ino ^ dev << 32 ^ dev >> 32) * 0x9e3779b97f4a7c15ULL;
        size_t i = (size_t)(h >> 32) & (d->objects_allocated - 1);

        while (d->objects[i].used && (d->objects[i].ino != ino || d->objects[i].dev != dev))
                i = (i + 1) & (d->objects_allocated - 1);
        return i;
}

static int grow(struct cop_dump *d)
{
        size_t n = d->objects_allocated;
        struct cop_dump_object *old = d->objects, *bigger = calloc(n ? 2 * n : 256, sizeof(*bigger));

        if (!bigger)
                return -ENOMEM;
        d->objects = bigger;
        d->objects_allocated = n ? 2 * n : 256;
        for (size_t i = 0; i < n; i++)
                if (old[i].used)
                        d->objects[slot_of(d, old[i].dev, old[i].ino)] = old[i];
        free(old);
        return 0;
}

struct cop_dump_object *cop_dump_object(struct cop_dump *d, uint64_t dev, uint64_t ino)
{
        if (d->object_count >= d->objects_allocated / 2 && grow(d) < 0)
                return NULL;
        struct cop_dump_object *o = &d->objects[slot_of(d, dev, ino)];
        if (!o->used) {
                *o = (struct cop_dump_object){.dev = dev, .ino = ino, .used = true};
                d->object_count++;
        }
        return o;
}

/* Where in the tree of its object a description is, or would be. */
static uint32_t *find(struct cop_dump *d, struct cop_dump_object *o, const struct cop_dump_file *f)
{
        uint32_t *at = &o->first;

        while (*at) {
                struct cop_dump_file *other = &d->files[*at - 1];
                /* 0: the same, 1: less, 2: greater. */
                long order = f->flags != other->flags
                                     ? 1 + (f->flags > other->flags)
                                     : syscall(SYS_kcmp, f->pid, other->pid, KCMP_FILE, f->fd, other->fd);
                if (order == 0)
                        break;
                at = order == 1 ? &other->less : &other->greater;
        }
        return at;
}

struct cop_dump_file *cop_dump_known(struct cop_dump *d, const struct cop_dump_file *like)
{
        struct cop_dump_object *o = cop_dump_object(d, like->dev, like->ino);
        uint32_t at = o ? *find(d, o, like) : 0;

        return at ? &d->files[at - 1] : NULL;
}

struct cop_dump_file *cop_dump_known_mapping(struct cop_dump *d, uint64_t dev, uint64_t ino, bool writable)
{
        struct cop_dump_object *o = cop_dump_object(d, dev, ino);

        return o && o->mapping[writable] ? &d->files[o->mapping[writable] - 1] : NULL;
}

struct cop_dump_file *cop_dump_known_index(const struct cop_dump *d, uint32_t index)
{
        size_t low = 0, high = d->file_count; /* in ascending order */

        while (low < high) {
                size_t middle = low + (high - low) / 2;
                if (d->files[middle].index < index)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low < d->file_count && d->files[low].index == index ? &d->files[low] : NULL;
}

struct cop_dump_file *cop_dump_remember(struct cop_dump *d, struct cop_dump_file f)
{
        struct cop_dump_object *o = cop_dump_object(d, f.dev, f.ino);

        if (d->file_count == d->files_allocated) {
                size_t more = d->files_allocated ? 2 * d->files_allocated : 64;
                struct cop_dump_file *bigger = reallocarray(d->files, more, sizeof(*bigger));
                if (!bigger)
                        return NULL;
                d->files = bigger;
                d->files_allocated = more;
        }
        if (!o)
                return NULL;
        f.less = f.greater = 0;
        uint32_t *at = f.mapping ? &o->mapping[(f.flags & O_ACCMODE) == O_RDWR] : find(d, o, &f);
        d->files[d->file_count] = f;
        *at = (uint32_t)++d->file_count;
        return &d->files[d->file_count - 1];
}

uint32_t cop_dump_link(struct cop_dump *d, uint64_t dev, uint64_t ino, bool *ret_new)
{
        struct cop_dump_object *o = cop_dump_object(d, dev, ino);

        *ret_new = !o || !o->link;
        if (*ret_new) {
                d->links++;
                if (o)
                        o->link = d->links;
        }
        return o ? o->link : d->links;
}
