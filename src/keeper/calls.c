/* Requests of the keeper to init, and what init says by itself.  Init is foreign: a reply counts only for a request that is
 * open, numbers are range-checked, descriptors are dropped, and what cannot be understood ends the sandbox. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "keeper/command.h"
#include "keeper/keep.h"
#include "sandbox/wire.h"

static struct cop_call *find_call(struct cop_keep *k, uint32_t id, struct cop_call ***ret_at)
{
        for (struct cop_call **p = &k->calls; *p; p = &(*p)->next)
                if ((*p)->id == id) {
                        *ret_at = p;
                        return *p;
                }
        return NULL;
}

int cop_keep_call(struct cop_keep *k, struct cop_msg *m, uint32_t client_id, struct cop_command *spawning,
                  struct cop_error *err)
{
        struct cop_call *call, **at;

        if (!k->init)
                return cop_error_set(err, EPIPE, COP_ERR_sandbox_ended, "the sandbox ended");
        if (m->failed)
                return cop_error_errno(err, ENOMEM, "request to init");
        /* Well below the link's limit, at which the sandbox would end: an init that does not read is only busy at first. */
        if (k->call_count >= COP_KEEP_CALLS_MAX || cop_link_waiting(k->init) > COP_LINK_BYTES_MAX / 2)
                return cop_error_set(err, EAGAIN, COP_ERR_too_many,
                                     "%d requests are under way in this sandbox; try again", COP_KEEP_CALLS_MAX);
        call = calloc(1, sizeof(*call));
        if (!call)
                return cop_error_errno(err, ENOMEM, "request to init");
        do
                k->next_call_id++;
        while (k->next_call_id == 0 || find_call(k, k->next_call_id, &at));
        *call = (struct cop_call){.next = k->calls,
                                  .id = k->next_call_id,
                                  .client_id = client_id,
                                  .client_number = k->client_number,
                                  .spawning = spawning};
        k->calls = call;
        k->call_count++;
        m->id = call->id;
        cop_link_send(k->init, m);
        return 0;
}

static void handle_reply(struct cop_keep *k, struct cop_msg *m)
{
        struct cop_call **at, *call = find_call(k, m->id, &at);

        if (!call)
                return;
        *at = call->next;
        k->call_count--;
        if (call->spawning)
                cop_command_spawned(call->spawning, call, m);
        else
                cop_keep_reply(k, call->client_number, call->client_id, m);
        free(call);
}

void cop_keep_calls_fail(struct cop_keep *k, const struct cop_error *err)
{
        while (k->calls) {
                struct cop_call *call = k->calls;
                k->calls = call->next;
                cop_keep_reply_error(k, call->client_number, call->client_id, err);
                free(call);
        }
        k->call_count = 0;
}

static void on_message(struct cop_link *link, struct cop_msg *m, void *userdata)
{
        struct cop_keep *k = userdata;
        uint64_t status;
        int64_t pid;

        for (unsigned i = 0; i < m->fd_count; i++) /* nothing that init says comes with descriptors */
                cop_close(cop_msg_take_fd(m, i));
        m->fd_count = 0;
        switch (m->type) {
        case COP_WIRE_READY:
                if (cop_msg_u64_or(m, COP_TAG_VERSION, 0) == COP_WIRE_VERSION)
                        cop_keep_ready(k);
                else if (k->sandbox) {
                        snprintf(k->reason, sizeof(k->reason), "init_of_other_version");
                        cop_sandbox_kill(k->sandbox);
                }
                break;
        case COP_WIRE_REPLY:
                handle_reply(k, m);
                break;
        case COP_WIRE_CHILD:
                if (cop_msg_get_i64(m, COP_TAG_PID, &pid) == 0 && cop_msg_get_u64(m, COP_TAG_STATUS, &status) == 0)
                        cop_keep_child_ended(k, pid, (int)(status & 0xffff));
                break;
        default:
                cop_log_debug("init said %u", m->type);
        }
}

/* The socket fails before or with init's process; its end is handled in life.c. */
static void on_closed(struct cop_link *link, void *userdata)
{
        struct cop_keep *k = userdata;

        k->init = cop_link_free(link);
        if (k->sandbox)
                cop_sandbox_kill(k->sandbox);
}

const struct cop_link_calls cop_keep_init_calls = {.message = on_message, .closed = on_closed};
