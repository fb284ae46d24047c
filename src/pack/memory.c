#include "pack/memory.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/image.h"
#include "freezer/sockets.h"
#include "keeper/saved.h"
#include "sandbox/lockdown.h"

COP_DEFINE_CLEANUP(struct cop_image *, cop_image_free);

static int mismatch(const char *kind, uint32_t number, const char *what, struct cop_error *err)
{
        return cop_error_set(
                err, EXDEV, COP_ERR_image_mismatch,
                "%s %u of the pack's memory %s: it was saved by another build of Coppice or was tampered with; unpack "
                "its files alone (coppice unpack --files-only)",
                kind, number, what);
}

static bool has_filter(const struct cop_image *image, const struct img_thread *t)
{
        size_t size;
        const void *ours = cop_lockdown_filter(&size);

        for (uint32_t i = 0; i < t->filters; i++) {
                const struct img_filter *f = IMG_RECORD(image, IMG_FILTERS, img_filter, t->first_filter + i);
                if (f->program.length == size && memcmp(cop_image_at(image, &f->program), ours, size) == 0)
                        return true;
        }
        return false;
}

/* A thaw gives a thread what its image says, so the image must not say more than a start would. */
static int check_thread(const struct cop_image *image, const struct img_thread *t, struct cop_error *err)
{
        const struct img_creds *c = &t->creds;

        if (!cop_lockdown_allows(c->inheritable | c->permitted | c->effective | c->bounding | c->ambient))
                return mismatch("thread", (uint32_t)t->tid, "has capabilities that a sandbox must not have", err);
        return has_filter(image, t)
                       ? 0
                       : mismatch("thread", (uint32_t)t->tid, "lacks this engine's system call filter", err);
}

static int check_process(const struct cop_image *image, const struct img_proc *p, struct cop_error *err)
{
        const uint64_t *core = p->rlimits[RLIMIT_CORE];
        int r = 0;

        for (uint32_t i = 0; r == 0 && i < p->threads; i++) {
                const struct img_thread *t = IMG_RECORD(image, IMG_THREADS, img_thread, p->first_thread + i);
                r = check_thread(image, t, err);
                if (r == 0 && (core[0] != 1 || core[1] != 1))
                        r = mismatch("thread", (uint32_t)t->tid, "may dump core", err);
        }
        return r;
}

/* Those of the rules for socket(2) in sandbox/seccomp-rules.c.  A thaw makes sockets before the filter is there, with all rights over the
 * sandbox's network. */
static bool allows_socket(const struct img_file *f)
{
        uint64_t family = f->arg[IMG_SOCK_FAMILY], type = f->arg[IMG_SOCK_TYPE];

        switch (f->kind) {
        case IMG_FILE_UNIX:
                return family == AF_UNIX;
        case IMG_FILE_INET:
                return (family == AF_INET || family == AF_INET6) && (type == SOCK_STREAM || type == SOCK_DGRAM) &&
                       !cop_socket_is_echo(f);
        case IMG_FILE_NETLINK:
                return family == AF_NETLINK && f->arg[IMG_SOCK_PROTOCOL] == NETLINK_ROUTE;
        default:
                return !cop_is_socket(f);
        }
}

static int check_saved(int root_fd, struct cop_error *err)
{
        struct cop_saved_command *list = NULL;
        size_t count;
        int r = cop_saved_read(root_fd, &list, &count, err);

        free(list);
        return r;
}

int cop_pack_check_memory(int root_fd, struct cop_error *err)
{
        _cleanup_close_ int mem_fd = openat(root_fd, "mem", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_(cop_image_freep) struct cop_image *image = NULL;
        struct stat st;

        int r = fstatat(root_fd, "init", &st, AT_SYMLINK_NOFOLLOW) < 0 || mem_fd < 0
                        ? cop_error_set(err, EBADMSG, COP_ERR_pack_damaged,
                                        "the pack is damaged: it lacks the memory that its manifest tells of")
                        : cop_image_open(mem_fd, true, &image, err);
        if (r == 0)
                r = cop_image_verify(image, err);
        if (r == 0)
                r = check_saved(root_fd, err);
        for (uint32_t i = 0; r == 0 && i < image->count[IMG_PROCS]; i++)
                r = check_process(image, IMG_RECORD(image, IMG_PROCS, img_proc, i), err);
        for (uint32_t i = 0; r == 0 && i < image->count[IMG_FILES]; i++)
                if (!allows_socket(IMG_RECORD(image, IMG_FILES, img_file, i)))
                        r = mismatch("file", i, "is a socket that a sandbox must not have", err);
        return r;
}
