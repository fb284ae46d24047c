#include "lib/test.h"

#include "base/clock.h"

TEST(sums_saturate)
{
        ASSERT(cop_usec_add(1, 2) == 3);
        ASSERT(cop_usec_add(USEC_INFINITY, 1) == USEC_INFINITY);
        ASSERT(cop_usec_add(USEC_INFINITY - 1, 5) == USEC_INFINITY);
        ASSERT(cop_usec_add(USEC_INFINITY - 1, 1) == USEC_INFINITY);
}

TEST(rfc3339)
{
        char buf[COP_RFC3339_MAX];

        ASSERT_STR(cop_rfc3339(0, buf), "1970-01-01T00:00:00.000000Z");
        ASSERT_STR(cop_rfc3339(1795966993123456ULL, buf), "2026-11-29T15:43:13.123456Z");
        ASSERT_STR(cop_rfc3339(951782400000001ULL, buf), "2000-02-29T00:00:00.000001Z");
        ASSERT_LT(strlen(cop_rfc3339(USEC_INFINITY, buf)), COP_RFC3339_MAX);
        ASSERT_EQ(buf[strlen(buf) - 1], 'Z');
}

TEST(now_goes_forward)
{
        usec_t a = cop_now(CLOCK_MONOTONIC);

        ASSERT(a > 0);
        ASSERT(cop_now(CLOCK_MONOTONIC) >= a);
        ASSERT(cop_now(CLOCK_REALTIME) > 1700000000ULL * USEC_PER_SEC);
}
