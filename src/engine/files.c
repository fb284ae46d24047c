/* File operations: between a caller and a worker of init.
 *
 * Theory of operation
 *
 * The request goes through the keeper to init unchanged, with one end of a socket pair as its descriptor; the data flows
 * between the caller and the worker inside without passing the keeper.  Our end does not block and is looked at only when
 * the caller asked for more, so a slow client holds back the worker through the socket's buffer, and memory does not grow
 * with the size of a file.
 *
 * What comes through the socket is the sandbox's word: of a READ no more bytes are handed on than were announced, of a
 * LIST no more entries than were asked for, each a checked message.
 *
 * Objects: a transfer (struct cop_file_stream) belongs to two: to its caller from `opened` until cop_file_stream_close,
 * and to the call to the keeper until its reply.  The last one frees it.  For a write, our end stays open until the
 * reply: closing it earlier means "gave up" to the worker (init/ops.c), shutting it down means "that was all".
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/utf8.h"
#include "engine/internal.h"
#include "sandbox/wire.h"

#define ENTRIES_A_TURN 128
#define LIST_DEFAULT 10000
#define LIST_MOST 100000
#define TIME_MOST 253402300799999999ULL /* the year 9999, µs */

/* -- File objects ----------------------------------------------------------------------------------------------------- */

static json_t *field_text(const struct cop_msg *m, uint16_t tag)
{
        const void *data;
        size_t n;

        return cop_msg_get_bytes(m, tag, 0, &data, &n) == 0 ? cop_json_foreign_string(data, n) : NULL;
}

static void set_field(json_t *file, const char *key, json_t *value)
{
        if (value)
                json_object_set_new(file, key, value);
}

static json_t *file_view(const struct cop_msg *m)
{
        char text[COP_RFC3339_MAX];
        json_t *file = json_object();
        uint64_t value;

        if (!file)
                return NULL;
        set_field(file, "path", field_text(m, COP_TAG_PATH));
        set_field(file, "type", field_text(m, COP_TAG_TYPE));
        set_field(file, "target", field_text(m, COP_TAG_TARGET));
        set_field(file, "sha256", field_text(m, COP_TAG_SHA256));
        if (cop_msg_get_u64(m, COP_TAG_SIZE, &value) == 0)
                json_object_set_new(file, "size", json_integer((json_int_t)(value & INT64_MAX)));
        if (cop_msg_get_u64(m, COP_TAG_UID, &value) == 0)
                json_object_set_new(file, "uid", json_integer((json_int_t)(uint32_t)value));
        if (cop_msg_get_u64(m, COP_TAG_GID, &value) == 0)
                json_object_set_new(file, "gid", json_integer((json_int_t)(uint32_t)value));
        if (cop_msg_get_u64(m, COP_TAG_MODE, &value) == 0) {
                snprintf(text, sizeof(text), "%04o", (unsigned)value & 07777);
                json_object_set_new(file, "mode", json_string(text));
        }
        if (cop_msg_get_u64(m, COP_TAG_MTIME, &value) == 0)
                json_object_set_new(file, "mtime", json_string(cop_rfc3339(MIN_OF(value, (uint64_t)TIME_MOST), text)));
        return file;
}

/* An entry of a folder that the caller named `base`: "name" is relative to it, "path" absolute. */
static json_t *entry_view(const struct cop_msg *m, const char *base)
{
        json_t *entry = file_view(m), *name = field_text(m, COP_TAG_NAME);
        _cleanup_free_ char *path = NULL;

        if (!entry || !name) {
                json_decref(entry);
                json_decref(name);
                return NULL;
        }
        const char *slash = base[0] && base[strlen(base) - 1] == '/' ? "" : "/";
        if (asprintf(&path, "%s%s%s", base, slash, json_string_value(name)) >= 0)
                json_object_set_new(entry, "path", cop_json_foreign_string(path, strlen(path)));
        json_object_set_new(entry, "name", name);
        return entry;
}

/* -- requests ----------------------------------------------------------------------------------------------------------- */

static void make_request(struct cop_msg *m, const struct cop_file_params *p)
{
        cop_msg_init(m, COP_WIRE_FILE, 0);
        cop_msg_add_u64(m, COP_TAG_OP, p->op);
        cop_msg_add_str(m, COP_TAG_PATH, p->path);
        cop_msg_add_str(m, COP_TAG_PATH2, p->path2);
        cop_msg_add_str(m, COP_TAG_USER, p->user && p->user[0] ? p->user : NULL);
        cop_msg_add_u64(m, COP_TAG_FLAGS, p->flags);
        cop_msg_add_u64(m, COP_TAG_MODE, p->mode);
}

/* Adds one end of a socket pair to m and returns ours, which does not block. */
static int add_socket(struct cop_msg *m, int type, struct cop_error *err)
{
        int fds[2];

        if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) < 0)
                return cop_error_errno(err, errno, "data socket");
        cop_set_nonblock(fds[0], 1);
        cop_msg_add_fd(m, fds[1]);
        return fds[0];
}

/* -- operations without a stream ------------------------------------------------------------------------------------------ */

struct job {
        struct cop_engine *engine; /* borrowed */
        struct cop_op *op;
        struct cop_msg request;
        bool list;
        size_t most;
        int fd; /* owned; of a LIST */
        struct cop_source *io;
        char *base; /* owned: the folder as asked for */
        json_t *entries;
        bool data_ended, replied, cut;
        json_t *result;
        struct cop_error err; /* errnum != 0: failed */
};

static void job_free(struct job *j)
{
        cop_msg_done(&j->request);
        cop_source_free(j->io);
        cop_close(j->fd);
        free(j->base);
        json_decref(j->entries);
        json_decref(j->result);
        free(j);
}

static void job_check_end(struct job *j)
{
        if (!j->replied || (j->list && !j->data_ended))
                return;
        struct cop_op *op = j->op;
        json_t *result = TAKE_PTR(j->result);
        struct cop_error err = j->err;
        if (j->list && result)
                json_object_set(result, "entries", j->entries);
        job_free(j);
        cop_op_done(op, result, err.errnum ? &err : NULL);
}

static void on_entries(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct job *j = userdata;

        for (int i = 0; i < ENTRIES_A_TURN; i++) {
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
                int r = cop_msg_recv(fd, &m);
                if (r == -EAGAIN)
                        return;
                bool full = json_array_size(j->entries) >= j->most;
                if (r <= 0 || full) {
                        j->cut |= full && r > 0;
                        j->data_ended = true;
                        j->io = cop_source_free(j->io);
                        j->fd = cop_close(j->fd);
                        job_check_end(j);
                        return;
                }
                json_t *entry = entry_view(&m, j->base);
                if (entry)
                        json_array_append_new(j->entries, entry);
        }
}

static void on_job_reply(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct job *j = userdata;

        j->replied = true;
        if (err) {
                j->err = *err;
                j->data_ended = true;
        } else if (!j->list) {
                j->result = file_view(reply);
        } else {
                bool truncated = j->cut || (cop_msg_u64_or(reply, COP_TAG_FLAGS, 0) & COP_FILE_TRUNCATED);
                json_t *path = field_text(reply, COP_TAG_PATH);
                j->result = json_pack("{s:o?, s:b}", "path", path, "truncated", truncated);
        }
        job_check_end(j);
}

static int job_start(struct job *j, struct cop_sandbox *sb, struct cop_error *err)
{
        if (j->list) {
                j->fd = add_socket(&j->request, SOCK_SEQPACKET, err);
                if (j->fd < 0)
                        return j->fd;
                int r = cop_loop_add_io(j->engine->loop, j->fd, EPOLLIN, on_entries, j, &j->io, err);
                if (r < 0)
                        return r;
        }
        cop_keeper_call(sb->keeper, &j->request, USEC_INFINITY, on_job_reply, j);
        return 0;
}

static void on_job_sandbox(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        struct job *j = userdata;
        struct cop_error error;

        if (!err && job_start(j, sb, &error) == 0)
                return;
        struct cop_op *op = j->op;
        job_free(j);
        cop_op_done(op, NULL, err ? err : &error);
}

void cop_file_do(struct cop_engine *e, const char *ref, const struct cop_file_params *p, struct cop_op_to to,
                 struct cop_op **ret_op)
{
        struct job *j = calloc(1, sizeof(*j));

        if (ret_op)
                *ret_op = NULL;
        if (j)
                *j = (struct job){.engine = e, .fd = -EBADF, .list = p->op == COP_FILE_LIST, .request = COP_MSG_NULL};
        if (j && j->list) {
                unsigned count = p->count ? p->count : LIST_DEFAULT;
                j->most = MIN_OF(count, (unsigned)LIST_MOST);
                j->base = p->path ? strdup(p->path) : NULL;
                j->entries = json_array();
        }
        if (!j || (j->list && (!j->base || !j->entries))) {
                if (j)
                        job_free(j);
                cop_answer(to, NULL, NULL);
                return;
        }
        make_request(&j->request, p);
        if (j->list) {
                cop_msg_add_u64(&j->request, COP_TAG_DEPTH, p->depth ? p->depth : 1);
                cop_msg_add_u64(&j->request, COP_TAG_COUNT, j->most);
        }
        /* A caller who goes away does not stop it: a move half done would be worse. */
        j->op = cop_op_new(e, to, NULL, NULL);
        if (!j->op) {
                job_free(j);
                return;
        }
        cop_op_when_running(j->op, e, ref, on_job_sandbox, j, ret_op);
}

/* -- streams ---------------------------------------------------------------------------------------------------------------- */

struct cop_file_stream {
        struct cop_engine *engine; /* borrowed */
        struct cop_op *op;         /* of a read: until it is opened; of a write: until the end */
        struct cop_msg request;
        int fd; /* owned */
        struct cop_source *io;
        cop_file_opened_fn opened; /* NULL once called, or when nobody wants to know */
        void (*more)(void *userdata);
        void *userdata;
        bool writing, tar;
        bool held;            /* by the caller */
        bool calling;         /* the keeper's reply is to come */
        bool finished;        /* cop_file_stream_finish */
        uint64_t left;        /* of a READ: announced and not delivered */
        struct cop_error err; /* of the reply; errnum != 0: failed */
};

static void stream_drop(struct cop_file_stream *s)
{
        if (s->held || s->calling)
                return;
        cop_msg_done(&s->request);
        cop_source_free(s->io);
        cop_close(s->fd);
        free(s);
}

static void close_socket(struct cop_file_stream *s)
{
        s->io = cop_source_free(s->io);
        s->fd = cop_close(s->fd);
}

static void tell_opened(struct cop_file_stream *s, json_t *file, const struct cop_error *err)
{
        cop_file_opened_fn opened = s->opened;

        s->opened = NULL;
        s->held = opened && !err;
        if (!s->writing)
                cop_op_done(TAKE_PTR(s->op), NULL, NULL);
        if (opened)
                opened(file, err ? NULL : s, err, s->userdata);
        json_decref(file);
}

/* The caller's operation was cancelled: while nothing is opened the transfer ends here. */
static void on_stream_cancel(void *data)
{
        struct cop_file_stream *s = data;

        s->opened = NULL;
        if (!s->held)
                close_socket(s);
        cop_op_done(TAKE_PTR(s->op), NULL, NULL);
}

static void wake(struct cop_file_stream *s)
{
        if (s->held && s->more)
                s->more(s->userdata);
}

static void on_stream_io(struct cop_source *source, int fd, uint32_t revents, void *userdata)
{
        struct cop_file_stream *s = userdata;
        char c;

        cop_source_set_events(source, 0); /* until the caller is told to wait again */
        if (!s->opened || s->writing) {
                wake(s);
                return;
        }
        /* A TAR before its first byte: at its end without any, the reply says why. */
        ssize_t n = recv(fd, &c, 1, MSG_PEEK);
        if (n > 0)
                tell_opened(s, json_pack("{s:i}", "size", -1), NULL);
        else if (n < 0 && errno == EAGAIN)
                cop_source_set_events(source, EPOLLIN);
}

static void on_read_reply(struct cop_file_stream *s, struct cop_msg *reply, const struct cop_error *err)
{
        if (!s->opened) { /* a TAR that is being read, or nobody waits any more */
                wake(s);
        } else if (err) {
                close_socket(s);
                tell_opened(s, NULL, err);
        } else {
                json_t *file = file_view(reply);
                if (s->tar && file)
                        json_object_set_new(file, "size", json_integer(-1));
                else
                        s->left = cop_msg_u64_or(reply, COP_TAG_LENGTH, 0);
                tell_opened(s, file, NULL);
        }
}

static void on_stream_reply(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_file_stream *s = userdata;

        if (err)
                s->err = *err;
        if (!s->writing) {
                on_read_reply(s, reply, err);
        } else {
                close_socket(s);
                cop_op_done(TAKE_PTR(s->op), err ? NULL : file_view(reply), err);
                wake(s); /* a write now says that it is over */
        }
        s->calling = false;
        stream_drop(s);
}

static void on_stream_sandbox(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        struct cop_file_stream *s = userdata;
        struct cop_error error;
        int r = err ? -err->errnum : 0;

        if (cop_op_cancelled(s->op)) {
                s->opened = NULL;
                r = cop_error_set(&error, ECANCELED, COP_ERR_cancelled, "the caller went away");
        }
        if (r == 0)
                r = s->fd = add_socket(&s->request, SOCK_STREAM, &error);
        if (r >= 0)
                r = cop_loop_add_io(s->engine->loop, s->fd, s->tar && !s->writing ? EPOLLIN : 0, on_stream_io, s,
                                    &s->io, &error);
        if (r < 0) {
                if (s->writing)
                        cop_op_done(TAKE_PTR(s->op), NULL, err ? err : &error);
                else
                        tell_opened(s, NULL, err ? err : &error);
                stream_drop(s);
                return;
        }
        s->calling = true;
        cop_op_on_cancel(s->op, on_stream_cancel, s);
        if (s->writing)
                tell_opened(s, NULL, NULL);
        cop_keeper_call(sb->keeper, &s->request, USEC_INFINITY, on_stream_reply, s);
}

static void stream_start(struct cop_engine *e, const char *ref, const struct cop_file_stream *init,
                         const struct cop_file_params *p, struct cop_op_to to, struct cop_op **ret_op)
{
        struct cop_file_stream *s = malloc(sizeof(*s));
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (s) {
                *s = *init;
                s->engine = e;
                s->fd = -EBADF;
                s->tar = p->op == COP_FILE_TAR || p->op == COP_FILE_UNTAR;
                s->op = cop_op_new(e, to, NULL, NULL);
                if (!s->op)
                        free(TAKE_PTR(s));
        } else if (init->writing) {
                cop_answer(to, NULL, NULL);
        }
        if (!s) {
                cop_msg_done(&(struct cop_msg){.fields = init->request.fields});
                if (!init->writing) {
                        cop_error_errno(&err, ENOMEM, "file");
                        init->opened(NULL, NULL, &err, init->userdata);
                }
                return;
        }
        cop_op_when_running(s->op, e, ref, on_stream_sandbox, s, ret_op);
}

void cop_file_read(struct cop_engine *e, const char *ref, const struct cop_file_params *p, uint64_t offset,
                   uint64_t length, cop_file_opened_fn opened, void (*more)(void *userdata), void *userdata,
                   struct cop_op **ret_op)
{
        struct cop_file_stream s = {.opened = opened, .more = more, .userdata = userdata};

        make_request(&s.request, p);
        if (p->op == COP_FILE_READ) {
                cop_msg_add_u64(&s.request, COP_TAG_OFFSET, offset);
                cop_msg_add_u64(&s.request, COP_TAG_LENGTH, length);
        }
        stream_start(e, ref, &s, p, (struct cop_op_to){0}, ret_op);
}

void cop_file_write(struct cop_engine *e, const char *ref, const struct cop_file_params *p, uint64_t length,
                    cop_file_opened_fn opened, void (*more)(void *userdata), struct cop_op_to to,
                    struct cop_op **ret_op)
{
        struct cop_file_stream s = {.opened = opened, .more = more, .userdata = to.userdata, .writing = true};

        make_request(&s.request, p);
        if (p->op == COP_FILE_WRITE)
                cop_msg_add_u64(&s.request, COP_TAG_LENGTH, length);
        stream_start(e, ref, &s, p, to, ret_op);
}

ssize_t cop_file_stream_read(struct cop_file_stream *s, char *buf, size_t n)
{
        if (!s->tar && s->left == 0)
                return 0;
        if (!s->tar)
                n = (size_t)MIN_OF((uint64_t)n, s->left);
        ssize_t got = recv(s->fd, buf, n, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
                cop_source_set_events(s->io, EPOLLIN);
                return -EAGAIN;
        }
        if (got < 0)
                return -errno;
        if (got > 0) {
                s->left -= s->tar ? 0 : (uint64_t)got;
                return got;
        }
        /* The end.  A file that became shorter ends early; whether an archive is whole, its reply says. */
        if (!s->tar)
                return -EIO;
        if (s->calling)
                return -EAGAIN;
        return s->err.errnum ? -EIO : 0;
}

ssize_t cop_file_stream_write(struct cop_file_stream *s, const char *data, size_t n)
{
        if (!s->calling || s->fd < 0 || s->finished)
                return -EPIPE;
        ssize_t put = send(s->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put < 0 && (errno == EAGAIN || errno == EINTR)) {
                cop_source_set_events(s->io, EPOLLOUT);
                return -EAGAIN;
        }
        return put < 0 ? -errno : put;
}

void cop_file_stream_finish(struct cop_file_stream *s)
{
        s->finished = true;
        if (s->fd >= 0)
                shutdown(s->fd, SHUT_WR);
}

struct cop_file_stream *cop_file_stream_close(struct cop_file_stream *s)
{
        if (!s)
                return NULL;
        s->held = false;
        s->opened = NULL;
        s->more = NULL;
        if (!(s->writing && s->finished))
                close_socket(s);
        stream_drop(s);
        return NULL;
}
