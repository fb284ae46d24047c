#include "init.h"

#include "base/cleanup.h"
#include "sandbox/wire.h"

void worker_handle(struct init *init, struct cop_msg *m)
{
        struct cop_error err;

        cop_error_set(&err, ENOSYS, COP_ERR_unsupported, "file operations are not there yet");
        init_send_error(init, m->id, &err);
}

void worker_forward(struct init *init, struct worker *w)
{
}

bool worker_reaped(struct init *init, pid_t pid, int status)
{
        return false;
}
