/* Copying pages before the stop, and beside it.
 *
 * Theory of operation.  A round looks for what was written, protecting it, and copies it while the tree runs; as long as much was, another
 * round follows.  The pages of the last one, which are few, are copied by a thread on another processor while the engine goes on to the
 * stop: there most of the time goes into questions that one thread has to ask, and a page that is written before the tree stands still
 * is found by the stop's own look, as after any round.  The result is there from cop_tracker_precopied() on.
 *
 * The first look can be begun before there is an image to copy into (cop_tracker_ahead).  What it found stays true until a freeze uses it: a
 * page that is written after it is written once more.  One that ends the tree, whose pages are not looked at before, gives it up.
 *
 *      the thread   look ─────► wait ─────► list, copy ──────────► joined
 *      the engine   image ──► looked?  decided ──► stop, questions ──► precopied
 */
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/thread.h"
#include "freezer/guest.h"
#include "freezer/parent.h"
#include "freezer/tracker.h"

/* Copying goes on before the stop while more than this many pages turn up, for at most so many rounds.  A round costs
 * as much as copying some pages during the stop. */
#define ROUND_PAGES 2048
#define ROUNDS_MAX 4

/* What one round finds in one process, and copies. */
struct share {
        struct cop_proc proc;    /* what copying needs of it; the descriptor is the tracker's */
        struct cop_runs runs;    /* owned */
        bool since_parent;       /* what was written since then, and is compared with it; else since an earlier round */
        struct img_extent *list; /* owned */
        size_t count;
        struct cop_page_copy copy;
};

struct cop_precopying {
        struct cop_tracker *tracker; /* borrowed */
        bool everything;             /* look for all that is there, where nothing was copied yet */
        pthread_t thread;
        bool beside;           /* the thread is there */
        sem_t looked, decided; /* posted by the thread; by the engine */
        bool copy;             /* what it decided */
        struct cop_dump *dump; /* borrowed; set before that */
        char *buffer;          /* owned: page transfer of the thread, COP_COPY_SIZE */
        int result;            /* the thread's, and err, until it was waited for */
        struct cop_error err;
        uint64_t pages;
        struct share *shares; /* owned */
        size_t count;
};

static void wait_for(sem_t *s)
{
        while (sem_wait(s) < 0 && errno == EINTR)
                ;
}

static void decide(struct cop_precopying *c, bool copy)
{
        c->copy = copy;
        sem_post(&c->decided);
}

static void join(struct cop_precopying *c)
{
        if (c->beside)
                pthread_join(c->thread, NULL);
        c->beside = false;
}

static struct cop_precopying *precopying_free(struct cop_precopying *c)
{
        if (!c)
                return NULL;
        if (c->beside && !c->dump) /* it waits for that */
                decide(c, false);
        join(c);
        for (size_t i = 0; i < c->count; i++) {
                free(c->shares[i].runs.list);
                free(c->shares[i].list);
        }
        sem_destroy(&c->looked);
        sem_destroy(&c->decided);
        free(c->shares);
        free(c->buffer);
        free(c);
        return NULL;
}

/* Puts new extents into the ascending list, cutting what they replace. */
static int merge(struct cop_precopy *pre, const struct img_extent *fresh, size_t n)
{
        /* Each new one adds itself and cuts at most one old one in two. */
        struct img_extent *out = malloc((pre->count + 2 * n + 1) * sizeof(*out));
        size_t k = 0, i = 0;

        if (!out)
                return -ENOMEM;
        for (size_t f = 0; f <= n; f++) {
                uint64_t start = f < n ? fresh[f].address : UINT64_MAX,
                         end = f < n ? start + (uint64_t)fresh[f].pages * IMG_PAGE : UINT64_MAX;
                while (i < pre->count) {
                        struct img_extent *e = &pre->list[i];
                        uint64_t e_end = e->address + (uint64_t)e->pages * IMG_PAGE;
                        if (e_end <= start) {
                                out[k++] = *e;
                                i++;
                                continue;
                        }
                        if (e->address >= end)
                                break;
                        if (e->address < start) { /* what is left of it */
                                out[k] = *e;
                                out[k].pages = (uint32_t)((start - e->address) / IMG_PAGE);
                                out[k++].checksum = 0;
                        }
                        if (e_end <= end) {
                                i++;
                                continue;
                        }
                        e->offset += end - e->address;
                        e->address = end;
                        e->pages = (uint32_t)((e_end - end) / IMG_PAGE);
                        e->checksum = 0;
                        break;
                }
                if (f < n)
                        out[k++] = fresh[f];
        }
        free(pre->list);
        pre->list = out;
        pre->count = k;
        return 0;
}

/* ---- looking ---- */

static int look(struct cop_precopying *c, struct cop_tracked *t)
{
        struct share *s = &c->shares[c->count++];

        bool everything = c->everything && t->pre.count == 0;
        int r = cop_tracker_protect(t, everything, &s->runs);
        if (r < 0)
                return cop_error_errno(&c->err, -r, "scanning memory");
        s->proc = (struct cop_proc){.pid = t->pid, .nspid = t->nspid, .mem_fd = t->mem_fd, .comm = "?"};
        /* Not where a page was copied already: what it was then is no longer what counts. */
        s->since_parent = !everything && t->pre.count == 0;
        for (size_t i = 0; i < s->runs.count; i++)
                c->pages += (s->runs.list[i].end - s->runs.list[i].start) / IMG_PAGE;
        return 0;
}

static void look_at_all(struct cop_precopying *c)
{
        struct cop_tracker *t = c->tracker;

        for (size_t i = 0; i < t->count && c->result == 0; i++)
                if (t->list[i].uffd >= 0 && cop_tracked_alive(&t->list[i]))
                        c->result = look(c, &t->list[i]);
}

/* ---- copying ---- */

/* Short runs are compared with the parent page by page. */
static int list_extents(struct share *s, bool compare)
{
        const struct cop_runs *runs = &s->runs;
        size_t max = 0;

        for (size_t i = 0; i < runs->count; i++)
                max += (runs->list[i].end - runs->list[i].start) / COP_COPY_SIZE + COP_RUN_LONG;
        s->list = calloc(max + 1, sizeof(*s->list));
        if (!s->list)
                return -ENOMEM;
        for (size_t i = 0; i < runs->count; i++)
                for (uint64_t at = runs->list[i].start, step; at < runs->list[i].end; at += step) {
                        bool aligned;
                        step = cop_run_piece(runs->list[i].start, runs->list[i].end, at, &aligned);
                        if (compare && runs->list[i].end - runs->list[i].start < COP_RUN_LONG * IMG_PAGE)
                                step = IMG_PAGE;
                        s->list[s->count++] = (struct img_extent){.address = at,
                                                                  .pages = (uint32_t)(step / IMG_PAGE),
                                                                  .source = IMG_NONE,
                                                                  .checksum = aligned ? COP_COPY_ALIGNED : 0};
                }
        return 0;
}

static int copy_share(struct cop_dump *d, struct share *s, char *buffer, bool alone, struct cop_error *err)
{
        const struct img_proc *known = s->since_parent ? cop_parent_proc(d->parent, s->proc.nspid) : NULL;

        if (list_extents(s, known) < 0)
                return cop_error_errno(err, ENOMEM, "copying pages");
        s->copy = (struct cop_page_copy){.writer = d->writer,
                                         .proc = &s->proc,
                                         .buffer = buffer,
                                         .array = s->list,
                                         .may_vanish = true,
                                         .parent = d->parent,
                                         .known = known};
        return cop_page_copy_extents(&s->copy, (uint32_t)s->count, alone, err);
}

static int take_over(struct cop_dump *d, const struct cop_precopying *c, struct cop_error *err)
{
        for (size_t i = 0; i < c->count; i++) {
                struct share *s = &c->shares[i];
                struct cop_tracked *t = cop_tracker_find(c->tracker, s->proc.pid);
                size_t left = 0;
                d->pages_written += s->copy.pages;
                for (size_t k = 0; k < s->count; k++)
                        if (s->list[k].pages > 0)
                                s->list[left++] = s->list[k];
                if (t && s->since_parent) {
                        free(t->looked.list);
                        t->looked = s->runs;
                        s->runs = (struct cop_runs){0};
                }
                if (t && merge(&t->pre, s->list, left) < 0)
                        return cop_error_errno(err, ENOMEM, "copying pages");
        }
        return 0;
}

static int copy_now(struct cop_dump *d, struct cop_precopying *c, struct cop_error *err)
{
        int r = 0;

        for (size_t i = 0; i < c->count && r == 0; i++)
                r = copy_share(d, &c->shares[i], d->buffer, d->guest, err);
        return r == 0 ? take_over(d, c, err) : r;
}

static int copy_beside(struct cop_precopying *c)
{
        int r = 0;

        c->buffer = aligned_alloc(IMG_PAGE, COP_COPY_SIZE);
        if (!c->buffer)
                return cop_error_errno(&c->err, ENOMEM, "copying pages");
        for (size_t i = 0; i < c->count && r == 0; i++)
                r = copy_share(c->dump, &c->shares[i], c->buffer, true, &c->err);
        return r;
}

/* ---- the course of it ---- */

static void *work(void *userdata)
{
        struct cop_precopying *c = userdata;

        look_at_all(c);
        sem_post(&c->looked);
        wait_for(&c->decided);
        if (c->copy && c->result == 0)
                c->result = copy_beside(c);
        return NULL;
}

/* Begins with the look, beside the caller where that can be.  NULL: no memory. */
static struct cop_precopying *begin(struct cop_tracker *t, bool everything, bool alone)
{
        struct cop_precopying *c = calloc(1, sizeof(*c));
        cpu_set_t cpus;

        if (!c)
                return NULL;
        sem_init(&c->looked, 0, 0);
        sem_init(&c->decided, 0, 0);
        c->tracker = t;
        c->everything = everything;
        c->shares = calloc(t->count + 1, sizeof(*c->shares));
        if (!c->shares)
                return precopying_free(c);
        c->beside = !alone && cop_other_cpus(&cpus) && cop_thread_start(&c->thread, &cpus, work, c) == 0;
        if (!c->beside) {
                look_at_all(c);
                sem_post(&c->looked);
        }
        return c;
}

void cop_tracker_ahead(struct cop_tracker *t)
{
        if (!t->precopying && t->image_id[0] && !cop_tracker_outdated(t) && !cop_guest_needed())
                t->precopying = begin(t, false, false);
}

/* 1: another one is worth it. */
static int do_round(struct cop_dump *d, struct cop_error *err)
{
        struct cop_tracker *t = d->request->tracker;
        bool valid = d->parent && strcmp(d->parent->header->id, t->image_id) == 0;
        struct cop_precopying *c = TAKE_PTR(t->precopying);

        /* Without a common past, pages that look unwritten are not known anywhere: copy all once. */
        if (c && !valid)
                c = precopying_free(c);
        if (!c)
                c = begin(t, !valid, d->guest);
        if (!c)
                return cop_error_errno(err, ENOMEM, "copying pages");
        wait_for(&c->looked);
        if (c->beside && c->pages < ROUND_PAGES) {
                c->dump = d;
                decide(c, true);
                t->precopying = c;
                return 0;
        }
        if (c->beside)
                decide(c, false);
        join(c);
        int r = c->result;
        if (r < 0 && err)
                *err = c->err;
        if (r == 0)
                r = copy_now(d, c, err);
        if (r == 0 && c->pages >= ROUND_PAGES)
                r = 1;
        precopying_free(c);
        return r;
}

int cop_tracker_precopy(struct cop_dump *d, struct cop_error *err)
{
        int r = 0;

        for (int round = 0; round < ROUNDS_MAX; round++)
                if ((r = do_round(d, err)) != 1)
                        break;
        return MIN_OF(r, 0);
}

int cop_tracker_precopied(struct cop_dump *d, struct cop_error *err)
{
        struct cop_precopying *c = d->request->tracker ? d->request->tracker->precopying : NULL;

        if (!c || c->dump != d)
                return 0;
        d->request->tracker->precopying = NULL;
        join(c);
        int r = c->result;
        if (r < 0 && err)
                *err = c->err;
        if (r == 0)
                r = take_over(d, c, err);
        precopying_free(c);
        return r;
}

void cop_tracker_give_up(struct cop_tracker *t)
{
        t->precopying = precopying_free(t->precopying);
}
