/* Between the store and SQLite: tables that map struct fields to columns, cached statements, errors.
 *
 * A struct cop_table lists the fields of a row struct under their column names.  SQL text names its parameters after
 * them
 * (":name"), and result columns find their fields by name, so a query is one string and no code.  The mapping of a
 * statement is worked out once, when it is prepared; statements are cached by the address of their text, which must be
 * a literal.
 */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stddef.h>

#include "store/store.h"

enum cop_column_kind {
        COP_COLUMN_ID,   /* char[size] in the struct, never NULL */
        COP_COLUMN_TEXT, /* char *, owned by rows that were read, borrowed from those written */
        COP_COLUMN_I64,  /* int64_t or uint64_t */
        COP_COLUMN_INT,  /* int or unsigned */
        COP_COLUMN_BOOL,
};

struct cop_column {
        const char *name;
        enum cop_column_kind kind;
        unsigned short offset, size;
};

struct cop_table {
        size_t row_size;
        size_t count;
        const struct cop_column *columns;
};

#define COP_COLUMN(type, field, k)                                                        \
        {                                                                                 \
#field, COP_COLUMN_##k, offsetof(type, field), sizeof(((type *)0)->field) \
        }
#define COP_TABLE(type, column_array)                                                        \
        {                                                                                    \
                sizeof(type), sizeof(column_array) / sizeof(*(column_array)), (column_array) \
        }

/* Parameters that are no row: :id, :ref, :text, :a, :b, :c */
struct cop_sql_args {
        const char *id, *ref, *text;
        int64_t a, b, c;
};
extern const struct cop_table cop_sql_args_table;

#define COP_STATEMENTS_MAX 96
#define COP_COLUMNS_MAX 32

struct cop_statement {
        const char *sql; /* borrowed literal */
        sqlite3_stmt *stmt;
        const struct cop_table *in, *out;
        unsigned char in_map[COP_COLUMNS_MAX];  /* parameter - 1 -> column of `in` */
        unsigned char out_map[COP_COLUMNS_MAX]; /* result column -> column of `out` */
};

struct cop_checkpointer {
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t wake;
        char *path;
        bool running, wanted, stop;
};

struct cop_syncer {
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t wake, through;
        const char *path; /* borrowed from the store */
        int event_fd;     /* owned */
        uint64_t asked, done;
        int failed; /* 0 or the negative errno of the first flush that failed */
        bool ready, running, stop;
};

struct cop_store {
        sqlite3 *db;
        char *path;
        struct cop_statement statements[COP_STATEMENTS_MAX];
        size_t statement_count;
        bool name_conflict; /* the last failed call broke the uniqueness of a name */
        unsigned events_since_prune;
        int wal_done; /* pages in the log when this thread last copied them itself */
        struct cop_checkpointer checkpointer;
        struct cop_syncer syncer;
};

/* Turns a result code of SQLite into an error that names the file. */
int cop_sql_error(struct cop_store *s, int rc, struct cop_error *err);

/* Runs text of one or more statements without parameters, uncached: for setting up. */
int cop_sql_run(struct cop_store *s, const char *sql, struct cop_error *err);
/* Runs a statement that gives no rows; `in` tells what `row` is.  Returns the number of changed rows. */
int cop_sql_exec(struct cop_store *s, const char *sql, const struct cop_table *in, const void *row,
                 struct cop_error *err);
/* All rows as a NULL-terminated array. Returns their number. */
int cop_sql_query(struct cop_store *s, const char *sql, const struct cop_table *in, const void *row,
                  const struct cop_table *out, void *ret_rows, struct cop_error *err);
/* The first row: 1, or 0 when there is none. */
int cop_sql_get(struct cop_store *s, const char *sql, const struct cop_table *in, const void *row,
                const struct cop_table *out, void *ret_row, struct cop_error *err);
/* The first column of the first row as a number: 1, or 0 when there is none or it is NULL. */
int cop_sql_number(struct cop_store *s, const char *sql, const struct cop_table *in, const void *row, int64_t *ret,
                   struct cop_error *err);

void *cop_sql_row_free(const struct cop_table *table, void *row);
void *cop_sql_rows_free(const struct cop_table *table, void **rows);

/* schema.c: steps[i] takes a file from user_version i to i + 1, each in its own transaction. */
extern const char *const cop_schema_steps[];
extern const unsigned cop_schema_step_count;
int cop_schema_migrate(struct cop_store *s, const char *const *steps, unsigned count, struct cop_error *err);

/* checkpoint.c */
int cop_checkpointer_start(struct cop_store *s, struct cop_error *err);
void cop_checkpointer_stop(struct cop_store *s); /* waits for a copy under way */
/* sync.c */
int cop_syncer_start(struct cop_store *s, struct cop_error *err);
void cop_syncer_stop(struct cop_store *s); /* after what was asked for */
