#include "store/sql.h"

#define C(field, kind) COP_COLUMN(struct cop_token_row, field, kind)
static const struct cop_column columns[] = {
        C(id, ID), C(sha256, ID), C(name, TEXT), C(created_at, I64), C(expires_at, I64),
};
#undef C
static const struct cop_table table = COP_TABLE(struct cop_token_row, columns);

int cop_store_token_insert(struct cop_store *s, const struct cop_token_row *row, struct cop_error *err)
{
        int r = cop_sql_exec(s,
                             "INSERT INTO tokens(id, sha256, name, created_at, expires_at)"
                             " VALUES(:id, :sha256, :name, :created_at, :expires_at)",
                             &table, row, err);

        return r < 0 ? r : 0;
}

int cop_store_token_list(struct cop_store *s, struct cop_token_row ***ret, struct cop_error *err)
{
        int r = cop_sql_query(s, "SELECT * FROM tokens ORDER BY created_at, id", NULL, NULL, &table, ret, err);

        return r < 0 ? r : 0;
}

int cop_store_token_delete(struct cop_store *s, const char *id, struct cop_error *err)
{
        struct cop_sql_args args = {.id = id};
        int r = cop_sql_exec(s, "DELETE FROM tokens WHERE id = :id", &cop_sql_args_table, &args, err);

        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_token_not_found, "no token \"%.100s\"", id);
        return r < 0 ? r : 0;
}

struct cop_token_row *cop_token_row_free(struct cop_token_row *row)
{
        return cop_sql_row_free(&table, row);
}

struct cop_token_row **cop_token_rows_free(struct cop_token_row **rows)
{
        return cop_sql_rows_free(&table, (void **)rows);
}
