#include "hosts.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"

#define MARK "# coppice"
#define HOSTS_MAX (256 * 1024)

int cop_hosts_check(const char *hostname, struct cop_error *err)
{
        return strlen(hostname) > COP_HOSTNAME_MAX
                       ? cop_error_set(err, EINVAL, COP_ERR_bad_request, "the hostname is longer than %d characters",
                                       COP_HOSTNAME_MAX)
                       : 0;
}

char *cop_hosts_text(const char *old, const char *hostname, int *ret_changed)
{
        _cleanup_buf_ struct cop_buf out = COP_BUF(2 * HOSTS_MAX);
        bool has_localhost = false;

        for (const char *line = old; *line;) {
                size_t n = strcspn(line, "\n");
                bool ours = n >= strlen(MARK) && memcmp(line + n - strlen(MARK), MARK, strlen(MARK)) == 0;
                has_localhost = has_localhost || (!ours && memmem(line, n, "localhost", 9));
                if (!ours && (cop_buf_add(&out, line, n) < 0 || cop_buf_addc(&out, '\n') < 0))
                        return NULL;
                line += n;
                line += *line == '\n';
        }
        if (!has_localhost && cop_buf_adds(&out, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n") < 0)
                return NULL;
        if (cop_buf_addf(&out, "127.0.1.1\t%s " MARK "\n", hostname) < 0)
                return NULL;
        *ret_changed = strcmp(out.data, old) != 0;
        return cop_buf_take(&out);
}

/* In place rather than by rename: a bind mount or a link of the user's own stays what it is. */
static int rewrite(const char *path, const char *text, struct cop_error *err)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);

        if (fd < 0)
                return errno == ENOSPC || errno == EDQUOT
                               ? cop_error_errno(err, errno, "writing %s in the sandbox", path)
                               : 0;
        int r = cop_write_all(fd, text, strlen(text));
        return r < 0 ? cop_error_errno(err, r, "writing %s in the sandbox", path) : 0;
}

int cop_hosts_write(const char *hostname, struct cop_error *err)
{
        _cleanup_free_ char *old = NULL, *text = NULL, *name = NULL;
        int changed = 0, r = 0;

        if (!hostname || !*hostname)
                return 0;
        if (cop_read_file(AT_FDCWD, "/etc/hosts", HOSTS_MAX, &old, NULL, NULL) < 0 && !(old = strdup("")))
                return cop_error_errno(err, ENOMEM, "/etc/hosts");
        text = cop_hosts_text(old, hostname, &changed);
        if (!text)
                return cop_error_errno(err, ENOMEM, "/etc/hosts");
        if (changed)
                r = rewrite("/etc/hosts", text, err);
        if (r < 0 || (cop_read_word(AT_FDCWD, "/etc/hostname", &name, NULL) == 0 && strcmp(name, hostname) == 0))
                return r;
        cop_freep(&text);
        if (asprintf(&text, "%s\n", hostname) < 0) {
                text = NULL;
                return cop_error_errno(err, ENOMEM, "/etc/hostname");
        }
        return rewrite("/etc/hostname", text, err);
}
