/* Text differences, made by diff(1): the contents of two files go to it as anonymous files, so that it needs no rights to them. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"

#define COP_TEXT_FILE_MAX (256u << 10) /* of either file */
#define COP_TEXT_DIFF_MAX (64u << 10)  /* of what is told of one pair */

/* Adds a unified difference, without the lines that name the files, to out (its maximum at least COP_TEXT_DIFF_MAX).  1; 0 when one of
 * the two is no text (UTF-8 without NUL) or too large; *ret_cut: only the beginning was kept, cut at a line.  -errno when there is
 * no diff(1) or it failed. */
int cop_text_diff(int a_fd, int b_fd, struct cop_buf *out, bool *ret_cut);
