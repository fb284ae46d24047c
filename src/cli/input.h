/* What the user gives as code or standard input. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

/* All of the file, or of standard input for "-", up to max bytes.  Says so on stderr when standard input keeps it waiting. */
int cop_input_read(const char *path, struct cop_buf *ret, struct cop_error *err);
/* True when standard input is a pipe, socket or file: something was meant to be read. */
bool cop_input_piped(void);
/* Asks on the terminal for one line, without its newline; hidden for a password.  -ENODATA at the end of input. */
int cop_input_ask(const char *prompt, bool hidden, struct cop_buf *ret, struct cop_error *err);
