/* Theory of operation: a sandbox before anybody has it
 *
 * Most of what a sandbox needs has nothing to do with its files or memory: an id, a uid range, folders, a keeper, a cgroup, namespaces
 * and their id maps.  While the node of a fork is being made, that is made for its copies.  Where it is known what the next sandbox
 * begins as, a golden state, that is thawed ahead, and its kernels are met (meet.c).
 *
 *      cop_sandbox_prepare ── folders, keeper, PREPARE ──► in e->prepared, for this fork, or as a spare (spare.c)
 *      cop_sandbox_thaw_ahead ── the same, START ────────►   │
 *                                                            │ cop_sandbox_create with it, and it fits
 *                                                            ├──► cop_sandbox_take_prepared: keeper and folders are the new sandbox's
 *                                                            │ it does not fit, its keeper is gone, there will be no sandbox
 *                                                            └──► cop_sandbox_unprepare: STOP, the folders go
 *
 * It is an object like that of a sandbox, in no list of them, and without a row: nobody can see or use it.  When the daemon dies, its
 * folder is one that the store does not know, and the next daemon ends it as such (sweep_folders of adopt.c); without a next daemon the
 * keeper ends by itself.  The uid range is claimed by the keeper's descriptor, as for every sandbox (uids.c).  What ends inside one
 * that was thawed ends it.
 *
 * All of this is a head start and nothing else.  What fails here is not told: the start makes everything itself then, and tells.
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "engine/uids.h"

/* It is of no use any more; who has it finds no keeper in it. */
static void spoil(struct cop_sandbox *p)
{
        p->keeper = cop_keeper_free(p->keeper);
        cop_spare_spoiled(p);
}

static void on_lost(const struct cop_error *err, void *userdata)
{
        struct cop_sandbox *p = userdata;

        cop_log_debug("keeper of %s, which was prepared: %s", p->id, err->message);
        spoil(p);
}

/* Nothing that happens inside is told to anybody, so a sandbox in which something ends is not handed out. */
static void on_event(struct cop_msg *event, void *userdata)
{
        struct cop_sandbox *p = userdata;

        if (event->type == COP_WIRE_EVENT_BOUND) {
                cop_sandbox_write_generation(p);
                cop_contexts_meet(p, true);
        } else if (event->type == COP_WIRE_EVENT_EXIT || event->type == COP_WIRE_EVENT_ENDED) {
                spoil(p);
        }
}

struct cop_sandbox_row *cop_sandbox_row_like(const struct cop_sandbox_row *like, bool node)
{
        struct cop_sandbox_row *row = calloc(1, sizeof(*row));

        if (!row)
                return NULL;
        cop_id_new(row->id, "sb_", 10);
        memcpy(row->image_id, like->image_id, sizeof(row->image_id));
        row->limits = like->limits ? strdup(like->limits) : NULL;
        row->workdir = like->workdir ? strdup(like->workdir) : NULL;
        if (node) {
                memcpy(row->node_id, like->node_id, sizeof(row->node_id));
                row->layers = like->layers ? strdup(like->layers) : NULL;
        }
        return row;
}

static int begin(struct cop_sandbox *p, struct cop_error *err)
{
        const struct cop_keeper_events events = {on_event, on_lost, p};
        struct cop_engine *e = p->engine;
        _cleanup_close_ int uids_fd = -EBADF;

        int r = cop_sandbox_read_image(p, err);
        if (r == 0)
                r = cop_store_sandbox_free_slot(e->store, 0, e->slots, &p->row->slot, err);
        if (r == 0)
                r = cop_uids_take(e, &p->row->slot, &uids_fd, err);
        if (r == 0)
                r = cop_sandbox_make_folders(p, err);
        if (r == 0)
                r = cop_sandbox_spawn_keeper(p, uids_fd, &events, err);
        return r < 0 ? r : cop_sandbox_send_prepare(p, err);
}

/* row: stolen, NULL when there was no memory for it. */
static struct cop_sandbox *prepare(struct cop_engine *e, struct cop_sandbox_row *row)
{
        struct cop_sandbox *p;
        struct cop_error err;

        if (!row || cop_sandbox_new(e, row, &p, &err) < 0)
                return NULL;
        cop_sandbox_delist(p);
        p->next = e->prepared;
        e->prepared = p;
        if (begin(p, &err) == 0)
                return p;
        cop_log_debug("preparing a sandbox of image %s: %s", p->row->image_id, err.message);
        cop_sandbox_unprepare(p);
        return NULL;
}

struct cop_sandbox *cop_sandbox_prepare(struct cop_engine *e, const struct cop_sandbox_row *like)
{
        return prepare(e, cop_sandbox_row_like(like, false));
}

static void on_thawed(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct cop_sandbox *p = userdata;

        p->thawed_ahead = !err;
        if (err) {
                cop_log_debug("thawing %s ahead in %s: %s", p->row->node_id, p->id, err->message);
                spoil(p);
        }
}

struct cop_sandbox *cop_sandbox_thaw_ahead(struct cop_engine *e, const struct cop_sandbox_row *like)
{
        struct cop_sandbox *p = prepare(e, cop_sandbox_row_like(like, true));
        struct cop_error err;

        if (!p)
                return NULL;
        if (p->row->layers &&
            cop_sandbox_send_start(p, p->row->node_id, COP_THAW_FORK | COP_THAW_AHEAD, on_thawed, p, &err) == 0)
                return p;
        cop_sandbox_unprepare(p);
        return NULL;
}

static bool same(const char *a, const char *b)
{
        return a && b ? strcmp(a, b) == 0 : a == b;
}

bool cop_sandbox_prepared_like(const struct cop_sandbox *p, const struct cop_sandbox_row *row)
{
        return p->keeper && same(p->row->limits, row->limits) && same(p->row->workdir, row->workdir) &&
               strcmp(p->row->image_id, row->image_id) == 0 &&
               (!p->row->node_id[0] || strcmp(p->row->node_id, row->node_id) == 0);
}

void cop_sandbox_take_prepared(struct cop_sandbox *sb, struct cop_sandbox *p)
{
        const struct cop_keeper_events events = {cop_sandbox_on_event, cop_sandbox_on_lost, sb};

        sb->keeper = TAKE_PTR(p->keeper);
        cop_keeper_set_events(sb->keeper, &events);
        sb->ipc_fd = TAKE_FD(p->ipc_fd);
        sb->logs_fd = TAKE_FD(p->logs_fd);
        sb->met = TAKE_PTR(p->met);
        sb->generation_told = p->generation_told;
        sb->thawed_ahead = p->thawed_ahead;
        p->id[0] = '\0'; /* nothing is left to be undone */
}

void cop_sandbox_unprepare(struct cop_sandbox *p)
{
        if (!p)
                return;
        for (struct cop_sandbox **at = &p->engine->prepared; *at; at = &(*at)->next)
                if (*at == p) {
                        *at = p->next;
                        break;
                }
        if (p->row->node_id[0] &&
            !p->thawed_ahead) /* its START is not answered yet, and nobody waits for that any more */
                p->keeper = cop_keeper_free(p->keeper);
        if (p->id[0])
                cop_engine_end_orphan(p->engine, p->id, TAKE_PTR(p->keeper));
        cop_sandbox_drop(p);
}

bool cop_sandbox_is_prepared(struct cop_engine *e, const char *id)
{
        for (const struct cop_sandbox *p = e->prepared; p; p = p->next)
                if (strcmp(p->id, id) == 0)
                        return true;
        return false;
}

void cop_engine_prepared_drop(struct cop_engine *e)
{
        while (e->prepared)
                cop_sandbox_unprepare(e->prepared);
}
