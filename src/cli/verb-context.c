#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "cli.h"
#include "params.h"
#include "print.h"
#include "verbs.h"

static struct {
        const char *language, *kernelspec, *name, *cwd, *context;
        struct cop_list env;
        bool json;
} opt;

static const struct cop_option json_options[] = {COP_OPTION_JSON(&opt.json), {0}};
static const struct cop_option new_options[] = {
        {"language", 'l', COP_OPTION_STRING, &opt.language, "NAME", "language of the kernel (python)"},
        {"kernelspec", 'k', COP_OPTION_STRING, &opt.kernelspec, "NAME",
         "kernelspec of the image, instead of a language"},
        {"name", 'n', COP_OPTION_STRING, &opt.name, "NAME", "a name to use instead of the id"},
        {"cwd", 'w', COP_OPTION_STRING, &opt.cwd, "DIR", "working directory"},
        {"env", 'e', COP_OPTION_LIST, &opt.env, "K=V", "environment of the kernel; may be repeated"},
        COP_OPTION_JSON(&opt.json),
        {0},
};
static const struct cop_option interrupt_options[] = {
        {"context", 'c', COP_OPTION_STRING, &opt.context, "CONTEXT", "this context instead of the default one"},
        COP_OPTION_JSON(&opt.json),
        {0},
};

static int list(struct cop_cli *cli, size_t argc, char **argv)
{
        static const char *const headings[] = {"ID", "NAME", "KERNEL", "STATE", "CELLS", "QUEUED", "GENERATION", "CWD"};
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/contexts", argv[0]);
        _cleanup_json_ json_t *reply = NULL;
        json_t *contexts, *context;
        size_t i;

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || !cop_cli_call(cli, "GET", path, NULL, &reply))
                return COP_EXIT_ERROR;
        contexts = json_is_array(reply) ? reply : json_object_get(reply, "contexts");
        if (opt.json) {
                cop_print_json(contexts, cli->out_tty);
                return COP_EXIT_OK;
        }
        struct cop_table *t = cop_table_new(ELEMENTSOF(headings), headings);
        json_array_foreach (contexts, i, context) {
                static const char *const numbers[] = {"execution_count", "queued", "generation"};
                char text[3][24];
                for (size_t k = 0; k < 3; k++)
                        snprintf(text[k], sizeof(text[k]), "%lld",
                                 (long long)json_integer_value(json_object_get(context, numbers[k])));
                const char *cells[] = {cop_member(context, "id", ""),
                                       cop_member(context, "name", ""),
                                       cop_member(context, "kernelspec", ""),
                                       cop_member(context, "state", ""),
                                       text[0],
                                       text[1],
                                       text[2],
                                       cop_member(context, "cwd", "")};
                cop_table_add(t, cells);
        }
        cop_table_print(t);
        cop_table_free(t);
        return COP_EXIT_OK;
}

static int create(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/contexts", argv[0]);
        _cleanup_json_ json_t *body = json_object(), *context = NULL;

        if (opt.language && opt.kernelspec)
                return cop_cli_usage(cli, "--language and --kernelspec exclude each other");
        cop_param_str(body, "language", opt.language);
        cop_param_str(body, "kernelspec", opt.kernelspec);
        cop_param_str(body, "name", opt.name);
        cop_param_str(body, "cwd", opt.cwd);
        if (cop_param_map(body, "env", &opt.env, &cli->err) < 0)
                return cop_cli_usage(cli, "%s", cli->err.message);
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || !cop_cli_call(cli, "POST", path, body, &context))
                return COP_EXIT_ERROR;
        if (opt.json)
                cop_print_json(context, cli->out_tty);
        else
                puts(cop_member(context, "id", ""));
        return COP_EXIT_OK;
}

/* method on .../contexts/CONTEXT or with /WHAT behind it. */
static int act(struct cop_cli *cli, const char *method, const char *sandbox, const char *context, const char *what)
{
        _cleanup_free_ char *path = what ? cop_cli_path("/api/sandboxes/%s/contexts/%s/%s", sandbox, context, what)
                                         : cop_cli_path("/api/sandboxes/%s/contexts/%s", sandbox, context);
        _cleanup_json_ json_t *reply = NULL;

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || !cop_cli_call(cli, method, path, NULL, &reply))
                return COP_EXIT_ERROR;
        if (opt.json && reply)
                cop_print_json(reply, cli->out_tty);
        return COP_EXIT_OK;
}

static int restart(struct cop_cli *cli, size_t argc, char **argv)
{
        return act(cli, "POST", argv[0], argc > 1 ? argv[1] : "default", "restart");
}

static int interrupt_context(struct cop_cli *cli, size_t argc, char **argv)
{
        return act(cli, "POST", argv[0], argc > 1 ? argv[1] : "default", "interrupt");
}

static int interrupt_default(struct cop_cli *cli, size_t argc, char **argv)
{
        return act(cli, "POST", argv[0], opt.context ? opt.context : "default", "interrupt");
}

static int remove_context(struct cop_cli *cli, size_t argc, char **argv)
{
        return act(cli, "DELETE", argv[0], argv[1], NULL);
}

const struct cop_verb cop_verb_context_ls = {
        .name = "context ls",
        .args = "SANDBOX",
        .summary = "list the contexts (kernels) of a sandbox",
        .examples = "coppice context ls demo",
        .options = json_options,
        .args_min = 1,
        .args_max = 1,
        .run = list,
};
const struct cop_verb cop_verb_context_new = {
        .name = "context new",
        .args = "SANDBOX",
        .summary = "start another kernel in a sandbox and print its id",
        .examples = "coppice context new demo --name second --cwd /workspace\n"
                    "coppice run demo --context second 'x = 1'",
        .options = new_options,
        .args_min = 1,
        .args_max = 1,
        .run = create,
};
const struct cop_verb cop_verb_context_restart = {
        .name = "context restart",
        .args = "SANDBOX [CONTEXT]",
        .summary = "start the kernel of a context anew; its variables are gone",
        .examples = "coppice context restart demo",
        .options = json_options,
        .args_min = 1,
        .args_max = 2,
        .run = restart,
};
const struct cop_verb cop_verb_context_interrupt = {
        .name = "context interrupt",
        .args = "SANDBOX [CONTEXT]",
        .summary = "interrupt the cell that runs in a context",
        .examples = "coppice context interrupt demo second",
        .options = json_options,
        .args_min = 1,
        .args_max = 2,
        .run = interrupt_context,
};
const struct cop_verb cop_verb_context_rm = {
        .name = "context rm",
        .args = "SANDBOX CONTEXT",
        .summary = "end the kernel of a context and remove it",
        .examples = "coppice context rm demo second",
        .options = json_options,
        .args_min = 2,
        .args_max = 2,
        .run = remove_context,
};
const struct cop_verb cop_verb_interrupt = {
        .name = "interrupt",
        .args = "SANDBOX",
        .summary = "interrupt the cell that runs",
        .examples = "coppice interrupt demo",
        .options = interrupt_options,
        .args_min = 1,
        .args_max = 1,
        .run = interrupt_default,
};
