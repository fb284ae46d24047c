#include "store/sql.h"

#include "base/cleanup.h"

#define C(field, kind) COP_COLUMN(struct cop_image_row, field, kind)
static const struct cop_column columns[] = {
        C(id, ID),     C(name, TEXT),      C(digest, TEXT),    C(path, TEXT),      C(info, TEXT),   C(packages, TEXT),
        C(files, I64), C(size_bytes, I64), C(created_at, I64), C(golden_node, ID), C(golden, TEXT),
};
#undef C
static const struct cop_table table = COP_TABLE(struct cop_image_row, columns);

#define SELECT_IMAGES \
        "SELECT id, name, digest, path, info, size_bytes, files, created_at, golden_node, golden FROM images "

static int insert(struct cop_store *s, const struct cop_image_row *row, struct cop_error *err)
{
        int r = row->name ? cop_sql_exec(s, "UPDATE images SET name = NULL WHERE name = :name", &table, row, err) : 0;

        if (r < 0)
                return r;
        r = cop_sql_exec(s,
                         "INSERT INTO images(id, name, digest, path, info, size_bytes, files, created_at, packages)"
                         " VALUES(:id, :name, :digest, :path, :info, :size_bytes, :files, :created_at, :packages)",
                         &table, row, err);
        return r < 0 ? r : 0;
}

int cop_store_image_insert(struct cop_store *s, const struct cop_image_row *row, struct cop_error *err)
{
        int r = cop_store_begin(s, err);

        if (r < 0)
                return r;
        r = insert(s, row, err);
        if (r < 0) {
                cop_store_rollback(s);
                return r;
        }
        return cop_store_commit(s, err);
}

int cop_store_image_get(struct cop_store *s, const char *ref, struct cop_image_row **ret, struct cop_error *err)
{
        struct cop_sql_args args = {.ref = ref};

        int r = cop_sql_get(s, SELECT_IMAGES "WHERE id = :ref OR name = :ref", &cop_sql_args_table, &args, &table, ret,
                            err);
        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_image_not_found, "no image \"%.100s\"", ref);
        return r < 0 ? r : 0;
}

int cop_store_image_packages(struct cop_store *s, const char *id, char **ret, struct cop_error *err)
{
        struct cop_sql_args args = {.id = id};
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = NULL;

        int r = cop_sql_get(s, "SELECT packages FROM images WHERE id = :id", &cop_sql_args_table, &args, &table, &row,
                            err);
        if (r < 0)
                return r;
        *ret = row ? TAKE_PTR(row->packages) : NULL;
        return 0;
}

int cop_store_image_list(struct cop_store *s, struct cop_image_row ***ret, struct cop_error *err)
{
        int r = cop_sql_query(s, SELECT_IMAGES "ORDER BY created_at, id", NULL, NULL, &table, ret, err);

        return r < 0 ? r : 0;
}

int cop_store_image_set_golden(struct cop_store *s, const struct cop_image_row *row, struct cop_error *err)
{
        int r = cop_sql_exec(s, "UPDATE images SET golden_node = :golden_node, golden = :golden WHERE id = :id", &table,
                             row, err);

        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_image_not_found, "no image \"%.100s\"", row->id);
        return r < 0 ? r : 0;
}

int cop_store_image_delete(struct cop_store *s, const char *id, struct cop_error *err)
{
        struct cop_sql_args args = {.id = id};
        int r = cop_sql_exec(s, "DELETE FROM images WHERE id = :id", &cop_sql_args_table, &args, err);

        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_image_not_found, "no image \"%.100s\"", id);
        return r < 0 ? r : 0;
}

struct cop_image_row *cop_image_row_free(struct cop_image_row *row)
{
        return cop_sql_row_free(&table, row);
}

struct cop_image_row **cop_image_rows_free(struct cop_image_row **rows)
{
        return cop_sql_rows_free(&table, (void **)rows);
}
