/* Times and durations: usec_t is unsigned microseconds; USEC_INFINITY means never. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef uint64_t usec_t;

#define USEC_INFINITY UINT64_MAX
#define USEC_PER_SEC 1000000ULL
#define USEC_PER_MSEC 1000ULL

/* clock_gettime in microseconds: CLOCK_MONOTONIC for durations and deadlines, CLOCK_REALTIME for what users see. */
usec_t cop_now(clockid_t clock);

/* Saturating a + b. */
static inline usec_t cop_usec_add(usec_t a, usec_t b)
{
        return a > USEC_INFINITY - b ? USEC_INFINITY : a + b;
}

#define COP_RFC3339_MAX 32
/* "2026-11-29T15:03:13.123456Z" of a realtime stamp into buf; returns buf. */
char *cop_rfc3339(usec_t realtime, char buf[static COP_RFC3339_MAX]);
