#include "base/mountinfo.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/parse.h"

/* \040 and the like, in place (fs/proc_namespace.c: mangle). */
static void unescape(char *s)
{
        char *out = s;

        for (; *s; s++) {
                if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
                    s[3] <= '7') {
                        *out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
                        s += 3;
                } else {
                        *out++ = *s;
                }
        }
        *out = '\0';
}

/* Cuts the next field that ends in a space or at the end; NULL when nothing is left. */
static char *field(char **cursor)
{
        char *start = *cursor;

        if (!start || !*start)
                return NULL;
        char *space = strchr(start, ' ');
        if (space)
                *space = '\0';
        *cursor = space ? space + 1 : NULL;
        return start;
}

static bool small_number(const char *s, int *ret)
{
        uint64_t value;

        if (!s || cop_parse_u64(s, &value) < 0 || value > INT32_MAX)
                return false;
        *ret = (int)value;
        return true;
}

static int parse_mount_line(char *line, struct cop_mountinfo *ret)
{
        struct cop_mountinfo m = {0};
        char *words[6], *word, *cursor = line;
        unsigned major_number, minor_number;

        for (size_t i = 0; i < 6; i++)
                if (!(words[i] = field(&cursor)))
                        return -EBADMSG;
        if (!small_number(words[0], &m.mount_id) || !small_number(words[1], &m.parent_id) ||
            sscanf(words[2], "%u:%u", &major_number, &minor_number) != 2)
                return -EBADMSG;
        do /* optional fields end with a lone "-" */
                word = field(&cursor);
        while (word && strcmp(word, "-") != 0);
        if (!word || !cursor)
                return -EBADMSG;
        char *type = field(&cursor), *source = field(&cursor), *super = field(&cursor);
        if (!type || !source || !super)
                return -EBADMSG;
        unescape(words[3]);
        unescape(words[4]);
        unescape(source);
        m.device = makedev(major_number, minor_number);
        m.root = words[3];
        m.mount_point = words[4];
        m.options = words[5];
        m.fs_type = type;
        m.source = source;
        m.super_options = super;
        *ret = m;
        return 1;
}

int cop_mountinfo_next(char **cursor, struct cop_mountinfo *ret)
{
        char *line = *cursor;

        if (!line || !*line)
                return 0;
        char *end = strchr(line, '\n');
        if (end)
                *end = '\0';
        *cursor = end ? end + 1 : line + strlen(line);
        return parse_mount_line(line, ret);
}

void cop_mounts_done(struct cop_mounts *m)
{
        free(m->list);
        free(m->text);
        *m = (struct cop_mounts){0};
}

int cop_mounts_read(int dir_fd, const char *path, size_t max, struct cop_mounts *ret, struct cop_error *err)
{
        _cleanup_(cop_mounts_done) struct cop_mounts m = {0};
        size_t lines = 1;
        int r = cop_read_file(dir_fd, path, max, &m.text, NULL, err);

        if (r < 0)
                return r;
        for (const char *p = m.text; (p = strchr(p, '\n')); p++)
                lines++;
        m.list = calloc(lines, sizeof(*m.list));
        if (!m.list)
                return cop_error_errno(err, ENOMEM, "reading %s", path);
        for (char *cursor = m.text; (r = cop_mountinfo_next(&cursor, &m.list[m.count])) != 0;)
                m.count += r > 0;
        *ret = m;
        m = (struct cop_mounts){0};
        return 0;
}
