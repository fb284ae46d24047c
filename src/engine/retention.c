/* How long snapshots are kept: until a time of their own, and as many of a sandbox as its policy says.
 *
 * What is given up goes at once when nothing stands on it; else it loses its name, as one that a user removed, and goes with what
 * needs it and the sandbox that it is of.  A snapshot outlives its sandbox, and the policy with it: then only its own time counts.
 */
#include "engine/node.h"

#include <string.h>

static void give_up(struct cop_engine *e, const struct cop_node_row *row, const char *reason)
{
        struct cop_error err;

        int r = cop_node_give_up(e, row, &err);
        if (r < 0)
                cop_log_warning("snapshot %s (%s): %s", row->id, reason, err.message);
        if (r <= 0)
                return;
        _cleanup_json_ json_t *detail =
                json_pack("{s:s, s:s?, s:s}", "node_id", row->id, "name", row->name, "reason", reason);
        cop_engine_event(e, "snapshot.removed", row->sandbox_id[0] ? row->sandbox_id : NULL, detail);
}

usec_t cop_snapshots_expire(struct cop_engine *e, usec_t now)
{
        _cleanup_(cop_node_rows_freep) struct cop_node_row **rows = NULL;
        usec_t next = 0;

        if (cop_store_node_next_expiry(e->store, &next, NULL) < 0 || !next || next > now)
                return next;
        if (cop_store_node_expired(e->store, now, &rows, NULL) < 0)
                return next;
        for (struct cop_node_row **row = rows; *row; row++)
                give_up(e, *row, "expired");
        return cop_store_node_next_expiry(e->store, &next, NULL) < 0 ? 0 : next;
}

/* One that was given up and only serves others is no snapshot any more. */
static bool counts(struct cop_sandbox *sb, const struct cop_node_row *row)
{
        return row->name || strcmp(row->id, sb->row->node_id) == 0 ||
               cop_store_node_in_use(sb->engine->store, row->id, NULL) == 0;
}

void cop_snapshots_thin(struct cop_sandbox *sb)
{
        _cleanup_(cop_node_rows_freep) struct cop_node_row **rows = NULL;
        struct cop_node_filter f = {.sandbox_id = sb->id, .reason = "snapshot"};
        unsigned kept = 0;
        size_t n = 0;

        if (!sb->policy.snapshot_keep || cop_store_node_list(sb->engine->store, &f, &rows, NULL) < 0)
                return;
        while (rows[n])
                n++;
        while (n > 0) { /* the newest first */
                const struct cop_node_row *row = rows[--n];
                if (counts(sb, row) && ++kept > sb->policy.snapshot_keep)
                        give_up(sb->engine, row, "snapshot_keep");
        }
}
