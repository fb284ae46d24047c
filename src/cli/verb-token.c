#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "params.h"
#include "print.h"
#include "verbs.h"

static struct {
        usec_t expires;
        bool json;
} opt;

static const struct cop_option json_options[] = {COP_OPTION_JSON(&opt.json), {0}};
static const struct cop_option new_options[] = {
        {"expires", 't', COP_OPTION_DURATION, &opt.expires, "TIME", "ends after this time (30d); never without"},
        COP_OPTION_JSON(&opt.json),
        {0},
};

static int create(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_json_ json_t *body = json_object(), *token = NULL;

        cop_param_str(body, "name", argc > 0 ? argv[0] : "cli");
        cop_param_seconds(body, "expires_seconds", opt.expires);
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!cop_cli_call(cli, "POST", "/api/tokens", body, &token))
                return COP_EXIT_ERROR;
        if (opt.json) {
                cop_print_json(token, cli->out_tty);
                return COP_EXIT_OK;
        }
        puts(cop_member(token, "token", ""));
        if (cli->out_tty)
                cop_cli_note(cli, "it is shown only now; use it as COPPICE_TOKEN or as \"Authorization: Bearer …\"");
        return COP_EXIT_OK;
}

static int list(struct cop_cli *cli, size_t argc, char **argv)
{
        static const char *const headings[] = {"ID", "NAME", "AGE", "EXPIRES"};
        _cleanup_json_ json_t *reply = NULL;
        json_t *tokens, *token;
        size_t i;

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!cop_cli_call(cli, "GET", "/api/tokens", NULL, &reply))
                return COP_EXIT_ERROR;
        tokens = json_is_array(reply) ? reply : json_object_get(reply, "tokens");
        if (opt.json) {
                cop_print_json(tokens, cli->out_tty);
                return COP_EXIT_OK;
        }
        struct cop_table *t = cop_table_new(ELEMENTSOF(headings), headings);
        json_array_foreach (tokens, i, token) {
                char age[24];
                const char *cells[] = {cop_member(token, "id", ""), cop_member(token, "name", ""),
                                       cop_age(cop_member(token, "created_at", NULL), age, sizeof(age)),
                                       cop_member(token, "expires_at", "")};
                cop_table_add(t, cells);
        }
        cop_table_print(t);
        cop_table_free(t);
        return COP_EXIT_OK;
}

static int remove_token(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/tokens/%s", argv[0]);

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        return path && cop_cli_call(cli, "DELETE", path, NULL, NULL) ? COP_EXIT_OK : COP_EXIT_ERROR;
}

const struct cop_verb cop_verb_token_new = {
        .name = "token new",
        .args = "[NAME]",
        .summary = "make a token for the TCP port and print it",
        .examples = "coppice token new ci --expires 30d\n"
                    "COPPICE_URL=http://127.0.0.1:8000 COPPICE_TOKEN=$(coppice token new) coppice ls",
        .options = new_options,
        .args_max = 1,
        .run = create,
};
const struct cop_verb cop_verb_token_ls = {
        .name = "token ls",
        .args = "",
        .summary = "list tokens, without their secrets",
        .examples = "coppice token ls",
        .options = json_options,
        .run = list,
};
const struct cop_verb cop_verb_token_rm = {
        .name = "token rm",
        .args = "ID",
        .summary = "revoke a token",
        .examples = "coppice token rm tok_…",
        .options = json_options,
        .args_min = 1,
        .args_max = 1,
        .run = remove_token,
};
