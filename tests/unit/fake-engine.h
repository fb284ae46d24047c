/* An engine without sandboxes, for tests of the server: answers by rule, remembers what it was asked.
 *
 *      sandbox "sb"       exists; any other reference gives sandbox_not_found
 *      cell code          "now": ends within the call; "later": in a later turn; "never": only by fake_cell_end or a cancel
 *      token              "good-token" is the only one
 *      records            lines in memory (fake_record_add, fake_record_end)
 *      files              "/pattern": fake.file_size bytes of a pattern, at most file_step a turn; "/missing" gives file_not_found;
 *                         writes count bytes, at most write_step a turn, and fail with disk_full after write_fail_after
 */
#pragma once

#include "engine/engine.h"

struct fake {
        char last_call[64];
        json_t *last; /* owned: parameters of the last call */
        char code[64];
        size_t code_len;
        unsigned cancelled, disconnected, open_readers, open_streams;
        uint64_t file_size, file_step;
        uint64_t written, write_step, write_fail_after, write_length;
        uint64_t write_sum; /* of all bytes, to see that none was lost or doubled */
        bool write_finished, write_aborted;
        uint64_t read_after;
};
extern struct fake fake;

struct cop_engine *fake_engine_new(struct cop_loop *loop);
void fake_engine_free(struct cop_engine *e);
void fake_cell_end(struct cop_engine *e);
void fake_record_add(struct cop_engine *e, const char *line); /* without its newline */
void fake_record_end(struct cop_engine *e);
void fake_progress(struct cop_engine *e, const char *message); /* of the pending image build */
unsigned char fake_byte(uint64_t offset);
