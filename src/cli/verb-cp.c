/* coppice cp: one side is SANDBOX:PATH, the other a local path; files go through .../files, folders as tar streams.
 *
 * A folder is packed or extracted by a forked child at the other end of a pipe, so that neither side has to hold it.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "archive.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli.h"
#include "download.h"
#include "print.h"
#include "verbs.h"

static struct {
        bool quiet, exclusive;
} opt;

static const struct cop_option options[] = {
        {"quiet", 'q', COP_OPTION_FLAG, &opt.quiet, NULL, "no progress"},
        {"no-clobber", 'n', COP_OPTION_FLAG, &opt.exclusive, NULL, "fail when the file exists in the sandbox"},
        {0},
};

/* One side of the copy. */
struct place {
        char sandbox[128]; /* "" = local */
        char path[4096];
};

struct progress {
        struct cop_cli *cli;
        const char *name;
        usec_t begin, shown;
        bool printed;
};

/* SANDBOX:PATH unless a slash comes before the colon, as for rsync and docker cp. */
static int parse_place(const char *text, struct place *ret, struct cop_error *err)
{
        const char *colon = strchr(text, ':'), *slash = strchr(text, '/');
        int r = 0;

        ret->sandbox[0] = '\0';
        if (colon && colon != text && (!slash || colon < slash)) {
                r = cop_path_format(ret->sandbox, sizeof(ret->sandbox), "%.*s", (int)(colon - text), text);
                text = colon + 1;
                if (!*text)
                        text = ".";
        }
        if (r == 0)
                r = cop_path_format(ret->path, sizeof(ret->path), "%s", text);
        return r < 0 ? cop_error_errno(err, r, "%.100s", text) : 0;
}

/* The last component, without slashes at the end. */
static const char *last_part(const char *path, char *buf, size_t n)
{
        snprintf(buf, n, "%s", path);
        return basename(buf);
}

static int append(struct place *to, const char *name, struct cop_error *err)
{
        size_t n = strlen(to->path);
        int r = cop_path_format(to->path + n, sizeof(to->path) - n, "%s%s", n > 0 && to->path[n - 1] == '/' ? "" : "/",
                                name);

        return r < 0 ? cop_error_errno(err, r, "%.100s", to->path) : 0;
}

/* -- progress ------------------------------------------------------------------------------------------------------- */

static void show_progress(uint64_t done, uint64_t total, void *userdata)
{
        struct progress *p = userdata;
        usec_t now = cop_now(CLOCK_MONOTONIC);
        char size[COP_SIZE_MAX], all[COP_SIZE_MAX], rate[COP_SIZE_MAX];

        if (!p->cli->err_tty || opt.quiet || now - p->begin < 500 * USEC_PER_MSEC ||
            now - p->shown < 200 * USEC_PER_MSEC)
                return;
        p->shown = now;
        p->printed = true;
        cop_format_size(done * USEC_PER_SEC / (now - p->begin), rate);
        fprintf(stderr, "\r%s: %s%s%s, %s/s\033[K", p->name, cop_format_size(done, size), total ? " of " : "",
                total ? cop_format_size(total, all) : "", rate);
}

static void end_progress(const struct progress *p)
{
        if (p->printed)
                fputs("\r\033[K", stderr);
}

/* -- the other end of a folder's pipe ------------------------------------------------------------------------------- */

struct helper {
        bool packs;
        pid_t pid;
        int fd;       /* owned: our end of the archive's pipe */
        int error_fd; /* owned: a struct cop_error when it failed */
};

/* Forks a child that packs `path` into the pipe, or extracts the pipe into it. */
static int start_helper(struct helper *h, const char *path, const char *prefix, bool pack, struct cop_error *err)
{
        int data[2], report[2];

        if (pipe2(data, O_CLOEXEC) < 0)
                return cop_error_errno(err, errno, "pipe");
        if (pipe2(report, O_CLOEXEC) < 0) {
                int saved = errno;
                close(data[0]);
                close(data[1]);
                return cop_error_errno(err, saved, "pipe");
        }
        fflush(NULL);
        h->pid = fork();
        if (h->pid == 0) {
                struct cop_error child_err = COP_ERROR_NULL;
                close(data[pack ? 0 : 1]);
                int r = pack ? cop_pack(path, prefix, data[1], &child_err)
                             : cop_unpack(data[0], path, true, &child_err);
                if (r < 0 && write(report[1], &child_err, sizeof(child_err)) < 0)
                        _exit(2);
                _exit(r < 0);
        }
        int fork_error = errno;
        close(report[1]);
        close(data[pack ? 1 : 0]);
        h->fd = data[pack ? 0 : 1];
        h->error_fd = report[0];
        h->packs = pack;
        return h->pid < 0 ? cop_error_errno(err, fork_error, "fork") : 0;
}

/* Lets the child finish and says whose error is the cause: a broken pipe only tells that the other side failed, and so does
 * an archive that ends early because its download did. */
static int finish_helper(struct helper *h, int r, struct cop_error *err)
{
        struct cop_error child_err;
        int status = 0;

        h->fd = cop_close(h->fd);
        bool told = read(h->error_fd, &child_err, sizeof(child_err)) == sizeof(child_err);
        h->error_fd = cop_close(h->error_fd);
        while (h->pid > 0 && waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
                ;
        bool consequence = told && (h->packs ? child_err.errnum == EPIPE : r < 0 && err->errnum != EPIPE);
        if (told && !consequence) {
                *err = child_err;
                return -child_err.errnum;
        }
        if (r >= 0 && h->pid > 0 && status != 0)
                return cop_error_set(err, EIO, COP_ERR_internal, "the helper process ended with status 0x%x",
                                     (unsigned)status);
        return r;
}

/* -- into the sandbox ----------------------------------------------------------------------------------------------- */

static int is_remote_folder(struct cop_cli *cli, const struct place *p)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/files/stat?path=%s", p->sandbox, p->path);
        _cleanup_json_ json_t *file = NULL;
        int r = cop_client_call(cli->client, "GET", path, NULL, &file, &cli->err);

        if (r < 0)
                return cli->err.code == COP_ERR_file_not_found ? 0 : r;
        const char *type = cop_member(file, "type", "");
        return strcmp(type, "directory") == 0 || strcmp(type, "folder") == 0;
}

static int upload(struct cop_cli *cli, const char *name, int fd, uint64_t size, const char *path)
{
        struct progress p = {.cli = cli, .name = name, .begin = cop_now(CLOCK_MONOTONIC)};
        struct cop_transfer t = {.method = "PUT",
                                 .path = path,
                                 .fd = fd,
                                 .size = size,
                                 .upload = true,
                                 .progress = show_progress,
                                 .userdata = &p};
        int r = cop_client_transfer(cli->client, &t, NULL, &cli->err);

        end_progress(&p);
        return r;
}

static int upload_file(struct cop_cli *cli, const char *from, int fd, const struct stat *st, const struct place *to)
{
        _cleanup_free_ char *path = NULL;
        char mode[16];

        snprintf(mode, sizeof(mode), "%04o", S_ISREG(st->st_mode) ? (unsigned)st->st_mode & 0777 : 0644);
        path = cop_cli_path(opt.exclusive ? "/api/sandboxes/%s/files?path=%s&mode=%s&parents=true&exclusive=true"
                                          : "/api/sandboxes/%s/files?path=%s&mode=%s&parents=true",
                            to->sandbox, to->path, mode);
        return upload(cli, from, fd, S_ISREG(st->st_mode) ? (uint64_t)st->st_size : UINT64_MAX, path);
}

static int upload_folder(struct cop_cli *cli, const char *from, const struct place *to)
{
        _cleanup_free_ char *mkdir_path = cop_cli_path("/api/sandboxes/%s/files/mkdir", to->sandbox);
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/files/tar?path=%s", to->sandbox, to->path);
        _cleanup_json_ json_t *body = json_pack("{s:s,s:b}", "path", to->path, "parents", 1);
        struct helper h = {.fd = -EBADF, .error_fd = -EBADF};
        int r = body ? cop_client_call(cli->client, "POST", mkdir_path, body, NULL, &cli->err)
                     : cop_error_set(&cli->err, EILSEQ, COP_ERR_bad_request, "the path is not valid UTF-8");

        if (r == 0)
                r = start_helper(&h, from, "", true, &cli->err);
        if (r == 0)
                r = upload(cli, from, h.fd, UINT64_MAX, path);
        return h.error_fd >= 0 ? finish_helper(&h, r, &cli->err) : r;
}

static int copy_in(struct cop_cli *cli, const char *from, struct place *to)
{
        char name[4096];
        bool from_stdin = strcmp(from, "-") == 0;
        _cleanup_close_ int fd = from_stdin ? dup(STDIN_FILENO) : open(from, O_RDONLY | O_CLOEXEC);
        struct stat st;
        int folder;

        if (fd < 0 || fstat(fd, &st) < 0)
                return cop_error_errno(&cli->err, errno, "opening %s", from);
        folder = to->path[strlen(to->path) - 1] == '/' ? 1 : is_remote_folder(cli, to);
        if (folder < 0)
                return folder;
        if (folder && from_stdin)
                return cop_error_set(&cli->err, EISDIR, COP_ERR_bad_request,
                                     "%s:%s is a folder: standard input needs the name of a file", to->sandbox,
                                     to->path);
        if (folder && append(to, last_part(from, name, sizeof(name)), &cli->err) < 0)
                return -ENAMETOOLONG;
        return S_ISDIR(st.st_mode) ? upload_folder(cli, from, to) : upload_file(cli, from, fd, &st, to);
}

/* -- out of the sandbox --------------------------------------------------------------------------------------------- */

static int download(struct cop_cli *cli, const char *name, int fd, const char *path)
{
        struct progress p = {.cli = cli, .name = name, .begin = cop_now(CLOCK_MONOTONIC)};
        struct cop_transfer t = {.method = "GET", .path = path, .fd = fd, .progress = show_progress, .userdata = &p};
        int r = cop_client_transfer(cli->client, &t, NULL, &cli->err);

        end_progress(&p);
        return r;
}

static int download_file(struct cop_cli *cli, const struct place *from, const char *to)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/files?path=%s", from->sandbox, from->path);
        struct progress p = {.cli = cli, .name = from->path, .begin = cop_now(CLOCK_MONOTONIC)};
        int r = cop_download(cli->client, path, to, show_progress, &p, &cli->err);

        end_progress(&p);
        return r;
}

static int download_folder(struct cop_cli *cli, const struct place *from, const char *to)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/files/tar?path=%s", from->sandbox, from->path);
        struct helper h = {.fd = -EBADF, .error_fd = -EBADF};
        int r;

        if (strcmp(to, "-") == 0)
                return download(cli, from->path, STDOUT_FILENO, path);
        r = start_helper(&h, to, "", false, &cli->err);
        if (r == 0)
                r = download(cli, from->path, h.fd, path);
        return h.error_fd >= 0 ? finish_helper(&h, r, &cli->err) : r;
}

static int copy_out(struct cop_cli *cli, const struct place *from, struct place *to)
{
        char name[4096];
        struct stat st;
        int folder = is_remote_folder(cli, from);
        bool to_folder = strcmp(to->path, "-") != 0 &&
                         (to->path[strlen(to->path) - 1] == '/' || (stat(to->path, &st) == 0 && S_ISDIR(st.st_mode)));

        if (folder < 0)
                return folder;
        if (to_folder) {
                const char *last = last_part(from->path, name, sizeof(name));
                if (strcmp(last, ".") != 0 && strcmp(last, "/") != 0 && append(to, last, &cli->err) < 0)
                        return -ENAMETOOLONG;
        }
        return folder ? download_folder(cli, from, to->path) : download_file(cli, from, to->path);
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        struct place from, to;
        int r;

        signal(SIGPIPE, SIG_IGN); /* a helper that ends early is an error with a message */
        if (parse_place(argv[0], &from, &cli->err) < 0 || parse_place(argv[1], &to, &cli->err) < 0)
                return cop_cli_usage(cli, "%s", cli->err.message);
        if (!from.sandbox[0] == !to.sandbox[0])
                return cop_cli_usage(
                        cli, from.sandbox[0] ? "one side must be local: copy out of one sandbox, then into the other"
                                             : "one side must be SANDBOX:PATH");
        if (!*from.path || !*to.path)
                return cop_cli_usage(cli, "a path is empty");
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        r = to.sandbox[0] ? copy_in(cli, from.path, &to) : copy_out(cli, &from, &to);
        return r < 0 ? cop_cli_fail(cli) : COP_EXIT_OK;
}

const struct cop_verb cop_verb_cp = {
        .name = "cp",
        .args = "FROM TO",
        .summary = "copy files and folders into and out of a sandbox",
        .notes = "One side is SANDBOX:PATH; a relative PATH starts at the sandbox's work folder. - is standard input "
                 "or output;\n"
                 "a folder on standard output is a tar stream. Into a folder that exists the copy keeps its name, as "
                 "with cp -r.",
        .examples = "coppice cp data.csv demo:/workspace/\n"
                    "coppice cp demo:/workspace/plot.png .\n"
                    "coppice cp ./project demo:/workspace/\n"
                    "coppice cp demo:results - | tar t\n"
                    "date | coppice cp - demo:now.txt",
        .options = options,
        .args_min = 2,
        .args_max = 2,
        .run = run,
};
