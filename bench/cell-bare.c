/* cell-bare: the least a program can do to run cells, as the baseline for what Coppice adds.
 *
 * Raw libzmq, one thread, no event loop, no JSON: a request is a printf, an answer is recognised by its message id.  Nothing
 * here is checked that a real client must check.
 *
 *      cell-bare [--label L] [-n CELLS] [-p PRINTS] --connection FILE [--base PATH]     a kernel that runs
 *      cell-bare [--label L] [-n CELLS] [-p PRINTS] -- ARGV…                            start one; {connection_file} in ARGV
 *
 * PATH replaces the file's "ip", when the sockets are elsewhere than the kernel believes.  Prints one JSON object a line:
 * name, unit, n, p50, p99, min; for the prints also lines per second.
 */
#include <errno.h>
#include <getopt.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#define DELIMITER "<IDS|MSG>"
#define FRAMES_MAX 16
#define LINES 10000

struct client {
        void *zmq, *shell, *iopub;
        char base[200], key[200];
        unsigned counter;
};

static double now_ms(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static _Noreturn void die(const char *what)
{
        fprintf(stderr, "cell-bare: %s: %s\n", what, strerror(errno));
        exit(1);
}

static void sign(const struct client *c, const char *const frames[4], char ret[65])
{
        unsigned char digest[32];
        char all[8192];
        size_t n = 0;

        for (int i = 0; i < 4; i++)
                n += (size_t)snprintf(all + n, sizeof(all) - n, "%s", frames[i]);
        HMAC(EVP_sha256(), c->key, (int)strlen(c->key), (unsigned char *)all, n, digest, NULL);
        for (int i = 0; i < 32; i++)
                snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

/* Sends a request; its message id into id. */
static void request(struct client *c, const char *type, const char *content, char id[64])
{
        char header[512], signature[65];

        snprintf(id, 64, "bare-%d-%u", getpid(), ++c->counter);
        snprintf(header, sizeof(header),
                 "{\"msg_id\":\"%s\",\"session\":\"bare\",\"username\":\"bare\",\"date\":\"2026-01-01T00:00:00Z\","
                 "\"msg_type\":\"%s\",\"version\":\"5.3\"}",
                 id, type);
        const char *const frames[] = {header, "{}", "{}", content};
        sign(c, frames, signature);
        zmq_send(c->shell, DELIMITER, strlen(DELIMITER), ZMQ_SNDMORE);
        zmq_send(c->shell, signature, 64, ZMQ_SNDMORE);
        for (int i = 0; i < 4; i++)
                zmq_send(c->shell, frames[i], strlen(frames[i]), i < 3 ? ZMQ_SNDMORE : 0);
}

struct reply {
        bool mine, reply, idle;
        size_t lines;
};

/* Takes one message; false when there is none. */
static bool receive(void *socket, const char *id, struct reply *r)
{
        zmq_msg_t frames[FRAMES_MAX];
        size_t n = 0, header;
        bool more = true;

        while (more && n < FRAMES_MAX) {
                zmq_msg_init(&frames[n]);
                if (zmq_msg_recv(&frames[n], socket, ZMQ_DONTWAIT) < 0)
                        return false;
                more = zmq_msg_more(&frames[n++]);
        }
        for (header = 0; header + 5 < n; header++)
                if (zmq_msg_size(&frames[header]) == strlen(DELIMITER) &&
                    memcmp(zmq_msg_data(&frames[header]), DELIMITER, strlen(DELIMITER)) == 0)
                        break;
        header += 2;
        if (header + 3 < n &&
            memmem(zmq_msg_data(&frames[header + 1]), zmq_msg_size(&frames[header + 1]), id, strlen(id))) {
                char *head = zmq_msg_data(&frames[header]), *content = zmq_msg_data(&frames[header + 3]);
                size_t head_size = zmq_msg_size(&frames[header]), size = zmq_msg_size(&frames[header + 3]);
                r->mine = true;
                r->reply = r->reply || memmem(head, head_size, "_reply\"", 7);
                r->idle = r->idle || (memmem(head, head_size, "\"status\"", 8) && memmem(content, size, "\"idle\"", 6));
                if (memmem(head, head_size, "\"stream\"", 8))
                        for (char *p = content; (p = memmem(p, (size_t)(content + size - p), "\\n", 2)); p += 2)
                                r->lines++;
        }
        for (size_t i = 0; i < n; i++)
                zmq_msg_close(&frames[i]);
        return true;
}

/* Until reply and idle are there, or the time is over. */
static bool await(struct client *c, const char *id, long timeout_ms, struct reply *r)
{
        zmq_pollitem_t items[] = {{c->iopub, 0, ZMQ_POLLIN, 0}, {c->shell, 0, ZMQ_POLLIN, 0}};
        double end = now_ms() + (double)timeout_ms;

        while (!(r->reply && r->idle)) {
                while (receive(c->iopub, id, r) || receive(c->shell, id, r))
                        ;
                if (r->reply && r->idle)
                        break;
                if (now_ms() >= end)
                        return false;
                zmq_poll(items, 2, timeout_ms);
        }
        return true;
}

static double cell(struct client *c, const char *code, size_t *ret_lines)
{
        char content[1024], id[64];
        struct reply r = {0};
        double start = now_ms();

        snprintf(content, sizeof(content),
                 "{\"code\":\"%s\",\"silent\":false,\"store_history\":true,\"user_expressions\":{},"
                 "\"allow_stdin\":false,\"stop_on_error\":false}",
                 code);
        request(c, "execute_request", content, id);
        if (!await(c, id, 30000, &r)) {
                errno = ETIMEDOUT;
                die("a cell did not end");
        }
        if (ret_lines)
                *ret_lines = r.lines;
        return now_ms() - start;
}

static void connect_to(struct client *c)
{
        char endpoint[256];
        int zero = 0, quick = 5;

        c->zmq = zmq_ctx_new();
        c->shell = zmq_socket(c->zmq, ZMQ_DEALER);
        c->iopub = zmq_socket(c->zmq, ZMQ_SUB);
        void *sockets[] = {c->shell, c->iopub};
        for (int i = 0; i < 2; i++) {
                zmq_setsockopt(sockets[i], ZMQ_LINGER, &zero, sizeof(zero));
                zmq_setsockopt(sockets[i], ZMQ_RCVHWM, &zero, sizeof(zero));
                zmq_setsockopt(sockets[i], ZMQ_RECONNECT_IVL, &quick, sizeof(quick));
        }
        zmq_setsockopt(c->iopub, ZMQ_SUBSCRIBE, "", 0);
        for (int i = 0; i < 2; i++) {
                snprintf(endpoint, sizeof(endpoint), "ipc://%s-%d", c->base, i + 1);
                if (zmq_connect(sockets[i], endpoint) < 0)
                        die(endpoint);
        }
}

static void wait_ready(struct client *c)
{
        char id[64];

        for (int i = 0; i < 300; i++) {
                struct reply r = {0};
                request(c, "kernel_info_request", "{}", id);
                if (await(c, id, 200, &r))
                        return;
        }
        errno = ETIMEDOUT;
        die("the kernel did not answer");
}

static int by_value(const void *a, const void *b)
{
        double d = *(const double *)a - *(const double *)b;

        return (d > 0) - (d < 0);
}

static void measure(struct client *c, const char *label, const char *name, const char *code, size_t n, size_t lines)
{
        double *ms = calloc(n, sizeof(*ms));
        size_t got;

        if (!ms)
                die("calloc");
        for (size_t i = 0; i < n / 10 + 3; i++)
                cell(c, code, NULL);
        for (size_t i = 0; i < n; i++) {
                ms[i] = cell(c, code, &got);
                /* Without prints there may be a warning of the kernel's own. */
                if (lines && got != lines) {
                        fprintf(stderr, "cell-bare: %zu lines instead of %zu\n", got, lines);
                        exit(1);
                }
        }
        qsort(ms, n, sizeof(*ms), by_value);
        printf("{\"name\": \"%s.%s\", \"unit\": \"ms\", \"n\": %zu, \"p50\": %.3f, \"p99\": %.3f, \"min\": %.3f", label,
               name, n, ms[n / 2], ms[(n * 99) / 100], ms[0]);
        if (lines)
                printf(", \"lines_per_second\": %.0f", (double)lines * 1e3 / ms[n / 2]);
        printf("}\n");
        fflush(stdout);
        free(ms);
}

/* The value of a string member of a connection file, without a parser. */
static void member(const char *text, const char *name, char *ret, size_t size)
{
        char wanted[32];

        snprintf(wanted, sizeof(wanted), "\"%s\"", name);
        const char *p = strstr(text, wanted);
        p = p ? strchr(p + strlen(wanted), '"') : NULL;
        const char *end = p ? strchr(p + 1, '"') : NULL;
        if (!end || (size_t)(end - p) > size) {
                errno = EINVAL;
                die("connection file");
        }
        memcpy(ret, p + 1, (size_t)(end - p - 1));
        ret[end - p - 1] = '\0';
}

static void read_connection(struct client *c, const char *path)
{
        char text[4096] = "";
        FILE *f = fopen(path, "re");

        if (!f || fread(text, 1, sizeof(text) - 1, f) == 0)
                die(path);
        fclose(f);
        member(text, "key", c->key, sizeof(c->key));
        member(text, "ip", c->base, sizeof(c->base));
}

static pid_t launch(struct client *c, const char *dir, char **argv)
{
        char file[300];

        snprintf(c->base, sizeof(c->base), "%s/k", dir);
        snprintf(c->key, sizeof(c->key), "%ld-%d", random(), getpid());
        snprintf(file, sizeof(file), "%s/c.json", dir);
        FILE *f = fopen(file, "we");
        if (!f)
                die(file);
        fprintf(f,
                "{\"transport\":\"ipc\",\"ip\":\"%s\",\"shell_port\":1,\"iopub_port\":2,\"stdin_port\":3,"
                "\"control_port\":4,\"hb_port\":5,\"key\":\"%s\",\"signature_scheme\":\"hmac-sha256\","
                "\"kernel_name\":\"bare\"}",
                c->base, c->key);
        fclose(f);
        pid_t pid = fork();
        if (pid < 0)
                die("fork");
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                setsid();
                setenv("IPYTHONDIR", dir, 1);
                if (!freopen("/dev/null", "r", stdin) || !freopen("/dev/null", "w", stdout))
                        _exit(127);
                for (char **a = argv; *a; a++)
                        if (strcmp(*a, "{connection_file}") == 0)
                                *a = file;
                execvp(argv[0], argv);
                _exit(127);
        }
        return pid;
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                {"label", required_argument, NULL, 'l'},
                {"connection", required_argument, NULL, 'c'},
                {"base", required_argument, NULL, 'b'},
                {0},
        };
        struct client c = {0};
        const char *label = "bare", *connection = NULL, *base = NULL;
        char dir[] = "/tmp/cell-bare-XXXXXX", command[64];
        size_t cells = 500, prints = 30;
        pid_t pid = -1;

        for (int o; (o = getopt_long(argc, argv, "+n:p:", options, NULL)) >= 0;) {
                switch (o) {
                case 'l':
                        label = optarg;
                        break;
                case 'c':
                        connection = optarg;
                        break;
                case 'b':
                        base = optarg;
                        break;
                case 'n':
                        cells = strtoul(optarg, NULL, 10);
                        break;
                case 'p':
                        prints = strtoul(optarg, NULL, 10);
                        break;
                default:
                        return 2;
                }
        }
        if (connection) {
                read_connection(&c, connection);
                if (base)
                        snprintf(c.base, sizeof(c.base), "%s", base);
        } else if (optind < argc && mkdtemp(dir)) {
                pid = launch(&c, dir, argv + optind);
        } else {
                fprintf(stderr, "usage: cell-bare --connection FILE | cell-bare -- ARGV…\n");
                return 2;
        }
        double start = now_ms();
        connect_to(&c);
        wait_ready(&c);
        if (pid > 0)
                printf("{\"name\": \"%s.start\", \"unit\": \"ms\", \"n\": 1, \"p50\": %.1f}\n", label,
                       now_ms() - start);
        if (cells)
                measure(&c, label, "one_plus_one", "1+1", cells, 0);
        if (prints)
                measure(&c, label, "print_10k", "for i in range(10000): print(i)", prints, LINES);
        zmq_close(c.shell);
        zmq_close(c.iopub);
        zmq_ctx_term(c.zmq);
        if (pid > 0) {
                kill(-pid, SIGKILL);
                waitpid(pid, NULL, 0);
                snprintf(command, sizeof(command), "rm -rf %s", dir);
                return system(command) != 0;
        }
        return 0;
}
