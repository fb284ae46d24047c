/* coppice-keeper: the privileged parent of one sandbox.
 *
 * Theory of operation
 *
 * The daemon makes a listening SEQPACKET socket and starts this program, detached, with it: `coppice-keeper --socket-fd N`.
 * One client at a time speaks sandbox/wire.h; a new connection replaces the old one.  A client that goes away changes
 * nothing: the sandbox, its commands and their logs go on, and the next daemon finds all in HELLO and LIST.
 *
 *      client.c    connections, dispatch, replies          life.c      PREPARE, START, STOP, the end of init, clearing up
 *      calls.c     requests to init and its messages       command.c   EXEC, SIGNAL, LIST, FORGET, events, time limits
 *      link.c      one connection with a bounded queue     output.c    pipes into logs         logfile.c  the log format
 *      node.c      FREEZE      rest.c  between two nodes    thaw.c      START with THAW         capture*.c  files of a node
 *
 * One thread, one event loop.  The only things that block are PREPARE and START (milliseconds).  Every list has a limit; memory does not
 * depend on what the sandbox does.  A request that init answers keeps the client's id in a table (calls.c); nothing that
 * init says is believed beyond that.
 *
 * `coppice-keeper --merge TARGET LAYER…` is another matter: it merges a stack of layers, topmost first, and ends (merge.h);
 * `coppice-keeper --sync` is the process that writes nodes to disk after the answer (sync.c);
 * `coppice-keeper --probe [HOME]` says what this host can do for sandboxes and ends (base/checks.h).
 *
 * Death: init has this process as parent and dies with it (PR_SET_PDEATHSIG), and with init its whole pid namespace.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/parse.h"
#include "keeper/command.h"
#include "keeper/keep.h"
#include "keeper/merge.h"
#include "keeper/node.h"
#include "sandbox/probe.h"

#define TERM_GRACE (1 * USEC_PER_SEC)
#define PROBE_SECONDS 20

static void on_term(struct cop_source *s, int signo, void *userdata)
{
        cop_keep_stop(userdata, 0, 0, TERM_GRACE);
}

/* A descriptor that is only kept: what it claims is ours until we end, and never the sandbox's. */
static int hold(const char *number)
{
        uint64_t fd;

        if (cop_parse_u64(number, &fd) < 0 || fd > 1023 || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0) {
                fprintf(stderr, "coppice-keeper: no descriptor %s to hold\n", number);
                return -EBADF;
        }
        return 0;
}

static int parse_args(int argc, char **argv, int *ret_fd)
{
        int is_listening = 0;
        socklen_t n = sizeof(is_listening);
        uint64_t fd;

        if (argc == 2 && strcmp(argv[1], "--version") == 0) {
                puts("coppice-keeper " COPPICE_VERSION);
                exit(0);
        }
        bool holds = argc == 5 && strcmp(argv[3], "--hold-fd") == 0;
        if ((argc != 3 && !holds) || strcmp(argv[1], "--socket-fd") != 0 || cop_parse_u64(argv[2], &fd) < 0 ||
            fd > 1023) {
                fprintf(stderr, "usage: coppice-keeper --socket-fd N [--hold-fd M]   (started by coppiced)\n");
                return -EINVAL;
        }
        if (holds && hold(argv[4]) < 0)
                return -EINVAL;
        if (getsockopt((int)fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &n) < 0 || !is_listening) {
                fprintf(stderr, "coppice-keeper: descriptor %d is no listening socket\n", (int)fd);
                return -ENOTSOCK;
        }
        *ret_fd = (int)fd;
        return 0;
}

static void raise_nofile(void)
{
        struct rlimit limit;

        /* Two pipes and a log for each of COP_KEEP_COMMANDS_MAX commands. */
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
                limit.rlim_cur = limit.rlim_max;
                setrlimit(RLIMIT_NOFILE, &limit);
        }
}

static int setup(struct cop_keep *k, struct cop_error *err)
{
        int r = cop_loop_new(&k->loop, err);

        if (r == 0)
                r = cop_loop_add_signal(k->loop, SIGTERM, on_term, k, NULL, err);
        if (r == 0)
                r = cop_loop_add_signal(k->loop, SIGINT, on_term, k, NULL, err);
        if (r == 0)
                r = cop_keep_life_init(k, err);
        if (r == 0)
                r = cop_keep_commands_init(k, err);
        if (r == 0)
                r = cop_keep_listen(k, err);
        return r;
}

static void teardown(struct cop_keep *k)
{
        const struct cop_error err = {.errnum = EPIPE, .code = COP_ERR_sandbox_ended, .message = "the keeper ends"};

        cop_keep_node_done(k);
        cop_keep_calls_fail(k, &err);
        cop_keep_commands_free(k);
        cop_link_free(k->init);
        cop_sandbox_free(k->sandbox);
        cop_sandbox_free(k->prepared);
        cop_keep_memory_done(k);
        cop_link_free(k->client);
        cop_loop_free(k->loop);
        cop_close(k->logs_fd);
        cop_close(k->sync_fd);
        cop_close(k->listen_fd);
        free(k->ipc_path);
        free(k->upper_path);
}

/* In the background: whoever waits for the processor goes first. */
static int merge_layers(int argc, char **argv)
{
        struct cop_error err = COP_ERROR_NULL;

        umask(077);
        if (nice(10) < 0)
                cop_log_debug("nice: %s", strerror(errno));
        int r = cop_layer_merge_stack((const char *const *)argv + 3, (size_t)argc - 3, argv[2], &err);
        if (r < 0)
                cop_log_error("merging layers into %s: %s", argv[2], err.message);
        return r < 0 ? 1 : 0;
}

static void print_line(const struct cop_probe_result *result)
{
        char detail[sizeof(result->detail)];

        snprintf(detail, sizeof(detail), "%s", result->detail);
        for (char *p = detail; (p = strpbrk(p, "\t\n"));)
                *p = ' ';
        printf("%s\t%s\t%s\t%s\t%s\n", result->name, result->ok ? "ok" : "fails",
               result->needed ? "needed" : "optional", detail, result->remedy ? result->remedy : "");
}

static int probe(const char *home)
{
        struct cop_probe_result results[COP_PROBE_MAX];

        umask(077);
        signal(SIGALRM, SIG_DFL);
        alarm(PROBE_SECONDS);
        size_t n = cop_probe(home, results);
        for (size_t i = 0; i < n; i++)
                print_line(&results[i]);
        return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
        struct cop_keep k = {.listen_fd = -EBADF, .logs_fd = -EBADF, .rest_fd = -EBADF, .sync_fd = -EBADF};
        struct cop_error err = COP_ERROR_NULL;

        cop_log_init("keeper");
        if (argc > 3 && strcmp(argv[1], "--merge") == 0)
                return merge_layers(argc, argv);
        if ((argc == 2 || argc == 3) && strcmp(argv[1], "--probe") == 0)
                return probe(argv[2]);
        if (argc == 2 && strcmp(argv[1], "--sync") == 0)
                return cop_keep_sync_main(STDIN_FILENO);
        if (parse_args(argc, argv, &k.listen_fd) < 0)
                return 2;
        signal(SIGPIPE, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        umask(077);
        raise_nofile();
        if (chdir("/") < 0)
                return 1;
        int r = setup(&k, &err);
        if (r == 0) {
                cop_keep_arm_idle(&k);
                r = cop_loop_run(k.loop);
        } else {
                cop_log_error("%s", err.message);
        }
        teardown(&k);
        return r < 0 ? 1 : r;
}
