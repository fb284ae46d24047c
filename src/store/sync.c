/* Theory of operation
 *
 * A commit is a write(2) to the log, so it survives the end of the daemon and not that of the host.  What has to survive both asks for a
 * sync: a thread flushes the log and says so through an eventfd, and nobody blocks meanwhile.  Requests are numbers; one flush serves
 * all that came before it began.
 *
 * The log alone is enough.  It is made anew only after the file itself was flushed (SQLite does that with synchronous = NORMAL), and
 * what SQLite reads of it after a crash is a prefix of the commits.  It keeps its inode as long as the store is open.  Closing our
 * descriptor of it drops no lock of SQLite's: those lie on the file and on -shm.
 *
 * A flush that failed may have dropped what it was to write, and the next one would not tell: the failure stays.
 */
#include "store/sql.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/thread.h"

/* The folder too, the first time: it names the log. */
static int flush_log(const char *path, bool first)
{
        _cleanup_free_ char *log = NULL, *folder = strdup(path);
        char *slash = folder ? strrchr(folder, '/') : NULL;

        if (!folder || asprintf(&log, "%s-wal", path) < 0)
                return -ENOMEM;
        _cleanup_close_ int fd = open(log, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || fdatasync(fd) < 0)
                return -errno;
        if (!first)
                return 0;
        if (slash)
                slash[slash == folder] = '\0';
        _cleanup_close_ int folder_fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return folder_fd < 0 || fsync(folder_fd) < 0 ? -errno : 0;
}

static void *syncer_main(void *userdata)
{
        struct cop_syncer *y = userdata;
        uint64_t one = 1;

        pthread_mutex_lock(&y->lock);
        while (!y->stop || y->asked > y->done) {
                if (y->asked == y->done) {
                        pthread_cond_wait(&y->wake, &y->lock);
                        continue;
                }
                uint64_t upto = y->asked;
                bool first = y->done == 0;
                int r = y->failed;
                pthread_mutex_unlock(&y->lock);
                if (r == 0)
                        r = flush_log(y->path, first);
                pthread_mutex_lock(&y->lock);
                y->failed = r;
                y->done = upto;
                pthread_cond_broadcast(&y->through);
                (void)!write(y->event_fd, &one, sizeof(one));
        }
        pthread_mutex_unlock(&y->lock);
        return NULL;
}

int cop_syncer_start(struct cop_store *s, struct cop_error *err)
{
        struct cop_syncer *y = &s->syncer;

        y->path = s->path;
        y->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (y->event_fd < 0)
                return cop_error_errno(err, errno, "eventfd");
        pthread_mutex_init(&y->lock, NULL);
        pthread_cond_init(&y->wake, NULL);
        pthread_cond_init(&y->through, NULL);
        y->ready = true;
        int r = cop_thread_start(&y->thread, NULL, syncer_main, y);
        if (r < 0)
                return cop_error_errno(err, r, "starting the thread that syncs %s", s->path);
        y->running = true;
        return 0;
}

void cop_syncer_stop(struct cop_store *s)
{
        struct cop_syncer *y = &s->syncer;

        if (!y->ready)
                return;
        if (y->running) {
                pthread_mutex_lock(&y->lock);
                y->stop = true;
                pthread_cond_signal(&y->wake);
                pthread_mutex_unlock(&y->lock);
                pthread_join(y->thread, NULL);
        }
        pthread_mutex_destroy(&y->lock);
        pthread_cond_destroy(&y->wake);
        pthread_cond_destroy(&y->through);
        y->event_fd = cop_close(y->event_fd);
        y->ready = y->running = false;
}

uint64_t cop_store_sync_begin(struct cop_store *s)
{
        struct cop_syncer *y = &s->syncer;

        pthread_mutex_lock(&y->lock);
        uint64_t number = ++y->asked;
        pthread_cond_signal(&y->wake);
        pthread_mutex_unlock(&y->lock);
        return number;
}

int cop_store_sync_fd(const struct cop_store *s)
{
        return s->syncer.event_fd;
}

static int tell(const struct cop_store *s, int failed, struct cop_error *err)
{
        return failed < 0 ? cop_error_errno(err, failed, "%s could not be written to disk", s->path) : 0;
}

int cop_store_sync_done(struct cop_store *s, uint64_t *ret_upto, struct cop_error *err)
{
        struct cop_syncer *y = &s->syncer;
        uint64_t count;

        (void)!read(y->event_fd, &count, sizeof(count));
        pthread_mutex_lock(&y->lock);
        *ret_upto = y->done;
        int failed = y->failed;
        pthread_mutex_unlock(&y->lock);
        return tell(s, failed, err);
}

int cop_store_sync(struct cop_store *s, struct cop_error *err)
{
        struct cop_syncer *y = &s->syncer;
        uint64_t number = cop_store_sync_begin(s);

        pthread_mutex_lock(&y->lock);
        while (y->done < number)
                pthread_cond_wait(&y->through, &y->lock);
        int failed = y->failed;
        pthread_mutex_unlock(&y->lock);
        return tell(s, failed, err);
}
