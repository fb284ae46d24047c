/* The schema as the list of steps that led to it.  A step that was ever released is never changed; a new one is added
 * at the end.  tests/unit/test-store-schema.c starts from every earlier version. */
#include "store/sql.h"

#include <stdio.h>

#include "base/cleanup.h"

static const char step_1[] =
        "CREATE TABLE images("
        "  id TEXT PRIMARY KEY, name TEXT UNIQUE, digest TEXT, path TEXT NOT NULL, info TEXT, size_bytes INTEGER NOT "
        "NULL,"
        "  files INTEGER NOT NULL, created_at INTEGER NOT NULL, packages TEXT) STRICT;"

        "CREATE TABLE sandboxes("
        "  id TEXT PRIMARY KEY, state TEXT NOT NULL, name TEXT, image_id TEXT NOT NULL, image_name TEXT, labels TEXT,"
        "  metadata TEXT, env TEXT, limits TEXT, user TEXT, workdir TEXT, boot_id TEXT, ended_reason TEXT,"
        "  slot INTEGER NOT NULL, ttl INTEGER NOT NULL, expires_at INTEGER NOT NULL, created_at INTEGER NOT NULL,"
        "  started_at INTEGER NOT NULL, ended_at INTEGER NOT NULL, start_time INTEGER NOT NULL, generation INTEGER NOT "
        "NULL)"
        "  STRICT;"
        /* A sandbox gives up its name when it begins to end, its uid range only when its last process is gone. */
        "CREATE UNIQUE INDEX sandboxes_name ON sandboxes(name) WHERE state IN ('starting', 'running');"
        "CREATE UNIQUE INDEX sandboxes_slot ON sandboxes(slot) WHERE state <> 'ended';"
        "CREATE INDEX sandboxes_ended ON sandboxes(ended_at) WHERE state = 'ended';"
        "CREATE INDEX sandboxes_created ON sandboxes(created_at);"

        "CREATE TABLE contexts("
        "  sandbox_id TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE, id TEXT NOT NULL, state TEXT NOT NULL,"
        "  kernel_key TEXT NOT NULL, name TEXT, kernelspec TEXT, language TEXT, cwd TEXT, env TEXT, kernel_dir TEXT, "
        "key TEXT,"
        "  session TEXT, state_lost TEXT, generation INTEGER NOT NULL, execution_count INTEGER NOT NULL,"
        "  kernel_pid INTEGER NOT NULL, created_at INTEGER NOT NULL, last_activity_at INTEGER NOT NULL,"
        "  PRIMARY KEY(sandbox_id, id)) STRICT;"

        "CREATE TABLE cells("
        "  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
        "  sandbox_id TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE, context_id TEXT NOT NULL,"
        "  status TEXT NOT NULL, execution_count INTEGER NOT NULL, generation INTEGER NOT NULL, created_at INTEGER NOT "
        "NULL,"
        "  started_at INTEGER NOT NULL, ended_at INTEGER NOT NULL, log_bytes INTEGER NOT NULL, log_complete INTEGER "
        "NOT NULL,"
        "  msg_id TEXT, record TEXT, options TEXT,"
        /* The long ones last: SQLite reads a row from its start. */
        "  summary TEXT, code TEXT NOT NULL, outputs TEXT) STRICT;"
        "CREATE INDEX cells_sandbox ON cells(sandbox_id, seq);"
        "CREATE INDEX cells_open ON cells(sandbox_id) WHERE ended_at = 0;"

        "CREATE TABLE commands("
        "  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
        "  sandbox_id TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE, status TEXT NOT NULL, pid INTEGER NOT "
        "NULL,"
        "  exit_code INTEGER NOT NULL, signal INTEGER NOT NULL, detached INTEGER NOT NULL, started_at INTEGER NOT NULL,"
        "  ended_at INTEGER NOT NULL, stdout_bytes INTEGER NOT NULL, stderr_bytes INTEGER NOT NULL, log_bytes INTEGER "
        "NOT NULL,"
        "  log_complete INTEGER NOT NULL, summary TEXT, spec TEXT) STRICT;"
        "CREATE INDEX commands_sandbox ON commands(sandbox_id, seq);"

        "CREATE TABLE events("
        "  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, type TEXT NOT NULL, sandbox_id TEXT NOT NULL,"
        "  detail TEXT) STRICT;"
        "CREATE INDEX events_sandbox ON events(sandbox_id, id);"

        "CREATE TABLE tokens("
        "  id TEXT PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, name TEXT, created_at INTEGER NOT NULL, expires_at "
        "INTEGER NOT NULL)"
        "  STRICT;";

/* Deleting the cells of a sandbox may take seconds: it is marked, and deleted in small steps (purge.c). */
static const char step_2[] = "ALTER TABLE sandboxes ADD COLUMN purge INTEGER NOT NULL DEFAULT 0;"
                             "CREATE INDEX sandboxes_purge ON sandboxes(id) WHERE purge > 0;";

/* Nodes outlive the sandbox they were made from.  `layers` of a node: ids of nodes, topmost first, beginning with its own; of
 * a sandbox: those below its upper directory.  A name belongs to a sandbox until it begins to end, asleep or not. */
static const char step_3[] =
        "CREATE TABLE nodes("
        "  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, sandbox_id TEXT NOT NULL, parent_id TEXT "
        "NOT NULL,"
        "  kind TEXT NOT NULL, reason TEXT NOT NULL, image_id TEXT NOT NULL, cell_id TEXT NOT NULL, name TEXT,"
        "  layers TEXT NOT NULL, spec TEXT NOT NULL, created_at INTEGER NOT NULL, pause INTEGER NOT NULL,"
        "  duration INTEGER NOT NULL, memory_bytes INTEGER NOT NULL, file_bytes INTEGER NOT NULL, files INTEGER NOT "
        "NULL) STRICT;"
        "CREATE UNIQUE INDEX nodes_name ON nodes(name) WHERE name IS NOT NULL;"
        "CREATE INDEX nodes_sandbox ON nodes(sandbox_id, seq);"
        "CREATE INDEX nodes_parent ON nodes(parent_id);"
        "ALTER TABLE sandboxes ADD COLUMN node_id TEXT NOT NULL DEFAULT '';"
        "ALTER TABLE sandboxes ADD COLUMN pending_node TEXT NOT NULL DEFAULT '';"
        "ALTER TABLE sandboxes ADD COLUMN layers TEXT;"
        "ALTER TABLE sandboxes ADD COLUMN policy TEXT;"
        "DROP INDEX sandboxes_name;"
        "CREATE UNIQUE INDEX sandboxes_name ON sandboxes(name) WHERE state NOT IN ('ending', 'ended');";

/* Where a sandbox came from, and what undo needs: travel_cell is the newest cell at the time of the last undo or goto, redo the
 * nodes that were left by it (JSON array, the one to go to last). */
static const char step_4[] = "ALTER TABLE sandboxes ADD COLUMN origin_node TEXT NOT NULL DEFAULT '';"
                             "ALTER TABLE sandboxes ADD COLUMN travel_cell TEXT NOT NULL DEFAULT '';"
                             "ALTER TABLE sandboxes ADD COLUMN redo TEXT;"
                             "ALTER TABLE sandboxes ADD COLUMN last_activity_at INTEGER NOT NULL DEFAULT 0;";

/* The memory that new sandboxes of the image begin with: a node, and what is worth telling of it (JSON). */
static const char step_5[] = "ALTER TABLE images ADD COLUMN golden_node TEXT NOT NULL DEFAULT '';"
                             "ALTER TABLE images ADD COLUMN golden TEXT;";

/* What a replay after a cold boot needs: of a cell, the one before it in the memory of its kernel (parent_id), whether its caller called it
 * pure, and of which cell it is a replay; of a context, the last cell in its memory. */
static const char step_6[] = "ALTER TABLE cells ADD COLUMN parent_id TEXT NOT NULL DEFAULT '';"
                             "ALTER TABLE cells ADD COLUMN replay_of TEXT NOT NULL DEFAULT '';"
                             "ALTER TABLE cells ADD COLUMN pure INTEGER NOT NULL DEFAULT 0;"
                             "ALTER TABLE contexts ADD COLUMN last_cell TEXT NOT NULL DEFAULT '';";

/* Which cells led to the present state (engine/history.c); and the node that stands right after a cell is looked up for each. */
static const char step_7[] = "ALTER TABLE sandboxes ADD COLUMN history TEXT;"
                             "CREATE INDEX nodes_cell ON nodes(cell_id);";

/* When a snapshot is given up, and the end of a sleep that was told of already. */
static const char step_8[] = "ALTER TABLE nodes ADD COLUMN expires_at INTEGER NOT NULL DEFAULT 0;"
                             "CREATE INDEX nodes_expires ON nodes(expires_at) WHERE expires_at > 0;"
                             "ALTER TABLE sandboxes ADD COLUMN warned_until INTEGER NOT NULL DEFAULT 0;";

/* How many nodes lie behind a node: thinning keeps every tenth, and looks at all of a sandbox's after each cell. */
static const char step_9[] = "ALTER TABLE nodes ADD COLUMN ordinal INTEGER NOT NULL DEFAULT 0;"
                             "UPDATE nodes SET ordinal = CAST(coalesce(json_extract(spec, '$.ordinal'), 0) AS INTEGER)"
                             "  WHERE json_valid(spec);";

/* Which cells led to a state stands in its history alone: undo and replay go by that, too. */
static const char step_10[] = "ALTER TABLE cells DROP COLUMN parent_id;"
                              "ALTER TABLE contexts DROP COLUMN last_cell;"
                              "ALTER TABLE sandboxes DROP COLUMN travel_cell;";

/* The boot of the host in which a node was only written: it may be half on disk in any other.  '' = it is on disk. */
static const char step_11[] = "ALTER TABLE nodes ADD COLUMN written_boot TEXT NOT NULL DEFAULT '';"
                              "CREATE INDEX nodes_written ON nodes(seq) WHERE written_boot <> '';";

/* A fork has the commands of its source, by their ids. */
static const char step_12[] =
        "ALTER TABLE commands RENAME TO old_commands;"
        "DROP INDEX commands_sandbox;"
        "CREATE TABLE commands("
        "  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL,"
        "  sandbox_id TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE, status TEXT NOT NULL, pid INTEGER NOT "
        "NULL,"
        "  exit_code INTEGER NOT NULL, signal INTEGER NOT NULL, detached INTEGER NOT NULL, started_at INTEGER NOT NULL,"
        "  ended_at INTEGER NOT NULL, stdout_bytes INTEGER NOT NULL, stderr_bytes INTEGER NOT NULL, log_bytes INTEGER "
        "NOT NULL,"
        "  log_complete INTEGER NOT NULL, summary TEXT, spec TEXT, UNIQUE(sandbox_id, id)) STRICT;"
        "INSERT INTO commands SELECT * FROM old_commands;"
        "DROP TABLE old_commands;"
        "CREATE INDEX commands_sandbox ON commands(sandbox_id, seq);";

/* Which copies were made by one fork is not told by their node: a fork of what has not run since takes the last one. */
static const char step_13[] =
        "ALTER TABLE sandboxes ADD COLUMN fork_id TEXT NOT NULL DEFAULT '';"
        "UPDATE sandboxes SET fork_id = origin_node WHERE origin_node IN (SELECT id FROM nodes WHERE reason = 'fork');";

const char *const cop_schema_steps[] = {
        step_1, step_2, step_3, step_4, step_5, step_6, step_7, step_8, step_9, step_10, step_11, step_12, step_13,
};
const unsigned cop_schema_step_count = ELEMENTSOF(cop_schema_steps);

static int get_version(struct cop_store *s, unsigned *ret, struct cop_error *err)
{
        sqlite3_stmt *stmt = NULL;
        int rc = sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &stmt, NULL);

        if (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                *ret = (unsigned)sqlite3_column_int(stmt, 0);
                rc = SQLITE_OK;
        }
        sqlite3_finalize(stmt);
        return rc == SQLITE_OK ? 0 : cop_sql_error(s, rc, err);
}

static int take_step(struct cop_store *s, const char *step, unsigned version, struct cop_error *err)
{
        char pragma[64];

        /* user_version lives in the file's header and is part of the transaction. */
        snprintf(pragma, sizeof(pragma), "PRAGMA user_version = %u", version);
        int r = cop_sql_run(s, "BEGIN IMMEDIATE", err);
        if (r < 0)
                return r;
        r = cop_sql_run(s, step, err);
        if (r == 0)
                r = cop_sql_run(s, pragma, err);
        if (r == 0)
                r = cop_sql_run(s, "COMMIT", err);
        if (r < 0)
                sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
        return r;
}

int cop_schema_migrate(struct cop_store *s, const char *const *steps, unsigned count, struct cop_error *err)
{
        unsigned version = 0;

        int r = get_version(s, &version, err);
        if (r < 0)
                return r;
        if (version > count)
                return cop_error_set(
                        err, EPROTO, COP_ERR_unsupported,
                        "%s was written by a newer Coppice (schema %u, this one knows up to %u); run that version or "
                        "choose another COPPICE_HOME",
                        s->path, version, count);
        for (; version < count; version++) {
                r = take_step(s, steps[version], version + 1, err);
                if (r < 0)
                        return cop_error_wrap(err, r, "bringing %s to schema %u", s->path, version + 1);
        }
        return 0;
}
