/* A single-threaded event loop on epoll.
 *
 * Sources: descriptors, timers (a heap behind one timerfd-less epoll timeout), child processes (pidfd), signals
 * (signalfd) and deferred calls.  A callback may free any source including its own; a freed source is never called
 * again.  Callbacks return nothing: a fault of one source must not end the loop.
 *
 * Order within one turn: due timers, ready descriptors (at most 64), then deferred calls that were enabled before the
 * turn began.  While a deferred source is enabled the loop does not sleep.
 */
#pragma once

#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>

#include "clock.h"
#include "err.h"

struct cop_loop;
struct cop_source;

typedef void (*cop_io_fn)(struct cop_source *s, int fd, uint32_t revents, void *userdata);
typedef void (*cop_timer_fn)(struct cop_source *s, usec_t now, void *userdata);
typedef void (*cop_child_fn)(struct cop_source *s, const siginfo_t *si, void *userdata);
typedef void (*cop_signal_fn)(struct cop_source *s, int signo, void *userdata);
typedef void (*cop_defer_fn)(struct cop_source *s, void *userdata);

int cop_loop_new(struct cop_loop **ret_loop, struct cop_error *err);
struct cop_loop *cop_loop_free(struct cop_loop *loop); /* frees remaining sources too; returns NULL */

/* Runs until cop_loop_quit; returns the code given there, or a negative errno when epoll itself fails. */
int cop_loop_run(struct cop_loop *loop);
/* One turn, sleeping at most max_wait; 0 = only what is ready now.  For tests and for embedding. */
int cop_loop_turn(struct cop_loop *loop, usec_t max_wait);
void cop_loop_quit(struct cop_loop *loop, int code);
/* CLOCK_MONOTONIC at the start of this turn. */
usec_t cop_loop_now(struct cop_loop *loop);

/* events: EPOLLIN | EPOLLOUT | EPOLLET …; fd is borrowed and must outlive the source. */
int cop_loop_add_io(struct cop_loop *loop, int fd, uint32_t events, cop_io_fn fn, void *userdata,
                    struct cop_source **ret_source, struct cop_error *err);
/* Calls fn once at CLOCK_MONOTONIC time `when`; then the timer rests until set again.  USEC_INFINITY: resting.  A timer
 * armed for the past from within a callback is due in the next turn. */
int cop_loop_add_timer(struct cop_loop *loop, usec_t when, cop_timer_fn fn, void *userdata,
                       struct cop_source **ret_source, struct cop_error *err);
/* Waits for a direct child with waitid(WEXITED) and reaps it; calls fn once.  When somebody else reaped it first,
 * si_code and si_status are 0.  fn NULL: nobody wants to know, and the source goes with the child. */
int cop_loop_add_child(struct cop_loop *loop, pid_t pid, cop_child_fn fn, void *userdata,
                       struct cop_source **ret_source, struct cop_error *err);
/* Blocks signo for the thread and delivers it here. */
int cop_loop_add_signal(struct cop_loop *loop, int signo, cop_signal_fn fn, void *userdata,
                        struct cop_source **ret_source, struct cop_error *err);
/* Called once a turn while enabled; starts disabled. */
int cop_loop_add_defer(struct cop_loop *loop, cop_defer_fn fn, void *userdata, struct cop_source **ret_source,
                       struct cop_error *err);

int cop_source_set_events(struct cop_source *s, uint32_t events); /* io: 0 or -errno; events 0 = resting */
void cop_source_set_time(struct cop_source *s, usec_t when);      /* timer */
void cop_source_set_enabled(struct cop_source *s, int enabled);   /* defer */
struct cop_source *cop_source_free(struct cop_source *s);         /* takes NULL; returns NULL */

static inline void cop_source_freep(struct cop_source **s)
{
        *s = cop_source_free(*s);
}
static inline void cop_loop_freep(struct cop_loop **l)
{
        *l = cop_loop_free(*l);
}
