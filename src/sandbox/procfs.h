/* Parsing of /proc text and of the small files of cgroupfs.  Pure functions on foreign bytes (a mount point or a cgroup
 * may have any name); fuzz target: tests/fuzz/fuzz-procfs.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One line of /proc/PID/mountinfo (man 5 proc_pid_mountinfo); all strings point into the parsed text, octal escapes
 * resolved. */
struct cop_mountinfo {
        int mount_id, parent_id;
        const char *root;
        const char *mount_point;
        const char *options;
        const char *fs_type;
        const char *source;
        const char *super_options;
};

/* Parses the line at *cursor (NUL-terminated text, changed in place) and moves *cursor behind it.  1 with *ret filled, 0
 * at the end of the text, -EBADMSG for a malformed line (the cursor has moved: go on with the next). */
int cop_mountinfo_next(char **cursor, struct cop_mountinfo *ret);

/* True when the comma-separated list has exactly this word. */
bool cop_list_has(const char *list, const char *word);

/* The path of a hierarchy in the text of /proc/PID/cgroup: controller "" is cgroup v2, "memory" or "name=systemd" a v1
 * hierarchy.  0 with a malloc'd path, -ENOENT, -ENOMEM. */
int cop_proc_cgroup_path(const char *text, const char *controller, char **ret_path);

/* The number in the line "KEY NUMBER" of a flat keyed file (memory.stat, memory.events, cpu.stat, memory.oom_control).
 * 0, -ENOENT, -EBADMSG. */
int cop_keyed_u64(const char *text, const char *key, uint64_t *ret);

/* A single number, or "max" for UINT64_MAX, with optional white space behind it.  0 or -EBADMSG. */
int cop_limit_u64(const char *text, uint64_t *ret);
