#include "lib/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "store/sql.h"

static const char *db_path(const char *name)
{
        static char path[300];

        snprintf(path, sizeof(path), "%s/%s.db", test_dir(), name);
        return path;
}

static void execute(const char *path, const char *sql)
{
        sqlite3 *db = NULL;
        char *message = NULL;

        ASSERT_EQ(sqlite3_open(path, &db), SQLITE_OK);
        if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
                FAIL("%s: %s", sql, message);
        sqlite3_close(db);
}

static int add_text(void *userdata, int n, char **values, char **names)
{
        cop_buf_addf(userdata, "%s;", values[0] ? values[0] : "");
        return 0;
}

static char *ask(const char *path, const char *sql)
{
        _cleanup_buf_ struct cop_buf text = COP_BUF(1 << 20);
        sqlite3 *db = NULL;

        ASSERT_EQ(sqlite3_open(path, &db), SQLITE_OK);
        ASSERT_EQ(sqlite3_exec(db, sql, add_text, &text, NULL), SQLITE_OK);
        sqlite3_close(db);
        return text.len ? cop_buf_take(&text) : strdup("");
}

#define SCHEMA "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"

static void make_version(const char *name, unsigned version)
{
        for (unsigned i = 0; i < version; i++)
                execute(db_path(name), cop_schema_steps[i]);
        char pragma[60];
        snprintf(pragma, sizeof(pragma), "PRAGMA user_version = %u", version);
        execute(db_path(name), pragma);
}

static void migrate(const char *name)
{
        struct cop_store *s;
        struct cop_error err;

        ASSERT_OK(cop_store_open(db_path(name), &s, &err), &err);
        cop_store_close(s);
}

static void add_node(const char *name, unsigned i, const char *reason, const char *spec)
{
        char sql[400];

        snprintf(sql, sizeof(sql),
                 "INSERT INTO nodes(id, sandbox_id, parent_id, kind, reason, image_id, cell_id, layers, spec,"
                 " created_at, pause, duration, memory_bytes, file_bytes, files)"
                 " VALUES('nd_%u', 's', '', 'files', '%s', 'i', '', '[]', '%s', 0, 0, 0, 0, 0, 0)",
                 i, reason, spec);
        execute(db_path(name), sql);
}

TEST(every_earlier_version_becomes_the_present_one)
{
        migrate("fresh");
        _cleanup_free_ char *want = ask(db_path("fresh"), SCHEMA);
        ASSERT_CONTAINS(want, "CREATE TABLE sandboxes");

        for (unsigned version = 0; version <= cop_schema_step_count; version++) {
                char name[20];
                snprintf(name, sizeof(name), "v%u", version);
                make_version(name, version);
                migrate(name);
                _cleanup_free_ char *have = ask(db_path(name), SCHEMA);
                ASSERT_STR(have, want);
        }
}

TEST(what_was_in_a_spec_becomes_a_column)
{
        static const char *const specs[] = {"{\"ordinal\":17}", "{}", "no JSON", "{\"ordinal\":\"x\"}"};

        make_version("ordinal", 8);
        for (unsigned i = 0; i < ELEMENTSOF(specs); i++)
                add_node("ordinal", i, "checkpoint", specs[i]);
        migrate("ordinal");
        _cleanup_free_ char *have = ask(db_path("ordinal"), "SELECT ordinal FROM nodes ORDER BY seq");
        ASSERT_STR(have, "17;0;0;0;");
}

TEST(copies_of_earlier_forks_know_each_other)
{
        static const char *const origins[] = {"nd_0", "nd_1", ""};

        make_version("forks", 12);
        add_node("forks", 0, "fork", "{}");
        add_node("forks", 1, "snapshot", "{}");
        for (unsigned i = 0; i < ELEMENTSOF(origins); i++) {
                char sql[400];
                snprintf(sql, sizeof(sql),
                         "INSERT INTO sandboxes(id, state, image_id, slot, ttl, expires_at, created_at, started_at, "
                         "ended_at, start_time, generation, origin_node)"
                         " VALUES('sb_%u', 'running', 'i', %u, 0, 0, 0, 0, 0, 0, 0, '%s')",
                         i, i, origins[i]);
                execute(db_path("forks"), sql);
        }
        migrate("forks");
        _cleanup_free_ char *have = ask(db_path("forks"), "SELECT id || ':' || fork_id FROM sandboxes ORDER BY id");
        ASSERT_STR(have, "sb_0:nd_0;sb_1:;sb_2:;");
}

TEST(a_step_that_fails_leaves_the_file_as_it_was)
{
        static const char *const steps[] = {"CREATE TABLE a(x INTEGER) STRICT; INSERT INTO a VALUES(7)",
                                            "ALTER TABLE a ADD COLUMN y TEXT",
                                            "CREATE TABLE b(x INTEGER) STRICT; SELECT nonsense FROM nowhere"};
        struct cop_store s = {.path = (char *)db_path("steps")};
        struct cop_error err;

        ASSERT_EQ(sqlite3_open(s.path, &s.db), SQLITE_OK);
        ASSERT_OK(cop_schema_migrate(&s, steps, 1, &err), &err);
        ASSERT(cop_schema_migrate(&s, steps, 3, &err) < 0);
        ASSERT_CONTAINS(err.message, "schema 3");
        sqlite3_close(s.db);
        _cleanup_free_ char *version = ask(db_path("steps"), "PRAGMA user_version");
        ASSERT_STR(version, "2;");
        _cleanup_free_ char *tables = ask(db_path("steps"), "SELECT name FROM sqlite_schema");
        ASSERT_STR(tables, "a;");
        _cleanup_free_ char *data = ask(db_path("steps"), "SELECT x FROM a");
        ASSERT_STR(data, "7;");
}

TEST(a_newer_file_is_refused_untouched)
{
        struct cop_store *s = NULL;
        struct cop_error err;

        execute(db_path("new"), "CREATE TABLE future(x); PRAGMA user_version = 999");
        ASSERT_CODE(cop_store_open(db_path("new"), &s, &err), &err, COP_ERR_unsupported);
        ASSERT_CONTAINS(err.message, "newer Coppice");
        _cleanup_free_ char *tables = ask(db_path("new"), "SELECT name FROM sqlite_schema");
        ASSERT_STR(tables, "future;");
}

TEST(what_is_no_database_is_refused_by_name)
{
        static const char text[] =
                "this is not a database, it is a text that is longer than the header of one, by some words at least";
        struct cop_store *s = NULL;
        struct cop_error err;

        ASSERT_OK(cop_write_file_atomic(AT_FDCWD, db_path("text"), text, strlen(text), 0600, &err), &err);
        ASSERT_CODE(cop_store_open(db_path("text"), &s, &err), &err, COP_ERR_image_damaged);
        ASSERT_CONTAINS(err.message, "text.db");
}

TEST(a_link_is_not_followed)
{
        struct cop_store *s = NULL;
        struct cop_error err;
        char target[300];

        snprintf(target, sizeof(target), "%s/elsewhere", test_dir());
        ASSERT_OK(symlink(target, db_path("link")), NULL);
        ASSERT(cop_store_open(db_path("link"), &s, &err) < 0);
        ASSERT(access(target, F_OK) < 0);
}

TEST(a_folder_that_does_not_exist_is_an_error_with_its_path)
{
        struct cop_store *s = NULL;
        struct cop_error err;

        ASSERT_CODE(cop_store_open("/nonexistent/coppice.db", &s, &err), &err, COP_ERR_io_error);
        ASSERT_CONTAINS(err.message, "/nonexistent/coppice.db");
}
