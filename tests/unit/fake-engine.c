#include "fake-engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "sandbox/wire.h"

struct fake fake;

struct cop_op {
        struct cop_engine *engine;
        struct cop_op_to to;
        json_t *result; /* owned */
        struct cop_op *next;
        bool when_told;
};

struct cop_record_reader {
        struct cop_engine *engine;
        size_t offset;
        bool follow;
        void (*more)(void *userdata);
        void *userdata;
};

struct cop_file_stream {
        struct cop_engine *engine;
        uint64_t offset, end, turn_bytes;
        bool unlimited, waiting, writing, finished, failed;
        void (*more)(void *userdata);
        void *userdata;
        struct cop_op *op; /* writing */
        json_t *file;
        cop_file_opened_fn opened;
        void *opened_userdata;
};

struct cop_engine {
        struct cop_loop *loop;
        struct cop_source *tick; /* owned */
        struct cop_op *ops;
        struct cop_buf record;
        bool record_ended;
        struct cop_record_reader *readers[64];
        struct cop_file_stream *streams[64];
};

/* -- operations -------------------------------------------------------------------------------------------------- */

static struct cop_op *op_new(struct cop_engine *e, struct cop_op_to to, json_t *result, bool when_told)
{
        struct cop_op *op = calloc(1, sizeof(*op));

        *op = (struct cop_op){.engine = e, .to = to, .result = result, .next = e->ops, .when_told = when_told};
        e->ops = op;
        cop_source_set_enabled(e->tick, true);
        return op;
}

static void op_unlink(struct cop_op *op)
{
        for (struct cop_op **at = &op->engine->ops; *at; at = &(*at)->next)
                if (*at == op) {
                        *at = op->next;
                        return;
                }
}

static void op_end(struct cop_op *op, const struct cop_error *err)
{
        op_unlink(op);
        if (op->to.done)
                op->to.done(err ? NULL : op->result, err, op->to.userdata);
        json_decref(op->result);
        free(op);
}

void cop_op_cancel(struct cop_op *op)
{
        fake.cancelled++;
        op_unlink(op);
        for (size_t i = 0; i < 64; i++)
                if (op->engine->streams[i] && op->engine->streams[i]->op == op)
                        op->engine->streams[i]->op = NULL;
        json_decref(op->result);
        free(op);
}

static void serve_stream(struct cop_file_stream *s)
{
        if (s->opened) {
                cop_file_opened_fn opened = s->opened;
                s->opened = NULL;
                opened(s->file, s, NULL, s->opened_userdata);
                return;
        }
        s->turn_bytes = 0;
        if (s->waiting) {
                s->waiting = false;
                s->more(s->userdata);
        }
}

static void on_tick(struct cop_source *source, void *userdata)
{
        struct cop_engine *e = userdata;

        cop_source_set_enabled(source, false);
        for (size_t i = 0; i < 64; i++)
                if (e->streams[i])
                        serve_stream(e->streams[i]);
        for (struct cop_op *op = e->ops, *next; op; op = next) {
                next = op->next;
                if (op->when_told)
                        continue;
                op_end(op, NULL);
                next = e->ops;
        }
}

struct cop_engine *fake_engine_new(struct cop_loop *loop)
{
        struct cop_engine *e = calloc(1, sizeof(*e));

        json_decref(fake.last);
        fake = (struct fake){.file_step = UINT64_MAX, .write_step = UINT64_MAX, .write_fail_after = UINT64_MAX};
        e->loop = loop;
        cop_buf_init(&e->record, 64u << 20);
        cop_loop_add_defer(loop, on_tick, e, &e->tick, NULL);
        return e;
}

void fake_engine_free(struct cop_engine *e)
{
        while (e->ops) {
                e->ops->to.done = NULL;
                op_end(e->ops, NULL);
        }
        cop_source_free(e->tick);
        cop_buf_done(&e->record);
        json_decref(fake.last);
        fake.last = NULL;
        free(e);
}

static void note(const char *call, json_t *parameters)
{
        snprintf(fake.last_call, sizeof(fake.last_call), "%s", call);
        json_decref(fake.last);
        fake.last = parameters;
}

static bool missing(const char *ref, struct cop_op_to to)
{
        struct cop_error err;

        if (strcmp(ref, "sb") == 0)
                return false;
        cop_error_set(&err, ENOENT, COP_ERR_sandbox_not_found, "no sandbox \"%s\"", ref);
        to.done(NULL, &err, to.userdata);
        return true;
}

static void answer(struct cop_op_to to, json_t *result)
{
        to.done(result, NULL, to.userdata);
        json_decref(result);
}

/* -- what the server calls ---------------------------------------------------------------------------------------- */

static json_t *copy_str(const char *s)
{
        return s ? json_string(s) : json_null();
}

void cop_sandbox_create(struct cop_engine *e, const struct cop_sandbox_params *p, struct cop_op_to to,
                        struct cop_op **ret_op)
{
        note("create", json_pack("{s:o,s:o,s:O*,s:O*,s:O*,s:I,s:I,s:i,s:i,s:i,s:b}", "name", copy_str(p->name), "image",
                                 copy_str(p->image), "labels", p->labels, "metadata", p->metadata, "env", p->env, "ttl",
                                 (json_int_t)p->ttl, "memory", (json_int_t)p->memory, "cpu_milli", (int)p->cpu_milli,
                                 "pids", (int)p->pids, "nofile", (int)p->nofile, "start_kernel", p->start_kernel));
        *ret_op = op_new(e, to, json_pack("{s:s}", "id", "sb_0123456789"), false);
}

void cop_sandbox_list(struct cop_engine *e, json_t *filter, struct cop_op_to to)
{
        note("list", json_incref(filter));
        answer(to, json_pack("{s:[]}", "sandboxes"));
}

void cop_sandbox_get(struct cop_engine *e, const char *ref, bool usage, struct cop_op_to to, struct cop_op **ret_op)
{
        *ret_op = NULL;
        note("get", json_pack("{s:s}", "ref", ref));
        if (!missing(ref, to))
                answer(to, json_pack("{s:s}", "id", "sb_0123456789"));
}

void cop_sandbox_update(struct cop_engine *e, const char *ref, json_t *patch, struct cop_op_to to,
                        struct cop_op **ret_op)
{
        *ret_op = NULL;
        note("update", json_incref(patch));
        if (!missing(ref, to))
                answer(to, json_pack("{s:s}", "id", "sb_0123456789"));
}

static void simple(struct cop_engine *e, const char *call, const char *ref, struct cop_op_to to, struct cop_op **ret_op)
{
        if (ret_op)
                *ret_op = NULL;
        note(call, json_pack("{s:s}", "ref", ref));
        if (!missing(ref, to))
                answer(to, json_pack("{s:s}", "did", call));
}

void cop_sandbox_remove(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op)
{
        simple(e, "remove", ref, to, ret_op);
}
void cop_sandbox_remove_all(struct cop_engine *e, struct cop_op_to to, struct cop_op **ret_op)
{
        simple(e, "remove_all", "sb", to, ret_op);
}
void cop_sandbox_kernelspecs(struct cop_engine *e, const char *ref, struct cop_op_to to)
{
        simple(e, "kernelspecs", ref, to, NULL);
}
void cop_context_create(struct cop_engine *e, const char *ref, const struct cop_context_params *p, struct cop_op_to to,
                        struct cop_op **ret_op)
{
        simple(e, "context_create", ref, to, ret_op);
}
void cop_context_list(struct cop_engine *e, const char *ref, struct cop_op_to to)
{
        simple(e, "context_list", ref, to, NULL);
}
void cop_context_get(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to)
{
        simple(e, "context_get", ref, to, NULL);
}
void cop_context_remove(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to,
                        struct cop_op **ret_op)
{
        simple(e, "context_remove", ref, to, ret_op);
}
void cop_context_restart(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to,
                         struct cop_op **ret_op)
{
        simple(e, "context_restart", ref, to, ret_op);
}
void cop_context_interrupt(struct cop_engine *e, const char *ref, const char *context, struct cop_op_to to,
                           struct cop_op **ret_op)
{
        simple(e, "context_interrupt", ref, to, ret_op);
}

void cop_cell_run(struct cop_engine *e, const char *ref, const struct cop_cell_params *p, struct cop_op_to to,
                  struct cop_op **ret_op)
{
        *ret_op = NULL;
        note("cell_run", json_pack("{s:I,s:b,s:b,s:b,s:b,s:b,s:b,s:I}", "timeout", (json_int_t)p->timeout, "stdin_open",
                                   p->stdin_open, "silent", p->silent, "no_history", p->no_history, "detach", p->detach,
                                   "interrupt", p->interrupt_on_disconnect, "stream", p->stream, "output_max",
                                   (json_int_t)p->output_max));
        fake.code_len = p->code_len;
        snprintf(fake.code, sizeof(fake.code), "%s", p->code);
        if (missing(ref, to))
                return;
        json_t *cell = json_pack("{s:s,s:s}", "id", "cell_0123456789", "status", "ok");
        if (strcmp(p->code, "now") == 0)
                answer(to, cell);
        else
                *ret_op = op_new(e, to, cell, strcmp(p->code, "never") == 0 && !p->stream);
}

void fake_cell_end(struct cop_engine *e)
{
        for (struct cop_op *op = e->ops; op; op = op->next)
                op->when_told = false;
        cop_source_set_enabled(e->tick, true);
}

void cop_cell_get(struct cop_engine *e, const char *ref, const char *cell, struct cop_op_to to)
{
        simple(e, "cell_get", ref, to, NULL);
}
void cop_cell_list(struct cop_engine *e, const char *ref, json_t *filter, struct cop_op_to to)
{
        simple(e, "cell_list", ref, to, NULL);
}
void cop_cell_interrupt(struct cop_engine *e, const char *ref, const char *cell, struct cop_op_to to)
{
        simple(e, "cell_interrupt", ref, to, NULL);
}
void cop_cell_input(struct cop_engine *e, const char *ref, const char *cell, const char *value, struct cop_op_to to)
{
        simple(e, "cell_input", ref, to, NULL);
}
void cop_cell_disconnected(struct cop_engine *e, const char *ref, const char *cell)
{
        fake.disconnected++;
}

void cop_command_run(struct cop_engine *e, const char *ref, const struct cop_exec_params *p, struct cop_op_to to,
                     struct cop_op **ret_op)
{
        *ret_op = NULL;
        json_t *argv = json_array();
        for (const char *const *a = p->argv; a && *a; a++)
                json_array_append_new(argv, json_string(*a));
        note("exec", json_pack("{s:o,s:o,s:I,s:b,s:b,s:b,s:s%}", "command", copy_str(p->command), "argv", argv,
                               "timeout", (json_int_t)p->timeout, "detach", p->detach, "kill", p->kill_on_disconnect,
                               "stream", p->stream, "stdin", p->stdin_data ? p->stdin_data : "", p->stdin_len));
        if (!missing(ref, to))
                *ret_op = op_new(e, to, json_pack("{s:s,s:i}", "id", "cmd_0123456789", "pid", 7), false);
}
void cop_command_get(struct cop_engine *e, const char *ref, const char *pid_or_id, struct cop_op_to to)
{
        simple(e, "command_get", ref, to, NULL);
}
void cop_command_list(struct cop_engine *e, const char *ref, struct cop_op_to to)
{
        simple(e, "command_list", ref, to, NULL);
}
void cop_command_kill(struct cop_engine *e, const char *ref, const char *pid_or_id, int signo, bool group,
                      struct cop_op_to to, struct cop_op **ret_op)
{
        *ret_op = NULL;
        note("kill", json_pack("{s:i,s:b}", "signal", signo, "group", group));
        if (!missing(ref, to))
                answer(to, json_object());
}
void cop_command_disconnected(struct cop_engine *e, const char *ref, const char *id)
{
        fake.disconnected++;
}

/* -- records ------------------------------------------------------------------------------------------------------ */

static void wake_readers(struct cop_engine *e)
{
        for (size_t i = 0; i < 64; i++)
                if (e->readers[i])
                        e->readers[i]->more(e->readers[i]->userdata);
}

void fake_record_add(struct cop_engine *e, const char *line)
{
        cop_buf_addf(&e->record, "%s\n", line);
        wake_readers(e);
}

void fake_record_end(struct cop_engine *e)
{
        e->record_ended = true;
        wake_readers(e);
}

int cop_record_open(struct cop_engine *e, enum cop_record_kind kind, const char *ref, const char *id,
                    uint64_t after_seq, bool follow, void (*more)(void *userdata), void *userdata,
                    struct cop_record_reader **ret, struct cop_error *err)
{
        if (ref && strcmp(ref, "sb") != 0)
                return cop_error_set(err, ENOENT, COP_ERR_sandbox_not_found, "no sandbox \"%s\"", ref);
        if (id && strcmp(id, "missing") == 0)
                return cop_error_set(err, ENOENT, COP_ERR_cell_not_found, "no cell \"%s\"", id);
        struct cop_record_reader *r = calloc(1, sizeof(*r));
        *r = (struct cop_record_reader){.engine = e, .follow = follow, .more = more, .userdata = userdata};
        fake.read_after = after_seq;
        for (size_t i = 0; i < 64; i++)
                if (!e->readers[i]) {
                        e->readers[i] = r;
                        break;
                }
        fake.open_readers++;
        *ret = r;
        return 0;
}

ssize_t cop_record_read(struct cop_record_reader *r, char *buf, size_t n)
{
        size_t left = r->engine->record.len - r->offset;

        if (left == 0)
                return r->follow && !r->engine->record_ended ? -EAGAIN : 0;
        n = MIN_OF(n, left);
        memcpy(buf, r->engine->record.data + r->offset, n);
        r->offset += n;
        return (ssize_t)n;
}

struct cop_record_reader *cop_record_close(struct cop_record_reader *r)
{
        for (size_t i = 0; r && i < 64; i++)
                if (r->engine->readers[i] == r)
                        r->engine->readers[i] = NULL;
        if (r)
                fake.open_readers--;
        free(r);
        return NULL;
}

int cop_notebook_open(struct cop_engine *e, const char *ref, const char *context, bool undone,
                      void (*more)(void *userdata), void *userdata, struct cop_notebook **ret, struct cop_error *err)
{
        struct cop_record_reader *reader;
        int r = cop_record_open(e, COP_RECORD_CELL, ref, context, undone, true, more, userdata, &reader, err);

        if (r == 0)
                *ret = (struct cop_notebook *)reader;
        return r;
}

ssize_t cop_notebook_read(struct cop_notebook *n, char *buf, size_t size)
{
        return cop_record_read((struct cop_record_reader *)n, buf, size);
}

struct cop_notebook *cop_notebook_close(struct cop_notebook *n)
{
        cop_record_close((struct cop_record_reader *)n);
        return NULL;
}

/* -- files -------------------------------------------------------------------------------------------------------- */

unsigned char fake_byte(uint64_t offset)
{
        return (unsigned char)(offset * 31 + (offset >> 8) * 7 + (offset >> 16));
}

static int check_path(const char *path, struct cop_error *err)
{
        if (strcmp(path, "/missing") == 0)
                return cop_error_set(err, ENOENT, COP_ERR_file_not_found, "no file %s", path);
        return 0;
}

static json_t *file_object(const char *path)
{
        return json_pack("{s:s,s:s,s:I,s:s}", "path", path, "type", strcmp(path, "/folder") == 0 ? "directory" : "file",
                         "size", (json_int_t)fake.file_size, "mtime", "2026-11-29T15:03:13.123456Z");
}

void cop_file_do(struct cop_engine *e, const char *ref, const struct cop_file_params *p, struct cop_op_to to,
                 struct cop_op **ret_op)
{
        struct cop_error err;

        *ret_op = NULL;
        note("file", json_pack("{s:i,s:o,s:o,s:i,s:i,s:i,s:i}", "op", (int)p->op, "path", copy_str(p->path), "path2",
                               copy_str(p->path2), "mode", (int)p->mode, "flags", (int)p->flags, "depth", (int)p->depth,
                               "count", (int)p->count));
        if (missing(ref, to))
                return;
        if (check_path(p->path, &err) < 0)
                to.done(NULL, &err, to.userdata);
        else
                *ret_op = op_new(e, to, file_object(p->path), false);
}

static struct cop_file_stream *stream_new(struct cop_engine *e, const char *path, cop_file_opened_fn opened,
                                          void (*more)(void *), void *userdata)
{
        struct cop_file_stream *s = calloc(1, sizeof(*s));

        *s = (struct cop_file_stream){.engine = e,
                                      .more = more,
                                      .userdata = userdata,
                                      .file = file_object(path),
                                      .opened = opened,
                                      .opened_userdata = userdata};
        for (size_t i = 0; i < 64; i++)
                if (!e->streams[i]) {
                        e->streams[i] = s;
                        break;
                }
        fake.open_streams++;
        cop_source_set_enabled(e->tick, true);
        return s;
}

void cop_file_read(struct cop_engine *e, const char *ref, const struct cop_file_params *p, uint64_t offset,
                   uint64_t length, cop_file_opened_fn opened, void (*more)(void *userdata), void *userdata,
                   struct cop_op **ret_op)
{
        struct cop_error err;

        *ret_op = NULL;
        if (check_path(p->path, &err) < 0) {
                opened(NULL, NULL, &err, userdata);
                return;
        }
        struct cop_file_stream *s = stream_new(e, p->path, opened, more, userdata);
        s->offset = offset;
        s->end = length ? offset + length : fake.file_size;
}

ssize_t cop_file_stream_read(struct cop_file_stream *s, char *buf, size_t n)
{
        uint64_t left = MIN_OF(s->end, fake.file_size) - s->offset, turn = fake.file_step - s->turn_bytes;

        if (left == 0)
                return 0;
        if (turn == 0) {
                s->waiting = true;
                cop_source_set_enabled(s->engine->tick, true);
                return -EAGAIN;
        }
        if (n > left)
                n = left;
        if (n > turn)
                n = turn;
        for (size_t i = 0; i < n; i++)
                buf[i] = (char)fake_byte(s->offset + i);
        s->offset += n;
        if (fake.file_step != UINT64_MAX)
                s->turn_bytes += n;
        return (ssize_t)n;
}

void cop_file_write(struct cop_engine *e, const char *ref, const struct cop_file_params *p, uint64_t length,
                    cop_file_opened_fn opened, void (*more)(void *userdata), struct cop_op_to to,
                    struct cop_op **ret_op)
{
        struct cop_error err;

        *ret_op = NULL;
        fake.write_length = length;
        note("write", json_pack("{s:i,s:s,s:i,s:i}", "op", (int)p->op, "path", p->path, "mode", (int)p->mode, "flags",
                                (int)p->flags));
        if (missing(ref, to))
                return;
        if (check_path(p->path, &err) < 0) {
                to.done(NULL, &err, to.userdata);
                return;
        }
        struct cop_file_stream *s = stream_new(e, p->path, opened, more, to.userdata);
        s->writing = true;
        s->op = *ret_op = op_new(e, to, file_object(p->path), true);
}

ssize_t cop_file_stream_write(struct cop_file_stream *s, const char *data, size_t n)
{
        uint64_t turn = fake.write_step - s->turn_bytes;

        if (s->failed)
                return -EPIPE;
        if (turn == 0) {
                s->waiting = true;
                cop_source_set_enabled(s->engine->tick, true);
                return -EAGAIN;
        }
        if (n > turn)
                n = turn;
        if (fake.written + n > fake.write_fail_after) {
                struct cop_error err;
                s->failed = true;
                cop_error_set(&err, ENOSPC, COP_ERR_disk_full, "the disk is full");
                op_end(TAKE_PTR(s->op), &err);
                return -ENOSPC;
        }
        for (size_t i = 0; i < n; i++)
                fake.write_sum += (unsigned char)data[i];
        fake.written += n;
        if (fake.write_step != UINT64_MAX)
                s->turn_bytes += n;
        return (ssize_t)n;
}

void cop_file_stream_finish(struct cop_file_stream *s)
{
        fake.write_finished = s->finished = true;
        if (s->op)
                s->op->when_told = false;
        s->op = NULL;
        cop_source_set_enabled(s->engine->tick, true);
}

struct cop_file_stream *cop_file_stream_close(struct cop_file_stream *s)
{
        if (!s)
                return NULL;
        if (s->writing && !s->finished)
                fake.write_aborted = true;
        for (size_t i = 0; i < 64; i++)
                if (s->engine->streams[i] == s)
                        s->engine->streams[i] = NULL;
        json_decref(s->file);
        fake.open_streams--;
        free(s);
        return NULL;
}

/* -- images, tokens, daemon --------------------------------------------------------------------------------------- */

void cop_image_build(struct cop_engine *e, const char *recipe, const char *name, const char *mirror, bool force,
                     struct cop_op_to to, struct cop_op **ret_op)
{
        note("build", json_pack("{s:s,s:b}", "recipe", recipe, "force", force));
        *ret_op = op_new(e, to, json_pack("{s:s}", "id", "im_0123456789"), true);
}
void fake_progress(struct cop_engine *e, const char *message)
{
        json_t *event = json_pack("{s:s,s:s}", "stage", "packages", "message", message);

        for (struct cop_op *op = e->ops; op; op = op->next)
                if (op->to.progress)
                        op->to.progress(event, op->to.userdata);
        json_decref(event);
}
void cop_image_import(struct cop_engine *e, const char *source, const char *name, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        simple(e, "import", "sb", to, ret_op);
}
void cop_image_list(struct cop_engine *e, struct cop_op_to to)
{
        simple(e, "image_list", "sb", to, NULL);
}
void cop_image_get(struct cop_engine *e, const char *ref, struct cop_op_to to)
{
        simple(e, "image_get", "sb", to, NULL);
}
void cop_image_remove(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op)
{
        simple(e, "image_remove", "sb", to, ret_op);
}
void cop_image_warm(struct cop_engine *e, const char *ref, const struct cop_warm_params *p, struct cop_op_to to,
                    struct cop_op **ret_op)
{
        note("warm",
             json_pack("{s:s,s:o,s:I}", "ref", ref, "code", copy_str(p->code), "timeout", (json_int_t)p->timeout));
        *ret_op = op_new(e, to, json_pack("{s:s}", "id", "im_0123456789"), true);
}
void cop_image_cool(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op)
{
        simple(e, "image_cool", "sb", to, ret_op);
}
void cop_token_create(struct cop_engine *e, const char *name, usec_t lifetime, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        simple(e, "token_create", "sb", to, ret_op);
}
void cop_token_list(struct cop_engine *e, struct cop_op_to to)
{
        simple(e, "token_list", "sb", to, NULL);
}
void cop_token_remove(struct cop_engine *e, const char *id, struct cop_op_to to, struct cop_op **ret_op)
{
        simple(e, "token_remove", "sb", to, ret_op);
}
bool cop_token_check(struct cop_engine *e, const char *token)
{
        return strcmp(token, "good-token") == 0;
}
void cop_engine_info(struct cop_engine *e, struct cop_op_to to)
{
        simple(e, "info", "sb", to, NULL);
}
void cop_engine_doctor(struct cop_engine *e, struct cop_op_to to)
{
        simple(e, "doctor", "sb", to, NULL);
}

/* -- states ---------------------------------------------------------------------------------------------------------- */

void cop_sandbox_suspend(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op)
{
        simple(e, "suspend", ref, to, ret_op);
}
void cop_sandbox_resume(struct cop_engine *e, const char *ref, const struct cop_resume_params *p, struct cop_op_to to,
                        struct cop_op **ret_op)
{
        simple(e, p->require_memory ? "resume_with_memory" : "resume", ref, to, ret_op);
}
void cop_sandbox_snapshot(struct cop_engine *e, const char *ref, const char *name, bool files_only, usec_t lifetime,
                          struct cop_op_to to, struct cop_op **ret_op)
{
        simple(e, files_only ? "snapshot_files" : "snapshot", ref, to, ret_op);
}
void cop_sandbox_fork(struct cop_engine *e, const char *ref, json_t *params, unsigned count, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        simple(e, "fork", ref, to, ret_op);
}
void cop_node_branch(struct cop_engine *e, const char *node, json_t *params, unsigned count, struct cop_op_to to,
                     struct cop_op **ret_op)
{
        simple(e, "branch", node, to, ret_op);
}
void cop_sandbox_goto(struct cop_engine *e, const char *ref, const char *node, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        simple(e, "goto", ref, to, ret_op);
}
void cop_sandbox_undo(struct cop_engine *e, const char *ref, unsigned steps, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        simple(e, "undo", ref, to, ret_op);
}
void cop_sandbox_redo(struct cop_engine *e, const char *ref, unsigned steps, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        simple(e, "redo", ref, to, ret_op);
}
void cop_sandbox_keep(struct cop_engine *e, const char *ref, bool drop_siblings, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        simple(e, drop_siblings ? "keep_alone" : "keep", ref, to, ret_op);
}
void cop_engine_gc(struct cop_engine *e, bool dry_run, struct cop_op_to to, struct cop_op **ret_op)
{
        simple(e, dry_run ? "gc_dry" : "gc", "sb", to, ret_op);
}
void cop_diff(struct cop_engine *e, const struct cop_diff_params *p, struct cop_op_to to, struct cop_op **ret_op)
{
        simple(e, "diff", p->a, to, ret_op);
}
void cop_take(struct cop_engine *e, const char *ref, const struct cop_take_params *p, struct cop_op_to to,
              struct cop_op **ret_op)
{
        simple(e, "take", ref, to, ret_op);
}
void cop_node_list(struct cop_engine *e, const char *sandbox_ref, struct cop_op_to to)
{
        simple(e, "nodes", sandbox_ref ? sandbox_ref : "snapshots", to, NULL);
}
void cop_node_get(struct cop_engine *e, const char *ref, struct cop_op_to to)
{
        simple(e, "node", ref, to, NULL);
}
void cop_node_remove(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op)
{
        simple(e, "remove_node", ref, to, ret_op);
}

/* -- packs ----------------------------------------------------------------------------------------------------------- */

/* There are none: the bytes of packs are tested with the real engine. */
void cop_node_pack(struct cop_engine *e, const char *ref, cop_packing_opened_fn opened, void (*more)(void *userdata),
                   void *userdata, struct cop_op **ret_op)
{
        struct cop_error err;

        *ret_op = NULL;
        cop_error_set(&err, ENOENT, COP_ERR_node_not_found, "no snapshot or node \"%s\"", ref);
        opened(NULL, &err, userdata);
}
void cop_node_unpack(struct cop_engine *e, const struct cop_unpack_params *p, cop_packing_opened_fn opened,
                     void (*more)(void *userdata), struct cop_op_to to, struct cop_op **ret_op)
{
        simple(e, p->files_only ? "unpack_files" : "unpack", "sb", to, ret_op);
}
ssize_t cop_packing_read(struct cop_packing *p, char *buf, size_t n)
{
        return -EIO;
}
ssize_t cop_packing_write(struct cop_packing *p, const char *data, size_t n)
{
        return -EPIPE;
}
void cop_packing_finish(struct cop_packing *p)
{
}
struct cop_packing *cop_packing_close(struct cop_packing *p)
{
        return NULL;
}
