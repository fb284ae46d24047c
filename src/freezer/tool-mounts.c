#include "freezer/tool-mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fs.h"

#define TEXT_MAX (16UL << 20)

/* What stands in a line of mountinfo (man 5 proc_pid_mountinfo) after the two ids, up to the options: "0:25 / /tmp ".  It points into the
 * text, escapes are as they are. */
struct place {
        const char *text, *mount_point;
        size_t length, mount_point_length;
        bool ours; /* was met in our own list: each of equal ones is another mount */
};

struct places {
        char *text;         /* owned */
        struct place *list; /* owned */
        size_t count;
};

static void places_done(struct places *p)
{
        free(p->text);
        free(p->list);
}

static const char *after_fields(const char *at, int n)
{
        while (n-- > 0 && at)
                at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL;
        return at;
}

static int read_places(const char *path, struct places *ret, struct cop_error *err)
{
        int r = cop_read_file(AT_FDCWD, path, TEXT_MAX, &ret->text, NULL, err);
        size_t lines = 0;

        if (r < 0)
                return r;
        for (const char *p = ret->text; (p = strchr(p, '\n')); p++)
                lines++;
        ret->list = calloc(lines + 1, sizeof(*ret->list));
        if (!ret->list)
                return cop_error_errno(err, ENOMEM, "looking at mounts");
        for (char *line = ret->text, *end; (end = strchr(line, '\n')); line = end + 1) {
                *end = '\0';
                const char *start = after_fields(line, 2), *point = after_fields(start, 2),
                           *options = after_fields(point, 1);
                if (start && point && options)
                        ret->list[ret->count++] = (struct place){.text = start,
                                                                 .mount_point = point,
                                                                 .length = (size_t)(options - start),
                                                                 .mount_point_length = (size_t)(options - point) - 1};
        }
        return 0;
}

static bool equal(const struct place *a, const struct place *b)
{
        return a->text && b->text && a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

static bool found(struct places *ours, const struct place *p)
{
        for (size_t i = 0; i < ours->count; i++)
                if (!ours->list[i].ours && equal(&ours->list[i], p))
                        return ours->list[i].ours = true;
        return false;
}

/* setup_inside() mounts each once. */
static bool is_made_by_setup(const struct place *p, unsigned *seen)
{
        static const char *const points[] = {"/proc", "/dev/pts"};

        for (unsigned i = 0; i < ELEMENTSOF(points); i++)
                if (p->mount_point_length == strlen(points[i]) &&
                    memcmp(p->mount_point, points[i], p->mount_point_length) == 0 && !(*seen & 1U << i)) {
                        *seen |= 1U << i;
                        return true;
                }
        return false;
}

int cop_tool_check_mounts(pid_t root, struct cop_error *err)
{
        _cleanup_(places_done) struct places ours = {0}, theirs = {0};
        unsigned seen = 0;
        char path[64];
        int r = read_places("/proc/self/mountinfo", &ours, err);

        snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)root);
        if (r < 0)
                return r;
        (void)read_places(path, &theirs, NULL); /* of a process that has ended there is nothing: the freeze says so */
        for (size_t i = 0; r == 0 && i < theirs.count; i++) {
                const struct place *p = &theirs.list[i];
                if (!found(&ours, p) && !is_made_by_setup(p, &seen))
                        r = cop_error_set(err, EOPNOTSUPP, COP_ERR_not_freezable,
                                          "something is mounted at %.*s that a thaw would not mount: cannot be frozen",
                                          (int)p->mount_point_length, p->mount_point);
        }
        return r;
}
