/* Theory of operation
 *
 * With WAL and synchronous = NORMAL a commit is one write(2) to the log and never waits for the disk.  Copying the log
 * back into the file does (two fsyncs), and by default it happens inside some unlucky commit.  So automatic checkpoints
 * are off, and a thread with a connection of its own does them: a PASSIVE checkpoint blocks no writer.  The writer
 * starts the log anew by itself when all of it was copied.
 *
 * Under a load without any pause the copy never quite catches up and the log would grow.  Beyond LOG_PAGES_HARD the
 * committing thread therefore copies itself: nobody writes meanwhile, so the next commit starts the log anew.
 */
#include "store/sql.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/thread.h"

#define LOG_PAGES_SOFT 4096  /* 16 MiB: the commit that starts the log anew waits for one fsync of its header */
#define LOG_PAGES_HARD 16384 /* 64 MiB */

static void *checkpointer_main(void *userdata)
{
        struct cop_checkpointer *c = userdata;
        sqlite3 *db = NULL;

        int rc = sqlite3_open_v2(c->path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
        if (rc == SQLITE_OK)
                sqlite3_wal_autocheckpoint(db, 0);
        pthread_mutex_lock(&c->lock);
        while (!c->stop) {
                if (!c->wanted) {
                        pthread_cond_wait(&c->wake, &c->lock);
                        continue;
                }
                c->wanted = false;
                pthread_mutex_unlock(&c->lock);
                /* A failure (disk full, for one) leaves the log as it is: the next commit asks again. */
                if (rc == SQLITE_OK)
                        sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
                pthread_mutex_lock(&c->lock);
        }
        pthread_mutex_unlock(&c->lock);
        sqlite3_close(db);
        return NULL;
}

static int on_commit(void *userdata, sqlite3 *db, const char *name, int pages)
{
        struct cop_store *s = userdata;
        struct cop_checkpointer *c = &s->checkpointer;

        if (pages < s->wal_done)
                s->wal_done = 0;
        if (pages >= s->wal_done + LOG_PAGES_HARD) {
                sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
                s->wal_done = pages;
        } else if (pages >= LOG_PAGES_SOFT) {
                pthread_mutex_lock(&c->lock);
                c->wanted = true;
                pthread_cond_signal(&c->wake);
                pthread_mutex_unlock(&c->lock);
        }
        return SQLITE_OK;
}

int cop_checkpointer_start(struct cop_store *s, struct cop_error *err)
{
        struct cop_checkpointer *c = &s->checkpointer;

        c->path = strdup(s->path);
        if (!c->path)
                return cop_error_errno(err, ENOMEM, "opening %s", s->path);
        pthread_mutex_init(&c->lock, NULL);
        pthread_cond_init(&c->wake, NULL);
        int r = cop_thread_start(&c->thread, NULL, checkpointer_main, c);
        if (r < 0)
                return cop_error_errno(err, r, "starting the thread that writes %s", s->path);
        c->running = true;
        sqlite3_wal_hook(s->db, on_commit, s);
        return 0;
}

void cop_checkpointer_stop(struct cop_store *s)
{
        struct cop_checkpointer *c = &s->checkpointer;

        if (c->running) {
                pthread_mutex_lock(&c->lock);
                c->stop = true;
                pthread_cond_signal(&c->wake);
                pthread_mutex_unlock(&c->lock);
                pthread_join(c->thread, NULL);
                c->running = false;
        }
        if (c->path) {
                pthread_mutex_destroy(&c->lock);
                pthread_cond_destroy(&c->wake);
        }
        free(TAKE_PTR(c->path));
}
