/* Theory of operation
 *
 * coppice-pack does the work in a child (base/pack.h); the engine moves no byte of it.  One end of a socket pair is the child's standard
 * output or input, ours does not block and is looked at only when the caller asked for more, so a slow client holds back the child.
 *
 *      pack     the first bytes, or the child's end, decide between a reply and an error; a child that fails later cuts the stream,
 *               and what was received is recognised as cut off by whoever unpacks it
 *      unpack   into nodes/<new id>, which belongs to nobody (N2) until the child has synced it and ended well; only then come the
 *               rows (N1).  In every other case the folder goes
 *
 * An object belongs to two: to its caller from `opened` until cop_packing_close, and to the child until its end.  The last one frees it.
 */
#include "engine/pack.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/child.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/pack.h"
#include "base/parse.h"

#define PACKS_MAX 4

struct cop_packing {
        struct cop_engine *engine; /* borrowed */
        struct cop_packing *next;
        struct cop_op *op; /* of a pack: until it is opened; of an unpack: until the end */
        int fd, error_fd;  /* owned */
        struct cop_source *io, *child;
        pid_t pid;
        cop_packing_opened_fn opened; /* NULL once called, or when nobody wants to know */
        void (*more)(void *userdata);
        void *userdata;
        bool unpacking, files_only;
        bool held;    /* by the caller */
        bool running; /* the child */
        bool finished;
        struct cop_hold *hold; /* owned; of a pack: its node, until the child has ended */
        char node_id[COP_ID_MAX];
        char *name; /* owned; of an unpack, may be NULL */
        struct cop_error err;
};

static void pack_drop(struct cop_packing *p)
{
        if (p->held || p->child)
                return;
        for (struct cop_packing **at = &p->engine->packs; *at; at = &(*at)->next)
                if (*at == p) {
                        *at = p->next;
                        break;
                }
        cop_source_free(p->io);
        cop_close(p->fd);
        cop_close(p->error_fd);
        cop_node_let_go(p->hold);
        free(p->name);
        free(p);
}

static void close_socket(struct cop_packing *p)
{
        p->io = cop_source_free(p->io);
        p->fd = cop_close(p->fd);
}

static void stop_child(struct cop_packing *p)
{
        if (p->running)
                kill(p->pid, SIGKILL);
}

static void wake(struct cop_packing *p)
{
        if (p->held && p->more)
                p->more(p->userdata);
}

static void tell_opened(struct cop_packing *p, const struct cop_error *err)
{
        cop_packing_opened_fn opened = p->opened;

        p->opened = NULL;
        p->held = opened && !err;
        if (!p->unpacking)
                cop_op_done(TAKE_PTR(p->op), NULL, NULL);
        if (opened)
                opened(err ? NULL : p, err, p->userdata);
}

static void discard_folder(struct cop_packing *p)
{
        if (p->unpacking && p->node_id[0])
                cop_node_discard_folder(p->engine, p->node_id);
}

/* -- the child ------------------------------------------------------------------------------------------------------------ */

static void read_error(struct cop_packing *p, const siginfo_t *si)
{
        ssize_t n = read(p->error_fd, &p->err, sizeof(p->err));

        p->err.message[sizeof(p->err.message) - 1] = '\0';
        if (n == (ssize_t)sizeof(p->err) && p->err.errnum > 0 && p->err.code < COP_ERR__MAX)
                return;
        p->err = COP_ERROR_NULL;
        if (si->si_code != CLD_EXITED || si->si_status != 0)
                cop_error_set(&p->err, EIO, COP_ERR_internal, "coppice-pack ended with %s %d",
                              si->si_code == CLD_EXITED ? "status" : "signal", si->si_status);
}

static void end_unpack(struct cop_packing *p)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        struct cop_op *op = TAKE_PTR(p->op);

        close_socket(p);
        if (!p->err.errnum && cop_op_cancelled(op))
                cop_error_set(&p->err, ECANCELED, COP_ERR_cancelled, "the caller went away");
        if (!p->err.errnum)
                cop_unpack_commit(p->engine, p->node_id, p->name, p->files_only, &row, &p->err);
        if (!row) {
                discard_folder(p);
                cop_op_done(op, NULL, &p->err);
                return;
        }
        _cleanup_json_ json_t *detail = json_pack("{s:s, s:s?}", "node_id", row->id, "name", row->name);
        cop_engine_event(p->engine, "node.unpacked", NULL, detail);
        cop_op_done_durable(op, cop_node_view(row), NULL);
}

static void on_child(struct cop_source *s, const siginfo_t *si, void *userdata)
{
        struct cop_packing *p = userdata;
        struct cop_hold *hold = TAKE_PTR(p->hold);

        p->running = false;
        read_error(p, si);
        if (p->unpacking)
                end_unpack(p);
        else if (p->opened)
                tell_opened(p, p->err.errnum ? &p->err : NULL);
        wake(p);
        p->child = cop_source_free(s); /* last: what was called above may have let go of it */
        pack_drop(p);
        cop_node_let_go(hold);
}

static void on_io(struct cop_source *source, int fd, uint32_t revents, void *userdata)
{
        struct cop_packing *p = userdata;
        int pending = 0;

        cop_source_set_events(source, 0); /* until the caller is told to wait again */
        if (p->unpacking || !p->opened)
                wake(p);
        else if (ioctl(fd, FIONREAD, &pending) == 0 && pending > 0)
                tell_opened(p, NULL); /* at its end without any byte, the child's end says why */
}

static int make_memfd(const char *text, struct cop_error *err)
{
        int fd = memfd_create("pack", MFD_CLOEXEC);
        int r = fd < 0 ? -errno : cop_write_all(fd, text, strlen(text));

        if (r == 0)
                return fd;
        cop_close(fd);
        return cop_error_errno(err, r, "coppice-pack");
}

/* argv[0] is set here. */
static int spawn(struct cop_packing *p, const char **argv, const char *spec, struct cop_error *err)
{
        _cleanup_close_ int spec_fd = make_memfd(spec, err), theirs = -EBADF, error_fd = -EBADF;
        int pair[2], report[2];

        if (spec_fd < 0)
                return spec_fd;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return cop_error_errno(err, errno, "socketpair");
        p->fd = pair[0];
        theirs = pair[1];
        if (pipe2(report, O_CLOEXEC | O_NONBLOCK) < 0)
                return cop_error_errno(err, errno, "pipe");
        p->error_fd = report[0];
        error_fd = report[1];
        cop_set_nonblock(p->fd, 1);
        argv[0] = p->engine->pack_path;
        const struct cop_child_spec child = {
                .path = p->engine->pack_path,
                .argv = argv,
                .env = (const char *const[]){NULL},
                .cwd = "/",
                .fds = (const struct cop_child_fd[]){{theirs, p->unpacking ? STDIN_FILENO : STDOUT_FILENO},
                                                     {error_fd, COP_PACK_ERROR_FD},
                                                     {spec_fd, COP_PACK_SPEC_FD}},
                .fd_count = 3,
                .new_session = true,
                .death_signal = SIGKILL,
        };
        int r = cop_child_spawn(&child, &p->pid, err);
        p->running = r == 0;
        if (r == 0)
                r = cop_loop_add_child(p->engine->loop, p->pid, on_child, p, &p->child, err);
        if (r == 0)
                r = cop_loop_add_io(p->engine->loop, p->fd, p->unpacking ? 0 : EPOLLIN, on_io, p, &p->io, err);
        if (r < 0)
                stop_child(p);
        return r;
}

/* The caller's operation was cancelled.  A pack that is read, or an unpack that nobody waits for, is of no use. */
static void on_cancel(void *data)
{
        struct cop_packing *p = data;

        p->opened = NULL;
        stop_child(p);
        if (!p->unpacking)
                cop_op_done(TAKE_PTR(p->op), NULL, NULL);
}

static int check_room(struct cop_engine *e, struct cop_error *err)
{
        unsigned n = 0;

        for (struct cop_packing *p = e->packs; p; p = p->next)
                n += p->running;
        return n < PACKS_MAX ? 0
                             : cop_error_set(err, EBUSY, COP_ERR_too_many,
                                             "%u nodes are being packed or unpacked already; wait for one of them", n);
}

static struct cop_packing *pack_new(struct cop_engine *e, cop_packing_opened_fn opened, void (*more)(void *userdata),
                                    void *userdata)
{
        struct cop_packing *p = calloc(1, sizeof(*p));

        if (!p)
                return NULL;
        *p = (struct cop_packing){.engine = e,
                                  .next = e->packs,
                                  .fd = -EBADF,
                                  .error_fd = -EBADF,
                                  .opened = opened,
                                  .more = more,
                                  .userdata = userdata};
        e->packs = p;
        return p;
}

void cop_packs_drop(struct cop_engine *e)
{
        while (e->packs) {
                struct cop_packing *p = e->packs;
                stop_child(p);
                p->running = false;
                p->child = cop_source_free(p->child); /* whoever inherits it reaps it */
                discard_folder(p);
                p->op = NULL; /* ends with the engine */
                p->held = false;
                pack_drop(p);
        }
}

/* -- pack ------------------------------------------------------------------------------------------------------------------- */

static int start_pack(struct cop_packing *p, const char *ref, struct cop_error *err)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        _cleanup_free_ char *manifest = NULL;
        _cleanup_free_ const char **argv = NULL;
        char path[4200], **layers = NULL;
        size_t n = 0;

        int r = check_room(p->engine, err);
        if (r == 0)
                r = cop_store_node_get(p->engine->store, ref, &row, err);
        if (r == 0)
                r = cop_pack_describe(p->engine, row, &manifest, &layers, err);
        if (r < 0 || !layers)
                return r;
        snprintf(p->node_id, sizeof(p->node_id), "%s", row->id);
        while (layers[n])
                n++;
        argv = calloc(n + 4, sizeof(*argv));
        r = argv ? cop_path_format(path, sizeof(path), "%s/nodes/%s", p->engine->home, row->id) : -ENOMEM;
        if (r == 0) {
                argv[1] = "pack";
                argv[2] = path;
                memcpy(argv + 3, layers, n * sizeof(*layers));
                r = cop_node_hold(p->engine, row, &p->hold, err);
                if (r == 0)
                        r = spawn(p, argv, manifest, err);
        } else {
                cop_error_errno(err, r, "packing");
        }
        cop_pack_layers_free(layers);
        return r;
}

void cop_node_pack(struct cop_engine *e, const char *ref, cop_packing_opened_fn opened, void (*more)(void *userdata),
                   void *userdata, struct cop_op **ret_op)
{
        struct cop_packing *p = pack_new(e, opened, more, userdata);
        struct cop_error err;

        *ret_op = NULL;
        int r = p && (p->op = cop_op_new(e, (struct cop_op_to){0}, on_cancel, p))
                        ? start_pack(p, ref, &err)
                        : cop_error_errno(&err, ENOMEM, "packing");
        if (r == 0) {
                *ret_op = p->op;
                return;
        }
        if (p && p->op) {
                p->err = err;
                tell_opened(p, &p->err);
        } else {
                opened(NULL, &err, userdata);
        }
        if (p)
                pack_drop(p);
}

ssize_t cop_packing_read(struct cop_packing *p, char *buf, size_t n)
{
        ssize_t got = recv(p->fd, buf, n, MSG_DONTWAIT);

        if (got > 0)
                return got;
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
                cop_source_set_events(p->io, EPOLLIN);
                return -EAGAIN;
        }
        if (got < 0)
                return -errno;
        if (p->running) /* its end says whether that was all */
                return -EAGAIN;
        return p->err.errnum ? -EIO : 0;
}

/* -- unpack ----------------------------------------------------------------------------------------------------------------- */

static int start_unpack(struct cop_packing *p, struct cop_error *err)
{
        _cleanup_free_ char *spec = NULL;
        char path[4200];
        const char *argv[] = {NULL, "unpack", path, NULL};

        int r = check_room(p->engine, err);
        if (r == 0)
                r = cop_node_check_name(p->engine, p->name, err);
        if (r == 0 && !(spec = cop_unpack_spec(p->engine, p->files_only)))
                r = cop_error_errno(err, ENOMEM, "unpacking");
        if (r < 0 || !spec)
                return r;
        cop_id_new(p->node_id, "nd_", 10);
        r = cop_path_format(path, sizeof(path), "%s/nodes", p->engine->home);
        if (r == 0)
                r = cop_mkdir_p(path, 0700, err);
        if (r == 0)
                r = cop_path_format(path, sizeof(path), "%s/nodes/%s", p->engine->home, p->node_id);
        if (r == 0 && mkdir(path, 0700) < 0)
                r = cop_error_errno(err, errno, "making %s", path);
        return r < 0 ? r : spawn(p, argv, spec, err);
}

void cop_node_unpack(struct cop_engine *e, const struct cop_unpack_params *params, cop_packing_opened_fn opened,
                     void (*more)(void *userdata), struct cop_op_to to, struct cop_op **ret_op)
{
        struct cop_packing *p = pack_new(e, opened, more, to.userdata);
        struct cop_error err;

        *ret_op = NULL;
        if (!p) {
                cop_answer(to, NULL, NULL);
                return;
        }
        p->unpacking = true;
        p->files_only = params->files_only;
        p->name = params->name ? strdup(params->name) : NULL;
        p->op = cop_op_new(e, to, on_cancel, p);
        if (!p->op) {
                pack_drop(p);
                return;
        }
        if (start_unpack(p, &err) < 0) {
                discard_folder(p);
                cop_op_done(TAKE_PTR(p->op), NULL, &err);
                pack_drop(p);
                return;
        }
        *ret_op = p->op;
        tell_opened(p, NULL);
}

ssize_t cop_packing_write(struct cop_packing *p, const char *data, size_t n)
{
        if (!p->running || p->fd < 0 || p->finished)
                return -EPIPE;
        ssize_t put = send(p->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put < 0 && (errno == EAGAIN || errno == EINTR)) {
                cop_source_set_events(p->io, EPOLLOUT);
                return -EAGAIN;
        }
        return put < 0 ? -errno : put;
}

void cop_packing_finish(struct cop_packing *p)
{
        p->finished = true;
        if (p->fd >= 0)
                shutdown(p->fd, SHUT_WR);
}

struct cop_packing *cop_packing_close(struct cop_packing *p)
{
        if (!p)
                return NULL;
        p->held = false;
        p->more = NULL;
        if (!(p->unpacking && p->finished))
                stop_child(p);
        pack_drop(p);
        return NULL;
}
