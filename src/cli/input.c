#include "input.h"

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"

#define PATIENCE_MS 2000

static int read_all(int fd, const char *name, struct cop_buf *ret, struct cop_error *err)
{
        bool told = false;

        for (;;) {
                struct pollfd p = {.fd = fd, .events = POLLIN};
                if (fd == STDIN_FILENO && !told && poll(&p, 1, PATIENCE_MS) == 0) {
                        fputs("coppice: waiting for standard input to end\n", stderr);
                        told = true;
                }
                ssize_t n = cop_buf_read(ret, fd, 65536);
                if (n == 0)
                        return 0;
                if (n == -EMSGSIZE)
                        return cop_error_set(err, EFBIG, COP_ERR_payload_too_large, "%s is longer than %zu MiB", name,
                                             ret->max >> 20);
                if (n < 0 && n != -EINTR)
                        return cop_error_errno(err, (int)n, "reading %s", name);
        }
}

int cop_input_read(const char *path, struct cop_buf *ret, struct cop_error *err)
{
        if (strcmp(path, "-") == 0)
                return read_all(STDIN_FILENO, "standard input", ret, err);
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return cop_error_errno(err, errno, "opening %s", path);
        return read_all(fd, path, ret, err);
}

bool cop_input_piped(void)
{
        struct stat st;

        return fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
}

int cop_input_ask(const char *prompt, bool hidden, struct cop_buf *ret, struct cop_error *err)
{
        struct termios before, silent;
        bool hide = hidden && tcgetattr(STDIN_FILENO, &before) == 0;
        char c;
        ssize_t n;

        fputs(prompt, stderr);
        fflush(stderr);
        if (hide) {
                silent = before;
                silent.c_lflag &= (tcflag_t)~ECHO;
                tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent);
        }
        /* Byte by byte: what comes behind the newline belongs to the next question. */
        while ((n = read(STDIN_FILENO, &c, 1)) == 1 && c != '\n')
                if (cop_buf_addc(ret, c) < 0)
                        break;
        if (hide) {
                tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
                fputc('\n', stderr);
        }
        if (n <= 0 && ret->len == 0)
                return cop_error_set(err, ENODATA, COP_ERR_bad_request, "standard input ended");
        return cop_buf_add(ret, "", 0);
}
