/* Ctrl-C as something a request can wait for: the first one is told through a pipe, so that the verb can pass it on to the
 * cell or command; the second ends the program as usual. */
#pragma once

/* Starts catching SIGINT and SIGTERM; returns the descriptor that becomes readable, -errno on failure. */
int cop_interrupt_catch(void);
/* Takes what was caught since: the signal, or 0.  The next one then ends the program. */
int cop_interrupt_take(void);
