/* coppice: finds the verb, reads its options, runs it.  See cli.h. */
#include <curl/curl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "cli.h"
#include "help.h"
#include "print.h"
#include "start.h"
#include "verbs.h"

const struct cop_verb *const cop_verbs[] = {
        &cop_verb_new,
        &cop_verb_run,
        &cop_verb_exec,
        &cop_verb_cp,
        &cop_verb_ls,
        &cop_verb_info,
        &cop_verb_logs,
        &cop_verb_rm,
        &cop_verb_suspend,
        &cop_verb_resume,
        &cop_verb_snapshot_ls, /* before the verb of one word */
        &cop_verb_snapshot_rm,
        &cop_verb_snapshot,
        &cop_verb_pack,
        &cop_verb_unpack,
        &cop_verb_fork,
        &cop_verb_log,
        &cop_verb_undo,
        &cop_verb_redo,
        &cop_verb_goto,
        &cop_verb_diff,
        &cop_verb_take,
        &cop_verb_keep,
        &cop_verb_export,
        &cop_verb_import,
        &cop_verb_gc,
        &cop_verb_interrupt,
        &cop_verb_context_ls,
        &cop_verb_context_new,
        &cop_verb_context_restart,
        &cop_verb_context_interrupt,
        &cop_verb_context_rm,
        &cop_verb_image_build,
        &cop_verb_image_import,
        &cop_verb_image_ls,
        &cop_verb_image_show,
        &cop_verb_image_rm,
        &cop_verb_image_warm,
        &cop_verb_token_new,
        &cop_verb_token_ls,
        &cop_verb_token_rm,
        &cop_verb_doctor,
        &cop_verb_serve,
        &cop_verb_version,
        NULL,
};

/* -- for the verbs -------------------------------------------------------------------------------------------------- */

void cop_cli_note(const struct cop_cli *cli, const char *format, ...)
{
        va_list ap;

        fflush(stdout);
        cop_print_colour(stderr, cli->err_colour, COP_DIM, "coppice: ");
        va_start(ap, format);
        vfprintf(stderr, format, ap);
        va_end(ap);
        fputc('\n', stderr);
}

int cop_cli_usage(struct cop_cli *cli, const char *format, ...)
{
        const char *name = cli->verb ? cli->verb->name : "";
        va_list ap;

        fputs("coppice: ", stderr);
        va_start(ap, format);
        vfprintf(stderr, format, ap);
        va_end(ap);
        fprintf(stderr, "\nTry: coppice help%s%s\n", *name ? " " : "", name);
        return COP_EXIT_USAGE;
}

/* What to do, where the message does not say it. */
static const char *remedy_for(const struct cop_error *err)
{
        switch (err->code) {
        case COP_ERR_sandbox_not_found:
                return "coppice ls shows the sandboxes there are";
        case COP_ERR_sandbox_ended:
                return "coppice ls --all shows why it ended; coppice new starts another";
        case COP_ERR_context_not_found:
                return "coppice context ls SANDBOX shows its contexts";
        case COP_ERR_image_not_found:
                return "coppice image ls shows the images; coppice image build makes code-interpreter";
        case COP_ERR_unauthorized:
                return "set COPPICE_TOKEN; coppice token new makes one on the daemon's host";
        case COP_ERR_unsupported:
        case COP_ERR_start_failed:
                return "coppice doctor shows what this host lacks";
        default:
                return NULL;
        }
}

int cop_cli_fail(struct cop_cli *cli)
{
        const char *remedy = remedy_for(&cli->err);

        fflush(stdout);
        cop_print_colour(stderr, cli->err_colour, COP_RED, "coppice: ");
        cop_print_clean(stderr, cli->err.message, false);
        fputc('\n', stderr);
        if (remedy && (!strstr(cli->err.message, "coppice ") || cli->err.code == COP_ERR_unauthorized))
                fprintf(stderr, "  %s\n", remedy);
        return COP_EXIT_ERROR;
}

bool cop_cli_call(struct cop_cli *cli, const char *method, const char *path, json_t *body, json_t **ret)
{
        if (cop_client_call(cli->client, method, path, body, ret, &cli->err) >= 0)
                return true;
        cop_cli_fail(cli);
        return false;
}

int cop_cli_each(struct cop_cli *cli, size_t argc, char **argv, int (*fn)(struct cop_cli *cli, const char *arg))
{
        int exit = COP_EXIT_OK;

        for (size_t i = 0; i < argc; i++) {
                int one = fn(cli, argv[i]);
                exit = one ? one : exit;
        }
        return exit;
}

static int encode(struct cop_buf *out, const char *s)
{
        static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
        int r = 0;

        for (; *s && r == 0; s++)
                r = strchr(plain, *s) ? cop_buf_addc(out, *s) : cop_buf_addf(out, "%%%02X", (unsigned char)*s);
        return r;
}

char *cop_cli_path(const char *format, ...)
{
        _cleanup_buf_ struct cop_buf out = COP_BUF(1 << 20);
        va_list ap;
        int r = 0;
        bool query = false;

        va_start(ap, format);
        for (const char *f = format; *f && r == 0; f++) {
                query = query || *f == '?' || *f == '&';
                if (f[0] != '%' || f[1] != 's') {
                        r = cop_buf_addc(&out, *f);
                        continue;
                }
                const char *value = va_arg(ap, const char *);
                f++;
                /* A slash is data within a segment of the path, and harmless in a query. */
                for (const char *slash; !query && r == 0 && (slash = strchr(value, '/')); value = slash + 1) {
                        char part[512];
                        snprintf(part, sizeof(part), "%.*s", (int)(slash - value), value);
                        r = encode(&out, part);
                        r = r < 0 ? r : cop_buf_adds(&out, "%2F");
                }
                r = r < 0 ? r : encode(&out, value);
        }
        va_end(ap);
        return r < 0 ? NULL : cop_buf_take(&out);
}

/* -- connecting ----------------------------------------------------------------------------------------------------- */

/* Makes the client; with a socket, also says whether somebody listens. */
bool cop_cli_find(struct cop_cli *cli)
{
        const char *url = getenv("COPPICE_URL"), *token = getenv("COPPICE_TOKEN");
        struct cop_place place;

        if (cli->client)
                return true;
        curl_global_init(CURL_GLOBAL_DEFAULT);
        if (url && *url)
                return cop_client_new(NULL, url, token && *token ? token : NULL, &cli->client, &cli->err) == 0;
        return cop_place_find(&place, &cli->err) == 0 && cop_place_answers(&place) &&
               cop_client_new(place.socket, NULL, NULL, &cli->client, &cli->err) == 0;
}

bool cop_cli_connect(struct cop_cli *cli)
{
        struct cop_place place;

        cli->err = COP_ERROR_NULL;
        if (cop_cli_find(cli))
                return true;
        if (cli->err.errnum == 0 && cop_place_find(&place, &cli->err) == 0) {
                if (cop_daemon_start(&place, &cli->err) == 0 &&
                    cop_client_new(place.socket, NULL, NULL, &cli->client, &cli->err) == 0)
                        return true;
        }
        cop_cli_fail(cli);
        return false;
}

/* -- main ----------------------------------------------------------------------------------------------------------- */

/* The verb of argv[0], or of argv[0] and argv[1]; *ret_words is how many words it took. */
static const struct cop_verb *find_verb(int argc, char **argv, int *ret_words)
{
        for (const struct cop_verb *const *v = cop_verbs; *v; v++) {
                const char *space = strchr((*v)->name, ' ');
                size_t n = space ? (size_t)(space - (*v)->name) : strlen((*v)->name);
                if (strlen(argv[0]) != n || strncmp(argv[0], (*v)->name, n) != 0)
                        continue;
                if (space && (argc < 2 || strcmp(argv[1], space + 1) != 0))
                        continue;
                *ret_words = space ? 2 : 1;
                return *v;
        }
        return NULL;
}

static bool wants_help(const struct cop_verb *verb, int argc, char **argv)
{
        for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
                if (strcmp(argv[i], "--help") == 0 || (strcmp(argv[i], "-h") == 0 && !verb->passes_options))
                        return !verb->passes_options;
        return false;
}

static int run_verb(struct cop_cli *cli, int argc, char **argv)
{
        const struct cop_verb *verb = cli->verb;
        int count = argc;

        if (wants_help(verb, argc, argv)) {
                cop_help_verb(verb);
                return COP_EXIT_OK;
        }
        if (!verb->passes_options)
                count = cop_options_parse(verb->options, argc, argv, &cli->after_dashes, &cli->err);
        if (count < 0)
                return cop_cli_usage(cli, "%s", cli->err.message);
        if ((size_t)count < verb->args_min)
                return cop_cli_usage(cli, "too few arguments: coppice %s %s", verb->name, verb->args);
        if ((size_t)count > verb->args_max)
                return cop_cli_usage(cli, "too many arguments, from \"%s\" on: coppice %s %s", argv[verb->args_max],
                                     verb->name, verb->args);
        int exit = verb->run(cli, (size_t)count, argv);
        if (exit == COP_EXIT_ERROR && cli->err.code == COP_ERR_unavailable && cli->err.errnum == ECONNREFUSED)
                exit = COP_EXIT_NO_DAEMON;
        if (fflush(stdout) != 0 && exit == COP_EXIT_OK && errno != EPIPE) {
                perror("coppice: standard output");
                exit = COP_EXIT_ERROR;
        }
        return exit;
}

static void init(struct cop_cli *cli)
{
        const char *terminal = getenv("TERM");
        bool plain = getenv("NO_COLOR") || (terminal && strcmp(terminal, "dumb") == 0);

        cli->out_tty = isatty(STDOUT_FILENO);
        cli->err_tty = isatty(STDERR_FILENO);
        cli->out_colour = cli->out_tty && !plain;
        cli->err_colour = cli->err_tty && !plain;
}

int main(int argc, char **argv)
{
        struct cop_cli cli = {0};
        int words = 0;

        init(&cli);
        signal(SIGPIPE, SIG_IGN);
        if (argc < 2) {
                cop_help_all(stderr);
                return COP_EXIT_USAGE;
        }
        if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
                return cop_help(argc - 2, argv + 2) ? COP_EXIT_OK : COP_EXIT_USAGE;
        if (strcmp(argv[1], "--version") == 0)
                argv[1] = (char *)"version";
        cli.verb = find_verb(argc - 1, argv + 1, &words);
        if (!cli.verb && argc == 3 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0))
                return cop_help(1, argv + 1) ? COP_EXIT_OK : COP_EXIT_USAGE; /* of a group */
        if (!cli.verb) {
                cop_help_unknown(argc - 1, argv + 1);
                return COP_EXIT_USAGE;
        }
        int exit = run_verb(&cli, argc - 1 - words, argv + 1 + words);
        cop_client_free(cli.client);
        return exit;
}
