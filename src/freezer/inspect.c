/* Pretty-printing images. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "freezer/image.h"
#include "freezer/image_tables.h"
#include "freezer/sockets.h"

#define OUT(...)                                            \
        do {                                                \
                int out_r = cop_buf_addf(out, __VA_ARGS__); \
                if (out_r < 0)                              \
                        return out_r;                       \
        } while (0)

static const char *kind_name(uint32_t kind)
{
        static const char *const names[IMG_FILE_KIND_MAX] = {
                "?",       "file",     "folder",   "device", "pipe",  "fifo", "eventfd", "epoll",
                "timerfd", "signalfd", "inotify",  "memfd",  "pidfd", "unix", "inet",    "netlink",
                "ptmx",    "pts",      "external", "shmem",  "proc",  "sysv", "packet",  "kept"};

        return kind < IMG_FILE_KIND_MAX ? names[kind] : "?";
}

static const char *text_of(const struct cop_image *im, const struct img_ref *ref)
{
        return cop_image_at(im, ref);
}

static int print_vma(const struct cop_image *im, uint32_t i, bool pages, struct cop_buf *out)
{
        const struct img_vma *v = IMG_RECORD(im, IMG_VMAS, img_vma, i);

        OUT("    %012llx-%012llx %c%c%c%c", (unsigned long long)v->start, (unsigned long long)v->end,
            v->flags & IMG_VMA_READ ? 'r' : '-', v->flags & IMG_VMA_WRITE ? 'w' : '-',
            v->flags & IMG_VMA_EXEC ? 'x' : '-', v->flags & IMG_VMA_SHARED ? 's' : 'p');
        OUT(" flags %#x extents %u patches %u", v->flags, v->extents, v->patches);
        if (v->file != IMG_NONE)
                OUT(" file %u+%#llx", v->file, (unsigned long long)v->offset);
        if (v->name.length)
                OUT(" [%s]", text_of(im, &v->name));
        OUT("\n");
        for (uint32_t k = 0; pages && k < v->extents + v->patches; k++) {
                bool patch = k >= v->extents;
                const struct img_extent *e = IMG_RECORD(im, IMG_EXTENTS, img_extent,
                                                        patch ? v->first_patch + k - v->extents : v->first_extent + k);
                OUT("        %s %012llx %u pages at %u:%#llx\n", patch ? "patch " : "extent",
                    (unsigned long long)e->address, e->pages, e->source, (unsigned long long)e->offset);
        }
        return 0;
}

static int print_thread(const struct cop_image *im, uint32_t i, struct cop_buf *out)
{
        const struct img_thread *t = IMG_RECORD(im, IMG_THREADS, img_thread, i);

        OUT("    thread %d \"%s\" rip %#llx rsp %#llx rax %lld orig_rax %lld mask %#llx signals %u uid %u caps %#llx\n",
            t->tid, t->comm, (unsigned long long)t->regs.rip, (unsigned long long)t->regs.rsp, (long long)t->regs.rax,
            (long long)t->regs.orig_rax, (unsigned long long)t->sigmask, t->signals, t->creds.uid[1],
            (unsigned long long)t->creds.effective);
        if (t->wait_end)
                OUT("      its call ends %lld ms after the freeze\n",
                    (long long)(t->wait_end - IMG_RECORD(im, IMG_TREE, img_tree, 0)->monotonic_ns) / 1000000);
        return 0;
}

static int print_proc(const struct cop_image *im, uint32_t i, bool pages, struct cop_buf *out)
{
        const struct img_proc *p = IMG_RECORD(im, IMG_PROCS, img_proc, i);
        uint32_t hots;
        int r = 0;

        OUT("  process %d parent %d group %d session %d %s cwd %s\n", p->pid,
            p->parent == IMG_NONE ? 0 : IMG_RECORD(im, IMG_PROCS, img_proc, p->parent)->pid, p->pgid, p->sid,
            p->state == IMG_ZOMBIE    ? "zombie"
            : p->state == IMG_STOPPED ? "stopped"
                                      : "running",
            text_of(im, &p->cwd));
        for (uint32_t k = 0; k < p->threads && r == 0; k++)
                r = print_thread(im, p->first_thread + k, out);
        for (uint32_t k = 0; k < p->vmas && r == 0; k++)
                r = print_vma(im, p->first_vma + k, pages, out);
        const struct img_hot *hot = cop_image_hot(im, p, &hots);
        for (uint32_t k = 0; pages && k < hots; k++)
                OUT("    hot %012llx %u pages\n", (unsigned long long)hot[k].address, hot[k].pages);
        for (uint32_t k = 0; k < p->fds && r == 0; k++) {
                const struct img_fd *fd = IMG_RECORD(im, IMG_FDS, img_fd, p->first_fd + k);
                OUT("    fd %d -> file %u%s\n", fd->fd, fd->file, fd->cloexec ? " cloexec" : "");
        }
        return r;
}

static int print_socket(const struct cop_image *im, const struct img_file *f, struct cop_buf *out)
{
        static const char *const states[] = {"?",      "idle",    "listening", "connected", "pending",
                                             "closed", "waiting", "left",      "connecting"};
        uint64_t state = f->arg[IMG_SOCK_STATE];
        const struct sockaddr_un *a = cop_image_at(im, &f->path);

        OUT("    %s family %d type %d peer %d listener %d shut %d backlog %d",
            state < ELEMENTSOF(states) ? states[state] : "?", (int)f->arg[IMG_SOCK_FAMILY], (int)f->arg[IMG_SOCK_TYPE],
            (int)f->arg[IMG_SOCK_PEER], (int)f->arg[IMG_SOCK_LISTENER], (int)f->arg[IMG_SOCK_SHUTDOWN],
            (int)f->arg[IMG_SOCK_BACKLOG]);
        if (f->kind == IMG_FILE_UNIX && f->path.length > 2)
                OUT(" %s%.*s", a->sun_path[0] ? "" : "@", (int)(f->path.length - 2) - !a->sun_path[0],
                    a->sun_path + !a->sun_path[0]);
        if (f->kind == IMG_FILE_INET && f->path.length >= 4)
                OUT(" port %d", ntohs(((const struct sockaddr_in *)(const void *)a)->sin_port));
        OUT("\n");
        return 0;
}

static int print_all(const struct cop_image *im, bool pages, struct cop_buf *out)
{
        const struct img_header *h = im->header;
        int r = 0;

        OUT("image %s parent %s version %u engine %s\nkernel %s\nxfeatures %#llx\n", h->id,
            h->parent_id[0] ? h->parent_id : "-", h->version, h->engine, h->kernel, (unsigned long long)h->xfeatures);
        for (unsigned k = 1; k < IMG_SECTION_MAX; k++)
                OUT("  %-14s %8u\n", cop_image_section_name(k), im->count[k]);
        for (uint32_t i = 0; i < im->count[IMG_SOURCES]; i++) {
                const struct img_source *s = IMG_RECORD(im, IMG_SOURCES, img_source, i);
                char name[IMG_PAGES_NAME_MAX];
                cop_image_pages_name(s->id, name);
                OUT("  source %u %s %llu bytes\n", i, name, (unsigned long long)s->size);
        }
        for (uint32_t i = 0; i < im->count[IMG_PROCS] && r == 0; i++)
                r = print_proc(im, i, pages, out);
        for (uint32_t i = 0; i < im->count[IMG_FILES] && r == 0; i++) {
                const struct img_file *f = IMG_RECORD(im, IMG_FILES, img_file, i);
                OUT("  file %u %s flags %#o pos %llu link %u %s (%llu %llu %llu) packets %u watches %u extents %u\n", i,
                    kind_name(f->kind), f->flags, (unsigned long long)f->position, f->link, text_of(im, &f->path),
                    (unsigned long long)f->arg[0], (unsigned long long)f->arg[1], (unsigned long long)f->arg[2],
                    f->packets, f->watches, f->extents);
                if (cop_is_socket(f))
                        r = print_socket(im, f, out);
        }
        return r;
}

int cop_image_inspect(const struct cop_image *im, bool pages, struct cop_buf *out, struct cop_error *err)
{
        int r = print_all(im, pages, out);

        return r < 0 ? cop_error_errno(err, -r, "printing the image") : 0;
}
