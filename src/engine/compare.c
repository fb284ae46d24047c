#include "engine/compare.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/fs.h"

#define LINE_MAX_BYTES (1u << 20)
#define TOTAL_MAX_BYTES (24u << 20)
#define CHUNK (64u << 10)
#define CHUNKS_A_TURN 4
#define DEADLINE (120 * USEC_PER_SEC)
#define RUNNING_MAX 8

struct cop_comparison {
        struct cop_engine *engine; /* borrowed */
        struct cop_comparison *next;
        char a[COP_ID_MAX], b[COP_ID_MAX];
        pid_t pid;
        int out_fd;                             /* owned */
        struct cop_source *child, *out, *timer; /* owned */
        struct cop_buf line;
        size_t bytes;
        json_t *changes, *end; /* owned */
        bool too_long, late;
        struct cop_error err; /* errnum != 0: it said what went wrong */
        cop_comparison_fn fn;
        void *userdata;
};

static void comparison_free(struct cop_comparison *c)
{
        for (struct cop_comparison **at = &c->engine->comparisons; *at; at = &(*at)->next)
                if (*at == c) {
                        *at = c->next;
                        break;
                }
        cop_source_free(c->child);
        cop_source_free(c->out);
        cop_source_free(c->timer);
        cop_close(c->out_fd);
        cop_buf_done(&c->line);
        json_decref(c->changes);
        json_decref(c->end);
        free(c);
}

void cop_comparisons_drop(struct cop_engine *e)
{
        while (e->comparisons) {
                if (e->comparisons->pid > 0)
                        kill(-e->comparisons->pid, SIGKILL);
                comparison_free(e->comparisons);
        }
}

/* -- what it says ------------------------------------------------------------------------------------------------------ */

static bool is_one_of(json_t *value, const char *const *words)
{
        const char *text = json_string_value(value);

        for (; text && *words; words++)
                if (strcmp(text, *words) == 0)
                        return true;
        return false;
}

/* A side of a change: only what it must have, each of its kind. */
static bool file_is_valid(json_t *file)
{
        static const char *const texts[] = {"sha256", "target", NULL};
        static const char *const types[] = {"file", "directory", "symlink", "fifo", "socket", "device", NULL};
        const char *key;
        json_t *value;

        if (!is_one_of(json_object_get(file, "type"), types) || !json_is_integer(json_object_get(file, "size")) ||
            !json_is_integer(json_object_get(file, "uid")) || !json_is_integer(json_object_get(file, "gid")) ||
            !json_is_string(json_object_get(file, "mode")) || !json_is_string(json_object_get(file, "mtime")))
                return false;
        json_object_foreach (file, key, value)
                for (const char *const *text = texts; *text; text++)
                        if (strcmp(key, *text) == 0 && !json_is_string(value))
                                return false;
        return true;
}

static bool change_is_valid(json_t *line)
{
        static const char *const kinds[] = {"added", "changed", "removed", NULL};
        static const char *const what[] = {"type", "content", "mode", "owner", NULL};
        json_t *a = json_object_get(line, "a"), *b = json_object_get(line, "b"), *diff = json_object_get(line, "diff"),
               *word;
        size_t i;

        if (!json_is_string(json_object_get(line, "path")) || !is_one_of(json_object_get(line, "change"), kinds) ||
            !json_is_array(json_object_get(line, "what")) || (!a && !b) || (a && !file_is_valid(a)) ||
            (b && !file_is_valid(b)) || (diff && !json_is_string(diff)))
                return false;
        json_array_foreach (json_object_get(line, "what"), i, word)
                if (!is_one_of(word, what))
                        return false;
        return true;
}

static void on_line(struct cop_comparison *c, const char *text, size_t n)
{
        _cleanup_json_ json_t *line = json_loadb(text, n, 0, NULL);
        json_t *error = json_object_get(line, "error");
        const char *code = json_string_value(json_object_get(error, "code")),
                   *message = json_string_value(json_object_get(error, "message"));

        if (code && message)
                cop_error_set(&c->err, EIO,
                              strcmp(code, "unsupported") == 0 ? COP_ERR_unsupported
                              : strcmp(code, "no_memory") == 0 ? COP_ERR_no_memory
                                                               : COP_ERR_io_error,
                              "comparing files: %.400s", message);
        else if (json_is_true(json_object_get(line, "end")))
                c->end = json_incref(line);
        else if (change_is_valid(line))
                json_array_append(c->changes, line);
}

/* Whole lines of what was read; one that is too long ends it all: ours are not. */
static void split_lines(struct cop_comparison *c)
{
        size_t at = 0;
        char *newline;

        while ((newline = memchr(c->line.data + at, '\n', c->line.len - at))) {
                on_line(c, c->line.data + at, (size_t)(newline - c->line.data) - at);
                at = (size_t)(newline - c->line.data) + 1;
        }
        cop_buf_consume(&c->line, at);
}

/* False at the end, or when nothing is there now. */
static bool read_out(struct cop_comparison *c, bool *ret_end)
{
        ssize_t n = c->too_long ? 0 : cop_buf_read(&c->line, c->out_fd, CHUNK);

        *ret_end = n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR);
        if (n == -EMSGSIZE)
                c->too_long = true;
        if (n <= 0)
                return false;
        c->bytes += (size_t)n;
        split_lines(c);
        if (c->bytes > TOTAL_MAX_BYTES)
                c->too_long = true;
        return true;
}

static void on_out(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_comparison *c = userdata;
        bool end = false;

        for (int i = 0; i < CHUNKS_A_TURN && read_out(c, &end); i++)
                ;
        if (end)
                c->out = cop_source_free(s);
        if (c->too_long && c->pid > 0)
                kill(-c->pid, SIGKILL);
}

/* -- its end ------------------------------------------------------------------------------------------------------------- */

static json_int_t count_of(json_t *object, const char *key)
{
        return MAX_OF(json_integer_value(json_object_get(object, key)), (json_int_t)0);
}

/* A node that was deleted meanwhile would look like removed files. */
static int check_nodes(struct cop_comparison *c, struct cop_error *err)
{
        const char *const ids[] = {c->a, c->b};

        for (size_t i = 0; i < ELEMENTSOF(ids); i++) {
                _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
                int r = cop_store_node_get(c->engine->store, ids[i], &row, err);
                if (r < 0)
                        return cop_error_wrap(err, r, "it was deleted while its files were compared");
        }
        return 0;
}

static int conclude(struct cop_comparison *c, const siginfo_t *si, struct cop_error *err)
{
        if (c->late)
                return cop_error_set(err, ETIMEDOUT, COP_ERR_timeout,
                                     "comparing the files of %s and %s took more than %d s", c->a, c->b,
                                     (int)(DEADLINE / USEC_PER_SEC));
        if (c->err.errnum) {
                *err = c->err;
                return -EIO;
        }
        if (!c->end)
                return cop_error_set(err, EIO, COP_ERR_io_error, "comparing the files of %s and %s ended with %s %d%s",
                                     c->a, c->b, si->si_code == CLD_EXITED ? "status" : "signal", si->si_status,
                                     c->too_long ? ": there was too much to tell" : "");
        return check_nodes(c, err);
}

static void on_child(struct cop_source *s, const siginfo_t *si, void *userdata)
{
        struct cop_comparison *c = userdata;
        struct cop_error err;
        bool end = false;

        c->pid = 0;
        while (read_out(c, &end)) /* at most what a pipe holds: nobody else has it open */
                ;
        int r = conclude(c, si, &err);
        _cleanup_json_ json_t *files =
                r < 0 ? NULL
                      : json_pack("{s:O, s:I, s:b, s:I, s:I, s:[s, s, s, s, s, s, s, s, s, s]}", "changes", c->changes,
                                  "total", count_of(c->end, "changes"), "truncated",
                                  json_is_true(json_object_get(c->end, "truncated")), "unread",
                                  count_of(c->end, "unread"), "unopened", count_of(c->end, "unopened"), "left_out",
                                  "/dev", "/proc", "/run", "/sys", "/etc/hostname", "/etc/hosts", "__pycache__",
                                  ".cache", ".ipython", ".ipynb_checkpoints");
        if (r == 0 && !files)
                cop_error_errno(&err, ENOMEM, "comparing files");
        cop_comparison_fn fn = c->fn;
        void *data = c->userdata;
        comparison_free(c);
        fn(files, files ? NULL : &err, data);
}

static void on_deadline(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_comparison *c = userdata;

        c->late = true;
        if (c->pid > 0)
                kill(-c->pid, SIGKILL);
}

/* -- its beginning --------------------------------------------------------------------------------------------------------- */

struct arguments {
        char **list; /* owned, NULL-terminated */
        size_t count;
};

static void arguments_done(struct arguments *a)
{
        for (size_t i = 0; i < a->count; i++)
                free(a->list[i]);
        free(a->list);
}

static int add(struct arguments *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int add(struct arguments *a, const char *format, ...)
{
        char **list = realloc(a->list, (a->count + 2) * sizeof(*list));
        va_list ap;

        if (!list)
                return -ENOMEM;
        a->list = list;
        va_start(ap, format);
        int n = vasprintf(&list[a->count], format, ap);
        va_end(ap);
        if (n >= 0)
                a->count++;
        list[a->count] = NULL;
        return n < 0 ? -ENOMEM : 0;
}

static int add_stack(struct arguments *args, struct cop_engine *e, const char *flag, const struct cop_node_row *node,
                     struct cop_error *err)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *image = NULL;
        _cleanup_json_ json_t *layers = json_loads(node->layers, 0, NULL);
        char path[4200];
        json_t *layer;
        size_t i;

        int r = cop_store_image_get(e->store, node->image_id, &image, err);
        if (r < 0)
                return r;
        r = add(args, "%s", flag);
        json_array_foreach (layers, i, layer) {
                if (r == 0 && (r = cop_layer_path(e, json_string_value(layer), path, sizeof(path), err)) < 0)
                        return r;
                if (r == 0)
                        r = add(args, "%s", path);
        }
        if (r == 0)
                r = add(args, "%s/rootfs", image->path);
        return r < 0 ? cop_error_errno(err, r, "comparing files") : 0;
}

static int spawn(struct cop_comparison *c, const struct cop_node_row *a, const struct cop_node_row *b, bool text,
                 struct cop_error *err)
{
        __attribute__((cleanup(arguments_done))) struct arguments args = {0};
        struct cop_engine *e = c->engine;

        int r = add(&args, "coppice-compare");
        if (r == 0 && text)
                r = add(&args, "--text");
        if (r < 0)
                return cop_error_errno(err, r, "comparing files");
        r = add_stack(&args, e, "--a", a, err);
        if (r == 0)
                r = add_stack(&args, e, "--b", b, err);
        if (r < 0)
                return r;
        const struct cop_child_spec spec = {
                .path = e->compare_path,
                .argv = (const char *const *)args.list,
                .cwd = "/",
                .new_session = true,
                .death_signal = SIGKILL,
        };
        r = cop_child_spawn_output(&spec, &c->pid, &c->out_fd, err);
        if (r == 0)
                cop_set_nonblock(c->out_fd, 1);
        return r;
}

static int start(struct cop_comparison *c, const struct cop_node_row *a, const struct cop_node_row *b, bool text,
                 struct cop_error *err)
{
        struct cop_loop *loop = c->engine->loop;
        unsigned running = 0;

        for (struct cop_comparison *other = c->engine->comparisons; other; other = other->next)
                running++;
        if (!c->engine->compare_path)
                return cop_error_set(err, ENOENT, COP_ERR_unsupported, "the program coppice-compare is missing");
        if (running > RUNNING_MAX)
                return cop_error_set(err, EAGAIN, COP_ERR_too_many, "%d states are being compared already; try again",
                                     RUNNING_MAX);
        int r = spawn(c, a, b, text, err);
        if (r == 0)
                r = cop_loop_add_child(loop, c->pid, on_child, c, &c->child, err);
        if (r == 0)
                r = cop_loop_add_io(loop, c->out_fd, EPOLLIN, on_out, c, &c->out, err);
        if (r == 0)
                r = cop_loop_add_timer(loop, cop_usec_add(cop_now(CLOCK_MONOTONIC), DEADLINE), on_deadline, c,
                                       &c->timer, err);
        if (r < 0 && c->pid > 0)
                kill(-c->pid, SIGKILL);
        return r;
}

void cop_compare_nodes(struct cop_engine *e, const struct cop_node_row *a, const struct cop_node_row *b, bool text,
                       cop_comparison_fn fn, void *userdata)
{
        struct cop_comparison *c = calloc(1, sizeof(*c));
        struct cop_error err;

        if (!c) {
                cop_error_errno(&err, ENOMEM, "comparing files");
                fn(NULL, &err, userdata);
                return;
        }
        *c = (struct cop_comparison){.engine = e,
                                     .next = e->comparisons,
                                     .out_fd = -EBADF,
                                     .line = COP_BUF(LINE_MAX_BYTES + CHUNK),
                                     .changes = json_array(),
                                     .fn = fn,
                                     .userdata = userdata};
        e->comparisons = c;
        memcpy(c->a, a->id, sizeof(c->a));
        memcpy(c->b, b->id, sizeof(c->b));
        if (start(c, a, b, text, &err) < 0) {
                comparison_free(c);
                fn(NULL, &err, userdata);
        }
}
