#include "store/sql.h"

#include "base/parse.h"

#define C(field, kind) COP_COLUMN(struct cop_command_row, field, kind)
static const struct cop_column columns[] = {
        C(seq, I64),           C(id, ID),        C(sandbox_id, ID),    C(status, ID),        C(pid, I64),
        C(spec, TEXT),         C(summary, TEXT), C(exit_code, INT),    C(signal, INT),       C(detached, BOOL),
        C(started_at, I64),    C(ended_at, I64), C(stdout_bytes, I64), C(stderr_bytes, I64), C(log_bytes, I64),
        C(log_complete, BOOL),
};
#undef C
static const struct cop_table table = COP_TABLE(struct cop_command_row, columns);

#define C(field, kind) COP_COLUMN(struct cop_command_filter, field, kind)
static const struct cop_column filter_columns[] = {
        C(sandbox_id, TEXT), C(status, TEXT), C(before_seq, I64),
        C(after_seq, I64),   C(limit, INT),   C(oldest_first, BOOL),
};
#undef C
static const struct cop_table filter_table = COP_TABLE(struct cop_command_filter, filter_columns);

int cop_store_command_insert(struct cop_store *s, struct cop_command_row *row, struct cop_error *err)
{
        int r = cop_sql_exec(
                s,
                "INSERT INTO commands(id, sandbox_id, status, pid, exit_code, signal, detached, started_at, ended_at,"
                " stdout_bytes, stderr_bytes, log_bytes, log_complete, summary, spec)"
                " VALUES(:id, :sandbox_id, :status, :pid, :exit_code, :signal, :detached, :started_at, :ended_at,"
                " :stdout_bytes, :stderr_bytes, :log_bytes, :log_complete, :summary, :spec)",
                &table, row, err);

        if (r < 0)
                return r;
        row->seq = sqlite3_last_insert_rowid(s->db);
        return 0;
}

static int changed(int r, const char *id, struct cop_error *err)
{
        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_command_not_found, "no command \"%.100s\"", id);
        return r < 0 ? r : 0;
}

int cop_store_command_set_pid(struct cop_store *s, const char *sandbox_id, const char *id, int64_t pid,
                              struct cop_error *err)
{
        struct cop_sql_args args = {.ref = sandbox_id, .id = id, .a = pid};

        return changed(cop_sql_exec(s, "UPDATE commands SET pid = :a WHERE sandbox_id = :ref AND id = :id",
                                    &cop_sql_args_table, &args, err),
                       id, err);
}

int cop_store_command_end(struct cop_store *s, const struct cop_command_row *row, struct cop_error *err)
{
        int r = cop_sql_exec(
                s,
                "UPDATE commands SET status = :status, summary = :summary, exit_code = :exit_code, signal = :signal,"
                " ended_at = :ended_at, stdout_bytes = :stdout_bytes, stderr_bytes = :stderr_bytes, log_bytes = "
                ":log_bytes,"
                " log_complete = :log_complete WHERE sandbox_id = :sandbox_id AND id = :id",
                &table, row, err);

        return changed(r, row->id, err);
}

int cop_store_command_get(struct cop_store *s, const char *sandbox_id, const char *pid_or_id,
                          struct cop_command_row **ret, struct cop_error *err)
{
        struct cop_sql_args args = {.ref = sandbox_id, .id = pid_or_id};
        int r;

        if (cop_parse_i64(pid_or_id, &args.a) == 0 && args.a > 0)
                r = cop_sql_get(s,
                                "SELECT * FROM commands WHERE sandbox_id = :ref AND pid = :a ORDER BY seq DESC LIMIT 1",
                                &cop_sql_args_table, &args, &table, ret, err);
        else
                r = cop_sql_get(s, "SELECT * FROM commands WHERE sandbox_id = :ref AND id = :id", &cop_sql_args_table,
                                &args, &table, ret, err);
        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_command_not_found, "no command \"%.100s\" in %s", pid_or_id,
                                     sandbox_id);
        return r < 0 ? r : 0;
}

#define SELECT_COMMANDS                                                                                   \
        "SELECT * FROM commands WHERE sandbox_id = :sandbox_id AND (:status IS NULL OR status = :status)" \
        " AND (:before_seq = 0 OR seq < :before_seq) AND seq > :after_seq ORDER BY seq "

int cop_store_command_list(struct cop_store *s, const struct cop_command_filter *f, struct cop_command_row ***ret,
                           struct cop_error *err)
{
        static const char oldest[] = SELECT_COMMANDS "ASC LIMIT :limit", newest[] = SELECT_COMMANDS "DESC LIMIT :limit";
        struct cop_command_filter filter = *f;
        struct cop_command_row **rows;

        if (filter.limit == 0)
                filter.limit = 1000;
        int n = cop_sql_query(s, f->oldest_first ? oldest : newest, &filter_table, &filter, &table, &rows, err);
        if (n < 0)
                return n;
        for (int i = 0, j = n - 1; !f->oldest_first && i < j; i++, j--) {
                struct cop_command_row *swap = rows[i];
                rows[i] = rows[j];
                rows[j] = swap;
        }
        *ret = rows;
        return 0;
}

struct cop_command_row *cop_command_row_free(struct cop_command_row *row)
{
        return cop_sql_row_free(&table, row);
}

struct cop_command_row **cop_command_rows_free(struct cop_command_row **rows)
{
        return cop_sql_rows_free(&table, (void **)rows);
}
