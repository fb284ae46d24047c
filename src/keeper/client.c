/* The daemon's side of the keeper: one client at a time, requests, replies. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "keeper/command.h"
#include "keeper/keep.h"
#include "keeper/node.h"
#include "sandbox/wire.h"

void cop_keep_reply(struct cop_keep *k, uint64_t client, uint32_t id, struct cop_msg *m)
{
        static const struct cop_error too_big = {
                .errnum = ENOMEM, .code = COP_ERR_no_memory, .message = "the keeper could not build its answer"};

        if (m->failed) { /* it would not be sent, and the client wait for ever */
                cop_msg_done(m);
                cop_msg_init(m, COP_WIRE_REPLY, id);
                cop_msg_add_error(m, &too_big);
        }
        m->type = COP_WIRE_REPLY;
        m->id = id;
        if (k->client && client == k->client_number && id != 0)
                cop_link_send(k->client, m);
        else
                cop_msg_done(m);
}

void cop_keep_reply_error(struct cop_keep *k, uint64_t client, uint32_t id, const struct cop_error *err)
{
        struct cop_msg m;

        cop_msg_init(&m, COP_WIRE_REPLY, id);
        cop_msg_add_error(&m, err);
        cop_keep_reply(k, client, id, &m);
}

bool cop_keep_client_ready(const struct cop_keep *k)
{
        return k->client && !cop_link_busy(k->client);
}

static const char *state_name(const struct cop_keep *k)
{
        switch (k->state) {
        case COP_KEEP_NEW:
        case COP_KEEP_STARTING:
                return "new";
        case COP_KEEP_RUNNING:
                return "running";
        case COP_KEEP_STOPPING:
        case COP_KEEP_ENDED:
                break;
        }
        return "ended";
}

static void handle_hello(struct cop_keep *k, struct cop_msg *m)
{
        struct cop_error err = COP_ERROR_NULL;
        uint64_t version = cop_msg_u64_or(m, COP_TAG_VERSION, COP_WIRE_VERSION);
        struct cop_msg reply;

        if (version != COP_WIRE_VERSION) { /* the numbers of messages mean something else */
                cop_error_set(&err, EPROTO, COP_ERR_unsupported,
                              "this keeper speaks version %d of the protocol and was asked for %llu; end the sandbox "
                              "and start it anew",
                              COP_WIRE_VERSION, (unsigned long long)version);
                cop_keep_reply_error(k, k->client_number, m->id, &err);
                return;
        }
        cop_msg_init(&reply, COP_WIRE_REPLY, 0);
        cop_msg_add_u64(&reply, COP_TAG_VERSION, COP_WIRE_VERSION);
        cop_msg_add_str(&reply, COP_TAG_ID, k->id);
        cop_msg_add_str(&reply, COP_TAG_STATE, state_name(k));
        cop_msg_add_u64(&reply, COP_TAG_INIT_PID, (uint64_t)k->init_pid);
        if (k->state == COP_KEEP_ENDED) {
                cop_msg_add_str(&reply, COP_TAG_REASON, k->reason);
                k->end_told = true;
        }
        cop_keep_reply(k, k->client_number, m->id, &reply);
}

static void handle_file(struct cop_keep *k, struct cop_msg *m)
{
        struct cop_error err = COP_ERROR_NULL;
        uint32_t id = m->id;
        int r;

        m->type = COP_WIRE_OPEN;
        if (m->fd_count > 1)
                r = cop_error_set(&err, EINVAL, COP_ERR_bad_request, "FILE takes at most one descriptor");
        else if (k->state != COP_KEEP_RUNNING)
                r = cop_error_set(&err, EINVAL, COP_ERR_invalid_state, "the sandbox does not run");
        else
                r = cop_keep_call(k, m, id, NULL, &err);
        if (r < 0)
                cop_keep_reply_error(k, k->client_number, id, &err);
}

static void handle_stats(struct cop_keep *k, struct cop_msg *m)
{
        struct cop_cgroup_stats stats;
        struct cop_msg reply;

        cop_keep_stats(k, &stats);
        cop_msg_init(&reply, COP_WIRE_REPLY, 0);
        cop_msg_add_u64(&reply, COP_TAG_MEMORY, stats.memory);
        cop_msg_add_u64(&reply, COP_TAG_MEMORY_PEAK, stats.memory_peak);
        cop_msg_add_u64(&reply, COP_TAG_MEMORY_MAX, stats.memory_max);
        cop_msg_add_u64(&reply, COP_TAG_OOM_KILLS, stats.oom_kills);
        cop_msg_add_u64(&reply, COP_TAG_CPU_USEC, stats.cpu_usec);
        cop_msg_add_u64(&reply, COP_TAG_PIDS, stats.pids);
        cop_keep_reply(k, k->client_number, m->id, &reply);
}

static void handle_limits(struct cop_keep *k, struct cop_msg *m)
{
        const struct cop_limits limits = {.memory_max = cop_msg_u64_or(m, COP_TAG_MEMORY_MAX, COP_LIMIT_KEEP),
                                          .cpu_milli = cop_msg_u64_or(m, COP_TAG_CPU_MILLI, COP_LIMIT_KEEP),
                                          .pids_max = cop_msg_u64_or(m, COP_TAG_PIDS_MAX, COP_LIMIT_KEEP)};
        struct cop_error err = COP_ERROR_NULL;
        struct cop_msg reply;
        int r;

        if (!k->sandbox)
                r = cop_error_set(&err, EINVAL, COP_ERR_invalid_state, "the sandbox does not run");
        else
                r = cop_cgroup_limits(cop_sandbox_cgroup(k->sandbox), &limits, &err);
        if (r < 0) {
                cop_keep_reply_error(k, k->client_number, m->id, &err);
                return;
        }
        cop_msg_init(&reply, COP_WIRE_REPLY, 0);
        cop_keep_reply(k, k->client_number, m->id, &reply);
}

static void on_message(struct cop_link *link, struct cop_msg *m, void *userdata)
{
        struct cop_keep *k = userdata;
        struct cop_error err = COP_ERROR_NULL;

        switch (m->type) {
        case COP_WIRE_HELLO:
                handle_hello(k, m);
                break;
        case COP_WIRE_PREPARE:
                cop_keep_prepare(k, m);
                break;
        case COP_WIRE_NAME:
                cop_keep_name(k, m);
                break;
        case COP_WIRE_START:
                cop_keep_start(k, m);
                break;
        case COP_WIRE_STOP:
                cop_keep_stop(k, k->client_number, m->id, cop_msg_u64_or(m, COP_TAG_TIMEOUT, 0));
                break;
        case COP_WIRE_EXEC:
                cop_keep_exec(k, m);
                break;
        case COP_WIRE_SIGNAL:
                cop_keep_signal(k, m);
                break;
        case COP_WIRE_FILE:
                handle_file(k, m);
                break;
        case COP_WIRE_STATS:
                handle_stats(k, m);
                break;
        case COP_WIRE_LIST:
                cop_keep_list(k, m);
                break;
        case COP_WIRE_FORGET:
                cop_keep_forget(k, m);
                break;
        case COP_WIRE_LIMITS:
                handle_limits(k, m);
                break;
        case COP_WIRE_STILL:
                cop_keep_still(k, m);
                break;
        case COP_WIRE_FREEZE:
                cop_keep_freeze(k, m);
                break;
        default:
                cop_error_set(&err, EBADMSG, COP_ERR_internal, "the keeper does not know request type %u", m->type);
                cop_keep_reply_error(k, k->client_number, m->id, &err);
        }
}

static void on_writable(struct cop_link *link, void *userdata)
{
        cop_keep_schedule_flush(userdata);
}

static void on_closed(struct cop_link *link, void *userdata)
{
        struct cop_keep *k = userdata;

        k->client = cop_link_free(link);
        cop_keep_arm_idle(k);
}

static const struct cop_link_calls client_calls = {.message = on_message, .writable = on_writable, .closed = on_closed};

static void on_connection(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_keep *k = userdata;
        struct cop_error err = COP_ERROR_NULL;
        struct cop_link *link = NULL;
        int client_fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct ucred peer = {.uid = (uid_t)-1};
        socklen_t n = sizeof(peer);

        if (client_fd < 0)
                return;
        /* The socket lies in a private folder; who comes all the same must be root or who started us. */
        if (getsockopt(client_fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0 || (peer.uid != 0 && peer.uid != geteuid())) {
                cop_log_warning("turned away a client of uid %u", (unsigned)peer.uid);
                cop_close(client_fd);
                return;
        }
        if (cop_link_new(k->loop, client_fd, &client_calls, k, &link, &err) < 0) {
                cop_log_warning("a client was turned away: %s", err.message);
                return;
        }
        cop_keep_node_abort(k,
                            "another client has come"); /* it knows of no FREEZE; an END would take its sandbox away */
        cop_link_free(k->client);
        k->client = link;
        k->client_number++;
        cop_source_set_time(k->idle_timer, USEC_INFINITY);
        /* What happened before this client came is told by HELLO and LIST, not by late events. */
        for (struct cop_command *c = k->commands; c; c = c->next)
                c->log_event = c->exit_event = c->eof_event = false;
}

int cop_keep_listen(struct cop_keep *k, struct cop_error *err)
{
        if (cop_set_nonblock(k->listen_fd, 1) < 0 || cop_set_cloexec(k->listen_fd, 1) < 0)
                return cop_error_errno(err, errno, "listening socket");
        return cop_loop_add_io(k->loop, k->listen_fd, EPOLLIN, on_connection, k, &k->listen_source, err);
}
