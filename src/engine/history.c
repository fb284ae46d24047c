/* Which cells led to a state: what an export shows, undo goes back by and a replay runs again.
 *
 * A history is a JSON array of ranges ["sb_…", after, upto], oldest first: the cells of that sandbox with after < seq <= upto.  Every
 * node has the history of its state in its spec.  A sandbox remembers {"before": [ranges], "after": seq}: the history of the node that
 * it was made from or last went back to, and the newest cell it had then; its own cells beyond that one came since.  So cells that were
 * undone are in no range, those of the sandbox that a fork was made from are, and neither needs the nodes in between to exist still.
 *
 * Along the parents of a node each history is the beginning of the next one, and what comes behind it are the cells in between.
 */
#include "engine/node.h"

#include <stdlib.h>
#include <string.h>

#define RANGES_MAX 1024 /* the oldest go: after so many ways back nobody misses them */

/* -- ranges --------------------------------------------------------------------------------------------------------------- */

struct cop_cell_range cop_history_range(json_t *history, size_t i)
{
        json_t *range = json_array_get(history, i);
        const char *id = json_string_value(json_array_get(range, 0));

        return (struct cop_cell_range){.sandbox_id = id ? id : "",
                                       .after = json_integer_value(json_array_get(range, 1)),
                                       .upto = json_integer_value(json_array_get(range, 2))};
}

static void add_range(json_t *history, const char *sandbox_id, int64_t after, int64_t upto)
{
        size_t n = json_array_size(history);
        struct cop_cell_range last = cop_history_range(history, n - 1);

        if (upto <= after)
                return;
        if (n > 0 && strcmp(last.sandbox_id, sandbox_id) == 0 && last.upto == after)
                json_array_set_new(json_array_get(history, n - 1), 2, json_integer(upto));
        else
                json_array_append_new(history, json_pack("[s, I, I]", sandbox_id, (json_int_t)after, (json_int_t)upto));
        while (json_array_size(history) > RANGES_MAX)
                json_array_remove(history, 0);
}

/* -- of a sandbox, of a node ----------------------------------------------------------------------------------------------- */

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

/* -- undo ------------------------------------------------------------------------------------------------------------------ */

void cop_history_last_cell(struct cop_sandbox *sb, char ret[static COP_STORE_ID_MAX], bool *ret_new)
{
        _cleanup_json_ json_t *own = sb->row->history ? json_loads(sb->row->history, 0, NULL) : NULL;
        _cleanup_(cop_cell_rows_freep) struct cop_cell_row **rows = NULL;
        _cleanup_(cop_node_row_freep) struct cop_node_row *head = NULL;
        const struct cop_cell_filter f = {.sandbox_id = sb->id,
                                          .after_seq = json_integer_value(json_object_get(own, "after")),
                                          .limit = COP_QUEUE_MAX + 2, /* more than can be open */
                                          .originals = true};
        size_t n = 0;

        ret[0] = '\0';
        *ret_new = false;
        if (cop_store_cell_list(sb->engine->store, &f, &rows, NULL) < 0)
                return;
        while (rows[n])
                n++;
        while (n > 0 && !rows[n - 1]->ended_at)
                n--;
        *ret_new = n > 0;
        if (n > 0)
                memcpy(ret, rows[n - 1]->id, COP_STORE_ID_MAX);
        else if (sb->row->node_id[0] && cop_store_node_get(sb->engine->store, sb->row->node_id, &head, NULL) == 0)
                memcpy(ret, head->cell_id, COP_STORE_ID_MAX);
}

int cop_history_since(struct cop_engine *e, json_t *history, const struct cop_node_row *node, uint64_t *ret,
                      struct cop_error *err)
{
        _cleanup_json_ json_t *earlier = history_of_node(node);
        size_t n = json_array_size(history), at = 0;
        uint64_t sum = 0, count;

        /* The range that the earlier history ends in has grown since, or others came after it. */
        if (json_array_size(earlier) > 0) {
                struct cop_cell_range end = cop_history_range(earlier, json_array_size(earlier) - 1);
                for (at = n; at > 0; at--) {
                        struct cop_cell_range range = cop_history_range(history, at - 1);
                        if (strcmp(range.sandbox_id, end.sandbox_id) != 0 || range.after != end.after)
                                continue;
                        range.after = end.upto;
                        int r = cop_store_cell_count(e->store, &range, &sum, err);
                        if (r < 0)
                                return r;
                        break;
                }
        }
        for (; at < n; at++) {
                struct cop_cell_range range = cop_history_range(history, at);
                int r = cop_store_cell_count(e->store, &range, &count, err);
                if (r < 0)
                        return r;
                sum += count;
        }
        *ret = sum;
        return 0;
}

/* -- replay and export ------------------------------------------------------------------------------------------------------- */

json_t *cop_history_missing(struct cop_engine *e, json_t *history)
{
        json_t *ids = json_array();

        for (size_t i = 0; i < json_array_size(history); i++) {
                const struct cop_cell_range r = cop_history_range(history, i);
                const char *last = json_string_value(json_array_get(ids, json_array_size(ids) - 1));
                if (cop_store_cell_recorded(e->store, r.sandbox_id, r.upto, NULL) == 0 &&
                    !(last && strcmp(last, r.sandbox_id) == 0))
                        json_array_append_new(ids, json_string(r.sandbox_id));
        }
        return ids;
}

static int prepend(struct cop_cell_row ***rows, size_t *count, struct cop_cell_row **older, struct cop_error *err)
{
        size_t n = 0;

        while (older[n])
                n++;
        struct cop_cell_row **all = realloc(*rows, (n + *count + 1) * sizeof(*all));
        if (!all) {
                cop_cell_rows_free(older);
                return cop_error_errno(err, ENOMEM, "cells");
        }
        memmove(all + n, all, *count * sizeof(*all));
        memcpy(all, older, n * sizeof(*all));
        *rows = all;
        *count += n;
        all[*count] = NULL;
        free(older);
        return 0;
}

int cop_history_cells(struct cop_engine *e, json_t *history, const struct cop_cell_range *of,
                      struct cop_cell_row ***ret, struct cop_error *err)
{
        struct cop_cell_row **rows = calloc(1, sizeof(*rows));
        size_t count = 0;
        int r = rows ? 0 : cop_error_errno(err, ENOMEM, "cells");

        for (size_t i = json_array_size(history); r == 0 && i > 0 && count < of->limit; i--) {
                struct cop_cell_range range = cop_history_range(history, i - 1);
                struct cop_cell_row **older = NULL;
                range.context_id = of->context_id;
                range.generation = of->generation;
                range.limit = of->limit - (unsigned)count;
                r = cop_store_cell_made(e->store, &range, &older, err);
                if (r == 0)
                        r = prepend(&rows, &count, older, err);
        }
        if (r < 0)
                cop_cell_rows_free(rows);
        else
                *ret = rows;
        return r;
}
