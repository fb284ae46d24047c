#include "store/store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "store/sql.h"

#define BUSY_TIMEOUT_MS 1000 /* only programs of others can hold the write lock */

/* SQLite would make the file with the umask's mode; what it makes beside it takes the mode of the file. */
static int make_file(const char *path, struct cop_error *err)
{
        _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

        return fd < 0 ? cop_error_errno(err, errno, "opening %s", path) : 0;
}

static int set_up(struct cop_store *s, struct cop_error *err)
{
        int rc = sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX,
                                 NULL);

        if (rc != SQLITE_OK)
                return cop_sql_error(s, rc, err);
        sqlite3_extended_result_codes(s->db, 1);
        sqlite3_busy_timeout(s->db, BUSY_TIMEOUT_MS);
        sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        /* secure_delete: Debian's SQLite overwrites what is deleted, which makes giving up 500 MB write 500 MB. */
        int r = cop_sql_run(
                s,
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;"
                "PRAGMA journal_size_limit = 33554432; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;"
                "PRAGMA secure_delete = FAST",
                err);
        if (r < 0)
                return r;
        sqlite3_wal_autocheckpoint(s->db, 0);
        return cop_schema_migrate(s, cop_schema_steps, cop_schema_step_count, err);
}

int cop_store_open(const char *path, struct cop_store **ret, struct cop_error *err)
{
        int r = make_file(path, err);
        if (r < 0)
                return r;
        struct cop_store *s = calloc(1, sizeof(*s));
        if (!s || !(s->path = strdup(path))) {
                free(s);
                return cop_error_errno(err, ENOMEM, "opening %s", path);
        }
        r = set_up(s, err);
        if (r == 0)
                r = cop_checkpointer_start(s, err);
        if (r == 0)
                r = cop_syncer_start(s, err);
        if (r < 0) {
                cop_store_close(s);
                return r;
        }
        *ret = s;
        return 0;
}

struct cop_store *cop_store_close(struct cop_store *s)
{
        if (!s)
                return NULL;
        cop_store_rollback(s);
        cop_syncer_stop(s);
        cop_checkpointer_stop(s);
        for (size_t i = 0; i < s->statement_count; i++)
                sqlite3_finalize(s->statements[i].stmt);
        sqlite3_close(s->db);
        free(s->path);
        free(s);
        return NULL;
}

int cop_store_begin(struct cop_store *s, struct cop_error *err)
{
        int r = cop_sql_exec(s, "BEGIN IMMEDIATE", NULL, NULL, err);

        return r < 0 ? r : 0;
}

int cop_store_commit(struct cop_store *s, struct cop_error *err)
{
        int r = cop_sql_exec(s, "COMMIT", NULL, NULL, err);

        if (r < 0) {
                cop_store_rollback(s);
                return r;
        }
        return 0;
}

void cop_store_rollback(struct cop_store *s)
{
        /* SQLITE_FULL and SQLITE_IOERR may have rolled it back already. */
        if (s->db && !sqlite3_get_autocommit(s->db))
                sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
}
