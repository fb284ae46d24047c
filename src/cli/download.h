/* A reply of the API as a local file. */
#pragma once

#include "client.h"

/* GET path into the file `to`, "-" for standard output.  It goes into a temporary file beside the target, renamed when whole: what was
 * there stays until then.  A target that is no plain file (a FIFO, /dev/stdout) is written to as it is.  progress may be NULL. */
int cop_download(struct cop_client *client, const char *path, const char *to, cop_progress_fn progress, void *userdata,
                 struct cop_error *err);
