/* Cells and commands as a terminal shows them: outputs as they come, then one status line. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "cli.h"

struct cop_show {
        struct cop_cli *cli; /* borrowed */
        bool at_line_start;  /* of what was last written to stdout or stderr */
        bool quiet;          /* no status line */
        char id[64];         /* of the cell or command, from "start" */
        long long pid;       /* of the command */
        json_t *end;         /* owned: the Cell or Command without outputs */
        bool out_closed;     /* nobody reads stdout any more */
};

void cop_show_init(struct cop_show *s, struct cop_cli *cli);
void cop_show_done(struct cop_show *s);
/* One event of a stream: writes what belongs on stdout and stderr, remembers id and end. */
void cop_show_event(struct cop_show *s, json_t *event);
/* "[ok #3]" etc. on stderr, with what the user should know (state lost, truncated).  Returns the exit status for it. */
int cop_show_cell_status(struct cop_show *s, json_t *cell);
/* The exit status for a Command; says on stderr when it ended otherwise than by its own exit. */
int cop_show_command_status(struct cop_show *s, json_t *command);
