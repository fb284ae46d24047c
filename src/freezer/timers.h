/* Numbers of POSIX timers (timer_create(2)).  From 6.15 on the kernel gives those that it is asked for; before, it counts up in each process. */
#pragma once

#include <stdbool.h>
#include <sys/prctl.h>

#ifndef PR_TIMER_CREATE_RESTORE_IDS
#define PR_TIMER_CREATE_RESTORE_IDS 77
#endif
#ifndef PR_TIMER_CREATE_RESTORE_IDS_GET
#define PR_TIMER_CREATE_RESTORE_IDS_GET 2
#endif

/* Where numbers are counted: as far as that is done, by making and deleting timers. */
#define COP_TIMER_NUMBER_MAX 10000

static inline bool cop_timers_numbered(void)
{
        return prctl(PR_TIMER_CREATE_RESTORE_IDS, PR_TIMER_CREATE_RESTORE_IDS_GET, 0, 0, 0) >= 0;
}
