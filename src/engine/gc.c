/* Theory of operation: garbage collection
 *
 * Nodes go when what needed them goes (node-list.c), folders with them.  What is left all the same, because a fork's copies all failed
 * to start, or a disk was full, or a daemon died at the wrong moment, is found here:
 *
 *      LOOK     nodes that nobody needs (N4), and folders that no row knows (N2); one look at the store, no file is touched
 *      MEASURE  find(1) and awk(1), in a child, count the disk blocks; a file counts when all its links are in what goes
 *      REMOVE   each is looked at again before it goes, in slices: anything may have happened since
 *
 * A node is needed when it has a name, when its sandbox has not ended and may go back to it, when a sandbox that has not ended has it as
 * head, layer or to redo, or when it is a layer of a node that is needed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/fs.h"
#include "base/parse.h"
#include "engine/node.h"

#define ITEMS_MAX 1000 /* at a time: they are arguments of find */
#define SLICE (2 * USEC_PER_MSEC)
#define PAUSE (2 * USEC_PER_MSEC)
#define LOOK_AGAIN (20 * USEC_PER_MSEC)
#define NODE_ID_LEN 13 /* nd_ + 10 */
#define MEASURE_MAX (1u << 20)

struct item {
        bool node;
        char id[COP_ID_MAX], sandbox_id[COP_ID_MAX]; /* of a node */
        char path[80];                               /* below the home */
        char reason[160];
        uint64_t bytes;
        bool removed;
};

struct cop_gc {
        struct cop_engine *engine; /* borrowed */
        struct cop_op *op;
        bool dry_run, more;
        struct item *items; /* owned */
        size_t count, at;
        json_t *known; /* owned: the ids of all nodes, as a set; while it looks */
        pid_t pid;
        int out_fd;                            /* owned: what the child prints */
        struct cop_buf out;                    /* owned */
        struct cop_source *child, *io, *timer; /* owned */
};

void cop_gc_drop(struct cop_engine *e)
{
        struct cop_gc *g = TAKE_PTR(e->gc);

        if (!g)
                return;
        if (g->pid > 0)
                kill(-g->pid, SIGTERM);
        cop_source_free(g->child);
        cop_source_free(g->io);
        cop_source_free(g->timer);
        cop_close(g->out_fd);
        cop_buf_done(&g->out);
        json_decref(g->known);
        free(g->items);
        free(g);
}

static void finish(struct cop_gc *g, const struct cop_error *err)
{
        struct cop_op *op = g->op;
        json_t *items = json_array();
        uint64_t freed = 0;

        for (size_t i = 0; i < g->count; i++) {
                const struct item *item = &g->items[i];
                json_t *view = json_pack("{s:s, s:s, s:s, s:I, s:b}", "kind", item->node ? "node" : "folder", "path",
                                         item->path, "reason", item->reason, "bytes", (json_int_t)item->bytes,
                                         "removed", item->removed);
                if (item->node) {
                        json_object_set_new(view, "node_id", json_string(item->id));
                        json_object_set_new(view, "sandbox_id", json_string(item->sandbox_id));
                }
                json_array_append_new(items, view);
                freed += item->removed || g->dry_run ? item->bytes : 0;
        }
        json_t *result = json_pack("{s:b, s:I, s:b, s:o}", "dry_run", g->dry_run, "freed_bytes", (json_int_t)freed,
                                   "more", g->more, "items", items);
        cop_gc_drop(g->engine);
        if (err)
                json_decref(result);
        cop_op_done(op, err ? NULL : result, err);
}

/* -- LOOK --------------------------------------------------------------------------------------------------------------- */

/* A sandbox goes back to another state, its tree is being stopped, and where it goes stands in no row yet (travel.c). */
static bool is_moving(struct cop_engine *e)
{
        for (struct cop_sandbox *sb = e->sandboxes; sb; sb = sb->next)
                if (sb->state == COP_SANDBOX_RESUMING && sb->sleep && !sb->row->pending_node[0])
                        return true;
        return false;
}

/* Ids have a fixed form and stand in JSON as they are (as in cop_store_node_in_use). */
static void mark(json_t *needed, const char *text)
{
        char id[NODE_ID_LEN + 1];

        while (text && (text = strstr(text, "nd_"))) {
                snprintf(id, sizeof(id), "%s", text);
                if (cop_id_valid(id, "nd_", NODE_ID_LEN - 3))
                        json_object_set_new(needed, id, json_true());
                text += 3;
        }
}

static json_t *needed_nodes(struct cop_engine *e, struct cop_node_row **rows)
{
        _cleanup_(cop_image_rows_freep) struct cop_image_row **images = NULL;
        json_t *needed = json_object();

        if (!needed)
                return NULL;
        if (cop_store_image_list(e->store, &images, NULL) < 0) {
                json_decref(needed);
                return NULL;
        }
        for (struct cop_image_row **image = images; *image; image++)
                mark(needed, (*image)->golden_node);
        for (const struct cop_sandbox *sb = e->sandboxes; sb; sb = sb->next) {
                mark(needed, sb->row->node_id);
                mark(needed, sb->row->pending_node);
                mark(needed, sb->row->layers);
                mark(needed, sb->row->redo);
        }
        for (struct cop_node_row **row = rows; *row; row++)
                if ((*row)->name || cop_node_wanted(e, *row) || json_object_get(needed, (*row)->id)) {
                        mark(needed, (*row)->id);
                        mark(needed, (*row)->layers); /* all of them, down to the image */
                }
        return needed;
}

static struct item *add_item(struct cop_gc *g, const char *folder, const char *name)
{
        struct item *item = &g->items[g->count];

        if (g->count == ITEMS_MAX) {
                g->more = true;
                return NULL;
        }
        *item = (struct item){0};
        if (cop_path_format(item->path, sizeof(item->path), "%s/%s", folder, name) < 0)
                return NULL;
        g->count++;
        return item;
}

static void add_node(struct cop_gc *g, const struct cop_node_row *row)
{
        struct item *item = add_item(g, "nodes", row->id);

        if (!item)
                return;
        item->node = true;
        memcpy(item->id, row->id, sizeof(item->id));
        memcpy(item->sandbox_id, row->sandbox_id, sizeof(item->sandbox_id));
        if (strcmp(row->reason, "fork") == 0)
                snprintf(item->reason, sizeof(item->reason), "made for a fork of %s, and no copy needs it",
                         row->sandbox_id);
        else
                snprintf(item->reason, sizeof(item->reason), "%s of %s, which has ended, and nothing stands on it",
                         row->reason, row->sandbox_id);
}

static int look_at_nodes(struct cop_gc *g, struct cop_error *err)
{
        _cleanup_(cop_node_rows_freep) struct cop_node_row **rows = NULL;
        const struct cop_node_filter f = {.brief = true};
        size_t n = 0;

        int r = cop_store_node_list(g->engine->store, &f, &rows, err);
        if (r < 0)
                return r;
        _cleanup_json_ json_t *needed = needed_nodes(g->engine, rows);
        if (!needed)
                return cop_error_errno(err, ENOMEM, "garbage collection");
        g->known = json_object();
        while (rows[n])
                json_object_set_new(g->known, rows[n++]->id, json_true());
        while (n-- > 0) /* the youngest first: nothing of what is left stands on it then */
                if (!json_object_get(needed, rows[n]->id))
                        add_node(g, rows[n]);
        return 0;
}

/* Whether nothing of ours has to do with nodes/NAME, sandboxes/NAME or images/NAME. */
static bool is_stray(struct cop_engine *e, const char *folder, const char *name)
{
        _cleanup_(cop_node_row_freep) struct cop_node_row *node = NULL;
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *sandbox = NULL;
        _cleanup_(cop_image_row_freep) struct cop_image_row *image = NULL;

        if (strcmp(folder, "nodes") == 0)
                return cop_id_valid(name, "nd_", 10) && !cop_node_is_being_made(e, name) &&
                       cop_store_node_get(e->store, name, &node, NULL) == -ENOENT &&
                       cop_store_node_in_use(e->store, name, NULL) == 0;
        if (strcmp(folder, "sandboxes") == 0)
                return cop_id_valid(name, "sb_", 10) && !cop_sandbox_by_id(e, name) && !e->adoptions &&
                       !cop_sandbox_is_prepared(e, name) &&
                       cop_store_sandbox_get(e->store, name, &sandbox, NULL) == -ENOENT;
        return !e->image_jobs && strncmp(name, "im_", 3) == 0 &&
               cop_store_image_get(e->store, name, &image, NULL) == -ENOENT;
}

static void look_at_folders(struct cop_gc *g, const char *folder)
{
        _cleanup_closedir_ DIR *dir = NULL;
        char path[4200];
        struct dirent *entry;

        if (cop_path_format(path, sizeof(path), "%s/%s", g->engine->home, folder) < 0 || !(dir = opendir(path)))
                return;
        while ((entry = readdir(dir))) {
                if (json_object_get(g->known, entry->d_name) || !is_stray(g->engine, folder, entry->d_name))
                        continue;
                struct item *item = add_item(g, folder, entry->d_name);
                if (item)
                        snprintf(item->reason, sizeof(item->reason), "nothing in the store knows this folder");
        }
}

/* -- REMOVE ------------------------------------------------------------------------------------------------------------- */

static void remove_one(struct cop_gc *g, struct item *item)
{
        struct cop_engine *e = g->engine;
        const char *name = strchr(item->path, '/') + 1;
        char folder[16], path[4200];

        if (item->node) {
                item->removed = cop_node_collect(e, item->id);
                return;
        }
        snprintf(folder, sizeof(folder), "%.*s", (int)(name - 1 - item->path), item->path);
        if (!is_stray(e, folder, name) || cop_path_format(path, sizeof(path), "%s/%s", e->home, item->path) < 0)
                return;
        cop_trash_add(e, path);
        item->removed = true;
}

static void on_remove(struct cop_gc *g, usec_t now)
{
        usec_t end = cop_usec_add(cop_now(CLOCK_MONOTONIC), SLICE);

        if (is_moving(g->engine)) {
                cop_source_set_time(g->timer, cop_usec_add(now, LOOK_AGAIN));
                return;
        }
        while (!g->dry_run && g->at < g->count && cop_now(CLOCK_MONOTONIC) < end)
                remove_one(g, &g->items[g->at++]);
        if (!g->dry_run && g->at < g->count)
                cop_source_set_time(g->timer, cop_usec_add(now, PAUSE));
        else
                finish(g, NULL);
}

/* -- MEASURE ------------------------------------------------------------------------------------------------------------ */

/* Only numbers and our own names are printed: what a sandbox called its files is never read. */
static const char measure_script[] = "find \"$@\" -xdev -printf '%y %H %D:%i %n %b\\n' 2>/dev/null | awk '"
                                     "$1 == \"d\" || $4 == 1 { blocks[$2] += $5; next }"
                                     "{ if (!($3 in links)) links[$3] = $4; if (--links[$3] == 0) blocks[$2] += $5 }"
                                     "END { for (path in blocks) printf \"%.0f %s\\n\", blocks[path] * 512, path }'";

static void take_sizes(struct cop_gc *g)
{
        char *save = NULL;

        for (char *line = g->out.data ? strtok_r(g->out.data, "\n", &save) : NULL; line;
             line = strtok_r(NULL, "\n", &save)) {
                char *path;
                uint64_t bytes = strtoull(line, &path, 10);
                for (size_t i = 0; *path == ' ' && i < g->count; i++)
                        if (strcmp(g->items[i].path, path + 1) == 0)
                                g->items[i].bytes = bytes;
        }
}

static void on_measured(struct cop_source *s, const siginfo_t *si, void *userdata)
{
        struct cop_gc *g = userdata;

        g->child = cop_source_free(s);
        g->io = cop_source_free(g->io);
        g->pid = 0;
        while (cop_buf_read(&g->out, g->out_fd, 16384) > 0)
                ;
        if (si->si_code != CLD_EXITED || si->si_status != 0)
                cop_log_warning("garbage could not be measured: the sizes are not known");
        else
                take_sizes(g);
        cop_source_set_time(g->timer, 0);
}

static void on_out(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct cop_gc *g = userdata;
        ssize_t n = cop_buf_read(&g->out, fd, 16384);

        if (n <= 0 && n != -EINTR && n != -EAGAIN)
                g->io = cop_source_free(s); /* the end of the child decides */
}

static int measure(struct cop_gc *g, struct cop_error *err)
{
        _cleanup_free_ const char **argv = calloc(g->count + 5, sizeof(*argv));

        if (!argv)
                return cop_error_errno(err, ENOMEM, "garbage collection");
        argv[0] = "sh";
        argv[1] = "-c";
        argv[2] = measure_script;
        argv[3] = "sh";
        for (size_t i = 0; i < g->count; i++)
                argv[4 + i] = g->items[i].path;
        const struct cop_child_spec spec = {
                .path = "/bin/sh",
                .argv = argv,
                .cwd = g->engine->home,
                .new_session = true,
                .death_signal = SIGTERM,
        };
        int r = cop_child_spawn_output(&spec, &g->pid, &g->out_fd, err);
        if (r < 0)
                return r;
        cop_set_nonblock(g->out_fd, 1);
        r = cop_loop_add_child(g->engine->loop, g->pid, on_measured, g, &g->child, err);
        if (r == 0)
                r = cop_loop_add_io(g->engine->loop, g->out_fd, EPOLLIN, on_out, g, &g->io, err);
        return r;
}

/* -- the steps ---------------------------------------------------------------------------------------------------------- */

static int look(struct cop_gc *g, struct cop_error *err)
{
        g->items = calloc(ITEMS_MAX, sizeof(*g->items));
        int r = g->items ? look_at_nodes(g, err) : cop_error_errno(err, ENOMEM, "garbage collection");
        if (r < 0)
                return r;
        look_at_folders(g, "nodes");
        look_at_folders(g, "sandboxes");
        look_at_folders(g, "images");
        json_decref(TAKE_PTR(g->known));
        return 0;
}

static void on_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct cop_gc *g = userdata;
        struct cop_error err;
        int r;

        if (g->items) {
                on_remove(g, now);
        } else if (is_moving(g->engine)) {
                cop_source_set_time(s, cop_usec_add(now, LOOK_AGAIN));
        } else {
                r = look(g, &err);
                if (r == 0 && g->count > 0)
                        r = measure(g, &err);
                if (r < 0 || g->count == 0)
                        finish(g, r < 0 ? &err : NULL);
        }
}

void cop_engine_gc(struct cop_engine *e, bool dry_run, struct cop_op_to to, struct cop_op **ret_op)
{
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (e->gc) {
                cop_error_set(&err, EBUSY, COP_ERR_in_use, "garbage is being collected already; wait for that");
                cop_answer(to, NULL, &err);
                return;
        }
        struct cop_gc *g = calloc(1, sizeof(*g));
        if (!g || !(g->op = cop_op_new(e, to, NULL, NULL))) {
                if (!g)
                        cop_answer(to, NULL, NULL);
                free(g);
                return;
        }
        g->engine = e;
        g->dry_run = dry_run;
        g->out_fd = -EBADF;
        cop_buf_init(&g->out, MEASURE_MAX);
        e->gc = g;
        if (cop_loop_add_timer(e->loop, 0, on_timer, g, &g->timer, &err) < 0)
                finish(g, &err);
        else if (ret_op)
                *ret_op = g->op;
}
