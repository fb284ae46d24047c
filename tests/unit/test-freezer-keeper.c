/* The engine as a keeper uses it: a first process with a control socket and a command's pipe that end outside, frozen and
 * thawed into namespaces that the caller made. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/freezer.h"
#include "freezer/image.h"
#include "freezer/procfs.h"
#include "lib/test.h"

#define BLOCK 256 /* pages */

#define SLOT (8 * 4096) /* is mapped by a thaw, not copied */
#define SLOTS 256

static volatile char block[BLOCK * 4096] __attribute__((aligned(4096))); /* the tree's, at this address */
static volatile char slots[SLOTS * SLOT] __attribute__((aligned(4096)));

/* Deep enough that its stack is not in the page of its thread-local data. */
static void *sleep_for_ever(void *arg)
{
        volatile char room[8192] = {0};

        for (;;) {
                room[0] = (char)(room[0] + 1);
                pause();
        }
        return arg;
}

/* Inside, with a thread that sleeps: answers every message with its number, and writes it to the pipe.  After "=" every other page of a block was written to
 * and is as before, after "#" every other one is another, after "*" each, after "+" eight of sixteen, after "-" one of 64; after "."
 * the slot of that number is filled. */
static void on_signal(int sig)
{
}

static void be_init(int control, int out)
{
        unsigned n = 0;
        pthread_t sleeper;
        char text[64];

        signal(SIGUSR1, on_signal);
        if (pthread_create(&sleeper, NULL, sleep_for_ever, NULL) != 0)
                _exit(5);
        for (size_t i = 0; i < sizeof(block); i++)
                block[i] = (char)(i % 251 + 1);

        for (;;) {
                ssize_t got = recv(control, text, sizeof(text), 0);
                if (got <= 0)
                        _exit(3);
                n++;
                for (size_t i = 0; i < sizeof(block) && (text[0] == '=' || text[0] == '#'); i += 8192)
                        block[i] = (char)(block[i] + (text[0] == '#'));
                for (size_t i = 0; i < BLOCK; i++)
                        if (text[0] == '*' || (text[0] == '+' && i % 16 < 8) || (text[0] == '-' && i % 64 == 0))
                                block[i * 4096]++;
                if (text[0] == '.' && n < SLOTS)
                        memset((char *)slots + (size_t)n * SLOT, (int)n, SLOT);
                int k = snprintf(text, sizeof(text), "%u", n);
                if (send(control, text, (size_t)k, MSG_NOSIGNAL) < 0 || write(out, text, (size_t)k) < 0)
                        _exit(4);
        }
}

struct ends {
        int control, pipe; /* ours */
        int inner_control, inner_pipe;
};

static void make_ends(struct ends *e)
{
        int s[2], p[2];

        ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) == 0 && pipe2(p, O_CLOEXEC) == 0);
        *e = (struct ends){s[0], p[0], s[1], p[1]};
}

static void close_ends(struct ends *e)
{
        close(e->control);
        close(e->pipe);
        close(e->inner_control);
        close(e->inner_pipe);
}

static void tell(const struct ends *e, const char *what, const char *expected)
{
        char text[64] = {0}, piped[64] = {0};
        struct pollfd p = {.fd = e->control, .events = POLLIN};

        ASSERT(send(e->control, what, 1, MSG_NOSIGNAL) == 1);
        ASSERT(poll(&p, 1, 10000) == 1 && recv(e->control, text, 63, 0) > 0);
        ASSERT_STR(text, expected);
        ASSERT(read(e->pipe, piped, 63) > 0);
        ASSERT_STR(piped, expected);
}

static void ask(const struct ends *e, const char *expected)
{
        tell(e, "?", expected);
}

static int mount_proc(void *userdata, struct cop_error *err)
{
        if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
                return cop_error_errno(err, errno, "mounting /proc");
        return 0;
}

static pid_t start_tree(const struct ends *e)
{
        pid_t pids[2];
        int report[2];

        ASSERT(pipe(report) == 0);
        pid_t helper = fork();
        if (helper == 0) {
                if (unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWTIME) <
                            0 ||
                    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                        _exit(1);
                pid_t pid = fork();
                if (pid == 0) {
                        mount_proc(NULL, NULL);
                        setsid();
                        dup2(open("/dev/null", O_RDWR), 0);
                        dup2(0, 1);
                        dup2(0, 2);
                        dup2(e->inner_control, 1003);
                        dup2(e->inner_pipe, 1004);
                        dup2(1003, 3);
                        dup2(1004, 4);
                        close_range(5, ~0U, 0);
                        be_init(3, 4);
                }
                pids[0] = pid;
                (void)!write(report[1], pids, sizeof(pids[0]));
                waitpid(pid, NULL, 0);
                _exit(0);
        }
        ASSERT(read(report[0], pids, sizeof(pids[0])) == sizeof(pids[0]));
        close(report[0]);
        close(report[1]);
        return pids[0];
}

/* A process that holds namespaces, as the keeper's sandbox does. */
static pid_t hold_namespaces(struct cop_thaw_namespaces *ns)
{
        int ready[2];
        char path[64], byte;
        struct {
                const char *name;
                int *fd;
        } list[] = {{"mnt", &ns->mount_fd},
                    {"net", &ns->net_fd},
                    {"ipc", &ns->ipc_fd},
                    {"uts", &ns->uts_fd},
                    {"cgroup", &ns->cgroup_fd}};

        ASSERT(pipe(ready) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) < 0 ||
                    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                        _exit(1);
                (void)!write(ready[1], "r", 1);
                pause();
                _exit(0);
        }
        ASSERT(read(ready[0], &byte, 1) == 1);
        close(ready[0]);
        close(ready[1]);
        for (size_t i = 0; i < ELEMENTSOF(list); i++) {
                snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, list[i].name);
                *list[i].fd = open(path, O_RDONLY | O_CLOEXEC);
                ASSERT(*list[i].fd >= 0);
        }
        return pid;
}

static void drop_namespaces(struct cop_thaw_namespaces *ns, pid_t holder)
{
        kill(holder, SIGKILL);
        waitpid(holder, NULL, 0);
        cop_close(ns->mount_fd);
        cop_close(ns->net_fd);
        cop_close(ns->ipc_fd);
        cop_close(ns->uts_fd);
        cop_close(ns->cgroup_fd);
}

static struct cop_external external(const char *name, int inner, int fd)
{
        struct stat st;

        ASSERT(fstat(inner, &st) == 0);
        return (struct cop_external){.name = name, .dev = st.st_dev, .ino = st.st_ino, .fd = fd};
}

/* A tree thawed from an image, in namespaces of its own. */
struct copy {
        struct cop_thaw_namespaces ns;
        pid_t holder;
        struct ends ends;
        struct cop_thaw_result thawed;
};

/* out: what the pipe is called in the image; request: what else there is to be said. */
static void begin_copy(struct copy *c, int image_fd, const char *out, struct cop_thaw_request request)
{
        struct cop_error err = COP_ERROR_NULL;

        c->ns = (struct cop_thaw_namespaces)COP_THAW_NAMESPACES_NEW;
        c->holder = hold_namespaces(&c->ns);
        make_ends(&c->ends);
        struct cop_external in[] = {{.name = out, .fd = c->ends.inner_pipe},
                                    {.name = "control", .fd = c->ends.inner_control}};
        request.image_dir_fd = image_fd;
        request.namespaces = c->ns;
        request.root_fd = request.cgroup_fd = -EBADF;
        request.externals = in;
        request.external_count = ELEMENTSOF(in);
        request.setup = mount_proc;
        ASSERT_OK(cop_thaw(&request, &c->thawed, &err), &err);
}

/* Of a copy that has ended. */
static void drop_copy(struct copy *c)
{
        cop_watch_free(c->thawed.watch);
        close(c->thawed.pidfd);
        close_ends(&c->ends);
        drop_namespaces(&c->ns, c->holder);
}

static void end_copy(struct copy *c)
{
        int status;

        ASSERT(kill(c->thawed.root, SIGKILL) == 0 && waitpid(c->thawed.root, &status, 0) == c->thawed.root);
        drop_copy(c);
}

TEST(first_process_keeps_its_links_to_the_keeper)
{
        struct cop_error err = COP_ERROR_NULL;
        char dir[] = "/tmp/test-freezer-XXXXXX";
        struct cop_freeze_result frozen;
        struct ends e;

        if (geteuid() != 0)
                SKIP("needs root");
        ASSERT(mkdtemp(dir));
        int image_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        make_ends(&e);
        pid_t root = start_tree(&e);
        ask(&e, "1");
        ask(&e, "2");
        struct cop_external out[] = {external("control", e.inner_control, -1), external("out-7", e.inner_pipe, -1)};
        struct cop_freeze_request freeze = {.root = root,
                                            .image_dir_fd = image_fd,
                                            .parent_dir_fd = -EBADF,
                                            .flags = COP_FREEZE_KILL,
                                            .externals = out,
                                            .external_count = 2};
        ASSERT_OK(cop_freeze(&freeze, &frozen, &err), &err);
        ASSERT_EQ(frozen.processes, 1);
        close_ends(&e);
        wait(NULL); /* the helper that was its parent */

        for (int i = 0; i < 3; i++) {
                struct copy copy;
                begin_copy(&copy, image_fd, "out-7", (struct cop_thaw_request){0});
                ask(&copy.ends, "3");
                ask(&copy.ends, "4");
                end_copy(&copy);
        }
        /* Without the descriptor the image cannot be thawed, and says which is missing. */
        struct cop_thaw_result none;
        struct cop_thaw_request bare = {.image_dir_fd = image_fd,
                                        .namespaces = COP_THAW_NAMESPACES_NEW,
                                        .root_fd = -EBADF,
                                        .cgroup_fd = -EBADF,
                                        .setup = mount_proc};
        ASSERT(cop_thaw(&bare, &none, &err) < 0);
        ASSERT(strstr(err.message, "\"control\"") || strstr(err.message, "\"out-7\""));
        close(image_fd);
        ASSERT_OK(cop_remove_tree(AT_FDCWD, dir, &err), &err);
}

/* An image of the tree after one in `parent`, with flags of a freeze: how many pages it wrote. */
static uint64_t make_image(pid_t root, struct cop_tracker *tracker, const struct ends *e, int parent, int image,
                           unsigned flags)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_freeze_result frozen;
        struct cop_external out[] = {external("control", e->inner_control, -1), external("out", e->inner_pipe, -1)};
        const struct cop_freeze_request freeze = {.root = root,
                                                  .image_dir_fd = image,
                                                  .parent_dir_fd = parent,
                                                  .externals = out,
                                                  .external_count = ELEMENTSOF(out),
                                                  .flags = flags,
                                                  .tracker = tracker};

        ASSERT_OK(cop_freeze(&freeze, &frozen, &err), &err);
        return frozen.pages_written;
}

/* Of one that runs on. */
static uint64_t snapshot(pid_t root, struct cop_tracker *tracker, const struct ends *e, int parent, int image)
{
        return make_image(root, tracker, e, parent, image, 0);
}

/* As the memory watch does it, or the engine that has just thawed the tree. */
static pid_t hold(pid_t tid, useconds_t length)
{
        int ready[2];
        char byte;

        ASSERT(pipe2(ready, O_CLOEXEC) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                if (ptrace(PTRACE_SEIZE, tid, 0, 0) < 0)
                        _exit(1);
                (void)!write(ready[1], "r", 1);
                usleep(length);
                _exit(0);
        }
        close(ready[1]);
        ASSERT_EQ(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        return pid;
}

TEST(a_thread_that_another_holds_for_a_moment_is_waited_for)
{
        struct cop_error err = COP_ERROR_NULL;
        char dir[] = "/tmp/test-freezer-XXXXXX", path[64];
        _cleanup_free_ int *tids = NULL;
        struct ends e;
        int status;
        size_t n;

        if (geteuid() != 0)
                SKIP("needs root");
        ASSERT(mkdtemp(dir));
        make_ends(&e);
        pid_t root = start_tree(&e);
        ask(&e, "1");
        snprintf(path, sizeof(path), "/proc/%d", root);
        _cleanup_close_ int proc_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ASSERT_OK(cop_procfs_numbers(proc_fd, "task", &tids, &n, &err), &err);
        ASSERT_EQ(n, 2);
        pid_t holder = hold(tids[0] == root ? tids[1] : tids[0], 50000);
        int image_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ASSERT(snapshot(root, NULL, &e, -EBADF, image_fd) >= BLOCK);
        ASSERT(waitpid(holder, &status, 0) == holder && status == 0);
        ask(&e, "2");
        ASSERT_EQ(kill(root, SIGKILL), 0);
        wait(NULL);
        close_ends(&e);
        close(image_fd);
        ASSERT_OK(cop_remove_tree(AT_FDCWD, dir, &err), &err);
}

/* Folders for four images. */
struct four {
        char dir[32];
        int dir_fd, images[4];
};

static void make_four(struct four *f)
{
        snprintf(f->dir, sizeof(f->dir), "/tmp/test-freezer-XXXXXX");
        ASSERT(mkdtemp(f->dir));
        f->dir_fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (int i = 0; i < 4; i++) {
                char name[] = {(char)('0' + i), '\0'};
                ASSERT(mkdirat(f->dir_fd, name, 0700) == 0);
                f->images[i] = openat(f->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        }
}

/* An image in a new folder of that name; the folder. */
static int snapshot_into(pid_t root, struct cop_tracker *tracker, const struct ends *e, int parent, int dir_fd,
                         const char *name)
{
        ASSERT(mkdirat(dir_fd, name, 0700) == 0);
        int image = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        snapshot(root, tracker, e, parent, image);
        return image;
}

static pid_t start_tracked(struct four *f, struct ends *e, struct cop_tracker **ret)
{
        make_four(f);
        make_ends(e);
        *ret = cop_tracker_new();
        ASSERT(*ret);
        return start_tree(e);
}

static void remove_four(struct four *f)
{
        struct cop_error err = COP_ERROR_NULL;

        for (int i = 0; i < 4; i++)
                close(f->images[i]);
        close(f->dir_fd);
        ASSERT_OK(cop_remove_tree(AT_FDCWD, f->dir, &err), &err);
}

TEST(pages_that_are_as_they_were_are_not_written_again)
{
        struct four f;
        struct ends e;

        if (geteuid() != 0)
                SKIP("needs root");
        struct cop_tracker *tracker;
        pid_t root = start_tracked(&f, &e, &tracker);
        ask(&e, "1");
        ASSERT(snapshot(root, tracker, &e, -EBADF, f.images[0]) >= BLOCK);
        ask(&e, "2");
        uint64_t usual = snapshot(root, tracker, &e, f.images[0], f.images[1]);
        tell(&e, "=", "3");
        ASSERT(snapshot(root, tracker, &e, f.images[1], f.images[2]) < usual + BLOCK / 8);
        tell(&e, "#", "4");
        ASSERT(snapshot(root, tracker, &e, f.images[2], f.images[3]) >= BLOCK / 2);
        cop_tracker_free(tracker);
        ASSERT_EQ(kill(root, SIGKILL), 0);
        wait(NULL);
        close_ends(&e);
        remove_four(&f);
}

/* What was looked for is protected, and no other look finds it again. */
TEST(what_was_looked_for_ahead_is_in_the_next_image)
{
        struct four f;
        struct ends e;

        if (geteuid() != 0)
                SKIP("needs root");
        struct cop_tracker *tracker;
        pid_t root = start_tracked(&f, &e, &tracker);
        cop_tracker_ahead(tracker); /* of nothing: no image yet */
        ask(&e, "1");
        ASSERT(snapshot(root, tracker, &e, -EBADF, f.images[0]) >= BLOCK);
        tell(&e, "#", "2");
        cop_tracker_ahead(tracker);
        cop_tracker_ahead(tracker);
        ASSERT(!cop_tracker_still(tracker, f.images[0]));
        ASSERT(snapshot(root, tracker, &e, f.images[0], f.images[1]) >= BLOCK / 2);
        ask(&e, "3");
        ASSERT(snapshot(root, tracker, &e, f.images[1], f.images[2]) < BLOCK / 2);
        /* A freeze that ends the tree does not use it. */
        tell(&e, "#", "4");
        cop_tracker_ahead(tracker);
        ASSERT(make_image(root, tracker, &e, f.images[2], f.images[3], COP_FREEZE_KILL) >= BLOCK);
        wait(NULL);
        cop_tracker_free(tracker);
        close_ends(&e);
        remove_four(&f);
}

/* How many pages of the block an image says will be written to again; *ret_all: of all memory of the first process. */
static uint64_t hot_pages(int dir_fd, uint64_t *ret_all)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_image *image = NULL;
        uint64_t start = (uintptr_t)block, end = start + sizeof(block), n = 0;
        uint32_t count;

        ASSERT_OK(cop_image_open(dir_fd, true, &image, &err), &err);
        const struct img_hot *hot = cop_image_hot(image, IMG_RECORD(image, IMG_PROCS, img_proc, 0), &count);
        *ret_all = 0;
        for (uint32_t i = 0; i < count; i++) {
                n += hot[i].address >= start && hot[i].address < end ? hot[i].pages : 0;
                *ret_all += hot[i].pages;
        }
        cop_image_free(image);
        return n;
}

/* Whether a page of the block is a process's own by now: neither of a file nor missing. */
static bool is_own(pid_t pid, size_t page)
{
        uint64_t entry = 0;
        char path[32];

        snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ASSERT_EQ(pread(fd, &entry, sizeof(entry), (off_t)(((uintptr_t)block / 4096 + page) * sizeof(entry))),
                  sizeof(entry));
        return entry >> 63 && !(entry >> 61 & 1);
}

/* Called in the thaw, before any of the tree's threads runs: it is the child with two of them. */
static int count_own(void *userdata, struct cop_error *err)
{
        _cleanup_free_ char *children = NULL;
        unsigned *own = userdata;
        char *at, path[64];
        struct stat st;

        int r = cop_read_file(AT_FDCWD, "/proc/thread-self/children", 4096, &children, NULL, err);
        for (const char *word = r < 0 ? NULL : strtok_r(children, " ", &at); word; word = strtok_r(NULL, " ", &at)) {
                snprintf(path, sizeof(path), "/proc/%s/task", word);
                if (stat(path, &st) < 0 || st.st_nlink != 2 + 2)
                        continue;
                for (size_t i = 0; i < BLOCK; i++)
                        own[i % 2] += is_own((pid_t)strtol(word, NULL, 10), i);
        }
        return r;
}

TEST(what_a_program_writes_again_and_again_is_copied_by_the_thaw)
{
        struct copy copy;
        struct cop_tracker *tracker;
        unsigned own[2] = {0};
        uint64_t all, later;
        struct four f;
        struct ends e;

        if (geteuid() != 0)
                SKIP("needs root");
        pid_t root = start_tracked(&f, &e, &tracker);
        ask(&e, "1");
        snapshot(root, tracker, &e, -EBADF, f.images[0]);
        ASSERT_EQ(hot_pages(f.images[0], &all), 0);
        tell(&e, "*", "2"); /* so much in one piece is data */
        snapshot(root, tracker, &e, f.images[0], f.images[1]);
        ASSERT_EQ(hot_pages(f.images[1], &all), 0);
        ASSERT(all > 0);
        tell(&e, "=", "3");
        snapshot(root, tracker, &e, f.images[1], f.images[2]);
        ASSERT_EQ(hot_pages(f.images[2], &all), BLOCK / 2);
        ASSERT(all > BLOCK / 2 && all < BLOCK);
        ask(&e, "4"); /* that is less: what was known stays */
        snapshot(root, tracker, &e, f.images[2], f.images[3]);
        ASSERT_EQ(hot_pages(f.images[3], &later), BLOCK / 2);
        ASSERT_EQ(later, all);
        cop_tracker_free(tracker);
        ASSERT_EQ(kill(root, SIGKILL), 0);
        wait(NULL);
        close_ends(&e);

        /* Mapped, or all of so small a process is copied. */
        begin_copy(&copy, f.images[3], "out",
                   (struct cop_thaw_request){.flags = COP_THAW_MAP, .before_run = count_own, .userdata = own});
        ASSERT_EQ(own[0], BLOCK / 2);
        ASSERT_EQ(own[1], 0);
        tell(&copy.ends, "=", "5");
        end_copy(&copy);
        remove_four(&f);
}

/* Ends the copy with an image that nothing was tracked for; how many pages of the block will be written to again by what that says. */
static uint64_t hot_at_the_end_of(struct copy *c, int parent, int image)
{
        uint64_t all;

        make_image(c->thawed.root, NULL, &c->ends, parent, image, COP_FREEZE_KILL); /* who began it reaps it */
        drop_copy(c);
        return hot_pages(image, &all);
}

TEST(what_was_written_since_the_thaw_is_copied_by_the_next)
{
        struct cop_thaw_request mapped = {.flags = COP_THAW_MAP};
        unsigned own[2] = {0};
        struct copy copy;
        uint64_t all;
        struct four f;
        struct ends e;

        if (geteuid() != 0)
                SKIP("needs root");
        make_four(&f);
        make_ends(&e);
        pid_t root = start_tree(&e);
        ask(&e, "1");
        make_image(root, NULL, &e, -EBADF, f.images[0], COP_FREEZE_KILL);
        wait(NULL);
        close_ends(&e);
        ASSERT_EQ(hot_pages(f.images[0], &all), 0);
        ASSERT_EQ(all, 0);
        begin_copy(&copy, f.images[0], "out", mapped);
        tell(&copy.ends, "-", "2"); /* patches */
        ASSERT_EQ(hot_at_the_end_of(&copy, f.images[0], f.images[1]), 0);
        begin_copy(&copy, f.images[1], "out", mapped);
        tell(&copy.ends, "+", "3");
        ASSERT_EQ(hot_at_the_end_of(&copy, f.images[1], f.images[2]), BLOCK / 2);

        mapped.before_run = count_own;
        mapped.userdata = own;
        begin_copy(&copy, f.images[2], "out", mapped);
        ASSERT_EQ(own[0] + own[1], BLOCK / 2);
        ask(&copy.ends, "4"); /* which those copies are still of */
        ASSERT_EQ(hot_at_the_end_of(&copy, f.images[2], f.images[3]), BLOCK / 2);
        remove_four(&f);
}

/* Images of a tree that fills one slot for each, as many as `count`, in folders of consecutive numbers; the last of them. */
static int make_chain(pid_t root, const struct ends *e, int dir_fd, int parent, unsigned *number, unsigned count)
{
        struct cop_tracker *tracker = cop_tracker_new();
        char name[16];

        ASSERT(tracker);
        for (unsigned i = 0; i < count; i++) {
                snprintf(name, sizeof(name), "%u", ++*number);
                tell(e, ".", name);
                int image = snapshot_into(root, tracker, e, parent, dir_fd, name);
                cop_close(parent);
                parent = image;
        }
        cop_tracker_free(tracker);
        return parent;
}

static unsigned count_sources(int dir_fd)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_image *image = NULL;

        ASSERT_OK(cop_image_open(dir_fd, true, &image, &err), &err);
        ASSERT_OK(cop_image_verify(image, &err), &err);
        unsigned n = image->count[IMG_SOURCES];
        cop_image_free(image);
        return n;
}

static void check_slots(pid_t pid, unsigned filled)
{
        static char now[sizeof(slots)];
        struct iovec local = {now, sizeof(now)}, remote = {(void *)(uintptr_t)slots, sizeof(slots)};

        ASSERT_EQ(process_vm_readv(pid, &local, 1, &remote, 1, 0), (ssize_t)sizeof(now));
        for (size_t i = 0; i < sizeof(now); i++)
                ASSERT_EQ(now[i], (char)(i / SLOT <= filled ? i / SLOT : 0));
}

/* Where pages stay that were written once and never again. */
TEST(chains_of_images_stay_short)
{
        char dir[] = "/tmp/test-freezer-XXXXXX";
        unsigned number = 0;
        struct copy copy;
        struct ends e;

        if (geteuid() != 0)
                SKIP("needs root");
        ASSERT(mkdtemp(dir));
        _cleanup_close_ int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        make_ends(&e);
        pid_t root = start_tree(&e);
        int image = make_chain(root, &e, dir_fd, -EBADF, &number, 50);
        unsigned sources = count_sources(image);
        ASSERT(sources >= 8 && sources <= 18);
        check_slots(root, number);
        ASSERT_EQ(kill(root, SIGKILL), 0);
        wait(NULL);
        close_ends(&e);
        /* What a thaw has mapped is copied, too, and the page files that none has mapped since are left out. */
        for (int i = 0; i < 4; i++) {
                begin_copy(&copy, image, "out", (struct cop_thaw_request){.flags = COP_THAW_MAP});
                check_slots(copy.thawed.root, number);
                image = make_chain(copy.thawed.root, &copy.ends, dir_fd, image, &number, 50);
                sources = count_sources(image);
                ASSERT(sources >= 8 && sources <= 18 + 18);
                check_slots(copy.thawed.root, number);
                end_copy(&copy);
        }
        begin_copy(&copy, image, "out", (struct cop_thaw_request){.flags = COP_THAW_MAP});
        check_slots(copy.thawed.root, number);
        end_copy(&copy);
        close(image);
        struct cop_error err = COP_ERROR_NULL;
        ASSERT_OK(cop_remove_tree(AT_FDCWD, dir, &err), &err);
}

/* On a busy machine threads may not sleep again at once: then nothing is proven, and the next snapshot may. */
static int snapshot_still(pid_t root, struct cop_tracker *tracker, const struct ends *e, int dir_fd, unsigned *number)
{
        int image = -EBADF, parent = -EBADF;
        char name[16];

        for (int i = 0; i < 50; i++) {
                snprintf(name, sizeof(name), "%u", (*number)++);
                cop_close(parent);
                parent = image;
                image = snapshot_into(root, tracker, e, parent, dir_fd, name);
                if (cop_tracker_still(tracker, image))
                        break;
        }
        ASSERT(cop_tracker_still(tracker, image));
        /* Another image of the same tree is not what it is told of. */
        ASSERT(parent < 0 || !cop_tracker_still(tracker, parent));
        cop_close(parent);
        return image;
}

TEST(a_tree_is_as_it_was_until_it_runs)
{
        struct cop_error err = COP_ERROR_NULL;
        char dir[] = "/tmp/test-freezer-XXXXXX";
        unsigned number = 0;
        struct ends e;

        if (geteuid() != 0)
                SKIP("needs root");
        ASSERT(mkdtemp(dir));
        _cleanup_close_ int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        make_ends(&e);
        pid_t root = start_tree(&e);
        struct cop_tracker *tracker = cop_tracker_new();
        ASSERT(tracker);
        ask(&e, "1");
        int image = snapshot_still(root, tracker, &e, dir_fd, &number);
        for (int i = 0; i < 5; i++, usleep(2000))
                ASSERT(cop_tracker_still(tracker, image));
        ask(&e, "2"); /* it has run, and sleeps in the same call with the same arguments again */
        ASSERT(!cop_tracker_still(tracker, image));
        close(image);
        image = snapshot_still(root, tracker, &e, dir_fd, &number);
        ASSERT_EQ(kill(root, SIGUSR1), 0); /* handled */
        usleep(2000);
        ASSERT(!cop_tracker_still(tracker, image));
        close(image);
        image = snapshot_still(root, tracker, &e, dir_fd, &number);
        ASSERT_EQ(kill(root, SIGSTOP), 0);
        usleep(2000);
        ASSERT(!cop_tracker_still(tracker, image));
        ASSERT_EQ(kill(root, SIGKILL), 0);
        wait(NULL);
        ASSERT(!cop_tracker_still(tracker, image));
        cop_tracker_free(tracker);
        close(image);
        close_ends(&e);
        ASSERT_OK(cop_remove_tree(AT_FDCWD, dir, &err), &err);
}

static void put_meta(int dir_fd, const void *data, size_t n)
{
        _cleanup_close_ int fd = openat(dir_fd, "meta.img", O_WRONLY | O_TRUNC | O_CLOEXEC);

        ASSERT(fd >= 0 && cop_write_all(fd, data, n) == 0);
}

/* As an engine wrote it that knew nothing of the last section. */
static void put_older(int dir_fd, const char *meta, size_t size)
{
        _cleanup_free_ char *copy = malloc(size + 1);
        struct img_header *h = (struct img_header *)copy;

        ASSERT(copy && size > sizeof(*h));
        memcpy(copy, meta, size);
        h->version = IMG_VERSION_OLDEST;
        h->section_count--;
        h->checksum = 0;
        h->checksum = XXH3_64bits(copy, sizeof(*h) + h->section_count * sizeof(struct img_section));
        put_meta(dir_fd, copy, size);
}

TEST(damaged_images_are_refused_by_name)
{
        struct cop_error err = COP_ERROR_NULL;
        char dir[] = "/tmp/test-freezer-XXXXXX";
        struct cop_freeze_result frozen;
        struct cop_image *image = NULL;
        struct ends e;
        char *meta = NULL;
        size_t size = 0;

        if (geteuid() != 0)
                SKIP("needs root");
        ASSERT(mkdtemp(dir));
        int image_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        make_ends(&e);
        pid_t root = start_tree(&e);
        struct cop_external out[] = {external("control", e.inner_control, -1), external("out", e.inner_pipe, -1)};
        struct cop_freeze_request freeze = {.root = root,
                                            .image_dir_fd = image_fd,
                                            .parent_dir_fd = -EBADF,
                                            .flags = COP_FREEZE_KILL,
                                            .externals = out,
                                            .external_count = 2};
        ASSERT_OK(cop_freeze(&freeze, &frozen, &err), &err);
        close_ends(&e);
        wait(NULL);
        ASSERT_OK(cop_image_open(image_fd, true, &image, &err), &err);
        ASSERT_OK(cop_image_verify(image, &err), &err);
        cop_image_free(image);
        ASSERT_OK(cop_read_file(image_fd, "meta.img", 64 << 20, &meta, &size, &err), &err);
        for (size_t i = 0; i < size; i += i < 2048 ? 1 : 97) {
                meta[i] ^= 0x10;
                put_meta(image_fd, meta, size);
                int r = cop_image_open(image_fd, false, &image, &err);
                meta[i] ^= 0x10;
                if (r == 0) { /* only the padding between sections may change unseen */
                        cop_image_free(image);
                        ASSERT_EQ(meta[i], 0);
                } else
                        ASSERT(err.code == COP_ERR_image_damaged || err.code == COP_ERR_image_mismatch);
        }
        put_older(image_fd, meta, size);
        ASSERT_OK(cop_image_open(image_fd, true, &image, &err), &err);
        ASSERT_EQ(image->count[IMG_HOT], 0);
        cop_image_free(image);
        for (size_t n = 0; n < size; n += 211) {
                put_meta(image_fd, meta, n);
                ASSERT(cop_image_open(image_fd, false, &image, &err) < 0);
                ASSERT_EQ(err.code, COP_ERR_image_damaged);
        }
        free(meta);
        close(image_fd);
        ASSERT_OK(cop_remove_tree(AT_FDCWD, dir, &err), &err);
}
