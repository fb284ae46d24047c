/* The store under a daemon that is killed, a disk that fills up, and readers beside it. */
#include "lib/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "store/sql.h"

static const char *db_path(const char *dir)
{
        static char path[300];

        snprintf(path, sizeof(path), "%s/coppice.db", dir);
        return path;
}

static struct cop_store *open_store(const char *dir)
{
        struct cop_store *s = NULL;
        struct cop_error err;

        ASSERT_OK(cop_store_open(db_path(dir), &s, &err), &err);
        return s;
}

static int add_sandbox(struct cop_store *s, const char *id, struct cop_error *err)
{
        struct cop_sandbox_row row = {.state = "running", .image_id = "im_a", .created_at = 1};

        snprintf(row.id, sizeof(row.id), "%s", id);
        return cop_store_sandbox_insert(s, &row, err);
}

/* A cell with text of n bytes, begun and ended. */
static int add_cell(struct cop_store *s, const char *id, const char *text, struct cop_error *err)
{
        struct cop_cell_row row = {.sandbox_id = "sb_a",
                                   .context_id = "default",
                                   .status = "queued",
                                   .code = (char *)text,
                                   .execution_count = -1};

        snprintf(row.id, sizeof(row.id), "%s", id);
        int r = cop_store_cell_insert(s, &row, err);
        snprintf(row.status, sizeof(row.status), "ok");
        row.ended_at = 5;
        row.outputs = (char *)text;
        return r < 0 ? r : cop_store_cell_end(s, &row, NULL, err);
}

static void check_integrity(const char *dir)
{
        sqlite3 *db = NULL;
        sqlite3_stmt *stmt = NULL;

        ASSERT_EQ(sqlite3_open(db_path(dir), &db), SQLITE_OK);
        ASSERT_EQ(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL), SQLITE_OK);
        ASSERT_EQ(sqlite3_step(stmt), SQLITE_ROW);
        ASSERT_STR((const char *)sqlite3_column_text(stmt, 0), "ok");
        sqlite3_finalize(stmt);
        sqlite3_close(db);
}

/* Writes cells c0, c1, …, each in one transaction, and tells each that is committed through the pipe. */
static _Noreturn void write_until_killed(const char *dir, int first, int fd)
{
        struct cop_store *s = NULL;
        struct cop_error err;
        static char text[3000];
        char id[20];

        memset(text, 'z', sizeof(text) - 1);
        if (cop_store_open(db_path(dir), &s, &err) < 0)
                _exit(2);
        for (int i = first;; i++) {
                snprintf(id, sizeof(id), "c%d", i);
                if (cop_store_begin(s, &err) < 0 || add_cell(s, id, text, &err) < 0 || cop_store_commit(s, &err) < 0 ||
                    write(fd, &i, sizeof(i)) != sizeof(i))
                        _exit(3);
        }
}

TEST_LIMIT(killed_at_any_moment_nothing_committed_is_lost, 120)
{
        struct cop_store *s = open_store(test_dir());
        struct cop_error err;
        int last = -1;

        ASSERT_OK(add_sandbox(s, "sb_a", &err), &err);
        cop_store_close(s);
        for (int round = 0; round < 30; round++) {
                int fds[2], i;
                ASSERT_OK(pipe(fds), NULL);
                pid_t pid = fork();
                ASSERT_GE(pid, 0);
                if (pid == 0)
                        write_until_killed(test_dir(), last + 1, fds[1]);
                close(fds[1]);
                usleep(2000 + (useconds_t)(round * 7919 % 60000));
                kill(pid, SIGKILL);
                waitpid(pid, NULL, 0);
                while (read(fds[0], &i, sizeof(i)) == sizeof(i))
                        last = i;
                close(fds[0]);

                s = open_store(test_dir());
                for (int k = last < 5 ? 0 : last - 5; k <= last; k++) {
                        struct cop_cell_row *row;
                        char id[20];
                        snprintf(id, sizeof(id), "c%d", k);
                        ASSERT_OK(cop_store_cell_get(s, "sb_a", id, &row, &err), &err);
                        ASSERT_STR(row->status, "ok");
                        cop_cell_row_free(row);
                }
                /* What was committed but not told yet comes first in the next round. */
                struct cop_cell_filter f = {.sandbox_id = "sb_a", .limit = 2};
                struct cop_cell_row **rows;
                ASSERT_OK(cop_store_cell_list(s, &f, &rows, &err), &err);
                for (size_t k = 0; rows[k]; k++)
                        last = atoi(rows[k]->id + 1) > last ? atoi(rows[k]->id + 1) : last;
                cop_cell_rows_free(rows);
                cop_store_close(s);
                check_integrity(test_dir());
        }
        ASSERT_GT(last, 30);
}

TEST(the_log_stays_bounded_under_steady_writing)
{
        struct cop_store *s = open_store(test_dir());
        static char text[20000];
        struct cop_error err;
        struct stat st;
        char id[20], wal[320];
        off_t most = 0;

        memset(text, 'z', sizeof(text) - 1);
        snprintf(wal, sizeof(wal), "%s-wal", db_path(test_dir()));
        ASSERT_OK(add_sandbox(s, "sb_a", &err), &err);
        for (int i = 0; i < 4000; i++) { /* 160 MB in all */
                snprintf(id, sizeof(id), "c%d", i);
                ASSERT_OK(add_cell(s, id, text, &err), &err);
                if (stat(wal, &st) == 0 && st.st_size > most)
                        most = st.st_size;
        }
        cop_store_close(s);
        ASSERT_LT(most, 80 << 20);
        check_integrity(test_dir());
}

TEST(a_full_disk_is_an_error_and_not_a_loss)
{
        char dir[300], ballast[320];
        struct cop_error err = COP_ERROR_NULL;
        struct cop_cell_row *row = NULL;
        static char text[50000];
        int r = 0, i = 0;

        if (geteuid() != 0)
                SKIP("needs root to mount a small disk");
        snprintf(dir, sizeof(dir), "%s/small", test_dir());
        ASSERT_OK(mkdir(dir, 0700), NULL);
        if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", dir, "tmpfs", 0, "size=8m") < 0)
                SKIP("cannot mount a tmpfs: %s", strerror(errno));
        memset(text, 'z', sizeof(text) - 1);
        snprintf(ballast, sizeof(ballast), "%s/ballast", dir);
        int fd = open(ballast, O_WRONLY | O_CREAT, 0600);
        ASSERT_OK(ftruncate(fd, 1), NULL);
        ASSERT_EQ(posix_fallocate(fd, 0, 2 << 20), 0);
        close(fd);

        struct cop_store *s = open_store(dir);
        ASSERT_OK(add_sandbox(s, "sb_a", &err), &err);
        for (; r == 0 && i < 1000; i++) {
                char id[20];
                snprintf(id, sizeof(id), "c%d", i);
                r = add_cell(s, id, text, &err);
        }
        ASSERT_CODE(r, &err, COP_ERR_disk_full);
        ASSERT_CONTAINS(err.message, "coppice.db");
        /* Reading goes on; room makes writing possible again, without opening anew. */
        ASSERT_OK(cop_store_cell_get(s, "sb_a", "c0", &row, &err), &err);
        cop_cell_row_free(row);
        ASSERT_OK(unlink(ballast), NULL);
        ASSERT_OK(add_cell(s, "again", text, &err), &err);
        cop_store_close(s);
        check_integrity(dir);
        ASSERT_OK(umount2(dir, MNT_DETACH), NULL);
}

TEST(readers_of_other_processes_do_not_disturb)
{
        struct cop_error err;
        int status, go[2];
        char byte = 0;

        /* The reader is forked while there is one thread: a copy of a process whose other thread is inside SQLite hangs. */
        ASSERT_OK(pipe2(go, O_CLOEXEC), NULL);
        pid_t pid = fork();
        ASSERT_GE(pid, 0);
        if (pid == 0) {
                sqlite3 *db = NULL;
                sqlite3_stmt *stmt = NULL;
                int seen = 0, n = 0;
                if (read(go[0], &byte, 1) != 1)
                        _exit(1);
                if (sqlite3_open_v2(db_path(test_dir()), &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
                        _exit(2);
                for (usec_t end = cop_now(CLOCK_MONOTONIC) + 20 * USEC_PER_SEC;
                     seen < 300 && cop_now(CLOCK_MONOTONIC) < end;) {
                        if (sqlite3_prepare_v2(db, "SELECT count(*) FROM cells", -1, &stmt, NULL) != SQLITE_OK ||
                            sqlite3_step(stmt) != SQLITE_ROW)
                                _exit(3);
                        n = sqlite3_column_int(stmt, 0);
                        if (n < seen)
                                _exit(4);
                        seen = n;
                        sqlite3_finalize(stmt);
                }
                _exit(seen >= 300 ? 0 : 5);
        }
        struct cop_store *s = open_store(test_dir());
        ASSERT_OK(add_sandbox(s, "sb_a", &err), &err);
        ASSERT_EQ(write(go[1], &byte, 1), 1);
        for (int i = 0; i < 300; i++) {
                char id[20];
                snprintf(id, sizeof(id), "c%d", i);
                ASSERT_OK(add_cell(s, id, "1", &err), &err);
        }
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        ASSERT_EQ(status, 0);
        close(go[0]);
        close(go[1]);
        cop_store_close(s);
}

TEST(a_writer_of_another_program_is_told_of)
{
        struct cop_store *s = open_store(test_dir());
        struct cop_error err;
        sqlite3 *db = NULL;

        ASSERT_EQ(sqlite3_open(db_path(test_dir()), &db), SQLITE_OK);
        ASSERT_EQ(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        ASSERT_CODE(add_sandbox(s, "sb_a", &err), &err, COP_ERR_unavailable);
        ASSERT_EQ(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
        ASSERT_OK(add_sandbox(s, "sb_a", &err), &err);
        sqlite3_close(db);
        cop_store_close(s);
}

static void wait_synced(struct cop_store *s, uint64_t number, int expected)
{
        struct cop_error err;
        uint64_t upto = 0;
        int r = 0;

        while (upto < number) {
                struct pollfd p = {.fd = cop_store_sync_fd(s), .events = POLLIN};
                ASSERT_EQ(poll(&p, 1, 60000), 1);
                r = cop_store_sync_done(s, &upto, &err);
        }
        ASSERT_EQ(r, expected);
}

TEST(a_sync_is_told_and_a_failure_stays)
{
        const char *dir = test_dir();
        struct cop_store *s = open_store(dir);
        struct cop_error err;
        char log[320], away[320];

        ASSERT_OK(add_sandbox(s, "sb_a", &err), &err);
        uint64_t first = cop_store_sync_begin(s), second = cop_store_sync_begin(s);
        ASSERT(second > first);
        wait_synced(s, second, 0);
        ASSERT_OK(cop_store_sync(s, &err), &err);
        snprintf(log, sizeof(log), "%s-wal", db_path(dir));
        snprintf(away, sizeof(away), "%s-away", db_path(dir));
        ASSERT_OK(rename(log, away), NULL);
        wait_synced(s, cop_store_sync_begin(s), -ENOENT);
        ASSERT_OK(rename(away, log), NULL);
        ASSERT_EQ(cop_store_sync(s, &err), -ENOENT);
        ASSERT_CONTAINS(err.message, "could not be written to disk");
        cop_store_close(s);
}
