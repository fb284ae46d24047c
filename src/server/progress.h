/* The reply to what takes long and tells of its progress: one JSON object at the end, or, with Accept NDJSON or SSE, events {type: start,
 * progress, end or fault}. */
#pragma once

#include "request.h"

/* Destination of an operation whose result is the reply, with r->success, or the member `key` (a literal) of the event `end`.  False
 * after an error reply. */
bool cop_progress_to(struct cop_request *r, const char *key, struct cop_op_to *ret);
