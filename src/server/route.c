#include "route.h"

#include <stdio.h>
#include <string.h>

#include "request.h"

static const struct cop_route_table tables[] = {
        {cop_api_misc, &cop_dialect_native},
        {cop_api_sandboxes, &cop_dialect_native},
        {cop_api_contexts, &cop_dialect_native},
        {cop_api_cells, &cop_dialect_native},
        {cop_api_exec, &cop_dialect_native},
        {cop_api_files, &cop_dialect_native},
        {cop_api_images, &cop_dialect_native},
        {cop_api_states, &cop_dialect_native},
        {cop_api_packs, &cop_dialect_native},
        {cop_api_diff, &cop_dialect_native},
        {NULL, NULL},
};

const struct cop_route_table *cop_route_tables(void)
{
        return tables;
}

/* Rank of the match: 0 = none, else higher with more literal segments in front. */
static unsigned match_pattern(const char *pattern, const char *const *segments, size_t n, struct cop_route_match *m)
{
        unsigned rank = 1;

        m->param_count = 0;
        for (size_t i = 0; i < n; i++) {
                if (*pattern++ != '/')
                        return 0;
                size_t len = strcspn(pattern, "/");
                rank <<= 1;
                if (*pattern == '{') {
                        if (m->param_count == COP_ROUTE_PARAMS_MAX)
                                return 0;
                        m->params[m->param_count++] = segments[i];
                } else if (strncmp(pattern, segments[i], len) == 0 && segments[i][len] == '\0') {
                        rank |= 1;
                } else {
                        return 0;
                }
                pattern += len;
        }
        return *pattern ? 0 : rank;
}

static void allow_add(char *allow, const char *method)
{
        size_t len = strlen(allow);

        if (strstr(allow, method) == NULL)
                snprintf(allow + len, COP_ALLOW_MAX - len, "%s%s", len ? ", " : "", method);
}

static int not_found(const char *const *segments, size_t n, struct cop_error *err)
{
        char path[200] = "";
        size_t len = 0;

        for (size_t i = 0; i < n && len < sizeof(path) - 1; i++)
                len += (size_t)snprintf(path + len, sizeof(path) - len, "/%s", segments[i]);
        return cop_error_set(err, ENOENT, COP_ERR_route_not_found, "no such path: %s; see /api/openapi.yaml",
                             n ? path : "/");
}

int cop_route_find(const char *method, const char *const *segments, size_t n, struct cop_route_match *ret,
                   char ret_allow[static COP_ALLOW_MAX], struct cop_error *err)
{
        const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;
        struct cop_route_match best = {0}, m;
        unsigned best_rank = 0, path_rank = 0;

        ret_allow[0] = '\0';
        for (const struct cop_route_table *t = tables; t->routes; t++)
                for (const struct cop_route *route = t->routes; route->method; route++) {
                        unsigned rank = match_pattern(route->pattern, segments, n, &m);
                        if (!rank || rank < path_rank)
                                continue;
                        if (rank > path_rank)
                                ret_allow[0] = '\0';
                        path_rank = rank;
                        allow_add(ret_allow, route->method);
                        if (strcmp(route->method, wanted) == 0) {
                                best = m;
                                best.route = route;
                                best.dialect = t->dialect;
                                best_rank = rank;
                        }
                }
        if (!path_rank)
                return not_found(segments, n, err);
        if (strstr(ret_allow, "GET"))
                allow_add(ret_allow, "HEAD");
        allow_add(ret_allow, "OPTIONS");
        if (strcmp(method, "OPTIONS") == 0) {
                *ret = (struct cop_route_match){0};
                return 0;
        }
        if (best_rank != path_rank)
                return cop_error_set(err, EINVAL, COP_ERR_method_not_allowed, "%.20s is not possible here; allowed: %s",
                                     method, ret_allow);
        *ret = best;
        return 0;
}
