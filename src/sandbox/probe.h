/* What this host can do for sandboxes, each thing found out by trying it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct cop_probe_result {
        const char *name; /* "kernel", "user_namespaces", … */
        bool ok;
        bool needed;        /* without it no sandbox starts; else some feature is missing */
        char detail[300];   /* what was found */
        const char *remedy; /* what to do; NULL when ok */
};

#define COP_PROBE_MAX 16

/* Tries everything, in a folder it makes below `home` (NULL: /tmp) and removes again; forks, so the caller should have one
 * thread.  Returns the number of results. */
size_t cop_probe(const char *home, struct cop_probe_result ret[static COP_PROBE_MAX]);
