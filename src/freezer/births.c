/* How the processes of a tree are born into their sessions.
 *
 * Theory of operation.  A process belongs to the session that it was born into unless it made its own, and to the parent that forked it
 * unless that has ended: then the nearest subreaper among its ancestors at that time, or the first process, adopted it.  From who is whose
 * parent and in which session, the plan finds one way in which it may have come about.
 *
 * A process that leads no session needs to be born into its own.  One that leads a session does not care, unless a child of its is in
 * another one, and must have been forked before the leader made its own: then the leader needs to be born into that (and so may its
 * parent, if that leads a session, too).  What a process needs is therefore known when its children have been looked at.
 *
 *      the parent's session           forked late, after the parent's setsid, if any
 *      that of a child of the parent, dead or alive:  a sibling of that leader, which makes it so (CLONE_PARENT)
 *      that of a leader further below  an orphan.  The leader forks it through a child that ends at once (a leader that is a zombie
 *                                     forks it before it ends), and the parent adopts it
 *      another one                    forked early, before the parent's setsid
 *      that of a leader that is gone  once the parent has all of the session below it, an orphan of a stand-in, which has the
 *                                     leader's pid for a while.  It is a child of the lowest parent of such orphans, and makes those of its
 *                                     own parent as its siblings (CLONE_PARENT)
 *
 * Adopters other than the first process are subreapers from the beginning; other subreapers become that at the end, so that they take
 * nobody's orphans.  So one orphan cannot pass by the adopter of another.
 */
#include "freezer/births.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"

#define NO_SESSION INT32_MIN

struct session {
        int32_t sid;
        uint32_t leader; /* IMG_NONE: is gone */
        uint32_t common; /* the lowest process that has all of the others in its subtree, itself among them */
        uint32_t host;   /* of the stand-in, IMG_NONE: there is none */
};

struct plan {
        const struct img_proc *procs; /* borrowed */
        struct cop_birth *births;     /* borrowed */
        uint32_t n;
        uint32_t *depth; /* owned */
        int32_t *early;  /* owned; which session a leader has to be born into, NO_SESSION: any */
        uint32_t
                *waiting; /* owned; the first child that may be born early, or of a stand-in: IMG_NONE, there is none */
        uint32_t *next;   /* owned; the next one of its parent */
        struct session *sessions; /* owned; by sid */
        uint32_t session_count;
};

static int compare_sessions(const void *a, const void *b)
{
        const struct session *x = a, *y = b;

        return (x->sid > y->sid) - (x->sid < y->sid);
}

static struct session *find_session(const struct plan *p, int32_t sid)
{
        struct session key = {.sid = sid};

        return bsearch(&key, p->sessions, p->session_count, sizeof(key), compare_sessions);
}

static uint32_t common_ancestor(const struct plan *p, uint32_t a, uint32_t b)
{
        while (a != b) {
                if (p->depth[a] >= p->depth[b])
                        a = p->procs[a].parent;
                else
                        b = p->procs[b].parent;
        }
        return a;
}

static bool is_below(const struct plan *p, uint32_t index, uint32_t ancestor)
{
        return index != ancestor && common_ancestor(p, index, ancestor) == ancestor;
}

static void find_sessions(struct plan *p)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < p->n; i++) {
                p->depth[i] = i == 0 ? 0 : p->depth[p->procs[i].parent] + 1;
                p->early[i] = NO_SESSION;
                p->waiting[i] = IMG_NONE;
                p->sessions[i] = (struct session){p->procs[i].sid, IMG_NONE, IMG_NONE, IMG_NONE};
        }
        qsort(p->sessions, p->n, sizeof(*p->sessions), compare_sessions);
        for (uint32_t i = 0; i < p->n; i++)
                if (n == 0 || p->sessions[n - 1].sid != p->sessions[i].sid)
                        p->sessions[n++] = p->sessions[i];
        p->session_count = n;
        for (uint32_t i = 0; i < p->n; i++) {
                struct session *s = find_session(p, p->procs[i].sid);
                if (p->procs[i].pid == s->sid)
                        s->leader = i;
                s->common = s->common == IMG_NONE ? i : common_ancestor(p, s->common, i);
        }
        p->early[0] = p->procs[0].sid == p->procs[0].pid ? 0 : NO_SESSION;
}

static int32_t needed(const struct plan *p, uint32_t i)
{
        return p->procs[i].pid == p->procs[i].sid ? p->early[i] : p->procs[i].sid;
}

static bool choose_early(struct plan *p, uint32_t i)
{
        struct cop_birth *b = &p->births[i];
        const struct img_proc *above = &p->procs[b->by];
        int32_t *early = &p->early[b->by];

        if (above->sid != above->pid || (*early != NO_SESSION && *early != b->sid))
                return false;
        *early = b->sid;
        b->way = COP_BIRTH_EARLY;
        return true;
}

static void choose_stand_in(struct plan *p, uint32_t i, struct session *s)
{
        struct cop_birth *b = &p->births[i];

        b->way = COP_BIRTH_STAND_IN;
        if (s->host == IMG_NONE || p->depth[s->host] < p->depth[b->by])
                s->host = b->by;
}

/* Once its children have been looked at.  NULL, or why it cannot be. */
static const char *choose(struct plan *p, uint32_t i)
{
        uint32_t parent = p->procs[i].parent;
        const struct img_proc *above = &p->procs[parent];
        int32_t sid = needed(p, i);
        struct cop_birth *b = &p->births[i];
        struct session *s = find_session(p, sid);

        *b = (struct cop_birth){.way = COP_BIRTH_LATE, .by = parent, .sid = sid};
        if (sid == NO_SESSION || sid == above->sid)
                return NULL;
        if (s && s->leader != IMG_NONE && is_below(p, s->leader, parent)) {
                const struct img_proc *leader = &p->procs[s->leader];
                bool sibling = leader->parent == parent && leader->exit_signal == p->procs[i].exit_signal;
                b->way = sibling ? COP_BIRTH_SIBLING : COP_BIRTH_ORPHAN;
                b->by = s->leader;
                return NULL;
        }
        bool gone = s && sid > 0 && s->leader == IMG_NONE;
        if (gone && is_below(p, s->common, parent))
                choose_stand_in(p, i, s);
        else if (gone && above->sid == above->pid) {
                p->next[i] = p->waiting[parent];
                p->waiting[parent] = i;
        } else if (gone)
                choose_stand_in(p, i, s);
        else if (!choose_early(p, i))
                return "is in a session that it cannot have been born into under its parent";
        return NULL;
}

/* Those of its children that need not be born early, but better are. */
static void choose_waiting(struct plan *p, uint32_t parent)
{
        for (uint32_t i = p->waiting[parent]; i != IMG_NONE; i = p->next[i])
                if (!choose_early(p, i))
                        choose_stand_in(p, i, find_session(p, p->births[i].sid));
}

static const char *find_adopter(struct plan *p, uint32_t i)
{
        struct cop_birth *b = &p->births[i];
        uint32_t parent = p->procs[i].parent;

        if (b->way == COP_BIRTH_STAND_IN) {
                b->by = find_session(p, b->sid)->host;
                if (b->by == parent) /* a sibling of the stand-in's */
                        return NULL;
                if (!is_below(p, b->by, parent))
                        return "is in a session of which others are elsewhere";
        }
        if (b->way == COP_BIRTH_ORPHAN || b->way == COP_BIRTH_STAND_IN)
                p->births[parent].adopts = true;
        return NULL;
}

/* Orphans must not be adopted on the way, and nobody may be what has to be there before itself. */
static const char *check(const struct plan *p, uint32_t i)
{
        const struct cop_birth *b = &p->births[i];
        const struct img_proc *proc = &p->procs[i];
        uint32_t by = i, steps = 0;

        if (b->way == COP_BIRTH_EARLY || b->way == COP_BIRTH_LATE)
                return NULL;
        if (proc->shares_fs || proc->shares_files)
                return "shares its folder or descriptors with its parent, but was not born in its session";
        for (uint32_t at = b->by; b->way != COP_BIRTH_SIBLING && at != proc->parent; at = p->procs[at].parent)
                if (p->births[at].adopts)
                        return "was adopted past another process that has adopted some";
        while (by != 0 && steps++ < p->n)
                by = p->births[by].by;
        return by == 0 ? NULL : "would have to be there before itself";
}

static int make_plan(struct plan *p, uint32_t *ret_index, const char **ret_why)
{
        find_sessions(p);
        p->births[0] = (struct cop_birth){.by = IMG_NONE};
        *ret_why = NULL;
        for (uint32_t i = p->n; !*ret_why && i-- > 1; *ret_index = i) {
                choose_waiting(p, i);
                *ret_why = choose(p, i);
        }
        choose_waiting(p, 0);
        for (uint32_t i = 1; !*ret_why && i < p->n; *ret_index = i++)
                *ret_why = find_adopter(p, i);
        p->births[0].adopts = false; /* it does so by itself */
        for (uint32_t i = 1; !*ret_why && i < p->n; *ret_index = i++)
                *ret_why = check(p, i);
        return *ret_why ? -EINVAL : 0;
}

int cop_births_plan(const struct img_proc *procs, uint32_t n, struct cop_birth *births, uint32_t *ret_index,
                    const char **ret_why)
{
        _cleanup_free_ uint32_t *depth = malloc(n * sizeof(*depth));
        _cleanup_free_ int32_t *early = malloc(n * sizeof(*early));
        _cleanup_free_ uint32_t *waiting = malloc(n * sizeof(*waiting)), *next = malloc(n * sizeof(*next));
        _cleanup_free_ struct session *sessions = malloc(n * sizeof(*sessions));
        struct plan p = {procs, births, n, depth, early, waiting, next, sessions, 0};

        return depth && early && waiting && next && sessions ? make_plan(&p, ret_index, ret_why) : -ENOMEM;
}
