/* Theory of operation
 *
 * Every source is a node of the loop's list.  Freeing a source during dispatch only marks it dead and takes it out of
 * epoll; the memory goes after the turn, so that events already fetched for it can be recognised and dropped.
 * Timers sit in a binary heap ordered by time; each knows its index, so that moving one is O(log n).  The heap's top
 * gives epoll_pwait2's timeout, hence no timerfd and microsecond precision.
 */
#include "loop.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"

#define MAX_EVENTS 64
#define NOT_IN_HEAP SIZE_MAX

enum source_kind {
        SOURCE_IO,
        SOURCE_TIMER,
        SOURCE_CHILD,
        SOURCE_SIGNAL,
        SOURCE_DEFER,
};

struct cop_source {
        struct cop_loop *loop; /* borrowed */
        struct cop_source *next, *prev;
        enum source_kind kind;
        bool dead;
        bool enabled;
        bool in_epoll;
        void *userdata; /* borrowed */
        int fd;         /* io: borrowed; child, signal: owned */
        uint32_t events;
        usec_t when;
        size_t heap_index;
        pid_t pid;
        uint64_t armed_turn;
        union {
                cop_io_fn io;
                cop_timer_fn timer;
                cop_child_fn child;
                cop_signal_fn signal;
                cop_defer_fn defer;
        } fn;
};

struct cop_loop {
        int epoll_fd; /* owned */
        struct cop_source *sources;
        struct cop_source *graveyard;
        struct cop_source *defer_next; /* where run_deferred goes on; kept valid by cop_source_free */
        struct cop_source **heap;      /* owned array of borrowed timers */
        size_t heap_len, heap_allocated;
        size_t timers; /* all that exist, armed or not */
        size_t defer_enabled;
        uint64_t turn;
        usec_t now;
        bool dispatching;
        bool quit;
        int exit_code;
};

/* -- timer heap ---------------------------------------------------------------------------------------------------- */

static void heap_place(struct cop_loop *loop, size_t i, struct cop_source *s)
{
        loop->heap[i] = s;
        s->heap_index = i;
}

static void heap_up(struct cop_loop *loop, size_t i)
{
        struct cop_source *s = loop->heap[i];

        while (i > 0 && loop->heap[(i - 1) / 2]->when > s->when) {
                heap_place(loop, i, loop->heap[(i - 1) / 2]);
                i = (i - 1) / 2;
        }
        heap_place(loop, i, s);
}

static void heap_down(struct cop_loop *loop, size_t i)
{
        struct cop_source *s = loop->heap[i];

        for (;;) {
                size_t child = 2 * i + 1;
                if (child >= loop->heap_len)
                        break;
                if (child + 1 < loop->heap_len && loop->heap[child + 1]->when < loop->heap[child]->when)
                        child++;
                if (loop->heap[child]->when >= s->when)
                        break;
                heap_place(loop, i, loop->heap[child]);
                i = child;
        }
        heap_place(loop, i, s);
}

static void heap_remove(struct cop_loop *loop, struct cop_source *s)
{
        size_t i = s->heap_index;

        if (i == NOT_IN_HEAP)
                return;
        s->heap_index = NOT_IN_HEAP;
        struct cop_source *last = loop->heap[--loop->heap_len];
        if (last == s)
                return;
        heap_place(loop, i, last);
        heap_up(loop, i);
        heap_down(loop, last->heap_index);
}

static int heap_room(struct cop_loop *loop)
{
        /* Room for every timer that exists is made when it is created, so arming one cannot fail. */
        if (loop->timers <= loop->heap_allocated)
                return 0;
        size_t want = loop->timers * 2;
        struct cop_source **heap = reallocarray(loop->heap, want, sizeof(*heap));
        if (!heap)
                return -ENOMEM;
        loop->heap = heap;
        loop->heap_allocated = want;
        return 0;
}

/* -- life ---------------------------------------------------------------------------------------------------------- */

int cop_loop_new(struct cop_loop **ret_loop, struct cop_error *err)
{
        struct cop_loop *loop = calloc(1, sizeof(*loop));

        if (!loop)
                return cop_error_errno(err, ENOMEM, "event loop");
        loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (loop->epoll_fd < 0) {
                int saved = errno;
                free(loop);
                return cop_error_errno(err, saved, "epoll_create1");
        }
        loop->now = cop_now(CLOCK_MONOTONIC);
        *ret_loop = loop;
        return 0;
}

static void bury(struct cop_loop *loop)
{
        while (loop->graveyard) {
                struct cop_source *s = loop->graveyard;
                loop->graveyard = s->next;
                free(s);
        }
}

struct cop_loop *cop_loop_free(struct cop_loop *loop)
{
        if (!loop)
                return NULL;
        while (loop->sources)
                cop_source_free(loop->sources);
        bury(loop);
        cop_close(loop->epoll_fd);
        free(loop->heap);
        free(loop);
        return NULL;
}

static int epoll_arm(struct cop_source *s, uint32_t events)
{
        struct epoll_event ev = {.events = events, .data.ptr = s};
        int op = s->in_epoll ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

        if (epoll_ctl(s->loop->epoll_fd, op, s->fd, &ev) < 0)
                return -errno;
        s->in_epoll = true;
        s->events = events;
        return 0;
}

struct cop_source *cop_source_free(struct cop_source *s)
{
        if (!s || s->dead)
                return NULL;
        struct cop_loop *loop = s->loop;

        s->dead = true;
        if (s->in_epoll)
                epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
        if (s->kind == SOURCE_CHILD || s->kind == SOURCE_SIGNAL)
                s->fd = cop_close(s->fd);
        if (s->kind == SOURCE_TIMER) {
                heap_remove(loop, s);
                loop->timers--;
        }
        if (s->kind == SOURCE_DEFER && s->enabled)
                loop->defer_enabled--;
        if (loop->defer_next == s)
                loop->defer_next = s->next;
        if (s->prev)
                s->prev->next = s->next;
        else
                loop->sources = s->next;
        if (s->next)
                s->next->prev = s->prev;
        if (loop->dispatching) {
                s->next = loop->graveyard;
                loop->graveyard = s;
        } else {
                free(s);
        }
        return NULL;
}

static struct cop_source *source_new(struct cop_loop *loop, enum source_kind kind, void *userdata)
{
        struct cop_source *s = calloc(1, sizeof(*s));

        if (!s)
                return NULL;
        *s = (struct cop_source){.loop = loop,
                                 .kind = kind,
                                 .userdata = userdata,
                                 .fd = -EBADF,
                                 .when = USEC_INFINITY,
                                 .heap_index = NOT_IN_HEAP,
                                 .next = loop->sources};
        if (loop->sources)
                loop->sources->prev = s;
        loop->sources = s;
        loop->timers += kind == SOURCE_TIMER;
        return s;
}

static int source_done(struct cop_source *s, struct cop_source **ret_source)
{
        if (ret_source)
                *ret_source = s;
        return 0;
}

int cop_loop_add_io(struct cop_loop *loop, int fd, uint32_t events, cop_io_fn fn, void *userdata,
                    struct cop_source **ret_source, struct cop_error *err)
{
        struct cop_source *s = source_new(loop, SOURCE_IO, userdata);

        if (!s)
                return cop_error_errno(err, ENOMEM, "event source");
        s->fd = fd;
        s->fn.io = fn;
        int r = events ? epoll_arm(s, events) : 0;
        if (r < 0) {
                cop_source_free(s);
                return cop_error_errno(err, r, "epoll_ctl");
        }
        return source_done(s, ret_source);
}

int cop_loop_add_timer(struct cop_loop *loop, usec_t when, cop_timer_fn fn, void *userdata,
                       struct cop_source **ret_source, struct cop_error *err)
{
        struct cop_source *s = source_new(loop, SOURCE_TIMER, userdata);

        if (!s || heap_room(loop) < 0) {
                cop_source_free(s);
                return cop_error_errno(err, ENOMEM, "timer");
        }
        s->fn.timer = fn;
        cop_source_set_time(s, when);
        return source_done(s, ret_source);
}

int cop_loop_add_child(struct cop_loop *loop, pid_t pid, cop_child_fn fn, void *userdata,
                       struct cop_source **ret_source, struct cop_error *err)
{
        struct cop_source *s = source_new(loop, SOURCE_CHILD, userdata);

        if (!s)
                return cop_error_errno(err, ENOMEM, "child source");
        s->pid = pid;
        s->fn.child = fn;
        s->fd = (int)syscall(SYS_pidfd_open, pid, 0);
        int r = s->fd < 0 ? -errno : epoll_arm(s, EPOLLIN);
        if (r < 0) {
                cop_source_free(s);
                return cop_error_errno(err, r, "watching child %d", (int)pid);
        }
        return source_done(s, ret_source);
}

int cop_loop_add_signal(struct cop_loop *loop, int signo, cop_signal_fn fn, void *userdata,
                        struct cop_source **ret_source, struct cop_error *err)
{
        struct cop_source *s = source_new(loop, SOURCE_SIGNAL, userdata);
        sigset_t set;

        if (!s)
                return cop_error_errno(err, ENOMEM, "signal source");
        sigemptyset(&set);
        sigaddset(&set, signo);
        s->fn.signal = fn;
        int r = sigprocmask(SIG_BLOCK, &set, NULL) < 0 ? -errno : 0;
        if (r == 0) {
                s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
                r = s->fd < 0 ? -errno : epoll_arm(s, EPOLLIN);
        }
        if (r < 0) {
                cop_source_free(s);
                return cop_error_errno(err, r, "watching signal %d", signo);
        }
        return source_done(s, ret_source);
}

int cop_loop_add_defer(struct cop_loop *loop, cop_defer_fn fn, void *userdata, struct cop_source **ret_source,
                       struct cop_error *err)
{
        struct cop_source *s = source_new(loop, SOURCE_DEFER, userdata);

        if (!s)
                return cop_error_errno(err, ENOMEM, "deferred source");
        s->fn.defer = fn;
        return source_done(s, ret_source);
}

int cop_source_set_events(struct cop_source *s, uint32_t events)
{
        if (s->dead)
                return -EBADF;
        if (events == s->events && (events == 0 || s->in_epoll))
                return 0;
        if (events == 0) {
                /* EPOLLHUP and EPOLLERR cannot be masked, so a resting descriptor leaves the set. */
                if (s->in_epoll && epoll_ctl(s->loop->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL) < 0)
                        return -errno;
                s->in_epoll = false;
                s->events = 0;
                return 0;
        }
        return epoll_arm(s, events);
}

void cop_source_set_time(struct cop_source *s, usec_t when)
{
        struct cop_loop *loop = s->loop;

        if (s->dead)
                return;
        heap_remove(loop, s);
        /* Armed for the past by a callback: due in the next turn, so that timers which arm each other starve nobody. */
        s->when = loop->dispatching ? MAX_OF(when, cop_usec_add(loop->now, 1)) : when;
        if (when == USEC_INFINITY)
                return;
        heap_place(loop, loop->heap_len++, s);
        heap_up(loop, s->heap_index);
}

void cop_source_set_enabled(struct cop_source *s, int enabled)
{
        if (s->dead || s->enabled == !!enabled)
                return;
        s->enabled = enabled;
        s->armed_turn = s->loop->turn;
        if (enabled)
                s->loop->defer_enabled++;
        else
                s->loop->defer_enabled--;
}

/* -- running ------------------------------------------------------------------------------------------------------- */

static void run_timers(struct cop_loop *loop)
{
        while (loop->heap_len && loop->heap[0]->when <= loop->now && !loop->quit) {
                struct cop_source *s = loop->heap[0];
                heap_remove(loop, s);
                s->when = USEC_INFINITY;
                s->fn.timer(s, loop->now, s->userdata);
        }
}

static void dispatch_fd(struct cop_source *s, uint32_t revents)
{
        struct signalfd_siginfo signal_info;
        siginfo_t si = {0};

        switch (s->kind) {
        case SOURCE_IO:
                /* An earlier callback of this turn may have asked for less than what epoll has already told. */
                revents &= s->events | EPOLLERR | EPOLLHUP;
                if (s->in_epoll && revents)
                        s->fn.io(s, s->fd, revents, s->userdata);
                break;
        case SOURCE_CHILD:
                /* ECHILD: somebody else reaped it. Told with an empty siginfo, or the pidfd would stay ready for ever.
                 */
                if (waitid(P_PID, (id_t)s->pid, &si, WEXITED | WNOHANG) == 0 && si.si_pid == 0)
                        break;
                epoll_ctl(s->loop->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
                s->in_epoll = false;
                if (s->fn.child)
                        s->fn.child(s, &si, s->userdata);
                else
                        cop_source_free(s);
                break;
        case SOURCE_SIGNAL:
                if (read(s->fd, &signal_info, sizeof(signal_info)) == sizeof(signal_info))
                        s->fn.signal(s, (int)signal_info.ssi_signo, s->userdata);
                break;
        case SOURCE_TIMER:
        case SOURCE_DEFER:
                break;
        }
}

static void run_deferred(struct cop_loop *loop)
{
        if (loop->defer_enabled == 0)
                return;
        for (struct cop_source *s = loop->sources; s && !loop->quit; s = loop->defer_next) {
                loop->defer_next = s->next;
                if (s->kind == SOURCE_DEFER && s->enabled && s->armed_turn != loop->turn)
                        s->fn.defer(s, s->userdata);
        }
        loop->defer_next = NULL;
}

int cop_loop_turn(struct cop_loop *loop, usec_t max_wait)
{
        struct epoll_event events[MAX_EVENTS];
        usec_t wait = max_wait;

        loop->now = cop_now(CLOCK_MONOTONIC);
        if (loop->defer_enabled)
                wait = 0;
        else if (loop->heap_len)
                wait = MIN_OF(wait, loop->heap[0]->when > loop->now ? loop->heap[0]->when - loop->now : 0);

        struct timespec ts = {.tv_sec = (time_t)(wait / USEC_PER_SEC), .tv_nsec = (long)(wait % USEC_PER_SEC) * 1000};
        int n = epoll_pwait2(loop->epoll_fd, events, MAX_EVENTS, wait == USEC_INFINITY ? NULL : &ts, NULL);
        if (n < 0 && errno != EINTR)
                return -errno;

        loop->turn++;
        loop->now = cop_now(CLOCK_MONOTONIC);
        loop->dispatching = true;
        run_timers(loop);
        for (int i = 0; i < n && !loop->quit; i++) {
                struct cop_source *s = events[i].data.ptr;
                if (!s->dead)
                        dispatch_fd(s, events[i].events);
        }
        run_deferred(loop);
        loop->dispatching = false;
        bury(loop);
        return 0;
}

int cop_loop_run(struct cop_loop *loop)
{
        while (!loop->quit) {
                int r = cop_loop_turn(loop, USEC_INFINITY);
                if (r < 0)
                        return r;
        }
        loop->quit = false;
        return loop->exit_code;
}

void cop_loop_quit(struct cop_loop *loop, int code)
{
        loop->quit = true;
        loop->exit_code = code;
}

usec_t cop_loop_now(struct cop_loop *loop)
{
        return loop->now;
}
