/* Theory of operation
 *
 * States: CONNECTING -> NUDGING -> READY -> DEAD, and FAILED from everywhere.
 *
 * CONNECTING looks every 5 ms for the four socket files, which a kernel makes some 300 ms after its start.  NUDGING sends
 * kernel_info_request on shell until both a reply and any iopub message have arrived: a SUB socket subscribes behind our
 * back, so a reply alone does not prove that the first cell's output will be seen (notes/jupyter.md 1.3).  One request is
 * out at a time; a starting kernel would have to answer a heap of them before the first cell.  A kernel that is taken over
 * while it runs a cell does not answer on shell: there, control is asked too.  What such a kernel has to run first of all (a
 * greeting) is the first request itself: a kernel that was just thawed meets most of its pages with each new request.
 *
 * Receiving: the descriptor of a zmq socket only says that something changed.  It is a level only towards epoll: the byte
 * in it is taken by any zmq call on that socket, sends included.  So whoever touches a socket enables the pump, a deferred
 * source that receives until nothing is there.  The pump takes at most 32 iopub messages or 1 MiB a turn, then lets the
 * rest of the daemon run and goes on in the next one; shell, stdin and control are small and get a share of their own, so
 * that a flood of output cannot hold back the reply that ends it.
 *
 * Taking over: a ROUTER ignores a peer whose routing id is still in use, and a busy kernel does not notice that the former
 * client is gone.  coppice_kernel has its sockets hand over; with others, the newcomer may be deaf on shell for good.  That
 * shows when an adopted cell becomes idle without a reply: shell and stdin are then opened anew under another id.
 *
 * Meeting: a kernel that is being thawed has its sockets before any of its threads runs.  Whoever connects then has its greetings under
 * way when the kernel wakes, and the kernel's answer before the daemon hears that the thaw is done.
 *
 * A frame over COP_CHANNEL_FRAME_MAX ends iopub's connection for good.  It is opened anew after 50 ms; the cell that runs is
 * marked output_incomplete, and since its idle may have been lost too, it ends by its reply and idle_timeout.
 *
 * Every user callback may free the kernel.  enter/leave count the callbacks on the stack; cop_kernel_free inside one closes
 * everything at once, and the memory goes when the last frame leaves.  Code after a callback must look at k->freed.
 */
#include "kernel-internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "base/json.h"

#define DEFAULT_KERNELS 1000
#define SOCKETS_PER_KERNEL 6
#define DEFAULT_TIMEOUT (60 * USEC_PER_SEC)
#define CONNECT_INTERVAL (5 * USEC_PER_MSEC)
#define NUDGE_SHORT (10 * USEC_PER_MSEC)
#define NUDGE_LONG (1 * USEC_PER_SEC)
#define DEATH_DRAIN (200 * USEC_PER_MSEC)
#define REOPEN_DELAY (50 * USEC_PER_MSEC)
#define PUMP_MESSAGES 32
#define PUMP_BYTES (1024 * 1024)
#define PUMP_SMALL_MESSAGES 8
#define BASE_MAX 60

/* -- shared context ------------------------------------------------------------------------------------------------ */

int cop_jupyter_new(struct cop_loop *loop, size_t max_kernels, struct cop_jupyter **ret_jupyter, struct cop_error *err)
{
        struct cop_jupyter *j = calloc(1, sizeof(*j));
        size_t sockets = (max_kernels ? max_kernels : DEFAULT_KERNELS) * SOCKETS_PER_KERNEL + 16;

        if (!j)
                return cop_error_errno(err, ENOMEM, "zmq context");
        j->loop = loop;
        j->zmq = zmq_ctx_new();
        if (j->zmq) {
                int most = zmq_ctx_get(j->zmq, ZMQ_SOCKET_LIMIT);
                zmq_ctx_set(j->zmq, ZMQ_IO_THREADS, 1);
                zmq_ctx_set(j->zmq, ZMQ_MAX_SOCKETS, sockets < (size_t)most ? (int)sockets : most);
                zmq_ctx_set(j->zmq, ZMQ_BLOCKY, 0);
        }
        if (!j->zmq) {
                cop_jupyter_free(j);
                return cop_error_errno(err, ENOMEM, "zmq context");
        }
        *ret_jupyter = j;
        return 0;
}

struct cop_jupyter *cop_jupyter_free(struct cop_jupyter *j)
{
        if (j && j->zmq)
                while (zmq_ctx_term(j->zmq) < 0 && zmq_errno() == EINTR)
                        ;
        free(j);
        return NULL;
}

/* -- life ----------------------------------------------------------------------------------------------------------- */

static void release(struct cop_kernel *k)
{
        cop_signer_free(k->signer);
        json_decref(k->info);
        json_decref(k->greeting);
        free(k->base);
        free(k->session);
        free(k);
}

void cop_kernel_enter(struct cop_kernel *k)
{
        k->entered++;
}

bool cop_kernel_leave(struct cop_kernel *k)
{
        k->entered--;
        if (!k->freed)
                return true;
        if (k->entered == 0)
                release(k);
        return false;
}

static void close_all(struct cop_kernel *k)
{
        k->timer = cop_source_free(k->timer);
        k->pump = cop_source_free(k->pump);
        for (int i = 0; i < COP_CHANNEL__MAX; i++)
                cop_channel_close(&k->channels[i]);
}

struct cop_kernel *cop_kernel_free(struct cop_kernel *k)
{
        if (!k || k->freed)
                return NULL;
        close_all(k);
        cop_execution_free(TAKE_PTR(k->running));
        k->freed = true;
        if (k->entered == 0)
                release(k);
        return NULL;
}

static const char *base_of(const struct cop_kernel_options *o)
{
        return o->base ? o->base : "k";
}

static int check_options(const struct cop_kernel_options *o, struct cop_error *err)
{
        const char *base = base_of(o), *s = o->session;
        size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

        if (n == 0 || n > 64 || s[n] != '\0')
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "kernel session must be 1-64 of [A-Za-z0-9_-]");
        if (!*base || strlen(base) > BASE_MAX || strchr(base, '/'))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "bad base name of the kernel's sockets");
        return 0;
}

/* -- meeting ---------------------------------------------------------------------------------------------------------- */

struct cop_meeting {
        struct cop_channel channels[COP_CHANNEL__MAX]; /* owned */
};

struct cop_meeting *cop_meeting_free(struct cop_meeting *m)
{
        for (int i = 0; m && i < COP_CHANNEL__MAX; i++)
                cop_channel_close(&m->channels[i]);
        free(m);
        return NULL;
}

int cop_kernel_meet(struct cop_jupyter *j, const struct cop_kernel_options *options, struct cop_meeting **ret,
                    struct cop_error *err)
{
        const struct cop_channel_options channel = {options->dir_fd, base_of(options), options->session,
                                                    options->holds_back};
        int r = check_options(options, err);

        if (r < 0)
                return r;
        struct cop_meeting *m = calloc(1, sizeof(*m));
        if (!m)
                return cop_error_errno(err, ENOMEM, "kernel client");
        for (int i = 0; i < COP_CHANNEL__MAX; i++)
                m->channels[i] = COP_CHANNEL_NULL;
        for (int i = 0; i < COP_CHANNEL__MAX && r >= 0; i++)
                r = cop_channel_open(j->zmq, i, &channel, &m->channels[i], err);
        if (r < 0 && r != -ENOENT) {
                cop_meeting_free(m);
                return r;
        }
        *ret = m;
        return 0;
}

static void take_met(struct cop_kernel *k, struct cop_meeting *m)
{
        for (int i = 0; i < COP_CHANNEL__MAX; i++)
                k->channels[i] = m ? m->channels[i] : COP_CHANNEL_NULL;
        free(m); /* without its channels, which are the kernel's now */
}

/* -- opening ---------------------------------------------------------------------------------------------------------- */

static void on_timer(struct cop_source *s, usec_t now, void *userdata);
static void on_pump(struct cop_source *s, void *userdata);

int cop_kernel_open(struct cop_jupyter *j, const struct cop_kernel_options *options,
                    const struct cop_kernel_events *events, void *userdata, struct cop_kernel **ret_kernel,
                    struct cop_error *err)
{
        char random[17];
        int r = check_options(options, err);
        struct cop_kernel *k = r < 0 ? NULL : calloc(1, sizeof(*k));

        if (!k) {
                cop_meeting_free(options->met);
                return r < 0 ? r : cop_error_errno(err, ENOMEM, "kernel client");
        }
        k->jupyter = j;
        k->loop = j->loop;
        k->events = *events;
        k->userdata = userdata;
        k->dir_fd = options->dir_fd;
        k->adopt = options->adopt;
        k->idle = options->idle;
        k->holds_back = options->holds_back;
        k->base = strdup(base_of(options));
        k->session = strdup(options->session);
        snprintf(k->routing_id, sizeof(k->routing_id), "%s", options->session);
        snprintf(k->id_prefix, sizeof(k->id_prefix), "cop-%s", cop_id_hex(random, 8));
        take_met(k, options->met);

        usec_t now = cop_now(CLOCK_MONOTONIC);
        k->deadline = cop_usec_add(now, options->timeout ? options->timeout : DEFAULT_TIMEOUT);
        r = k->base && k->session ? 0 : cop_error_errno(err, ENOMEM, "kernel client");
        if (r >= 0)
                r = cop_signer_new(options->key, &k->signer, err);
        if (r >= 0)
                r = cop_loop_add_timer(k->loop, now, on_timer, k, &k->timer, err);
        if (r >= 0)
                r = cop_loop_add_defer(k->loop, on_pump, k, &k->pump, err);
        if (r < 0) {
                cop_kernel_free(k);
                return r;
        }
        *ret_kernel = k;
        return 0;
}

bool cop_kernel_is_ready(const struct cop_kernel *k)
{
        return k->state == KERNEL_READY;
}

struct cop_execution *cop_kernel_running(const struct cop_kernel *k)
{
        return k->running;
}

void cop_kernel_get_stats(const struct cop_kernel *k, struct cop_kernel_stats *ret)
{
        *ret = k->stats;
}

/* Callers hold an enter and touch nothing after. */
static void fail(struct cop_kernel *k, const struct cop_error *error)
{
        if (k->freed || k->state == KERNEL_FAILED)
                return;
        k->state = KERNEL_FAILED;
        close_all(k);
        if (k->running)
                cop_execution_finish(k->running);
        if (!k->freed)
                k->events.failed(k, error, k->userdata);
}

/* -- sending ---------------------------------------------------------------------------------------------------------- */

void cop_kernel_new_id(struct cop_kernel *k, char *ret, size_t size)
{
        snprintf(ret, size, "%s-%llu", k->id_prefix, (unsigned long long)++k->id_counter);
}

int cop_kernel_send(struct cop_kernel *k, enum cop_channel_kind channel, const char *type, const char *msg_id,
                    json_t *parent, json_t *content, struct cop_error *err)
{
        _cleanup_(cop_kernel_request_done) struct cop_kernel_request request = {0};
        char id[COP_MESSAGE_ID_MAX];

        if (!content)
                return cop_error_errno(err, ENOMEM, "building a %s", type);
        if (!k->channels[channel].socket || k->state == KERNEL_DEAD)
                return cop_error_set(err, ENOTCONN, COP_ERR_invalid_state, "the kernel is not connected");
        if (!msg_id)
                cop_kernel_new_id(k, id, sizeof(id));
        int r = cop_kernel_request_build(k->signer, k->session, msg_id ? msg_id : id, type, parent, content, &request,
                                         err);
        if (r >= 0)
                r = cop_channel_send(&k->channels[channel], &request, err);
        cop_source_set_enabled(k->pump, 1);
        return r;
}

static int send_empty(struct cop_kernel *k, enum cop_channel_kind channel, const char *type, struct cop_error *err)
{
        _cleanup_json_ json_t *content = json_object();

        return cop_kernel_send(k, channel, type, NULL, NULL, content, err);
}

int cop_kernel_poke(struct cop_kernel *k, struct cop_error *err)
{
        return send_empty(k, COP_CHANNEL_SHELL, "kernel_info_request", err);
}

int cop_kernel_interrupt(struct cop_kernel *k, struct cop_error *err)
{
        return send_empty(k, COP_CHANNEL_CONTROL, "interrupt_request", err);
}

int cop_kernel_shutdown(struct cop_kernel *k, bool restart, struct cop_error *err)
{
        _cleanup_json_ json_t *content = json_pack("{sb}", "restart", restart);

        return cop_kernel_send(k, COP_CHANNEL_CONTROL, "shutdown_request", NULL, NULL, content, err);
}

/* -- starting ---------------------------------------------------------------------------------------------------------- */

static void on_socket(struct cop_source *s, int fd, uint32_t revents, void *userdata);
static void on_monitor(struct cop_source *s, int fd, uint32_t revents, void *userdata);

static struct cop_channel_options channel_options(const struct cop_kernel *k)
{
        return (struct cop_channel_options){k->dir_fd, k->base, k->routing_id, k->holds_back};
}

static int watch(struct cop_kernel *k, enum cop_channel_kind kind, struct cop_error *err)
{
        /* A pipe that was never read from signals nothing, so read once. */
        cop_source_set_enabled(k->pump, 1);
        return cop_channel_watch(&k->channels[kind], k->loop, on_socket, on_monitor, k, err);
}

/* 1 = all connected, 0 = not yet, negative = never. */
static int connect_channels(struct cop_kernel *k, struct cop_error *err)
{
        struct cop_channel_options options = channel_options(k);

        for (int i = 0; i < COP_CHANNEL__MAX; i++) {
                int r = k->channels[i].socket ? 0
                                              : cop_channel_open(k->jupyter->zmq, i, &options, &k->channels[i], err);
                if (r == -ENOENT)
                        return 0;
                if (r >= 0 && !k->channels[i].source)
                        r = watch(k, i, err);
                if (r < 0)
                        return r;
        }
        return 1;
}

static int reopen(struct cop_kernel *k, enum cop_channel_kind kind, struct cop_error *err)
{
        struct cop_channel_options options = channel_options(k);
        int r = cop_channel_reopen(k->jupyter->zmq, kind, &options, &k->channels[kind], err);

        return r < 0 ? r : watch(k, kind, err);
}

void cop_kernel_reopen_shell(struct cop_kernel *k)
{
        if (k->freed || k->state != KERNEL_READY)
                return;
        snprintf(k->routing_id, sizeof(k->routing_id), "%s.%u", k->session, ++k->reopened);
        /* A failure here shows as a cell without a reply. */
        (void)reopen(k, COP_CHANNEL_SHELL, NULL);
        (void)reopen(k, COP_CHANNEL_STDIN, NULL);
}

static int nudge(struct cop_kernel *k, usec_t now, struct cop_error *err)
{
        _cleanup_json_ json_t *greeting = TAKE_PTR(k->greeting);
        int r = greeting && k->running
                        ? cop_kernel_send(k, COP_CHANNEL_SHELL, "execute_request", k->running->id, NULL, greeting, err)
                        : send_empty(k, COP_CHANNEL_SHELL, "kernel_info_request", err);

        if (r >= 0 && k->adopt && !k->idle)
                r = send_empty(k, COP_CHANNEL_CONTROL, "kernel_info_request", err);
        k->idle = false; /* the next time, it has not answered at once */
        k->nudge_due = now + NUDGE_LONG;
        return r;
}

static void finish_death(struct cop_kernel *k)
{
        if (k->running)
                cop_execution_finish(k->running);
}

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_kernel *k = userdata;
        struct cop_error error = COP_ERROR_NULL;
        int r = 0;

        cop_kernel_enter(k);
        if (k->state == KERNEL_DEAD) {
                finish_death(k);
        } else if (k->state == KERNEL_READY) {
                /* Its connection was lost, most likely by an oversized frame; of a dead kernel we are told before. */
                if (reopen(k, COP_CHANNEL_IOPUB, &error) < 0)
                        fail(k, &error);
        } else if (k->state == KERNEL_CONNECTING || k->state == KERNEL_NUDGING) {
                if (k->state == KERNEL_CONNECTING) {
                        r = connect_channels(k, &error);
                        if (r > 0)
                                k->state = KERNEL_NUDGING;
                }
                if (r >= 0 && k->state == KERNEL_NUDGING && now >= k->nudge_due)
                        r = nudge(k, now, &error);
                if (r >= 0 && now >= k->deadline)
                        r = cop_error_set(&error, ETIMEDOUT, COP_ERR_kernel_start_failed, "the kernel %s in time",
                                          k->state == KERNEL_CONNECTING ? "made no sockets"
                                          : k->got_reply                ? "published nothing"
                                                                        : "did not answer");
                if (r < 0)
                        fail(k, &error);
                else
                        cop_source_set_time(s,
                                            MIN_OF(k->deadline, k->state == KERNEL_CONNECTING ? now + CONNECT_INTERVAL
                                                                                              : k->nudge_due));
        }
        (void)!cop_kernel_leave(k);
}

static const char *member(json_t *object, const char *key)
{
        const char *s = json_string_value(json_object_get(object, key));

        return s ? s : "";
}

static void check_ready(struct cop_kernel *k)
{
        if (k->state != KERNEL_NUDGING)
                return;
        if (!k->got_reply || !k->got_iopub) {
                /* Only the subscription lags behind: ask again soon. */
                if (k->got_reply) {
                        k->nudge_due = MIN_OF(k->nudge_due, cop_loop_now(k->loop) + NUDGE_SHORT);
                        cop_source_set_time(k->timer, MIN_OF(k->deadline, k->nudge_due));
                }
                return;
        }
        k->state = KERNEL_READY;
        cop_source_set_time(k->timer, USEC_INFINITY);
        json_t *language = json_object_get(k->info, "language_info");
        struct cop_kernel_info info = {0};
        if (k->info)
                info = (struct cop_kernel_info){
                        .protocol_version = member(k->info, "protocol_version"),
                        .implementation = member(k->info, "implementation"),
                        .implementation_version = member(k->info, "implementation_version"),
                        .language = member(language, "name"),
                        .language_version = member(language, "version"),
                        .content = k->info,
                };
        k->events.ready(k, &info, k->userdata);
}

/* -- receiving --------------------------------------------------------------------------------------------------------- */

static bool for_running(const struct cop_kernel *k, const struct cop_message *m)
{
        return k->running && strcmp(k->running->id, m->parent_id) == 0;
}

static void bad_message(struct cop_kernel *k, const struct cop_message *m)
{
        k->stats.malformed++;
        if (for_running(k, m))
                k->running->incomplete = true;
}

static void on_status(struct cop_kernel *k, const struct cop_message *m)
{
        _cleanup_json_ json_t *content = NULL;

        if (cop_message_content(m, &content, NULL, NULL) < 0) {
                bad_message(k, m);
                return;
        }
        const char *state = member(content, "execution_state");
        if (k->events.status)
                k->events.status(k, state, k->userdata);
        if (!k->freed && for_running(k, m) && strcmp(state, "idle") == 0)
                cop_execution_on_idle(k->running);
}

static void on_iopub(struct cop_kernel *k, const struct cop_message *m)
{
        struct cop_decoded_output decoded;

        k->got_iopub = true;
        if (strcmp(m->type, "status") == 0) {
                on_status(k, m);
                return;
        }
        int r = cop_output_decode(m, &decoded, NULL);
        if (r < 0)
                bad_message(k, m);
        if (r <= 0)
                return;
        k->stats.repaired += decoded.repaired;
        decoded.output.parentless = !m->parent_id[0];
        if (for_running(k, m) || (k->running && decoded.output.parentless))
                cop_execution_on_output(k->running, &decoded.output);
        else if (k->events.late_output)
                k->events.late_output(k, m->parent_id[0] ? m->parent_id : NULL, &decoded.output, k->userdata);
        cop_decoded_output_done(&decoded);
}

static void on_kernel_info(struct cop_kernel *k, enum cop_channel_kind channel, const struct cop_message *m)
{
        json_t *content;

        if (k->state == KERNEL_NUDGING && !k->got_reply) {
                if (cop_message_content(m, &content, NULL, NULL) < 0) {
                        k->stats.malformed++;
                        return;
                }
                k->info = content;
                k->got_reply = true;
        }
        if (channel == COP_CHANNEL_SHELL && k->running)
                cop_execution_on_probe(k->running, m->parent_id);
}

static void on_execute_reply(struct cop_kernel *k, const struct cop_message *m)
{
        k->got_reply = true; /* a greeting's */
        cop_execution_on_reply(k->running, m);
}

static void dispatch(struct cop_kernel *k, enum cop_channel_kind channel, const struct cop_message *m)
{
        if (channel == COP_CHANNEL_IOPUB)
                on_iopub(k, m);
        else if (strcmp(m->type, "kernel_info_reply") == 0)
                on_kernel_info(k, channel, m);
        else if (channel == COP_CHANNEL_SHELL && strcmp(m->type, "execute_reply") == 0 && for_running(k, m))
                on_execute_reply(k, m);
        else if (channel == COP_CHANNEL_STDIN && strcmp(m->type, "input_request") == 0 && for_running(k, m))
                cop_execution_on_input_request(k->running, m);
        if (!k->freed)
                check_ready(k);
}

static void handle(struct cop_kernel *k, enum cop_channel_kind channel, struct cop_received *received)
{
        struct cop_message m;

        k->stats.messages++;
        k->stats.bytes += received->bytes;
        int r = cop_message_parse(received->frames, received->count, k->signer, &m, NULL);
        if (r == -EKEYREJECTED)
                k->stats.bad_signature++;
        else if (r < 0)
                k->stats.malformed++;
        if (r < 0)
                return;
        dispatch(k, channel, &m);
        cop_message_done(&m);
}

/* 1 = there is more, 0 = drained, negative = the kernel failed or was freed. */
static int drain(struct cop_kernel *k, enum cop_channel_kind channel)
{
        int messages = channel == COP_CHANNEL_IOPUB ? PUMP_MESSAGES : PUMP_SMALL_MESSAGES;
        size_t bytes = 0;
        struct cop_received received;
        struct cop_error error;

        for (int i = 0; i < messages && bytes < PUMP_BYTES; i++) {
                if (!k->channels[channel].socket)
                        return 0;
                int r = cop_channel_receive(&k->channels[channel], &received);
                if (r == 0)
                        return 0;
                if (r < 0) {
                        cop_error_set(&error, -r, COP_ERR_internal, "kernel socket: %s", zmq_strerror(-r));
                        fail(k, &error);
                        return -EIO;
                }
                bytes += received.bytes;
                handle(k, channel, &received);
                cop_received_done(&received);
                if (k->freed || k->state == KERNEL_FAILED)
                        return -ECANCELED;
        }
        return 1;
}

static void pump(struct cop_kernel *k)
{
        static const enum cop_channel_kind order[] = {COP_CHANNEL_IOPUB, COP_CHANNEL_SHELL, COP_CHANNEL_STDIN,
                                                      COP_CHANNEL_CONTROL};
        bool more = false;

        cop_kernel_enter(k);
        cop_source_set_enabled(k->pump, 0);
        for (size_t i = 0; i < ELEMENTSOF(order); i++) {
                int r = drain(k, order[i]);
                if (r < 0) {
                        (void)!cop_kernel_leave(k);
                        return;
                }
                more = more || r > 0;
        }
        if (more)
                cop_source_set_enabled(k->pump, 1);
        else if (k->state == KERNEL_DEAD && k->stats.disconnects)
                /* The io thread has read to the end and nothing is left. */
                finish_death(k);
        (void)!cop_kernel_leave(k);
}

static void on_pump(struct cop_source *s, void *userdata)
{
        pump(userdata);
}

static void on_socket(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        pump(userdata);
}

static void on_monitor(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_kernel *k = userdata;
        unsigned n = cop_channel_disconnects(&k->channels[COP_CHANNEL_IOPUB]);

        if (n == 0)
                return;
        k->stats.disconnects += n;
        if (k->running)
                k->running->incomplete = true;
        /* What lies in the socket is received first: the pump runs at once. */
        cop_source_set_enabled(k->pump, 1);
        if (k->state == KERNEL_READY)
                cop_source_set_time(k->timer, cop_now(CLOCK_MONOTONIC) + REOPEN_DELAY);
}

void cop_kernel_died(struct cop_kernel *k)
{
        if (k->freed || k->state == KERNEL_DEAD || k->state == KERNEL_FAILED)
                return;
        k->state = KERNEL_DEAD;
        cop_source_set_time(k->timer, cop_now(CLOCK_MONOTONIC) + DEATH_DRAIN);
        cop_source_set_enabled(k->pump, 1);
}
