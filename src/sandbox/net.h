/* Network of a fresh sandbox: its own namespace with the loopback interface up. */
#pragma once

#include "base/err.h"

/* Brings up lo in the caller's network namespace. */
int cop_net_loopback_up(struct cop_error *err);
