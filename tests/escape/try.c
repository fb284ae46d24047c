/* try NAME [ARG]: one attempt to escape, in a process of its own inside a sandbox.  Exit status: enum outcome.
 * try --list: names.  The runner (tests/escape/run) starts each as the sandbox's user and as its root. */
#include "try.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct attempt *const tables[] = {kernel_attempts, file_attempts, process_attempts, network_attempts};

enum outcome judge(const char *what, long result)
{
        if (result >= 0) {
                printf("%s WORKED (%ld)\n", what, result);
                return ESCAPED;
        }
        printf("%s: %s\n", what, strerror(errno));
        return HELD;
}

enum outcome worst(enum outcome a, enum outcome b)
{
        if (a == ESCAPED || b == ESCAPED)
                return ESCAPED;
        return a == HELD || b == HELD ? HELD : ABSENT;
}

enum outcome must_not_read(const char *path)
{
        char buf[256];
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));
        int saved = errno;

        if (fd >= 0)
                close(fd);
        if (n > 0) {
                printf("%s can be read: %.*s\n", path, (int)(n < 60 ? n : 60), buf);
                return ESCAPED;
        }
        printf("%s: %s\n", path, n == 0 ? "empty" : strerror(saved));
        return HELD;
}

enum outcome must_not_write(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
        enum outcome outcome = judge(path, n);

        if (fd >= 0)
                close(fd);
        return outcome;
}

bool am_root(void)
{
        return geteuid() == 0;
}

int main(int argc, char **argv)
{
        setvbuf(stdout, NULL, _IONBF, 0); /* an attempt may kill us */
        for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
                for (const struct attempt *a = tables[t]; a->name; a++) {
                        if (argc == 2 && strcmp(argv[1], "--list") == 0)
                                puts(a->name);
                        else if (argc >= 2 && strcmp(argv[1], a->name) == 0)
                                return (int)a->run(argc > 2 ? argv[2] : NULL);
                }
        if (argc == 2 && strcmp(argv[1], "--list") == 0)
                return 0;
        fprintf(stderr, "usage: try NAME [ARG] | --list\n");
        return 2;
}
