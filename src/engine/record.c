/* Theory of operation
 *
 * A record is a file of lines plus, while it is being written, a struct cop_record in the hub's list.  A reader is an offset into
 * such a file (or another source of lines: a command's log, the events table).  When a writer adds a line it marks the readers of
 * its key; a deferred source then calls their `more` once, outside of any read.  So a reader that is slow, suspended or gone
 * never holds a writer up, and ten thousand lines in one turn wake it once.
 *
 * The end: a reader of a file stops at end of file once no record of its key is live.  The closing line is written before the
 * record leaves the list, so nobody stops early.
 *
 * seq numbers lines from 1; after a daemon restart the lines already there are counted to go on.
 */
#include "engine/record.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "engine/internal.h"

#define KEY_MAX 64
#define SANDBOX_LOG "sandbox.ndjson"
#define SANDBOX_LOG_OLD "sandbox.1.ndjson"

struct cop_record {
        struct cop_record_hub *hub; /* borrowed */
        struct cop_record *next;
        char key[KEY_MAX];
        int fd; /* owned */
        uint64_t seq;
        uint64_t bytes; /* in the file */
        size_t max;
        uint64_t dropped_lines, dropped_bytes;
        int write_error; /* first failed write, negative errno */
};

struct cop_record_reader {
        struct cop_record_hub *hub; /* borrowed */
        struct cop_record_reader *next, *prev;
        char key[KEY_MAX];
        struct cop_record_source source;
        void *data; /* owned through source.close */
        void (*more)(void *userdata);
        void *userdata; /* borrowed */
        bool woken;
};

struct cop_record_hub {
        struct cop_engine *engine; /* borrowed */
        struct cop_record *live;
        struct cop_record_reader *readers;
        struct cop_source *waker; /* owned */
};

/* -- hub --------------------------------------------------------------------------------------------------------------- */

static void wake_readers(struct cop_source *s, void *userdata)
{
        struct cop_record_hub *hub = userdata;

        cop_source_set_enabled(s, false);
        /* `more` may close any reader: start over after each call; woken is cleared first, so this ends. */
        for (struct cop_record_reader *r = hub->readers; r;) {
                if (!r->woken) {
                        r = r->next;
                        continue;
                }
                r->woken = false;
                if (r->more)
                        r->more(r->userdata);
                r = hub->readers;
        }
}

int cop_record_hub_new(struct cop_engine *e, struct cop_record_hub **ret, struct cop_error *err)
{
        struct cop_record_hub *hub = calloc(1, sizeof(*hub));

        if (!hub)
                return cop_error_errno(err, ENOMEM, "records");
        hub->engine = e;
        int r = cop_loop_add_defer(e->loop, wake_readers, hub, &hub->waker, err);
        if (r < 0) {
                free(hub);
                return r;
        }
        *ret = hub;
        return 0;
}

struct cop_record_hub *cop_record_hub_free(struct cop_record_hub *hub)
{
        if (!hub)
                return NULL;
        while (hub->live)
                cop_record_detach(hub->live);
        while (hub->readers)
                cop_record_close(hub->readers);
        cop_source_free(hub->waker);
        free(hub);
        return NULL;
}

void cop_record_wake(struct cop_engine *e, const char *key)
{
        struct cop_record_hub *hub = e->records;
        bool any = false;

        if (!hub)
                return;
        for (struct cop_record_reader *r = hub->readers; r; r = r->next)
                if (strcmp(r->key, key) == 0)
                        any = r->woken = true;
        if (any)
                cop_source_set_enabled(hub->waker, true);
}

bool cop_record_is_live(struct cop_engine *e, const char *key)
{
        for (struct cop_record *r = e->records ? e->records->live : NULL; r; r = r->next)
                if (strcmp(r->key, key) == 0)
                        return true;
        return false;
}

/* -- writing ------------------------------------------------------------------------------------------------------------- */

/* Goes to the end of a file's last whole line (a crash may have cut one); its lines and bytes up to there. */
static int go_to_end(int fd, uint64_t *ret_lines, uint64_t *ret_bytes)
{
        char chunk[65536];
        uint64_t lines = 0, whole = 0, at = 0;
        ssize_t n;

        while ((n = pread(fd, chunk, sizeof(chunk), (off_t)at)) > 0) {
                for (ssize_t i = 0; i < n; i++)
                        if (chunk[i] == '\n') {
                                lines++;
                                whole = at + (uint64_t)i + 1;
                        }
                at += (uint64_t)n;
        }
        if (n < 0)
                return -errno;
        /* Only when there is something to cut: ext4 writes a file that was ever truncated to nothing out when it is closed. */
        if ((whole < at && ftruncate(fd, (off_t)whole) < 0) || lseek(fd, (off_t)whole, SEEK_SET) < 0)
                return -errno;
        *ret_lines = lines;
        *ret_bytes = whole;
        return 0;
}

int cop_record_begin(struct cop_engine *e, int logs_fd, const char *key, size_t max, struct cop_record **ret,
                     struct cop_error *err)
{
        _cleanup_close_ int fd = -EBADF;
        char name[KEY_MAX + 8];

        int r = cop_path_format(name, sizeof(name), "%s.ndjson", key);
        if (r < 0)
                return cop_error_errno(err, r, "record %s", key);
        fd = openat(logs_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return cop_error_errno(err, errno, "opening record %s", key);
        struct cop_record *record = calloc(1, sizeof(*record));
        if (!record)
                return cop_error_errno(err, ENOMEM, "record %s", key);
        r = go_to_end(fd, &record->seq, &record->bytes);
        if (r < 0) {
                free(record);
                return cop_error_errno(err, r, "reading record %s", key);
        }
        record->hub = e->records;
        record->fd = TAKE_FD(fd);
        record->max = max;
        memcpy(record->key, key, strlen(key) + 1);
        record->next = e->records->live;
        e->records->live = record;
        *ret = record;
        return 0;
}

/* event with seq as one line; NULL when out of memory. */
static char *line_of(json_t *event, uint64_t seq, size_t *ret_len)
{
        json_object_set_new(event, "seq", json_integer((json_int_t)seq));
        char *text = json_dumps(event, JSON_COMPACT);
        if (!text)
                return NULL;
        size_t len = strlen(text);
        text[len] = '\n'; /* in place of the NUL: only len + 1 bytes are used from here */
        *ret_len = len + 1;
        return text;
}

static void write_line(struct cop_record *r, json_t *event)
{
        size_t len;
        _cleanup_free_ char *line = line_of(event, r->seq + 1, &len);

        int error = line ? cop_write_all(r->fd, line, len) : -ENOMEM;
        if (error < 0) {
                if (r->write_error == 0)
                        r->write_error = error;
                /* Half a line may be on the disk: take it back so that later lines stay readable. */
                if (ftruncate(r->fd, (off_t)r->bytes) == 0)
                        lseek(r->fd, (off_t)r->bytes, SEEK_SET);
                return;
        }
        r->seq++;
        r->bytes += len;
        cop_record_wake(r->hub->engine, r->key);
}

static void add_truncation_mark(struct cop_record *r)
{
        _cleanup_json_ json_t *mark =
                json_pack("{s:s, s:s, s:I}", "type", "truncated", "stream", "log", "log_max", (json_int_t)r->max);

        if (mark)
                write_line(r, mark);
}

void cop_record_add(struct cop_record *r, json_t *event)
{
        if (!r)
                return;
        if (r->dropped_lines > 0 || r->bytes >= r->max) {
                if (r->dropped_lines++ == 0)
                        add_truncation_mark(r);
                return;
        }
        write_line(r, event);
}

struct cop_record *cop_record_detach(struct cop_record *r)
{
        if (!r)
                return NULL;
        for (struct cop_record **at = &r->hub->live; *at; at = &(*at)->next)
                if (*at == r) {
                        *at = r->next;
                        break;
                }
        cop_record_wake(r->hub->engine, r->key);
        cop_close(r->fd);
        free(r);
        return NULL;
}

void cop_record_end(struct cop_record *r, json_t *event)
{
        if (!r)
                return;
        if (r->dropped_lines > 0)
                json_object_set_new(event, "log_dropped_lines", json_integer((json_int_t)r->dropped_lines));
        write_line(r, event);
        cop_record_detach(r);
}

uint64_t cop_record_bytes(const struct cop_record *r)
{
        return r ? r->bytes : 0;
}

bool cop_record_complete(const struct cop_record *r)
{
        return r && r->dropped_lines == 0 && r->write_error == 0;
}

void cop_record_add_late(struct cop_engine *e, int logs_fd, const char *key, json_t *event)
{
        struct cop_record *r;

        if (cop_record_begin(e, logs_fd, key, COP_RECORD_CELL_MAX + COP_RECORD_LATE_MAX, &r, NULL) < 0)
                return; /* the log was trimmed away or the disk is full: the output is in the store's row all the same */
        cop_record_add(r, event);
        cop_record_detach(r);
}

void cop_sandbox_log(struct cop_engine *e, int logs_fd, const char *sandbox_id, json_t *event)
{
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        size_t len;

        if (logs_fd < 0)
                return;
        fd = openat(logs_fd, SANDBOX_LOG, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 || fstat(fd, &st) < 0)
                return;
        if ((uint64_t)st.st_size > COP_RECORD_LOG_MAX &&
            renameat(logs_fd, SANDBOX_LOG, logs_fd, SANDBOX_LOG_OLD) == 0) {
                cop_close(TAKE_FD(fd));
                fd = openat(logs_fd, SANDBOX_LOG, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
                if (fd < 0)
                        return;
        }
        /* The time of the entry orders it; its place in the file is its seq, so no counter has to survive a restart. */
        _cleanup_free_ char *line = line_of(event, (uint64_t)st.st_size + 1, &len);
        if (line && cop_write_all(fd, line, len) == 0)
                cop_record_wake(e, sandbox_id);
}

/* -- reading a file ---------------------------------------------------------------------------------------------------- */

struct file_source {
        struct cop_engine *engine; /* borrowed */
        char key[KEY_MAX];
        int fd; /* owned */
        off_t offset;
        uint64_t skip; /* lines still to be passed over */
        bool follow;
        bool until_record_ends; /* a cell: the end is when its record ends; else follow for ever */
};

/* Passes over the first lines; true when there is nothing left to skip. */
static bool skip_lines(struct file_source *f)
{
        char chunk[65536];
        ssize_t n;

        while (f->skip > 0 && (n = pread(f->fd, chunk, sizeof(chunk), f->offset)) > 0) {
                ssize_t used = n;
                for (ssize_t i = 0; i < n; i++)
                        if (chunk[i] == '\n' && --f->skip == 0) {
                                used = i + 1;
                                break;
                        }
                f->offset += used;
        }
        return f->skip == 0;
}

static ssize_t file_read(void *data, char *buf, size_t n)
{
        struct file_source *f = data;
        /* Asked before reading: what is written between the two is then still read. */
        bool live = f->follow && (!f->until_record_ends || cop_record_is_live(f->engine, f->key));

        if (skip_lines(f)) {
                ssize_t got = pread(f->fd, buf, n, f->offset);
                if (got < 0)
                        return -errno;
                f->offset += got;
                if (got > 0)
                        return got;
        }
        return live ? -EAGAIN : 0;
}

static void file_close(void *data)
{
        struct file_source *f = data;

        cop_close(f->fd);
        free(f);
}

static const struct cop_record_source file_source_ops = {.read = file_read, .close = file_close};

int cop_record_reader_new(struct cop_engine *e, const char *key, const struct cop_record_source *source, void *data,
                          void (*more)(void *userdata), void *userdata, struct cop_record_reader **ret,
                          struct cop_error *err)
{
        struct cop_record_reader *r = calloc(1, sizeof(*r));

        if (!r || strlen(key) >= sizeof(r->key)) {
                free(r);
                source->close(data);
                return cop_error_errno(err, ENOMEM, "reader of %s", key);
        }
        *r = (struct cop_record_reader){.hub = e->records,
                                        .next = e->records->readers,
                                        .source = *source,
                                        .data = data,
                                        .more = more,
                                        .userdata = userdata};
        memcpy(r->key, key, strlen(key) + 1);
        if (r->next)
                r->next->prev = r;
        e->records->readers = r;
        *ret = r;
        return 0;
}

struct cop_record_reader *cop_record_close(struct cop_record_reader *r)
{
        if (!r)
                return NULL;
        r->source.close(r->data);
        if (r->prev)
                r->prev->next = r->next;
        else
                r->hub->readers = r->next;
        if (r->next)
                r->next->prev = r->prev;
        free(r);
        return NULL;
}

ssize_t cop_record_read(struct cop_record_reader *r, char *buf, size_t n)
{
        return r->source.read(r->data, buf, n);
}

/* The file source `name` below logs_fd (borrowed). */
static int file_source_new(struct cop_engine *e, int logs_fd, const char *name, const char *key,
                           struct file_source **ret, struct cop_error *err)
{
        _cleanup_close_ int fd = openat(logs_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

        if (fd < 0)
                return errno == ENOENT ? cop_error_set(err, ENOENT, COP_ERR_range_invalid,
                                                       "the log of %s is no longer kept", key)
                                       : cop_error_errno(err, errno, "opening the log of %s", key);
        struct file_source *f = calloc(1, sizeof(*f));
        if (!f)
                return cop_error_errno(err, ENOMEM, "reader of %s", key);
        *f = (struct file_source){.engine = e, .fd = TAKE_FD(fd)};
        memcpy(f->key, key, strlen(key) + 1);
        *ret = f;
        return 0;
}

/* -- reading the events table ---------------------------------------------------------------------------------------------- */

struct event_source {
        struct cop_engine *engine; /* borrowed */
        int64_t after;
        bool follow;
        struct cop_buf pending; /* owned: lines not yet handed out */
};

static void add_event_line(struct event_source *s, const struct cop_event_row *row)
{
        char stamp[COP_RFC3339_MAX];
        json_error_t error;
        _cleanup_json_ json_t *event =
                json_pack("{s:I, s:I, s:s, s:s}", "seq", (json_int_t)row->id, "id", (json_int_t)row->id, "at",
                          cop_rfc3339(row->at, stamp), "type", row->type);
        if (!event)
                return;
        if (row->sandbox_id[0])
                json_object_set_new(event, "sandbox_id", json_string(row->sandbox_id));
        _cleanup_json_ json_t *detail = row->detail ? json_loads(row->detail, 0, &error) : NULL;
        if (json_is_object(detail))
                json_object_update_missing(event, detail);
        _cleanup_free_ char *line = json_dumps(event, JSON_COMPACT);
        if (line && cop_buf_adds(&s->pending, line) == 0)
                cop_buf_addc(&s->pending, '\n');
}

static ssize_t event_read(void *data, char *buf, size_t n)
{
        struct event_source *s = data;

        if (s->pending.len == 0) {
                _cleanup_(cop_event_rows_freep) struct cop_event_row **rows = NULL;
                int r = cop_store_event_list(s->engine->store, s->after, NULL, 200, &rows, NULL);
                if (r < 0)
                        return r;
                for (struct cop_event_row **row = rows; *row; row++) {
                        add_event_line(s, *row);
                        s->after = (*row)->id;
                }
        }
        if (s->pending.len == 0)
                return s->follow ? -EAGAIN : 0;
        size_t part = MIN_OF(n, s->pending.len);
        memcpy(buf, s->pending.data, part);
        cop_buf_consume(&s->pending, part);
        return (ssize_t)part;
}

static void event_close(void *data)
{
        struct event_source *s = data;

        cop_buf_done(&s->pending);
        free(s);
}

static const struct cop_record_source event_source_ops = {.read = event_read, .close = event_close};

/* -- opening ------------------------------------------------------------------------------------------------------------------ */

static int open_events(struct cop_engine *e, uint64_t after_seq, bool follow, void (*more)(void *userdata),
                       void *userdata, struct cop_record_reader **ret, struct cop_error *err)
{
        struct event_source *s = calloc(1, sizeof(*s));

        if (!s)
                return cop_error_errno(err, ENOMEM, "events");
        *s = (struct event_source){
                .engine = e, .after = (int64_t)after_seq, .follow = follow, .pending = COP_BUF(16u << 20)};
        return cop_record_reader_new(e, "events", &event_source_ops, s, more, userdata, ret, err);
}

/* The logs folder of a live sandbox, or of an ended one that is still on disk. */
static int open_logs(struct cop_engine *e, const char *ref, char id[static COP_ID_MAX], struct cop_error *err)
{
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *row = NULL;
        char path[4200];

        int r = cop_store_sandbox_get(e->store, ref, &row, err);
        if (r < 0)
                return r;
        snprintf(id, COP_ID_MAX, "%s", row->id);
        r = cop_path_format(path, sizeof(path), "%s/sandboxes/%s/logs", e->home, row->id);
        int fd = r < 0 ? r : open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return cop_error_set(err, ENOENT, COP_ERR_sandbox_ended, "the logs of %s are gone: it has ended", ref);
        return fd;
}

int cop_record_open(struct cop_engine *e, enum cop_record_kind kind, const char *ref, const char *id,
                    uint64_t after_seq, bool follow, void (*more)(void *userdata), void *userdata,
                    struct cop_record_reader **ret, struct cop_error *err)
{
        _cleanup_(cop_cell_row_freep) struct cop_cell_row *cell = NULL;
        _cleanup_close_ int logs_fd = -EBADF;
        char sandbox_id[COP_ID_MAX], name[KEY_MAX + 8];
        struct file_source *f;
        int r;

        if (kind == COP_RECORD_EVENTS)
                return open_events(e, after_seq, follow, more, userdata, ret, err);
        if (kind == COP_RECORD_COMMAND)
                return cop_command_record_open(e, ref, id, after_seq, follow, more, userdata, ret, err);
        logs_fd = open_logs(e, ref, sandbox_id, err);
        if (logs_fd < 0)
                return logs_fd;
        if (kind == COP_RECORD_CELL) {
                r = cop_store_cell_get(e->store, sandbox_id, id, &cell, err);
                if (r < 0)
                        return r;
                snprintf(name, sizeof(name), "%s.ndjson", cell->id);
                r = file_source_new(e, logs_fd, name, cell->id, &f, err);
        } else {
                r = file_source_new(e, logs_fd, SANDBOX_LOG, sandbox_id, &f, err);
        }
        if (r < 0)
                return r;
        f->skip = kind == COP_RECORD_CELL ? after_seq : 0;
        f->offset = kind == COP_RECORD_SANDBOX_LOG && after_seq > 0 ? (off_t)after_seq - 1 : 0;
        f->until_record_ends = kind == COP_RECORD_CELL;
        f->follow = follow;
        return cop_record_reader_new(e, f->key, &file_source_ops, f, more, userdata, ret, err);
}
