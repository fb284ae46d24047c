/* Files from one sandbox to another, as a stream: the daemon holds one buffer of them at a time. */
#pragma once

#include "engine/internal.h"

struct cop_pump_params {
        const char *from_sandbox, *to_sandbox;
        struct cop_file_params from, to; /* READ and WRITE, or TAR and UNTAR */
        uint64_t max;                    /* bytes; payload_too_large beyond */
};

/* fn is called once, from the loop or before this returns; not when the engine is freed meanwhile. */
typedef void (*cop_pump_fn)(uint64_t bytes, const struct cop_error *err, void *userdata);
void cop_pump(struct cop_engine *e, const struct cop_pump_params *p, cop_pump_fn fn, void *userdata);
