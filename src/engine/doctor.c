/* What this host lacks, and what to do about it.  A check that is not `needed` explains a feature that will not work.
 *
 * Whether sandboxes can start is found out by trying, in a child (coppice-keeper --probe): it takes time and namespaces.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/checks.h"
#include "base/child.h"
#include "base/fs.h"
#include "base/parse.h"
#include "engine/internal.h"
#include "engine/uids.h"

#define SPACE_NEEDED (2ULL << 30)
#define PROBE_MAX (64u << 10)

struct cop_doctor {
        struct cop_engine *engine; /* borrowed */
        struct cop_doctor *next;
        struct cop_op *op;
        struct cop_source *child; /* owned */
        int out_fd;               /* owned */
};

struct report {
        struct cop_engine *engine;
        json_t *checks;
};

static void check_cgroup_moves(struct report *r)
{
        int fd = r->engine->cgroup_moves_fd;

        cop_checks_add(
                r->checks, "cgroup_moves", fd >= 0, false,
                fd >= 0          ? "quick (favordynmods)"
                : fd == -ENOTSUP ? "slow: COPPICE_SLOW_CGROUPS is set"
                                 : strerror(-fd),
                "run Linux 6.0 or newer with cgroup v1 built in: starting and waking take 10 to 20 ms longer without");
}

static void check_space(struct report *r)
{
        struct statvfs st;
        char size[COP_SIZE_MAX], detail[4300];

        if (statvfs(r->engine->home, &st) < 0) {
                cop_checks_add(r->checks, "disk", false, true, strerror(errno),
                               "check the disk that holds COPPICE_HOME");
                return;
        }
        uint64_t left = (uint64_t)st.f_bavail * st.f_frsize;
        snprintf(detail, sizeof(detail), "%s free in %s", cop_format_size(left, size), r->engine->home);
        cop_checks_add(r->checks, "disk", left >= SPACE_NEEDED, true, detail,
                       "free at least 2 GiB, or point COPPICE_HOME to a larger disk");
        cop_checks_add(r->checks, "inodes", st.f_files == 0 || st.f_favail > 100000, true,
                       st.f_files == 0 || st.f_favail > 100000 ? "enough" : "nearly used up",
                       "delete files on the disk that holds COPPICE_HOME");
}

static void check_uids(struct report *r)
{
        struct cop_error err = COP_ERROR_NULL;
        char detail[100];

        int n = cop_uids_claimed(r->engine, &err);
        snprintf(detail, sizeof(detail), "%d of %u in use by all daemons of this machine", n, r->engine->slots);
        cop_checks_add(
                r->checks, "uid_ranges", n >= 0 && (unsigned)n < r->engine->slots, true, n < 0 ? err.message : detail,
                n < 0 ? "make /run/coppice writable for coppiced" : "remove sandboxes, also those of other daemons");
}

static bool on_path(const char *program)
{
        const char *path = getenv("PATH");
        char file[4200];

        for (const char *at = path ? path : "/usr/sbin:/usr/bin:/sbin:/bin"; *at;) {
                size_t n = strcspn(at, ":");
                if (cop_path_format(file, sizeof(file), "%.*s/%s", (int)n, at, program) == 0 && access(file, X_OK) == 0)
                        return true;
                at += n + (at[n] == ':');
        }
        return false;
}

static void check_programs(struct report *r)
{
        static const struct {
                const char *check, *program, *remedy;
        } programs[] = {
                {"image.jq", "jq", "apt-get install jq (needed to make images)"},
                {"image.mmdebstrap", "mmdebstrap", "apt-get install mmdebstrap (needed for `coppice image build`)"},
                {"image.zstd", "zstd", "apt-get install zstd (needed to import .tar.zst)"},
                {"image.skopeo", "skopeo", "apt-get install skopeo (needed to import OCI images)"},
                {"image.umoci", "umoci", "apt-get install umoci (needed to import OCI images)"},
                {"network.nft", "nft", "apt-get install nftables (needed for network policies)"},
        };

        cop_checks_add(r->checks, "image.tool", access(r->engine->image_tool, X_OK) == 0, false, r->engine->image_tool,
                       "install libexec/coppice-image");
        for (size_t i = 0; i < ELEMENTSOF(programs); i++) {
                bool there = on_path(programs[i].program);
                cop_checks_add(r->checks, programs[i].check, there, false, there ? "found" : "not found",
                               programs[i].remedy);
        }
}

static void check_image(struct report *r)
{
        _cleanup_(cop_image_rows_freep) struct cop_image_row **rows = NULL;
        char detail[60];
        size_t n = 0;

        if (cop_store_image_list(r->engine->store, &rows, NULL) < 0)
                return; /* a store that cannot be read has said so elsewhere */
        while (rows[n])
                n++;
        snprintf(detail, sizeof(detail), "%zu image%s", n, n == 1 ? "" : "s");
        cop_checks_add(r->checks, "image", n > 0, false, detail, "coppice image build code-interpreter");
}

/* -- what the keeper finds --------------------------------------------------------------------------------------------- */

static void doctor_free(struct cop_doctor *d)
{
        for (struct cop_doctor **at = &d->engine->doctors; *at; at = &(*at)->next)
                if (*at == d) {
                        *at = d->next;
                        break;
                }
        cop_source_free(d->child);
        cop_close(d->out_fd);
        free(d);
}

/* Their probes end by themselves. */
void cop_doctors_drop(struct cop_engine *e)
{
        while (e->doctors)
                doctor_free(e->doctors);
}

static void finish(struct cop_doctor *d, json_t *probed)
{
        struct report r = {.engine = d->engine, .checks = probed ? probed : json_array()};
        struct cop_op *op = d->op;

        cop_checks_add(r.checks, "keeper", json_array_size(r.checks) > 0, true, r.engine->keeper_path,
                       "install coppice-keeper beside coppiced");
        check_cgroup_moves(&r);
        check_uids(&r);
        check_space(&r);
        check_programs(&r);
        check_image(&r);
        doctor_free(d);
        cop_op_done(op, json_pack("{s:b, s:o}", "ok", cop_checks_pass(r.checks), "checks", r.checks), NULL);
}

static void on_probed(struct cop_source *s, const siginfo_t *si, void *userdata)
{
        struct cop_doctor *d = userdata;
        _cleanup_buf_ struct cop_buf text = COP_BUF(PROBE_MAX);

        /* All that it said is in the pipe: nobody else has it open, and it is less than a pipe holds. */
        while (cop_buf_read(&text, d->out_fd, 4096) > 0)
                ;
        finish(d, cop_checks_parse(text.len ? text.data : "", text.len));
}

static int probe(struct cop_doctor *d, struct cop_error *err)
{
        struct cop_engine *e = d->engine;
        const struct cop_child_spec spec = {
                .path = e->keeper_path,
                .argv = (const char *const[]){"coppice-keeper", "--probe", e->home, NULL},
                .cwd = "/",
                .death_signal = SIGKILL,
        };
        pid_t pid;

        int r = cop_child_spawn_output(&spec, &pid, &d->out_fd, err);
        if (r < 0)
                return r;
        cop_set_nonblock(d->out_fd, 1);
        if ((r = cop_loop_add_child(e->loop, pid, on_probed, d, &d->child, err)) < 0)
                kill(pid, SIGKILL);
        return r;
}

void cop_engine_doctor(struct cop_engine *e, struct cop_op_to to)
{
        struct cop_doctor *d = calloc(1, sizeof(*d));
        struct cop_error err;

        if (!d) {
                cop_error_errno(&err, ENOMEM, "doctor");
                cop_answer(to, NULL, &err);
                return;
        }
        *d = (struct cop_doctor){.engine = e, .next = e->doctors, .out_fd = -EBADF};
        e->doctors = d;
        d->op = cop_op_new(e, to, NULL, NULL);
        if (!d->op)
                doctor_free(d);
        else if (probe(d, &err) < 0)
                finish(d, NULL);
}
