/* Theory of operation: see capture.h.
 *
 * What makes the last pass short.  A pass keeps in memory what it found: per folder its names, per name what the file was known by.
 * A folder whose change time is the same has the same names and attributes, so it is not read again; its files are looked at with one
 * fstatat each, and nothing else happens to those that are the same.  Descriptors of the layer and the parent are opened
 * when something must be done there.
 *
 * Names of one file.  A file with several names is copied for the first name that a pass meets and linked for the others; such files
 * are never taken as the same by name alone, because the first pass may have missed a name.  Whiteouts are among
 * them: an overlay makes them links of one device node.
 */
#include "keeper/capture.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "keeper/capture-copy.h"

#define DEPTH_MAX 400
#define SEEN_MAX 500000 /* names kept in memory between passes: some 60 MB */
#define LINK_SLOTS 4096

struct item {                              /* a name in a folder */
        struct cop_capture_folder *folder; /* owned; of a folder */
        struct cop_capture_note note;
        bool known; /* the layer has exactly that */
        char name[];
};

struct cop_capture_folder {
        struct cop_capture_note note;
        bool known;
        struct item **items; /* owned, sorted by name */
        size_t count, room;
};

struct link { /* a file with several names: where its copy is */
        struct link *next;
        uint64_t ino, layer_ino;
        char path[]; /* in the layer */
};

struct cop_capture_link {
        struct link *slot[LINK_SLOTS];
};

struct frame { /* one folder in the three trees */
        struct frame *up;
        const char *name;
        int upper, layer, parent;
        bool parent_looked, touched; /* touched: entries were made or removed, so the times are to be set again */
        int depth;
};

/* -- what is remembered ------------------------------------------------------------------------------------------------------- */

static struct cop_capture_folder *folder_free(struct cop_capture *c, struct cop_capture_folder *d)
{
        if (!d)
                return NULL;
        for (size_t i = 0; i < d->count; i++) {
                folder_free(c, d->items[i]->folder);
                free(d->items[i]);
        }
        c->seen_count -= d->count;
        free(d->items);
        free(d);
        return NULL;
}

static void links_free(struct cop_capture *c)
{
        for (size_t i = 0; c->links && i < LINK_SLOTS; i++)
                while (c->links->slot[i]) {
                        struct link *l = c->links->slot[i];
                        c->links->slot[i] = l->next;
                        free(l);
                }
        cop_freep(&c->links);
}

void cop_capture_done(struct cop_capture *c)
{
        c->seen = folder_free(c, c->seen);
        links_free(c);
}

static int by_name(const void *a, const void *b)
{
        return strcmp((*(struct item *const *)a)->name, (*(struct item *const *)b)->name);
}

static int name_is(const void *name, const void *item)
{
        return strcmp(name, (*(struct item *const *)item)->name);
}

static struct item **find_item(const struct cop_capture_folder *d, const char *name)
{
        return d->count ? bsearch(name, d->items, d->count, sizeof(struct item *), name_is) : NULL;
}

static int add_item(struct cop_capture *c, struct cop_capture_folder *d, const char *name)
{
        size_t n = strlen(name) + 1;

        if (d->count == d->room) {
                size_t room = d->room ? 2 * d->room : 16;
                struct item **items = reallocarray(d->items, room, sizeof(*items));
                if (!items)
                        return -ENOMEM;
                d->items = items;
                d->room = room;
        }
        struct item *item = calloc(1, sizeof(*item) + n);
        if (!item)
                return -ENOMEM;
        memcpy(item->name, name, n);
        d->items[d->count++] = item;
        c->seen_count++;
        return 0;
}

static bool same_note(const struct cop_capture_note *a, const struct cop_capture_note *b)
{
        return a->ino == b->ino && a->size == b->size && a->ctime_sec == b->ctime_sec && a->ctime_nsec == b->ctime_nsec;
}

/* -- the trees ---------------------------------------------------------------------------------------------------------------- */

static int layer_of(struct frame *f)
{
        struct stat have;

        if (f->layer >= 0 || !f->up)
                return f->layer;
        int up = layer_of(f->up);
        if (up < 0)
                return up;
        if (fstatat(up, f->name, &have, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(have.st_mode)) {
                f->up->touched = true;
                if ((unlinkat(up, f->name, 0) < 0 && errno != ENOENT) || mkdirat(up, f->name, 0700) < 0)
                        return -errno;
        }
        f->layer = openat(up, f->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return f->layer < 0 ? -errno : f->layer;
}

static int parent_of(struct frame *f)
{
        if (f->parent_looked)
                return f->parent;
        f->parent_looked = true;
        int up = parent_of(f->up);
        if (up >= 0)
                f->parent = openat(up, f->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return f->parent;
}

/* Nothing of that name is in the layer afterwards. */
static int make_room(struct frame *f, const char *name)
{
        int layer = layer_of(f);

        if (layer < 0)
                return layer;
        f->touched = true;
        if (unlinkat(layer, name, 0) == 0 || errno == ENOENT)
                return 0;
        return cop_remove_tree(layer, name, NULL);
}

/* -- several names ------------------------------------------------------------------------------------------------------------ */

static struct link *find_link(struct cop_capture *c, uint64_t ino)
{
        struct link *l = c->links ? c->links->slot[ino % LINK_SLOTS] : NULL;

        while (l && l->ino != ino)
                l = l->next;
        return l;
}

static size_t path_length(const struct frame *f)
{
        return f->up ? path_length(f->up) + strlen(f->name) + 1 : 0;
}

static char *write_path(const struct frame *f, char *at)
{
        return f->up ? stpcpy(stpcpy(write_path(f->up, at), f->name), "/") : at;
}

static int remember_link(struct cop_capture *c, struct frame *f, const char *name, uint64_t ino)
{
        struct stat st;
        int layer = layer_of(f);

        if (layer < 0 || fstatat(layer, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return layer < 0 ? layer : -errno;
        if (!c->links && !(c->links = calloc(1, sizeof(*c->links))))
                return -ENOMEM;
        struct link *l = calloc(1, sizeof(*l) + path_length(f) + strlen(name) + 1);
        if (!l)
                return -ENOMEM;
        memcpy(write_path(f, l->path), name, strlen(name) + 1);
        l->ino = ino;
        l->layer_ino = st.st_ino;
        l->next = c->links->slot[ino % LINK_SLOTS];
        c->links->slot[ino % LINK_SLOTS] = l;
        return 0;
}

/* The folder in which a link's copy lies, by single steps: the whole path may be longer than the kernel takes. */
static int open_folder_of(struct cop_capture *c, char *path, char **ret_name)
{
        int fd = openat(c->layer_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

        for (char *slash; fd >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
                *slash = '\0';
                int next = openat(fd, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                int saved = errno;
                cop_close(fd);
                errno = saved;
                fd = next;
        }
        *ret_name = path;
        return fd < 0 ? -errno : fd;
}

/* -EMLINK: no more names for that copy. */
static int link_again(struct cop_capture *c, struct frame *f, const char *name, const struct link *l)
{
        struct stat have;
        int layer = layer_of(f);

        if (layer < 0)
                return layer;
        if (fstatat(layer, name, &have, AT_SYMLINK_NOFOLLOW) == 0 && have.st_ino == l->layer_ino)
                return 0;
        int r = make_room(f, name);
        _cleanup_free_ char *path = strdup(l->path);
        if (r < 0 || !path)
                return r < 0 ? r : -ENOMEM;
        char *last;
        _cleanup_close_ int dir = open_folder_of(c, path, &last);
        if (dir < 0)
                return dir;
        return linkat(dir, last, layer, name, 0) < 0 ? -errno : 0;
}

/* -- one name ----------------------------------------------------------------------------------------------------------------- */

/* settled: of *st, which becomes what was copied. */
static int capture_file(struct cop_capture *c, struct frame *f, const char *name, struct stat *st, bool *settled)
{
        struct cop_capture_note note = cop_capture_note_of(st);
        int layer = layer_of(f);

        if (layer < 0)
                return layer;
        if (!c->plain && cop_capture_is_current(layer, name, &note))
                return 0;
        int r = make_room(f, name);
        if (r < 0)
                return r;
        if (!c->plain && cop_capture_is_current(parent_of(f), name, &note) &&
            linkat(f->parent, name, layer, name, 0) == 0)
                return 0;
        return cop_capture_copy_file(c, f->upper, layer, name, st, settled);
}

static int capture_other(struct cop_capture *c, struct frame *f, const char *name, const struct stat *st)
{
        int r = make_room(f, name);

        if (r < 0 || (S_ISSOCK(st->st_mode) && c->no_sockets))
                return r;
        return S_ISLNK(st->st_mode) ? cop_capture_copy_symlink(f->upper, f->layer, name, st)
                                    : cop_capture_copy_special(f->upper, f->layer, name, st);
}

static int visit_folder(struct cop_capture *c, struct frame *f, struct cop_capture_folder *d);

static int enter_folder(struct cop_capture *c, struct frame *f, struct item *item)
{
        struct frame inner = {.up = f, .name = item->name, .layer = -EBADF, .parent = -EBADF, .depth = f->depth + 1};

        if (f->depth >= DEPTH_MAX)
                return -ELOOP;
        inner.upper = openat(f->upper, item->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner.upper < 0)
                return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? -ESTALE : -errno;
        if (!item->folder)
                item->folder = calloc(1, sizeof(*item->folder));
        int r = item->folder ? visit_folder(c, &inner, item->folder) : -ENOMEM;
        cop_close(inner.upper);
        cop_close(inner.layer);
        cop_close(inner.parent);
        return r;
}

static int capture_file_or_other(struct cop_capture *c, struct frame *f, struct item *item, struct stat *st,
                                 bool *settled)
{
        bool several = st->st_nlink > 1 && !c->plain;
        uint64_t ino = st->st_ino;
        struct link *l = several ? find_link(c, ino) : NULL;
        int r;

        item->folder = folder_free(c, item->folder);
        if (l && (r = link_again(c, f, item->name, l)) != -EMLINK)
                return r;
        r = S_ISREG(st->st_mode) ? capture_file(c, f, item->name, st, settled) : capture_other(c, f, item->name, st);
        return r == 0 && several ? remember_link(c, f, item->name, ino) : r;
}

static int capture_item(struct cop_capture *c, struct frame *f, struct item *item)
{
        struct stat st;
        int r;

        if (atomic_load(&c->cancel))
                return -ECANCELED;
        if (fstatat(f->upper, item->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        struct cop_capture_note note = cop_capture_note_of(&st);
        if (S_ISDIR(st.st_mode)) {
                item->known = false;
                r = enter_folder(c, f, item);
        } else if (item->known && st.st_nlink == 1 && same_note(&item->note, &note)) {
                return 0;
        } else {
                bool settled = cop_capture_settled(&st);
                r = capture_file_or_other(c, f, item, &st, &settled);
                item->note = cop_capture_note_of(&st);
                item->known = r == 0 && settled;
        }
        if (r == -ESTALE) /* the pass during the stop sees what it is */
                r = 0;
        if (r < 0 && !c->where[0])
                snprintf(c->where, sizeof(c->where), "%s", item->name);
        return r;
}

/* -- folders ------------------------------------------------------------------------------------------------------------------ */

static int open_dir(int fd, DIR **ret)
{
        int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (copy < 0)
                return -errno;
        *ret = fdopendir(copy);
        if (*ret)
                return 0;
        int r = -errno;
        cop_close(copy);
        return r;
}

static bool is_dot(const char *name)
{
        return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* The names as they are now; what is known of those that stay goes along. */
static int read_names(struct cop_capture *c, struct frame *f, struct cop_capture_folder *d)
{
        struct cop_capture_folder fresh = {0};
        _cleanup_closedir_ DIR *dir = NULL;
        struct dirent *entry;
        int r = open_dir(f->upper, &dir);

        errno = 0;
        while (r == 0 && dir && (entry = readdir(dir)))
                if (!is_dot(entry->d_name))
                        r = add_item(c, &fresh, entry->d_name);
        if (r == 0 && errno)
                r = -errno;
        if (fresh.count)
                qsort(fresh.items, fresh.count, sizeof(*fresh.items), by_name);
        for (size_t i = 0; i < fresh.count; i++) {
                struct item **old = find_item(d, fresh.items[i]->name);
                if (!old)
                        continue;
                struct item *swap = *old; /* both have the same name: the order stays */
                *old = fresh.items[i];
                fresh.items[i] = swap;
        }
        for (size_t i = 0; i < d->count; i++) {
                folder_free(c, d->items[i]->folder);
                free(d->items[i]);
        }
        c->seen_count -= d->count;
        free(d->items);
        d->items = fresh.items;
        d->count = fresh.count;
        d->room = fresh.room;
        return r;
}

/* What the layer has and the upper directory has not any more. */
static int remove_gone(struct frame *f, const struct cop_capture_folder *d)
{
        _cleanup_closedir_ DIR *dir = NULL;
        struct dirent *entry;
        int r = open_dir(f->layer, &dir);

        while (r == 0 && dir && (entry = readdir(dir)))
                if (!is_dot(entry->d_name) && !find_item(d, entry->d_name))
                        r = make_room(f, entry->d_name);
        return r;
}

static void forget_names(struct cop_capture *c, struct cop_capture_folder *d)
{
        for (size_t i = 0; i < d->count; i++) {
                folder_free(c, d->items[i]->folder);
                free(d->items[i]);
        }
        c->seen_count -= d->count;
        cop_freep(&d->items);
        d->count = d->room = 0;
        d->known = false;
}

static int visit_folder(struct cop_capture *c, struct frame *f, struct cop_capture_folder *d)
{
        struct stat st;
        int r = 0;

        if (fstat(f->upper, &st) < 0)
                return -errno;
        /* From before the names are read: a change meanwhile shows as another time in the next pass. */
        struct cop_capture_note note = cop_capture_note_of(&st);
        bool settled = cop_capture_settled(&st), same = d->known && same_note(&d->note, &note);
        d->known = false;
        if (!same && (r = layer_of(f)) >= 0)
                r = read_names(c, f, d);
        for (size_t i = 0; r >= 0 && i < d->count; i++)
                r = capture_item(c, f, d->items[i]);
        if (r >= 0 && !same)
                r = remove_gone(f, d);
        if (r >= 0 && (!same || f->touched)) /* last: times change while entries are made */
                r = cop_capture_copy_folder_attributes(f->upper, f->layer, &st);
        if (r < 0)
                return r;
        d->note = note;
        d->known = settled;
        if (c->seen_count > SEEN_MAX)
                forget_names(c, d);
        return 0;
}

static int explain(struct cop_capture *c, int r, struct cop_error *err)
{
        for (char *p = c->where; *p; p++)
                if (*p < ' ' || *p > '~')
                        *p = '?';
        if (r == -ECANCELED)
                return cop_error_set(err, ECANCELED, COP_ERR_cancelled, "saving the sandbox's files was given up");
        if (r == -ELOOP)
                return cop_error_set(err, ELOOP, COP_ERR_io_error,
                                     "the sandbox's files lie deeper than %d folders (at \"%s\"); remove or move them",
                                     DEPTH_MAX, c->where);
        return cop_error_errno(err, r, "saving the sandbox's file \"%s\"", c->where);
}

int cop_capture_pass(struct cop_capture *c, struct cop_error *err)
{
        struct frame top = {
                .name = "", .upper = c->upper_fd, .layer = c->layer_fd, .parent = c->parent_fd, .parent_looked = true};

        c->where[0] = '\0';
        if (!c->seen && !(c->seen = calloc(1, sizeof(*c->seen))))
                return cop_error_errno(err, ENOMEM, "saving the sandbox's files");
        int r = visit_folder(c, &top, c->seen);
        links_free(c);
        return r < 0 ? explain(c, r, err) : 0;
}

int cop_capture_copy(int from_fd, int to_fd, struct cop_error *err)
{
        struct cop_capture c = {
                .upper_fd = from_fd, .layer_fd = to_fd, .parent_fd = -EBADF, .plain = true, .no_sockets = true};
        int r = cop_capture_pass(&c, err);

        cop_capture_done(&c);
        return r;
}
