#include "store/sql.h"

#define C(field, kind) COP_COLUMN(struct cop_context_row, field, kind)
static const struct cop_column columns[] = {
        C(sandbox_id, ID),   C(id, ID),           C(state, ID),
        C(kernel_key, ID),   C(name, TEXT),       C(kernelspec, TEXT),
        C(language, TEXT),   C(cwd, TEXT),        C(env, TEXT),
        C(kernel_dir, TEXT), C(key, TEXT),        C(session, TEXT),
        C(generation, I64),  C(state_lost, TEXT), C(execution_count, I64),
        C(kernel_pid, I64),  C(created_at, I64),  C(last_activity_at, I64),
};
#undef C
static const struct cop_table table = COP_TABLE(struct cop_context_row, columns);

int cop_store_context_insert(struct cop_store *s, const struct cop_context_row *row, struct cop_error *err)
{
        int r = cop_sql_exec(
                s,
                "INSERT INTO contexts(sandbox_id, id, state, kernel_key, name, kernelspec, language, cwd, env, "
                "kernel_dir, key,"
                " session, state_lost, generation, execution_count, kernel_pid, created_at, last_activity_at)"
                " VALUES(:sandbox_id, :id, :state, :kernel_key, :name, :kernelspec, :language, :cwd, :env, "
                ":kernel_dir, :key,"
                " :session, :state_lost, :generation, :execution_count, :kernel_pid, :created_at, :last_activity_at)",
                &table, row, err);

        if (r == -EEXIST)
                return cop_error_set(err, EEXIST, COP_ERR_invalid_state,
                                     "%s cannot have a context \"%s\": it has one, or is gone itself", row->sandbox_id,
                                     row->id);
        return r < 0 ? r : 0;
}

static int change(struct cop_store *s, const char *sql, const struct cop_context_row *row, struct cop_error *err)
{
        int r = cop_sql_exec(s, sql, &table, row, err);

        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_context_not_found, "no context \"%.100s\" in %s", row->id,
                                     row->sandbox_id);
        return r < 0 ? r : 0;
}

int cop_store_context_update(struct cop_store *s, const struct cop_context_row *row, struct cop_error *err)
{
        return change(
                s,
                "UPDATE contexts SET state = :state, kernel_key = :kernel_key, name = :name, kernelspec = :kernelspec,"
                " language = :language, cwd = :cwd, env = :env, kernel_dir = :kernel_dir, key = :key, session = "
                ":session,"
                " state_lost = :state_lost, generation = :generation, execution_count = :execution_count, kernel_pid = "
                ":kernel_pid,"
                " last_activity_at = :last_activity_at WHERE sandbox_id = :sandbox_id AND id = "
                ":id",
                row, err);
}

int cop_store_context_touch(struct cop_store *s, const struct cop_context_row *row, struct cop_error *err)
{
        return change(
                s,
                "UPDATE contexts SET state = :state, execution_count = :execution_count, state_lost = :state_lost,"
                " last_activity_at = :last_activity_at WHERE sandbox_id = :sandbox_id AND id = "
                ":id",
                row, err);
}

int cop_store_context_list(struct cop_store *s, const char *sandbox_id, struct cop_context_row ***ret,
                           struct cop_error *err)
{
        struct cop_sql_args args = {.id = sandbox_id};

        int r = cop_sql_query(s, "SELECT * FROM contexts WHERE sandbox_id = :id ORDER BY created_at, rowid",
                              &cop_sql_args_table, &args, &table, ret, err);
        return r < 0 ? r : 0;
}

int cop_store_context_delete(struct cop_store *s, const char *sandbox_id, const char *id, struct cop_error *err)
{
        struct cop_sql_args args = {.ref = sandbox_id, .id = id};
        int r = cop_sql_exec(s, "DELETE FROM contexts WHERE sandbox_id = :ref AND id = :id", &cop_sql_args_table, &args,
                             err);

        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_context_not_found, "no context \"%.100s\" in %s", id,
                                     sandbox_id);
        return r < 0 ? r : 0;
}

struct cop_context_row *cop_context_row_free(struct cop_context_row *row)
{
        return cop_sql_row_free(&table, row);
}

struct cop_context_row **cop_context_rows_free(struct cop_context_row **rows)
{
        return cop_sql_rows_free(&table, (void **)rows);
}
