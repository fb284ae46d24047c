#include "compare/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/utf8.h"

#define DIFF "/usr/bin/diff"

/* The file as a memory file, at its beginning; -ENODATA when it is no text. */
static int copy_text(int fd)
{
        _cleanup_free_ char *text = malloc(COP_TEXT_FILE_MAX + 1);
        size_t n = 0;
        ssize_t got;

        if (!text)
                return -ENOMEM;
        while (n <= COP_TEXT_FILE_MAX && (got = pread(fd, text + n, COP_TEXT_FILE_MAX + 1 - n, (off_t)n)) > 0)
                n += (size_t)got;
        if (n > COP_TEXT_FILE_MAX || memchr(text, '\0', n) || !cop_utf8_valid(text, n))
                return -ENODATA;
        _cleanup_close_ int copy = memfd_create("text", MFD_CLOEXEC);
        if (copy < 0)
                return -errno;
        int r = cop_write_all(copy, text, n);
        return r < 0 ? r : TAKE_FD(copy);
}

/* All that it says: what is more than fits is read and dropped, so that it ends by itself. */
static void read_all(int fd, struct cop_buf *out, bool *ret_cut)
{
        char chunk[8192];
        ssize_t n;

        *ret_cut = false;
        while ((n = read(fd, chunk, sizeof(chunk))) > 0) {
                size_t room = COP_TEXT_DIFF_MAX - out->len;
                *ret_cut |= (size_t)n > room;
                if (cop_buf_add(out, chunk, MIN_OF((size_t)n, room)) < 0)
                        *ret_cut = true;
        }
}

static void tidy(struct cop_buf *out, bool cut)
{
        char *hunk = out->len > 0 ? strstr(out->data, "\n@@ ") : NULL;

        cop_buf_consume(out, hunk ? (size_t)(hunk + 1 - out->data) : out->len);
        while (cut && out->len > 0 && out->data[out->len - 1] != '\n')
                out->len--;
        if (out->data)
                out->data[out->len] = '\0';
}

int cop_text_diff(int a_fd, int b_fd, struct cop_buf *out, bool *ret_cut)
{
        static const char *const argv[] = {"diff", "-u",        "--label",   "a", "--label",
                                           "b",    "/dev/fd/3", "/dev/fd/4", NULL};
        static const char *const env[] = {"LC_ALL=C", NULL};
        _cleanup_close_ int a = copy_text(a_fd), b = a < 0 ? a : copy_text(b_fd), in = -EBADF;
        int status = 0;
        pid_t pid;

        if (a < 0 || b < 0)
                return a == -ENODATA || b == -ENODATA ? 0 : MIN_OF(a, b);
        const struct cop_child_spec spec = {
                .path = DIFF,
                .argv = argv,
                .env = env,
                .cwd = "/",
                .fds = (const struct cop_child_fd[]){{a, 3}, {b, 4}},
                .fd_count = 2,
        };
        int r = cop_child_spawn_output(&spec, &pid, &in, NULL);
        if (r < 0)
                return r;
        read_all(in, out, ret_cut);
        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) > 1)
                return -EIO;
        tidy(out, *ret_cut);
        return 1;
}
