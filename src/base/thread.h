/* Threads and tasks that work beside the one that makes them. */
#pragma once

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

/* pthread_create(3) with all signals blocked: they are the event loop's, and a thread that left them open would take them
 * from its signalfd.  cpus: where it may run, NULL = anywhere its maker may.
 * 0 or -errno. */
int cop_thread_start(pthread_t *ret, const cpu_set_t *cpus, void *(*run)(void *userdata), void *userdata);

/* The processors that the caller may have but for the one it is on: not every scheduler gives a new task one of its own.  False:
 * there are none. */
bool cop_other_cpus(cpu_set_t *ret);
