/* What the first process of a sandbox may still do after its set-up: capabilities, system calls, resource limits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Sets the bounding set to what root inside may ever hold, and empties the inheritable and ambient sets.  The calling
 * process keeps its own permitted set until execve. */
int cop_lockdown_caps(struct cop_error *err);

/* Installs the system call filter (rules: seccomp-rules.c, compiled into the program) without no_new_privs, so that setuid
 * programs such as sudo work inside.  Needs CAP_SYS_ADMIN in the user namespace, which execve then takes away. */
int cop_lockdown_seccomp(struct cop_error *err);

/* Open files, core dumps, umask, session.  nofile 0 keeps the limit. */
int cop_lockdown_limits(uint64_t nofile, struct cop_error *err);

/* What a memory image may say that is thawed here: capabilities that root inside may hold; the program of the filter, of
 * *ret_size bytes. */
bool cop_lockdown_allows(uint64_t caps);
const void *cop_lockdown_filter(size_t *ret_size);
