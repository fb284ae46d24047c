#include "clock.h"

#include <stdio.h>
#include <string.h>

usec_t cop_now(clockid_t clock)
{
        struct timespec ts;

        if (clock_gettime(clock, &ts) < 0)
                return 0;
        return (usec_t)ts.tv_sec * USEC_PER_SEC + (usec_t)ts.tv_nsec / 1000;
}

char *cop_rfc3339(usec_t realtime, char buf[static COP_RFC3339_MAX])
{
        time_t seconds = (time_t)(realtime / USEC_PER_SEC);
        struct tm tm = {0};

        if (!gmtime_r(&seconds, &tm)) /* year over INT_MAX */
                memset(&tm, 0, sizeof(tm));
        size_t n = strftime(buf, COP_RFC3339_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(buf + n, COP_RFC3339_MAX - n, ".%06uZ", (unsigned)(realtime % USEC_PER_SEC));
        return buf;
}
