#include "procfs.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

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
