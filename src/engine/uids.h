/* Ranges of host uids that no other sandbox on this machine has, whichever daemon it belongs to. */
#pragma once

#include "engine/internal.h"

/* Sets uid_base, slots and uid_claims; bad_request when the range does not fit. */
int cop_uids_choose(struct cop_engine *e, const struct cop_engine_config *config, struct cop_error *err);

/* Takes the range of slot *slot, or when somebody has it, the next one that nobody has here or elsewhere: too_many when
 * there is none.  *ret_fd is the claim: it holds as long as any copy of the descriptor is open, so the keeper gets one. */
int cop_uids_take(struct cop_engine *e, unsigned *slot, int *ret_fd, struct cop_error *err);

/* How many ranges are claimed by all daemons of this machine; negative errno when that cannot be told. */
int cop_uids_claimed(struct cop_engine *e, struct cop_error *err);
