/* What people read: tables, colours, times, sizes. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define COP_RED "31"
#define COP_GREEN "32"
#define COP_YELLOW "33"
#define COP_BOLD "1"
#define COP_DIM "2"

/* text within the colour's escapes when `on`. */
void cop_print_colour(FILE *out, bool on, const char *colour, const char *text);

/* A JSON value and a newline: indented on a terminal, else on one line. */
void cop_print_json(json_t *value, bool tty);

#define COP_COLUMNS_MAX 12
/* Rows of text in columns as wide as needed, headings first.  Cells are copied; "-" stands for NULL and "". */
struct cop_table;
struct cop_table *cop_table_new(size_t columns, const char *const *headings);
struct cop_table *cop_table_free(struct cop_table *t);
void cop_table_add(struct cop_table *t, const char *const *cells);
void cop_table_print(const struct cop_table *t);

/* "12s", "5m", "3h", "2d" since the RFC 3339 time, into buf; "-" when it cannot be read. */
const char *cop_age(const char *rfc3339, char *buf, size_t n);
/* A string member, or fallback. */
const char *cop_member(json_t *object, const char *key, const char *fallback);
/* What a Command runs: its shell string, or its arguments with spaces between.  Malloc'd; NULL when out of memory. */
char *cop_command_text(json_t *command);
/* Prints foreign text without control characters other than newline and tab; with ANSI colours kept when asked. */
void cop_print_clean(FILE *out, const char *text, bool keep_colours);
