/* Theory of operation
 *
 * Freeze.  The tree is quiet towards us first: no request is under way at init, so its control socket holds nothing of ours, and what
 * it says to us lies in our end, which we keep.  Then
 *
 *      running on       files pass 1 ─► stop ─► memory saved, files pass 2 ─► run ─► `keep`, sync, reply
 *      COP_NODE_END     stop ─► memory saved ─► end of the tree ─► upper directory becomes layer/ ─► `keep`, sync, reply, end
 *      COP_NODE_FILES   files pass 1 ─► cgroup stopped ─► files pass 2 ─► cgroup runs
 *
 * Three kinds of descriptors lead out of the tree: init's end of the control socket, the write ends of the output pipes, of which we
 * hold the other ends, and init's program, which has no path inside.  The freezer knows them by inode and writes names instead
 * ("control", "KEY.0", "KEY.1", "init"); a thaw gives new ones under the same names.  A node keeps its own copy of the program: the one
 * that is installed may be another by then.
 *
 * Thaw.  A sandbox is started up to the point where its first process would execute init; the tree is thawed into its namespaces (the
 * pid and time namespaces are always new) and takes that process's place.  Commands go on with their logs; in a fork the logs are new.
 *
 * `keep` is written last: a node that has it is complete.
 */
#include "keeper/node.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "freezer/freezer.h"
#include "keeper/capture.h"
#include "keeper/command.h"
#include "sandbox/layers.h"
#include "sandbox/wire.h"

#define KEEP_MAGIC   0x31504b43u /* "CKP1" */
#define QUIET_MAX    (10 * USEC_PER_SEC)
#define QUIET_LOOK   (1 * USEC_PER_MSEC)
#define CONTROL_NAME "control"
#define INIT_NAME    "init"
#define STOP_WAIT    200 /* ms for a cgroup to stand still */

struct saved_command {
        char key[64];
        int64_t pid;
        uint32_t flags; /* COP_ENTRY_* */
        uint32_t status;
        uint32_t forgotten, open; /* open: bit i = stream i is not at its end */
        uint64_t started, ended, bytes[2];
        uint64_t log_size, log_room, log_dropped, log_mark;
        uint64_t timeout_left; /* 0 = none */
};

struct saved_header {
        uint32_t magic, count;
};

/* A freeze that waits, or what the last one has to tell. */
struct cop_keep_node {
        uint64_t client;
        uint32_t id;
        unsigned flags;
        char *node, *parent; /* owned */
        struct cop_source *timer; /* owned */
        usec_t begun;
        struct cop_capture capture;
        struct cop_freeze_result result;
};

static struct cop_keep_node *node_free(struct cop_keep_node *n)
{
        if (!n)
                return NULL;
        cop_source_free(n->timer);
        cop_capture_done(&n->capture);
        free(n->node);
        free(n->parent);
        free(n);
        return NULL;
}

static void watch_done(struct cop_keep *k)
{
        k->watch_source = cop_source_free(k->watch_source);
        if (k->watch)
                cop_watch_free(TAKE_PTR(k->watch));
}

void cop_keep_memory_done(struct cop_keep *k)
{
        watch_done(k);
        if (k->tracker)
                cop_tracker_free(TAKE_PTR(k->tracker));
}

/* -- `keep` -------------------------------------------------------------------------------------------------------------------- */

static void save_command(const struct cop_command *c, usec_t now, struct saved_command *s)
{
        *s = (struct saved_command){
                .pid = c->pid,
                .flags = (c->exited ? COP_ENTRY_EXITED : 0) | (c->timed_out ? COP_ENTRY_TIMED_OUT : 0),
                .status = (uint32_t)c->status,
                .forgotten = c->forgotten,
                .started = c->started,
                .ended = c->ended,
                .bytes = {c->out[0].bytes, c->out[1].bytes},
                .log_size = c->log.size,
                .log_room = c->log.room,
                .log_dropped = c->log.dropped,
                .log_mark = c->log.mark_at,
        };
        memcpy(s->key, c->key, sizeof(s->key));
        for (unsigned i = 0; i < 2; i++)
                if (c->out[i].fd >= 0)
                        s->open |= 1u << i;
        if (c->timeout && !c->exited) {
                usec_t ran = now > c->started ? now - c->started : 0;
                s->timeout_left = ran < c->timeout ? c->timeout - ran : 1;
        }
}

static int write_keep(struct cop_keep *k, int node_fd, struct cop_error *err)
{
        _cleanup_buf_ struct cop_buf buf = COP_BUF(sizeof(struct saved_header) + COP_KEEP_COMMANDS_MAX * sizeof(struct saved_command));
        struct saved_header header = {.magic = KEEP_MAGIC};
        usec_t now = cop_now(CLOCK_REALTIME);

        for (struct cop_command *c = k->commands; c; c = c->next)
                header.count += c->pid != 0;
        int r = cop_buf_add(&buf, &header, sizeof(header));
        for (struct cop_command *c = k->commands; c && r == 0; c = c->next) {
                struct saved_command s;
                if (c->pid == 0)
                        continue;
                save_command(c, now, &s);
                r = cop_buf_add(&buf, &s, sizeof(s));
        }
        if (r < 0)
                return cop_error_errno(err, r, "saving the keeper's state");
        return cop_write_file_atomic(node_fd, "keep", buf.data, buf.len, 0600, err);
}

/* -- freezing ------------------------------------------------------------------------------------------------------------------- */

struct externals {
        struct cop_external *list;
        char (*names)[72];
        size_t count;
};

static void externals_done(struct externals *x)
{
        free(x->list);
        free(x->names);
}

static int externals_new(struct cop_keep *k, struct externals *x, struct cop_error *err)
{
        size_t most = 2 + 2 * k->command_count;

        x->list = calloc(most, sizeof(*x->list));
        x->names = calloc(most, sizeof(*x->names));
        x->count = 0;
        return x->list && x->names ? 0 : cop_error_errno(err, ENOMEM, "descriptors of the sandbox");
}

static struct cop_external *add_external(struct externals *x, const char *key, int stream)
{
        struct cop_external *e = &x->list[x->count];

        if (stream < 0)
                snprintf(x->names[x->count], sizeof(x->names[0]), "%s", key);
        else
                snprintf(x->names[x->count], sizeof(x->names[0]), "%.60s.%d", key, stream);
        *e = (struct cop_external){.name = x->names[x->count], .fd = -EBADF};
        x->count++;
        return e;
}

static int collect_externals(struct cop_keep *k, struct externals *x, struct cop_error *err)
{
        int r = externals_new(k, x, err);

        if (r < 0)
                return r;
        struct cop_external *control = add_external(x, CONTROL_NAME, -1);
        cop_sandbox_control_inode(k->sandbox, &control->dev, &control->ino);
        char path[64];
        struct stat program;
        snprintf(path, sizeof(path), "/proc/%d/exe", (int)k->init_pid);
        if (stat(path, &program) < 0)
                return cop_error_errno(err, errno, "init's program");
        struct cop_external *init = add_external(x, INIT_NAME, -1);
        init->dev = program.st_dev;
        init->ino = program.st_ino;
        for (struct cop_command *c = k->commands; c; c = c->next)
                for (int i = 0; i < 2; i++) {
                        struct stat st;
                        if (c->out[i].fd < 0)
                                continue;
                        if (fstat(c->out[i].fd, &st) < 0)
                                return cop_error_errno(err, errno, "output of %s", c->key);
                        struct cop_external *e = add_external(x, c->key, i);
                        e->dev = st.st_dev;
                        e->ino = st.st_ino;
                }
        return 0;
}

static int open_folder(int at_fd, const char *path, int *ret, struct cop_error *err)
{
        *ret = openat(at_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return *ret < 0 ? cop_error_errno(err, errno, "opening %s", path) : 0;
}

static int make_folder(int at_fd, const char *name, int *ret, struct cop_error *err)
{
        if (mkdirat(at_fd, name, 0700) < 0)
                return cop_error_errno(err, errno, "making %s of a node", name);
        return open_folder(at_fd, name, ret, err);
}

/* The tree stands still and its memory is saved.  What the daemon held back may go on before all of it is on disk. */
static int capture_again(void *userdata, struct cop_error *err)
{
        struct cop_keep *k = userdata;
        struct cop_msg event;
        int r = cop_capture_pass(&k->node->capture, err);

        if (r < 0 || !k->client)
                return r;
        cop_msg_init(&event, COP_WIRE_EVENT_TAKEN, 0);
        cop_link_send(k->client, &event);
        return 0;
}

static int wait_for_standstill(struct cop_keep *k, bool frozen, struct cop_error *err)
{
        int r = cop_cgroup_freeze(cop_sandbox_cgroup(k->sandbox), frozen, err);

        for (int i = 0; r == 0 && frozen && i < STOP_WAIT; i++) {
                if (cop_cgroup_is_frozen(cop_sandbox_cgroup(k->sandbox)))
                        return 0;
                usleep(1000);
        }
        return r;
}

static int freeze_files_only(struct cop_keep *k, struct cop_keep_node *n, struct cop_error *err)
{
        usec_t begin = cop_now(CLOCK_MONOTONIC);
        int r = wait_for_standstill(k, true, err);

        if (r == 0)
                r = cop_capture_pass(&n->capture, err);
        int undone = wait_for_standstill(k, false, r < 0 ? NULL : err);
        n->result.pause = cop_now(CLOCK_MONOTONIC) - begin;
        return r < 0 ? r : undone;
}

static int freeze_tree(struct cop_keep *k, struct cop_keep_node *n, int node_fd, int parent_fd, struct cop_error *err)
{
        _cleanup_close_ int mem_fd = -EBADF, parent_mem_fd = -EBADF;
        bool end = n->flags & COP_NODE_END;
        struct externals x = {0};

        int r = make_folder(node_fd, "mem", &mem_fd, err);
        if (r == 0 && parent_fd >= 0)
                parent_mem_fd = openat(parent_fd, "mem", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* a node of files has none */
        if (r == 0)
                r = collect_externals(k, &x, err);
        if (r == 0) {
                struct cop_freeze_request request = {
                        .root = k->init_pid,
                        .image_dir_fd = mem_fd,
                        .parent_dir_fd = parent_mem_fd,
                        .flags = COP_FREEZE_SYNC | (end ? COP_FREEZE_KILL : 0),
                        .externals = x.list,
                        .external_count = x.count,
                        .tracker = k->tracker,
                        .stopped = end ? NULL : capture_again,
                        .userdata = k,
                };
                r = cop_freeze(&request, &n->result, err);
        }
        externals_done(&x);
        return r;
}

/* The end of the tree is the commit of a suspend: from here on the files are the node's. */
static int move_upper(struct cop_keep *k, int node_fd, struct cop_error *err)
{
        _cleanup_close_ int fs_fd = -EBADF;
        int r = open_folder(AT_FDCWD, k->upper_path, &fs_fd, err);

        if (r == 0 && renameat(fs_fd, "upper", node_fd, "layer") < 0)
                r = cop_error_errno(err, errno, "moving the sandbox's files into the node");
        return r;
}

static int copy_ipc(const char *ipc_path, int node_fd, struct cop_error *err)
{
        _cleanup_close_ int from = -EBADF, to = -EBADF;
        int r = open_folder(AT_FDCWD, ipc_path, &from, err);

        if (r == 0)
                r = make_folder(node_fd, "ipc", &to, err);
        if (r < 0)
                return r;
        struct cop_capture c = {.upper_fd = from, .layer_fd = to, .parent_fd = -EBADF, .plain = true};
        r = cop_capture_pass(&c, err);
        cop_capture_done(&c);
        return r;
}

/* The running init's program, whatever is installed now. */
static int copy_init(struct cop_keep *k, int node_fd, int parent_fd, struct cop_error *err)
{
        _cleanup_close_ int from = -EBADF, to = -EBADF;
        char path[64];

        if (parent_fd >= 0 && linkat(parent_fd, INIT_NAME, node_fd, INIT_NAME, 0) == 0)
                return 0; /* the same tree, the same program */
        snprintf(path, sizeof(path), "/proc/%d/exe", (int)k->init_pid);
        from = open(path, O_RDONLY | O_CLOEXEC);
        to = openat(node_fd, INIT_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
        if (from < 0 || to < 0)
                return cop_error_errno(err, errno, "saving init's program");
        ssize_t n;
        while ((n = copy_file_range(from, NULL, to, NULL, 1u << 30, 0)) > 0)
                ;
        /* The sandbox's root is nobody here: it executes the program by the rights of others. */
        return n < 0 || fchmod(to, 0755) < 0 ? cop_error_errno(err, errno, "saving init's program") : 0;
}

/* A read-only mount of it, as at a start: root inside can open /proc/1/exe. */
static int open_init(const char *node, struct cop_error *err)
{
        char path[PATH_MAX];

        int r = cop_path_format(path, sizeof(path), "%s/" INIT_NAME, node);
        if (r < 0)
                return cop_error_errno(err, r, "%s", node);
        _cleanup_close_ int mount_fd = cop_mount_clone(path, MOUNT_ATTR_RDONLY, err);
        if (mount_fd < 0)
                return mount_fd;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", mount_fd);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        return fd < 0 ? cop_error_errno(err, errno, "opening init's program") : fd;
}

static int save_files(struct cop_keep *k, struct cop_keep_node *n, int node_fd, int parent_fd, int fds[static 3], struct cop_error *err)
{
        _cleanup_close_ int fs_fd = -EBADF;
        int r = open_folder(AT_FDCWD, k->upper_path, &fs_fd, err);

        if (r == 0)
                r = open_folder(fs_fd, "upper", &fds[0], err);
        if (r == 0)
                r = make_folder(node_fd, "layer", &fds[1], err);
        if (r == 0 && parent_fd >= 0)
                fds[2] = openat(parent_fd, "layer", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (r < 0)
                return r;
        n->capture = (struct cop_capture){.upper_fd = fds[0], .layer_fd = fds[1], .parent_fd = fds[2]};
        return cop_capture_pass(&n->capture, err);
}

static int make_node(struct cop_keep *k, struct cop_keep_node *n, struct cop_error *err)
{
        _cleanup_close_ int node_fd = -EBADF, parent_fd = -EBADF;
        bool end = n->flags & COP_NODE_END;
        int fds[3] = {-EBADF, -EBADF, -EBADF};

        int r = open_folder(AT_FDCWD, n->node, &node_fd, err);
        if (r == 0 && n->parent)
                r = open_folder(AT_FDCWD, n->parent, &parent_fd, err);
        if (r == 0 && !end)
                r = save_files(k, n, node_fd, parent_fd, fds, err);
        if (r == 0 && k->ipc_path)
                r = copy_ipc(k->ipc_path, node_fd, err);
        if (r == 0)
                r = copy_init(k, node_fd, parent_fd, err);
        if (r == 0 && !end && !k->tracker)
                k->tracker = cop_tracker_new();
        if (r == 0)
                r = n->flags & COP_NODE_FILES ? freeze_files_only(k, n, err) : freeze_tree(k, n, node_fd, parent_fd, err);
        for (size_t i = 0; i < ELEMENTSOF(fds); i++)
                cop_close(fds[i]);
        if (r == 0 && end)
                r = move_upper(k, node_fd, err);
        if (r == 0 && syncfs(node_fd) < 0)
                r = cop_error_errno(err, errno, "writing the node to disk");
        return r < 0 ? r : write_keep(k, node_fd, err);
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
        cop_msg_add_u64(reply, COP_TAG_FILE_BYTES, n->capture.bytes);
        cop_msg_add_u64(reply, COP_TAG_FILES, n->capture.files);
}

static void freeze_now(struct cop_keep *k)
{
        struct cop_keep_node *n = k->node;
        struct cop_error err = COP_ERROR_NULL;
        struct cop_msg reply;

        if (make_node(k, n, &err) < 0) {
                cop_keep_reply_error(k, n->client, n->id, &err);
                k->node = node_free(n);
                return;
        }
        if (n->flags & COP_NODE_END) { /* the answer comes when nothing is left, as after STOP */
                watch_done(k);
                cop_keep_stop(k, n->client, n->id, 0);
                return;
        }
        cop_msg_init(&reply, COP_WIRE_REPLY, 0);
        cop_keep_add_frozen(k, &reply);
        cop_keep_reply(k, n->client, n->id, &reply);
        k->node = node_free(n);
}

static void on_quiet_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_keep *k = userdata;
        struct cop_error err = COP_ERROR_NULL;

        if (k->state != COP_KEEP_RUNNING)
                cop_error_set(&err, ESHUTDOWN, COP_ERR_sandbox_ended, "the sandbox ended");
        else if (k->calls && now - k->node->begun > QUIET_MAX)
                cop_error_set(&err, EBUSY, COP_ERR_invalid_state, "a file transfer or start of a command has been going on for 10 s");
        if (err.errnum) {
                cop_keep_reply_error(k, k->node->client, k->node->id, &err);
                k->node = node_free(k->node);
                return;
        }
        if (k->calls)
                cop_source_set_time(s, cop_usec_add(now, QUIET_LOOK));
        else
                freeze_now(k);
}

void cop_keep_freeze(struct cop_keep *k, struct cop_msg *m)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_keep_node *n = NULL;
        int r = 0;

        if (k->state != COP_KEEP_RUNNING)
                r = cop_error_set(&err, EINVAL, COP_ERR_invalid_state, "the sandbox does not run");
        else if (k->node)
                r = cop_error_set(&err, EBUSY, COP_ERR_invalid_state, "a node is being made already");
        else if (!(n = calloc(1, sizeof(*n))))
                r = cop_error_errno(&err, ENOMEM, "node");
        if (r == 0 && cop_msg_get_str(m, COP_TAG_NODE, 0, &n->node) < 0)
                r = cop_error_set(&err, EINVAL, COP_ERR_bad_request, "FREEZE needs a valid NODE");
        if (r == 0) {
                cop_msg_get_str(m, COP_TAG_PARENT, 0, &n->parent);
                n->client = k->client_number;
                n->id = m->id;
                n->flags = (unsigned)cop_msg_u64_or(m, COP_TAG_FLAGS, 0);
                n->begun = cop_now(CLOCK_MONOTONIC);
                r = cop_loop_add_timer(k->loop, 0, on_quiet_timer, k, &n->timer, &err);
        }
        if (r < 0) {
                node_free(n);
                cop_keep_reply_error(k, k->client_number, m->id, &err);
                return;
        }
        k->node = n;
}

/* -- thawing ---------------------------------------------------------------------------------------------------------------------- */

static int restore_ipc(struct cop_keep *k, int node_fd, struct cop_error *err)
{
        _cleanup_close_ int from = openat(node_fd, "ipc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), to = -EBADF;

        if (from < 0 || !k->ipc_path)
                return 0;
        int r = open_folder(AT_FDCWD, k->ipc_path, &to, err);
        if (r < 0)
                return r;
        struct cop_capture c = {.upper_fd = from, .layer_fd = to, .parent_fd = -EBADF, .plain = true};
        r = cop_capture_pass(&c, err);
        cop_capture_done(&c);
        return r;
}

static int restore_log(struct cop_keep *k, struct cop_command *c, const struct saved_command *s, bool fork, struct cop_error *err)
{
        char name[sizeof(c->key) + 8];

        if (c->forgotten)
                return 0;
        snprintf(name, sizeof(name), "%s.log", c->key);
        if (fork)
                return cop_logfile_create(k->logs_fd, name, s->log_room + s->log_size, &c->log, err);
        return cop_logfile_reopen(k->logs_fd, name, s->log_size, s->log_room, s->log_dropped, s->log_mark, &c->log, err);
}

static int restore_command(struct cop_keep *k, const struct saved_command *s, bool fork, struct externals *x, struct cop_error *err)
{
        struct cop_command *c = cop_command_restore(k, s->key, s->pid, s->flags & COP_ENTRY_EXITED, s->timeout_left, err);

        if (!c)
                return -err->errnum;
        c->status = (int)s->status;
        c->timed_out = s->flags & COP_ENTRY_TIMED_OUT;
        c->forgotten = s->forgotten;
        c->started = s->started;
        c->ended = s->ended;
        int r = restore_log(k, c, s, fork, err);
        for (unsigned i = 0; i < 2 && r == 0; i++) {
                int fd = -EBADF;
                c->out[i].bytes = s->bytes[i];
                if (!(s->open & (1u << i)))
                        continue;
                r = cop_output_open(c, i, k->uid_base + k->default_uid, k->uid_base + k->default_gid, &fd, err);
                if (r == 0)
                        add_external(x, s->key, (int)i)->fd = fd;
        }
        return r < 0 ? r : cop_output_watch(c, err);
}

static int read_keep(int node_fd, struct saved_command **ret, size_t *ret_count, char **ret_text, struct cop_error *err)
{
        struct saved_header header;
        size_t len;
        int r = cop_read_file(node_fd, "keep", 1u << 20, ret_text, &len, err);

        if (r < 0)
                return r;
        if (len >= sizeof(header))
                memcpy(&header, *ret_text, sizeof(header));
        if (len < sizeof(header) || header.magic != KEEP_MAGIC || header.count > COP_KEEP_COMMANDS_MAX ||
            len != sizeof(header) + header.count * sizeof(struct saved_command))
                return cop_error_set(err, EBADMSG, COP_ERR_image_damaged, "the keeper's state in the node is damaged");
        struct saved_command *list = calloc(header.count + 1, sizeof(*list));
        if (!list)
                return cop_error_errno(err, ENOMEM, "node");
        memcpy(list, *ret_text + sizeof(header), header.count * sizeof(*list));
        *ret = list;
        *ret_count = header.count;
        return 0;
}

static int restore_commands(struct cop_keep *k, int node_fd, bool fork, struct externals *x, struct cop_error *err)
{
        _cleanup_free_ struct saved_command *list = NULL;
        _cleanup_free_ char *text = NULL;
        size_t count = 0;
        int r = read_keep(node_fd, &list, &count, &text, err);

        if (r < 0)
                return r;
        x->list = calloc(2 + 2 * count, sizeof(*x->list));
        x->names = calloc(2 + 2 * count, sizeof(*x->names));
        if (!x->list || !x->names)
                return cop_error_errno(err, ENOMEM, "node");
        for (size_t i = count; i > 0 && r == 0; i--) { /* the list is built from its end */
                list[i - 1].key[sizeof(list[0].key) - 1] = '\0';
                r = restore_command(k, &list[i - 1], fork, x, err);
        }
        return r;
}

static void on_watch(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_keep *k = userdata;
        struct cop_error err;

        if (cop_watch_dispatch(k->watch, &err) < 0) {
                cop_log_debug("memory watch: %s", err.message);
                watch_done(k);
        }
}

static int setup_inside(void *userdata, struct cop_error *err)
{
        return cop_sandbox_renew_proc(err);
}

static int thaw_tree(struct cop_keep *k, int mem_fd, struct externals *x, int pair[static 2], struct cop_error *err)
{
        struct cop_sandbox_namespaces ns;
        struct cop_thaw_result result = {0};
        struct cop_cgroup_visit visit;
        struct cop_cgroup *cgroup = cop_sandbox_cgroup(k->sandbox);

        int r = cop_sandbox_namespaces(k->sandbox, &ns, err);
        if (r == 0)
                r = cop_cgroup_enter(cgroup, &visit, err);
        if (r == 0) {
                const struct cop_thaw_request request = {
                        .image_dir_fd = mem_fd,
                        .namespaces = {.user_fd = ns.user_fd, .mount_fd = ns.mount_fd, .net_fd = ns.net_fd, .ipc_fd = ns.ipc_fd,
                                       .uts_fd = ns.uts_fd, .cgroup_fd = -EBADF},
                        .root_fd = -EBADF,
                        .cgroup_fd = -EBADF,
                        .externals = x->list,
                        .external_count = x->count,
                        .setup = setup_inside,
                };
                r = cop_thaw(&request, &result, err);
                cop_cgroup_leave(&visit);
        }
        cop_close(ns.user_fd);
        cop_close(ns.mount_fd);
        cop_close(ns.net_fd);
        cop_close(ns.ipc_fd);
        cop_close(ns.uts_fd);
        if (r < 0)
                return r;
        cop_sandbox_note_control(k->sandbox, pair[1]);
        cop_sandbox_set_init(k->sandbox, result.root, result.pidfd, TAKE_FD(pair[0]));
        k->watch = result.watch;
        return k->watch ? cop_loop_add_io(k->loop, cop_watch_fd(k->watch), EPOLLIN, on_watch, k, &k->watch_source, err) : 0;
}

int cop_keep_thaw(struct cop_keep *k, const struct cop_sandbox_spec *spec, const char *node, bool fork, struct cop_error *err)
{
        _cleanup_close_ int node_fd = -EBADF, mem_fd = -EBADF;
        struct externals x = {0};
        int pair[2] = {-EBADF, -EBADF};

        int r = open_folder(AT_FDCWD, node, &node_fd, err);
        if (r == 0)
                r = open_folder(node_fd, "mem", &mem_fd, err);
        if (r == 0)
                r = restore_ipc(k, node_fd, err);
        if (r == 0)
                r = cop_sandbox_start(spec, &k->sandbox, err);
        if (r == 0)
                r = restore_commands(k, node_fd, fork, &x, err);
        if (r == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                r = cop_error_errno(err, errno, "socketpair");
        if (r == 0) {
                cop_set_nonblock(pair[0], 1);
                add_external(&x, CONTROL_NAME, -1)->fd = pair[1];
                int init_fd = open_init(node, err);
                if (init_fd >= 0)
                        add_external(&x, INIT_NAME, -1)->fd = init_fd;
                r = MIN_OF(init_fd, 0);
        }
        if (r == 0) {
                r = thaw_tree(k, mem_fd, &x, pair, err);
        }
        for (size_t i = 0; i < x.count; i++)
                cop_close(x.list[i].fd); /* the control socket's end among them */
        externals_done(&x);
        cop_close(pair[0]);
        if (r < 0) {
                watch_done(k);
                cop_keep_commands_free(k);
                k->sandbox = cop_sandbox_free(k->sandbox);
        }
        return r;
}
