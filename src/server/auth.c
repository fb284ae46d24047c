#include "auth.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

bool cop_host_allowed(const char *host, const char *const *allowed)
{
        char name[256];
        struct in_addr v4;
        struct in6_addr v6;
        size_t len;

        if (*host == '[') {
                len = strcspn(++host, "]");
                if (host[len] != ']')
                        return false;
        } else {
                len = strcspn(host, ":");
        }
        if (len == 0 || len >= sizeof(name))
                return false;
        memcpy(name, host, len);
        name[len] = '\0';
        if (name[len - 1] == '.')
                name[--len] = '\0';

        /* Rebinding needs a name: an address in Host means that the browser was sent there by its address. */
        if (inet_pton(AF_INET, name, &v4) == 1 || inet_pton(AF_INET6, name, &v6) == 1)
                return true;
        if (strcasecmp(name, "localhost") == 0 || (len > 10 && strcasecmp(name + len - 10, ".localhost") == 0))
                return true;
        for (; allowed && *allowed; allowed++)
                if (strcasecmp(name, *allowed) == 0)
                        return true;
        return false;
}

static int check_token(const struct cop_auth_facts *f, struct cop_error *err)
{
        const char *remedy = f->local ? "the socket belongs to another user" : "make one with `coppice token new`";

        if (!f->bearer)
                return cop_error_set(err, EACCES, COP_ERR_unauthorized,
                                     "no token: send \"Authorization: Bearer TOKEN\" (%s)", remedy);
        if (strncasecmp(f->bearer, "Bearer ", 7) != 0)
                return cop_error_set(err, EACCES, COP_ERR_unauthorized,
                                     "the Authorization header must be \"Bearer TOKEN\"");
        const char *token = f->bearer + 7;
        token += strspn(token, " ");
        if (!*token || !f->token_check(f->userdata, token))
                return cop_error_set(err, EACCES, COP_ERR_unauthorized, "the token is unknown or has expired (%s)",
                                     remedy);
        return 0;
}

int cop_auth_check(const struct cop_auth_facts *f, enum cop_auth_rule rule, struct cop_error *err)
{
        if (!f->local) {
                if (!f->host)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "the Host header is missing");
                if (!cop_host_allowed(f->host, f->allowed_hosts))
                        return cop_error_set(err, EACCES, COP_ERR_forbidden,
                                             "host \"%.100s\" is not served; use localhost or an address, or start the "
                                             "daemon with --allow-host",
                                             f->host);
        }
        if (rule == COP_AUTH_NONE || (f->local && f->trusted))
                return 0;
        if (rule == COP_AUTH_LOCAL) {
                int r = check_token(f, err);
                if (r < 0)
                        return r;
                return cop_error_set(err, EACCES, COP_ERR_forbidden,
                                     "this call works only over the Unix socket, for root or the daemon's user");
        }
        return check_token(f, err);
}
