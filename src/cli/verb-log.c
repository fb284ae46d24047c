/* The tree of saved states.  A line of descent stays in its column, so that a session without branches is a plain list:
 *
 *      ○ nd_…  snapshot base      2m  #3 load()   memory 96.1 MiB, files 2.0 KiB, pause 38 ms
 *      ├─○ nd_…  fork             1m  …
 *      │ ○ nd_…  suspend         40s  …
 *      ● nd_…  suspend           10s  …           ◀ head
 *
 * The one that leads to the head goes on straight; without it, the newest.
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

#define ANCESTORS_MAX 100 /* states of other sandboxes that are shown as where this one comes from */
#define CODE_MAX 40
#define PREFIX_MAX 4096

static struct {
        bool json;
} opt;

static const struct cop_option options[] = {
        {"json", 0, COP_OPTION_FLAG, &opt.json, NULL, "{sandbox_id, head, nodes}, the oldest first"},
        {0},
};

struct tree {
        struct cop_cli *cli; /* borrowed */
        json_t *nodes;       /* borrowed array */
        json_t *cells;       /* owned: id to Cell */
        json_t *ahead;       /* owned: ids of the head and what is below it */
        const char *head;
        const char *sandbox_id;
};

static json_t *find_node(json_t *nodes, const char *id)
{
        json_t *node;
        size_t i;

        json_array_foreach (nodes, i, node)
                if (strcmp(cop_member(node, "id", ""), id) == 0)
                        return node;
        return NULL;
}

/* -- one line --------------------------------------------------------------------------------------------------------- */

/* "#3 first line of the code" */
static void describe_cell(const struct tree *t, json_t *node, char *buf, size_t n)
{
        json_t *cell = json_object_get(t->cells, cop_member(node, "cell_id", ""));
        const char *code = cop_member(cell, "code", "");
        long long count = json_integer_value(json_object_get(cell, "execution_count"));
        size_t line = strcspn(code, "\n"), shown = MIN_OF(line, (size_t)CODE_MAX);

        while (shown > 0 && shown < line && ((unsigned char)code[shown] & 0xC0) == 0x80)
                shown--; /* not in the middle of a character */
        buf[0] = '\0';
        if (cell)
                snprintf(buf, n, "after #%lld  %.*s%s", count, (int)shown, code, code[shown] ? "…" : "");
}

static void print_node(const struct tree *t, json_t *node)
{
        const char *id = cop_member(node, "id", ""), *name = cop_member(node, "name", NULL);
        bool head = strcmp(id, t->head) == 0, own = strcmp(cop_member(node, "sandbox_id", ""), t->sandbox_id) == 0;
        bool colour = t->cli->out_colour;
        char age[24], size[COP_SIZE_MAX], cell[CODE_MAX + 64];

        cop_print_colour(stdout, colour && head, COP_GREEN, head ? "● " : "○ ");
        cop_print_colour(stdout, colour, head ? COP_GREEN : COP_YELLOW, id);
        printf("  %s", cop_member(node, "reason", ""));
        if (name) {
                putchar(' ');
                cop_print_colour(stdout, colour, COP_BOLD, name);
        }
        if (!own)
                printf(" of %s", cop_member(node, "sandbox_id", ""));
        printf("  %s ago", cop_age(cop_member(node, "created_at", NULL), age, sizeof(age)));
        if (strcmp(cop_member(node, "kind", "memory"), "memory") == 0)
                printf("  memory %s,",
                       cop_format_size((uint64_t)json_integer_value(json_object_get(node, "memory_bytes")), size));
        else
                printf("  no memory,");
        printf(" files %s, pause %.0f ms",
               cop_format_size((uint64_t)json_integer_value(json_object_get(node, "file_bytes")), size),
               json_number_value(json_object_get(node, "pause_ms")));
        describe_cell(t, node, cell, sizeof(cell));
        if (cell[0]) {
                fputs("  ", stdout);
                cop_print_clean(stdout, cell, false);
        }
        if (head)
                cop_print_colour(stdout, colour, COP_GREEN, "  ◀ head");
        putchar('\n');
}

/* -- the tree ----------------------------------------------------------------------------------------------------------- */

/* The child that goes on in the same column; NULL = none. */
static json_t *straight_child(const struct tree *t, const char *id)
{
        json_t *node, *best = NULL;
        size_t i;

        json_array_foreach (t->nodes, i, node) {
                if (strcmp(cop_member(node, "parent_id", ""), id) != 0)
                        continue;
                best = node; /* the last one is the newest */
                if (json_object_get(t->ahead, cop_member(node, "id", "")))
                        break;
        }
        return best;
}

static void print_line_of_descent(const struct tree *t, json_t *node, char *prefix, size_t length)
{
        while (node) {
                const char *id = cop_member(node, "id", "");
                json_t *next = straight_child(t, id), *child;
                size_t i;

                print_node(t, node);
                json_array_foreach (t->nodes, i, child) {
                        if (child == next || strcmp(cop_member(child, "parent_id", ""), id) != 0)
                                continue;
                        printf("%s├─", prefix);
                        if (length + 8 < PREFIX_MAX) {
                                memcpy(prefix + length, "│ ", sizeof("│ "));
                                print_line_of_descent(t, child, prefix, length + strlen("│ "));
                                prefix[length] = '\0';
                        } else {
                                print_node(t, child);
                        }
                }
                if (next)
                        fputs(prefix, stdout);
                node = next;
        }
}

/* Where a fork comes from: states of its source, up to the first. */
static void fetch_ancestors(struct tree *t)
{
        char want[64];

        snprintf(want, sizeof(want), "%s", t->head);
        for (unsigned n = 0; want[0] && n < ANCESTORS_MAX;) {
                json_t *node = find_node(t->nodes, want);
                if (!node) {
                        _cleanup_free_ char *path = cop_cli_path("/api/snapshots/%s", want);
                        struct cop_error err;
                        if (!path || cop_client_call(t->cli->client, "GET", path, NULL, &node, &err) < 0)
                                return;
                        json_array_insert_new(t->nodes, 0, node); /* parents before children */
                        n++;
                }
                if (json_object_get(t->ahead, want))
                        return; /* a daemon that tells of a circle is not followed */
                json_object_set_new(t->ahead, want, json_true());
                snprintf(want, sizeof(want), "%s", cop_member(node, "parent_id", ""));
        }
}

static void fetch_cells(struct tree *t)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/cells?limit=1000", t->sandbox_id);
        _cleanup_json_ json_t *reply = NULL;
        struct cop_error err;
        json_t *cell;
        size_t i;

        if (!path || cop_client_call(t->cli->client, "GET", path, NULL, &reply, &err) < 0)
                return; /* only words that are missing then */
        json_array_foreach (json_object_get(reply, "cells"), i, cell)
                json_object_set(t->cells, cop_member(cell, "id", ""), cell);
}

static void show(struct cop_cli *cli, json_t *reply)
{
        struct tree t = {.cli = cli,
                         .nodes = json_object_get(reply, "nodes"),
                         .cells = json_object(),
                         .ahead = json_object(),
                         .head = cop_member(reply, "head", ""),
                         .sandbox_id = cop_member(reply, "sandbox_id", "")};
        char prefix[PREFIX_MAX] = "";
        json_t *node;
        size_t i;

        fetch_ancestors(&t);
        fetch_cells(&t);
        json_array_foreach (t.nodes, i, node)
                if (!find_node(t.nodes, cop_member(node, "parent_id", "")))
                        print_line_of_descent(&t, node, prefix, 0);
        if (json_array_size(t.nodes) == 0)
                cop_cli_note(cli, "no state of it was saved yet: suspend, snapshot and fork save one");
        json_decref(t.cells);
        json_decref(t.ahead);
}

static int run(struct cop_cli *cli, size_t argc, char **argv)
{
        _cleanup_free_ char *path = cop_cli_path("/api/sandboxes/%s/nodes", argv[0]);
        _cleanup_json_ json_t *reply = NULL;

        if (!cop_cli_connect(cli))
                return COP_EXIT_NO_DAEMON;
        if (!path || !cop_cli_call(cli, "GET", path, NULL, &reply))
                return COP_EXIT_ERROR;
        if (opt.json)
                cop_print_json(reply, cli->out_tty);
        else
                show(cli, reply);
        return COP_EXIT_OK;
}

const struct cop_verb cop_verb_log = {
        .name = "log",
        .args = "SANDBOX",
        .summary = "show the tree of saved states of a sandbox",
        .notes = "Each line: id, why it was saved and its name, age, what it cost (memory and files written, how long "
                 "the sandbox\n"
                 "stood still), and the last cell before it. The head is the state that the sandbox stands on.",
        .examples = "coppice log demo\n"
                    "coppice log demo --json | jq -r '.nodes[].id'\n"
                    "coppice goto demo nd_4f7k2m9x1q",
        .options = options,
        .args_min = 1,
        .args_max = 1,
        .run = run,
};
