#include "compare/stack.h"

#include <dirent.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"

#define PATH_MAX_BYTES 65536
#define CHUNK (256u << 10)

/* What the layers of a stack contribute to one folder, topmost first. */
struct part {
        int fd;            /* owned */
        const char *layer; /* borrowed: the path of the layer, which tells it from others */
};

struct cop_compare_stack {
        struct part *parts; /* owned */
        size_t count;
};

struct walk {
        struct cop_compare *c;
        struct cop_buf path;
        unsigned char *chunk;
        EVP_MD_CTX *md;
        struct cop_error *err;
};

struct found {
        struct cop_compare_file file;
        int dir_fd;                     /* borrowed: where the name lies */
        const char *layer;              /* of what decides the name */
        struct cop_compare_stack below; /* of a folder */
};

/* -- stacks -------------------------------------------------------------------------------------------------------- */

static void stack_done(struct cop_compare_stack *s)
{
        for (size_t i = 0; i < s->count; i++)
                cop_close(s->parts[i].fd);
        free(s->parts);
        *s = (struct cop_compare_stack){0};
}

static int stack_add(struct cop_compare_stack *s, int fd, const char *layer)
{
        struct part *more = realloc(s->parts, (s->count + 1) * sizeof(*more));

        if (!more)
                return -ENOMEM;
        s->parts = more;
        s->parts[s->count++] = (struct part){fd, layer};
        return 0;
}

struct cop_compare_stack *cop_compare_close(struct cop_compare_stack *s)
{
        if (s)
                stack_done(s);
        free(s);
        return NULL;
}

static int open_folder(int at_fd, const char *name)
{
        int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

        return fd < 0 ? -errno : fd;
}

int cop_compare_open(const char *const *paths, size_t count, struct cop_compare_stack **ret, struct cop_error *err)
{
        struct cop_compare_stack *s = calloc(1, sizeof(*s));

        if (!s)
                return cop_error_errno(err, ENOMEM, "layers");
        for (size_t i = 0; i < count; i++) {
                int fd = open_folder(AT_FDCWD, paths[i]);
                int r = fd < 0 ? fd : stack_add(s, fd, paths[i]);
                if (r < 0) {
                        cop_close(fd);
                        cop_compare_close(s);
                        return cop_error_errno(err, r, "layer %s", paths[i]);
                }
        }
        *ret = s;
        return 0;
}

static bool same_stack(const struct cop_compare_stack *a, const struct cop_compare_stack *b)
{
        for (size_t i = 0; a->count == b->count && i < a->count; i++)
                if (strcmp(a->parts[i].layer, b->parts[i].layer) != 0)
                        return false;
        return a->count == b->count;
}

static bool has_layer(const struct cop_compare_stack *s, const char *layer)
{
        for (size_t i = 0; i < s->count; i++)
                if (strcmp(s->parts[i].layer, layer) == 0)
                        return true;
        return false;
}

/* -- one name in one stack ------------------------------------------------------------------------------------------- */

static int refuse(struct walk *w, const char *what)
{
        return cop_error_set(w->err, EOPNOTSUPP, COP_ERR_unsupported, "%.300s: %s", w->path.data ? w->path.data : "/",
                             what);
}

/* Adds the folder of one layer; 1 when nothing below it shows. */
static int add_folder(struct walk *w, struct found *f, const struct part *part, const char *name)
{
        char value;
        int fd = open_folder(part->fd, name);

        if (fd < 0) {
                w->c->unopened++;
                return fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM ? cop_error_errno(w->err, fd, "reading layers")
                                                                       : 1;
        }
        if (fgetxattr(fd, "user.overlay.redirect", NULL, 0) >= 0) {
                cop_close(fd);
                return refuse(w, "a layer was made by an overlay with redirects");
        }
        if (stack_add(&f->below, fd, part->layer) < 0) {
                cop_close(fd);
                return cop_error_errno(w->err, ENOMEM, "layers");
        }
        return fgetxattr(fd, "user.overlay.opaque", &value, 1) == 1 && value == 'y';
}

static void found_done(struct found *f)
{
        stack_done(&f->below);
        f->file.fd = cop_close(f->file.fd);
}

static int look_up(struct walk *w, const struct cop_compare_stack *s, const char *name, struct found *ret)
{
        *ret = (struct found){.file.fd = -EBADF, .dir_fd = -EBADF};
        for (size_t i = 0; i < s->count; i++) {
                struct stat st;
                if (fstatat(s->parts[i].fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                        w->c->unopened += errno != ENOENT;
                        continue;
                }
                if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0))
                        return 0;
                if (ret->file.exists && !S_ISDIR(st.st_mode))
                        return 0; /* a folder hides it */
                if (!ret->file.exists) {
                        ret->file.exists = true;
                        ret->file.st = st;
                        ret->dir_fd = s->parts[i].fd;
                        ret->layer = s->parts[i].layer;
                }
                if (!S_ISDIR(st.st_mode))
                        return 0;
                int r = add_folder(w, ret, &s->parts[i], name);
                if (r != 0)
                        return r < 0 ? r : 0;
        }
        return 0;
}

/* -- contents ---------------------------------------------------------------------------------------------------------- */

static int open_regular(struct found *f, const char *name)
{
        struct stat st;
        int fd = openat(f->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
                cop_close(fd);
                return -EINVAL;
        }
        return fd;
}

static int digest(struct walk *w, struct cop_compare_file *f)
{
        unsigned char sum[EVP_MAX_MD_SIZE];
        unsigned length = 0;
        off_t at = 0;
        ssize_t n;

        if (EVP_DigestInit_ex(w->md, EVP_sha256(), NULL) != 1)
                return -EIO;
        while ((n = pread(f->fd, w->chunk, CHUNK, at)) > 0) {
                EVP_DigestUpdate(w->md, w->chunk, (size_t)n);
                at += n;
        }
        if (n < 0 || EVP_DigestFinal_ex(w->md, sum, &length) != 1)
                return -EIO;
        w->c->bytes += (uint64_t)at;
        for (unsigned i = 0; i < length && i < 32; i++)
                snprintf(f->sha256 + (size_t)2 * i, 3, "%02x", sum[i]);
        return 0;
}

/* Its sum, when it is a regular file and there is room for it; else it counts as unread. */
static void read_file(struct walk *w, struct found *f, const char *name)
{
        if (!f->file.exists || !S_ISREG(f->file.st.st_mode))
                return;
        if (w->c->bytes + (uint64_t)f->file.st.st_size > COP_COMPARE_READ_MAX) {
                w->c->unread++;
                return;
        }
        int fd = open_regular(f, name);
        f->file.fd = fd < 0 ? -EBADF : fd;
        if (fd < 0 || digest(w, &f->file) < 0) {
                f->file.sha256[0] = '\0';
                w->c->unopened++;
        }
}

static void read_target(struct found *f, const char *name)
{
        if (!f->file.exists || !S_ISLNK(f->file.st.st_mode))
                return;
        ssize_t n = readlinkat(f->dir_fd, name, f->file.target, sizeof(f->file.target) - 1);
        f->file.target[MAX_OF(n, 0)] = '\0';
}

static bool same_time(const struct stat *a, const struct stat *b)
{
        return a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static bool other_content(struct walk *w, struct found *a, struct found *b, const char *name)
{
        const struct stat *s = &a->file.st, *t = &b->file.st;
        bool full = w->c->told < w->c->full_max, reg = S_ISREG(s->st_mode);

        if (s->st_dev == t->st_dev && s->st_ino == t->st_ino)
                return false;
        if (S_ISLNK(s->st_mode)) {
                read_target(a, name);
                read_target(b, name);
                return strcmp(a->file.target, b->file.target) != 0;
        }
        if (reg && (full || s->st_size == t->st_size)) {
                read_file(w, a, name);
                read_file(w, b, name);
        }
        if (!reg || s->st_size != t->st_size)
                return reg;
        return a->file.sha256[0] && b->file.sha256[0] ? strcmp(a->file.sha256, b->file.sha256) != 0 : !same_time(s, t);
}

/* -- walking ----------------------------------------------------------------------------------------------------------- */

/* The name is at the end of w->path. */
static bool left_out(const struct walk *w, const char *name)
{
        static const char *const paths[] = {"/dev", "/proc", "/run", "/sys", "/etc/hostname", "/etc/hosts"};
        static const char *const names[] = {"__pycache__", ".cache", ".ipython", ".ipynb_checkpoints"};

        for (size_t i = 0; i < ELEMENTSOF(paths); i++)
                if (strcmp(w->path.data, paths[i]) == 0)
                        return true;
        for (size_t i = 0; i < ELEMENTSOF(names); i++)
                if (strcmp(name, names[i]) == 0)
                        return true;
        return false;
}

static int tell(struct walk *w, const struct cop_compare_change *change)
{
        int r = w->c->fn(change, w->c->userdata, w->err);

        w->c->told++;
        return r;
}

/* The name is at the end of w->path. */
static int compare_name(struct walk *w, struct found *a, struct found *b, const char *name)
{
        struct cop_compare_change c = {.path = w->path.data};
        const struct stat *s = &a->file.st, *t = &b->file.st;

        if (a->file.exists && b->file.exists) {
                c.type = (s->st_mode & S_IFMT) != (t->st_mode & S_IFMT);
                c.content = !c.type && !S_ISDIR(s->st_mode) && other_content(w, a, b, name);
                c.mode = !c.type && !S_ISLNK(s->st_mode) && ((s->st_mode ^ t->st_mode) & 07777) != 0;
                c.owner = s->st_uid != t->st_uid || s->st_gid != t->st_gid;
                if (!c.type && !c.content && !c.mode && !c.owner)
                        return 0;
        } else if (w->c->told < w->c->full_max) {
                read_target(a, name);
                read_target(b, name);
        }
        c.a = a->file;
        c.b = b->file;
        return tell(w, &c);
}

static int compare_folders(struct walk *w, const struct cop_compare_stack *a, const struct cop_compare_stack *b,
                           unsigned depth);

static void forget_name(struct walk *w, size_t length)
{
        w->path.len = length;
        w->path.data[length] = '\0';
}

static int compare_one(struct walk *w, const struct cop_compare_stack *a, const struct cop_compare_stack *b,
                       const char *name, unsigned depth)
{
        __attribute__((cleanup(found_done))) struct found x = {.file.fd = -EBADF}, y = {.file.fd = -EBADF};
        size_t length = w->path.len;

        int r = cop_buf_addf(&w->path, "/%s", name);
        if (r < 0)
                return cop_error_errno(w->err, r, "a path of the layers");
        if (left_out(w, name)) {
                forget_name(w, length);
                return 0;
        }
        r = look_up(w, a, name, &x);
        if (r == 0)
                r = look_up(w, b, name, &y);
        bool one = x.layer && y.layer && strcmp(x.layer, y.layer) == 0;
        if (r == 0 && (x.file.exists || y.file.exists) && !one)
                r = compare_name(w, &x, &y, name);
        if (r == 0 && depth >= COP_COMPARE_DEPTH_MAX && (x.below.count > 0 || y.below.count > 0))
                w->c->unopened++;
        else if (r == 0)
                r = compare_folders(w, &x.below, &y.below, depth + 1);
        forget_name(w, length);
        return r;
}

struct names {
        char **list; /* owned */
        size_t count, room;
};

static void names_done(struct names *n)
{
        for (size_t i = 0; i < n->count; i++)
                free(n->list[i]);
        free(n->list);
}

static int add_name(struct names *n, const char *name)
{
        if (n->count == COP_COMPARE_NAMES_MAX)
                return -E2BIG;
        if (n->count == n->room) {
                size_t room = n->room ? 2 * n->room : 64;
                char **list = realloc(n->list, room * sizeof(*list));
                if (!list)
                        return -ENOMEM;
                n->list = list;
                n->room = room;
        }
        n->list[n->count] = strdup(name);
        return n->list[n->count] ? (n->count++, 0) : -ENOMEM;
}

/* The names in the layers that the other stack does not have. */
static int add_own_names(struct names *n, const struct cop_compare_stack *s, const struct cop_compare_stack *other)
{
        int r = 0;

        for (size_t i = 0; r == 0 && i < s->count; i++) {
                if (has_layer(other, s->parts[i].layer))
                        continue;
                int copy = open_folder(s->parts[i].fd, ".");
                _cleanup_closedir_ DIR *dir = copy < 0 ? NULL : fdopendir(copy);
                struct dirent *entry;
                if (!dir) {
                        cop_close(copy);
                        return copy < 0 ? copy : -ENOMEM;
                }
                while (r == 0 && (entry = readdir(dir)))
                        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                                r = add_name(n, entry->d_name);
        }
        return r;
}

static int by_name(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static int compare_folders(struct walk *w, const struct cop_compare_stack *a, const struct cop_compare_stack *b,
                           unsigned depth)
{
        __attribute__((cleanup(names_done))) struct names names = {0};

        if (same_stack(a, b))
                return 0;
        int r = add_own_names(&names, a, b);
        if (r == 0)
                r = add_own_names(&names, b, a);
        if (r < 0)
                return cop_error_errno(w->err, r, "folder %.300s", w->path.len ? w->path.data : "/");
        if (names.count > 0)
                qsort(names.list, names.count, sizeof(*names.list), by_name);
        for (size_t i = 0; r == 0 && i < names.count; i++)
                if (i == 0 || strcmp(names.list[i], names.list[i - 1]) != 0)
                        r = compare_one(w, a, b, names.list[i], depth);
        return r;
}

int cop_compare_run(struct cop_compare *c, struct cop_compare_stack *a, struct cop_compare_stack *b,
                    struct cop_error *err)
{
        struct walk w = {.c = c, .path = COP_BUF(PATH_MAX_BYTES), .chunk = malloc(CHUNK), .err = err};

        w.md = EVP_MD_CTX_new();
        int r = w.chunk && w.md ? compare_folders(&w, a, b, 0) : cop_error_errno(err, ENOMEM, "comparing layers");
        cop_buf_done(&w.path);
        free(w.chunk);
        EVP_MD_CTX_free(w.md);
        return r;
}
