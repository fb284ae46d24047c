/* A second thread that does nothing, for victims that look at it from the first. */
#pragma once

#include <pthread.h>
#include <sys/syscall.h>

#include "victim.h"

static volatile pid_t sleeper_tid;

static void *sleeper(void *argument)
{
        (void)argument;
        sleeper_tid = (pid_t)syscall(SYS_gettid);
        for (;;)
                pause();
        return NULL;
}

/* Its id. */
static inline pid_t start_sleeper(void)
{
        pthread_t t;

        CHECK(pthread_create(&t, NULL, sleeper, NULL) == 0);
        while (sleeper_tid == 0)
                usleep(100);
        return sleeper_tid;
}
