/* Theory of operation
 *
 * A sandbox is started up to the point where its first process would execute init (`hold`); the tree is thawed into its namespaces, the
 * pid and time namespaces being always new, and takes that process's place.  What does not need the namespaces is done while that process
 * still mounts the layers.  The keeper enters the sandbox's cgroup for the thaw, so that everything is born there and counted from the first
 * page.
 *
 * What led out of the tree gets new ends under the same names: init's control socket, init's program (the node's copy), the pipes of
 * the commands.  Commands go on with their logs and what is left of their time limits; in a fork the logs are new.
 *
 * A tree that is thawed ahead, for a sandbox that nobody has asked for yet, does not run: its cgroup is stopped before any of its threads
 * has left the thaw, and goes on with the LIST of whoever takes it.
 *
 * On any failure nothing is left, and the same keeper can be told to start something else.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "freezer/freezer.h"
#include "keeper/capture.h"
#include "keeper/node.h"
#include "keeper/saved.h"
#include "sandbox/layers.h"
#include "sandbox/wire.h"

/* A read-only mount of it, as at a start: root inside can open /proc/1/exe. */
static int open_init(const char *node, struct cop_error *err)
{
        char path[PATH_MAX];

        int r = cop_path_format(path, sizeof(path), "%s/" COP_NODE_INIT, node);
        if (r < 0)
                return cop_error_errno(err, r, "%s", node);
        _cleanup_close_ int mount_fd = cop_mount_clone(path, MOUNT_ATTR_RDONLY, err);
        if (mount_fd < 0)
                return mount_fd;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", mount_fd);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        return fd < 0 ? cop_error_errno(err, errno, "opening init's program") : fd;
}

static int restore_ipc(struct cop_keep *k, int node_fd, struct cop_error *err)
{
        _cleanup_close_ int from = openat(node_fd, "ipc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), to = -EBADF;

        if (from < 0 || !k->ipc_path)
                return 0;
        int r = cop_node_folder(AT_FDCWD, k->ipc_path, &to, err);
        if (r < 0)
                return r;
        return cop_capture_copy(from, to, err);
}

/* A log that is not there, or is shorter than it was, is no reason to lose a session. */
static int restore_log(struct cop_keep *k, struct cop_command *c, const struct cop_saved_command *s, bool fork,
                       struct cop_error *err)
{
        char name[sizeof(c->key) + 8];
        int r = -ENOENT;

        if (c->forgotten)
                return 0;
        snprintf(name, sizeof(name), "%s.log", c->key);
        if (fork) /* one of that name is left from before the sandbox went back to where it came from */
                unlinkat(k->logs_fd, name, 0);
        else
                r = cop_logfile_reopen(k->logs_fd, name, s->log_size, s->log_room, s->log_dropped, s->log_mark, &c->log,
                                       err);
        if (r == -ENOENT)
                r = cop_logfile_create(k->logs_fd, name, s->log_room + (fork ? s->log_size : 0), &c->log, err);
        if (r == 0 && s->open == 0)
                cop_logfile_close(&c->log);
        return r;
}

static int restore_command(struct cop_keep *k, const struct cop_saved_command *s, size_t at, bool fork,
                           struct cop_externals *x, struct cop_error *err)
{
        struct cop_command *c;
        int r = cop_command_restore(k, s->key, s->pid, s->flags & COP_ENTRY_EXITED, s->forgotten, s->timeout_left, &c,
                                    err);

        if (r < 0)
                return r;
        c->status = (int)s->status;
        c->timed_out = s->flags & COP_ENTRY_TIMED_OUT;
        c->started = s->started;
        c->ended = s->ended;
        r = restore_log(k, c, s, fork, err);
        for (unsigned i = 0; i < 2 && r == 0; i++) {
                int fd = -EBADF;
                c->out[i].bytes = s->bytes[i];
                if (!(s->open & (1u << i)))
                        continue;
                r = cop_output_open(c, i, k->uid_base + k->default_uid, k->uid_base + k->default_gid, &fd, err);
                if (r == 0)
                        cop_externals_add_output(x, at, i)->fd = fd;
        }
        return r < 0 ? r : cop_output_watch(c, err);
}

static int restore_commands(struct cop_keep *k, int node_fd, bool fork, struct cop_externals *x, struct cop_error *err)
{
        _cleanup_free_ struct cop_saved_command *list = NULL;
        size_t count = 0;
        int r = cop_saved_read(node_fd, &list, &count, err);

        if (r == 0)
                r = cop_externals_init(x, count, err);
        for (size_t i = count; i > 0 && r == 0; i--) /* the list is built from its end */
                r = restore_command(k, &list[i - 1], i - 1, fork, x, err);
        return r;
}

static void on_watch(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_keep *k = userdata;
        struct cop_error err;

        if (cop_watch_dispatch(k->watch, &err) < 0) {
                cop_log_debug("memory watch: %s", err.message);
                cop_keep_watch_done(k);
        }
}

struct thawing {
        struct cop_keep *keep;         /* borrowed */
        struct cop_cgroup_visit visit; /* in the sandbox's cgroup, while the tree is made */
        bool ahead;
};

static void tell_bound(void *userdata)
{
        const struct thawing *t = userdata;
        struct cop_msg m;

        if (!cop_keep_client_ready(t->keep))
                return;
        cop_msg_init(&m, COP_WIRE_EVENT_BOUND, 0);
        cop_link_send(t->keep->client, &m);
}

static int stop_ahead(void *userdata, struct cop_error *err)
{
        struct thawing *t = userdata;

        if (!t->ahead)
                return 0;
        cop_cgroup_leave(&t->visit); /* or this process would stop, too */
        return cop_cgroup_freeze(cop_sandbox_cgroup(t->keep->sandbox), true, err);
}

static int setup_inside(void *userdata, struct cop_error *err)
{
        return cop_sandbox_renew_proc(err);
}

/* What the thaw of a sandbox needs besides the sandbox. */
struct parts {
        struct cop_externals externals; /* our copies of the tree's ends */
        struct cop_image *image;        /* owned */
        int pair[2]; /* of init's control socket: the keeper's end, owned, and init's, which is an external */
        int mem_fd;  /* owned; the node's folder of memory */
};

static void parts_done(struct parts *p)
{
        cop_externals_done(&p->externals);
        cop_thaw_close(p->image);
        cop_close(p->pair[0]);
        cop_close(p->mem_fd);
}

static int thaw_tree(struct cop_keep *k, struct parts *p, bool ahead, struct cop_error *err)
{
        struct cop_sandbox_namespaces ns;
        struct cop_thaw_result result = {0};
        struct thawing thawing = {.keep = k, .ahead = ahead};

        int r = cop_sandbox_namespaces(k->sandbox, &ns, err);
        if (r == 0)
                r = cop_cgroup_enter(cop_sandbox_cgroup(k->sandbox), &thawing.visit, err);
        if (r == 0) {
                const struct cop_thaw_request request = {
                        .image_dir_fd = p->mem_fd,
                        .image = TAKE_PTR(p->image),
                        .namespaces = {.user_fd = ns.user_fd,
                                       .mount_fd = ns.mount_fd,
                                       .net_fd = ns.net_fd,
                                       .ipc_fd = ns.ipc_fd,
                                       .uts_fd = ns.uts_fd,
                                       .cgroup_fd = -EBADF},
                        .root_fd = cop_sandbox_root(k->sandbox),
                        .cgroup_fd = -EBADF,
                        .externals = p->externals.list,
                        .external_count = p->externals.count,
                        .setup = setup_inside,
                        .bound = tell_bound,
                        .before_run = stop_ahead,
                        .userdata = &thawing,
                        .waits = cop_keep_waits(k),
                };
                r = cop_thaw(&request, &result, err);
                cop_cgroup_leave(&thawing.visit);
        }
        cop_close(ns.user_fd);
        cop_close(ns.mount_fd);
        cop_close(ns.net_fd);
        cop_close(ns.ipc_fd);
        cop_close(ns.uts_fd);
        if (r < 0)
                return r;
        cop_sandbox_note_control(k->sandbox, p->pair[1]);
        pid_t holder = cop_sandbox_set_init(k->sandbox, result.root, result.pidfd, TAKE_FD(p->pair[0]));
        k->watch = result.watch;
        /* Its end takes most of a millisecond, which nobody has to wait. */
        r = cop_loop_add_child(k->loop, holder, NULL, NULL, NULL, err);
        if (r < 0 || !k->watch)
                return r;
        return cop_loop_add_io(k->loop, cop_watch_fd(k->watch), EPOLLIN, on_watch, k, &k->watch_source, err);
}

void cop_keep_thaw_undo(struct cop_keep *k)
{
        cop_keep_commands_free(k);
        k->sandbox = cop_sandbox_free(k->sandbox);
        cop_keep_memory_done(k);
        k->init_pid = 0;
}

static int make_control(struct parts *p, struct cop_error *err)
{
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p->pair) < 0)
                return cop_error_errno(err, errno, "socketpair");
        cop_externals_add(&p->externals, COP_NODE_CONTROL)->fd = p->pair[1];
        return cop_set_nonblock(p->pair[0], 1) < 0 ? cop_error_errno(err, errno, "control socket") : 0;
}

static int make_parts(struct cop_keep *k, int node_fd, const char *node, bool fork, struct parts *p,
                      struct cop_error *err)
{
        int r = restore_ipc(k, node_fd, err);

        if (r == 0)
                r = restore_commands(k, node_fd, fork, &p->externals, err);
        if (r == 0)
                r = make_control(p, err);
        if (r < 0)
                return r;
        int init_fd = open_init(node, err);
        if (init_fd < 0)
                return init_fd;
        cop_externals_add(&p->externals, COP_NODE_INIT)->fd = init_fd;
        return cop_thaw_open(p->mem_fd, &p->image, err);
}

int cop_keep_thaw(struct cop_keep *k, const struct cop_sandbox_spec *spec, const char *node, unsigned flags,
                  struct cop_error *err)
{
        _cleanup_close_ int node_fd = -EBADF;
        struct parts parts = {.pair = {-EBADF, -EBADF}, .mem_fd = -EBADF};

        int r = cop_node_folder(AT_FDCWD, node, &node_fd, err);
        if (r == 0)
                r = cop_node_folder(node_fd, "mem", &parts.mem_fd, err);
        if (r == 0)
                r = cop_sandbox_begin(spec, &k->sandbox, err);
        if (r == 0)
                r = make_parts(k, node_fd, node, flags & COP_THAW_FORK, &parts, err);
        if (r == 0)
                r = cop_sandbox_finish(spec, &k->sandbox, err);
        if (r == 0)
                r = thaw_tree(k, &parts, flags & COP_THAW_AHEAD, err);
        parts_done(&parts);
        if (r < 0)
                cop_keep_thaw_undo(k);
        return r;
}
