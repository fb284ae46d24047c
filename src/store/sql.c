#include "store/sql.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static const struct cop_column args_columns[] = {
        COP_COLUMN(struct cop_sql_args, id, TEXT),   COP_COLUMN(struct cop_sql_args, ref, TEXT),
        COP_COLUMN(struct cop_sql_args, text, TEXT), COP_COLUMN(struct cop_sql_args, a, I64),
        COP_COLUMN(struct cop_sql_args, b, I64),     COP_COLUMN(struct cop_sql_args, c, I64),
};
const struct cop_table cop_sql_args_table = COP_TABLE(struct cop_sql_args, args_columns);

int cop_sql_error(struct cop_store *s, int rc, struct cop_error *err)
{
        const char *path = s->path, *text = s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc);
        int system_errno = s->db ? sqlite3_system_errno(s->db) : 0;

        switch (rc & 0xff) {
        case SQLITE_FULL:
                return cop_error_set(err, ENOSPC, COP_ERR_disk_full, "no space left for %s; free some on that disk",
                                     path);
        case SQLITE_NOMEM:
                return cop_error_set(err, ENOMEM, COP_ERR_no_memory, "out of memory while using %s", path);
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
                return cop_error_set(err, EBUSY, COP_ERR_unavailable,
                                     "%s is locked by another program; end what writes to it", path);
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB:
                return cop_error_set(err, EBADMSG, COP_ERR_image_damaged,
                                     "%s is damaged (%s); restore a copy or move it away", path, text);
        case SQLITE_CONSTRAINT:
                return cop_error_set(err, EEXIST, COP_ERR_internal, "%s: %s", path, text);
        case SQLITE_READONLY:
                return cop_error_set(err, EROFS, COP_ERR_io_error, "%s cannot be written; check its owner and the disk",
                                     path);
        case SQLITE_CANTOPEN:
                return cop_error_errno(err, system_errno ? system_errno : ENOENT, "opening %s", path);
        case SQLITE_IOERR:
                if (system_errno == ENOSPC || system_errno == EDQUOT)
                        return cop_error_set(err, ENOSPC, COP_ERR_disk_full,
                                             "no space left for %s; free some on that disk", path);
                return cop_error_errno(err, system_errno ? system_errno : EIO, "%s: %s", path, text);
        case SQLITE_TOOBIG:
                return cop_error_set(err, EFBIG, COP_ERR_payload_too_large, "%s: a value is over 1 GB", path);
        default:
                return cop_error_set(err, EIO, COP_ERR_internal, "%s: %s", path, text);
        }
}

/* -- statements ---------------------------------------------------------------------------------------------------- */

static int find_column(const struct cop_table *table, const char *name)
{
        for (size_t i = 0; table && name && i < table->count; i++)
                if (strcmp(table->columns[i].name, name) == 0)
                        return (int)i;
        return -1;
}

static int map_statement(struct cop_statement *st, struct cop_error *err)
{
        int parameters = sqlite3_bind_parameter_count(st->stmt), columns = st->out ? sqlite3_column_count(st->stmt) : 0;

        if (parameters > COP_COLUMNS_MAX || columns > COP_COLUMNS_MAX)
                return cop_error_set(err, E2BIG, COP_ERR_internal, "too many columns: %s", st->sql);
        for (int i = 0; i < parameters; i++) {
                const char *name = sqlite3_bind_parameter_name(st->stmt, i + 1);
                int at = name ? find_column(st->in, name + 1) : -1;
                if (at < 0)
                        return cop_error_set(err, EINVAL, COP_ERR_internal, "no field for parameter %s of: %s",
                                             name ? name : "?", st->sql);
                st->in_map[i] = (unsigned char)at;
        }
        for (int i = 0; i < columns; i++) {
                int at = find_column(st->out, sqlite3_column_name(st->stmt, i));
                if (at < 0)
                        return cop_error_set(err, EINVAL, COP_ERR_internal, "no field for column %s of: %s",
                                             sqlite3_column_name(st->stmt, i), st->sql);
                st->out_map[i] = (unsigned char)at;
        }
        return 0;
}

static int get_statement(struct cop_store *s, const char *sql, const struct cop_table *in, const struct cop_table *out,
                         struct cop_statement **ret, struct cop_error *err)
{
        for (size_t i = 0; i < s->statement_count; i++)
                if (s->statements[i].sql == sql) {
                        *ret = &s->statements[i];
                        return 0;
                }
        if (s->statement_count == COP_STATEMENTS_MAX)
                return cop_error_set(err, E2BIG, COP_ERR_internal, "more than %d different statements",
                                     COP_STATEMENTS_MAX);
        struct cop_statement *st = &s->statements[s->statement_count];
        *st = (struct cop_statement){.sql = sql, .in = in, .out = out};
        int rc = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &st->stmt, NULL);
        if (rc != SQLITE_OK)
                return cop_sql_error(s, rc, err);
        int r = map_statement(st, err);
        if (r < 0) {
                sqlite3_finalize(st->stmt);
                return r;
        }
        s->statement_count++;
        *ret = st;
        return 0;
}

static int bind_column(sqlite3_stmt *stmt, int parameter, const struct cop_column *c, const void *row)
{
        const void *field = (const char *)row + c->offset;
        const char *text;
        int64_t number;
        int small;

        /* SQLITE_STATIC: the row outlives the step, and release() clears the bindings. */
        switch (c->kind) {
        case COP_COLUMN_ID:
                return sqlite3_bind_text(stmt, parameter, field, -1, SQLITE_STATIC);
        case COP_COLUMN_TEXT:
                memcpy(&text, field, sizeof(text));
                return text ? sqlite3_bind_text(stmt, parameter, text, -1, SQLITE_STATIC)
                            : sqlite3_bind_null(stmt, parameter);
        case COP_COLUMN_I64:
                memcpy(&number, field, sizeof(number));
                return sqlite3_bind_int64(stmt, parameter, number);
        case COP_COLUMN_INT:
                memcpy(&small, field, sizeof(small));
                return sqlite3_bind_int(stmt, parameter, small);
        case COP_COLUMN_BOOL:
                return sqlite3_bind_int(stmt, parameter, *(const bool *)field);
        }
        return SQLITE_MISUSE;
}

static int bind_row(struct cop_store *s, struct cop_statement *st, const void *row, struct cop_error *err)
{
        int n = sqlite3_bind_parameter_count(st->stmt);

        for (int i = 0; i < n; i++) {
                int rc = bind_column(st->stmt, i + 1, &st->in->columns[st->in_map[i]], row);
                if (rc != SQLITE_OK)
                        return cop_sql_error(s, rc, err);
        }
        return 0;
}

static int read_column(sqlite3_stmt *stmt, int column, const struct cop_column *c, void *row)
{
        void *field = (char *)row + c->offset;
        const char *text;
        char *copy;
        int64_t number = sqlite3_column_int64(stmt, column);
        int small = (int)number;

        switch (c->kind) {
        case COP_COLUMN_ID:
                text = (const char *)sqlite3_column_text(stmt, column);
                if (text && strlen(text) < c->size)
                        memcpy(field, text, strlen(text) + 1);
                break;
        case COP_COLUMN_TEXT:
                if (sqlite3_column_type(stmt, column) == SQLITE_NULL)
                        break;
                text = (const char *)sqlite3_column_text(stmt, column);
                copy = text ? strdup(text) : NULL;
                if (!copy)
                        return -ENOMEM;
                memcpy(field, &copy, sizeof(copy));
                break;
        case COP_COLUMN_I64:
                memcpy(field, &number, sizeof(number));
                break;
        case COP_COLUMN_INT:
                memcpy(field, &small, sizeof(small));
                break;
        case COP_COLUMN_BOOL:
                *(bool *)field = number != 0;
                break;
        }
        return 0;
}

static int read_row(const struct cop_statement *st, void **ret)
{
        void *row = calloc(1, st->out->row_size);
        int n = sqlite3_column_count(st->stmt);

        if (!row)
                return -ENOMEM;
        for (int i = 0; i < n; i++) {
                int r = read_column(st->stmt, i, &st->out->columns[st->out_map[i]], row);
                if (r < 0) {
                        cop_sql_row_free(st->out, row);
                        return r;
                }
        }
        *ret = row;
        return 0;
}

static void release(struct cop_statement **st)
{
        if (!*st)
                return;
        sqlite3_reset((*st)->stmt);
        sqlite3_clear_bindings((*st)->stmt);
}

static int step(struct cop_store *s, struct cop_statement *st, struct cop_error *err)
{
        int rc = sqlite3_step(st->stmt);

        s->name_conflict = false;
        if (rc == SQLITE_ROW)
                return 1;
        if (rc == SQLITE_DONE)
                return 0;
        s->name_conflict = rc == SQLITE_CONSTRAINT_UNIQUE && strstr(sqlite3_errmsg(s->db), ".name") != NULL;
        return cop_sql_error(s, rc, err);
}

/* -- running ------------------------------------------------------------------------------------------------------- */

static int start(struct cop_store *s, const char *sql, const struct cop_table *in, const void *row,
                 const struct cop_table *out, struct cop_statement **ret, struct cop_error *err)
{
        int r = get_statement(s, sql, in, out, ret, err);

        return r < 0 ? r : bind_row(s, *ret, row, err);
}

int cop_sql_run(struct cop_store *s, const char *sql, struct cop_error *err)
{
        int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);

        return rc == SQLITE_OK ? 0 : cop_sql_error(s, rc, err);
}

int cop_sql_exec(struct cop_store *s, const char *sql, const struct cop_table *in, const void *row,
                 struct cop_error *err)
{
        _cleanup_(release) struct cop_statement *st = NULL;

        int r = start(s, sql, in, row, NULL, &st, err);
        if (r == 0)
                r = step(s, st, err);
        return r < 0 ? r : sqlite3_changes(s->db);
}

int cop_sql_get(struct cop_store *s, const char *sql, const struct cop_table *in, const void *row,
                const struct cop_table *out, void *ret_row, struct cop_error *err)
{
        _cleanup_(release) struct cop_statement *st = NULL;

        int r = start(s, sql, in, row, out, &st, err);
        if (r == 0)
                r = step(s, st, err);
        if (r <= 0)
                return r;
        r = read_row(st, ret_row);
        return r < 0 ? cop_error_errno(err, r, "reading %s", s->path) : 1;
}

int cop_sql_number(struct cop_store *s, const char *sql, const struct cop_table *in, const void *row, int64_t *ret,
                   struct cop_error *err)
{
        _cleanup_(release) struct cop_statement *st = NULL;

        int r = start(s, sql, in, row, NULL, &st, err);
        if (r == 0)
                r = step(s, st, err);
        if (r <= 0)
                return r;
        if (sqlite3_column_type(st->stmt, 0) == SQLITE_NULL)
                return 0;
        *ret = sqlite3_column_int64(st->stmt, 0);
        return 1;
}

int cop_sql_query(struct cop_store *s, const char *sql, const struct cop_table *in, const void *row,
                  const struct cop_table *out, void *ret_rows, struct cop_error *err)
{
        _cleanup_(release) struct cop_statement *st = NULL;
        size_t n = 0, room = 8;
        void **rows = calloc(room, sizeof(*rows));

        int r = rows ? start(s, sql, in, row, out, &st, err) : cop_error_errno(err, ENOMEM, "reading %s", s->path);
        while (r == 0 && (r = step(s, st, err)) > 0) {
                if (n + 1 == room) {
                        void **more = reallocarray(rows, room * 2, sizeof(*rows));
                        if (more) {
                                rows = more;
                                room *= 2;
                        }
                }
                r = n + 1 < room ? read_row(st, &rows[n]) : -ENOMEM;
                if (r < 0) {
                        rows[n] = NULL;
                        cop_error_errno(err, r, "reading %s", s->path);
                        break;
                }
                rows[++n] = NULL;
        }
        if (r < 0) {
                cop_sql_rows_free(out, rows);
                return r;
        }
        *(void ***)ret_rows = rows;
        return (int)n;
}

void *cop_sql_row_free(const struct cop_table *table, void *row)
{
        if (!row)
                return NULL;
        for (size_t i = 0; i < table->count; i++)
                if (table->columns[i].kind == COP_COLUMN_TEXT) {
                        char *text;
                        memcpy(&text, (char *)row + table->columns[i].offset, sizeof(text));
                        free(text);
                }
        free(row);
        return NULL;
}

void *cop_sql_rows_free(const struct cop_table *table, void **rows)
{
        for (size_t i = 0; rows && rows[i]; i++)
                cop_sql_row_free(table, rows[i]);
        free(rows);
        return NULL;
}
