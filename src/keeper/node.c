/* Theory of operation
 *
 *      running on       files pass 1 (a thread), memory's first copy ─► quiet ─► stop: memory, files pass 2, the keeper's state ─► run
 *                                                                                     ─► sync (a thread) ─► `keep`, reply
 *      COP_NODE_END     quiet ─► stop: memory, the keeper's state ─► end of the tree ─► upper directory becomes layer/
 *                                                                                     ─► sync ─► `keep` ─► end, reply
 *      COP_NODE_FILES   as the first, but the tree is stopped by its cgroup
 *
 * Quiet: no request of ours is under way at init, so its control socket holds nothing of ours.  What it said to us before the stop
 * lies in our end of the socket and is read while the tree stands still, as is what lies in the commands' pipes: so the
 * keeper's state is of the same instant as the memory, and an end of a command is never lost.
 *
 * The loop goes on during the long parts, because threads inside may wait for it (the memory watch) and pipes must be read.
 * A thread of ours touches nothing but the node and the upper directory; the loop looks at its work after joining it.
 *
 * Three kinds of descriptors lead out of the tree: init's end of the control socket, the write ends of the output pipes, of which we
 * hold the other ends, and init's program, which has no path inside.  The freezer knows them by inode and writes names instead
 * ("control", "init", "N.0", "N.1" of the Nth command in `keep`); a thaw gives new ones under the same names.  A node keeps its own copy of the program: the one
 * that is installed may be another by then.
 *
 * `keep` is written last: a node that has it is complete.  doc/nodes.md has the invariants.
 */
#include "keeper/node.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "freezer/freezer.h"
#include "keeper/capture.h"
#include "keeper/command.h"
#include "keeper/saved.h"
#include "sandbox/wire.h"

#define QUIET_MAX (10 * USEC_PER_SEC)
#define QUIET_LOOK (1 * USEC_PER_MSEC)
#define PASSES_MAX 4
#define PASS_FILES 200
#define PASS_BYTES (8u << 20)
#define RACES 20
#define STOP_WAIT 200 /* ms for a cgroup to stand still */

enum job { /* what the thread does */
           JOB_NONE,
           JOB_PASS,
           JOB_SYNC,
};

/* What is captured of it; descriptors owned. */
struct folders {
        int from_fd, to_fd, parent_fd;
        struct cop_capture capture;
};
#define FOLDERS_NONE                                                    \
        {                                                               \
                .from_fd = -EBADF, .to_fd = -EBADF, .parent_fd = -EBADF \
        }

/* A freeze that waits, or what the last one has to tell. */
struct cop_keep_node {
        struct cop_keep *keep;
        uint64_t client;
        uint32_t id;
        unsigned flags;
        char *node, *parent;      /* owned */
        struct cop_source *timer; /* owned */
        usec_t begun;
        int node_fd, parent_fd;    /* owned */
        struct folders files, ipc; /* the upper directory, and /run/coppice inside */
        struct cop_buf saved;      /* what `keep` will say */
        bool frozen;               /* the reply is all that is left */
        struct cop_freeze_request request;
        struct cop_freeze *freeze; /* owned: begun, and not at the stop yet */
        int mem_fd, parent_mem_fd; /* owned */
        struct cop_freeze_result result;

        enum job job;
        pthread_t thread;
        int done_fd;              /* owned; eventfd: the thread is through */
        struct cop_source *done;  /* owned */
        struct cop_error job_err; /* the thread's, until it is joined */
        int job_result;
};

/* The thread is joined afterwards: its result. */
static int join(struct cop_keep_node *n)
{
        if (n->job == JOB_NONE)
                return 0;
        pthread_join(n->thread, NULL);
        n->job = JOB_NONE;
        n->done = cop_source_free(n->done);
        n->done_fd = cop_close(n->done_fd);
        return n->job_result;
}

static void folders_done(struct folders *f)
{
        cop_capture_done(&f->capture);
        cop_close(f->from_fd);
        cop_close(f->to_fd);
        cop_close(f->parent_fd);
}

static struct cop_keep_node *node_free(struct cop_keep_node *n)
{
        if (!n)
                return NULL;
        atomic_store(&n->files.capture.cancel, true);
        atomic_store(&n->ipc.capture.cancel, true);
        join(n);
        cop_freeze_cancel(n->freeze);
        cop_source_free(n->timer);
        folders_done(&n->files);
        folders_done(&n->ipc);
        cop_buf_done(&n->saved);
        cop_close(n->node_fd);
        cop_close(n->parent_fd);
        cop_close(n->mem_fd);
        cop_close(n->parent_mem_fd);
        free(n->node);
        free(n->parent);
        free(n);
        return NULL;
}

void cop_keep_watch_done(struct cop_keep *k)
{
        k->watch_source = cop_source_free(k->watch_source);
        if (k->watch)
                cop_watch_free(TAKE_PTR(k->watch));
}

static void on_wait(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_keep *k = userdata;

        cop_waits_dispatch(k->waits);
}

struct cop_waits *cop_keep_waits(struct cop_keep *k)
{
        struct cop_error err;

        if (k->waits)
                return k->waits;
        k->waits = cop_waits_new();
        if (k->waits &&
            cop_loop_add_io(k->loop, cop_waits_fd(k->waits), EPOLLIN, on_wait, k, &k->waits_source, &err) < 0) {
                cop_log_debug("time limits: %s", err.message);
                cop_waits_free(TAKE_PTR(k->waits));
        }
        return k->waits;
}

void cop_keep_memory_done(struct cop_keep *k)
{
        if (k->node) /* it uses what goes now */
                cop_freeze_cancel(TAKE_PTR(k->node->freeze));
        cop_keep_watch_done(k);
        k->waits_source = cop_source_free(k->waits_source);
        if (k->waits)
                cop_waits_free(TAKE_PTR(k->waits));
        if (k->tracker)
                cop_tracker_free(TAKE_PTR(k->tracker));
        cop_freeze_room_free(cop_keep_rest_room(k));
}

/* -- freezing ------------------------------------------------------------------------------------------------------------------- */

static int collect_externals(struct cop_keep *k, struct cop_externals *x, struct cop_error *err)
{
        int r = cop_externals_init(x, k->command_count, err);

        if (r < 0)
                return r;
        struct cop_external *control = cop_externals_add(x, COP_NODE_CONTROL);
        cop_sandbox_control_inode(k->sandbox, &control->dev, &control->ino);
        char path[64];
        struct stat program;
        snprintf(path, sizeof(path), "/proc/%d/exe", (int)k->init_pid);
        if (stat(path, &program) < 0)
                return cop_error_errno(err, errno, "init's program");
        struct cop_external *init = cop_externals_add(x, COP_NODE_INIT);
        init->dev = program.st_dev;
        init->ino = program.st_ino;
        size_t at = 0;
        for (struct cop_command *c = k->commands; c; c = c->next, at++)
                for (unsigned i = 0; i < 2; i++) {
                        struct stat st;
                        if (c->out[i].fd < 0)
                                continue;
                        if (fstat(c->out[i].fd, &st) < 0)
                                return cop_error_errno(err, errno, "output of %s", c->key);
                        struct cop_external *e = cop_externals_add_output(x, at, i);
                        e->dev = st.st_dev;
                        e->ino = st.st_ino;
                }
        return 0;
}

int cop_node_folder(int at_fd, const char *path, int *ret, struct cop_error *err)
{
        *ret = openat(at_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return *ret < 0 ? cop_error_errno(err, errno, "opening %s", path) : 0;
}

static int make_folder(int at_fd, const char *name, int *ret, struct cop_error *err)
{
        if (mkdirat(at_fd, name, 0700) < 0)
                return cop_error_errno(err, errno, "making %s of a node", name);
        return cop_node_folder(at_fd, name, ret, err);
}

/* The running init's program, whatever is installed now. */
static int copy_init(struct cop_keep *k, int node_fd, int parent_fd, struct cop_error *err)
{
        _cleanup_close_ int from = -EBADF, to = -EBADF;
        char path[64];

        if (parent_fd >= 0 && linkat(parent_fd, COP_NODE_INIT, node_fd, COP_NODE_INIT, 0) == 0)
                return 0; /* the same tree, the same program */
        snprintf(path, sizeof(path), "/proc/%d/exe", (int)k->init_pid);
        from = open(path, O_RDONLY | O_CLOEXEC);
        to = openat(node_fd, COP_NODE_INIT, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
        if (from < 0 || to < 0)
                return cop_error_errno(err, errno, "saving init's program");
        ssize_t n; /* not copy_file_range, which stays within one filesystem: the program may be installed on another */
        while ((n = sendfile(to, from, NULL, 1u << 30)) > 0)
                ;
        /* The sandbox's root is nobody here: it executes the program by the rights of others. */
        return n < 0 || fchmod(to, 0755) < 0 ? cop_error_errno(err, errno, "saving init's program") : 0;
}

/* While the tree stands still. */
static int take_the_rest(void *userdata, struct cop_error *err)
{
        struct cop_keep_node *n = userdata;
        struct cop_keep *k = n->keep;
        int r = n->flags & COP_NODE_END ? 0 : cop_capture_pass(&n->files.capture, err);

        if (r == 0 && k->ipc_path)
                r = cop_capture_pass(&n->ipc.capture, err);
        if (r < 0)
                return r;
        if (k->init)
                cop_link_drain(k->init); /* ends of commands, told and not read yet */
        for (struct cop_command *c = k->commands; c; c = c->next)
                cop_output_drain(c);
        r = cop_saved_write(k, &n->saved, err);
        if (r == 0 && k->client && !(n->flags & COP_NODE_END)) { /* what the daemon held back may go on */
                struct cop_msg event;
                cop_msg_init(&event, COP_WIRE_EVENT_TAKEN, 0);
                cop_link_send(k->client, &event);
        }
        return r;
}

static int stop_by_cgroup(struct cop_keep *k, struct cop_error *err)
{
        int r = cop_cgroup_freeze(cop_sandbox_cgroup(k->sandbox), true, err);

        for (int i = 0; r == 0 && i < STOP_WAIT; i++) {
                if (cop_cgroup_is_frozen(cop_sandbox_cgroup(k->sandbox)))
                        return 0;
                usleep(1000);
        }
        return r < 0 ? r
                     : cop_error_set(err, ETIMEDOUT, COP_ERR_not_freezable,
                                     "the sandbox's processes do not stop; try again");
}

static int freeze_files_only(struct cop_keep *k, struct cop_keep_node *n, struct cop_error *err)
{
        usec_t begin = cop_now(CLOCK_MONOTONIC);
        int r = stop_by_cgroup(k, err);

        if (r == 0)
                r = take_the_rest(n, err);
        int undone = cop_cgroup_freeze(cop_sandbox_cgroup(k->sandbox), false, r < 0 ? NULL : err);
        n->result.pause = cop_now(CLOCK_MONOTONIC) - begin;
        return r < 0 ? r : undone;
}

static int empty_folder(int fd, struct cop_error *err)
{
        int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_closedir_ DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        struct dirent *entry;
        int r = dir ? 0 : cop_error_errno(err, errno, "emptying a node");

        if (!dir)
                cop_close(copy);
        while (r == 0 && (entry = readdir(dir)))
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        r = cop_remove_tree(fd, entry->d_name, err);
        return r;
}

static int make_request(struct cop_keep *k, struct cop_keep_node *n, struct cop_error *err)
{
        /* The tmpfs of a sandbox in which its own processes keep things (mounts.c). */
        static const char *const kept[] = {"/dev/shm", "/run", NULL};
        bool end = n->flags & COP_NODE_END;
        int r = n->mem_fd < 0 ? make_folder(n->node_fd, "mem", &n->mem_fd, err) : 0;

        if (r == 0 && n->parent_fd >= 0 && n->parent_mem_fd < 0)
                (void)cop_node_folder(n->parent_fd, "mem", &n->parent_mem_fd, NULL); /* a node of files has none */
        if (r == 0 && !end && !k->tracker)
                k->tracker = cop_tracker_new();
        n->request = (struct cop_freeze_request){
                .root = k->init_pid,
                .image_dir_fd = n->mem_fd,
                .parent_dir_fd = n->parent_mem_fd,
                .flags = end ? COP_FREEZE_KILL | COP_FREEZE_SYNC : 0, /* else our own thread syncs it */
                .tracker = k->tracker,
                .waits = cop_keep_waits(k),
                .kept_folders = kept,
                .stopped = take_the_rest,
                .userdata = n,
        };
        return r;
}

/* Beside the pass over the files.  What comes in its way is met again, and told, when all is done at once. */
static void begin_freeze(struct cop_keep *k, struct cop_keep_node *n)
{
        struct cop_error err;
        int r = make_request(k, n, &err);

        if (r == 0) {
                n->request.room = cop_keep_rest_room(k);
                r = cop_freeze_begin(&n->request, &n->freeze, &err);
        }
        if (r < 0)
                cop_log_debug("copying memory ahead: %s", err.message);
        if (r < 0 && n->mem_fd >= 0)
                (void)empty_folder(n->mem_fd, NULL);
}

static int freeze_anew(struct cop_keep_node *n, struct cop_error *err)
{
        int r = empty_folder(n->mem_fd, err);

        n->request.room = NULL; /* was taken over */
        return r < 0 ? r : cop_freeze(&n->request, &n->result, err);
}

static int freeze_tree(struct cop_keep *k, struct cop_keep_node *n, struct cop_error *err)
{
        struct cop_externals x = {0};
        int r = n->freeze ? 0 : make_request(k, n, err);

        if (r == 0)
                r = collect_externals(k, &x, err);
        if (r == 0) {
                n->request.externals = x.list;
                n->request.external_count = x.count;
                if (!n->freeze)
                        n->request.room = cop_keep_rest_room(k);
                r = n->freeze ? cop_freeze_finish(TAKE_PTR(n->freeze), &n->result, err)
                              : cop_freeze(&n->request, &n->result, err);
                /* A process ended while it was being looked for: the stop was not reached. */
                for (int i = 0; r == -ESRCH && i < RACES && n->saved.len == 0; i++)
                        r = freeze_anew(n, err);
                if (r < 0 && (err->code == COP_ERR_image_damaged || err->code == COP_ERR_image_mismatch) &&
                    n->parent_mem_fd >= 0 && n->saved.len == 0) {
                        /* It is the parent that is damaged, or another engine's, and this tree was perhaps booted cold for that. */
                        n->request.parent_dir_fd = -EBADF;
                        r = freeze_anew(n, err);
                }
        }
        cop_externals_done(&x);
        return r;
}

/* K1.  A lazy node is not on disk yet, and neither need this be. */
static int write_keep(struct cop_keep_node *n, struct cop_error *err)
{
        return (n->flags & COP_NODE_LAZY ? cop_write_file_unsynced : cop_write_file_atomic)(
                n->node_fd, "keep", n->saved.data, n->saved.len, 0600, err);
}

/* The tree is gone, and its memory on disk.  From here to the end either all becomes the node, or the files go back. */
static int commit_end(struct cop_keep *k, struct cop_keep_node *n, struct cop_error *err)
{
        _cleanup_close_ int fs_fd = -EBADF;
        int r = cop_node_folder(AT_FDCWD, k->upper_path, &fs_fd, err);

        if (r == 0 && renameat(fs_fd, "upper", n->node_fd, "layer") < 0)
                return cop_error_errno(err, errno, "moving the sandbox's files into the node");
        if (r == 0 && syncfs(n->node_fd) < 0)
                r = cop_error_errno(err, errno, "writing the node to disk");
        if (r == 0)
                r = write_keep(n, err);
        if (r < 0 && fs_fd >= 0) { /* the daemon deletes the node's folder after an error */
                unlinkat(n->node_fd, "keep", 0);
                if (renameat(n->node_fd, "layer", fs_fd, "upper") < 0)
                        cop_log_error("the files of %s are left in %s/layer", k->id, n->node);
        }
        return r;
}

void cop_keep_add_frozen(struct cop_keep *k, struct cop_msg *reply)
{
        const struct cop_keep_node *n = k->node;

        if (!n)
                return;
        cop_msg_add_u64(reply, COP_TAG_PAUSE, n->result.pause);
        cop_msg_add_u64(reply, COP_TAG_DURATION, cop_now(CLOCK_MONOTONIC) - n->begun);
        cop_msg_add_u64(reply, COP_TAG_MEMORY_BYTES, n->result.bytes);
        cop_msg_add_u64(reply, COP_TAG_PIDS, n->result.processes);
        cop_msg_add_u64(reply, COP_TAG_FILE_BYTES, n->files.capture.bytes);
        cop_msg_add_u64(reply, COP_TAG_FILES, n->files.capture.files);
}

/* -- the course of a freeze -------------------------------------------------------------------------------------------------- */

static void fail_node(struct cop_keep *k, const struct cop_error *err)
{
        struct cop_keep_node *n = TAKE_PTR(k->node);

        cop_keep_reply_error(k, n->client, n->id, err);
        node_free(n);
}

static void reply_node(struct cop_keep *k)
{
        struct cop_keep_node *n = k->node;
        struct cop_error err = COP_ERROR_NULL;
        struct cop_msg reply;

        if (write_keep(n, &err) < 0) {
                fail_node(k, &err);
                return;
        }
        cop_msg_init(&reply, COP_WIRE_REPLY, 0);
        cop_keep_add_frozen(k, &reply);
        cop_keep_reply(k, n->client, n->id, &reply);
        if (n->flags & COP_NODE_LAZY)
                cop_keep_sync_later(k, n->node_fd);
        if (!(n->flags & COP_NODE_FILES))
                cop_keep_rest(k, n->node_fd, n->result.pages_written);
        k->node = node_free(n);
}

/* As in live migration: again as long as much has changed during a pass. */
static int pass_while_running(struct cop_capture *c, struct cop_error *err)
{
        uint64_t files, bytes;
        int r, n = 0;

        c->patient = true;
        do {
                files = c->files;
                bytes = c->bytes;
                r = cop_capture_pass(c, err);
        } while (r == 0 && ++n < PASSES_MAX && (c->files - files > PASS_FILES || c->bytes - bytes > PASS_BYTES));
        c->patient = false;
        return r;
}

static void *work(void *userdata)
{
        struct cop_keep_node *n = userdata;
        uint64_t one = 1;

        if (n->job == JOB_PASS) {
                n->job_result = pass_while_running(&n->files.capture, &n->job_err);
                if (n->job_result == 0 && n->keep->ipc_path)
                        n->job_result = cop_capture_pass(&n->ipc.capture, &n->job_err);
        } else if (syncfs(n->node_fd) < 0)
                n->job_result = cop_error_errno(&n->job_err, errno, "writing the node to disk");
        (void)!write(n->done_fd, &one, sizeof(one));
        return NULL;
}

static void on_job_done(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_keep *k = userdata;
        struct cop_keep_node *n = k->node;
        enum job job = n->job;

        if (join(n) < 0)
                fail_node(k, &n->job_err);
        else if (job == JOB_SYNC)
                reply_node(k);
        else
                cop_source_set_time(n->timer, 0);
}

static int start_job(struct cop_keep *k, struct cop_keep_node *n, enum job job, struct cop_error *err)
{
        n->job_result = 0;
        n->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (n->done_fd < 0)
                return cop_error_errno(err, errno, "eventfd");
        int r = cop_loop_add_io(k->loop, n->done_fd, EPOLLIN, on_job_done, k, &n->done, err);
        if (r < 0)
                return r;
        n->job = job;
        r = cop_thread_start(&n->thread, NULL, work, n);
        if (r == 0)
                return 0;
        n->job = JOB_NONE;
        n->done = cop_source_free(n->done);
        n->done_fd = cop_close(n->done_fd);
        return cop_error_errno(err, r, "starting a thread");
}

static void freeze_now(struct cop_keep *k)
{
        struct cop_keep_node *n = k->node;
        struct cop_error err = COP_ERROR_NULL;
        bool end = n->flags & COP_NODE_END;

        int r = copy_init(k, n->node_fd, n->parent_fd, &err);
        if (r == 0)
                r = n->flags & COP_NODE_FILES ? freeze_files_only(k, n, &err) : freeze_tree(k, n, &err);
        if (r == 0 && end)
                r = commit_end(k, n, &err);
        if (r == 0 && end) { /* the answer comes when nothing is left, as after STOP */
                n->frozen = true;
                cop_keep_flush_events(k);
                cop_keep_commands_free(k); /* they are not killed, they sleep */
                cop_keep_stop(k, n->client, n->id, 0);
                return;
        }
        if (r == 0 && !(n->flags & COP_NODE_LAZY))
                r = start_job(k, n, JOB_SYNC, &err);
        if (r < 0)
                fail_node(k, &err);
        else if (n->flags & COP_NODE_LAZY)
                reply_node(k);
}

void cop_keep_node_abort(struct cop_keep *k, const char *why)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_keep_node *n = k->node;

        if (!n || n->frozen)
                return;
        if (n->job == JOB_SYNC) { /* all but complete */
                if (join(n) < 0)
                        fail_node(k, &n->job_err);
                else
                        reply_node(k);
                return;
        }
        cop_error_set(&err, ESHUTDOWN, COP_ERR_cancelled, "the node is not made: %s", why);
        fail_node(k, &err);
}

static void on_quiet_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_keep *k = userdata;
        struct cop_error err = COP_ERROR_NULL;

        if (k->calls && now - k->node->begun > QUIET_MAX) {
                cop_error_set(&err, EBUSY, COP_ERR_invalid_state,
                              "a file transfer or start of a command has been going on for 10 s");
                fail_node(k, &err);
        } else if (k->calls) {
                cop_source_set_time(s, cop_usec_add(now, QUIET_LOOK));
        } else {
                cop_source_set_time(s, USEC_INFINITY);
                freeze_now(k);
        }
}

/* What the parent node has of it serves for files that are as they were. */
static int open_pair(struct cop_keep_node *n, struct folders *f, int at_fd, const char *from, const char *to,
                     struct cop_error *err)
{
        int r = cop_node_folder(at_fd, from, &f->from_fd, err);

        if (r == 0)
                r = make_folder(n->node_fd, to, &f->to_fd, err);
        if (r == 0 && n->parent_fd >= 0)
                f->parent_fd = openat(n->parent_fd, to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        f->capture.upper_fd = f->from_fd;
        f->capture.layer_fd = f->to_fd;
        f->capture.parent_fd = f->parent_fd;
        return r;
}

static int open_folders(struct cop_keep *k, struct cop_keep_node *n, struct cop_error *err)
{
        _cleanup_close_ int fs_fd = -EBADF;
        int r = cop_node_folder(AT_FDCWD, n->node, &n->node_fd, err);

        if (r == 0 && n->parent)
                r = cop_node_folder(AT_FDCWD, n->parent, &n->parent_fd, err);
        if (r == 0 && k->ipc_path)
                r = open_pair(n, &n->ipc, AT_FDCWD, k->ipc_path, "ipc", err);
        if (r < 0 || n->flags & COP_NODE_END)
                return r;
        r = cop_node_folder(AT_FDCWD, k->upper_path, &fs_fd, err);
        return r == 0 ? open_pair(n, &n->files, fs_fd, "upper", "layer", err) : r;
}

static int new_node(struct cop_keep *k, struct cop_msg *m, struct cop_keep_node **ret, struct cop_error *err)
{
        if (k->state != COP_KEEP_RUNNING)
                return cop_error_set(err, EINVAL, COP_ERR_invalid_state, "the sandbox does not run");
        if (k->node)
                return cop_error_set(err, EBUSY, COP_ERR_invalid_state, "a node is being made already");
        struct cop_keep_node *n = *ret = calloc(1, sizeof(*n));
        if (!n)
                return cop_error_errno(err, ENOMEM, "node");
        *n = (struct cop_keep_node){.keep = k,
                                    .client = k->client_number,
                                    .id = m->id,
                                    .flags = (unsigned)cop_msg_u64_or(m, COP_TAG_FLAGS, 0),
                                    .begun = cop_now(CLOCK_MONOTONIC),
                                    .node_fd = -EBADF,
                                    .parent_fd = -EBADF,
                                    .mem_fd = -EBADF,
                                    .parent_mem_fd = -EBADF,
                                    .files = FOLDERS_NONE,
                                    .ipc = FOLDERS_NONE,
                                    .done_fd = -EBADF};
        n->ipc.capture.no_sockets = true;
        if (cop_msg_get_str(m, COP_TAG_NODE, 0, &n->node) < 0)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "FREEZE needs a valid NODE");
        if ((n->flags & COP_NODE_END) && (n->flags & (COP_NODE_FILES | COP_NODE_LAZY)))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "FREEZE: END goes with neither FILES nor LAZY");
        int r = cop_msg_get_str(m, COP_TAG_PARENT, 0, &n->parent);
        if (r < 0 && r != -ENOENT)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "FREEZE needs a valid PARENT or none");
        if (k->tracker && !(n->flags & (COP_NODE_END | COP_NODE_FILES)))
                cop_tracker_ahead(k->tracker);
        return open_folders(k, n, err);
}

void cop_keep_freeze(struct cop_keep *k, struct cop_msg *m)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_keep_node *n = NULL;
        int r = new_node(k, m, &n, &err);

        bool end = n && n->flags & COP_NODE_END;
        if (r == 0)
                r = cop_loop_add_timer(k->loop, end ? 0 : USEC_INFINITY, on_quiet_timer, k, &n->timer, &err);
        if (r == 0 && !end)
                r = start_job(k, n, JOB_PASS, &err);
        if (r < 0) {
                node_free(n);
                cop_keep_reply_error(k, k->client_number, m->id, &err);
                return;
        }
        k->node = n;
        if (!(n->flags & (COP_NODE_END | COP_NODE_FILES)))
                begin_freeze(k, n);
}

void cop_keep_still(struct cop_keep *k, struct cop_msg *m)
{
        _cleanup_close_ int fd = -EBADF, mem_fd = -EBADF;
        _cleanup_free_ char *parent = NULL;
        struct cop_error err;
        struct cop_msg reply;

        if (cop_msg_get_str(m, COP_TAG_PARENT, 0, &parent) < 0) {
                cop_error_set(&err, EINVAL, COP_ERR_bad_request, "STILL needs a valid PARENT");
                cop_keep_reply_error(k, k->client_number, m->id, &err);
                return;
        }
        if (cop_node_folder(AT_FDCWD, parent, &fd, NULL) == 0)
                (void)cop_node_folder(fd, "mem", &mem_fd, NULL);
        cop_msg_init(&reply, COP_WIRE_REPLY, 0);
        cop_msg_add_u64(&reply, COP_TAG_FLAGS, cop_keep_is_still(k, mem_fd));
        cop_keep_reply(k, k->client_number, m->id, &reply);
}

void cop_keep_node_done(struct cop_keep *k)
{
        k->node = node_free(k->node);
}
