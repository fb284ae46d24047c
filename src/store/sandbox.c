#include "store/sql.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define C(field, kind) COP_COLUMN(struct cop_sandbox_row, field, kind)
static const struct cop_column columns[] = {
        C(id, ID),
        C(state, ID),
        C(image_id, ID),
        C(name, TEXT),
        C(image_name, TEXT),
        C(labels, TEXT),
        C(metadata, TEXT),
        C(env, TEXT),
        C(limits, TEXT),
        C(user, TEXT),
        C(workdir, TEXT),
        C(boot_id, TEXT),
        C(slot, INT),
        C(ttl, I64),
        C(expires_at, I64),
        C(created_at, I64),
        C(started_at, I64),
        C(ended_at, I64),
        C(start_time, I64),
        C(generation, I64),
        C(ended_reason, TEXT),
        C(node_id, ID),
        C(pending_node, ID),
        C(layers, TEXT),
        C(policy, TEXT),
        C(origin_node, ID),
        C(fork_id, ID),
        C(redo, TEXT),
        C(history, TEXT),
        C(last_activity_at, I64),
        C(warned_until, I64),
};
#undef C
static const struct cop_table table = COP_TABLE(struct cop_sandbox_row, columns);

#define SELECT_SANDBOXES                                                                                       \
        "SELECT id, state, name, image_id, image_name, labels, metadata, env, limits, user, workdir, boot_id," \
        " ended_reason, slot, ttl, expires_at, created_at, started_at, ended_at, start_time, generation,"      \
        " node_id, pending_node, layers, policy, origin_node, fork_id, redo, history, last_activity_at, "      \
        "warned_until"                                                                                         \
        " FROM sandboxes "

static int name_taken(struct cop_store *s, const char *name, int r, struct cop_error *err)
{
        if (r == -EEXIST && s->name_conflict)
                return cop_error_set(err, EEXIST, COP_ERR_name_taken,
                                     "a live sandbox is already named \"%s\"; choose another name or remove it", name);
        return r < 0 ? r : 0;
}

int cop_store_sandbox_insert(struct cop_store *s, const struct cop_sandbox_row *row, struct cop_error *err)
{
        int r = cop_sql_exec(
                s,
                "INSERT INTO sandboxes(id, state, name, image_id, image_name, labels, metadata, env, limits, user, "
                "workdir,"
                " boot_id, ended_reason, slot, ttl, expires_at, created_at, started_at, ended_at, start_time, "
                "generation, node_id, pending_node, layers, policy, origin_node, fork_id, redo, history, "
                "last_activity_at, warned_until)"
                " VALUES(:id, :state, :name, :image_id, :image_name, :labels, :metadata, :env, :limits, :user, "
                ":workdir,"
                " :boot_id, :ended_reason, :slot, :ttl, :expires_at, :created_at, :started_at, :ended_at, :start_time,"
                " :generation, :node_id, :pending_node, :layers, :policy, :origin_node, :fork_id, :redo, "
                ":history, :last_activity_at, :warned_until)",
                &table, row, err);

        return name_taken(s, row->name, r, err);
}

int cop_store_sandbox_free_slot(struct cop_store *s, unsigned from, unsigned count, unsigned *ret,
                                struct cop_error *err)
{
        const struct cop_sql_args args = {.a = from};
        int64_t slot = 0;

        /* The first gap is `from` or lies behind a slot in use. */
        int r = cop_sql_number(s,
                               "SELECT min(free) FROM (SELECT :a AS free UNION ALL SELECT slot + 1 FROM sandboxes WHERE"
                               " state <> 'ended' AND slot >= :a)"
                               " WHERE free NOT IN (SELECT slot FROM sandboxes WHERE state <> 'ended')",
                               &cop_sql_args_table, &args, &slot, err);
        if (r < 0)
                return r;
        if (slot < 0 || slot >= (int64_t)count)
                return cop_error_set(
                        err, EAGAIN, COP_ERR_too_many,
                        "all %u uid ranges of this machine are in use; remove a sandbox, also of another daemon",
                        count);
        *ret = (unsigned)slot;
        return 0;
}

static int change(struct cop_store *s, const char *sql, const struct cop_table *in, const void *row, const char *id,
                  struct cop_error *err)
{
        int r = cop_sql_exec(s, sql, in, row, err);

        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_sandbox_not_found, "no sandbox \"%.100s\"", id);
        return r < 0 ? r : 0;
}

int cop_store_sandbox_started(struct cop_store *s, const struct cop_sandbox_row *row, struct cop_error *err)
{
        return change(s,
                      "UPDATE sandboxes SET state = 'running', started_at = :started_at, start_time = :start_time,"
                      " expires_at = :expires_at WHERE id = :id",
                      &table, row, row->id, err);
}

int cop_store_sandbox_set_slot(struct cop_store *s, const char *id, unsigned slot, struct cop_error *err)
{
        struct cop_sql_args args = {.id = id, .a = slot};

        return change(s, "UPDATE sandboxes SET slot = :a WHERE id = :id", &cop_sql_args_table, &args, id, err);
}

int cop_store_sandbox_ending(struct cop_store *s, const char *id, struct cop_error *err)
{
        struct cop_sql_args args = {.id = id};

        return change(s, "UPDATE sandboxes SET state = 'ending' WHERE id = :id", &cop_sql_args_table, &args, id, err);
}

/* What nobody can finish any more: the daemon that ran it died, and the sandbox ended before the next one came. */
static int settle_below(struct cop_store *s, const struct cop_sql_args *args, struct cop_error *err)
{
        int r = cop_sql_exec(s,
                             "UPDATE cells SET status = 'lost', ended_at = :a WHERE sandbox_id = :id AND ended_at = 0",
                             &cop_sql_args_table, args, err);

        if (r >= 0)
                r = cop_sql_exec(
                        s, "UPDATE commands SET status = 'lost', ended_at = :a WHERE sandbox_id = :id AND ended_at = 0",
                        &cop_sql_args_table, args, err);
        if (r >= 0)
                r = cop_sql_exec(s, "UPDATE contexts SET state = 'dead' WHERE sandbox_id = :id", &cop_sql_args_table,
                                 args, err);
        return r < 0 ? r : 0;
}

int cop_store_sandbox_ended(struct cop_store *s, const char *id, usec_t at, const char *reason, bool purge,
                            struct cop_error *err)
{
        struct cop_sql_args args = {.id = id, .text = reason, .a = (int64_t)at, .b = purge};

        int r = cop_store_begin(s, err);
        if (r < 0)
                return r;
        r = change(s,
                   "UPDATE sandboxes SET state = \'ended\', ended_at = :a, ended_reason = :text, purge = max(purge, "
                   ":b) WHERE id = :id",
                   &cop_sql_args_table, &args, id, err);
        if (r == 0)
                r = settle_below(s, &args, err);
        if (r < 0) {
                cop_store_rollback(s);
                return r;
        }
        return cop_store_commit(s, err);
}

int cop_store_sandbox_set_node(struct cop_store *s, const struct cop_sandbox_row *row, struct cop_error *err)
{
        return change(s,
                      "UPDATE sandboxes SET state = :state, node_id = :node_id, pending_node = :pending_node, layers = "
                      ":layers,"
                      " boot_id = :boot_id, redo = :redo, origin_node = :origin_node, "
                      "history = :history,"
                      " last_activity_at = :last_activity_at WHERE id = :id",
                      &table, row, row->id, err);
}

int cop_store_sandbox_update(struct cop_store *s, const struct cop_sandbox_row *row, struct cop_error *err)
{
        int r = change(s,
                       "UPDATE sandboxes SET name = :name, labels = :labels, metadata = :metadata, limits = :limits, "
                       "policy = :policy, ttl = :ttl,"
                       " expires_at = :expires_at, warned_until = :warned_until WHERE id = :id",
                       &table, row, row->id, err);

        return name_taken(s, row->name, r, err);
}

int cop_store_sandbox_set_generation(struct cop_store *s, const char *id, uint64_t generation, struct cop_error *err)
{
        struct cop_sql_args args = {.id = id, .a = (int64_t)generation};

        return change(s, "UPDATE sandboxes SET generation = :a WHERE id = :id", &cop_sql_args_table, &args, id, err);
}

int cop_store_sandbox_get(struct cop_store *s, const char *ref, struct cop_sandbox_row **ret, struct cop_error *err)
{
        struct cop_sql_args args = {.ref = ref};

        int r = cop_sql_get(s, SELECT_SANDBOXES "WHERE id = :ref", &cop_sql_args_table, &args, &table, ret, err);
        if (r == 0)
                r = cop_sql_get(s, SELECT_SANDBOXES "WHERE name = :ref AND state NOT IN ('ending', 'ended')",
                                &cop_sql_args_table, &args, &table, ret, err);
        if (r == 0)
                r = cop_sql_get(s,
                                SELECT_SANDBOXES "WHERE name = :ref ORDER BY ended_at = 0 DESC, ended_at DESC LIMIT 1",
                                &cop_sql_args_table, &args, &table, ret, err);
        if (r == 0)
                return cop_error_set(err, ENOENT, COP_ERR_sandbox_not_found, "no sandbox \"%.100s\"", ref);
        return r < 0 ? r : 0;
}

int cop_store_sandbox_list(struct cop_store *s, enum cop_store_which which, unsigned limit,
                           struct cop_sandbox_row ***ret, struct cop_error *err)
{
        struct cop_sql_args args = {
                .a = which != COP_STORE_ENDED, .b = which != COP_STORE_LIVE, .c = limit ? limit : 1000};

        int r = cop_sql_query(s,
                              SELECT_SANDBOXES "WHERE CASE WHEN state = 'ended' THEN :b ELSE :a END"
                                               " ORDER BY created_at DESC, id LIMIT :c",
                              &cop_sql_args_table, &args, &table, ret, err);
        return r < 0 ? r : 0;
}

int cop_store_image_users(struct cop_store *s, const char *image_id, char *ids, size_t ids_size, unsigned *ret_count,
                          struct cop_error *err)
{
        struct cop_sandbox_row **rows;
        struct cop_sql_args args = {.id = image_id};
        size_t used = 0;

        int r = cop_sql_query(
                s,
                "SELECT id FROM (SELECT id, created_at FROM sandboxes WHERE image_id = :id AND state <> 'ended'"
                " UNION ALL SELECT id, created_at FROM nodes WHERE image_id = :id"
                " AND id NOT IN (SELECT golden_node FROM images)) ORDER BY created_at",
                &cop_sql_args_table, &args, &table, &rows, err);
        if (r < 0)
                return r;
        if (ids && ids_size)
                ids[0] = '\0';
        for (int i = 0; ids && rows[i]; i++) {
                size_t need = strlen(rows[i]->id) + 2;
                if (used + need >= ids_size)
                        break;
                used += (size_t)snprintf(ids + used, ids_size - used, "%s%s", i ? ", " : "", rows[i]->id);
        }
        cop_sandbox_rows_free(rows);
        *ret_count = (unsigned)r;
        return 0;
}

int cop_store_sandbox_prunable(struct cop_store *s, unsigned keep, struct cop_sandbox_row ***ret, struct cop_error *err)
{
        struct cop_sql_args args = {.a = keep};

        int r = cop_sql_query(
                s, SELECT_SANDBOXES "WHERE state = 'ended' AND purge < 2 ORDER BY ended_at DESC LIMIT 1000 OFFSET :a",
                &cop_sql_args_table, &args, &table, ret, err);
        return r < 0 ? r : 0;
}

int cop_store_sandbox_delete(struct cop_store *s, const char *id, struct cop_error *err)
{
        struct cop_sql_args args = {.id = id};

        return change(s, "DELETE FROM sandboxes WHERE id = :id", &cop_sql_args_table, &args, id, err);
}

struct cop_sandbox_row *cop_sandbox_row_free(struct cop_sandbox_row *row)
{
        return cop_sql_row_free(&table, row);
}

struct cop_sandbox_row **cop_sandbox_rows_free(struct cop_sandbox_row **rows)
{
        return cop_sql_rows_free(&table, (void **)rows);
}
