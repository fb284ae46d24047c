/* coppiced: the daemon.  Options, the home folder and its lock, signals, telling others that it is ready; all work is the
 * engine's and the server's.
 *
 * Stopping (SIGTERM, SIGINT) ends connections and leaves sandboxes running; a new daemon finds them again.
 */
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/loop.h"
#include "daemon/notify.h"
#include "daemon/places.h"
#include "engine/engine.h"
#include "server/route.h"
#include "server/server.h"

#define EXIT_USAGE 2
#define EXIT_RUNNING 3 /* another daemon has this home */
#define HOSTS_MAX 16

struct options {
        const char *home;
        const char *socket;
        const char *listen;
        const char *hosts[HOSTS_MAX + 1];
        size_t host_count;
        bool listen_any, group, no_spare;
        int ready_fd;
};

static const char usage[] =
        "Usage: coppiced [OPTION]...\n"
        "The Coppice daemon: runs sandboxes and serves the API. It stays in the foreground.\n"
        "\n"
        "  --home DIR             where everything is kept (default: $COPPICE_HOME, else /var/lib/coppice as root,\n"
        "                         ~/.local/share/coppice otherwise)\n"
        "  --socket PATH          Unix socket (default: HOME/coppice.sock)\n"
        "  --socket-group         let the socket's group connect (mode 0660); its members still need a token\n"
        "  --listen ADDRESS:PORT  also serve TCP, such as 127.0.0.1:8000; callers need a token (coppice token new)\n"
        "  --listen-insecure-any  allow an address that other machines reach, although HTTP is not encrypted\n"
        "  --allow-host NAME      accept this name in the Host header over TCP; may be repeated\n"
        "  --no-spare             keep nothing ready for the next fork or golden state (10-15 ms more)\n"
        "  --log-level LEVEL      error, warning, info or debug (default: $COPPICE_LOG, else info)\n"
        "  --ready-fd N           write one line to this descriptor when requests are answered\n"
        "  --list-routes          print method and path of every call and exit\n"
        "  --version, --help\n"
        "\n"
        "SIGTERM stops the daemon; sandboxes go on, and the next daemon takes them over.\n";

static void list_routes(void)
{
        for (const struct cop_route_table *t = cop_route_tables(); t->routes; t++)
                for (const struct cop_route *r = t->routes; r->method; r++)
                        printf("%s %s %s\n", t->dialect->name, r->method, r->pattern);
}

enum {
        OPTION_HOME = 256,
        OPTION_SOCKET,
        OPTION_GROUP,
        OPTION_LISTEN,
        OPTION_ANY,
        OPTION_HOST,
        OPTION_SPARE,
        OPTION_LOG,
        OPTION_READY,
        OPTION_ROUTES,
        OPTION_VERSION,
        OPTION_HELP,
        OPTION_FOREGROUND,
};

/* -1: go on; else the exit status. */
static int parse_options(int argc, char **argv, struct options *o)
{
        static const struct option options[] = {{"home", required_argument, NULL, OPTION_HOME},
                                                {"socket", required_argument, NULL, OPTION_SOCKET},
                                                {"socket-group", no_argument, NULL, OPTION_GROUP},
                                                {"listen", required_argument, NULL, OPTION_LISTEN},
                                                {"listen-insecure-any", no_argument, NULL, OPTION_ANY},
                                                {"allow-host", required_argument, NULL, OPTION_HOST},
                                                {"no-spare", no_argument, NULL, OPTION_SPARE},
                                                {"log-level", required_argument, NULL, OPTION_LOG},
                                                {"ready-fd", required_argument, NULL, OPTION_READY},
                                                {"list-routes", no_argument, NULL, OPTION_ROUTES},
                                                {"version", no_argument, NULL, OPTION_VERSION},
                                                {"help", no_argument, NULL, OPTION_HELP},
                                                {"foreground", no_argument, NULL, OPTION_FOREGROUND},
                                                {NULL, 0, NULL, 0}};
        char *end;
        int c;

        while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
                switch (c) {
                case OPTION_HOME:
                        o->home = optarg;
                        break;
                case OPTION_SOCKET:
                        o->socket = optarg;
                        break;
                case OPTION_GROUP:
                        o->group = true;
                        break;
                case OPTION_LISTEN:
                        o->listen = optarg;
                        break;
                case OPTION_ANY:
                        o->listen_any = true;
                        break;
                case OPTION_HOST:
                        if (o->host_count == HOSTS_MAX) {
                                fprintf(stderr, "coppiced: at most %d --allow-host\n", HOSTS_MAX);
                                return EXIT_USAGE;
                        }
                        o->hosts[o->host_count++] = optarg;
                        break;
                case OPTION_SPARE:
                        o->no_spare = true;
                        break;
                case OPTION_LOG:
                        setenv("COPPICE_LOG", optarg, 1);
                        break;
                case OPTION_READY:
                        o->ready_fd = (int)strtol(optarg, &end, 10);
                        if (*end || o->ready_fd < 0 || fcntl(o->ready_fd, F_GETFD) < 0) {
                                fprintf(stderr, "coppiced: --ready-fd %s is not an open descriptor\n", optarg);
                                return EXIT_USAGE;
                        }
                        break;
                case OPTION_ROUTES:
                        list_routes();
                        return EXIT_SUCCESS;
                case OPTION_VERSION:
                        puts("coppiced " COPPICE_VERSION);
                        return EXIT_SUCCESS;
                case OPTION_HELP:
                        fputs(usage, stdout);
                        return EXIT_SUCCESS;
                case OPTION_FOREGROUND:
                        break;
                default:
                        fputs("Try 'coppiced --help'.\n", stderr);
                        return EXIT_USAGE;
                }
        }
        if (optind < argc) {
                fprintf(stderr, "coppiced: unexpected argument '%s'\nTry 'coppiced --help'.\n", argv[optind]);
                return EXIT_USAGE;
        }
        return -1;
}

/* One connection, kernel socket or log each: 1024 would be reached with a few dozen sandboxes. */
static void raise_nofile(void)
{
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
                limit.rlim_cur = limit.rlim_max;
                setrlimit(RLIMIT_NOFILE, &limit);
        }
}

static void on_stop(struct cop_source *s, int signo, void *userdata)
{
        cop_log_info("stopping on %s; sandboxes go on", sigabbrev_np(signo) ? sigabbrev_np(signo) : "signal");
        cop_loop_quit(userdata, 0);
}

/* Kept so that a hangup of the terminal or `systemctl reload` does not end the daemon: nothing needs rereading yet. */
static void on_hangup(struct cop_source *s, int signo, void *userdata)
{
        cop_log_info("nothing to reload");
}

static int watch_signals(struct cop_loop *loop, struct cop_error *err)
{
        int r = cop_loop_add_signal(loop, SIGTERM, on_stop, loop, NULL, err);

        signal(SIGPIPE, SIG_IGN);
        if (r == 0)
                r = cop_loop_add_signal(loop, SIGINT, on_stop, loop, NULL, err);
        if (r == 0)
                r = cop_loop_add_signal(loop, SIGHUP, on_hangup, loop, NULL, err);
        return r;
}

static void say_ready(const struct options *o, const struct cop_places *places, const struct cop_server *server)
{
        char line[64];

        if (cop_server_port(server))
                cop_log_info("serving %s and TCP port %u", places->socket, cop_server_port(server));
        else
                cop_log_info("serving %s", places->socket);
        if (o->ready_fd >= 0) {
                int n = snprintf(line, sizeof(line), "ready pid=%d tcp=%u\n", (int)getpid(), cop_server_port(server));
                if (write(o->ready_fd, line, (size_t)n) < 0)
                        cop_log_warning("nobody waits at --ready-fd: %m");
                close(o->ready_fd);
        }
        cop_notify("READY=1\nSTATUS=Serving");
}

static int serve(const struct options *o, const struct cop_places *places, struct cop_error *err)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = NULL;
        struct cop_engine *engine = NULL;
        struct cop_server *server = NULL;

        int r = cop_loop_new(&loop, err);
        if (r == 0)
                r = watch_signals(loop, err);
        if (r == 0)
                r = cop_engine_new(loop,
                                   &(struct cop_engine_config){.home = places->home,
                                                               .keeper_path = places->keeper,
                                                               .pack_path = places->pack,
                                                               .compare_path = places->compare,
                                                               .image_tool = places->image_tool,
                                                               .recipes = places->recipes,
                                                               .no_spare = o->no_spare},
                                   &engine, err);
        if (r == 0)
                r = cop_server_new(&(struct cop_server_config){.loop = loop,
                                                               .engine = engine,
                                                               .socket_path = places->socket,
                                                               .socket_mode = o->group ? 0660 : 0600,
                                                               .listen = o->listen,
                                                               .listen_any = o->listen_any,
                                                               .allowed_hosts = o->hosts},
                                   &server, err);
        if (r == 0) {
                say_ready(o, places, server);
                r = cop_loop_run(loop);
                if (r < 0)
                        cop_error_errno(err, -r, "event loop");
                cop_notify("STOPPING=1");
        }
        cop_server_free(server);
        cop_engine_free(engine);
        return r;
}

int main(int argc, char **argv)
{
        struct options o = {.ready_fd = -1};
        struct cop_error err = COP_ERROR_NULL;
        struct cop_places places;
        _cleanup_close_ int lock_fd = -EBADF;

        int status = parse_options(argc, argv, &o);
        if (status >= 0)
                return status;
        cop_log_init("coppiced");
        umask(0077);
        raise_nofile();
        if (o.ready_fd >= 0)
                cop_set_cloexec(o.ready_fd, 1);
        int r = cop_places_find(o.home, o.socket, &places, &err);
        if (r == 0)
                r = lock_fd = cop_places_lock(&places, &err);
        if (r < 0) {
                fprintf(stderr, "coppiced: %s\n", err.message);
                return r == -EWOULDBLOCK ? EXIT_RUNNING : EXIT_FAILURE;
        }
        r = serve(&o, &places, &err);
        if (r < 0) {
                cop_log_error("%s", err.message);
                return EXIT_FAILURE;
        }
        return EXIT_SUCCESS;
}
