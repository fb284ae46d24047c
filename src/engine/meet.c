/* Kernels that are met before they run.
 *
 * A tree that is being thawed has its sockets some milliseconds before any of its threads runs (EVENT_BOUND of the keeper).  The daemon
 * has nothing else to do for it then: it connects to the sockets of its kernels, who find that when they wake, and have answered by the
 * time the thaw is told to be done.  What was connected waits in sb->met for cop_context_adopt_kernel; nothing is lost when it does not come to
 * that.  Only kernels with coppice_kernel, which let a newcomer have the place of a client that is gone.
 *
 * Of a sandbox that is thawed before anybody has asked for it (sandbox-prepare.c), the node says what kernels there will be.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "engine/context.h"
#include "engine/node.h"

struct cop_met {
        struct cop_met *next;
        char session[80];
        struct cop_meeting *meeting; /* owned */
};

static void meet(struct cop_sandbox *sb, const struct cop_context_row *row)
{
        _cleanup_close_ int dir_fd = cop_open_beneath(sb->ipc_fd, row->kernel_dir, O_PATH | O_DIRECTORY, 0, true, NULL);
        struct cop_met *met = dir_fd < 0 ? NULL : calloc(1, sizeof(*met));
        const struct cop_kernel_options options = {.dir_fd = dir_fd, .session = row->session, .holds_back = true};
        struct cop_error err;

        if (!met)
                return;
        if (cop_kernel_meet(sb->engine->jupyter, &options, &met->meeting, &err) < 0) {
                cop_log_debug("meeting the kernel of %s/%s: %s", sb->id, row->id, err.message);
                free(met);
                return;
        }
        snprintf(met->session, sizeof(met->session), "%s", row->session);
        met->next = sb->met;
        sb->met = met;
}

static bool can_be_met(const struct cop_sandbox *sb, const struct cop_kernelspecs *specs,
                       const struct cop_context_row *row)
{
        return cop_sandbox_tunes(sb, cop_kernelspecs_find(specs, row->kernelspec)) && row->kernel_dir && row->session &&
               row->kernel_key[0] && strcmp(row->state, "idle") == 0;
}

void cop_contexts_meet(struct cop_sandbox *sb, bool ahead)
{
        _cleanup_(cop_context_rows_freep) struct cop_context_row **rows = NULL;
        struct cop_kernelspecs specs = {0};

        cop_contexts_meet_done(sb);
        if (sb->contexts || cop_engine_jupyter(sb->engine, NULL) < 0 ||
            cop_kernelspecs_from_json(sb->kernelspecs, &specs, NULL) < 0)
                return;
        if ((ahead ? cop_node_contexts(sb, sb->row->node_id, &rows, NULL)
                   : cop_store_context_list(sb->engine->store, sb->id, &rows, NULL)) == 0)
                for (struct cop_context_row **row = rows; *row; row++)
                        if (can_be_met(sb, &specs, *row))
                                meet(sb, *row);
        cop_kernelspecs_done(&specs);
}

struct cop_meeting *cop_context_met(struct cop_context *c)
{
        for (struct cop_met **at = &c->sandbox->met; *at; at = &(*at)->next) {
                struct cop_met *met = *at;
                if (strcmp(met->session, c->row->session) != 0)
                        continue;
                struct cop_meeting *meeting = met->meeting;
                *at = met->next;
                free(met);
                return meeting;
        }
        return NULL;
}

void cop_contexts_meet_done(struct cop_sandbox *sb)
{
        while (sb->met) {
                struct cop_met *met = sb->met;
                sb->met = met->next;
                cop_meeting_free(met->meeting);
                free(met);
        }
}
