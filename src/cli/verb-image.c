#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli.h"
#include "input.h"
#include "params.h"
#include "print.h"
#include "verbs.h"

static struct {
        const char *name, *mirror, *code, *file;
        usec_t timeout;
        bool force, json, quiet, remove;
} opt;

#define OPTION_NAME                                                                    \
        {                                                                              \
                "name", 'n', COP_OPTION_STRING, &opt.name, "NAME", "name of the image" \
        }
#define OPTION_QUIET                                                           \
        {                                                                      \
                "quiet", 'q', COP_OPTION_FLAG, &opt.quiet, NULL, "no progress" \
        }

static const struct cop_option json_options[] = {COP_OPTION_JSON(&opt.json), {0}};
static const struct cop_option import_options[] = {OPTION_NAME, OPTION_QUIET, COP_OPTION_JSON(&opt.json), {0}};
static const struct cop_option build_options[] = {
        OPTION_NAME,
        {"mirror", 'm', COP_OPTION_STRING, &opt.mirror, "URL", "Debian mirror instead of this host's own"},
        {"force", 'f', COP_OPTION_FLAG, &opt.force, NULL, "build although an image of this recipe exists"},
        OPTION_QUIET,
        COP_OPTION_JSON(&opt.json),
        {0},
};

/* -- making --------------------------------------------------------------------------------------------------------- */

struct making {
        struct cop_cli *cli;
        json_t *image; /* owned */
        char stage[64];
};

static int on_event(json_t *event, void *userdata)
{
        struct making *m = userdata;
        const char *stage = cop_member(event, "stage", ""), *message = cop_member(event, "message", "");
        json_t *percent = json_object_get(event, "percent");

        if (strcmp(cop_member(event, "type", ""), "end") == 0) {
                json_decref(m->image);
                m->image = json_incref(json_object_get(event, "image"));
                return 0;
        }
        if (opt.quiet || !*stage)
                return 0;
        if (m->cli->err_tty) {
                fprintf(stderr, "\r\033[K%s: ", stage);
                if (json_is_number(percent))
                        fprintf(stderr, "%.0f %% ", json_number_value(percent));
                cop_print_clean(stderr, message, false);
                fflush(stderr);
        } else if (strcmp(stage, m->stage) != 0) { /* in a log, one line per stage is enough */
                fprintf(stderr, "%s: ", stage);
                cop_print_clean(stderr, message, false);
                fputc('\n', stderr);
        }
        snprintf(m->stage, sizeof(m->stage), "%s", stage);
        return 0;
}

static int make(struct cop_cli *cli, const char *path, json_t *body)
{
        struct making m = {.cli = cli};
        struct cop_stream_request request = {
                .method = "POST", .path = path, .body = body, .event = on_event, .wake_fd = -EBADF, .userdata = &m};
        char size[COP_SIZE_MAX];

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        int r = cop_client_stream(cli->client, &request, &cli->err);
        if (cli->err_tty && m.stage[0])
                fputs("\r\033[K", stderr);
        if (r < 0)
                return cop_cli_fail(cli);
        if (!m.image) {
                cop_cli_note(cli, "the stream ended before the image was done");
                return COP_EXIT_ERROR;
        }
        if (opt.json)
                cop_print_json(m.image, cli->out_tty);
        else
                printf("%s %s %s\n", cop_member(m.image, "id", ""), cop_member(m.image, "name", ""),
                       cop_format_size((uint64_t)json_integer_value(json_object_get(m.image, "size_bytes")), size));
        json_decref(m.image);
        return COP_EXIT_OK;
}

static int build(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_json_ json_t *body = json_object();

        cop_param_str(body, "recipe", argc > 0 ? argv[0] : NULL);
        cop_param_str(body, "name", opt.name);
        cop_param_str(body, "mirror", opt.mirror);
        if (opt.force)
                json_object_set_new(body, "force", json_true());
        return make(cli, "/api/images/build", body);
}

/* The daemon does not share our current folder: a relative path is made absolute, "oci:" and the like are kept in front. */
static char *absolute_source(const char *source)
{
        static const char *const schemes[] = {"oci:", "oci-archive:", "docker-archive:", "dir:"};
        const char *path = source;
        char cwd[4096], *full = NULL;

        for (size_t i = 0; i < ELEMENTSOF(schemes); i++)
                if (strncmp(source, schemes[i], strlen(schemes[i])) == 0)
                        path = source + strlen(schemes[i]);
        if (*path == '/' || !getcwd(cwd, sizeof(cwd)))
                return strdup(source);
        return asprintf(&full, "%.*s%s/%s", (int)(path - source), source, cwd, path) < 0 ? NULL : full;
}

/* "rootfs.tar.zst" -> "rootfs": a name when none was given. */
static char *name_from(const char *source)
{
        const char *slash = strrchr(source, '/'), *start = slash ? slash + 1 : source;

        if (!slash && strchr(source, ':'))
                start = strchr(source, ':') + 1;
        return strndup(start, strcspn(start, ".:"));
}

static int import(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *source = absolute_source(argv[0]),
                            *name = opt.name ? strdup(opt.name) : name_from(argv[0]);
        _cleanup_json_ json_t *body = json_object();

        if (!name || !*name)
                return cop_cli_usage(cli, "give the image a name with --name");
        cop_param_str(body, "source", source);
        cop_param_str(body, "name", name);
        return make(cli, "/api/images/import", body);
}

/* -- golden states --------------------------------------------------------------------------------------------------- */

#define CODE_MAX (16u << 20) /* the daemon has its own, smaller limit and says so */

static const struct cop_option warm_options[] = {
        {"run", 'r', COP_OPTION_STRING, &opt.code, "CODE",
         "what to run instead of importing numpy, pandas, matplotlib"},
        {"file", 'f', COP_OPTION_STRING, &opt.file, "FILE", "read the code from a file, - for standard input"},
        {"timeout", 't', COP_OPTION_DURATION, &opt.timeout, "TIME", "limit of the code (5m)"},
        {"remove", 0, COP_OPTION_FLAG, &opt.remove, NULL, "forget the golden state: new sandboxes boot again"},
        OPTION_QUIET,
        COP_OPTION_JSON(&opt.json),
        {0},
};

static int warm(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/images/%s/warm", argv[0]);
        _cleanup_buf_ struct cop_buf code = COP_BUF(CODE_MAX);
        _cleanup_json_ json_t *body = json_object();

        if (opt.code && opt.file)
                return cop_cli_usage(cli, "give the code either with --run or with -f, not both");
        if (opt.remove && (opt.code || opt.file))
                return cop_cli_usage(cli, "--remove takes no code");
        if (opt.remove) {
                if (!cop_cli_connect(cli))
                        return COP_EXIT_NO_DAEMON;
                return path && cop_cli_call(cli, "DELETE", path, NULL, NULL) ? COP_EXIT_OK : COP_EXIT_ERROR;
        }
        if (opt.file && cop_input_read(opt.file, &code, &cli->err) < 0)
                return cop_cli_usage(cli, "%s", cli->err.message);
        cop_param_str(body, "code", opt.code);
        if (opt.file)
                json_object_set_new(body, "code", cop_json_foreign_string(code.data ? code.data : "", code.len));
        cop_param_seconds(body, "timeout", opt.timeout);
        return make(cli, path, body);
}

/* -- looking -------------------------------------------------------------------------------------------------------- */

static int list(struct cop_cli *cli, size_t argc, char **argv)
{
        static const char *const headings[] = {"ID", "NAME", "SIZE", "OS", "SANDBOXES", "GOLDEN", "AGE"};
        _cleanup_json_ json_t *reply = NULL;
        json_t *images, *image;
        size_t i;

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!cop_cli_call(cli, "GET", "/api/images", NULL, &reply))
                return COP_EXIT_ERROR;
        images = json_is_array(reply) ? reply : json_object_get(reply, "images");
        if (opt.json) {
                cop_print_json(images, cli->out_tty);
                return COP_EXIT_OK;
        }
        struct cop_table *t = cop_table_new(ELEMENTSOF(headings), headings);
        json_array_foreach (images, i, image) {
                char size[COP_SIZE_MAX], memory[COP_SIZE_MAX] = "-", age[24], used[24], os_text[96];
                json_t *os = json_object_get(image, "os"), *golden = json_object_get(image, "golden");
                if (json_is_object(golden))
                        cop_format_size((uint64_t)json_integer_value(json_object_get(golden, "memory_bytes")), memory);
                snprintf(used, sizeof(used), "%lld",
                         (long long)json_integer_value(json_object_get(image, "sandboxes")));
                snprintf(os_text, sizeof(os_text), "%.40s %.40s", cop_member(os, "id", ""),
                         cop_member(os, "version", ""));
                const char *cells[] = {
                        cop_member(image, "id", ""),
                        cop_member(image, "name", ""),
                        cop_format_size((uint64_t)json_integer_value(json_object_get(image, "size_bytes")), size),
                        os_text,
                        used,
                        memory,
                        cop_age(cop_member(image, "created_at", NULL), age, sizeof(age))};
                cop_table_add(t, cells);
        }
        cop_table_print(t);
        cop_table_free(t);
        return COP_EXIT_OK;
}

static int show(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/images/%s", argv[0]);
        _cleanup_json_ json_t *image = NULL;

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || !cop_cli_call(cli, "GET", path, NULL, &image))
                return COP_EXIT_ERROR;
        cop_print_json(image, cli->out_tty || !opt.json);
        return COP_EXIT_OK;
}

static int remove_one(struct cop_cli *cli, const char *ref)
{
        _cleanup_free_ char *path = cop_cli_path("/api/images/%s", ref);

        return path && cop_cli_call(cli, "DELETE", path, NULL, NULL) ? COP_EXIT_OK : COP_EXIT_ERROR;
}

static int remove_some(struct cop_cli *cli, size_t argc, char **argv)
{
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        return cop_cli_each(cli, argc, argv, remove_one);
}

const struct cop_verb cop_verb_image_build = {
        .name = "image build",
        .args = "[RECIPE]",
        .summary = "build an image from a recipe (code-interpreter)",
        .examples = "coppice image build\n"
                    "coppice image build code-interpreter --name lab --force",
        .options = build_options,
        .args_max = 1,
        .run = build,
};
const struct cop_verb cop_verb_image_import = {
        .name = "image import",
        .args = "SOURCE",
        .summary = "make an image from a folder, a tar file or an OCI layout",
        .examples = "coppice image import ./rootfs --name mine\n"
                    "coppice image import rootfs.tar.zst\n"
                    "coppice image import oci:./layout:latest --name app",
        .options = import_options,
        .args_min = 1,
        .args_max = 1,
        .run = import,
};
const struct cop_verb cop_verb_image_ls = {
        .name = "image ls",
        .args = "",
        .summary = "list images",
        .examples = "coppice image ls",
        .options = json_options,
        .run = list,
};
const struct cop_verb cop_verb_image_show = {
        .name = "image show",
        .args = "IMAGE",
        .summary = "show an image with its packages and kernelspecs",
        .examples = "coppice image show code-interpreter",
        .options = json_options,
        .args_min = 1,
        .args_max = 1,
        .run = show,
};
const struct cop_verb cop_verb_image_rm = {
        .name = "image rm",
        .args = "IMAGE…",
        .summary = "remove images; refused while a sandbox uses one",
        .examples = "coppice image rm old-image",
        .options = json_options,
        .args_min = 1,
        .args_max = 100,
        .run = remove_some,
};
const struct cop_verb cop_verb_image_warm = {
        .name = "image warm",
        .args = "IMAGE",
        .summary = "make the golden state of an image, which its new sandboxes begin with",
        .notes = "A kernel is started and the code is run once; from then on every new sandbox of the image has both "
                 "in its "
                 "memory already.\n"
                 "What the code leaves behind, names and files, is in each of them. A sandbox boots as before with "
                 "--cold or "
                 "--no-kernel,\n"
                 "with another --nofile, with less --memory than the state has, with variables in --env that programs "
                 "read "
                 "when they start\n"
                 "(PYTHON…, LD_…, LC_…, LANG, TZ, HOME, OMP_…, MPL… and the like), and on another CPU or kernel.",
        .examples = "coppice image warm code-interpreter\n"
                    "coppice image warm code-interpreter --run 'import pandas, sklearn'\n"
                    "coppice image warm lab -f setup.py --timeout 10m\n"
                    "coppice image warm --remove lab",
        .options = warm_options,
        .args_min = 1,
        .args_max = 1,
        .run = warm,
};
