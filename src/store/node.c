#include "store/sql.h"

#include <stdio.h>
#include <string.h>

#define C(field, kind) COP_COLUMN(struct cop_node_row, field, kind)
static const struct cop_column columns[] = {
        C(id, ID),          C(sandbox_id, ID), C(parent_id, ID),    C(kind, ID),
        C(reason, ID),      C(image_id, ID),   C(cell_id, ID),      C(seq, I64),
        C(name, TEXT),      C(layers, TEXT),   C(spec, TEXT),       C(created_at, I64),
        C(expires_at, I64), C(pause, I64),     C(duration, I64),    C(memory_bytes, I64),
        C(file_bytes, I64), C(files, I64),     C(written_boot, ID), C(ordinal, I64),
};
#undef C
static const struct cop_table table = COP_TABLE(struct cop_node_row, columns);

static int name_taken(const char *name, int r, struct cop_error *err)
{
        if (r == -EEXIST && name)
                return cop_error_set(err, EEXIST, COP_ERR_name_taken,
                                     "a snapshot is already named \"%s\"; choose another name or remove it", name);
        return r < 0 ? r : 0;
}

int cop_store_node_insert(struct cop_store *s, struct cop_node_row *row, struct cop_error *err)
{
        int r = cop_sql_exec(s,
                             "INSERT INTO nodes(id, sandbox_id, parent_id, kind, reason, image_id, cell_id, name, "
                             "layers, spec, created_at, expires_at,"
                             " pause, duration, memory_bytes, file_bytes, files, written_boot, ordinal)"
                             " VALUES(:id, :sandbox_id, :parent_id, :kind, :reason, :image_id, :cell_id, :name, "
                             ":layers, :spec, :created_at, :expires_at,"
                             " :pause, :duration, :memory_bytes, :file_bytes, :files, :written_boot, :ordinal)",
                             &table, row, err);

        if (r < 0)
                return name_taken(row->name, r, err);
        row->seq = sqlite3_last_insert_rowid(s->db);
        return 0;
}

int cop_store_node_get(struct cop_store *s, const char *ref, struct cop_node_row **ret, struct cop_error *err)
{
        struct cop_sql_args args = {.ref = ref};
        int r = cop_sql_get(s, "SELECT * FROM nodes WHERE id = :ref OR name = :ref", &cop_sql_args_table, &args, &table,
                            ret, err);

        if (r == 0)
                return cop_error_set(
                        err, ENOENT, COP_ERR_node_not_found,
                        "no snapshot or node \"%.100s\"; `coppice snapshot ls` and `coppice log SANDBOX` show them",
                        ref);
        return r < 0 ? r : 0;
}

int cop_store_node_list(struct cop_store *s, const struct cop_node_filter *f, struct cop_node_row ***ret,
                        struct cop_error *err)
{
        struct cop_sql_args args = {.id = f->sandbox_id, .text = f->reason, .a = f->named, .b = f->brief};
        int r = cop_sql_query(
                s,
                "SELECT seq, id, sandbox_id, parent_id, kind, reason, image_id, cell_id, name, layers,"
                " CASE WHEN :b THEN '' ELSE spec END AS spec, created_at, expires_at, pause, duration, "
                "memory_bytes, file_bytes, files, written_boot, ordinal"
                " FROM nodes WHERE (:id IS NULL OR sandbox_id = :id) AND (:text IS NULL OR reason = :text)"
                " AND (:a = 0 OR name IS NOT NULL) ORDER BY seq",
                &cop_sql_args_table, &args, &table, ret, err);

        return r < 0 ? r : 0;
}

int cop_store_node_give_up(struct cop_store *s, const char *id, struct cop_error *err)
{
        struct cop_sql_args args = {.id = id};
        int r = cop_sql_exec(s,
                             "UPDATE nodes SET name = NULL, expires_at = 0, reason = iif(reason = 'unpack', 'layer', "
                             "reason) WHERE id = :id",
                             &cop_sql_args_table, &args, err);

        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_node_not_found, "no node \"%.100s\"", id);
        return r < 0 ? r : 0;
}

int cop_store_node_expired(struct cop_store *s, usec_t now, struct cop_node_row ***ret, struct cop_error *err)
{
        struct cop_sql_args args = {.a = (int64_t)now};
        int r = cop_sql_query(s,
                              "SELECT * FROM nodes WHERE expires_at > 0 AND expires_at <= :a ORDER BY expires_at, seq",
                              &cop_sql_args_table, &args, &table, ret, err);

        return r < 0 ? r : 0;
}

int cop_store_node_next_expiry(struct cop_store *s, usec_t *ret, struct cop_error *err)
{
        int64_t at = 0;
        int r = cop_sql_number(s, "SELECT min(expires_at) FROM nodes WHERE expires_at > 0", NULL, NULL, &at, err);

        if (r < 0)
                return r;
        *ret = (usec_t)at;
        return 0;
}

int cop_store_node_newest(struct cop_store *s, int64_t *ret_seq, struct cop_error *err)
{
        int64_t seq = 0;
        int r = cop_sql_number(s, "SELECT max(seq) FROM nodes", NULL, NULL, &seq, err);

        if (r < 0)
                return r;
        *ret_seq = seq;
        return 0;
}

int cop_store_nodes_synced(struct cop_store *s, int64_t upto, struct cop_error *err)
{
        struct cop_sql_args args = {.a = upto};
        int r = cop_sql_exec(s, "UPDATE nodes SET written_boot = '' WHERE written_boot <> '' AND seq <= :a",
                             &cop_sql_args_table, &args, err);

        return r < 0 ? r : 0;
}

int cop_store_nodes_written_before(struct cop_store *s, const char *boot_id, struct cop_node_row ***ret,
                                   struct cop_error *err)
{
        struct cop_sql_args args = {.text = boot_id};
        int r = cop_sql_query(s, "SELECT * FROM nodes WHERE written_boot <> '' AND written_boot <> :text ORDER BY seq",
                              &cop_sql_args_table, &args, &table, ret, err);

        return r < 0 ? r : 0;
}

int cop_store_node_set_layers(struct cop_store *s, const char *id, const char *layers, struct cop_error *err)
{
        struct cop_sql_args args = {.id = id, .text = layers};
        int r = cop_sql_exec(s, "UPDATE nodes SET layers = :text WHERE id = :id", &cop_sql_args_table, &args, err);

        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_node_not_found, "no node \"%.100s\"", id);
        return r < 0 ? r : 0;
}

/* Layers are told by the text of their ids, which have a fixed form, so that a search in the JSON cannot be wrong. */
int cop_store_node_in_use(struct cop_store *s, const char *id, struct cop_error *err)
{
        struct cop_sql_args args = {.id = id};
        int64_t count = 0;
        int r = cop_sql_number(s,
                               "SELECT (SELECT count(*) FROM sandboxes WHERE state <> 'ended' AND"
                               "  (node_id = :id OR pending_node = :id OR instr(coalesce(layers, ''), :id) > 0"
                               "  OR instr(coalesce(redo, ''), :id) > 0))"
                               " + (SELECT count(*) FROM nodes WHERE id <> :id AND instr(layers, :id) > 0)"
                               " + (SELECT count(*) FROM images WHERE golden_node = :id)",
                               &cop_sql_args_table, &args, &count, err);

        return r < 0 ? r : count > 0;
}

struct found {
        char id[COP_STORE_ID_MAX];
};
static const struct cop_column found_columns[] = {COP_COLUMN(struct found, id, ID)};
static const struct cop_table found_table = COP_TABLE(struct found, found_columns);

int cop_store_node_after_cell(struct cop_store *s, const char *sandbox_id, const char *cell_id,
                              char ret[static COP_STORE_ID_MAX], struct cop_error *err)
{
        struct cop_sql_args args = {.id = cell_id, .ref = sandbox_id};
        struct found *found = NULL;
        int r = cop_sql_get(s, "SELECT id FROM nodes WHERE cell_id = :id ORDER BY sandbox_id <> :ref, seq LIMIT 1",
                            &cop_sql_args_table, &args, &found_table, &found, err);

        if (r < 0)
                return r;
        memcpy(ret, r > 0 ? found->id : (char[COP_STORE_ID_MAX]){0}, COP_STORE_ID_MAX);
        cop_sql_row_free(&found_table, found);
        return 0;
}

int cop_store_node_delete(struct cop_store *s, const char *id, struct cop_error *err)
{
        struct cop_sql_args args = {.id = id};
        int r = cop_sql_exec(s,
                             "UPDATE nodes SET parent_id = coalesce((SELECT parent_id FROM nodes WHERE id = :id), '') "
                             "WHERE parent_id = :id",
                             &cop_sql_args_table, &args, err);

        if (r >= 0)
                r = cop_sql_exec(s, "DELETE FROM nodes WHERE id = :id", &cop_sql_args_table, &args, err);

        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_node_not_found, "no node \"%.100s\"", id);
        return r < 0 ? r : 0;
}

struct cop_node_row *cop_node_row_free(struct cop_node_row *row)
{
        return cop_sql_row_free(&table, row);
}

struct cop_node_row **cop_node_rows_free(struct cop_node_row **rows)
{
        return cop_sql_rows_free(&table, (void **)rows);
}
