/* Who forks whom in a thaw, so that each process is born into its session and gets its parent: see births.c. */
#pragma once

#include <stdbool.h>

#include "freezer/image.h"

enum cop_birth_way {
        COP_BIRTH_LATE,     /* by its parent, in the parent's session (or before it makes its own: a leader) */
        COP_BIRTH_EARLY,    /* by its parent, before that makes a session of its own */
        COP_BIRTH_SIBLING,  /* by the leader of its session, whose sibling it is (CLONE_PARENT) */
        COP_BIRTH_ORPHAN,   /* by the leader of its session, and adopted by its parent */
        COP_BIRTH_STAND_IN, /* by a stand-in for the leader of its session, a child of `by` */
};

struct cop_birth {
        enum cop_birth_way way;
        uint32_t by; /* index of who forks it, or a child of whom */
        int32_t sid; /* the session into which it is born, where that matters */
        bool adopts; /* its parent ends before it: this process is a subreaper meanwhile */
};

/* The births of n processes, parents before children, [0] the first process: births[n] is filled.  When one cannot be born, -EINVAL;
 * *ret_index is the process, *ret_why says why.  -ENOMEM.  Checks what it uses of the records but for `parent`, which is below the
 * record's own index. */
int cop_births_plan(const struct img_proc *procs, uint32_t n, struct cop_birth *births, uint32_t *ret_index,
                    const char **ret_why);
