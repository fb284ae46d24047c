/* Becoming a user of the sandbox, and the last steps every child of init shares.
 *
 * /etc/passwd and /etc/group are files of the sandbox, hence hostile: regular files only, at most 1 MiB each, read by
 * the child and never by pid 1. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

#define COP_USER_GROUPS_MAX 256
#define COP_USER_TEXT_MAX 256 /* of a name, home or shell; longer ones are not taken */

struct cop_user {
        uid_t uid;
        gid_t gid;
        gid_t groups[COP_USER_GROUPS_MAX];
        size_t group_count;
        char name[COP_USER_TEXT_MAX];
        char home[COP_USER_TEXT_MAX];
        char shell[COP_USER_TEXT_MAX];
};

/* spec: "user", "1000", "1000:1000", "user:group"; NULL or "" = the default ids.  A number needs no line in
 * /etc/passwd, nor does "root". bad_request when there is no such user. */
int cop_user_find(const char *spec, uid_t default_uid, gid_t default_gid, struct cop_user *ret, struct cop_error *err);

/* For a forked child: ids, groups, no capabilities unless root. */
int cop_user_become(const struct cop_user *u, struct cop_error *err);

/* For a forked child, still root: first to go when memory runs out, no core files, default signals, umask 022. */
void cop_user_prepare_child(void);

/* The text functions behind cop_user_find, for tests.  find: 1 found, 0 not. */
int cop_user_parse_passwd(const char *text, size_t n, const char *name, uid_t uid, struct cop_user *ret);
int cop_user_parse_group(const char *text, size_t n, const char *name, gid_t *ret);
void cop_user_parse_memberships(const char *text, size_t n, struct cop_user *u);
