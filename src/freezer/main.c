/* coppice-freeze: drives the engine by hand, for developers and tests.
 *
 *      coppice-freeze run [--dir D] [--output F] [--pidfile F] [--no-user | --user F] -- COMMAND…
 *      coppice-freeze freeze --root PID --image D [--parent D] [--kill] [--sync] [--external NAME=DEV:INO]
 *      coppice-freeze track --root PID --image D --count N [--interval MS]      N images D/0, D/1 … while the tree runs on
 *      coppice-freeze thaw --image D [--pidfile F] [--copy | --map] [--no-user | --user F] [--prepared]
 *                           [--external NAME=FD]
 *           freeze, track and thaw: [--waits F]      what is known of time limits (waits.h), from one call to the next
 *           freeze and track: [--own-mounts]         what the tree has mounted itself will be there at the thaw: do not refuse it
 *      coppice-freeze inspect --image D [--pages]
 *      coppice-freeze verify --image D
 *
 * The tree gets a user namespace of its own: the one that F (as /proc/PID/ns/user) stands for, else a new one, with all ids below 65536 as
 * they are when root makes it and with the caller's own as 0 when anybody else does.
 * run makes namespaces like a sandbox's, with a small init as pid 1 that starts the command and ends with its status;
 * run and thaw stay until the tree has ended and exit with that status (137 when it was killed); a process of freeze and track stays
 * while a tree that runs on has time limits to be served.
 */
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/freezer.h"
#include "freezer/image.h"
#include "freezer/tool-mounts.h"

#define EXTERNALS_MAX 16

struct options {
        const char *dir, *output, *pidfile, *image, *parent, *user, *waits;
        pid_t root;
        int count, interval;
        bool no_user, prepared, kill, sync, copy, map, pages, own_mounts;
        struct cop_external externals[EXTERNALS_MAX];
        char names[EXTERNALS_MAX][64];
        size_t external_count;
};

static int usage(void)
{
        fputs("usage: coppice-freeze run [--dir D] [--output F] [--pidfile F] [--no-user | --user F] -- COMMAND...\n"
              "       coppice-freeze freeze --root PID --image D [--parent D] [--kill] [--sync] [--external "
              "NAME=DEV:INO]\n"
              "       coppice-freeze track --root PID --image D --count N [--interval MS]\n"
              "                      (both: [--own-mounts]; these and thaw: [--waits F])\n"
              "       coppice-freeze thaw --image D [--pidfile F] [--copy | --map] [--no-user | --user F] "
              "[--prepared] [--external NAME=FD]\n"
              "       coppice-freeze inspect --image D [--pages]\n"
              "       coppice-freeze verify --image D\n",
              stderr);
        return 2;
}

static int complain(const struct cop_error *err)
{
        fprintf(stderr, "coppice-freeze: %s (%s)\n", err->message, cop_err_code_name(err->code));
        return 1;
}

static void write_pid(const char *path, pid_t pid)
{
        char text[16];

        if (!path)
                return;
        snprintf(text, sizeof(text), "%d\n", pid);
        (void)cop_write_file_atomic(AT_FDCWD, path, text, strlen(text), 0644, NULL);
}

static int wait_for(pid_t pid)
{
        int status;

        while (waitpid(pid, &status, __WALL) < 0)
                if (errno != EINTR)
                        return 1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Serves the memory watch and time limits until the tree has ended. */
static int supervise(struct cop_thaw_result *res, struct cop_waits *waits)
{
        struct pollfd p[3] = {{.fd = res->pidfd, .events = POLLIN},
                              {.fd = res->watch ? cop_watch_fd(res->watch) : -1, .events = POLLIN},
                              {.fd = cop_waits_fd(waits), .events = POLLIN}};

        while (!(p[0].revents & POLLIN)) {
                if (poll(p, 3, -1) < 0 && errno != EINTR)
                        break;
                if (p[1].revents & POLLIN)
                        (void)cop_watch_dispatch(res->watch, NULL);
                if (p[2].revents & POLLIN)
                        cop_waits_dispatch(waits);
        }
        cop_watch_free(res->watch);
        cop_waits_free(waits);
        close(res->pidfd);
        return wait_for(res->root);
}

/* ---- namespaces like a sandbox's ---- */

static const char *const kept_folders[] = {"/dev/shm", NULL};

static void loopback_up(void)
{
        struct ifreq req = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
        _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        if (fd >= 0)
                ioctl(fd, SIOCSIFFLAGS, &req);
}

/* All of new namespaces that needs no process of the tree; false when mounts stay shared. */
static bool furnish_namespaces(void)
{
        loopback_up();
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return false;
        (void)mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
        (void)mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620");
        return true;
}

/* What only a process of the tree's pid namespace can do. */
static int mount_proc(void *userdata, struct cop_error *err)
{
        return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0
                       ? cop_error_errno(err, errno, "mounting /proc")
                       : 0;
}

static int setup_inside(void *userdata, struct cop_error *err)
{
        return furnish_namespaces() ? mount_proc(userdata, err) : cop_error_errno(err, errno, "making mounts private");
}

static int write_map(pid_t pid, const char *name, const char *text)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
        return cop_write_kernel_file(AT_FDCWD, path, text, NULL);
}

static int map_ids(pid_t pid)
{
        char own[2][32];
        int r = write_map(pid, "uid_map", "0 0 65536");

        if (r == 0)
                return write_map(pid, "gid_map", "0 0 65536");
        snprintf(own[0], sizeof(own[0]), "0 %u 1", geteuid());
        snprintf(own[1], sizeof(own[1]), "0 %u 1", getegid());
        r = write_map(pid, "uid_map", own[0]);
        if (r == 0)
                r = write_map(pid, "setgroups", "deny"); /* else an ordinary user may not write the next */
        return r < 0 ? r : write_map(pid, "gid_map", own[1]);
}

/* A child that stands still in namespaces that `enter` made (true), until end_holder; -1 when there is none. */
static pid_t start_holder(bool (*enter)(const struct cop_thaw_namespaces *), const struct cop_thaw_namespaces *ns)
{
        int pair[2];
        char byte;

        if (pipe2(pair, O_CLOEXEC) < 0)
                return -1;
        pid_t pid = fork();
        if (pid == 0) {
                if (!enter(ns))
                        _exit(1);
                (void)!write(pair[1], "r", 1);
                pause();
                _exit(0);
        }
        close(pair[1]);
        bool ready = pid > 0 && read(pair[0], &byte, 1) == 1;
        close(pair[0]);
        if (pid > 0 && !ready)
                waitpid(pid, NULL, 0);
        return ready ? pid : -1;
}

static void end_holder(pid_t pid)
{
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
}

static int open_namespace(pid_t pid, const char *name)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, name);
        return open(path, O_RDONLY | O_CLOEXEC);
}

static bool enter_user_namespace(const struct cop_thaw_namespaces *ns)
{
        return unshare(CLONE_NEWUSER) == 0;
}

static int make_user_namespace(void)
{
        pid_t pid = start_holder(enter_user_namespace, NULL);

        if (pid < 0)
                return -EPERM;
        int fd = map_ids(pid) == 0 ? open_namespace(pid, "user") : -EPERM;
        end_holder(pid);
        return fd;
}

/* As root of the user namespace, when there is one; the change makes memory undumpable, which could not be frozen then. */
static bool become_root_of(int user_fd)
{
        if (user_fd >= 0 && setns(user_fd, CLONE_NEWUSER) < 0)
                return false;
        if (user_fd >= 0 && (setgroups(0, NULL), setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
                return false;
        prctl(PR_SET_DUMPABLE, 1);
        return true;
}

/* The user namespace for a tree as a descriptor; false when there is none to be had, with -EBADF when none is wanted. */
static bool user_namespace(const struct options *o, int *ret_fd)
{
        *ret_fd = o->no_user ? -EBADF : o->user ? open(o->user, O_RDONLY | O_CLOEXEC) : make_user_namespace();
        if (*ret_fd < 0 && !o->no_user)
                fprintf(stderr, "coppice-freeze: %s: no user namespace\n", o->user ? o->user : "making one");
        return *ret_fd >= 0 || o->no_user;
}

static bool enter_prepared(const struct cop_thaw_namespaces *ns)
{
        return become_root_of(ns->user_fd) &&
               unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) == 0 &&
               furnish_namespaces();
}

/* All but the pid and time namespaces, which a thaw always makes, and /proc: as the keeper has them before there is anything to thaw. */
static bool prepare_namespaces(struct cop_thaw_namespaces *ns, int *ret_root_fd)
{
        pid_t pid = start_holder(enter_prepared, ns);
        char path[64];

        if (pid < 0)
                return false;
        snprintf(path, sizeof(path), "/proc/%d/root", pid);
        *ret_root_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        ns->mount_fd = open_namespace(pid, "mnt");
        ns->net_fd = open_namespace(pid, "net");
        ns->ipc_fd = open_namespace(pid, "ipc");
        ns->uts_fd = open_namespace(pid, "uts");
        ns->cgroup_fd = open_namespace(pid, "cgroup");
        end_holder(pid);
        return *ret_root_fd >= 0 && ns->mount_fd >= 0 && ns->net_fd >= 0 && ns->ipc_fd >= 0 && ns->uts_fd >= 0 &&
               ns->cgroup_fd >= 0;
}

/* ---- run ---- */

__attribute__((noreturn)) static void be_init(const struct options *o, char **argv)
{
        struct cop_error err = COP_ERROR_NULL;
        int status, in, out;

        if (setup_inside(NULL, &err) < 0)
                exit(complain(&err));
        sethostname("victim", 6);
        if (o->dir && chdir(o->dir) < 0)
                exit(1);
        in = open("/dev/null", O_RDONLY);
        out = open(o->output ? o->output : "/dev/null", O_WRONLY | O_APPEND | O_CREAT, 0644);
        if (in < 0 || out < 0)
                exit(1);
        dup2(in, 0);
        dup2(out, 1);
        dup2(out, 2);
        close_range(3, ~0U, 0);
        setsid();
        pid_t child = fork();
        if (child == 0) {
                setsid();
                execvp(argv[0], argv);
                perror(argv[0]);
                _exit(127);
        }
        for (;;) {
                pid_t pid = waitpid(-1, &status, 0);
                if (pid == child)
                        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
                if (pid < 0 && errno == ECHILD)
                        _exit(1);
        }
}

static int command_run(const struct options *o, char **argv)
{
        int user_fd;

        if (!argv[0])
                return usage();
        if (!user_namespace(o, &user_fd))
                return 1;
        if (!become_root_of(user_fd)) {
                perror("becoming root of the user namespace");
                return 1;
        }
        cop_close(user_fd);
        if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWPID |
                    CLONE_NEWTIME) < 0) {
                perror("unshare");
                return 1;
        }
        /* The engine works from outside: it finds the init through its pid here. */
        pid_t pid = fork();
        if (pid == 0)
                be_init(o, argv);
        write_pid(o->pidfile, pid);
        return wait_for(pid);
}

/* ---- freeze, thaw ---- */

static int open_folder(const char *path, bool make)
{
        if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
                return -errno;
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

static void print_frozen(const struct cop_freeze_result *res)
{
        printf("frozen: processes=%u threads=%u files=%u pages=%llu kept=%llu bytes=%llu pause_us=%llu first_us=%llu "
               "total_us=%llu "
               "stop=%llu regs=%llu maps=%llu calls=%llu fds=%llu memory=%llu commit=%llu end=%llu\n",
               res->processes, res->threads, res->files, (unsigned long long)res->pages_written,
               (unsigned long long)res->pages_kept, (unsigned long long)res->bytes, (unsigned long long)res->pause,
               (unsigned long long)res->first_pause, (unsigned long long)res->total, (unsigned long long)res->stage[0],
               (unsigned long long)res->stage[1], (unsigned long long)res->stage[2], (unsigned long long)res->stage[3],
               (unsigned long long)res->stage[4], (unsigned long long)res->stage[5], (unsigned long long)res->stage[6],
               (unsigned long long)res->stage[7]);
        fflush(stdout);
}

/* What earlier calls of this tool knew of the tree. */
static struct cop_waits *load_waits(const struct options *o)
{
        struct cop_waits *w = cop_waits_new();

        if (w && o->waits)
                (void)cop_waits_load(w, o->waits, NULL); /* the first one finds none */
        return w;
}

/* For the next call; and a process stays behind, which serves the limits of a tree that runs on. */
static int save_waits(const struct options *o, struct cop_waits *w, struct cop_error *err)
{
        struct pollfd p[2] = {{.fd = cop_waits_fd(w), .events = POLLIN},
                              {.fd = (int)syscall(SYS_pidfd_open, o->root, 0), .events = POLLIN}};
        int r = o->waits ? cop_waits_save(w, o->waits, err) : 0;

        if (cop_waits_pending(w) && fork() == 0) {
                setsid();
                for (int i = 0; i < 3; i++)
                        close(i);
                while (cop_waits_pending(w) && !p[1].revents && poll(p, 2, -1) >= 0)
                        if (p[0].revents)
                                cop_waits_dispatch(w);
                _exit(0);
        }
        cop_close(p[1].fd);
        cop_waits_free(w);
        return r;
}

static int command_freeze(const struct options *o)
{
        struct cop_freeze_result res;
        struct cop_error err = COP_ERROR_NULL;
        _cleanup_close_ int image_fd = o->image ? open_folder(o->image, true) : -EBADF;
        _cleanup_close_ int parent_fd = o->parent ? open_folder(o->parent, false) : -EBADF;
        struct cop_freeze_request req = {
                .root = o->root,
                .image_dir_fd = image_fd,
                .parent_dir_fd = parent_fd,
                .flags = (o->kill ? COP_FREEZE_KILL : 0U) | (o->sync ? COP_FREEZE_SYNC : 0U),
                .externals = o->externals,
                .external_count = o->external_count,
                .waits = load_waits(o),
                .kept_folders = kept_folders,
        };

        if (image_fd < 0 || o->root <= 0 || !req.waits)
                return usage();
        int r = o->own_mounts ? 0 : cop_tool_check_mounts(o->root, &err);
        if (r == 0)
                r = cop_freeze(&req, &res, &err);
        if (r == 0)
                print_frozen(&res);
        int saved = save_waits(o, req.waits, r == 0 ? &err : NULL);
        return r < 0 || saved < 0 ? complain(&err) : 0;
}

/* Half as much again as the last image has; NULL: without. */
static struct cop_freeze_room *make_room(int dir_fd, const struct cop_freeze_result *last)
{
        struct cop_freeze_room *room = NULL;

        if (cop_freeze_room_new(dir_fd, &room, NULL) == 0)
                (void)cop_freeze_room_grow(room, cop_freeze_room_wanted(last->pages_written), NULL);
        return room;
}

/* Checkpoints of a running tree, each relative to the one before, as a keeper would make them. */
static int command_track(const struct options *o)
{
        struct cop_tracker *tracker = cop_tracker_new();
        struct cop_waits *waits = load_waits(o);
        struct cop_error err = COP_ERROR_NULL;
        int parent_fd = o->parent ? open_folder(o->parent, false) : -EBADF, r = 0;
        struct cop_freeze_room *room = NULL;

        if (!o->image || o->root <= 0 || !tracker || !waits)
                return usage();
        close(open_folder(o->image, true));
        for (int i = 0; i < o->count && r == 0; i++) {
                struct cop_freeze_result res;
                char path[4096];
                snprintf(path, sizeof(path), "%s/%d", o->image, i);
                int image_fd = open_folder(path, true);
                struct cop_freeze_request req = {.root = o->root,
                                                 .image_dir_fd = image_fd,
                                                 .parent_dir_fd = parent_fd,
                                                 .tracker = tracker,
                                                 .waits = waits,
                                                 .room = TAKE_PTR(room),
                                                 .kept_folders = kept_folders,
                                                 .externals = o->externals,
                                                 .external_count = o->external_count};
                if (o->kill && i == o->count - 1)
                        req.flags |= COP_FREEZE_KILL;
                r = o->own_mounts ? 0 : cop_tool_check_mounts(o->root, &err);
                if (r == 0)
                        r = cop_freeze(&req, &res, &err);
                else
                        cop_freeze_room_free(req.room);
                if (r == 0)
                        print_frozen(&res);
                if (r == 0 && i < o->count - 1)
                        room = make_room(image_fd, &res);
                cop_close(parent_fd);
                parent_fd = image_fd;
                struct pollfd p = {.fd = cop_waits_fd(waits), .events = POLLIN};
                usec_t until = cop_usec_add(cop_now(CLOCK_MONOTONIC), (usec_t)o->interval * 1000), now;
                while ((now = cop_now(CLOCK_MONOTONIC)) < until)
                        if (poll(&p, 1, (int)((until - now + 999) / 1000)) > 0)
                                cop_waits_dispatch(waits);
        }
        cop_close(parent_fd);
        cop_tracker_free(tracker);
        int saved = save_waits(o, waits, r == 0 ? &err : NULL);
        return r < 0 || saved < 0 ? complain(&err) : 0;
}

static int command_thaw(const struct options *o)
{
        struct cop_thaw_result res;
        struct cop_error err = COP_ERROR_NULL;
        _cleanup_close_ int image_fd = o->image ? open_folder(o->image, false) : -EBADF;
        _cleanup_close_ int user_fd = -EBADF;
        struct cop_thaw_request req = {
                .image_dir_fd = image_fd,
                .namespaces = COP_THAW_NAMESPACES_NEW,
                .root_fd = -EBADF,
                .cgroup_fd = -EBADF,
                .externals = o->externals,
                .external_count = o->external_count,
                .flags = (o->copy ? COP_THAW_COPY : 0U) | (o->map ? COP_THAW_MAP : 0U),
                .setup = o->prepared ? mount_proc : setup_inside,
                .waits = cop_waits_new(),
        };

        if (image_fd < 0 || !req.waits)
                return usage();
        if (!user_namespace(o, &user_fd))
                return 1;
        req.namespaces.user_fd = user_fd;
        if (o->prepared && !prepare_namespaces(&req.namespaces, &req.root_fd)) {
                fputs("coppice-freeze: no namespaces for the tree\n", stderr);
                return 1;
        }
        usec_t began = cop_now(CLOCK_MONOTONIC);
        if (cop_thaw(&req, &res, &err) < 0 || (o->waits && cop_waits_save(req.waits, o->waits, &err) < 0))
                return complain(&err);
        printf("thawed: root=%d processes=%u threads=%u began_us=%llu total_us=%llu open=%llu fork=%llu rebuild=%llu "
               "seize=%llu "
               "registers=%llu go=%llu setup=%llu objects=%llu tree=%llu fds=%llu ready=%llu table=%llu\n",
               res.root, res.processes, res.threads, (unsigned long long)began, (unsigned long long)res.total,
               (unsigned long long)res.stage[0], (unsigned long long)res.stage[1], (unsigned long long)res.stage[4],
               (unsigned long long)res.stage[5], (unsigned long long)res.stage[6], (unsigned long long)res.stage[7],
               (unsigned long long)(res.mark[1] - res.mark[0]), (unsigned long long)(res.mark[2] - res.mark[1]),
               (unsigned long long)(res.mark[3] - res.mark[2]), (unsigned long long)(res.mark[4] - res.mark[3]),
               (unsigned long long)(res.mark[5] - res.mark[4]), (unsigned long long)(res.mark[6] - res.mark[5]));
        fflush(stdout);
        write_pid(o->pidfile, res.root);
        return supervise(&res, req.waits);
}

static int command_verify(const struct options *o)
{
        struct cop_image *image = NULL;
        struct cop_error err = COP_ERROR_NULL;
        _cleanup_close_ int fd = o->image ? open_folder(o->image, false) : -EBADF;

        if (fd < 0)
                return usage();
        int r = cop_image_open(fd, false, &image, &err);
        if (r == 0)
                r = cop_image_verify(image, &err);
        cop_image_free(image);
        if (r < 0)
                return complain(&err);
        puts("whole");
        return 0;
}

static int command_inspect(const struct options *o)
{
        struct cop_image *image = NULL;
        struct cop_error err = COP_ERROR_NULL;
        _cleanup_close_ int fd = o->image ? open_folder(o->image, false) : -EBADF;
        _cleanup_buf_ struct cop_buf out = COP_BUF(256UL << 20);

        if (fd < 0)
                return usage();
        int r = cop_image_open(fd, false, &image, &err);
        if (r == 0)
                r = cop_image_inspect(image, o->pages, &out, &err);
        cop_image_free(image);
        if (r < 0)
                return complain(&err);
        fwrite(out.data, 1, out.len, stdout);
        return 0;
}

static bool parse_external(struct options *o, const char *text)
{
        const char *equals = strchr(text, '=');
        unsigned long long dev, ino;

        if (!equals || o->external_count == EXTERNALS_MAX || equals - text > 63)
                return false;
        struct cop_external *x = &o->externals[o->external_count];
        snprintf(o->names[o->external_count], 64, "%.*s", (int)(equals - text), text);
        *x = (struct cop_external){.name = o->names[o->external_count], .fd = -EBADF};
        o->external_count++;
        if (sscanf(equals + 1, "%llu:%llu", &dev, &ino) == 2) {
                x->dev = dev;
                x->ino = ino;
        } else
                x->fd = atoi(equals + 1);
        return true;
}

static bool parse(struct options *o, int argc, char **argv)
{
        static const struct option longs[] = {
                {"dir", 1, NULL, 'd'},      {"output", 1, NULL, 'o'},     {"pidfile", 1, NULL, 'p'},
                {"image", 1, NULL, 'i'},    {"parent", 1, NULL, 'P'},     {"root", 1, NULL, 'r'},
                {"kill", 0, NULL, 'k'},     {"sync", 0, NULL, 's'},       {"copy", 0, NULL, 'c'},
                {"no-user", 0, NULL, 'u'},  {"user", 1, NULL, 'U'},       {"pages", 0, NULL, 'g'},
                {"external", 1, NULL, 'e'}, {"count", 1, NULL, 'n'},      {"interval", 1, NULL, 't'},
                {"waits", 1, NULL, 'w'},    {"own-mounts", 0, NULL, 'm'}, {"map", 0, NULL, 'M'},
                {"prepared", 0, NULL, 'R'}, {NULL, 0, NULL, 0},
        };
        int c;

        while ((c = getopt_long(argc, argv, "+", longs, NULL)) >= 0) {
                switch (c) {
                case 'd':
                        o->dir = optarg;
                        break;
                case 'o':
                        o->output = optarg;
                        break;
                case 'p':
                        o->pidfile = optarg;
                        break;
                case 'i':
                        o->image = optarg;
                        break;
                case 'P':
                        o->parent = optarg;
                        break;
                case 'w':
                        o->waits = optarg;
                        break;
                case 'r':
                        o->root = atoi(optarg);
                        break;
                case 'k':
                        o->kill = true;
                        break;
                case 's':
                        o->sync = true;
                        break;
                case 'c':
                        o->copy = true;
                        break;
                case 'M':
                        o->map = true;
                        break;
                case 'R':
                        o->prepared = true;
                        break;
                case 'u':
                        o->no_user = true;
                        break;
                case 'U':
                        o->user = optarg;
                        break;
                case 'm':
                        o->own_mounts = true;
                        break;
                case 'g':
                        o->pages = true;
                        break;
                case 'n':
                        o->count = atoi(optarg);
                        break;
                case 't':
                        o->interval = atoi(optarg);
                        break;
                case 'e':
                        if (!parse_external(o, optarg))
                                return false;
                        break;
                default:
                        return false;
                }
        }
        return true;
}

int main(int argc, char **argv)
{
        struct options o = {0};

        if (argc < 2 || !parse(&o, argc - 1, argv + 1))
                return usage();
        if (strcmp(argv[1], "run") == 0)
                return command_run(&o, argv + 1 + optind);
        if (strcmp(argv[1], "freeze") == 0)
                return command_freeze(&o);
        if (strcmp(argv[1], "track") == 0)
                return command_track(&o);
        if (strcmp(argv[1], "thaw") == 0)
                return command_thaw(&o);
        if (strcmp(argv[1], "verify") == 0)
                return command_verify(&o);
        if (strcmp(argv[1], "inspect") == 0)
                return command_inspect(&o);
        return usage();
}
