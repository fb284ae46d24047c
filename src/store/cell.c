#include "store/sql.h"

#include <string.h>

#define C(field, kind) COP_COLUMN(struct cop_cell_row, field, kind)
static const struct cop_column columns[] = {
        C(seq, I64),        C(id, ID),          C(sandbox_id, ID),
        C(context_id, ID),  C(status, ID),      C(code, TEXT),
        C(options, TEXT),   C(msg_id, TEXT),    C(summary, TEXT),
        C(outputs, TEXT),   C(record, TEXT),    C(execution_count, I64),
        C(generation, I64), C(created_at, I64), C(started_at, I64),
        C(ended_at, I64),   C(log_bytes, I64),  C(log_complete, BOOL),
        C(replay_of, ID),   C(pure, BOOL),
};
#undef C
static const struct cop_table table = COP_TABLE(struct cop_cell_row, columns);

#define C(field, kind) COP_COLUMN(struct cop_cell_filter, field, kind)
static const struct cop_column filter_columns[] = {
        C(sandbox_id, TEXT), C(context_id, TEXT), C(status, TEXT),    C(before_seq, I64),
        C(after_seq, I64),   C(limit, INT),       C(open, BOOL),      C(oldest_first, BOOL),
        C(code, BOOL),       C(outputs, BOOL),    C(originals, BOOL),
};
#undef C
static const struct cop_table filter_table = COP_TABLE(struct cop_cell_filter, filter_columns);

int cop_store_cell_insert(struct cop_store *s, struct cop_cell_row *row, struct cop_error *err)
{
        int r = cop_sql_exec(
                s,
                "INSERT INTO cells(id, sandbox_id, context_id, status, execution_count, generation, created_at, "
                "started_at,"
                " ended_at, log_bytes, log_complete, replay_of, pure, msg_id, record, options, summary, "
                "code, outputs)"
                " VALUES(:id, :sandbox_id, :context_id, :status, :execution_count, :generation, :created_at, "
                ":started_at,"
                " :ended_at, :log_bytes, :log_complete, :replay_of, :pure, :msg_id, :record, :options, "
                ":summary, :code, :outputs)",
                &table, row, err);

        if (r < 0)
                return r;
        row->seq = sqlite3_last_insert_rowid(s->db);
        return 0;
}

static int change(struct cop_store *s, const char *sql, const struct cop_cell_row *row, struct cop_error *err)
{
        int r = cop_sql_exec(s, sql, &table, row, err);

        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_cell_not_found, "no cell \"%.100s\"", row->id);
        return r < 0 ? r : 0;
}

int cop_store_cell_start(struct cop_store *s, const struct cop_cell_row *row, struct cop_error *err)
{
        return change(s,
                      "UPDATE cells SET status = :status, msg_id = :msg_id, generation = :generation,"
                      " started_at = :started_at WHERE id = :id",
                      row, err);
}

static int end_cell(struct cop_store *s, const struct cop_cell_row *row, struct cop_error *err)
{
        return change(s,
                      "UPDATE cells SET status = :status, execution_count = :execution_count, generation = :generation,"
                      " ended_at = :ended_at, summary = :summary, outputs = :outputs, log_bytes = :log_bytes,"
                      " log_complete = :log_complete WHERE id = :id",
                      row, err);
}

int cop_store_cell_end(struct cop_store *s, const struct cop_cell_row *row, const struct cop_context_row *context,
                       struct cop_error *err)
{
        if (!context)
                return end_cell(s, row, err);
        int r = cop_store_begin(s, err);
        if (r < 0)
                return r;
        r = end_cell(s, row, err);
        if (r == 0)
                r = cop_store_context_touch(s, context, err);
        if (r < 0) {
                cop_store_rollback(s);
                return r;
        }
        return cop_store_commit(s, err);
}

static void measure(struct cop_cell_row *row)
{
        row->code_len = row->code ? strlen(row->code) : 0;
}

int cop_store_cell_get(struct cop_store *s, const char *sandbox_id, const char *id, struct cop_cell_row **ret,
                       struct cop_error *err)
{
        struct cop_sql_args args = {.ref = sandbox_id, .id = id};

        int r = cop_sql_get(s, "SELECT * FROM cells WHERE id = :id AND sandbox_id = :ref", &cop_sql_args_table, &args,
                            &table, ret, err);
        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_cell_not_found, "no cell \"%.100s\" in %s", id, sandbox_id);
        if (r < 0)
                return r;
        measure(*ret);
        return 0;
}

/* Two texts, not one with a parameter for the order: each then walks the index and stops at its limit. */
#define SELECT_CELLS                                                                                            \
        "SELECT seq, id, sandbox_id, context_id, status, execution_count, generation, created_at, started_at, " \
        "ended_at,"                                                                                             \
        " log_bytes, log_complete, replay_of, pure, msg_id, record, options, summary, CASE WHEN :code "         \
        "THEN code END AS code,"                                                                                \
        " CASE WHEN :outputs THEN outputs END AS outputs FROM cells WHERE sandbox_id = :sandbox_id"             \
        " AND (:context_id IS NULL OR context_id = :context_id) AND (:status IS NULL OR status = :status)"      \
        " AND (:before_seq = 0 OR seq < :before_seq) AND seq > :after_seq AND (NOT :open OR ended_at = 0)"      \
        " AND (NOT :originals OR replay_of = '') ORDER BY "                                                     \
        "seq "

int cop_store_cell_list(struct cop_store *s, const struct cop_cell_filter *f, struct cop_cell_row ***ret,
                        struct cop_error *err)
{
        static const char oldest[] = SELECT_CELLS "ASC LIMIT :limit", newest[] = SELECT_CELLS "DESC LIMIT :limit";
        struct cop_cell_filter filter = *f;
        struct cop_cell_row **rows;

        if (filter.limit == 0)
                filter.limit = 100;
        int n = cop_sql_query(s, f->oldest_first ? oldest : newest, &filter_table, &filter, &table, &rows, err);
        if (n < 0)
                return n;
        for (int i = 0; i < n; i++)
                measure(rows[i]);
        for (int i = 0, j = n - 1; !f->oldest_first && i < j; i++, j--) {
                struct cop_cell_row *swap = rows[i];
                rows[i] = rows[j];
                rows[j] = swap;
        }
        *ret = rows;
        return 0;
}

#define C(field, kind) COP_COLUMN(struct cop_cell_range, field, kind)
static const struct cop_column range_columns[] = {
        C(sandbox_id, TEXT), C(context_id, TEXT), C(after, I64), C(upto, I64), C(generation, I64), C(limit, INT),
};
#undef C
static const struct cop_table range_table = COP_TABLE(struct cop_cell_range, range_columns);

int cop_store_cell_count(struct cop_store *s, const struct cop_cell_range *range, uint64_t *ret, struct cop_error *err)
{
        int64_t count = 0;
        int r = cop_sql_number(s,
                               "SELECT count(*) FROM cells WHERE sandbox_id = :sandbox_id AND seq > :after AND seq <= "
                               ":upto AND started_at > 0 AND ended_at > 0 AND replay_of = ''",
                               &range_table, range, &count, err);

        if (r < 0)
                return r;
        *ret = (uint64_t)count;
        return 0;
}

int cop_store_cell_made(struct cop_store *s, const struct cop_cell_range *range, struct cop_cell_row ***ret,
                        struct cop_error *err)
{
        int r = cop_sql_query(
                s,
                "SELECT * FROM (SELECT seq, id, sandbox_id, context_id, status, generation, replay_of, pure, options"
                "  FROM cells WHERE sandbox_id = :sandbox_id AND context_id = :context_id AND seq > :after AND seq <= "
                ":upto"
                "  AND generation = :generation AND started_at > 0 ORDER BY seq DESC LIMIT :limit) ORDER BY seq",
                &range_table, range, &table, ret, err);

        return r < 0 ? r : 0;
}

int cop_store_cell_newest(struct cop_store *s, const char *sandbox_id, bool ended, int64_t *ret, struct cop_error *err)
{
        struct cop_sql_args args = {.id = sandbox_id, .a = ended};
        int64_t seq = 0;
        int r = cop_sql_number(s,
                               "SELECT seq FROM cells WHERE sandbox_id = :id AND (:a = 0 OR ended_at <> 0) ORDER BY "
                               "seq DESC LIMIT 1",
                               &cop_sql_args_table, &args, &seq, err);

        if (r < 0)
                return r;
        *ret = seq;
        return 0;
}

int cop_store_cell_recorded(struct cop_store *s, const char *sandbox_id, int64_t seq, struct cop_error *err)
{
        struct cop_sql_args args = {.id = sandbox_id, .a = seq};
        int64_t found = 0;

        return cop_sql_number(s, "SELECT 1 FROM cells WHERE seq = :a AND sandbox_id = :id", &cop_sql_args_table, &args,
                              &found, err);
}

struct cop_cell_row *cop_cell_row_free(struct cop_cell_row *row)
{
        return cop_sql_row_free(&table, row);
}

struct cop_cell_row **cop_cell_rows_free(struct cop_cell_row **rows)
{
        return cop_sql_rows_free(&table, (void **)rows);
}
