#include "engine/compare.h"
#include "engine/engine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "engine/node.h"
#include "engine/pack.h"
#include "engine/record.h"
#include "engine/uids.h"
#include "jupyter/kernel.h"
#include "sandbox/cgroup.h"

/* -- life ---------------------------------------------------------------------------------------------------------- */

static int make_home(struct cop_engine *e, struct cop_error *err)
{
        static const struct {
                const char *name;
                bool spread; /* much comes and goes in it */
        } folders[] = {{"", false}, {"/images", false}, {"/sandboxes", true}, {"/nodes", true}, {"/logs", false}};
        char path[4200];

        if (e->home[0] != '/' || strlen(e->home) > 3000)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "COPPICE_HOME must be an absolute path of at most 3000 bytes, not \"%.100s\"",
                                     e->home);
        for (size_t i = 0; i < ELEMENTSOF(folders); i++) {
                int r = cop_path_format(path, sizeof(path), "%s%s", e->home, folders[i].name);
                r = r < 0 ? cop_error_errno(err, r, "%s", e->home) : cop_mkdir_p(path, 0700, err);
                if (r < 0)
                        return r;
                if (folders[i].spread)
                        cop_spread_subfolders(path);
        }
        return 0;
}

/* Two engines on one home would take each other's keepers away. */
static int lock_home(struct cop_engine *e, struct cop_error *err)
{
        char path[4200];

        int r = cop_path_format(path, sizeof(path), "%s/engine.lock", e->home);
        e->lock_fd = r < 0 ? r : open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (e->lock_fd < 0)
                return cop_error_errno(err, errno, "opening %s", path);
        if (flock(e->lock_fd, LOCK_EX | LOCK_NB) < 0)
                return cop_error_set(err, EBUSY, COP_ERR_in_use,
                                     "another coppiced works in %s; stop it or choose another COPPICE_HOME", e->home);
        return 0;
}

static int read_boot_id(struct cop_engine *e, struct cop_error *err)
{
        _cleanup_free_ char *word = NULL;

        int r = cop_read_word(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &word, err);
        if (r == 0)
                snprintf(e->boot_id, sizeof(e->boot_id), "%s", word);
        return r;
}

static int open_store(struct cop_engine *e, struct cop_error *err)
{
        char path[4200];

        int r = cop_path_format(path, sizeof(path), "%s/coppice.db", e->home);
        return r < 0 ? cop_error_errno(err, r, "%s", e->home) : cop_store_open(path, &e->store, err);
}

static int open_engine(struct cop_engine *e, const struct cop_engine_config *config, struct cop_error *err)
{
        e->home = strdup(config->home);
        e->keeper_path = strdup(config->keeper_path);
        e->pack_path = strdup(config->pack_path ? config->pack_path : "");
        e->image_tool = strdup(config->image_tool);
        e->recipes = strdup(config->recipes);
        e->compare_path = config->compare_path ? strdup(config->compare_path) : NULL;
        if (!e->home || !e->keeper_path || !e->pack_path || !e->image_tool || !e->recipes)
                return cop_error_errno(err, ENOMEM, "engine");
        int r = cop_uids_choose(e, config, err);
        if (r == 0)
                r = make_home(e, err);
        if (r == 0)
                r = lock_home(e, err);
        if (r == 0)
                r = read_boot_id(e, err);
        if (r == 0)
                r = open_store(e, err);
        if (r == 0) /* folders are swept by what its rows say */
                r = cop_store_sync(e->store, err);
        if (r == 0)
                r = cop_durable_new(e, err);
        if (r == 0)
                r = cop_record_hub_new(e, &e->records, err);
        if (r == 0)
                r = cop_trash_new(e, err);
        if (r == 0)
                r = cop_policy_new(e, err);
        if (r < 0)
                return r;
        cop_images_sweep(e);
        return cop_engine_adopt(e, err);
}

int cop_engine_new(struct cop_loop *loop, const struct cop_engine_config *config, struct cop_engine **ret,
                   struct cop_error *err)
{
        struct cop_engine *e = calloc(1, sizeof(*e));

        if (!e)
                return cop_error_errno(err, ENOMEM, "engine");
        e->loop = loop;
        e->lock_fd = -EBADF;
        e->no_spare = config->no_spare;
        e->cgroup_moves_fd = cop_cgroup_favor_moves();
        e->started_at = cop_now(CLOCK_REALTIME);
        int r = open_engine(e, config, err);
        if (r < 0) {
                cop_engine_free(e);
                return r;
        }
        *ret = e;
        return 0;
}

struct cop_engine *cop_engine_free(struct cop_engine *e)
{
        struct cop_error err;

        if (!e)
                return NULL;
        e->closing = true;
        cop_durable_free(e);
        cop_images_drop(e);
        cop_gc_drop(e);
        cop_packs_drop(e);
        cop_doctors_drop(e);
        cop_comparisons_drop(e);
        cop_spare_drop(e);
        cop_engine_prepared_drop(e);
        cop_engine_adopt_drop(e);
        while (e->sandboxes) {
                cop_contexts_detach(e->sandboxes);
                cop_commands_detach(e->sandboxes);
                cop_sandbox_drop(e->sandboxes);
        }
        cop_error_set(&err, ESHUTDOWN, COP_ERR_unavailable, "the daemon is stopping");
        while (e->ops)
                cop_op_done(e->ops, NULL, &err);
        cop_holds_drop(e);
        cop_golden_drop(e); /* their steps were operations */
        cop_source_free(e->ttl_timer);
        cop_source_free(e->purge_timer);
        cop_flattenings_drop(e);
        cop_trash_free(e);
        e->records = cop_record_hub_free(e->records);
        e->jupyter = cop_jupyter_free(e->jupyter);
        e->store = cop_store_close(e->store);
        cop_close(e->lock_fd);
        cop_close(e->cgroup_moves_fd);
        free(e->home);
        free(e->keeper_path);
        free(e->pack_path);
        free(e->image_tool);
        free(e->recipes);
        free(e->compare_path);
        free(e->uid_claims);
        free(e);
        return NULL;
}

/* -- events -------------------------------------------------------------------------------------------------------- */

void cop_engine_event(struct cop_engine *e, const char *type, const char *sandbox_id, json_t *detail)
{
        _cleanup_free_ char *text = detail ? json_dumps(detail, JSON_COMPACT) : NULL;
        struct cop_sandbox *sb = sandbox_id ? cop_sandbox_by_id(e, sandbox_id) : NULL;
        usec_t now = cop_now(CLOCK_REALTIME);
        char stamp[COP_RFC3339_MAX];
        struct cop_error err;

        if (sb && sb->policy.copy)
                return;
        /* Events tell of what has happened already: one that cannot be written undoes nothing. */
        if (cop_store_event_add(e->store, now, type, sandbox_id, text, NULL, &err) < 0)
                cop_log_warning("event %s was not saved: %s", type, err.message);
        cop_record_wake(e, "events");
        if (!sb || sb->logs_fd < 0)
                return;
        _cleanup_json_ json_t *line =
                json_pack("{s:s, s:s, s:s}", "type", type, "at", cop_rfc3339(now, stamp), "sandbox_id", sandbox_id);
        if (!line)
                return;
        json_object_update_missing(line, detail);
        cop_sandbox_log(e, sb->logs_fd, sb->id, line);
}

/* -- what the daemon is -------------------------------------------------------------------------------------------- */

/* VmRSS, in bytes; 0 when it cannot be read. */
static uint64_t resident_bytes(void)
{
        _cleanup_free_ char *text = NULL;
        unsigned long long total, resident;

        if (cop_read_word(AT_FDCWD, "/proc/self/statm", &text, NULL) < 0 ||
            sscanf(text, "%llu %llu", &total, &resident) != 2)
                return 0;
        return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static const char *cgroup_kind(void)
{
        struct cop_cgroup_host host = {0};

        if (cop_cgroup_detect(&host, NULL) < 0)
                return "none";
        const char *kind = host.v2 ? "v2" : "v1";
        cop_cgroup_host_done(&host);
        return kind;
}

void cop_engine_info(struct cop_engine *e, struct cop_op_to to)
{
        static const char *const names[] = {"starting",  "running",  "suspending",
                                            "suspended", "resuming", "ending"}; /* as enum cop_sandbox_state */
        json_int_t counts[ELEMENTSOF(names)] = {0};
        usec_t now = cop_now(CLOCK_REALTIME);
        char stamp[COP_RFC3339_MAX];
        struct rusage usage = {0};

        for (struct cop_sandbox *sb = e->sandboxes; sb; sb = sb->next)
                if (!sb->policy.copy && (size_t)sb->state < ELEMENTSOF(names))
                        counts[sb->state]++;
        json_t *sandboxes = json_object();
        for (size_t i = 0; i < ELEMENTSOF(names); i++)
                json_object_set_new(sandboxes, names[i], json_integer(counts[i]));
        getrusage(RUSAGE_SELF, &usage);
        json_int_t cpu = (json_int_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * (json_int_t)USEC_PER_SEC +
                         usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
        cop_answer(to,
                   json_pack("{s:s, s:i, s:s, s:f, s:s, s:s, s:o, s:I, s:I}", "version", COPPICE_VERSION, "pid",
                             (int)getpid(), "started_at", cop_rfc3339(e->started_at, stamp), "uptime_seconds",
                             now > e->started_at ? (double)(now - e->started_at) / USEC_PER_SEC : 0.0, "home", e->home,
                             "cgroup", cgroup_kind(), "sandboxes", sandboxes, "memory_rss_bytes",
                             (json_int_t)resident_bytes(), "cpu_usec", cpu),
                   NULL);
}
