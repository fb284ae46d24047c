/* Records: the ordered events of a cell (or sandbox) as NDJSON lines in an append-only file, readable again from the
 * start, followed live.
 *
 * The file is the queue: a writer never waits for a reader, and a slow reader costs a descriptor and an offset.  A record has
 * a cap; beyond it output lines are counted, not written, one "truncated" line says so, and the closing line always fits.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "engine/engine.h"

struct cop_record_hub;
struct cop_record;

#define COP_RECORD_CELL_MAX (64u << 20) /* bytes of one cell's record */
#define COP_RECORD_LATE_MAX (1u << 20)  /* bytes that late outputs may add after the end */
#define COP_RECORD_LOG_MAX (16u << 20)  /* bytes of a sandbox's log before it is rotated once */
#define COP_RECORD_LINE_MAX (64u << 20)

int cop_record_hub_new(struct cop_engine *e, struct cop_record_hub **ret, struct cop_error *err);
struct cop_record_hub *cop_record_hub_free(struct cop_record_hub *hub);

/* -- writing ---------------------------------------------------------------------------------------------------------- */

/* Opens (or, after a daemon restart, continues) the record `key` in the file logs_fd/key.ndjson.  max: cap in bytes. */
int cop_record_begin(struct cop_engine *e, int logs_fd, const char *key, size_t max, struct cop_record **ret,
                     struct cop_error *err);
/* Adds one event; `seq` is put into it.  Over the cap it is only counted.  Failures (disk full) stick and are told by
 * cop_record_failed: output must never end a cell. */
void cop_record_add(struct cop_record *r, json_t *event);
/* Adds the closing event, which always fits, and ends the record: readers reach the end.  Frees r. */
void cop_record_end(struct cop_record *r, json_t *event);
/* Closes without a closing line (daemon shutdown): a later daemon continues it. */
struct cop_record *cop_record_detach(struct cop_record *r);
uint64_t cop_record_bytes(const struct cop_record *r);
bool cop_record_complete(const struct cop_record *r); /* nothing was dropped and no write failed */

/* One more line for a record that has ended (late output), within COP_RECORD_LATE_MAX. */
void cop_record_add_late(struct cop_engine *e, int logs_fd, const char *key, json_t *event);

/* One line for the sandbox's own log (sandbox.ndjson). */
void cop_sandbox_log(struct cop_engine *e, int logs_fd, const char *sandbox_id, json_t *event);

/* -- reading, for other kinds of sources (command.c) -------------------------------------------------------------------- */

/* A source of lines behind cop_record_read.  read: as cop_record_read; close frees data. */
struct cop_record_source {
        ssize_t (*read)(void *data, char *buf, size_t n);
        void (*close)(void *data);
};
/* Makes a reader on a source; `key` names what cop_record_wake wakes (copied). */
int cop_record_reader_new(struct cop_engine *e, const char *key, const struct cop_record_source *source, void *data,
                          void (*more)(void *userdata), void *userdata, struct cop_record_reader **ret,
                          struct cop_error *err);
/* Tells the readers of this key, from the loop, that there is more. */
void cop_record_wake(struct cop_engine *e, const char *key);
/* True while a record of this key is being written. */
bool cop_record_is_live(struct cop_engine *e, const char *key);

/* command.c: opens the NDJSON view of a command's log. */
int cop_command_record_open(struct cop_engine *e, const char *ref, const char *pid_or_id, uint64_t after_seq,
                            bool follow, void (*more)(void *userdata), void *userdata, struct cop_record_reader **ret,
                            struct cop_error *err);
