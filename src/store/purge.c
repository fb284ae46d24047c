/* Giving up what a sandbox left in the database, a little at a time.
 *
 * SQLite reads every page of a long value to free it, so the journal of one sandbox may take seconds to delete.  The row is
 * marked in the transaction that ends the sandbox (1: what is below it goes; 2: the row too); the engine then calls
 * cop_store_purge_step between other work.  What is left of it at a crash goes on at the next start.
 */
#include "store/sql.h"

#define COMMANDS_A_STEP "100"

struct marked {
        char id[COP_STORE_ID_MAX];
        int purge;
};
static const struct cop_column columns[] = {
        COP_COLUMN(struct marked, id, ID),
        COP_COLUMN(struct marked, purge, INT),
};
static const struct cop_table table = COP_TABLE(struct marked, columns);

int cop_store_sandbox_forget(struct cop_store *s, const char *id, struct cop_error *err)
{
        struct cop_sql_args args = {.id = id};
        int r = cop_sql_exec(s, "UPDATE sandboxes SET purge = 2 WHERE id = :id", &cop_sql_args_table, &args, err);

        return r < 0 ? r : 0;
}

static int purge_one(struct cop_store *s, const struct marked *m, struct cop_error *err)
{
        int r = cop_sql_exec(s, "DELETE FROM cells WHERE seq = (SELECT min(seq) FROM cells WHERE sandbox_id = :id)",
                             &table, m, err);

        if (r != 0)
                return r;
        r = cop_sql_exec(s,
                         "DELETE FROM commands WHERE seq IN (SELECT seq FROM commands WHERE sandbox_id = :id"
                         " LIMIT " COMMANDS_A_STEP ")",
                         &table, m, err);
        if (r != 0)
                return r;
        if (m->purge >= 2)
                return cop_sql_exec(s, "DELETE FROM sandboxes WHERE id = :id", &table, m, err);
        r = cop_sql_exec(s, "DELETE FROM contexts WHERE sandbox_id = :id", &table, m, err);
        return r < 0 ? r : cop_sql_exec(s, "UPDATE sandboxes SET purge = 0 WHERE id = :id", &table, m, err);
}

int cop_store_purge_step(struct cop_store *s, struct cop_error *err)
{
        struct marked *m = NULL;

        int r = cop_sql_get(s, "SELECT id, purge FROM sandboxes WHERE purge > 0 LIMIT 1", NULL, NULL, &table, &m, err);
        if (r <= 0)
                return r;
        r = purge_one(s, m, err);
        cop_sql_row_free(&table, m);
        return r < 0 ? r : 1;
}
