/* /proc text and the small files of cgroupfs: mountinfo, cgroup, keyed files, limits, and the /etc/hosts of a sandbox. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mountinfo.h"
#include "sandbox/hosts.h"
#include "sandbox/procfs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t lengths(const struct cop_mountinfo *m)
{
        return strlen(m->root) + strlen(m->mount_point) + strlen(m->options) + strlen(m->fs_type) + strlen(m->source) +
               strlen(m->super_options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        char *text = malloc(size + 1), *copy = malloc(size + 1), *path = NULL;
        struct cop_mountinfo m;
        uint64_t value;
        int r, changed;

        if (!text || !copy)
                abort();
        memcpy(text, data, size);
        text[size] = '\0';
        memcpy(copy, text, size + 1);
        size_t seen = 0;
        for (char *cursor = copy; (r = cop_mountinfo_next(&cursor, &m)) != 0;)
                if (r > 0)
                        seen += lengths(&m);
        if (seen > size)
                abort(); /* fields overlap or run over */
        if (cop_proc_cgroup_path(text, "memory", &path) == 0)
                free(path);
        if (cop_proc_cgroup_path(text, "", &path) == 0)
                free(path);
        (void)cop_keyed_u64(text, "oom_kill", &value);
        (void)cop_limit_u64(text, &value);
        (void)cop_list_has(text, "cpu");
        if (size < 4096) {
                char *hosts = cop_hosts_text(text, "name", &changed);
                char *again = hosts ? cop_hosts_text(hosts, "name", &changed) : NULL;
                if (again && strcmp(hosts, again) != 0)
                        abort(); /* every start would add to the file */
                free(again);
                free(hosts);
        }
        free(copy);
        free(text);
        return 0;
}
