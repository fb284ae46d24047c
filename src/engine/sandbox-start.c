/* Theory of operation
 *
 * Creating a sandbox goes through these steps; each leaves enough on disk for a later daemon to undo it:
 *
 *      1  row "starting" in the store: name and uid range are taken
 *      2  folders: sandboxes/<id>/{fs,run/ipc,logs}
 *      3  coppice-keeper, listening at run/keeper.sock; it outlives us.  (For a fork 2 and 3 come first: sandbox-prepare.c)
 *      4  START: namespaces, mounts, cgroup, init.  The reply comes when init is ready
 *      5  row "running"
 *      6  the default context's kernel begins to start, the caller is answered
 *
 * A failure anywhere ends the sandbox with the reason start_failed, through the same steps as any other end
 * (sandbox-end.c).  When the daemon dies before 5, the next one finds the row "starting" and does that.
 */
#include "engine/node.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/parse.h"
#include "base/utf8.h"
#include "engine/uids.h"
#include "sandbox/hosts.h"

#define START_DEADLINE (30 * USEC_PER_SEC)
#define MEMORY_DEFAULT (2ULL << 30)
#define PIDS_DEFAULT 512
#define NOFILE_DEFAULT 65536

struct cop_sandbox_start {
        struct cop_op *op;
        usec_t begun; /* CLOCK_MONOTONIC */
        bool start_kernel;
        char *thaw_node;                /* owned: made from this node, memory included; NULL = an init of its own */
        bool golden;                    /* nobody asked for that node: it boots when it cannot be thawed */
        struct cop_spare_branch branch; /* else */
        const char *not_golden;         /* a literal: the parameter because of which it is not */
};

/* -- parameters -> row --------------------------------------------------------------------------------------------- */

static int get_own_limits(const struct cop_sandbox_params *p, struct cop_sandbox_limits *ret, struct cop_error *err)
{
        struct rlimit files = {.rlim_max = NOFILE_DEFAULT};

        getrlimit(RLIMIT_NOFILE, &files);
        unsigned most = (unsigned)MIN_OF(files.rlim_max, (rlim_t)1 << 20);
        *ret = (struct cop_sandbox_limits){
                .memory = p->memory ? p->memory : MEMORY_DEFAULT,
                .cpu_milli = p->cpu_milli ? p->cpu_milli : 1000 * (unsigned)MAX_OF(sysconf(_SC_NPROCESSORS_ONLN), 1),
                .pids = p->pids ? p->pids : PIDS_DEFAULT,
                .nofile = p->nofile ? p->nofile : MIN_OF(most, (unsigned)NOFILE_DEFAULT),
        };
        if (ret->nofile > most)
                return cop_error_set(err, ERANGE, COP_ERR_bad_request, "field \"nofile\": this host allows at most %u",
                                     most);
        return cop_limits_check(ret, err);
}

/* What a caller leaves open is as it was in the sandbox that the node is of. */
static int get_limits(const struct cop_sandbox_params *p, const struct cop_node_row *node,
                      struct cop_sandbox_limits *ret, struct cop_error *err)
{
        _cleanup_json_ json_t *spec = node ? json_loads(node->spec, 0, NULL) : NULL;
        json_t *limits = json_object_get(spec, "limits");
        struct cop_sandbox_params full = *p;

        if (limits) {
                _cleanup_free_ char *text = json_dumps(limits, JSON_COMPACT);
                struct cop_sandbox_limits was;
                cop_limits_from_json(text, &was);
                full.memory = p->memory ? p->memory : was.memory;
                full.cpu_milli = p->cpu_milli ? p->cpu_milli : was.cpu_milli;
                full.pids = p->pids ? p->pids : was.pids;
                full.nofile = p->nofile ? p->nofile : was.nofile;
        }
        return get_own_limits(&full, ret, err);
}

/* The policy of the source, but for what makes it stay; its environment only when it was asked for. */
static int inherit(const struct cop_sandbox_params *p, const struct cop_node_row *node, struct cop_sandbox_row *row,
                   struct cop_error *err)
{
        _cleanup_json_ json_t *spec = json_loads(node->spec, 0, NULL);
        json_t *policy = json_object_get(spec, "policy"), *env = json_object_get(spec, "env");
        char *text = NULL;

        memcpy(row->origin_node, node->id, sizeof(row->origin_node));
        snprintf(row->fork_id, sizeof(row->fork_id), "%s", p->fork ? p->fork : "");
        if (!p->policy && json_object_size(policy) > 0) {
                json_object_del(policy, "persistent");
                json_object_del(policy, "copy");
                row->policy = json_dumps(policy, JSON_COMPACT);
        }
        if (!p->inherit_env || json_object_size(env) == 0)
                return 0;
        if (p->env)
                json_object_update(env, p->env);
        int r = cop_env_to_json(env, &text, err);
        if (r == 0) {
                free(row->env);
                row->env = text;
        }
        return r;
}

static int check_params(struct cop_engine *e, const struct cop_sandbox_params *p, const struct cop_node_row *node,
                        struct cop_sandbox_row *row, struct cop_sandbox_limits *ret_limits, struct cop_error *err)
{
        int r = p->name ? cop_sandbox_check_name(e, p->name, NULL, err) : 0;

        if (r == 0)
                r = get_limits(p, node, ret_limits, err);
        if (r == 0)
                r = cop_labels_to_json(p->labels, "labels", &row->labels, err);
        if (r == 0)
                r = cop_metadata_to_json(p->metadata, &row->metadata, err);
        if (r == 0)
                r = cop_env_to_json(p->env, &row->env, err);
        if (r == 0 && p->policy)
                r = cop_policy_to_json(NULL, p->policy, &row->policy, err);
        return r;
}

static int fill_row(struct cop_engine *e, const struct cop_sandbox_params *p, const struct cop_node_row *node,
                    struct cop_sandbox_row *row, struct cop_error *err)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *image = NULL;
        _cleanup_json_ json_t *defaults = NULL;
        struct cop_sandbox_limits limits;

        int r = check_params(e, p, node, row, &limits, err);
        if (r < 0)
                return r;
        const char *image_ref = node ? node->image_id : p->image ? p->image : "code-interpreter";
        r = cop_image_lookup(e, image_ref, &image, NULL, &defaults, err);
        if (r < 0)
                return r;
        snprintf(row->state, sizeof(row->state), "starting");
        snprintf(row->image_id, sizeof(row->image_id), "%s", image->id);
        row->image_name = image->name ? strdup(image->name) : NULL;
        row->limits = cop_limits_to_json(&limits);
        row->user = cop_json_copy_str(defaults, "user");
        row->workdir = cop_json_copy_str(defaults, "workdir");
        row->boot_id = strdup(e->boot_id);
        if (node && (r = inherit(p, node, row, err)) < 0)
                return r;
        if (node) {
                memcpy(row->node_id, node->id, sizeof(row->node_id));
                row->layers = cop_layers_cut(e, node->layers);
                cop_history_begin(e, row, node);
        }
        if (p->copy) {
                free(row->policy);
                row->policy = strdup("{\"copy\":true,\"idle_seconds\":0,\"checkpoints\":\"off\"}");
        }
        row->ttl = p->ttl == USEC_INFINITY ? 0 : p->ttl;
        row->created_at = cop_now(CLOCK_REALTIME);
        if (p->name && !(row->name = strdup(p->name)))
                return cop_error_errno(err, ENOMEM, "sandbox");
        return row->limits && row->boot_id && (row->policy || !p->copy) ? 0 : cop_error_errno(err, ENOMEM, "sandbox");
}

/* Ids and uid ranges are chosen freely, so a clash is only a reason to choose again. */
static int insert_row(struct cop_engine *e, const struct cop_sandbox *prepared, struct cop_sandbox_row *row,
                      struct cop_error *err)
{
        int r = -EEXIST;

        if (prepared && cop_sandbox_prepared_like(prepared, row)) {
                memcpy(row->id, prepared->row->id, sizeof(row->id));
                row->slot = prepared->row->slot;
                r = cop_store_sandbox_insert(e->store, row, err);
                if (r != -EEXIST || err->code == COP_ERR_name_taken)
                        return r;
        }
        for (int tries = 0; r == -EEXIST && tries < 10; tries++) {
                cop_id_new(row->id, "sb_", 10);
                r = cop_store_sandbox_free_slot(e->store, 0, e->slots, &row->slot, err);
                if (r == 0)
                        r = cop_store_sandbox_insert(e->store, row, err);
                if (r == -EEXIST && err->code == COP_ERR_name_taken)
                        break;
        }
        return r;
}

/* -- folders ------------------------------------------------------------------------------------------------------- */

static int make_folder(int at_fd, const char *name, mode_t mode, struct cop_error *err)
{
        /* fchmodat: whatever the umask, the sandbox sees run/ipc with this mode. */
        if ((mkdirat(at_fd, name, 0700) < 0 && errno != EEXIST) || fchmodat(at_fd, name, mode, 0) < 0)
                return cop_error_errno(err, errno, "making the folder %s of a sandbox", name);
        return 0;
}

int cop_sandbox_make_folders(struct cop_sandbox *sb, struct cop_error *err)
{
        /* The outermost folder is closed to all other users of the host: below it lie setuid programs and the sockets.
         */
        static const struct {
                const char *name;
                mode_t mode;
        } folders[] = {
                {"fs", 0700}, {"fs/upper", 0755}, {"fs/work", 0755}, {"run", 0700}, {"run/ipc", 01777}, {"logs", 0700},
        };

        if (mkdir(sb->dir, 0700) < 0 && errno != EEXIST)
                return cop_error_errno(err, errno, "making %s", sb->dir);
        _cleanup_close_ int fd = open(sb->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return cop_error_errno(err, errno, "opening %s", sb->dir);
        for (size_t i = 0; i < ELEMENTSOF(folders); i++) {
                int r = make_folder(fd, folders[i].name, folders[i].mode, err);
                if (r < 0)
                        return r;
        }
        return cop_sandbox_open_folders(sb, err);
}

/* Written by the host, so that nobody inside can change it; it tells one thaw from another, and ends with the host. */
void cop_sandbox_write_generation(struct cop_sandbox *sb)
{
        char text[160];

        if (sb->generation_told)
                return;
        sb->generation_told = true;
        int n = snprintf(text, sizeof(text), "{\"sandbox_id\": \"%s\", \"node_id\": \"%s\", \"at\": %llu}\n", sb->id,
                         sb->row->node_id, (unsigned long long)cop_now(CLOCK_REALTIME));
        if (sb->ipc_fd >= 0)
                cop_write_file_unsynced(sb->ipc_fd, "generation", text, (size_t)n, 0444, NULL);
}

/* -- the keeper ---------------------------------------------------------------------------------------------------- */

/* A keeper that died says why on its stderr only. */
void cop_sandbox_add_last_words(struct cop_sandbox *sb, struct cop_error *err)
{
        _cleanup_close_ int fd =
                sb->logs_fd < 0 ? -EBADF : openat(sb->logs_fd, "keeper.log", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        char words[401];
        off_t size;

        if (fd < 0 || (size = lseek(fd, 0, SEEK_END)) <= 0)
                return;
        ssize_t n = pread(fd, words, sizeof(words) - 1, MAX_OF(size - (off_t)sizeof(words) + 1, 0));
        if (n <= 0)
                return;
        while (n > 0 && words[n - 1] == '\n')
                n--;
        words[n] = '\0';
        size_t used = strlen(err->message);
        snprintf(err->message + used, sizeof(err->message) - used, "; its last words: %s", words);
        cop_utf8_trim(err->message);
}

static void fail(struct cop_sandbox *sb, const struct cop_error *err)
{
        struct cop_error wrapped = *err;
        struct cop_op *op = sb->start ? TAKE_PTR(sb->start->op) : NULL;

        if (wrapped.code == COP_ERR_unavailable || wrapped.code == COP_ERR_timeout)
                cop_sandbox_add_last_words(sb, &wrapped);
        /* What the caller can mend keeps its code; the rest is a failed start, whatever the part that failed calls it.
         */
        if (wrapped.code == COP_ERR_internal || wrapped.code == COP_ERR_io_error || wrapped.code == COP_ERR_unavailable)
                wrapped.code = COP_ERR_start_failed;
        cop_error_wrap(&wrapped, -wrapped.errnum, "sandbox %s could not be started", sb->id);
        cop_sandbox_end(sb, "start_failed", NULL);
        cop_op_done(op, NULL, &wrapped);
}

static void start_free(struct cop_sandbox_start *start)
{
        free(start->thaw_node);
        free(start);
}

void cop_sandbox_start_drop(struct cop_sandbox *sb)
{
        if (sb->start)
                start_free(TAKE_PTR(sb->start));
}

void cop_sandbox_start_abort(struct cop_sandbox *sb, const struct cop_error *err)
{
        struct cop_sandbox_start *start = TAKE_PTR(sb->start);

        if (!start)
                return;
        cop_op_done(start->op, NULL, err);
        start_free(start);
}

/* A host name is stricter than a sandbox name: letters, digits and inner hyphens (RFC 1123). */
static void add_hostname(const struct cop_sandbox *sb, struct cop_msg *m)
{
        char host[COP_HOSTNAME_MAX + 1];
        size_t n = 0;

        for (const char *p = sb->name ? sb->name : sb->id; *p && n < COP_HOSTNAME_MAX; p++)
                host[n++] = *p == '_' || *p == '.' ? '-' : *p;
        while (n > 0 && host[n - 1] == '-')
                n--;
        host[n] = '\0';
        cop_msg_add_str(m, COP_TAG_HOSTNAME, host);
}

static void on_started(struct cop_msg *reply, const struct cop_error *err, void *userdata);

static void answer_created(struct cop_sandbox *sb, const struct cop_error *err, void *userdata)
{
        cop_op_done(userdata, sb ? cop_sandbox_view(sb) : NULL, err);
}

/* What is thawed ahead has the name of nobody. */
static void send_name(struct cop_sandbox *sb)
{
        struct cop_msg m;

        cop_msg_init(&m, COP_WIRE_NAME, 0);
        add_hostname(sb, &m);
        cop_keeper_call(sb->keeper, &m, START_DEADLINE, on_started, sb);
}

/* Folders, keeper, START; on_started goes on. */
static int start_processes(struct cop_sandbox *sb, struct cop_error *err)
{
        const char *node = sb->start->thaw_node;
        bool prepared = sb->keeper;

        if (sb->thawed_ahead) {
                sb->thawed_ahead = false;
                if (sb->name)
                        send_name(sb);
                else
                        on_started(NULL, NULL, sb);
                return 0;
        }
        int r = prepared ? 0 : cop_sandbox_make_folders(sb, err);

        if (r == 0 && !prepared)
                r = cop_sandbox_start_keeper(sb, err);
        return r < 0 ? r : cop_sandbox_send_start(sb, node, node ? COP_THAW_FORK : 0, on_started, sb, err);
}

/* The image's golden state cannot be thawed: as if there were none. */
static int boot_instead(struct cop_sandbox *sb, const struct cop_error *why, struct cop_error *err)
{
        struct cop_sandbox_row *row = sb->row;
        _cleanup_json_ json_t *detail = json_pack("{s:s, s:s, s:s}", "node_id", row->node_id, "code",
                                                  cop_err_code_name(why->code), "message", why->message);

        cop_log_warning("golden state of image %s: %s", row->image_id, why->message);
        cop_engine_event(sb->engine, "golden.failed", sb->id, detail);
        cop_keeper_kill(sb->keeper);
        cop_sandbox_drop_keeper(sb);
        cop_sandbox_discard_folders(sb);
        sb->start->thaw_node = (free(sb->start->thaw_node), NULL);
        sb->start->golden = false;
        sb->prepare = 0;
        row->node_id[0] = row->origin_node[0] = '\0';
        row->layers = (free(row->layers), NULL);
        int r = cop_node_forget_contexts(sb, err);
        if (r == 0)
                r = cop_store_sandbox_set_node(sb->engine->store, row, err);
        return r < 0 ? r : start_processes(sb, err);
}

/* Where it came from, for those who wonder why it was slow. */
static void tell_started(struct cop_sandbox *sb)
{
        const struct cop_sandbox_start *start = sb->start;
        _cleanup_json_ json_t *detail = start->golden       ? json_pack("{s:s}", "golden_node", start->thaw_node)
                                        : start->not_golden ? json_pack("{s:s}", "not_golden", start->not_golden)
                                                            : NULL;

        cop_engine_event(sb->engine, "sandbox.started", sb->id, detail);
}

static void on_started(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_sandbox *sb = userdata;
        struct cop_error error;

        if (sb->state != COP_SANDBOX_STARTING)
                return; /* removed meanwhile */
        if (err && sb->start->golden) {
                if (boot_instead(sb, err, &error) < 0)
                        fail(sb, &error);
                return;
        }
        if (err) {
                fail(sb, err);
                return;
        }
        if (sb->start->thaw_node) /* its kernels run already: they are connected as after a daemon's restart */
                cop_sandbox_take_over(sb);
        sb->row->started_at = cop_now(CLOCK_REALTIME);
        sb->row->start_time = cop_now(CLOCK_MONOTONIC) - sb->start->begun;
        sb->row->expires_at = sb->row->ttl ? cop_usec_add(sb->row->started_at, sb->row->ttl) : 0;
        if (cop_store_sandbox_started(sb->engine->store, sb->row, &error) < 0) {
                fail(sb, &error);
                return;
        }
        snprintf(sb->row->state, sizeof(sb->row->state), "running");
        cop_sandbox_write_generation(sb);
        tell_started(sb);
        struct cop_sandbox_start *start = TAKE_PTR(sb->start);
        if (start->thaw_node) {
                if (!sb->policy.copy)
                        cop_spare_make_like(sb->engine, sb->row, start->golden ? NULL : &start->branch);
                cop_sandbox_when_running(sb->engine, sb->id, answer_created, start->op);
                start_free(start);
                return;
        }
        sb->state = COP_SANDBOX_RUNNING;
        cop_contexts_start(sb, start->start_kernel);
        cop_op_done(start->op, cop_sandbox_view(sb), NULL);
        start_free(start);
        if (sb->state == COP_SANDBOX_RUNNING)
                cop_sandbox_now_running(sb);
}

static int add_path(struct cop_msg *m, unsigned short tag, const char *folder, const char *name, struct cop_error *err)
{
        char path[4200];

        int r = cop_path_format(path, sizeof(path), "%s/%s", folder, name);
        if (r < 0)
                return cop_error_errno(err, r, "%s", folder);
        cop_msg_add_str(m, tag, path);
        return 0;
}

/* What is its own, whatever it is made from and called: all of PREPARE. */
static int add_own(struct cop_sandbox *sb, struct cop_msg *m, struct cop_error *err)
{
        struct cop_sandbox_limits limits;

        cop_limits_from_json(sb->row->limits, &limits);
        cop_msg_add_str(m, COP_TAG_CGROUP, sb->id);
        cop_msg_add_u64(m, COP_TAG_UID_BASE, sb->engine->uid_base + sb->row->slot * COP_SLOT_IDS);
        cop_msg_add_u64(m, COP_TAG_DEFAULT_UID, (uint64_t)json_integer_value(json_object_get(sb->defaults, "uid")));
        cop_msg_add_u64(m, COP_TAG_DEFAULT_GID, (uint64_t)json_integer_value(json_object_get(sb->defaults, "gid")));
        cop_msg_add_str(m, COP_TAG_CWD, sb->row->workdir);
        cop_msg_add_u64(m, COP_TAG_MEMORY_MAX, limits.memory);
        cop_msg_add_u64(m, COP_TAG_CPU_MILLI, limits.cpu_milli);
        cop_msg_add_u64(m, COP_TAG_PIDS_MAX, limits.pids);
        cop_msg_add_u64(m, COP_TAG_NOFILE, limits.nofile);
        int r = add_path(m, COP_TAG_UPPER, sb->dir, "fs", err);
        if (r == 0)
                r = add_path(m, COP_TAG_IPC, sb->dir, "run/ipc", err);
        return r < 0 ? r : add_path(m, COP_TAG_LOGS, sb->dir, "logs", err);
}

static int add_image_path(struct cop_sandbox *sb, struct cop_msg *m, struct cop_error *err)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *image = NULL;

        int r = cop_store_image_get(sb->engine->store, sb->row->image_id, &image, err);
        return r < 0 ? r : add_path(m, COP_TAG_LOWER, image->path, "rootfs", err);
}

/* The layers of nodes lie above the image's, so they come first. */
static int add_node_paths(struct cop_sandbox *sb, const char *thaw_node, struct cop_msg *m, struct cop_error *err)
{
        _cleanup_json_ json_t *layers = sb->row->layers ? json_loads(sb->row->layers, 0, NULL) : NULL;
        char path[4200];
        json_t *layer;
        size_t i;

        json_array_foreach (layers, i, layer) {
                int r = cop_layer_path(sb->engine, json_string_value(layer), path, sizeof(path), err);
                if (r < 0)
                        return r;
                cop_msg_add_str(m, COP_TAG_LOWER, path);
        }
        if (!thaw_node)
                return 0;
        int r = cop_path_format(path, sizeof(path), "%s/nodes/%s", sb->engine->home, thaw_node);
        if (r < 0)
                return cop_error_errno(err, r, "%s", sb->engine->home);
        cop_msg_add_str(m, COP_TAG_THAW, path);
        return 0;
}

int cop_sandbox_send_start(struct cop_sandbox *sb, const char *thaw_node, unsigned flags, cop_keeper_reply_fn fn,
                           void *userdata, struct cop_error *err)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;

        sb->generation_told = false;
        cop_msg_init(&m, COP_WIRE_START, 0);
        if (flags)
                cop_msg_add_u64(&m, COP_TAG_FLAGS, flags);
        add_hostname(sb, &m);
        int r = add_own(sb, &m, err);
        if (r == 0)
                r = add_node_paths(sb, thaw_node, &m, err);
        if (r == 0)
                r = add_image_path(sb, &m, err);
        if (r == 0)
                cop_keeper_call(sb->keeper, &m, START_DEADLINE, fn, userdata);
        return r;
}

int cop_sandbox_send_prepare(struct cop_sandbox *sb, struct cop_error *err)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;

        cop_msg_init(&m, COP_WIRE_PREPARE, 0);
        int r = add_own(sb, &m, err);
        if (r == 0)
                cop_keeper_call(sb->keeper, &m, START_DEADLINE, NULL, NULL);
        return r;
}

int cop_sandbox_spawn_keeper(struct cop_sandbox *sb, int uids_fd, const struct cop_keeper_events *events,
                             struct cop_error *err)
{
        char socket_path[4200], log_path[4200];

        int r = cop_path_format(socket_path, sizeof(socket_path), "%s/run/keeper.sock", sb->dir);
        if (r == 0)
                r = cop_path_format(log_path, sizeof(log_path), "%s/logs/keeper.log", sb->dir);
        if (r < 0)
                return cop_error_errno(err, r, "%s", sb->dir);
        const struct cop_keeper_start start = {sb->engine->keeper_path, socket_path, log_path, uids_fd};
        return cop_keeper_start(sb->engine->loop, &start, events, &sb->keeper, err);
}

int cop_sandbox_start_keeper(struct cop_sandbox *sb, struct cop_error *err)
{
        const struct cop_keeper_events events = {cop_sandbox_on_event, cop_sandbox_on_lost, sb};
        _cleanup_close_ int uids_fd = -EBADF;
        unsigned slot = sb->row->slot;

        int r = cop_uids_take(sb->engine, &slot, &uids_fd, err);
        if (r == 0 && slot != sb->row->slot)
                r = cop_store_sandbox_set_slot(sb->engine->store, sb->id, slot, err);
        if (r < 0)
                return r;
        sb->row->slot = slot;
        return cop_sandbox_spawn_keeper(sb, uids_fd, &events, err);
}

/* -- the operation ------------------------------------------------------------------------------------------------- */

/* The caller went away before it learned the id: nobody would ever use the sandbox. */
static void on_cancel(void *data)
{
        struct cop_sandbox *sb = data;

        cop_sandbox_end(sb, "removed", NULL);
}

/* Its head is the node: what it saves later is told against that. */
static int set_golden(const struct cop_node_row *node, struct cop_sandbox_row *row, struct cop_error *err)
{
        memcpy(row->node_id, node->id, sizeof(row->node_id));
        memcpy(row->origin_node, node->id, sizeof(row->origin_node));
        row->layers = strdup(node->layers);
        return row->layers ? 0 : cop_error_errno(err, ENOMEM, "sandbox");
}

/* What it starts as is in sb->start; node NULL = its image. */
static int prepare_start(struct cop_sandbox *sb, const struct cop_sandbox_params *p, const struct cop_node_row *node,
                         struct cop_error *err)
{
        int r = cop_sandbox_read_image(sb, err);

        if (r < 0)
                return r;
        if (!(sb->start = calloc(1, sizeof(*sb->start))))
                return cop_error_errno(err, ENOMEM, "sandbox");
        sb->start->start_kernel = p->start_kernel;
        if (!node || p->files_only || strcmp(node->kind, "memory") != 0)
                return 0;
        sb->start->thaw_node = strdup(node->id);
        sb->start->golden = !p->node;
        sb->start->branch.count = MAX_OF(p->branches, 1u);
        if (sb->row->fork_id[0])
                memcpy(sb->start->branch.source, node->sandbox_id, sizeof(node->sandbox_id));
        sb->prepare = cop_node_prepare(node) & ~(p->no_reseed ? COP_PREPARE_SEED : 0);
        return sb->start->thaw_node ? cop_node_restore_contexts(sb, node, p->inherit_env, err)
                                    : cop_error_errno(err, ENOMEM, "sandbox");
}

/* prepared: the caller's to be unprepared; the spare takes its place where there is none. */
static int begin(struct cop_engine *e, const struct cop_sandbox_params *p, struct cop_sandbox **prepared,
                 struct cop_sandbox **ret, struct cop_error *err)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *node = NULL;
        struct cop_sandbox_row *row = calloc(1, sizeof(*row));
        usec_t begun = cop_now(CLOCK_MONOTONIC);
        const char *not_golden = NULL;

        int r = row ? 0 : cop_error_errno(err, ENOMEM, "sandbox");
        if (r == 0 && p->node)
                r = cop_store_node_get(e->store, p->node, &node, err);
        if (r == 0)
                r = fill_row(e, p, node, row, err);
        if (r == 0 && !p->node && (node = cop_golden_for(e, p, row, &not_golden)))
                r = set_golden(node, row, err);
        if (r == 0 && node && !*prepared && !p->files_only && !p->copy)
                *prepared = cop_spare_take(e, row);
        if (r == 0)
                r = insert_row(e, *prepared, row, err);
        if (r < 0) {
                cop_sandbox_row_free(row);
                return r;
        }
        char id[COP_ID_MAX];
        snprintf(id, sizeof(id), "%s", row->id);
        struct cop_sandbox *sb = NULL;
        r = cop_sandbox_new(e, row, &sb, err);
        if (r == 0)
                r = prepare_start(sb, p, node, err);
        if (r < 0) {
                if (sb)
                        cop_sandbox_drop(sb);
                cop_store_sandbox_delete(e->store, id, NULL);
                return r;
        }
        sb->start->begun = begun;
        sb->start->not_golden = not_golden;
        if (*prepared && strcmp((*prepared)->id, sb->id) == 0)
                cop_sandbox_take_prepared(sb, *prepared);
        *ret = sb;
        return 0;
}

void cop_sandbox_create(struct cop_engine *e, const struct cop_sandbox_params *p, struct cop_op_to to,
                        struct cop_op **ret_op)
{
        struct cop_sandbox *sb = NULL, *prepared = p->prepared;
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        int r = begin(e, p, &prepared, &sb, &err);
        cop_sandbox_unprepare(prepared); /* what of it was not taken over */
        if (r < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        sb->start->op = cop_op_new(e, to, on_cancel, sb);
        if (!sb->start->op) {
                cop_sandbox_end(sb, "start_failed", NULL);
                return;
        }
        uint64_t serial = cop_op_serial(sb->start->op);
        cop_engine_event(e, "sandbox.created", sb->id, NULL);
        if (start_processes(sb, &err) < 0)
                fail(sb, &err);
        if (ret_op)
                *ret_op = cop_op_find(e, serial);
}
