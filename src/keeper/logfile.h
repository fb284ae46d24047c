/* The log of one command: frames as in sandbox/wire.h, at most `max` bytes of output and its frame headers, then one truncation
 * mark that counts the output that was dropped. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

struct cop_logfile {
        int fd;           /* owned; -EBADF once closed */
        uint64_t size;    /* of the file */
        uint64_t room;    /* bytes that the file may still grow by: output with its frame headers */
        uint64_t dropped; /* bytes of output not kept */
        uint64_t mark_at; /* offset of the mark's number; 0 = no mark yet */
        bool mark_stale;  /* dropped has grown since the mark was written */
};

#define COP_LOGFILE_NULL ((struct cop_logfile){.fd = -EBADF})

/* Creates `name` in dir_fd (it must not exist) and writes the header. */
int cop_logfile_create(int dir_fd, const char *name, uint64_t max, struct cop_logfile *ret, struct cop_error *err);
/* Goes on with a log: everything behind `size` is cut off, the counters are as they were. */
int cop_logfile_reopen(int dir_fd, const char *name, uint64_t size, uint64_t room, uint64_t dropped, uint64_t mark_at,
                       struct cop_logfile *ret, struct cop_error *err);
/* Adds output of stream 1 or 2.  Never fails: what cannot be written (limit, full disk) is counted as dropped. */
void cop_logfile_append(struct cop_logfile *l, unsigned char stream, const void *data, size_t n, usec_t realtime);
/* Counts output that was thrown away unread. */
void cop_logfile_drop(struct cop_logfile *l, uint64_t n);
/* True when nothing more will be kept, so that output may be dropped unread. */
bool cop_logfile_full(const struct cop_logfile *l);
/* Brings the mark up to date. */
void cop_logfile_sync_mark(struct cop_logfile *l, usec_t realtime);
void cop_logfile_close(struct cop_logfile *l);
