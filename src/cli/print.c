#include "print.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"

struct cop_table {
        size_t columns;
        size_t widths[COP_COLUMNS_MAX];
        char **cells; /* owned, row after row */
        size_t count, allocated;
        bool failed;
};

void cop_print_colour(FILE *out, bool on, const char *colour, const char *text)
{
        if (on)
                fprintf(out, "\033[%sm%s\033[0m", colour, text);
        else
                fputs(text, out);
}

void cop_print_json(json_t *value, bool tty)
{
        json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15) | (tty ? JSON_INDENT(2) : JSON_COMPACT));
        putchar('\n');
}

/* Characters, not bytes: names are ASCII, but messages need not be. */
static size_t width_of(const char *s)
{
        size_t n = 0;

        for (; *s; s++)
                n += ((unsigned char)*s & 0xC0) != 0x80;
        return n;
}

struct cop_table *cop_table_new(size_t columns, const char *const *headings)
{
        struct cop_table *t = calloc(1, sizeof(*t));

        if (t) {
                t->columns = MIN_OF(columns, (size_t)COP_COLUMNS_MAX);
                cop_table_add(t, headings);
        }
        return t;
}

struct cop_table *cop_table_free(struct cop_table *t)
{
        for (size_t i = 0; t && i < t->count; i++)
                free(t->cells[i]);
        if (t)
                free(t->cells);
        free(t);
        return NULL;
}

void cop_table_add(struct cop_table *t, const char *const *cells)
{
        if (!t)
                return;
        if (t->count + t->columns > t->allocated) {
                size_t want = t->allocated * 2 + 16 * t->columns;
                char **grown = reallocarray(t->cells, want, sizeof(*grown));
                if (!grown) {
                        t->failed = true;
                        return;
                }
                t->cells = grown;
                t->allocated = want;
        }
        for (size_t i = 0; i < t->columns; i++) {
                char *cell = strdup(cells[i] && *cells[i] ? cells[i] : "-");
                t->cells[t->count++] = cell;
                if (cell)
                        t->widths[i] = MAX_OF(t->widths[i], width_of(cell));
        }
}

void cop_table_print(const struct cop_table *t)
{
        if (!t || t->failed) {
                fputs("coppice: out of memory\n", stderr);
                return;
        }
        for (size_t i = 0; i < t->count; i++) {
                const char *cell = t->cells[i] ? t->cells[i] : "";
                size_t column = i % t->columns;
                fputs(cell, stdout);
                if (column + 1 == t->columns)
                        putchar('\n');
                else
                        printf("%*s", (int)(t->widths[column] - width_of(cell) + 2), "");
        }
}

const char *cop_age(const char *rfc3339, char *buf, size_t n)
{
        struct tm tm = {0};

        if (!rfc3339 || !strptime(rfc3339, "%Y-%m-%dT%H:%M:%S", &tm))
                return "-";
        long long seconds = (long long)time(NULL) - (long long)timegm(&tm);
        if (seconds < 0)
                seconds = 0;
        if (seconds < 120)
                snprintf(buf, n, "%llds", seconds);
        else if (seconds < 7200)
                snprintf(buf, n, "%lldm", seconds / 60);
        else if (seconds < 172800)
                snprintf(buf, n, "%lldh", seconds / 3600);
        else
                snprintf(buf, n, "%lldd", seconds / 86400);
        return buf;
}

const char *cop_member(json_t *object, const char *key, const char *fallback)
{
        const char *s = json_string_value(json_object_get(object, key));

        return s ? s : fallback;
}

char *cop_command_text(json_t *command)
{
        json_t *argv = json_object_get(command, "argv"), *arg;
        _cleanup_buf_ struct cop_buf text = COP_BUF(1 << 20);
        size_t i;

        if (!json_is_array(argv))
                argv = json_object_get(command, "command");
        if (json_is_string(argv))
                return strdup(json_string_value(argv));
        json_array_foreach (argv, i, arg)
                if (cop_buf_addf(&text, "%s%s", i ? " " : "", json_string_value(arg) ? json_string_value(arg) : "?") <
                    0)
                        return NULL;
        return cop_buf_take(&text);
}

/* The bytes of an SGR sequence ("\033[1;31m") at s, 0 when there is none. */
static size_t colour_sequence(const char *s)
{
        size_t n = 2;

        if (s[0] != '\033' || s[1] != '[')
                return 0;
        while ((s[n] >= '0' && s[n] <= '9') || s[n] == ';')
                n++;
        return s[n] == 'm' ? n + 1 : 0;
}

void cop_print_clean(FILE *out, const char *text, bool keep_colours)
{
        for (const char *s = text; *s; s++) {
                size_t n = colour_sequence(s);
                if (n) {
                        if (keep_colours)
                                fwrite(s, 1, n, out);
                        s += n - 1;
                } else if ((unsigned char)*s >= 0x20 || *s == '\n' || *s == '\t') {
                        fputc(*s, out);
                }
        }
}
