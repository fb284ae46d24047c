/* Becoming a user of the sandbox, and the last steps every child of init shares.
 *
 * /etc/passwd and /etc/group are files of the sandbox, hence hostile: regular files only, at most 1 MiB each, read by the
 * child and never by pid 1. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

#define USER_GROUPS_MAX 256
#define USER_TEXT_MAX   256 /* of a name, home or shell; longer ones are not taken */

struct user {
        uid_t uid;
        gid_t gid;
        gid_t groups[USER_GROUPS_MAX];
        size_t group_count;
        char name[USER_TEXT_MAX];
        char home[USER_TEXT_MAX];
        char shell[USER_TEXT_MAX];
};

/* spec: "user", "1000", "1000:1000", "user:group"; NULL or "" = the default ids.  A number needs no line in /etc/passwd.
 * bad_request when there is no such user. */
int user_find(const char *spec, uid_t default_uid, gid_t default_gid, struct user *ret, struct cop_error *err);

/* For a forked child: ids, groups, no capabilities unless root. */
int user_become(const struct user *u, struct cop_error *err);

/* For a forked child, still root: first to go when memory runs out, no core files, default signals, umask 022. */
void user_prepare_child(void);

/* The text functions behind user_find, for tests.  find: 1 found, 0 not. */
int user_parse_passwd(const char *text, size_t n, const char *name, uid_t uid, struct user *ret);
int user_parse_group(const char *text, size_t n, const char *name, gid_t *ret);
void user_parse_memberships(const char *text, size_t n, struct user *u);
