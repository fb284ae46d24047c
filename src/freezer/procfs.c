#include "freezer/procfs.h"

#include <ctype.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"

#define TEXT_MAX (64UL << 20)

static int bad(struct cop_error *err, const char *name)
{
        return cop_error_set(err, EBADMSG, COP_ERR_internal, "/proc/…/%s has an unknown form", name);
}

int cop_procfs_stat(int dir_fd, struct cop_procfs_stat *ret, struct cop_error *err)
{
        _cleanup_free_ char *text = NULL;
        struct cop_procfs_stat s = {0};
        long long field[53] = {0};
        int r = cop_read_file(dir_fd, "stat", 8192, &text, NULL, err);

        if (r < 0)
                return r;
        char *open = strchr(text, '('), *close = strrchr(text, ')');
        if (!open || !close || close < open || !close[1] || !close[2])
                return bad(err, "stat");
        snprintf(s.comm, sizeof(s.comm), "%.*s", (int)(close - open - 1), open + 1);
        s.state = close[2];
        char *p = close + 3;
        for (int i = 4; i <= 52; i++) {
                char *end;
                field[i] = (long long)strtoull(p, &end, 10);
                if (end == p)
                        return bad(err, "stat");
                p = end;
        }
        s.ppid = (pid_t)field[4];
        s.pgrp = (pid_t)field[5];
        s.session = (pid_t)field[6];
        s.tty_nr = (int)field[7];
        s.tpgid = (int)field[8];
        s.nice = (int)field[19];
        s.start_code = (uint64_t)field[26];
        s.end_code = (uint64_t)field[27];
        s.start_stack = (uint64_t)field[28];
        s.exit_signal = (int)field[38];
        s.priority = (int)field[40];
        s.policy = (int)field[41];
        s.start_data = (uint64_t)field[45];
        s.end_data = (uint64_t)field[46];
        s.start_brk = (uint64_t)field[47];
        s.arg_start = (uint64_t)field[48];
        s.arg_end = (uint64_t)field[49];
        s.env_start = (uint64_t)field[50];
        s.env_end = (uint64_t)field[51];
        s.exit_code = (int)field[52];
        *ret = s;
        return 0;
}

static const char *parse_limit(const char *at, uint64_t *ret)
{
        static const char none[] = "unlimited";
        char *end;

        at += strspn(at, " ");
        if (strncmp(at, none, sizeof(none) - 1) == 0) {
                *ret = RLIM_INFINITY;
                return at + sizeof(none) - 1;
        }
        *ret = strtoull(at, &end, 10);
        return end == at ? NULL : end;
}

int cop_procfs_limits(int dir_fd, uint64_t ret[static RLIM_NLIMITS][2], struct cop_error *err)
{
        enum { NAME_WIDTH = 25 };
        _cleanup_free_ char *text = NULL;
        int r = cop_read_file(dir_fd, "limits", 8192, &text, NULL, err);

        if (r < 0)
                return r;
        const char *at = strchr(text, '\n'); /* below the line of headings */
        for (int i = 0; i < RLIM_NLIMITS; i++, at = at ? strchr(at, '\n') : NULL) {
                if (at && strcspn(++at, "\n") > NAME_WIDTH)
                        at = parse_limit(at + NAME_WIDTH, &ret[i][0]);
                else
                        at = NULL;
                if (at)
                        at = parse_limit(at, &ret[i][1]);
                if (!at)
                        return bad(err, "limits");
        }
        return 0;
}

const char *cop_procfs_field(const char *text, const char *key, size_t *ret_length)
{
        size_t n = strlen(key);

        for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
                if (strncmp(line, key, n) != 0 || line[n] != ':')
                        continue;
                const char *value = line + n + 1;
                while (*value == ' ' || *value == '\t')
                        value++;
                if (ret_length)
                        *ret_length = strcspn(value, "\n");
                return value;
        }
        return NULL;
}

uint64_t cop_procfs_field_u64(const char *text, const char *key, int base)
{
        const char *v = cop_procfs_field(text, key, NULL);

        return v ? strtoull(v, NULL, base) : 0;
}

/* The last of the numbers of "NSpid:\t1234\t5". */
static int innermost(const char *text, const char *key, int *ret_depth)
{
        const char *v = cop_procfs_field(text, key, NULL);
        int last = 0, depth = 0;

        while (v && *v && *v != '\n') {
                char *end;
                last = (int)strtol(v, &end, 10);
                if (end == v)
                        break;
                depth++;
                v = end;
        }
        if (ret_depth)
                *ret_depth = depth;
        return last;
}

int cop_procfs_status(int dir_fd, struct cop_procfs_status *ret, struct cop_error *err)
{
        static const char *const keys[] = {"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"};
        _cleanup_free_ char *text = NULL;
        struct cop_procfs_status s = {0};
        size_t used = 0;
        int r = cop_read_file(dir_fd, "status", 1UL << 20, &text, NULL, err);

        if (r < 0)
                return r;
        s.tracer = (pid_t)cop_procfs_field_u64(text, "TracerPid", 10);
        s.umask = (uint32_t)cop_procfs_field_u64(text, "Umask", 8);
        s.uid = (uint32_t)cop_procfs_field_u64(text, "Uid", 10);
        s.gid = (uint32_t)cop_procfs_field_u64(text, "Gid", 10);
        s.no_new_privs = (uint32_t)cop_procfs_field_u64(text, "NoNewPrivs", 10);
        s.seccomp = (uint32_t)cop_procfs_field_u64(text, "Seccomp", 10);
        s.filters = (uint32_t)cop_procfs_field_u64(text, "Seccomp_filters", 10);
        (void)innermost(text, "NSpid", &s.ns_depth);
        s.ns_pgid = innermost(text, "NSpgid", NULL);
        s.ns_sid = innermost(text, "NSsid", NULL);
        s.ignored = cop_procfs_field_u64(text, "SigIgn", 16);
        s.locked_kb = cop_procfs_field_u64(text, "VmLck", 10);
        s.inheritable = cop_procfs_field_u64(text, "CapInh", 16);
        s.permitted = cop_procfs_field_u64(text, "CapPrm", 16);
        s.effective = cop_procfs_field_u64(text, "CapEff", 16);
        s.bounding = cop_procfs_field_u64(text, "CapBnd", 16);
        s.ambient = cop_procfs_field_u64(text, "CapAmb", 16);
        for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
                size_t n = 0;
                const char *v = cop_procfs_field(text, keys[i], &n);
                if (!v || used + n + 2 > sizeof(s.creds)) {
                        s.creds[0] = '\0'; /* never equal to another: see task_creds() */
                        break;
                }
                memcpy(s.creds + used, v, n);
                used += n;
                s.creds[used++] = '\n';
        }
        *ret = s;
        return 0;
}

static uint32_t vm_flag(const char *two, struct cop_vma *v)
{
        static const struct {
                char name[3];
                uint32_t flag;
        } table[] = {
                {"mw", IMG_VMA_MAYWRITE},   {"gd", IMG_VMA_GROWSDOWN},   {"lo", IMG_VMA_LOCKED},
                {"sr", IMG_VMA_SEQUENTIAL}, {"rr", IMG_VMA_RANDOM},      {"dc", IMG_VMA_DONTFORK},
                {"nr", IMG_VMA_NORESERVE},  {"wf", IMG_VMA_WIPEONFORK},  {"dd", IMG_VMA_DONTDUMP},
                {"hg", IMG_VMA_HUGEPAGE},   {"nh", IMG_VMA_NOHUGEPAGE},  {"mg", IMG_VMA_MERGEABLE},
                {"dp", IMG_VMA_DROPPABLE},  {"lf", IMG_VMA_LOCKONFAULT}, {"sl", IMG_VMA_SEALED},
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                if (memcmp(two, table[i].name, 2) == 0)
                        return table[i].flag;
        if (memcmp(two, "pf", 2) == 0 || memcmp(two, "mm", 2) == 0 || memcmp(two, "io", 2) == 0)
                v->pfnmap = true;
        if (memcmp(two, "um", 2) == 0 || memcmp(two, "uw", 2) == 0 || memcmp(two, "ui", 2) == 0)
                v->uffd = true;
        if (memcmp(two, "ht", 2) == 0)
                v->hugetlb = true;
        return 0;
}

static bool take_number(char **at, int base, char after, uint64_t *ret)
{
        char *end;

        *ret = strtoull(*at, &end, base);
        if (end == *at || *end != after)
                return false;
        *at = end + 1;
        return true;
}

static void name_area(struct cop_vma *v, const char *path)
{
        v->path_length = (uint32_t)strlen(path);
        v->vdso = strcmp(path, "[vdso]") == 0;
        v->vvar = strncmp(path, "[vvar", 5) == 0;
        v->special = v->vdso || v->vvar || strcmp(path, "[vsyscall]") == 0;
        v->heap = strcmp(path, "[heap]") == 0;
        v->stack = strcmp(path, "[stack]") == 0;
        if (v->stack)
                v->flags |= IMG_VMA_GROWSDOWN;
}

/* "start-end perms offset major:minor ino path".  Not with sscanf: a kernel with pandas has some 800 lines. */
static bool parse_header(char *line, const char *text, struct cop_vma *v)
{
        uint64_t start, end, offset, major_, minor_, ino;
        char *at = line, *perms;

        if (!take_number(&at, 16, '-', &start) || !take_number(&at, 16, ' ', &end) || strnlen(at, 5) < 5)
                return false;
        perms = at;
        at += 5;
        if (!take_number(&at, 16, ' ', &offset) || !take_number(&at, 16, ':', &major_) ||
            !take_number(&at, 16, ' ', &minor_))
                return false;
        ino = strtoull(at, &at, 10);
        *v = (struct cop_vma){.start = start, .end = end, .offset = offset, .dev = makedev(major_, minor_), .ino = ino};
        v->flags = (perms[0] == 'r' ? IMG_VMA_READ : 0U) | (perms[1] == 'w' ? IMG_VMA_WRITE : 0U) |
                   (perms[2] == 'x' ? IMG_VMA_EXEC : 0U) | (perms[3] == 's' ? IMG_VMA_SHARED : 0U);
        char *path = at;
        while (*path == ' ')
                path++;
        v->path = (uint32_t)(path - text);
        name_area(v, path);
        return true;
}

static struct cop_vma *add_vma(struct cop_vmas *vs, size_t *allocated)
{
        if (vs->count == *allocated) {
                *allocated = *allocated ? *allocated * 2 : 256;
                struct cop_vma *bigger = reallocarray(vs->list, *allocated, sizeof(*bigger));
                if (!bigger)
                        return NULL;
                vs->list = bigger;
        }
        return &vs->list[vs->count];
}

struct names {
        char *text; /* owned */
        size_t length, allocated;
};

static int add_name(struct names *t, const char *name, uint32_t *ret)
{
        size_t n = strlen(name) + 1;

        if (t->length + n > t->allocated) {
                size_t bigger = MAX_OF(2 * t->allocated, t->length + n + 16384);
                char *text = realloc(t->text, bigger);
                if (!text)
                        return -ENOMEM;
                t->text = text;
                t->allocated = bigger;
        }
        memcpy(t->text + t->length, name, n);
        *ret = (uint32_t)t->length;
        t->length += n;
        return 0;
}

#define PROCMAP_QUERY_ _IOWR('f', 17, struct cop_procmap_query)
#define PROCMAP_QUERY_COVERING_OR_NEXT 0x10

int cop_procmap_query(int maps_fd, uint64_t at, char *name, struct cop_procmap_query *ret)
{
        *ret = (struct cop_procmap_query){.size = sizeof(*ret),
                                          .query_flags = PROCMAP_QUERY_COVERING_OR_NEXT,
                                          .query_addr = at,
                                          .vma_name_addr = (uintptr_t)name,
                                          .vma_name_size = name ? PATH_MAX : 0};
        return ioctl(maps_fd, PROCMAP_QUERY_, ret) < 0 ? -errno : 0;
}

static struct cop_vma area_of(const struct cop_procmap_query *q)
{
        return (struct cop_vma){.start = q->vma_start,
                                .end = q->vma_end,
                                .offset = q->vma_offset,
                                .dev = makedev(q->dev_major, q->dev_minor),
                                .ino = q->inode,
                                .flags = (q->vma_flags & 1 ? IMG_VMA_READ : 0U) |
                                         (q->vma_flags & 2 ? IMG_VMA_WRITE : 0U) |
                                         (q->vma_flags & 4 ? IMG_VMA_EXEC : 0U) |
                                         (q->vma_flags & COP_PROCMAP_SHARED ? IMG_VMA_SHARED : 0U)};
}

/* What maps says, by one ioctl for each area: a third of the time, as nothing is made text and the name of a file is asked for once
 * for all areas that follow each other.  -ENOTTY: before kernel 6.11;
 * -ENAMETOOLONG: a path that maps would cut. */
static int query_vmas(int dir_fd, struct cop_vmas *vs)
{
        _cleanup_close_ int fd = openat(dir_fd, "maps", O_RDONLY | O_CLOEXEC);
        char name[PATH_MAX];
        struct names names = {0};
        struct cop_procmap_query q = {0};
        size_t allocated = 0;
        uint32_t none; /* an empty name, at 0 */
        int r = fd < 0 ? -errno : add_name(&names, "", &none);

        for (uint64_t at = 0; r == 0; at = q.vma_end) {
                struct cop_vma *v = add_vma(vs, &allocated), *last = vs->count > 0 ? v - 1 : NULL;
                /* After an area of a file another one of it is likely, whose name costs more than all the rest. */
                bool named = !last || !last->ino;
                r = v ? cop_procmap_query(fd, at, named ? name : NULL, &q) : -ENOMEM;
                if (r < 0)
                        break;
                *v = area_of(&q);
                if (last && v->ino && last->ino == v->ino && last->dev == v->dev) {
                        v->path = last->path;
                } else {
                        r = named ? 0 : cop_procmap_query(fd, v->start, name, &q);
                        if (r == 0 && q.vma_name_size > 0)
                                r = add_name(&names, name, &v->path);
                }
                if (r == 0)
                        name_area(v, names.text + v->path);
                vs->count++;
        }
        vs->text = names.text;
        return r == -ENOENT ? 0 : r;
}

static int read_vmas(int dir_fd, const char *name, struct cop_vmas *vs, struct cop_error *err)
{
        size_t allocated = 0, length;
        int r = cop_read_file(dir_fd, name, TEXT_MAX, &vs->text, &length, err);

        if (r < 0)
                return r;
        for (char *line = vs->text, *next; line < vs->text + length; line = next) {
                next = memchr(line, '\n', length - (size_t)(line - vs->text));
                if (!next)
                        break;
                *next++ = '\0';
                if (isdigit((unsigned char)line[0]) || (line[0] >= 'a' && line[0] <= 'f')) {
                        struct cop_vma *v = add_vma(vs, &allocated);
                        if (!v)
                                return cop_error_errno(err, ENOMEM, "reading %s", name);
                        if (!parse_header(line, vs->text, v))
                                return bad(err, name);
                        vs->count++;
                } else if (vs->count > 0 && strncmp(line, "VmFlags:", 8) == 0) {
                        struct cop_vma *v = &vs->list[vs->count - 1];
                        vs->guards = vs->guards || strstr(line + 8, " gu");
                        for (char *p = line + 8; p[0] == ' ' && p[1] && p[2]; p += 3)
                                v->flags |= vm_flag(p + 1, v);
                }
        }
        return 0;
}

int cop_procfs_vmas(int dir_fd, bool full, struct cop_vmas *ret, struct cop_error *err)
{
        struct cop_vmas vs = {.guards = !full};
        int r = full ? -ENOTTY : query_vmas(dir_fd, &vs);

        if (r == -ENOTTY || r == -ENAMETOOLONG) {
                cop_vmas_done(&vs);
                vs.guards = !full;
                r = read_vmas(dir_fd, full ? "smaps" : "maps", &vs, err);
        } else if (r < 0) {
                r = cop_error_errno(err, -r, "reading /proc/…/maps");
        }
        if (r < 0)
                cop_vmas_done(&vs);
        else
                *ret = vs;
        return r;
}

void cop_vmas_done(struct cop_vmas *v)
{
        free(v->list);
        free(v->text);
        *v = (struct cop_vmas){0};
}

bool cop_procfs_text(int at_fd, const char *path, char *buf, size_t size)
{
        _cleanup_close_ int fd = openat(at_fd, path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

        buf[n > 0 ? n : 0] = '\0';
        return n > 0;
}

bool cop_procfs_slices(pid_t tid, uint64_t *ret)
{
        char path[48], text[128];
        unsigned long long slices;

        snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", tid, tid);
        if (!cop_procfs_text(AT_FDCWD, path, text, sizeof(text)) || sscanf(text, "%*u %*u %llu", &slices) != 1)
                return false;
        *ret = slices;
        return true;
}

uint64_t cop_procfs_vdso(int dir_fd)
{
        uint64_t pair[2], found = 0;
        struct cop_vmas vs = {0};
        _cleanup_close_ int fd = openat(dir_fd, "auxv", O_RDONLY | O_CLOEXEC);

        while (fd >= 0 && read(fd, pair, sizeof(pair)) == sizeof(pair))
                if (pair[0] == AT_SYSINFO_EHDR)
                        return pair[1];
        /* Only its user may open that, and who has the rights of its user namespace; the maps are for all who may trace it. */
        if (fd < 0 && cop_procfs_vmas(dir_fd, false, &vs, NULL) == 0)
                for (size_t i = 0; i < vs.count; i++)
                        if (vs.list[i].vdso)
                                found = vs.list[i].start;
        cop_vmas_done(&vs);
        return found;
}

static int compare_int(const void *a, const void *b)
{
        int x = *(const int *)a, y = *(const int *)b;

        return (x > y) - (x < y);
}

int cop_procfs_numbers(int dir_fd, const char *name, int **ret, size_t *ret_count, struct cop_error *err)
{
        _cleanup_closedir_ DIR *dir = NULL;
        _cleanup_free_ int *list = NULL;
        size_t n = 0, allocated = 0;
        struct dirent *e;
        int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0)
                return cop_error_errno(err, errno, "opening /proc/…/%s", name);
        dir = fdopendir(fd);
        if (!dir) {
                cop_close(fd);
                return cop_error_errno(err, errno, "opening /proc/…/%s", name);
        }
        while ((e = readdir(dir))) {
                if (!isdigit((unsigned char)e->d_name[0]))
                        continue;
                if (n == allocated) {
                        allocated = allocated ? allocated * 2 : 64;
                        int *bigger = reallocarray(list, allocated, sizeof(*bigger));
                        if (!bigger)
                                return cop_error_errno(err, ENOMEM, "reading /proc/…/%s", name);
                        list = bigger;
                }
                list[n++] = atoi(e->d_name);
        }
        if (n > 1)
                qsort(list, n, sizeof(*list), compare_int);
        *ret_count = n;
        *ret = TAKE_PTR(list);
        return 0;
}
