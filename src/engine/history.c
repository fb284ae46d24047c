/* Which cells led to a state: what an export shows, and what undo leaves out.
 *
 * A history is a JSON array of ranges ["sb_…", after, upto], oldest first: the cells of that sandbox with after < seq <= upto.  Every
 * node has the history of its state in its spec.  A sandbox remembers {"before": [ranges], "after": seq}: the history of the node that
 * it was made from or last went back to, and the newest cell it had then; its own cells beyond that one came since.  So cells that were
 * undone are in no range, those of the sandbox that a fork was made from are, and neither needs the nodes in between to exist still.
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>

#define RANGES_MAX 1024 /* the oldest go: after so many ways back nobody misses them */

static void add_range(json_t *history, const char *sandbox_id, int64_t after, int64_t upto)
{
        json_t *last = json_array_get(history, json_array_size(history) - 1);
        const char *last_id = json_string_value(json_array_get(last, 0));

        if (upto <= after)
                return;
        if (last_id && strcmp(last_id, sandbox_id) == 0 && json_integer_value(json_array_get(last, 2)) == after)
                json_array_set_new(last, 2, json_integer(upto));
        else
                json_array_append_new(history, json_pack("[s, I, I]", sandbox_id, (json_int_t)after, (json_int_t)upto));
        while (json_array_size(history) > RANGES_MAX)
                json_array_remove(history, 0);
}

json_t *cop_history_of_sandbox(struct cop_engine *e, const struct cop_sandbox_row *row, bool ended)
{
        _cleanup_json_ json_t *own = row->history ? json_loads(row->history, 0, NULL) : NULL;
        json_t *before = json_object_get(own, "before");
        json_t *history = json_is_array(before) ? json_deep_copy(before) : json_array();
        int64_t newest = 0;

        cop_store_cell_newest(e->store, row->id, ended, &newest, NULL);
        add_range(history, row->id, json_integer_value(json_object_get(own, "after")), newest);
        return history;
}

static json_t *history_of_node(const struct cop_node_row *node)
{
        _cleanup_json_ json_t *spec = json_loads(node->spec, 0, NULL);
        json_t *history = json_object_get(spec, "history");

        if (strcmp(node->reason, "golden") == 0) /* what warmed it up is of no sandbox's history */
                return json_array();
        return json_is_array(history) ? json_incref(history) : json_array();
}

void cop_history_begin(struct cop_engine *e, struct cop_sandbox_row *row, const struct cop_node_row *node)
{
        int64_t newest = 0;

        /* One that still runs in another context is lost with the state it ran in: it counts as old too. */
        cop_store_cell_newest(e->store, row->id, false, &newest, NULL);
        _cleanup_json_ json_t *own =
                json_pack("{s:o, s:I}", "before", history_of_node(node), "after", (json_int_t)newest);
        free(row->history);
        row->history = own ? json_dumps(own, JSON_COMPACT) : NULL;
}
