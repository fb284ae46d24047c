#include "uri.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"
#include "base/utf8.h"

static int hex_digit(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        if (c >= 'A' && c <= 'F')
                return c - 'A' + 10;
        return -1;
}

/* In place; the result is never longer. */
static int decode(char *s, bool plus_is_space, const char *what, struct cop_error *err)
{
        char *out = s;

        for (const char *in = s; *in; in++) {
                if (*in == '+' && plus_is_space) {
                        *out++ = ' ';
                } else if (*in == '%') {
                        int high = hex_digit(in[1]), low = high < 0 ? -1 : hex_digit(in[2]);
                        if (low < 0)
                                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                                     "malformed percent-encoding in the %s", what);
                        if (high == 0 && low == 0)
                                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "NUL character in the %s", what);
                        *out++ = (char)(high * 16 + low);
                        in += 2;
                } else {
                        *out++ = *in;
                }
        }
        *out = '\0';
        if (!cop_utf8_valid(s, (size_t)(out - s)))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "the %s is not valid UTF-8", what);
        return 0;
}

static int parse_path(struct cop_uri *u, char *path, struct cop_error *err)
{
        char *save = NULL;

        for (char *s = strtok_r(path, "/", &save); s; s = strtok_r(NULL, "/", &save)) {
                if (u->segment_count == COP_ROUTE_SEGMENTS_MAX)
                        return cop_error_set(err, ENOENT, COP_ERR_route_not_found,
                                             "no such path: it has too many segments");
                int r = decode(s, false, "path", err);
                if (r < 0)
                        return r;
                u->segments[u->segment_count++] = s;
        }
        return 0;
}

static int parse_query(struct cop_uri *u, char *query, struct cop_error *err)
{
        char *save = NULL;

        for (char *s = strtok_r(query, "&", &save); s; s = strtok_r(NULL, "&", &save)) {
                if (u->query_count == COP_QUERY_MAX)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "more than %d query parameters",
                                             COP_QUERY_MAX);
                char *value = strchr(s, '=');
                if (value)
                        *value++ = '\0';
                int r = decode(s, true, "query", err);
                if (r == 0 && value)
                        r = decode(value, true, "query", err);
                if (r < 0)
                        return r;
                u->query[u->query_count].name = s;
                u->query[u->query_count++].value = value ? value : "";
        }
        return 0;
}

int cop_uri_parse(const char *target, struct cop_uri *ret, struct cop_error *err)
{
        struct cop_uri u = {0};

        if (strncasecmp(target, "http://", 7) == 0) {
                target = strchr(target + 7, '/');
                if (!target)
                        target = "/";
        }
        if (*target != '/')
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "the request target must be a path that begins with /");
        u.text = strdup(target);
        if (!u.text)
                return cop_error_errno(err, ENOMEM, "request target");
        char *query = strchr(u.text, '?');
        if (query)
                *query++ = '\0';
        int r = parse_path(&u, u.text, err);
        if (r == 0 && query)
                r = parse_query(&u, query, err);
        if (r < 0) {
                free(u.text);
                return r;
        }
        *ret = u;
        return 0;
}

void cop_uri_done(struct cop_uri *u)
{
        free(u->text);
        *u = (struct cop_uri){0};
}

/* -- typed parameters -------------------------------------------------------------------------------------------- */

static const char *find(const struct cop_uri *u, const char *name)
{
        for (size_t i = 0; i < u->query_count; i++)
                if (strcmp(u->query[i].name, name) == 0)
                        return u->query[i].value;
        return NULL;
}

int cop_query_str(const struct cop_uri *u, const char *name, const char **ret, struct cop_error *err)
{
        const char *value = find(u, name);

        (void)err;
        if (!value || !*value)
                return 0;
        *ret = value;
        return 1;
}

int cop_query_u64(const struct cop_uri *u, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
                  struct cop_error *err)
{
        const char *value = find(u, name);
        uint64_t n;

        if (!value || !*value)
                return 0;
        if (cop_parse_u64(value, &n) < 0 || n < min || n > max)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "query parameter \"%s\": expected a whole number from %llu to %llu", name,
                                     (unsigned long long)min, (unsigned long long)max);
        *ret = n;
        return 1;
}

int cop_query_bool(const struct cop_uri *u, const char *name, bool *ret, struct cop_error *err)
{
        const char *value = find(u, name);

        if (!value)
                return 0;
        if (!*value || strcmp(value, "true") == 0 || strcmp(value, "1") == 0)
                *ret = true;
        else if (strcmp(value, "false") == 0 || strcmp(value, "0") == 0)
                *ret = false;
        else
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "query parameter \"%s\": expected true or false",
                                     name);
        return 1;
}

int cop_query_mode(const struct cop_uri *u, const char *name, unsigned *ret, struct cop_error *err)
{
        const char *value = find(u, name);
        unsigned mode = 0;
        size_t n;

        if (!value || !*value)
                return 0;
        n = strspn(value, "01234567");
        if (value[n] || n > 5)
                goto bad;
        for (size_t i = 0; i < n; i++)
                mode = mode * 8 + (unsigned)(value[i] - '0');
        if (mode > 07777)
                goto bad;
        *ret = mode;
        return 1;
bad:
        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                             "query parameter \"%s\": expected an octal mode such as 0644", name);
}

int cop_query_check(const struct cop_uri *u, const char *const *allowed, const char *repeatable, struct cop_error *err)
{
        for (size_t i = 0; i < u->query_count; i++) {
                const char *name = u->query[i].name;
                const char *const *a = allowed;
                while (*a && strcmp(*a, name) != 0)
                        a++;
                if (!*a)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "unknown query parameter \"%.100s\"",
                                             name);
                if (find(u, name) != u->query[i].value && (!repeatable || strcmp(name, repeatable) != 0))
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "query parameter \"%s\" is given twice",
                                             name);
        }
        return 0;
}
