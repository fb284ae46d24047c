/* A notebook run again: nothing is made before the whole file was read and understood; then a new sandbox, and a cell after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli.h"
#include "input.h"
#include "params.h"
#include "print.h"
#include "verbs.h"

#define FILE_MAX (256u << 20)
#define CODE_MAX (16u << 20) /* of one cell, as the daemon has it */
#define EXCERPT_MAX 60

static struct {
        const char *name, *image;
        usec_t timeout;
        bool stop_on_error, json;
} opt;

static const struct cop_option options[] = {
        {"name", 'n', COP_OPTION_STRING, &opt.name, "NAME", "a name for the sandbox, unique among live ones"},
        {"image", 'i', COP_OPTION_STRING, &opt.image, "IMAGE", "image id or name (code-interpreter)"},
        {"timeout", 't', COP_OPTION_DURATION, &opt.timeout, "TIME", "limit of each cell (30s), at most 24h"},
        {"stop-on-error", 0, COP_OPTION_FLAG, &opt.stop_on_error, NULL, "leave out the cells after one that failed"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "print the sandbox and a report of every cell"},
        {0},
};

/* -- the file ----------------------------------------------------------------------------------------------------------- */

static int no_notebook(const char *file, const char *why, struct cop_error *err)
{
        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "%s: %s", file, why);
}

static int check_format(const char *file, json_t *notebook, struct cop_error *err)
{
        json_t *format = json_object_get(notebook, "nbformat");

        if (!json_is_integer(format))
                return no_notebook(file, "this is no Jupyter notebook: it does not say its \"nbformat\"", err);
        if (json_integer_value(format) < 4)
                return no_notebook(file, "its format is older than 4; convert it with jupyter nbconvert --to notebook",
                                   err);
        if (json_integer_value(format) > 4)
                return no_notebook(file, "its format is newer than 4, which is the one that is known here", err);
        if (!json_is_array(json_object_get(notebook, "cells")))
                return no_notebook(file, "it has no \"cells\"", err);
        return 0;
}

/* A string, or a list of them.  NULL when it is neither. */
static json_t *source_of(json_t *cell)
{
        json_t *source = json_object_get(cell, "source"), *line, *joined;
        struct cop_buf text = COP_BUF(FILE_MAX);
        size_t i;

        if (json_is_string(source))
                return json_incref(source);
        json_array_foreach (source, i, line)
                if (!json_is_string(line) || cop_buf_add(&text, json_string_value(line), json_string_length(line)) < 0)
                        break;
        joined = json_is_array(source) && i == json_array_size(source)
                         ? cop_json_foreign_string(text.data ? text.data : "", text.len)
                         : NULL;
        cop_buf_done(&text);
        return joined;
}

static bool is_blank(json_t *source)
{
        const char *text = json_string_value(source);

        return text[strspn(text, " \t\r\n")] == '\0' && strlen(text) == json_string_length(source);
}

static bool may_raise(json_t *cell)
{
        json_t *tag;
        size_t i;

        json_array_foreach (json_object_get(json_object_get(cell, "metadata"), "tags"), i, tag)
                if (json_is_string(tag) && strcmp(json_string_value(tag), "raises-exception") == 0)
                        return true;
        return false;
}

/* Adds {number, code, may_raise} of a code cell that is not empty. */
static int add_cell(const char *file, json_t *cells, json_t *cell, size_t number, struct cop_error *err)
{
        if (strcmp(cop_member(cell, "cell_type", ""), "code") != 0)
                return 0;
        _cleanup_json_ json_t *source = source_of(cell);
        if (!source)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "%s: cell %zu has no readable \"source\"", file,
                                     number);
        if (json_string_length(source) > CODE_MAX)
                return cop_error_set(err, EFBIG, COP_ERR_payload_too_large, "%s: cell %zu is over the limit of %u MiB",
                                     file, number, CODE_MAX >> 20);
        if (strlen(json_string_value(source)) != json_string_length(source))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "%s: cell %zu contains a NUL character", file,
                                     number);
        if (!is_blank(source))
                json_array_append_new(cells, json_pack("{s:I, s:O, s:b}", "number", (json_int_t)number, "code", source,
                                                       "may_raise", may_raise(cell)));
        return 0;
}

/* The cells to run, and the language they are in. */
static int load(const char *file, json_t **ret_cells, char language[static 64], struct cop_error *err)
{
        _cleanup_buf_ struct cop_buf text = COP_BUF(FILE_MAX);
        _cleanup_json_ json_t *notebook = NULL, *cells = json_array();
        json_t *cell, *metadata;
        size_t i;

        int r = cop_input_read(file, &text, err);
        if (r < 0)
                return r;
        r = cop_json_parse(text.data ? text.data : "", text.len, true, &notebook, err);
        if (r < 0)
                return cop_error_wrap(err, r, "%s is no notebook", file);
        r = check_format(file, notebook, err);
        json_array_foreach (json_object_get(notebook, "cells"), i, cell)
                if (r == 0)
                        r = add_cell(file, cells, cell, i + 1, err);
        if (r == 0 && json_array_size(cells) == 0)
                r = no_notebook(file, "it has no code cells, nothing to run", err);
        if (r < 0)
                return r;
        metadata = json_object_get(notebook, "metadata");
        snprintf(language, 64, "%s",
                 cop_member(json_object_get(metadata, "language_info"), "name",
                            cop_member(json_object_get(metadata, "kernelspec"), "language", "python")));
        *ret_cells = TAKE_PTR(cells);
        return 0;
}

/* -- running ------------------------------------------------------------------------------------------------------------ */

struct import {
        struct cop_cli *cli; /* borrowed */
        json_t *cells;       /* borrowed */
        const char *sandbox_id;
        const char *context_id; /* NULL = the default one */
        json_t *report;         /* borrowed array */
        size_t ok, failed, skipped;
};

static void show_progress(struct import *m, size_t i, const char *status, double ms, const char *code)
{
        bool colour = m->cli->err_colour;
        char excerpt[EXCERPT_MAX + 1];

        snprintf(excerpt, sizeof(excerpt), "%.*s",
                 (int)cop_utf8_cut(code, MIN_OF(strcspn(code, "\r\n"), (size_t)EXCERPT_MAX)), code);
        fprintf(stderr, "[%zu/%zu] ", i + 1, json_array_size(m->cells));
        cop_print_colour(stderr, colour, strcmp(status, "ok") == 0 ? COP_GREEN : COP_RED, status);
        fprintf(stderr, " %.0f ms  ", ms);
        cop_print_clean(stderr, excerpt, false);
        fputc('\n', stderr);
}

static void show_error(json_t *error)
{
        if (!json_is_object(error))
                return;
        fputs("        ", stderr);
        cop_print_clean(stderr, cop_member(error, "name", ""), false);
        fputs(": ", stderr);
        cop_print_clean(stderr, cop_member(error, "value", ""), false);
        fputc('\n', stderr);
}

static void add_report(struct import *m, json_t *cell, const char *status, json_t *result)
{
        json_t *entry = json_pack("{s:O, s:s}", "number", json_object_get(cell, "number"), "status", status);
        json_t *error = json_object_get(result, "error");

        if (cop_member(result, "id", NULL)) {
                json_object_set(entry, "cell_id", json_object_get(result, "id"));
                json_object_set_new(entry, "ms", json_real(json_number_value(json_object_get(result, "duration_ms"))));
        }
        if (json_is_object(error))
                json_object_set_new(entry, "error",
                                    json_pack("{s:O?, s:O?}", "name", json_object_get(error, "name"), "value",
                                              json_object_get(error, "value")));
        json_array_append_new(m->report, entry);
}

/* False when the rest is to be left out. */
static bool run_cell(struct import *m, size_t i)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/cells", m->sandbox_id);
        json_t *cell = json_array_get(m->cells, i);
        const char *code = json_string_value(json_object_get(cell, "code"));
        _cleanup_json_ json_t *body = json_pack("{s:O, s:s, s:s*}", "code", json_object_get(cell, "code"),
                                                "on_disconnect", "interrupt", "context", m->context_id),
                              *result = NULL;

        cop_param_seconds(body, "timeout", opt.timeout);
        if (!path || cop_client_call(m->cli->client, "POST", path, body, &result, &m->cli->err) < 0) {
                m->failed++;
                add_report(m, cell, "failed", NULL);
                cop_cli_fail(m->cli);
                return false;
        }
        const char *status = cop_member(result, "status", "");
        bool ok = strcmp(status, "ok") == 0 ||
                  (strcmp(status, "error") == 0 && json_is_true(json_object_get(cell, "may_raise")));
        m->ok += ok;
        m->failed += !ok;
        add_report(m, cell, status, result);
        show_progress(m, i, status, json_number_value(json_object_get(result, "duration_ms")), code);
        show_error(json_object_get(result, "error"));
        return ok || !opt.stop_on_error;
}

static void run_all(struct import *m)
{
        size_t count = json_array_size(m->cells), i = 0;

        while (i < count && run_cell(m, i))
                i++;
        for (i = i < count ? i + 1 : count; i < count; i++) {
                add_report(m, json_array_get(m->cells, i), "skipped", NULL);
                m->skipped++;
        }
}

/* -- where to ----------------------------------------------------------------------------------------------------------- */

static bool make_sandbox(struct cop_cli *cli, json_t **ret)
{
        _cleanup_json_ json_t *body = json_object();

        cop_param_str(body, "name", opt.name);
        cop_param_str(body, "image", opt.image);
        return cop_cli_call(cli, "POST", "/api/sandboxes", body, ret);
}

/* The context of a notebook in another language; the sandbox goes again when it has no kernel for it. */
static bool make_context(struct cop_cli *cli, const char *sandbox_id, const char *language, json_t **ret)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/contexts", sandbox_id),
                            *remove = cop_cli_path("/api/sandboxes/%s", sandbox_id);
        _cleanup_json_ json_t *body = json_object();

        cop_param_str(body, "language", language);
        if (path && cop_cli_call(cli, "POST", path, body, ret))
                return true;
        if (remove)
                cop_cli_call(cli, "DELETE", remove, NULL, NULL);
        return false;
}

static int finish(struct import *m, json_t *sandbox)
{
        if (opt.json) {
                _cleanup_json_ json_t *all = json_pack("{s:O, s:O, s:I, s:I, s:I}", "sandbox", sandbox, "cells",
                                                       m->report, "ok", (json_int_t)m->ok, "failed",
                                                       (json_int_t)m->failed, "skipped", (json_int_t)m->skipped);
                cop_print_json(all, m->cli->out_tty);
        } else {
                puts(m->sandbox_id);
        }
        cop_cli_note(m->cli, "%zu cells ok, %zu failed, %zu left out", m->ok, m->failed, m->skipped);
        return m->failed > 0 ? COP_EXIT_ERROR : COP_EXIT_OK;
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_json_ json_t *cells = NULL, *sandbox = NULL, *context = NULL, *report = json_array();
        struct import m = {.cli = cli, .report = report};
        char language[64];

        if (load(argv[0], &cells, language, &cli->err) < 0)
                return cop_cli_fail(cli);
        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!make_sandbox(cli, &sandbox))
                return COP_EXIT_ERROR;
        m.cells = cells;
        m.sandbox_id = cop_member(sandbox, "id", "");
        if (strcasecmp(language, "python") != 0 && !make_context(cli, m.sandbox_id, language, &context))
                return COP_EXIT_ERROR;
        m.context_id = cop_member(context, "id", NULL);
        cop_cli_note(cli, "running %zu cells in %s", json_array_size(cells), m.sandbox_id);
        run_all(&m);
        return finish(&m, sandbox);
}

const struct cop_verb cop_verb_import = {
        .name = "import",
        .args = "FILE.ipynb",
        .summary = "run a Jupyter notebook in a new sandbox",
        .notes = "Runs the code cells in order and prints the sandbox's id; how each went stands on stderr. Magics "
                 "(%time, "
                 "!ls) are\n"
                 "the kernel's business; text cells and empty ones are passed over. A cell tagged raises-exception may "
                 "raise one.\n"
                 "The status is 1 when a cell failed; the sandbox is there all the same. A file that cannot be run "
                 "makes "
                 "no sandbox.",
        .examples = "coppice import session.ipynb --name again\n"
                    "coppice import work.ipynb --stop-on-error --timeout 10m --json | jq .cells\n"
                    "coppice export demo | coppice import - --name copy",
        .options = options,
        .args_min = 1,
        .args_max = 1,
        .run = run,
};
