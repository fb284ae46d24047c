/* cell-http: runs the cell 1+1 through Coppice's HTTP interface, as cell-bare does on the kernel's sockets: C, one connection, no
 * library, so that the difference between the two is Coppice and not the client.
 *
 *      cell-http SOCKET SANDBOX CELLS
 *
 * Prints a JSON object with the times of all cells in ms: {"ms": [..]}.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define REPLY_MAX 65536

static double now_ms(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static _Noreturn void die(const char *what)
{
        fprintf(stderr, "cell-http: %s: %s\n", what, strerror(errno));
        exit(1);
}

static int connect_to(const char *path)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
        if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
                die(path);
        return fd;
}

/* Reads one reply with a Content-Length. */
static void read_reply(int fd, char reply[static REPLY_MAX])
{
        size_t n = 0, wanted = SIZE_MAX;

        while (n < wanted) {
                ssize_t got = read(fd, reply + n, REPLY_MAX - 1 - n);
                if (got <= 0)
                        die("read");
                reply[n += (size_t)got] = '\0';
                char *body = strstr(reply, "\r\n\r\n");
                if (wanted != SIZE_MAX || !body)
                        continue;
                char *length = strcasestr(reply, "\r\ncontent-length:");
                if (!length || length > body)
                        die("no Content-Length");
                wanted = (size_t)(body + 4 - reply) + strtoul(length + 17, NULL, 10);
        }
}

int main(int argc, char **argv)
{
        static const char body[] = "{\"code\":\"1+1\"}";
        static char request[512], reply[REPLY_MAX];

        if (argc != 4) {
                fprintf(stderr, "usage: cell-http SOCKET SANDBOX CELLS\n");
                return 2;
        }
        int fd = connect_to(argv[1]);
        int n = snprintf(
                request, sizeof(request),
                "POST /api/sandboxes/%s/cells HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                "Content-Length: %zu\r\n\r\n%s",
                argv[2], strlen(body), body);
        printf("{\"ms\": [");
        for (long i = 0, count = strtol(argv[3], NULL, 10); i < count; i++) {
                double begin = now_ms();
                if (write(fd, request, (size_t)n) != n)
                        die("write");
                read_reply(fd, reply);
                printf("%s%.3f", i ? ", " : "", now_ms() - begin);
                if (!strstr(reply, "\"status\":\"ok\"")) {
                        fprintf(stderr, "cell-http: %s\n", reply);
                        return 1;
                }
        }
        printf("]}\n");
        return 0;
}
