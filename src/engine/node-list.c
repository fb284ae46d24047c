/* Nodes in the store: what the API says of them, and how they go. */
#include "engine/node.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/parse.h"

void cop_node_discard_folder(struct cop_engine *e, const char *id)
{
        char path[4200];

        if (cop_path_format(path, sizeof(path), "%s/nodes/%s", e->home, id) == 0)
                cop_trash_add(e, path);
}

/* Its row is deleted: N6. */
static void discard_after_row(struct cop_engine *e, const struct cop_node_row *row)
{
        char path[4200];

        if (cop_path_format(path, sizeof(path), "%s/nodes/%s", e->home, row->id) == 0)
                cop_trash_add_durable(e, path);
        cop_image_release(e, row->image_id);
}

/* -- views, listing ------------------------------------------------------------------------------------------------------------------ */

json_t *cop_node_view(const struct cop_node_row *row)
{
        char stamp[COP_RFC3339_MAX];
        json_t *view = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f}", "id", row->id, "sandbox_id",
                                 row->sandbox_id, "kind", row->kind, "reason", row->reason, "image_id", row->image_id,
                                 "created_at", cop_rfc3339(row->created_at, stamp), "memory_bytes",
                                 (json_int_t)row->memory_bytes, "file_bytes", (json_int_t)row->file_bytes, "files",
                                 (json_int_t)row->files, "pause_ms", (double)row->pause / 1000, "duration_ms",
                                 (double)row->duration / 1000);
        if (!view)
                return NULL;
        if (row->name)
                json_object_set_new(view, "name", json_string(row->name));
        if (row->parent_id[0])
                json_object_set_new(view, "parent_id", json_string(row->parent_id));
        if (row->cell_id[0])
                json_object_set_new(view, "cell_id", json_string(row->cell_id));
        cop_view_time(view, "expires_at", row->expires_at);
        return view;
}

void cop_node_list(struct cop_engine *e, const char *sandbox_ref, struct cop_op_to to)
{
        _cleanup_(cop_node_rows_freep) struct cop_node_row **rows = NULL;
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *sandbox = NULL;
        struct cop_node_filter f = {.named = sandbox_ref == NULL};
        struct cop_error err;

        int r = sandbox_ref ? cop_store_sandbox_get(e->store, sandbox_ref, &sandbox, &err) : 0;
        f.sandbox_id = sandbox ? sandbox->id : NULL;
        if (r == 0)
                r = cop_store_node_list(e->store, &f, &rows, &err);
        if (r < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        json_t *list = json_array();
        for (struct cop_node_row **row = rows; row && *row; row++)
                json_array_append_new(list, cop_node_view(*row));
        cop_answer(to,
                   sandbox ? json_pack("{s:s, s:s, s:o}", "sandbox_id", sandbox->id, "head", sandbox->node_id, "nodes",
                                       list)
                           : json_pack("{s:o}", "snapshots", list),
                   NULL);
}

void cop_node_get(struct cop_engine *e, const char *ref, struct cop_op_to to)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        struct cop_error err;

        if (cop_store_node_get(e->store, ref, &row, &err) < 0)
                cop_answer(to, NULL, &err);
        else
                cop_answer(to, cop_node_view(row), NULL);
}

/* -- removing --------------------------------------------------------------------------------------------------------------------------- */

bool cop_node_wanted(struct cop_engine *e, const struct cop_node_row *row)
{
        const struct cop_sandbox *sb = cop_sandbox_by_id(e, row->sandbox_id);

        if (strcmp(row->reason, "unpack") == 0) /* its sandbox is elsewhere; whoever unpacked it removes it */
                return true;
        return sb && sb->state < COP_SANDBOX_ENDING && strcmp(row->reason, "fork") != 0;
}

static void delete_node(struct cop_engine *e, const struct cop_node_row *row)
{
        if (cop_store_node_delete(e->store, row->id, NULL) < 0)
                return;
        cop_spare_forget(e, row->id);
        discard_after_row(e, row);
}

/* Nothing needs it (N4), and nobody reads it just now. */
static bool is_free(struct cop_engine *e, const struct cop_node_row *row, bool alone)
{
        return !row->name && cop_store_node_in_use(e->store, row->id, NULL) == 0 &&
               !cop_node_held_back(e, row->id, alone);
}

void cop_node_release(struct cop_engine *e, const char *id)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;

        if (cop_store_node_get(e->store, id, &row, NULL) < 0 || !is_free(e, row, false))
                return;
        delete_node(e, row);
        for (;;) { /* ancestors that only served it */
                _cleanup_(cop_node_row_freep) struct cop_node_row *parent = NULL;
                if (!row->parent_id[0] || cop_store_node_get(e->store, row->parent_id, &parent, NULL) < 0 ||
                    cop_node_wanted(e, parent) || !is_free(e, parent, false))
                        return;
                delete_node(e, parent);
                cop_node_row_free(row);
                row = TAKE_PTR(parent);
        }
}

bool cop_node_collect(struct cop_engine *e, const char *id)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;

        if (cop_store_node_get(e->store, id, &row, NULL) < 0 || cop_node_wanted(e, row) || !is_free(e, row, true))
                return false;
        delete_node(e, row);
        return true;
}

void cop_nodes_release_layers(struct cop_engine *e, const char *layers)
{
        _cleanup_json_ json_t *list = layers ? json_loads(layers, 0, NULL) : NULL;
        char id[COP_ID_MAX];
        json_t *layer;
        size_t i;

        json_array_foreach (list, i, layer) {
                _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
                cop_layer_node(json_string_value(layer), id);
                if (cop_store_node_get(e->store, id, &row, NULL) == 0 && !cop_node_wanted(e, row))
                        cop_node_release(e, row->id);
        }
}

void cop_nodes_release_of(struct cop_engine *e, const char *sandbox_id, const char *layers)
{
        _cleanup_(cop_node_rows_freep) struct cop_node_row **rows = NULL;
        struct cop_node_filter f = {.sandbox_id = sandbox_id};
        size_t n = 0;

        if (cop_store_node_list(e->store, &f, &rows, NULL) < 0)
                return;
        while (rows[n])
                n++;
        while (n > 0) /* children before parents */
                cop_node_release(e, rows[--n]->id);
        cop_nodes_release_layers(e, layers); /* of other sandboxes: what it was forked from */
}

int cop_node_give_up(struct cop_engine *e, const struct cop_node_row *row, struct cop_error *err)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *parent = NULL;

        int r = cop_store_node_in_use(e->store, row->id, err);
        if (r == 0)
                r = cop_node_held_back(e, row->id, false);
        if (r > 0 && strcmp(row->reason, "golden") == 0)
                return cop_error_set(
                        err, EBUSY, COP_ERR_in_use,
                        "node %s is the golden state of an image, or sandboxes were made from it; `coppice "
                        "image warm --remove` takes it away from the image",
                        row->id);
        if (r > 0 && !row->name && !row->expires_at && strcmp(row->reason, "unpack") != 0)
                return 0;
        if (r > 0) /* what stands on it keeps it; it is no snapshot of anybody's any more */
                r = cop_store_node_give_up(e->store, row->id, err);
        else if (r == 0 && (r = cop_store_node_delete(e->store, row->id, err)) == 0) {
                discard_after_row(e, row);
                if (row->parent_id[0] && cop_store_node_get(e->store, row->parent_id, &parent, NULL) == 0 &&
                    !cop_node_wanted(e, parent))
                        cop_node_release(e, row->parent_id);
        }
        return r < 0 ? r : 1;
}

void cop_node_release_read(struct cop_engine *e, const char *id)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;

        if (cop_store_node_get(e->store, id, &row, NULL) < 0)
                return;
        const struct cop_sandbox *sb = cop_sandbox_by_id(e, row->sandbox_id);
        if (!sb || sb->state >= COP_SANDBOX_ENDING) /* what its end had to leave */
                cop_nodes_release_of(e, row->sandbox_id, row->layers);
        else if (strcmp(row->reason, "fork") == 0 && is_free(e, row, true))
                delete_node(e, row);
}

void cop_node_remove(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        int r = cop_store_node_get(e->store, ref, &row, &err);
        if (r == 0)
                r = cop_node_give_up(e, row, &err);
        if (r < 0)
                cop_answer(to, NULL, &err);
        else
                cop_answer_durable(e, to, cop_node_view(row), ret_op);
}

bool cop_node_is_whole(struct cop_engine *e, const struct cop_node_row *row)
{
        char path[4200];

        if (!row->written_boot[0] || strcmp(row->written_boot, e->boot_id) == 0)
                return true;
        return cop_path_format(path, sizeof(path), "%s/nodes/%s/synced", e->home, row->id) == 0 &&
               access(path, F_OK) == 0;
}

void cop_nodes_drop_torn(struct cop_engine *e)
{
        _cleanup_(cop_node_rows_freep) struct cop_node_row **rows = NULL;
        struct cop_error err;
        size_t dropped = 0;

        if (cop_store_nodes_written_before(e->store, e->boot_id, &rows, &err) < 0) {
                cop_log_warning("nodes that may be torn: %s", err.message);
                return;
        }
        for (struct cop_node_row **row = rows; *row; row++)
                if (!cop_node_is_whole(e, *row)) {
                        delete_node(e, *row);
                        dropped++;
                }
        if (dropped > 0)
                cop_log_info("%zu checkpoints and forks were not on disk when the host went down, and are given up",
                             dropped);
}

void cop_nodes_sweep(struct cop_engine *e)
{
        _cleanup_closedir_ DIR *dir = NULL;
        char path[4200];
        struct dirent *entry;

        if (cop_path_format(path, sizeof(path), "%s/nodes", e->home) < 0 || !(dir = opendir(path)))
                return;
        while ((entry = readdir(dir))) {
                _cleanup_(cop_node_row_freep) struct cop_node_row *row = NULL;
                if (!cop_id_valid(entry->d_name, "nd_", 10) ||
                    cop_store_node_get(e->store, entry->d_name, &row, NULL) != -ENOENT)
                        continue;
                if (cop_store_node_in_use(e->store, entry->d_name, NULL) == 0)
                        cop_node_discard_folder(e, entry->d_name);
        }
}
