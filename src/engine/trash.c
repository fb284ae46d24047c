/* Deleting a tree may take minutes.  What is to go is renamed into $COPPICE_HOME/trash, which takes no time, and rm(1)
 * empties that folder in the background, a moment later: not beside the wake or suspend that somebody waits for.  What a dead daemon left
 * there goes at the next start. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/child.h"
#include "base/fs.h"
#include "base/id.h"
#include "engine/sandbox.h"

#define TREES_PER_CHILD 64
#define EMPTY_AFTER (500 * USEC_PER_MSEC)
#define TRIES 5
#define RETRY (200 * USEC_PER_MSEC) /* doubled each time: a keeper may still write into a node that was given up */

struct cop_trash {
        struct cop_engine *engine; /* borrowed */
        struct cop_source *child;  /* owned; NULL = no child runs */
        struct cop_source *timer;  /* owned: the next child, or another try */
        bool waits;                /* for the timer */
        unsigned failures;         /* in a row */
        bool more;                 /* something was added while it ran */
};

static void start_child(struct cop_trash *t);

static void start_later(struct cop_trash *t, usec_t delay)
{
        if (t->waits)
                return;
        t->waits = true;
        cop_source_set_time(t->timer, cop_usec_add(cop_now(CLOCK_MONOTONIC), delay));
}

static void on_child(struct cop_source *s, const siginfo_t *si, void *userdata)
{
        struct cop_trash *t = userdata;

        t->child = cop_source_free(s);
        if (si->si_code != CLD_EXITED || si->si_status != 0) {
                if (++t->failures < TRIES)
                        start_later(t, RETRY << (t->failures - 1));
                else
                        cop_log_warning("trees in %s/trash could not be deleted", t->engine->home);
                return;
        }
        t->failures = 0;
        if (t->more)
                start_child(t);
}

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_trash *t = userdata;

        t->waits = false;
        if (!t->child)
                start_child(t);
}

/* The names below trash, as arguments for rm. */
static size_t list_trash(struct cop_trash *t, char *names[static TREES_PER_CHILD])
{
        _cleanup_closedir_ DIR *dir = NULL;
        char path[4200];
        struct dirent *entry;
        size_t n = 0;

        if (cop_path_format(path, sizeof(path), "%s/trash", t->engine->home) < 0 || !(dir = opendir(path)))
                return 0;
        while (n < TREES_PER_CHILD && (entry = readdir(dir))) {
                if (entry->d_name[0] == '.')
                        continue;
                if (asprintf(&names[n], "%s/%s", path, entry->d_name) >= 0)
                        n++;
        }
        t->more = n == TREES_PER_CHILD;
        return n;
}

static void start_child(struct cop_trash *t)
{
        char *names[TREES_PER_CHILD] = {0};
        const char *argv[TREES_PER_CHILD + 5] = {"rm", "-rf", "--one-file-system", "--"};
        const struct cop_child_spec spec = {.path = "/bin/rm", .argv = argv, .new_session = true};
        struct cop_error err;
        pid_t pid;

        size_t n = list_trash(t, names);
        for (size_t i = 0; i < n; i++)
                argv[4 + i] = names[i];
        if (n > 0) {
                int r = cop_child_spawn(&spec, &pid, &err);
                if (r == 0)
                        r = cop_loop_add_child(t->engine->loop, pid, on_child, t, &t->child, &err);
                if (r < 0)
                        cop_log_warning("emptying %s/trash: %s", t->engine->home, err.message);
        }
        for (size_t i = 0; i < n; i++)
                free(names[i]);
}

/* Where it lies, when it cannot be moved: the trash is on another disk, or this one is so full that a folder cannot take
 * another name. */
static void remove_in_place(struct cop_engine *e, const char *path)
{
        const char *argv[] = {"rm", "-rf", "--one-file-system", "--", path, NULL};
        const struct cop_child_spec spec = {.path = "/bin/rm", .argv = argv, .new_session = true};
        struct cop_error err;
        pid_t pid;

        int r = cop_child_spawn(&spec, &pid, &err);
        if (r == 0)
                r = cop_loop_add_child(e->loop, pid, NULL, NULL, NULL, &err);
        if (r < 0)
                cop_log_warning("removing %s: %s", path, err.message);
}

void cop_trash_add(struct cop_engine *e, const char *path)
{
        char target[4200], name[40];

        if (cop_path_format(target, sizeof(target), "%s/trash/%s", e->home, cop_id_new(name, "", 20)) < 0)
                return;
        if (rename(path, target) < 0) {
                if (errno != ENOENT)
                        remove_in_place(e, path);
                return;
        }
        if (e->trash->child)
                e->trash->more = true;
        else
                start_later(e->trash, EMPTY_AFTER);
}

struct later {
        struct cop_engine *engine;
        char path[];
};

/* After an error it stays: the next start, which knows what the disk has, sweeps it. */
static void on_durable(const struct cop_error *err, void *userdata)
{
        struct later *later = userdata;

        if (!err)
                cop_trash_add(later->engine, later->path);
        free(later);
}

void cop_trash_add_durable(struct cop_engine *e, const char *path)
{
        size_t n = strlen(path) + 1;
        struct later *later = malloc(sizeof(*later) + n);

        if (!later)
                return; /* as after an error */
        later->engine = e;
        memcpy(later->path, path, n);
        cop_engine_when_durable(e, on_durable, later);
}

int cop_trash_new(struct cop_engine *e, struct cop_error *err)
{
        char path[4200];

        int r = cop_path_format(path, sizeof(path), "%s/trash", e->home);
        r = r < 0 ? cop_error_errno(err, r, "%s", e->home) : cop_mkdir_p(path, 0700, err);
        if (r < 0)
                return r;
        e->trash = calloc(1, sizeof(*e->trash));
        if (!e->trash)
                return cop_error_errno(err, ENOMEM, "engine");
        e->trash->engine = e;
        r = cop_loop_add_timer(e->loop, USEC_INFINITY, on_timer, e->trash, &e->trash->timer, err);
        if (r == 0)
                start_child(e->trash);
        return r;
}

void cop_trash_free(struct cop_engine *e)
{
        if (e->trash) {
                cop_source_free(e->trash->child); /* rm goes on; whoever inherits it reaps it */
                cop_source_free(e->trash->timer);
        }
        free(TAKE_PTR(e->trash));
}
