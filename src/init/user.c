#include "user.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/child.h"
#include "base/cleanup.h"
#include "base/parse.h"

#define FILE_MAX (1024 * 1024)
#define ID_MAX 65535 /* a sandbox maps 65536 ids; a larger one fails in setresuid with EINVAL, less clearly */
#define OOM_ADJ "500"

/* -- text ------------------------------------------------------------------------------------------------------------
 */

struct span {
        const char *s;
        size_t n;
};

/* Takes the part up to the separator off *rest; false when nothing is left. */
static bool next_part(struct span *rest, char separator, struct span *ret)
{
        if (!rest->s)
                return false;
        const char *end = memchr(rest->s, separator, rest->n);
        ret->s = rest->s;
        ret->n = end ? (size_t)(end - rest->s) : rest->n;
        rest->n -= end ? ret->n + 1 : ret->n;
        rest->s = end ? end + 1 : NULL;
        return true;
}

/* The fields of a line a:b:c…; false when there are fewer than count. */
static bool split_line(struct span line, struct span *fields, size_t count)
{
        for (size_t i = 0; i < count; i++)
                if (!next_part(&line, ':', &fields[i]))
                        return false;
        return true;
}

static bool span_is(struct span a, const char *s)
{
        return strlen(s) == a.n && memcmp(a.s, s, a.n) == 0;
}

static bool span_number(struct span a, unsigned *ret)
{
        char digits[11];
        uint64_t value;

        if (a.n == 0 || a.n >= sizeof(digits))
                return false;
        memcpy(digits, a.s, a.n);
        digits[a.n] = '\0';
        if (cop_parse_u64(digits, &value) < 0 || value >= UINT32_MAX)
                return false;
        *ret = (unsigned)value;
        return true;
}

/* A text with a NUL or too long counts as absent. */
static void span_copy(struct span a, char ret[static COP_USER_TEXT_MAX])
{
        ret[0] = '\0';
        if (a.n >= COP_USER_TEXT_MAX || memchr(a.s, '\0', a.n))
                return;
        memcpy(ret, a.s, a.n);
        ret[a.n] = '\0';
}

int cop_user_parse_passwd(const char *text, size_t n, const char *name, uid_t uid, struct cop_user *ret)
{
        struct span rest = {text, n}, line, f[7];
        unsigned line_uid, line_gid;

        while (next_part(&rest, '\n', &line)) {
                if (!split_line(line, f, ELEMENTSOF(f)) || !span_number(f[2], &line_uid) ||
                    !span_number(f[3], &line_gid))
                        continue;
                if (name ? !span_is(f[0], name) : line_uid != uid)
                        continue;
                ret->uid = line_uid;
                ret->gid = line_gid;
                span_copy(f[0], ret->name);
                span_copy(f[5], ret->home);
                span_copy(f[6], ret->shell);
                return 1;
        }
        return 0;
}

int cop_user_parse_group(const char *text, size_t n, const char *name, gid_t *ret)
{
        struct span rest = {text, n}, line, f[3];

        while (next_part(&rest, '\n', &line))
                if (split_line(line, f, ELEMENTSOF(f)) && span_is(f[0], name) && span_number(f[2], ret))
                        return 1;
        return 0;
}

void cop_user_parse_memberships(const char *text, size_t n, struct cop_user *u)
{
        struct span rest = {text, n}, line, f[4], member;
        unsigned gid;

        while (u->name[0] && next_part(&rest, '\n', &line)) {
                if (!split_line(line, f, ELEMENTSOF(f)) || !span_number(f[2], &gid) || gid > ID_MAX)
                        continue;
                while (next_part(&f[3], ',', &member))
                        if (span_is(member, u->name) && u->group_count < COP_USER_GROUPS_MAX) {
                                u->groups[u->group_count++] = gid;
                                break;
                        }
        }
}

/* -- look-up ---------------------------------------------------------------------------------------------------------
 */

/* An absent or strange file reads as empty: "nobody" works in an image without /etc/passwd only by number. */
static void read_database(const char *path, struct cop_buf *buf)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        struct stat st;
        ssize_t n;

        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return;
        do
                n = cop_buf_read(buf, fd, 65536);
        while (n > 0 || n == -EINTR);
}

static int find_group(const char *spec, const struct cop_buf *groups, struct cop_user *u, struct cop_error *err)
{
        uint64_t number;

        if (cop_parse_u64(spec, &number) == 0 && number <= ID_MAX) {
                u->gid = (gid_t)number;
                return 0;
        }
        if (cop_user_parse_group(groups->data, groups->len, spec, &u->gid))
                return 0;
        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                             "there is no group \"%.64s\" in /etc/group of the sandbox, and it is no number up to %d",
                             spec, ID_MAX);
}

static int find_user(const char *spec, const struct cop_buf *passwd, struct cop_user *u, struct cop_error *err)
{
        uint64_t number;

        if (cop_parse_u64(spec, &number) == 0 && number <= ID_MAX) {
                if (!cop_user_parse_passwd(passwd->data, passwd->len, NULL, (uid_t)number, u)) {
                        u->uid = (uid_t)number;
                        u->gid = (gid_t)number; /* not 0, as others do: a stranger is no member of root's group */
                }
                return 0;
        }
        if (spec[0] && cop_user_parse_passwd(passwd->data, passwd->len, spec, 0, u))
                return 0;
        /* An image that is no more than a program has no /etc/passwd, and root for its user all the same (image/describe.sh). */
        if (strcmp(spec, "root") == 0) {
                *u = (struct cop_user){.name = "root"};
                return 0;
        }
        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                             "there is no user \"%.64s\" in /etc/passwd of the sandbox, and it is no number up to %d",
                             spec, ID_MAX);
}

int cop_user_find(const char *spec, uid_t default_uid, gid_t default_gid, struct cop_user *ret, struct cop_error *err)
{
        _cleanup_buf_ struct cop_buf passwd = COP_BUF(FILE_MAX), groups = COP_BUF(FILE_MAX);
        _cleanup_free_ char *name = NULL;
        int r;

        *ret = (struct cop_user){.uid = default_uid, .gid = default_gid};
        read_database("/etc/passwd", &passwd);
        read_database("/etc/group", &groups);
        if (!spec || !spec[0]) {
                cop_user_parse_passwd(passwd.data, passwd.len, NULL, default_uid, ret);
                ret->gid = default_gid;
        } else {
                const char *colon = strchr(spec, ':');
                name = colon ? strndup(spec, (size_t)(colon - spec)) : strdup(spec);
                if (!name)
                        return cop_error_errno(err, ENOMEM, "looking up user %.64s", spec);
                r = find_user(name, &passwd, ret, err);
                if (r == 0 && colon)
                        r = find_group(colon + 1, &groups, ret, err);
                if (r < 0)
                        return r;
        }
        cop_user_parse_memberships(groups.data, groups.len, ret);
        if (!ret->name[0])
                snprintf(ret->name, sizeof(ret->name), "%u", ret->uid);
        if (!ret->home[0])
                strcpy(ret->home, "/");
        if (!ret->shell[0])
                strcpy(ret->shell, "/bin/sh");
        return 0;
}

/* -- becoming --------------------------------------------------------------------------------------------------------
 */

/* Leaving uid 0 empties the permitted and effective sets, not the inheritable one. */
static int drop_capabilities(void)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[2] = {0};

        return syscall(SYS_capset, &header, none) < 0 ? -errno : 0;
}

int cop_user_become(const struct cop_user *u, struct cop_error *err)
{
        int r = 0;

        if (setgroups(u->group_count, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
            setresuid(u->uid, u->uid, u->uid) < 0)
                r = -errno;
        else if (u->uid != 0)
                r = drop_capabilities();
        if (r < 0)
                return cop_error_set(err, -r, COP_ERR_internal, "becoming user %u:%u in the sandbox: %s", u->uid,
                                     u->gid, strerror(-r));
        return 0;
}

void cop_user_prepare_child(void)
{
        struct rlimit core = {0, 0};

        cop_signals_reset();
        umask(022);
        setrlimit(RLIMIT_CORE, &core);
        /* The files of a process that is not dumpable belong to the host's root. */
        prctl(PR_SET_DUMPABLE, 1);
        int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        if (fd >= 0) {
                ssize_t n = write(fd, OOM_ADJ, sizeof(OOM_ADJ) - 1);
                (void)n; /* the cgroup's limit holds without it; only the choice of the victim is worse */
                close(fd);
        }
        prctl(PR_SET_DUMPABLE, 0);
}
