/* Checksums of members: over name, type, attributes and contents, in a form that does not depend on how the archive cuts them. */
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <stdint.h>

#include "base/err.h"

struct cop_sums;

int cop_sums_new(struct cop_sums **ret, struct cop_error *err);
struct cop_sums *cop_sums_free(struct cop_sums *s); /* takes NULL */
/* A member begins, ends.  Between them come its data, with growing offsets; what is left out is a hole. */
void cop_sums_begin(struct cop_sums *s, struct archive_entry *entry);
void cop_sums_data(struct cop_sums *s, uint64_t offset, const void *data, size_t n);
int cop_sums_end(struct cop_sums *s, struct cop_error *err);
/* The list so far: its descriptor (borrowed, to be read from the beginning) and its size. */
int cop_sums_list(const struct cop_sums *s, uint64_t *ret_size);
/* Compares n more bytes of a list with this one; pack_damaged names the first member that differs. */
int cop_sums_compare(struct cop_sums *s, const void *data, size_t n, struct cop_error *err);
/* The compared one was as long. */
int cop_sums_compared(const struct cop_sums *s, struct cop_error *err);

static inline void cop_sums_freep(struct cop_sums **s)
{
        *s = cop_sums_free(*s);
}
