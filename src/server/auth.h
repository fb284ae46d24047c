/* Who may do what: peer credentials, bearer tokens, Host. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "route.h"

struct cop_auth_facts {
        bool local;                       /* over the Unix socket */
        bool trusted;                     /* its peer is uid 0 or the daemon's */
        const char *host;                 /* Host header, NULL = none */
        const char *bearer;               /* Authorization header, NULL = none */
        const char *const *allowed_hosts; /* NULL-terminated, may be NULL */
        bool (*token_check)(void *userdata, const char *token);
        void *userdata;
};

/* 0; unauthorized, forbidden (Host, or a call for the Unix socket only). */
int cop_auth_check(const struct cop_auth_facts *facts, enum cop_auth_rule rule, struct cop_error *err);

/* A Host that cannot be a rebound DNS name: an address, localhost, *.localhost, or one of allowed. The port is ignored. */
bool cop_host_allowed(const char *host, const char *const *allowed);
