/* Parsing of /proc text and of the small files of cgroupfs.  Pure functions on foreign bytes (a cgroup may have any name); fuzz target:
 * tests/fuzz/fuzz-sandbox-procfs.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
