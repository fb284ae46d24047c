#include "store/sql.h"

#define PRUNE_EVERY 500

#define C(field, kind) COP_COLUMN(struct cop_event_row, field, kind)
static const struct cop_column columns[] = {
        C(id, I64), C(at, I64), C(type, TEXT), C(detail, TEXT), C(sandbox_id, ID),
};
#undef C
static const struct cop_table table = COP_TABLE(struct cop_event_row, columns);

static int prune(struct cop_store *s, int64_t newest, struct cop_error *err)
{
        struct cop_sql_args args = {.a = newest - COP_STORE_EVENTS_KEEP};

        if (++s->events_since_prune < PRUNE_EVERY)
                return 0;
        int r = cop_sql_exec(s, "DELETE FROM events WHERE id <= :a", &cop_sql_args_table, &args, err);
        if (r >= 0)
                s->events_since_prune = 0;
        return r < 0 ? r : 0;
}

int cop_store_event_add(struct cop_store *s, usec_t at, const char *type, const char *sandbox_id, const char *detail,
                        int64_t *ret_id, struct cop_error *err)
{
        struct cop_sql_args args = {.a = (int64_t)at, .id = sandbox_id ? sandbox_id : "", .text = detail, .ref = type};

        int r = cop_sql_exec(s, "INSERT INTO events(at, type, sandbox_id, detail) VALUES(:a, :ref, :id, :text)",
                             &cop_sql_args_table, &args, err);
        if (r < 0)
                return r;
        int64_t id = sqlite3_last_insert_rowid(s->db);
        if (ret_id)
                *ret_id = id;
        /* The event is in: what could not be pruned now goes with the next one. */
        prune(s, id, NULL);
        return 0;
}

int cop_store_event_list(struct cop_store *s, int64_t after, const char *sandbox_id, unsigned limit,
                         struct cop_event_row ***ret, struct cop_error *err)
{
        struct cop_sql_args args = {.a = after, .b = limit ? limit : 1000, .id = sandbox_id};
        int r;

        if (sandbox_id)
                r = cop_sql_query(s, "SELECT * FROM events WHERE sandbox_id = :id AND id > :a ORDER BY id LIMIT :b",
                                  &cop_sql_args_table, &args, &table, ret, err);
        else
                r = cop_sql_query(s, "SELECT * FROM events WHERE id > :a ORDER BY id LIMIT :b", &cop_sql_args_table,
                                  &args, &table, ret, err);
        return r < 0 ? r : 0;
}

struct cop_event_row *cop_event_row_free(struct cop_event_row *row)
{
        return cop_sql_row_free(&table, row);
}

struct cop_event_row **cop_event_rows_free(struct cop_event_row **rows)
{
        return cop_sql_rows_free(&table, (void **)rows);
}
