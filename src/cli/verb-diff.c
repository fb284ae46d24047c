/* What differs between two states, as a list:
 *
 *      files
 *        + /workspace/plot.png           file, 12.0 KiB
 *        ~ /workspace/data.csv           1.0 KiB → 1.2 KiB
 *        - /workspace/old                folder
 *      variables
 *        ~ df    pandas.core.frame.DataFrame (3, 2) → (4, 2)
 *        ? conn  sqlite3.Connection: cannot be compared …
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli.h"
#include "print.h"
#include "verbs.h"

#define TEXT_MAX 4096

static struct {
        bool files, variables, text, json;
        const char *context;
} opt;

static const struct cop_option options[] = {
        {"files", 'f', COP_OPTION_FLAG, &opt.files, NULL, "only the files"},
        {"variables", 'v', COP_OPTION_FLAG, &opt.variables, NULL, "only the variables"},
        {"text", 0, COP_OPTION_FLAG, &opt.text, NULL, "also what changed within text files"},
        {"context", 'c', COP_OPTION_STRING, &opt.context, "CONTEXT", "whose variables (default)"},
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "everything, with how long each part took"},
        {0},
};

static char sign_of(json_t *change)
{
        const char *word = cop_member(change, "change", "");

        return strcmp(word, "added") == 0 ? '+' : strcmp(word, "removed") == 0 ? '-' : '~';
}

static void print_sign(struct cop_cli *cli, char sign)
{
        const char text[] = {sign, '\0'};

        fputs("  ", stdout);
        cop_print_colour(stdout, cli->out_colour, sign == '+' ? COP_GREEN : sign == '-' ? COP_RED : COP_YELLOW, text);
        putchar(' ');
}

/* Foreign text as one line: a name may hold a newline. */
static void print_word(const char *text)
{
        char line[TEXT_MAX];
        size_t n = 0;

        for (; *text && n < sizeof(line) - 1; text++)
                line[n++] = *text == '\n' || *text == '\t' ? '?' : *text;
        line[n] = '\0';
        cop_print_clean(stdout, line, false);
}

/* -- files --------------------------------------------------------------------------------------------------------------------- */

static const char *describe_file(json_t *file, char *buf, size_t n)
{
        char size[COP_SIZE_MAX];
        const char *type = cop_member(file, "type", "?");
        bool regular = strcmp(type, "file") == 0;

        snprintf(buf, n, "%s%s%s", strcmp(type, "directory") == 0 ? "folder" : type, regular ? ", " : "",
                 regular ? cop_format_size((uint64_t)json_integer_value(json_object_get(file, "size")), size) : "");
        return buf;
}

static void describe_change(json_t *change, char *buf, size_t n)
{
        json_t *a = json_object_get(change, "a"), *b = json_object_get(change, "b"), *word;
        char one[64], two[64];
        size_t i, used = 0;

        if (!a || !b) {
                describe_file(a ? a : b, buf, n);
                return;
        }
        buf[0] = '\0';
        json_array_foreach (json_object_get(change, "what"), i, word) {
                const char *what = json_string_value(word);
                if (strcmp(what, "mode") == 0)
                        snprintf(one, sizeof(one), "mode %s → %s", cop_member(a, "mode", "?"),
                                 cop_member(b, "mode", "?"));
                else
                        snprintf(one, sizeof(one), "%s", what);
                int put = snprintf(buf + used, n - used, "%s%s", used ? ", " : "", one);
                used = MIN_OF(used + (size_t)MAX_OF(put, 0), n - 1);
        }
        if (strcmp(cop_member(a, "type", ""), "directory") != 0)
                snprintf(buf + used, n - used, ": %s → %s", describe_file(a, one, sizeof(one)),
                         describe_file(b, two, sizeof(two)));
}

static void print_text(struct cop_cli *cli, const char *diff, bool cut)
{
        while (*diff) {
                size_t n = strcspn(diff, "\n");
                _cleanup_free_ char *line = strndup(diff, n);
                fputs("      ", stdout);
                if (line && cli->out_colour && (*line == '+' || *line == '-')) {
                        fputs(*line == '+' ? "\033[" COP_GREEN "m" : "\033[" COP_RED "m", stdout);
                        cop_print_clean(stdout, line, false);
                        fputs("\033[0m", stdout);
                } else if (line) {
                        cop_print_clean(stdout, line, false);
                }
                putchar('\n');
                diff += n + (diff[n] == '\n');
        }
        if (cut)
                puts("      …");
}

static void print_files(struct cop_cli *cli, json_t *files)
{
        long long total = json_integer_value(json_object_get(files, "total"));
        json_t *list = json_object_get(files, "changes"), *change;
        char text[512];
        size_t i;

        if (!files)
                return;
        puts(total > 0 ? "files" : "files: no difference");
        json_array_foreach (list, i, change) {
                const char *diff = cop_member(change, "diff", NULL);
                describe_change(change, text, sizeof(text));
                print_sign(cli, sign_of(change));
                print_word(cop_member(change, "path", "?"));
                fputs("  ", stdout);
                cop_print_colour(stdout, cli->out_colour, COP_DIM, text);
                putchar('\n');
                if (diff)
                        print_text(cli, diff, json_is_true(json_object_get(change, "diff_cut")));
        }
        if (total > (long long)json_array_size(list))
                printf("  … and %lld more\n", total - (long long)json_array_size(list));
        if (json_integer_value(json_object_get(files, "unread")) > 0)
                cop_cli_note(cli, "%lld large files were compared by size and time alone",
                             (long long)json_integer_value(json_object_get(files, "unread")));
        if (json_integer_value(json_object_get(files, "unopened")) > 0)
                cop_cli_note(cli, "%lld files or folders could not be read",
                             (long long)json_integer_value(json_object_get(files, "unopened")));
}

/* -- variables ------------------------------------------------------------------------------------------------------------------- */

/* Its value when it is short, else its shape: "41", "(3, 2)", "". */
static void describe_variable(json_t *v, struct cop_buf *out)
{
        json_t *shape = json_object_get(v, "shape"), *n;
        const char *preview = cop_member(v, "preview", NULL);
        size_t i;

        if (preview)
                cop_buf_adds(out, preview);
        if (preview || !shape)
                return;
        cop_buf_addc(out, '(');
        json_array_foreach (shape, i, n)
                cop_buf_addf(out, "%s%lld", i ? ", " : "", (long long)json_integer_value(n));
        cop_buf_addc(out, ')');
}

static const char *text_of(const struct cop_buf *buf)
{
        return buf->data ? buf->data : "";
}

static void print_variable(struct cop_cli *cli, json_t *change)
{
        _cleanup_buf_ struct cop_buf one = COP_BUF(TEXT_MAX), two = COP_BUF(TEXT_MAX);
        json_t *a = json_object_get(change, "a"), *b = json_object_get(change, "b"), *first = a ? a : b;
        const char *type = cop_member(first, "type", "?"), *other = cop_member(b, "type", type);
        bool same_type = strcmp(type, other) == 0;

        describe_variable(first, &one);
        describe_variable(b, &two);
        print_sign(cli, sign_of(change));
        print_word(cop_member(change, "name", "?"));
        fputs("  ", stdout);
        print_word(type);
        putchar(' ');
        print_word(text_of(&one));
        if (a && b && same_type && strcmp(text_of(&one), text_of(&two)) == 0) {
                fputs(" with other contents", stdout);
        } else if (a && b) {
                fputs(" → ", stdout);
                print_word(same_type ? "" : other);
                fputs(same_type ? "" : " ", stdout);
                print_word(text_of(&two));
        }
        putchar('\n');
}

/* False when there was nothing to read. */
static bool print_variables(struct cop_cli *cli, json_t *variables)
{
        json_t *changes = json_object_get(variables, "changes"), *unsure = json_object_get(variables, "unsure"), *item;
        const char *unavailable = cop_member(variables, "unavailable", NULL);
        size_t i;

        if (!variables)
                return true;
        if (unavailable) {
                cop_cli_note(cli, "variables were not compared: %s", unavailable);
                return false;
        }
        puts(json_array_size(changes) + json_array_size(unsure) > 0 ? "variables" : "variables: no difference");
        json_array_foreach (changes, i, item)
                print_variable(cli, item);
        json_array_foreach (unsure, i, item) {
                print_sign(cli, '?');
                print_word(cop_member(item, "name", "?"));
                fputs("  ", stdout);
                print_word(cop_member(item, "type", "?"));
                fputs(": of the same shape, not compared: ", stdout);
                print_word(cop_member(item, "note", ""));
                putchar('\n');
        }
        if (json_is_true(json_object_get(variables, "truncated")))
                cop_cli_note(cli, "there are more variables than were compared");
        return true;
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        bool all = opt.files == opt.variables;
        _cleanup_free_ char *path =
                cop_cli_path("/api/diff?a=%s&b=%s&files=%s&variables=%s&text=%s&context=%s", argv[0], argv[1],
                             all || opt.files ? "true" : "false", all || opt.variables ? "true" : "false",
                             opt.text ? "true" : "false", opt.context ? opt.context : "");
        _cleanup_json_ json_t *reply = NULL;

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || !cop_cli_call(cli, "GET", path, NULL, &reply))
                return COP_EXIT_ERROR;
        if (opt.json) {
                cop_print_json(reply, cli->out_tty);
                return COP_EXIT_OK;
        }
        print_files(cli, json_object_get(reply, "files"));
        return print_variables(cli, json_object_get(reply, "variables")) || !opt.variables ? COP_EXIT_OK
                                                                                           : COP_EXIT_ERROR;
}

const struct cop_verb cop_verb_diff = {
        .name = "diff",
        .args = "A B",
        .summary = "what differs between two states: files and variables",
        .notes = "A and B are each a sandbox (as it is now), a snapshot, or a node of coppice log. + is only in B, - "
                 "only in "
                 "A, ~ is\n"
                 "other in B, ? could not be compared. Both are only read, a sandbox that sleeps sleeps on; variables "
                 "are "
                 "read in a\n"
                 "copy that nobody sees. Names with _ in front and modules do not count, nor do caches (/run, "
                 "__pycache__, .cache).",
        .examples = "coppice diff clean-data demo\n"
                    "coppice diff b1 b2 --variables\n"
                    "coppice diff nd_4f7k2m9x1q demo --files --text",
        .options = options,
        .args_min = 2,
        .args_max = 2,
        .run = run,
};
