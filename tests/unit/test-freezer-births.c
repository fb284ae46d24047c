/* The plan of who forks whom, against a model of the kernel: trees that came about by forks, siblings, sessions, ends and subreapers at random are
 * planned, built as planned, and compared. */
#include <stdlib.h>
#include <string.h>

#include "freezer/births.h"
#include "lib/test.h"

#define MOST 48
#define NOBODY (-1)

/* Process i has the pid i + 1. */
struct model {
        int n;
        struct {
                int parent, sid;
                bool there, reaper;
        } p[MOST];
};

static int fork_in(struct model *m, int parent)
{
        m->p[m->n].parent = parent;
        m->p[m->n].sid = parent == NOBODY ? 0 : m->p[parent].sid;
        m->p[m->n].there = true;
        m->p[m->n].reaper = false;
        return m->n++;
}

static void end_in(struct model *m, int i)
{
        int to = m->p[i].parent;

        while (to != 0 && !m->p[to].reaper)
                to = m->p[to].parent;
        m->p[i].there = false;
        for (int k = 0; k < m->n; k++)
                if (m->p[k].there && m->p[k].parent == i)
                        m->p[k].parent = to;
}

static void live(struct model *m, unsigned *seed)
{
        m->n = 0;
        fork_in(m, NOBODY);
        for (int step = 0; step < 120 && m->n < MOST - 1; step++) {
                int i = rand_r(seed) % m->n, what = rand_r(seed) % 10;
                if (!m->p[i].there)
                        continue;
                if (what < 1 && i > 0) /* CLONE_PARENT */
                        m->p[fork_in(m, i)].parent = m->p[i].parent;
                else if (what < 5)
                        fork_in(m, i);
                else if (what < 7)
                        m->p[i].sid = i + 1;
                else if (what < 9 && i > 0)
                        end_in(m, i);
                else if (rand_r(seed) % 4 == 0)
                        m->p[i].reaper = true;
        }
}

/* ---- what is planned, and built ---- */

struct build {
        struct img_proc procs[MOST];
        struct cop_birth births[MOST];
        uint32_t n;
        struct model made; /* the processes of the plan by their index, and those between */
        int at[MOST];      /* of each in `made`, NOBODY: not yet */
};

static uint32_t list(const struct model *m, struct build *b, int i, uint32_t parent)
{
        uint32_t index = b->n++;

        b->procs[index] = (struct img_proc){.pid = i + 1, .sid = m->p[i].sid, .parent = parent};
        for (int k = 0; k < m->n; k++)
                if (m->p[k].there && m->p[k].parent == i)
                        list(m, b, k, index);
        return index;
}

static void run(struct build *b, uint32_t i);

static void fork_those(struct build *b, int parent, uint32_t by, enum cop_birth_way way, int32_t sid)
{
        for (uint32_t i = 1; i < b->n; i++) {
                const struct cop_birth *p = &b->births[i];
                if (p->by != by || p->way != way || (sid && p->sid != sid))
                        continue;
                ASSERT(b->at[i] == NOBODY && b->made.n < MOST);
                b->at[i] = fork_in(&b->made, parent);
                if (way == COP_BIRTH_SIBLING)
                        b->made.p[b->at[i]].parent = b->made.p[parent].parent;
                if (way == COP_BIRTH_STAND_IN && b->procs[i].parent == by)
                        b->made.p[b->at[i]].parent = b->at[by];
                run(b, i);
        }
}

static void run(struct build *b, uint32_t i)
{
        int self = b->at[i];

        b->made.p[self].reaper = b->births[i].adopts;
        fork_those(b, self, i, COP_BIRTH_EARLY, 0);
        if (b->procs[i].sid == b->procs[i].pid)
                b->made.p[self].sid = b->procs[i].sid;
        fork_those(b, self, i, COP_BIRTH_LATE, 0);
        fork_those(b, self, i, COP_BIRTH_SIBLING, 0);
        for (uint32_t k = 1; k < b->n; k++) {
                const struct cop_birth *p = &b->births[k];
                if (p->by != i || p->way < COP_BIRTH_ORPHAN || b->at[k] != NOBODY)
                        continue;
                ASSERT(b->made.n < MOST);
                int middle = fork_in(&b->made, self);
                if (p->way == COP_BIRTH_STAND_IN)
                        b->made.p[middle].sid = p->sid;
                fork_those(b, middle, i, p->way, p->sid);
                end_in(&b->made, middle);
        }
}

static void compare(const struct build *b)
{
        for (uint32_t i = 0; i < b->n; i++) {
                ASSERT_NE(b->at[i], NOBODY);
                ASSERT_EQ(b->made.p[b->at[i]].sid, b->procs[i].sid);
                if (i > 0)
                        ASSERT_EQ(b->made.p[b->at[i]].parent, b->at[b->procs[i].parent]);
        }
}

TEST(trees_of_any_history)
{
        int refused = 0, all = 4000;

        for (int round = 0; round < all; round++) {
                unsigned seed = (unsigned)round;
                struct model m;
                struct build b = {0};
                uint32_t index = 0;
                const char *why = NULL;

                live(&m, &seed);
                list(&m, &b, 0, IMG_NONE);
                int r = cop_births_plan(b.procs, b.n, b.births, &index, &why);
                if (r < 0) {
                        ASSERT(r == -EINVAL && index < b.n && why);
                        refused++;
                        continue;
                }
                for (uint32_t i = 0; i < b.n; i++)
                        b.at[i] = NOBODY;
                b.at[0] = fork_in(&b.made, NOBODY);
                run(&b, 0);
                compare(&b);
        }
        ASSERT_LT(refused, all / 100);
}

/* What no history has led to, but an image may say. */
TEST(trees_of_none)
{
        unsigned seed = 1;

        for (int round = 0; round < 20000; round++) {
                struct img_proc procs[12] = {{.pid = 1, .sid = round % 2, .parent = IMG_NONE}};
                struct cop_birth births[12];
                uint32_t index = 0, n = 2 + (uint32_t)rand_r(&seed) % 11;
                const char *why = NULL;

                for (uint32_t i = 1; i < n; i++) {
                        procs[i].pid = rand_r(&seed) % 14;
                        procs[i].sid = rand_r(&seed) % 14 - 1;
                        procs[i].parent = (uint32_t)rand_r(&seed) % i;
                }
                int r = cop_births_plan(procs, n, births, &index, &why);
                ASSERT(r == 0 || (r == -EINVAL && index < n && why));
                for (uint32_t i = 1; r == 0 && i < n; i++)
                        ASSERT_LT(births[i].by, n);
        }
}
