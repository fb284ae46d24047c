#include "show.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "print.h"

void cop_show_init(struct cop_show *s, struct cop_cli *cli)
{
        *s = (struct cop_show){.cli = cli, .at_line_start = true};
}

void cop_show_done(struct cop_show *s)
{
        json_decref(s->end);
        s->end = NULL;
}

/* -- outputs -------------------------------------------------------------------------------------------------------- */

static void write_bytes(struct cop_show *s, FILE *out, const char *data, size_t n)
{
        if (n == 0 || (s->out_closed && out == stdout))
                return;
        if (fwrite(data, 1, n, out) != n || fflush(out) != 0) {
                if (out == stdout && errno == EPIPE) /* `| head`: go on, so that the status is still told */
                        s->out_closed = true;
                return;
        }
        s->at_line_start = data[n - 1] == '\n';
}

static void write_json_string(struct cop_show *s, FILE *out, json_t *text)
{
        if (json_is_string(text))
                write_bytes(s, out, json_string_value(text), json_string_length(text));
}

/* Bytes of a command that are no text.  Stops at the first character that is no base64. */
static void write_base64(struct cop_show *s, FILE *out, const char *text)
{
        size_t n = strlen(text), len;
        _cleanup_free_ char *bytes = malloc(n / 4 * 3 + 2);

        if (!bytes)
                return;
        cop_base64_decode(text, n, bytes, &len);
        write_bytes(s, out, bytes, len);
}

static void write_stream(struct cop_show *s, FILE *out, json_t *event)
{
        const char *encoded = json_string_value(json_object_get(event, "base64"));

        if (encoded)
                write_base64(s, out, encoded);
        else
                write_json_string(s, out, json_object_get(event, "text"));
}

/* What is in a bundle beside its text: "image/png 12.3 KiB". */
static void note_pictures(struct cop_show *s, json_t *data)
{
        const char *mime;
        json_t *value;

        json_object_foreach (data, mime, value) {
                char size[COP_SIZE_MAX];
                if (strncmp(mime, "image/", 6) == 0 && s->cli->err_tty)
                        cop_cli_note(s->cli, "%s, %s (coppice run --json has the data)", mime,
                                     cop_format_size(json_string_length(value) / 4 * 3, size));
        }
}

static void write_bundle(struct cop_show *s, json_t *event)
{
        json_t *data = json_object_get(event, "data"), *plain = json_object_get(data, "text/plain");

        if (!s->at_line_start)
                write_bytes(s, stdout, "\n", 1);
        if (json_is_string(plain)) {
                write_json_string(s, stdout, plain);
                if (!s->at_line_start)
                        write_bytes(s, stdout, "\n", 1);
        }
        note_pictures(s, data);
}

static void write_traceback(struct cop_show *s, json_t *error)
{
        json_t *lines = json_object_get(error, "traceback"), *line;
        size_t i;

        if (!s->at_line_start)
                write_bytes(s, stderr, "\n", 1);
        json_array_foreach (lines, i, line) {
                cop_print_clean(stderr, json_string_value(line) ? json_string_value(line) : "", s->cli->err_colour);
                fputc('\n', stderr);
        }
        if (json_array_size(lines) == 0)
                fprintf(stderr, "%s: %s\n", cop_member(error, "name", "error"), cop_member(error, "value", ""));
        fflush(stderr);
        s->at_line_start = true;
}

static void note_truncated(struct cop_show *s, json_t *event)
{
        json_int_t dropped = json_integer_value(json_object_get(event, "dropped"));
        char size[COP_SIZE_MAX];

        if (dropped > 0)
                cop_cli_note(s->cli, "%s: %s in the middle are not kept", cop_member(event, "stream", "output"),
                             cop_format_size((uint64_t)dropped, size));
}

void cop_show_event(struct cop_show *s, json_t *event)
{
        const char *type = cop_member(event, "type", ""), *id;
        json_t *end;

        if (strcmp(type, "stdout") == 0) {
                write_stream(s, stdout, event);
        } else if (strcmp(type, "stderr") == 0) {
                write_stream(s, stderr, event);
        } else if (strcmp(type, "display") == 0 || strcmp(type, "result") == 0 || strcmp(type, "update") == 0) {
                write_bundle(s, event);
        } else if (strcmp(type, "error") == 0) {
                write_traceback(s, event);
        } else if (strcmp(type, "truncated") == 0) {
                note_truncated(s, event);
        } else if (strcmp(type, "late") == 0) {
                cop_cli_note(s->cli, "late output of an earlier cell: %s", cop_member(event, "text", "(data)"));
        } else if (strcmp(type, "start") == 0) {
                id = cop_member(event, "id", NULL);
                if (!id)
                        id = cop_member(event, "cell_id", cop_member(event, "command_id", ""));
                snprintf(s->id, sizeof(s->id), "%s", id);
                s->pid = json_integer_value(json_object_get(event, "pid"));
        } else if (strcmp(type, "end") == 0) {
                end = json_object_get(event, "cell");
                if (!end)
                        end = json_object_get(event, "command");
                json_decref(s->end);
                s->end = json_incref(end);
        }
}

/* -- status lines --------------------------------------------------------------------------------------------------- */

static const struct {
        const char *status;
        int exit;
        const char *colour;
} cell_ends[] = {
        {"ok", COP_EXIT_OK, COP_GREEN},           {"error", COP_EXIT_ERROR, COP_RED},
        {"timeout", COP_EXIT_TIMEOUT, COP_RED},   {"died", COP_EXIT_DIED, COP_RED},
        {"oom", COP_EXIT_DIED, COP_RED},          {"interrupted", COP_EXIT_INTERRUPTED, COP_YELLOW},
        {"cancelled", COP_EXIT_LOST, COP_YELLOW}, {"lost", COP_EXIT_LOST, COP_RED},
};

/* What the status alone does not say, "" when there is nothing. */
static void describe_end(json_t *cell, char *buf, size_t n)
{
        json_t *timeout = json_object_get(cell, "timeout"), *oom = json_object_get(cell, "oom"),
               *died = json_object_get(cell, "died");
        char limit[COP_SIZE_MAX], peak[COP_SIZE_MAX];

        buf[0] = '\0';
        if (json_is_object(timeout))
                snprintf(buf, n, ": limit %g s, ended by %s",
                         json_number_value(json_object_get(timeout, "limit_seconds")),
                         cop_member(timeout, "stage", "interrupt"));
        else if (json_is_object(oom))
                snprintf(buf, n, ": memory limit %s, peak %s",
                         cop_format_size((uint64_t)json_integer_value(json_object_get(oom, "limit_bytes")), limit),
                         cop_format_size((uint64_t)json_integer_value(json_object_get(oom, "peak_bytes")), peak));
        else if (json_is_object(died))
                snprintf(buf, n, ": %s", cop_member(died, "message", "the kernel ended"));
}

static void warn_state_lost(struct cop_show *s, json_t *cell)
{
        json_t *replayed = json_object_get(cell, "state_replayed");
        json_t *lost = json_object_get(cell, "state_lost"), *warnings = json_object_get(cell, "warnings"), *warning;
        size_t i;

        if (json_is_object(lost))
                cop_cli_note(s->cli, "state lost: %s (reason %s, now generation %lld)",
                             cop_member(lost, "message", "the variables of earlier cells are gone"),
                             cop_member(lost, "reason", "unknown"),
                             (long long)json_integer_value(json_object_get(cell, "generation")));
        if (json_is_object(replayed))
                cop_cli_note(s->cli, "state replayed: %s (reason %s)", cop_member(replayed, "message", ""),
                             cop_member(replayed, "reason", "unknown"));
        json_array_foreach (warnings, i, warning)
                cop_cli_note(s->cli, "%s",
                             json_is_string(warning) ? json_string_value(warning)
                                                     : cop_member(warning, "message", "warning"));
}

int cop_show_cell_status(struct cop_show *s, json_t *cell)
{
        const char *status = cop_member(cell, "status", "lost"), *colour = COP_YELLOW;
        json_t *count = json_object_get(cell, "execution_count");
        char detail[600], text[800], number[32] = "";
        int exit = COP_EXIT_LOST;

        for (size_t i = 0; i < ELEMENTSOF(cell_ends); i++) {
                if (strcmp(cell_ends[i].status, status) == 0) {
                        exit = cell_ends[i].exit;
                        colour = cell_ends[i].colour;
                }
        }
        fflush(stdout);
        if (s->quiet)
                return exit;
        if (!s->at_line_start && (s->cli->err_tty || s->cli->out_tty))
                fputc('\n', stderr);
        if (json_integer_value(count) > 0)
                snprintf(number, sizeof(number), " #%lld", (long long)json_integer_value(count));
        describe_end(cell, detail, sizeof(detail));
        warn_state_lost(s, cell);
        snprintf(text, sizeof(text), "[%s%s%s]", status, number, detail);
        cop_print_colour(stderr, s->cli->err_colour, colour, text);
        fputc('\n', stderr);
        return exit;
}

int cop_show_command_status(struct cop_show *s, json_t *command)
{
        const char *status = cop_member(command, "status", "lost");
        json_t *code = json_object_get(command, "exit_code"), *signo = json_object_get(command, "signal");

        fflush(stdout);
        if (strcmp(status, "timeout") == 0) {
                cop_cli_note(s->cli, "the command was ended at its limit of %g s (--timeout)",
                             json_number_value(json_object_get(command, "timeout_seconds")));
                return COP_EXIT_TIMEOUT;
        }
        if (json_is_integer(code))
                return (int)(json_integer_value(code) & 0xFF);
        if (json_is_integer(signo)) {
                cop_cli_note(s->cli, "the command was ended by signal %d", (int)json_integer_value(signo));
                return 128 + (int)(json_integer_value(signo) & 0x7F);
        }
        cop_cli_note(s->cli, "the command's end is unknown (%s)", status);
        return COP_EXIT_FAILED;
}
