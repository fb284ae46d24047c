#include "help.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli.h"

#define WORD_MAX 64

void cop_help_all(FILE *out)
{
        fputs("coppice: sandboxes that keep state, for running code\n\n"
              "usage: coppice VERB [OPTION…] [ARGUMENT…]\n\n",
              out);
        for (const struct cop_verb *const *v = cop_verbs; *v; v++)
                fprintf(out, "  %-18s %s\n", (*v)->name, (*v)->summary);
        fputs("\n"
              "coppice help VERB shows options and examples. A SANDBOX is an id (sb_…) or a name.\n\n"
              "environment:\n"
              "  COPPICE_HOME     where the daemon keeps its state (/var/lib/coppice, or ~/.local/share/coppice)\n"
              "  COPPICE_URL      a daemon reached over TCP, http://HOST:PORT, instead of this host's own\n"
              "  COPPICE_TOKEN    the token for it\n"
              "  NO_COLOR         no colours\n\n"
              "exit status: 0 ok, 1 failed, 2 wrong usage, 3 no daemon; run and exec have more, see their help\n",
              out);
}

static void print_indented(const char *text)
{
        while (*text) {
                size_t n = strcspn(text, "\n");
                printf("  %.*s\n", (int)n, text);
                text += n + (text[n] == '\n');
        }
}

void cop_help_verb(const struct cop_verb *verb)
{
        printf("coppice %s: %s\n\nusage: coppice %s%s%s%s\n", verb->name, verb->summary, verb->name,
               verb->options ? " [OPTION…]" : "", *verb->args ? " " : "", verb->args);
        if (verb->notes)
                printf("\n%s\n", verb->notes);
        if (verb->options)
                puts("\noptions:");
        for (const struct cop_option *o = verb->options; o && o->kind != COP_OPTION_END; o++) {
                char left[WORD_MAX], letter[8] = "    ";
                if (o->letter)
                        snprintf(letter, sizeof(letter), "-%c, ", o->letter);
                snprintf(left, sizeof(left), "%s--%s%s%s", letter, o->name, o->value ? " " : "",
                         o->value ? o->value : "");
                printf("  %-30s %s%s\n", left, o->help,
                       o->kind == COP_OPTION_LIST && !strstr(o->help, "repeated") ? "; may be repeated" : "");
        }
        if (verb->examples) {
                puts("\nexamples:");
                print_indented(verb->examples);
        }
}

/* True for the verb itself and for every verb of the group that the words name. */
static bool matches(const char *name, const char *words)
{
        size_t n = strlen(words);

        return strncmp(name, words, n) == 0 && (name[n] == '\0' || name[n] == ' ');
}

static void join(int argc, char **argv, char words[static WORD_MAX])
{
        snprintf(words, WORD_MAX, "%s%s%s", argv[0], argc > 1 ? " " : "", argc > 1 ? argv[1] : "");
}

/* Edits that turn a into b: insertions, deletions, changes, swaps of neighbours. */
static size_t distance(const char *a, const char *b)
{
        size_t cost[WORD_MAX][WORD_MAX], n = strlen(a), m = strlen(b);

        if (n >= WORD_MAX || m >= WORD_MAX)
                return WORD_MAX;
        for (size_t i = 0; i <= n; i++) {
                for (size_t j = 0; j <= m; j++) {
                        size_t best = i == 0 ? j : j == 0 ? i : cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
                        if (i > 0 && cost[i - 1][j] + 1 < best)
                                best = cost[i - 1][j] + 1;
                        if (j > 0 && cost[i][j - 1] + 1 < best)
                                best = cost[i][j - 1] + 1;
                        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                            cost[i - 2][j - 2] + 1 < best)
                                best = cost[i - 2][j - 2] + 1;
                        cost[i][j] = best;
                }
        }
        return cost[n][m];
}

bool cop_help(int argc, char **argv)
{
        char words[WORD_MAX];
        unsigned found = 0;
        const struct cop_verb *only = NULL;

        if (argc == 0) {
                cop_help_all(stdout);
                return true;
        }
        join(argc, argv, words);
        for (const struct cop_verb *const *v = cop_verbs; *v; v++) {
                if (matches((*v)->name, words)) {
                        found++;
                        only = *v;
                }
        }
        if (found == 0) {
                cop_help_unknown(argc, argv);
                return false;
        }
        if (found == 1) {
                cop_help_verb(only);
                return true;
        }
        for (const struct cop_verb *const *v = cop_verbs; *v; v++)
                if (matches((*v)->name, words))
                        printf("  coppice %-18s %s\n", (*v)->name, (*v)->summary);
        return true;
}

static void show_group(const char *word)
{
        fprintf(stderr, "coppice: coppice %s needs one of:\n", word);
        for (const struct cop_verb *const *v = cop_verbs; *v; v++)
                if (matches((*v)->name, word))
                        fprintf(stderr, "  coppice %-18s %s\n", (*v)->name, (*v)->summary);
}

/* The one verb that is nearest by far enough, or NULL. */
static const char *nearest_verb(const char *words, const char *word)
{
        const char *nearest = NULL;
        size_t best = WORD_MAX;

        for (const struct cop_verb *const *v = cop_verbs; *v; v++) {
                size_t d = distance(strchr((*v)->name, ' ') ? words : word, (*v)->name), n = strlen((*v)->name);
                if (d >= best)
                        continue;
                best = d;
                nearest = d <= (n < 6 ? 1 : n / 3) ? (*v)->name : NULL;
        }
        return nearest;
}

void cop_help_unknown(int argc, char **argv)
{
        /* Words of other tools for the same thing. */
        static const struct {
                const char *word, *verb;
        } others[] = {{"create", "new"},
                      {"start", "new"},
                      {"list", "ls"},
                      {"ps", "ls"},
                      {"delete", "rm"},
                      {"remove", "rm"},
                      {"kill", "rm"},
                      {"stop", "rm"},
                      {"eval", "run"},
                      {"python", "run"},
                      {"shell", "exec"},
                      {"copy", "cp"},
                      {"upload", "cp"},
                      {"download", "cp"},
                      {"log", "logs"},
                      {"inspect", "info"},
                      {"status", "info"},
                      {"daemon", "serve"},
                      {"build", "image build"},
                      {"images", "image ls"},
                      {"contexts", "context ls"},
                      {"tokens", "token ls"}};
        const char *nearest = NULL;
        char words[WORD_MAX];

        for (const struct cop_verb *const *v = cop_verbs; *v; v++) {
                const char *space = strchr((*v)->name, ' ');
                if (space && strlen(argv[0]) == (size_t)(space - (*v)->name) && matches((*v)->name, argv[0]) &&
                    argc < 2) {
                        show_group(argv[0]);
                        return;
                }
        }
        join(argc, argv, words);
        for (size_t i = 0; i < ELEMENTSOF(others); i++)
                if (strcmp(others[i].word, argv[0]) == 0)
                        nearest = others[i].verb;
        if (!nearest)
                nearest = nearest_verb(words, argv[0]);
        fprintf(stderr, "coppice: there is no verb \"%.40s\"", argv[0]);
        if (nearest)
                fprintf(stderr, "; did you mean coppice %s?\n", nearest);
        else
                fputs("\nTry: coppice help\n", stderr);
}
