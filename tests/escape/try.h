/* Attempts to get out of a sandbox.  An attempt returns HELD when the sandbox held, ESCAPED when it did not, ABSENT when this
 * machine cannot even try (and says why). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum outcome { HELD = 0, ESCAPED = 1, ABSENT = 77 };

struct attempt {
        const char *name;
        enum outcome (*run)(const char *arg);
};

extern const struct attempt kernel_attempts[];
extern const struct attempt file_attempts[];
extern const struct attempt process_attempts[];
extern const struct attempt network_attempts[];

/* Prints what happened; ESCAPED when the call worked, else HELD. */
enum outcome judge(const char *what, long result);
/* The worse of two. */
enum outcome worst(enum outcome a, enum outcome b);
/* Opens for reading or writing; HELD when it fails or is empty. */
enum outcome must_not_read(const char *path);
enum outcome must_not_write(const char *path, const char *text);
bool am_root(void);
