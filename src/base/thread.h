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

/* All that the caller may have, for who has been given others for a while; where nothing keeps it to some, also those to come. */
void cop_all_cpus(cpu_set_t *ret);

/* Goes on on another processor, if there is one, so that a process or thread that was just made may begin on this one at once: not every
 * scheduler looks for an idle one, or wakes it up soon, for who runs for less than a millisecond. */
void cop_step_aside(void);
