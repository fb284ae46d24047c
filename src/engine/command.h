/* Commands: shared by command.c (life), command-log.c (the keeper's log file, read) and command-view.c (JSON). */
#pragma once

#include "engine/internal.h"
#include "engine/record.h"

#define COP_COMMAND_LOG_MAX (64ULL << 20) /* bytes of a command's log: output with 16 bytes for each piece */
#define COP_COMMAND_OUTPUT_MAX (1u << 20) /* bytes of a stream in a result, when not asked otherwise */
#define COP_COMMAND_STDIN_MAX (64u << 20)

/* What is needed until it has started. */
struct cop_command_start {
        struct cop_engine *engine;   /* borrowed */
        struct cop_op *op;           /* NULL once cancelled; moves to the command when it is attached */
        struct cop_command_row *row; /* owned until it moves to the command */
        json_t *env;                 /* owned */
        char **argv;                 /* owned; of a shell command: shell, "-c", command */
        int stdin_fd;                /* owned; a sealed memfd, -EBADF = /dev/null */
        unsigned shell;              /* index into the shells to try; only for a shell command */
        bool stream;
};

struct cop_command {
        struct cop_sandbox *sandbox; /* borrowed */
        struct cop_command *next;
        struct cop_command_row *row;     /* owned: what the store holds, kept in step */
        struct cop_command_start *start; /* owned; NULL once it runs */
        struct cop_keeper_call *call;    /* EXEC, while start */
        struct cop_op *op;               /* who waits for the end */
        bool exited, eof;
        uint64_t oom_kills_before;
};

/* -- command.c -------------------------------------------------------------------------------------------------------- */

struct cop_command *cop_command_find_live(struct cop_sandbox *sb, const char *id);

/* -- command-node.c ------------------------------------------------------------------------------------------------------ */

/* What a node says of the commands that run: an array, for cop_commands_restore. */
json_t *cop_commands_spec(const struct cop_sandbox *sb);
/* Rows, within the caller's transaction, for those that the sandbox does not know: it is about to have their processes.  env: with the
 * environment they were given. */
int cop_commands_restore(struct cop_sandbox *sb, json_t *list, bool env, struct cop_error *err);

/* -- service.c ----------------------------------------------------------------------------------------------------------- */

/* The sandbox runs again without the memory that this command was in: if it was started with `restart`, it is started anew. */
void cop_service_start_again(struct cop_sandbox *sb, const struct cop_command_row *lost);

/* -- command-log.c ------------------------------------------------------------------------------------------------------ */

/* What a result keeps of one stream. */
struct cop_command_stream {
        uint64_t bytes;    /* in the log */
        char *head, *tail; /* owned */
        size_t head_len, tail_len, head_max, tail_max, tail_allocated;
};

struct cop_command_output {
        struct cop_command_stream streams[2]; /* stdout, stderr */
        uint64_t dropped;                     /* bytes that the log does not have */
};

/* The folder of logs of a sandbox, live or ended; negative when it is gone. */
int cop_command_logs_open(struct cop_engine *e, const char *sandbox_id);
/* Reads the log up to `size` bytes of the file (UINT64_MAX = all).  A log that is gone reads as empty. */
int cop_command_output_read(int logs_fd, const char *id, uint64_t size, size_t output_max,
                            struct cop_command_output *ret, struct cop_error *err);
void cop_command_output_done(struct cop_command_output *o);
/* The text of stream i (0 stdout) and, when something is missing, an entry of *truncated (made when NULL).  total: bytes
 * that the command wrote. */
json_t *cop_command_output_text(const struct cop_command_output *o, unsigned i, uint64_t total, json_t **truncated);

/* -- command-view.c ----------------------------------------------------------------------------------------------------- */

/* The Command of the API; with output, stdout and stderr too. */
json_t *cop_command_view(const struct cop_command_row *row, const struct cop_command_output *output);
/* Of an ended row: its summary, without stdout and stderr when not outputs. */
json_t *cop_command_row_view(const struct cop_command_row *row, bool outputs);
/* From the row's spec. */
size_t cop_command_output_max(const struct cop_command_row *row);
bool cop_command_kill_on_disconnect(const struct cop_command_row *row);
