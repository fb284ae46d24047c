/* The order of a freeze; see doc/freezer.md for the why of each stage. */
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/dump.h"
#include "freezer/guest.h"
#include "freezer/tracker.h"
#include "freezer/waits.h"

#define PRECOPY_OLD (10 * USEC_PER_MSEC) /* so long after it, more has been written than a stop should copy */

int cop_not_freezable(const struct cop_dump *d, uint32_t proc, struct cop_error *err, const char *format, ...)
{
        char what[512];
        va_list ap;

        va_start(ap, format);
        vsnprintf(what, sizeof(what), format, ap);
        va_end(ap);
        return cop_error_set(err, EOPNOTSUPP, COP_ERR_not_freezable, "pid %d (%s) %s: cannot be frozen",
                             d->tree.procs[proc].nspid, d->tree.procs[proc].comm, what);
}

static uint64_t clock_ns(clockid_t clock)
{
        struct timespec ts;

        clock_gettime(clock, &ts);
        return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

/* The tree's clocks are ours plus the offsets of its time namespace. */
static void read_clock_offsets(struct cop_dump *d)
{
        _cleanup_free_ char *text = NULL;
        const char *names[] = {"monotonic", "boottime"};

        if (cop_read_file(d->tree.procs[0].dir_fd, "timens_offsets", 4096, &text, NULL, NULL) < 0)
                return;
        for (int i = 0; i < 2; i++) {
                long long s, ns;
                const char *line = strstr(text, names[i]);
                if (line && sscanf(line + strlen(names[i]), "%lld %lld", &s, &ns) == 2)
                        d->clock_offset[i] = s * 1000000000LL + ns;
        }
}

/* After the last instruction that the tree runs (cop_leave_vdso): it must not have read a later time. */
static void dump_clocks(struct cop_dump *d)
{
        struct img_tree *t = cop_image_record(d->writer, IMG_TREE, 0);

        if (!t)
                return;
        t->monotonic_ns = clock_ns(CLOCK_MONOTONIC) + (uint64_t)d->clock_offset[0];
        t->boottime_ns = clock_ns(CLOCK_BOOTTIME) + (uint64_t)d->clock_offset[1];
        t->realtime_ns = clock_ns(CLOCK_REALTIME);
}

int cop_dump_enter(const struct cop_dump *d, const char *name, int type, struct cop_visit *ret, struct cop_error *err)
{
        char home[32], there[32];

        *ret = (struct cop_visit){.home_fd = -EBADF, .type = type};
        if (d->guest)
                return 0;
        snprintf(home, sizeof(home), "/proc/self/ns/%s", name);
        snprintf(there, sizeof(there), "ns/%s", name);
        _cleanup_close_ int home_fd = open(home, O_RDONLY | O_CLOEXEC);
        _cleanup_close_ int fd = openat(d->tree.procs[0].dir_fd, there, O_RDONLY | O_CLOEXEC);
        if (home_fd < 0 || fd < 0 || setns(fd, type) < 0)
                return cop_error_errno(err, errno, "entering the tree's %s namespace", name);
        ret->home_fd = TAKE_FD(home_fd);
        return 0;
}

int cop_dump_leave(struct cop_visit *visit, struct cop_error *err)
{
        int r = visit->home_fd >= 0 && setns(visit->home_fd, visit->type) < 0 ? -errno : 0;

        visit->home_fd = cop_close(visit->home_fd);
        return r < 0 ? cop_error_errno(err, -r, "returning from a namespace of the tree") : 0;
}

static int dump_uts(struct cop_dump *d, struct img_tree *t, struct cop_error *err)
{
        struct utsname u = {0};
        struct cop_visit visit;
        int r = cop_dump_enter(d, "uts", CLONE_NEWUTS, &visit, err);

        if (r < 0)
                return r;
        uname(&u);
        r = cop_dump_leave(&visit, err);
        t->hostname = cop_image_puts(d->writer, u.nodename);
        t->domainname = cop_image_puts(d->writer, u.domainname);
        return r;
}

/* Lines "inside outside count", outside as the engine sees it. */
static uint32_t map_id(const char *text, uint32_t id)
{
        unsigned long long inside, outside, count;

        for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
                if (sscanf(line, "%llu %llu %llu", &inside, &outside, &count) == 3 && id >= outside &&
                    id - outside < count)
                        return (uint32_t)(inside + (id - outside));
        return UINT32_MAX;
}

uint32_t cop_dump_uid(const struct cop_dump *d, uint32_t uid)
{
        return d->guest ? uid : map_id(d->id_maps[0], uid);
}

uint32_t cop_dump_gid(const struct cop_dump *d, uint32_t gid)
{
        return d->guest ? gid : map_id(d->id_maps[1], gid);
}

static int dump_tree(struct cop_dump *d, struct cop_error *err)
{
        struct img_tree t = {0};

        read_clock_offsets(d);
        int r = cop_read_file(d->tree.procs[0].dir_fd, "uid_map", 65536, &d->id_maps[0], NULL, err);
        if (r == 0)
                r = cop_read_file(d->tree.procs[0].dir_fd, "gid_map", 65536, &d->id_maps[1], NULL, err);
        if (r == 0)
                r = dump_uts(d, &t, err);
        cop_image_add(d->writer, IMG_TREE, &t);
        return r;
}

/* The executable of each process: usually one of its mapped files. */
static int dump_executables(struct cop_dump *d, struct cop_error *err)
{
        for (uint32_t i = 0; i < d->tree.count; i++) {
                struct stat st;
                char link[4352];
                uint32_t file = IMG_NONE;
                if (d->tree.procs[i].zombie || fstatat(d->tree.procs[i].dir_fd, "exe", &st, 0) < 0)
                        continue;
                for (size_t k = 0; k < d->file_count; k++)
                        if (d->files[k].mapping && d->files[k].ino == st.st_ino && d->files[k].dev == st.st_dev)
                                file = d->files[k].index;
                ssize_t n = readlinkat(d->tree.procs[i].dir_fd, "exe", link, sizeof(link) - 1);
                if (file == IMG_NONE && n > 0) {
                        link[n] = '\0';
                        int r = cop_dump_executable(d, i, link, &st, err);
                        if (r < 0)
                                return r;
                        file = (uint32_t)r;
                }
                ((struct img_proc *)cop_image_record(d->writer, IMG_PROCS, i))->exe = file;
        }
        return 0;
}

static int identify_sources(struct cop_dump *d, struct cop_error *err)
{
        if (!d->parent)
                return 0;
        d->source_count = d->parent->count[IMG_SOURCES] + 1;
        d->sources = calloc(d->source_count, sizeof(*d->sources));
        if (!d->sources)
                return cop_error_errno(err, ENOMEM, "opening the parent image");
        for (size_t i = 1; i < d->source_count; i++) {
                struct stat st;
                if (fstat(d->parent->source_fds[i - 1], &st) < 0)
                        return cop_error_errno(err, errno, "opening the parent image");
                d->sources[i] = (struct stat_id){st.st_dev, st.st_ino};
        }
        return 0;
}

/* Interrupted calls that the kernel would not start again are turned back in the live registers, too. */
static void rewind_live(struct cop_tree *tree)
{
        for (size_t i = 0; i < tree->count; i++)
                for (size_t k = 0; k < tree->procs[i].task_count; k++) {
                        struct cop_task *t = &tree->procs[i].tasks[k];
                        if ((int64_t)t->regs.rax == -EINTR)
                                cop_rewind_interrupted(&t->regs);
                }
}

static void go_on(struct cop_dump *d)
{
        cop_waits_keep(d->request->waits, &d->tree);
        rewind_live(&d->tree);
        cop_tree_resume(&d->tree);
}

static void dump_done(struct cop_dump *d)
{
        for (size_t i = 0; d->vmas && i < d->tree.count; i++)
                cop_vmas_done(&d->vmas[i]);
        free(d->vmas);
        cop_dump_scan_done(d);
        for (size_t i = 0; i < d->file_count; i++)
                cop_close(d->files[i].own_fd);
        free(d->files);
        free(d->objects);
        free(d->sources);
        free(d->moves);
        free(d->targets);
        free(d->views);
        free(d->buffer);
        cop_mounts_done(&d->mounts);
        free(d->id_maps[0]);
        free(d->id_maps[1]);
        for (size_t i = 0; i < d->waiting_count; i++)
                cop_close(d->waiting[i].fd);
        free(d->waiting);
        cop_close(d->net_diag_fd);
}

#define STAGE(res, n, last)                            \
        do {                                           \
                usec_t now = cop_now(CLOCK_MONOTONIC); \
                (res)->stage[n] += now - (last);       \
                (last) = now;                          \
        } while (0)

/* Everything that needs the tree to stand still. */
static int run_stages(struct cop_dump *d, struct cop_freeze_result *res, struct cop_error *err)
{
        usec_t last = cop_now(CLOCK_MONOTONIC);
        int r = cop_tree_read_registers(&d->tree, err);

        if (r == 0)
                cop_waits_collect(d->request->waits, &d->tree);
        if (r == 0)
                r = cop_dump_check_filters(d, err);
        if (r == 0)
                r = dump_tree(d, err);
        if (r == 0) {
                d->net_diag_fd = cop_dump_new_socket(d, AF_NETLINK, SOCK_RAW, 4 /* NETLINK_SOCK_DIAG */, err);
                r = MIN_OF(d->net_diag_fd, 0);
        }
        STAGE(res, 1, last);
        if (r == 0)
                r = cop_collect_memory(d, err);
        STAGE(res, 2, last);
        if (r == 0)
                r = cop_dump_procs(d, err);
        dump_clocks(d);
        STAGE(res, 3, last);
        if (r == 0 && d->request->tracker && !(d->request->flags & COP_FREEZE_KILL))
                r = cop_tracker_adopt(d->request->tracker, d, err);
        if (r == 0)
                r = cop_dump_scan_begin(d, err);
        if (r == 0)
                r = cop_dump_sysv(d, err);
        if (r == 0)
                r = cop_dump_descriptors(d, err);
        int scanned = cop_dump_scan_end(d, r < 0 ? NULL : err);
        STAGE(res, 4, last);
        if (r == 0)
                r = scanned;
        if (r == 0)
                r = cop_tracker_precopied(d, err);
        if (r == 0)
                r = cop_dump_kept_folders(d, err);
        if (r == 0)
                r = cop_dump_memory(d, err);
        if (r == 0)
                r = dump_executables(d, err);
        STAGE(res, 5, last);
        return r;
}

/* Before the stop of a tree that runs on: a short one where something is to be tracked that was not, then copying while it runs. */
static int precopy(struct cop_dump *d, struct cop_freeze_result *res, struct cop_error *err)
{
        struct cop_tracker *t = d->request->tracker;
        usec_t begin = cop_now(CLOCK_MONOTONIC);
        int r = cop_tracker_precopied(d, err); /* of an earlier time */

        if (r == 0 && !t->precopying && cop_tracker_outdated(t)) {
                r = cop_tree_stop(d->request->root, &d->tree, err);
                if (r == 0)
                        r = cop_tree_read_registers(&d->tree, err);
                if (r == 0)
                        cop_waits_collect(d->request->waits, &d->tree);
                if (r == 0)
                        r = cop_dump_check_filters(d, err);
                if (r == 0)
                        r = cop_tracker_begin(t, d, err);
                go_on(d);
                res->first_pause = cop_now(CLOCK_MONOTONIC) - begin;
                cop_waits_settle(d->request->waits, &d->tree, NULL, 0);
                cop_tree_done(&d->tree);
        }
        if (r == 0)
                r = cop_tracker_precopy(d, err);
        d->tracking = r == 0;
        res->stage[0] = cop_now(CLOCK_MONOTONIC) - begin;
        return r;
}

static int stop_and_dump(struct cop_dump *d, struct cop_freeze_result *res, struct cop_error *err)
{
        const struct cop_freeze_request *request = d->request;
        bool end = request->flags & COP_FREEZE_KILL;
        usec_t stop = cop_now(CLOCK_MONOTONIC), last;
        int r = cop_tree_stop(request->root, &d->tree, err);

        res->stage[0] += cop_now(CLOCK_MONOTONIC) - stop;
        if (r == 0)
                r = run_stages(d, res, err);
        if (r == 0 && request->stopped)
                r = request->stopped(request->userdata, err);
        last = cop_now(CLOCK_MONOTONIC);
        if (r == 0)
                r = cop_dump_accept(d, err);
        if (r == 0 && request->tracker && !end)
                cop_still_note(&request->tracker->still, &d->tree);
        bool ending = r == 0 && end; /* as far as is known yet */
        if (!ending) {
                go_on(d);
                STAGE(res, 7, last);
                res->pause = last - stop;
        }
        cop_waits_settle(d->request->waits, &d->tree, d->writer, d->clock_offset[0]);
        if (r == 0)
                r = cop_dump_shorten_chain(d, err);
        if (r == 0)
                r = cop_image_commit(d->writer, request->flags & COP_FREEZE_SYNC, &res->bytes, err);
        if (r < 0 && ending) { /* only now is it known that the image cannot be kept */
                (void)cop_dump_reconnect(d, NULL);
                go_on(d);
        }
        if (r < 0 && d->waiting_count > 0)
                r = cop_error_wrap(err, r, "%zu connections that nobody had accepted yet are lost", d->waiting_count);
        STAGE(res, 6, last);
        if (r == 0 && end) {
                cop_tree_kill(&d->tree);
                cop_waits_clear(request->waits);
        }
        if (end) {
                STAGE(res, 7, last);
                res->pause = last - stop;
        }
        return r;
}

static void fill_result(const struct cop_dump *d, struct cop_freeze_result *res)
{
        res->pages_written = d->pages_written;
        res->pages_kept = d->pages_kept;
        res->processes = cop_image_count(d->writer, IMG_PROCS);
        res->threads = cop_image_count(d->writer, IMG_THREADS);
        res->files = cop_image_count(d->writer, IMG_FILES);
}

/* ---- in two steps ---- */

struct cop_freeze {
        struct cop_dump dump;
        struct cop_image *parent; /* owned */
        struct cop_freeze_result result;
        struct cop_freeze_room *room; /* owned; request->room */
        usec_t begun, copied;
        bool as_guest; /* all of it is done by a guest, in finish */
};

void cop_freeze_cancel(struct cop_freeze *f)
{
        if (!f)
                return;
        if (f->dump.writer && f->dump.request->tracker)
                cop_tracker_settle(f->dump.request->tracker, NULL);
        dump_done(&f->dump);
        cop_tree_done(&f->dump.tree);
        cop_image_writer_free(f->dump.writer);
        cop_image_free(f->parent);
        if (!f->dump.guest) /* who works for somebody else leaves that to him */
                cop_freeze_room_free(f->room);
        free(f);
}

static int begin(struct cop_freeze *f, struct cop_error *err)
{
        struct cop_dump *d = &f->dump;
        const struct cop_freeze_request *request = d->request;
        int r = 0;

        if (request->parent_dir_fd >= 0)
                r = cop_image_open(request->parent_dir_fd, false, &f->parent, err);
        d->parent = f->parent;
        if (r == 0)
                r = cop_image_create(request->image_dir_fd, f->parent, request->parent_dir_fd, request->room,
                                     &d->writer, err);
        if (r == 0 && request->flags & COP_FREEZE_SYNC)
                cop_image_write_early(d->writer);
        if (r == 0)
                r = identify_sources(d, err);
        if (r == 0)
                r = cop_dump_chain_begin(d, err);
        if (r < 0)
                return r;
        d->buffer = aligned_alloc(4096, COP_COPY_SIZE);
        if (!d->buffer)
                return cop_error_errno(err, ENOMEM, "freezing");
        if (request->tracker) {
                if (request->flags & COP_FREEZE_KILL && request->tracker->precopying)
                        cop_tracker_settle(request->tracker, NULL);
                d->tracking = f->parent && strcmp(request->tracker->image_id, f->parent->header->id) == 0;
                if (!(request->flags & COP_FREEZE_KILL))
                        r = precopy(d, &f->result, err);
        }
        f->copied = cop_now(CLOCK_MONOTONIC);
        return r;
}

static int new_freeze(const struct cop_freeze_request *request, bool guest, struct cop_freeze **ret,
                      struct cop_error *err)
{
        struct cop_freeze *f = calloc(1, sizeof(*f));

        if (!f) {
                cop_freeze_room_free(guest ? NULL : request->room);
                return cop_error_errno(err, ENOMEM, "freezing");
        }
        f->room = request->room;
        f->dump = (struct cop_dump){.request = request, .tree.pidns_fd = -EBADF, .net_diag_fd = -EBADF, .guest = guest};
        f->begun = cop_now(CLOCK_MONOTONIC);
        f->as_guest = !guest && cop_guest_needed();
        int r = f->as_guest ? 0 : begin(f, err);
        if (r < 0) {
                cop_freeze_cancel(f);
                return cop_error_wrap(err, r, "freezing");
        }
        *ret = f;
        return 0;
}

int cop_freeze_begin(const struct cop_freeze_request *request, struct cop_freeze **ret, struct cop_error *err)
{
        return new_freeze(request, false, ret, err);
}

static int finish(struct cop_freeze *f, struct cop_freeze_result *ret, struct cop_error *err)
{
        struct cop_dump *d = &f->dump;
        bool late = cop_now(CLOCK_MONOTONIC) - f->copied > PRECOPY_OLD;
        int r = 0;

        if (late && d->request->tracker && !(d->request->flags & COP_FREEZE_KILL))
                r = precopy(d, &f->result, err);
        if (r == 0)
                r = stop_and_dump(d, &f->result, err);
        if (r < 0)
                return r;
        if (d->request->tracker)
                cop_tracker_settle(d->request->tracker, cop_image_writer_id(d->writer));
        fill_result(d, &f->result);
        f->result.total = cop_now(CLOCK_MONOTONIC) - f->begun;
        *ret = f->result;
        d->writer = (cop_image_writer_free(d->writer), NULL);
        return 0;
}

struct freeze_call {
        const struct cop_freeze_request *request;
        struct cop_freeze_result *ret;
        struct cop_error *err;
};

static int freeze_as_guest(void *userdata)
{
        const struct freeze_call *call = userdata;
        struct cop_freeze *f = NULL;
        int r = new_freeze(call->request, true, &f, call->err);

        return f ? cop_freeze_finish(f, call->ret, call->err) : r;
}

static int have_guest_freeze(const struct cop_freeze_request *request, struct cop_freeze_result *ret,
                             struct cop_error *err)
{
        struct freeze_call call = {request, ret, err};
        int status, r = cop_guest_run(request->root, freeze_as_guest, &call, err);

        /* The guest has seen it end; its parent has to, too. */
        if (r == 0 && request->flags & COP_FREEZE_KILL)
                (void)cop_wait_task(request->root, &status);
        return r;
}

int cop_freeze_finish(struct cop_freeze *f, struct cop_freeze_result *ret, struct cop_error *err)
{
        bool as_guest = f->as_guest;
        int r = as_guest ? have_guest_freeze(f->dump.request, ret, err) : finish(f, ret, err);

        cop_freeze_cancel(f); /* of what is through nothing is left to be cancelled */
        return r < 0 && !as_guest ? cop_error_wrap(err, r, "freezing") : r;
}

int cop_freeze(const struct cop_freeze_request *request, struct cop_freeze_result *ret, struct cop_error *err)
{
        struct cop_freeze *f = NULL;
        int r = cop_freeze_begin(request, &f, err);

        return f ? cop_freeze_finish(f, ret, err) : r;
}
