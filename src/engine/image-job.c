/* Theory of operation
 *
 * coppice-image makes images/<id>.partial and renames it to images/<id> when it is whole.  It runs as a child in its
 * own session and is told to stop (SIGTERM, 10 s later SIGKILL to its group) when the caller goes away; it dies with
 * the daemon. What it prints on stdout is foreign (it names files of the image): lines are bounded, must be JSON
 * objects, and only known fields are passed on.  Its stderr goes to logs/image.log.
 *
 *      CHECK   `recipe-id`: is there an image of this name made from the same recipe?  Then that is the answer
 *      MAKE    `build` or `import`
 *
 * The row comes after the folder: a crash in between leaves a folder without a row, which the next start removes.
 */
#include "engine/image.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/child.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/utf8.h"

#define LINE_MAX_BYTES (64u << 10)
#define LOG_MAX_BYTES (8 << 20)
#define KILL_AFTER (10 * USEC_PER_SEC)
#define JOBS_MAX 4

enum phase {
        PHASE_CHECK,
        PHASE_MAKE,
};

struct cop_image_job {
        struct cop_engine *engine; /* borrowed */
        struct cop_image_job *next;
        struct cop_op *op;
        enum phase phase;
        bool import, stopping;
        char id[COP_ID_MAX];
        char *name, *recipe, *source, *mirror; /* owned */
        char dir[4200];                        /* images/<id> */
        pid_t pid;
        int out_fd;                             /* owned: the child's stdout */
        struct cop_source *child, *out, *timer; /* owned */
        struct cop_buf line;
        bool skipping; /* the rest of a line that is too long */
        char first_line[200];
        char code[64], message[700]; /* of the line "error" */
};

static void job_free(struct cop_image_job *j)
{
        for (struct cop_image_job **at = &j->engine->image_jobs; *at; at = &(*at)->next)
                if (*at == j) {
                        *at = j->next;
                        break;
                }
        cop_source_free(j->child);
        cop_source_free(j->out);
        cop_source_free(j->timer);
        cop_close(j->out_fd);
        cop_buf_done(&j->line);
        free(j->name);
        free(j->recipe);
        free(j->source);
        free(j->mirror);
        free(j);
}

/* Answers and frees; what was made so far goes. */
static void job_fail(struct cop_image_job *j, const struct cop_error *err)
{
        struct cop_op *op = j->op;
        char partial[4300];

        if (cop_path_format(partial, sizeof(partial), "%s.partial", j->dir) == 0)
                cop_trash_add(j->engine, partial);
        cop_trash_add(j->engine, j->dir);
        job_free(j);
        cop_op_done(op, NULL, err);
}

/* -- what the tool says -------------------------------------------------------------------------------------------- */

static void copy_text(json_t *event, const char *key, char *buf, size_t n)
{
        const char *text = json_string_value(json_object_get(event, key));

        snprintf(buf, n, "%s", text ? text : "");
        cop_utf8_trim(buf);
}

static void on_line(struct cop_image_job *j, const char *line, size_t n)
{
        _cleanup_json_ json_t *event = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
        char stage[64], message[500];

        if (!j->first_line[0])
                snprintf(j->first_line, sizeof(j->first_line), "%.*s", (int)MIN_OF(n, sizeof(j->first_line) - 1), line);
        if (!json_is_object(event))
                return;
        copy_text(event, "stage", stage, sizeof(stage));
        copy_text(event, "message", message, sizeof(message));
        if (strcmp(stage, "error") == 0) {
                copy_text(event, "code", j->code, sizeof(j->code));
                copy_text(event, "message", j->message, sizeof(j->message));
                return;
        }
        /* "done" is said once the image is registered. */
        if (!stage[0] || strcmp(stage, "done") == 0 || j->phase == PHASE_CHECK)
                return;
        json_t *percent = json_object_get(event, "percent");
        _cleanup_json_ json_t *clean = json_pack("{s:s, s:s, s:O?}", "stage", stage, "message", message, "percent",
                                                 json_is_number(percent) ? percent : NULL);
        if (clean)
                cop_op_progress(j->op, clean); /* the op is alive: a cancelled one only says nothing */
}

static void take_lines(struct cop_image_job *j)
{
        char *newline;

        while (j->line.len > 0 && (newline = memchr(j->line.data, '\n', j->line.len))) {
                size_t n = (size_t)(newline - j->line.data);
                if (!j->skipping)
                        on_line(j, j->line.data, n);
                j->skipping = false;
                cop_buf_consume(&j->line, n + 1);
        }
        if (j->line.len >= LINE_MAX_BYTES) {
                j->skipping = true;
                cop_buf_clear(&j->line);
        }
}

/* False at end of file or on an error. */
static bool read_out(struct cop_image_job *j)
{
        ssize_t n = cop_buf_read(&j->line, j->out_fd, 16384);

        if (n > 0)
                take_lines(j);
        return n > 0 || n == -EINTR;
}

static void on_out(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_image_job *j = userdata;

        if (!read_out(j))
                j->out = cop_source_free(s); /* the end of the child decides */
}

/* -- the child ----------------------------------------------------------------------------------------------------- */

static void on_child(struct cop_source *s, const siginfo_t *si, void *userdata);

static void shorten_log(int fd)
{
        struct stat st;

        if (fstat(fd, &st) == 0 && st.st_size > LOG_MAX_BYTES && ftruncate(fd, 0) < 0)
                cop_log_debug("image.log: %s", strerror(errno));
}

static int spawn(struct cop_image_job *j, const char *const *argv, struct cop_error *err)
{
        _cleanup_close_ int log_fd = -EBADF;
        char log_path[4200];

        int r = cop_path_format(log_path, sizeof(log_path), "%s/logs/image.log", j->engine->home);
        log_fd = r < 0 ? r : open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (log_fd < 0)
                return cop_error_errno(err, errno, "opening %s", log_path);
        /* One build's words are worth keeping, not those of all that ever were. */
        if (!j->next)
                shorten_log(log_fd);
        const struct cop_child_spec spec = {
                .path = argv[0],
                .argv = argv,
                .cwd = "/",
                .fds = (const struct cop_child_fd[]){{log_fd, STDERR_FILENO}},
                .fd_count = 1,
                .new_session = true,
                .death_signal = SIGTERM,
        };
        r = cop_child_spawn_output(&spec, &j->pid, &j->out_fd, err);
        if (r < 0)
                return r;
        cop_set_nonblock(j->out_fd, 1);
        r = cop_loop_add_child(j->engine->loop, j->pid, on_child, j, &j->child, err);
        if (r == 0)
                r = cop_loop_add_io(j->engine->loop, j->out_fd, EPOLLIN, on_out, j, &j->out, err);
        if (r < 0)
                kill(-j->pid, SIGKILL);
        return r;
}

static void child_done(struct cop_image_job *j)
{
        j->child = cop_source_free(j->child);
        j->out = cop_source_free(j->out);
        /* A process that left the group might hold the pipe for ever, so what is in it now is all there is. */
        while (read_out(j))
                ;
        j->out_fd = cop_close(j->out_fd);
        cop_buf_clear(&j->line);
        j->skipping = false;
        j->pid = 0;
}

static int start_make(struct cop_image_job *j, struct cop_error *err)
{
        const char *build[] = {j->engine->image_tool,         "build",   j->recipe, j->dir,
                               j->mirror ? "--mirror" : NULL, j->mirror, NULL};
        const char *import[] = {j->engine->image_tool, "import", j->source, j->dir, "--name", j->name, NULL};

        j->phase = PHASE_MAKE;
        j->code[0] = j->message[0] = j->first_line[0] = '\0';
        return spawn(j, j->import ? import : build, err);
}

static bool is_unchanged(struct cop_image_job *j, struct cop_image_row **ret)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = NULL;

        if (!j->first_line[0] || cop_store_image_get(j->engine->store, j->name, &row, NULL) < 0)
                return false;
        _cleanup_json_ json_t *info = row->info ? json_loads(row->info, 0, NULL) : NULL;
        const char *id = json_string_value(json_object_get(json_object_get(info, "recipe"), "id"));
        if (!id || strcmp(id, j->first_line) != 0)
                return false;
        *ret = TAKE_PTR(row);
        return true;
}

static void checked(struct cop_image_job *j)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = NULL;
        struct cop_error err;

        if (is_unchanged(j, &row)) {
                struct cop_op *op = j->op;
                json_t *view = cop_image_view(j->engine, row, true);
                job_free(j);
                cop_op_done(op, view, NULL);
                return;
        }
        if (start_make(j, &err) < 0)
                job_fail(j, &err);
}

static void set_failure(struct cop_image_job *j, const siginfo_t *si, struct cop_error *err)
{
        const char *what = j->import ? "import" : "build";

        if (j->stopping)
                cop_error_set(err, ECANCELED, COP_ERR_cancelled, "the %s of image \"%s\" was stopped", what, j->name);
        else if (strcmp(j->code, "disk_full") == 0)
                cop_error_set(err, ENOSPC, COP_ERR_disk_full, "image \"%s\": %s", j->name, j->message);
        else if (j->message[0])
                cop_error_set(err, EIO, COP_ERR_image_build_failed, "image \"%s\": %s", j->name, j->message);
        else
                cop_error_set(
                        err, EIO, COP_ERR_image_build_failed,
                        "image \"%s\": the %s ended with %s %d without saying why; %s/logs/image.log has its output",
                        j->name, what, si->si_code == CLD_EXITED ? "status" : "signal", si->si_status, j->engine->home);
}

static void on_child(struct cop_source *s, const siginfo_t *si, void *userdata)
{
        struct cop_image_job *j = userdata;
        bool ok = si->si_code == CLD_EXITED && si->si_status == 0;
        struct cop_error err;
        json_t *view = NULL;

        child_done(j);
        if (j->phase == PHASE_CHECK && !j->stopping) {
                if (!ok)
                        j->first_line[0] = '\0'; /* the build will say what is wrong with the recipe */
                checked(j);
                return;
        }
        if (!ok || j->stopping) {
                set_failure(j, si, &err);
                job_fail(j, &err);
                return;
        }
        if (cop_image_register(j->engine, j->id, j->name, j->dir, &view, &err) < 0) {
                job_fail(j, &err);
                return;
        }
        _cleanup_json_ json_t *detail = json_pack("{s:s, s:s}", "image_id", j->id, "name", j->name);
        cop_engine_event(j->engine, j->import ? "image.imported" : "image.built", NULL, detail);
        struct cop_op *op = j->op;
        job_free(j);
        cop_op_done_durable(op, view, NULL);
}

/* -- stopping ------------------------------------------------------------------------------------------------------ */

static void on_kill_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_image_job *j = userdata;

        if (j->pid > 0)
                kill(-j->pid, SIGKILL);
}

static void on_cancel(void *data)
{
        struct cop_image_job *j = data;

        j->stopping = true;
        if (j->pid > 0)
                kill(-j->pid, SIGTERM);
        if (cop_loop_add_timer(j->engine->loop, cop_usec_add(cop_now(CLOCK_MONOTONIC), KILL_AFTER), on_kill_timer, j,
                               &j->timer, NULL) < 0 &&
            j->pid > 0)
                kill(-j->pid, SIGKILL);
}

void cop_images_drop(struct cop_engine *e)
{
        while (e->image_jobs) {
                if (e->image_jobs->pid > 0)
                        kill(-e->image_jobs->pid, SIGTERM);
                job_free(e->image_jobs);
        }
}

/* -- starting ------------------------------------------------------------------------------------------------------ */

bool cop_image_job_running(struct cop_engine *e, const char *name)
{
        for (struct cop_image_job *j = e->image_jobs; j; j = j->next)
                if (strcmp(j->name, name) == 0)
                        return true;
        return false;
}

static struct cop_image_job *job_new(struct cop_engine *e, const struct cop_image_job_params *p)
{
        struct cop_image_job *j = calloc(1, sizeof(*j));

        if (!j)
                return NULL;
        *j = (struct cop_image_job){
                .engine = e, .import = p->import, .out_fd = -EBADF, .line = COP_BUF(2 * LINE_MAX_BYTES)};
        cop_id_new(j->id, "im_", 10);
        j->name = strdup(p->name);
        j->recipe = p->recipe ? strdup(p->recipe) : NULL;
        j->source = p->source ? strdup(p->source) : NULL;
        j->mirror = p->mirror ? strdup(p->mirror) : NULL;
        j->next = e->image_jobs;
        e->image_jobs = j;
        if (!j->name || (p->recipe && !j->recipe) || (p->source && !j->source) || (p->mirror && !j->mirror) ||
            cop_path_format(j->dir, sizeof(j->dir), "%s/images/%s", e->home, j->id) < 0) {
                job_free(j);
                return NULL;
        }
        return j;
}

static int check(struct cop_engine *e, const struct cop_image_job_params *p, struct cop_error *err)
{
        unsigned n = 0;

        for (struct cop_image_job *j = e->image_jobs; j; j = j->next)
                n++;
        if (cop_image_job_running(e, p->name))
                return cop_error_set(err, EBUSY, COP_ERR_in_use, "image \"%s\" is being made already; wait for that",
                                     p->name);
        if (n >= JOBS_MAX)
                return cop_error_set(err, EBUSY, COP_ERR_too_many,
                                     "%u images are being made already; wait for one of them", n);
        return 0;
}

void cop_image_job_start(struct cop_engine *e, const struct cop_image_job_params *p, struct cop_op_to to,
                         struct cop_op **ret_op)
{
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (check(e, p, &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        struct cop_image_job *j = job_new(e, p);
        if (!j) {
                cop_answer(to, NULL, NULL);
                return;
        }
        j->op = cop_op_new(e, to, on_cancel, j);
        if (!j->op) {
                job_free(j);
                return;
        }
        const char *recipe_id[] = {e->image_tool, "recipe-id", j->recipe, NULL};
        j->phase = p->unless_unchanged ? PHASE_CHECK : PHASE_MAKE;
        int r = p->unless_unchanged ? spawn(j, recipe_id, &err) : start_make(j, &err);
        if (r < 0)
                job_fail(j, &err);
        else if (ret_op)
                *ret_op = j->op;
}
