#include "procfs.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

        for (size_t i = 0; i < 6; i++)
                if (!(words[i] = field(&cursor)))
                        return -EBADMSG;
        if (!small_number(words[0], &m.mount_id) || !small_number(words[1], &m.parent_id))
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

bool cop_list_has(const char *list, const char *word)
{
        size_t n = strlen(word);

        for (const char *p = list; *p; p++) {
                size_t len = strcspn(p, ",");
                if (len == n && memcmp(p, word, n) == 0)
                        return true;
                p += len;
                if (!*p)
                        break;
        }
        return false;
}

int cop_proc_cgroup_path(const char *text, const char *controller, char **ret_path)
{
        for (const char *line = text; *line;) {
                size_t len = strcspn(line, "\n");
                const char *first = memchr(line, ':', len);
                const char *second = first ? memchr(first + 1, ':', len - (size_t)(first + 1 - line)) : NULL;
                if (second) {
                        char *list = strndup(first + 1, (size_t)(second - first - 1));
                        if (!list)
                                return -ENOMEM;
                        bool found = *controller ? cop_list_has(list, controller) : *list == '\0';
                        free(list);
                        if (found) {
                                char *path = strndup(second + 1, len - (size_t)(second + 1 - line));
                                if (!path)
                                        return -ENOMEM;
                                *ret_path = path;
                                return 0;
                        }
                }
                line += len;
                line += *line == '\n';
        }
        return -ENOENT;
}

static int parse_number(const char *s, size_t n, uint64_t *ret)
{
        char digits[24];

        if (n == 0 || n >= sizeof(digits))
                return -EBADMSG;
        memcpy(digits, s, n);
        digits[n] = '\0';
        return cop_parse_u64(digits, ret) < 0 ? -EBADMSG : 0;
}

int cop_keyed_u64(const char *text, const char *key, uint64_t *ret)
{
        size_t n = strlen(key);

        for (const char *line = text; *line;) {
                size_t len = strcspn(line, "\n");
                if (len > n && memcmp(line, key, n) == 0 && line[n] == ' ')
                        return parse_number(line + n + 1, len - n - 1, ret);
                line += len;
                line += *line == '\n';
        }
        return -ENOENT;
}

int cop_limit_u64(const char *text, uint64_t *ret)
{
        size_t n = strlen(text);

        while (n > 0 && isspace((unsigned char)text[n - 1]))
                n--;
        if (n == 3 && memcmp(text, "max", 3) == 0) {
                *ret = UINT64_MAX;
                return 0;
        }
        return parse_number(text, n, ret);
}
