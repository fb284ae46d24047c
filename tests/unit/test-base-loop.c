#include "lib/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/loop.h"

/* What the callbacks of a test share. */
struct state {
        struct cop_loop *loop;
        struct cop_source *sources[64];
        unsigned calls;
        unsigned counts[64];
        usec_t last;
        siginfo_t si;
        struct cop_source *victim;
};

static struct cop_loop *new_loop(void)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_loop *loop = NULL;

        ASSERT_OK(cop_loop_new(&loop, &err), &err);
        return loop;
}

static void make_pipe(int fds[2])
{
        ASSERT_OK(pipe2(fds, O_CLOEXEC | O_NONBLOCK), NULL);
}

static void count_io(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct state *st = userdata;
        char c;

        st->calls++;
        if (revents & EPOLLIN)
                (void)!read(fd, &c, 1);
}

static void count_timer(struct cop_source *s, usec_t now, void *userdata)
{
        struct state *st = userdata;

        ASSERT(now >= st->last);
        st->last = now;
        st->calls++;
}

TEST(descriptors)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct state st = {.loop = loop};
        struct cop_source *s = NULL;
        int fds[2];

        make_pipe(fds);
        ASSERT_OK(cop_loop_add_io(loop, fds[0], EPOLLIN, count_io, &st, &s, NULL), NULL);
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(st.calls, 0);
        ASSERT_EQ(write(fds[1], "ab", 2), 2);
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(st.calls, 2);
        ASSERT_OK(cop_source_set_events(s, 0), NULL); /* resting: not even a hang-up calls it */
        close(fds[1]);
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(st.calls, 2);
        ASSERT_OK(cop_source_set_events(s, EPOLLIN), NULL);
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(st.calls, 3);
        cop_source_free(s);
        close(fds[0]);
}

TEST(a_plain_file_cannot_be_watched)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct cop_error err = COP_ERROR_NULL;
        int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);

        ASSERT_ERRNO(cop_loop_add_io(loop, fd, EPOLLIN, count_io, NULL, NULL, &err), EPERM);
        close(fd);
}

TEST(timers_in_order)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        usec_t now = cop_now(CLOCK_MONOTONIC);
        struct state st = {.loop = loop};

        for (unsigned i = 0; i < 50; i++)
                ASSERT_OK(cop_loop_add_timer(loop, now + (i * 7919) % 50 * 100, count_timer, &st, &st.sources[i], NULL),
                          NULL);
        ASSERT_OK(cop_loop_add_timer(loop, USEC_INFINITY, count_timer, &st, NULL, NULL), NULL);
        for (int i = 0; i < 10; i++)
                cop_source_free(st.sources[i * 5]);
        while (st.calls < 40)
                ASSERT_OK(cop_loop_turn(loop, USEC_PER_SEC), NULL);
        ASSERT_OK(cop_loop_turn(loop, 10000), NULL);
        ASSERT_EQ(st.calls, 40);
        ASSERT(cop_now(CLOCK_MONOTONIC) >= now + 4900);
}

static void check_heap_timer(struct cop_source *s, usec_t now, void *userdata)
{
        usec_t *due = userdata;

        ASSERT(*due != 0);
        ASSERT(now >= *due);
        *due = 0;
}

TEST(a_thousand_timers_moved_at_random)
{
        enum { COUNT = 1000 };
        static struct cop_source *sources[COUNT];
        static usec_t due[COUNT];
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        usec_t now = cop_now(CLOCK_MONOTONIC);

        srand(7);
        for (int i = 0; i < COUNT; i++)
                ASSERT_OK(cop_loop_add_timer(loop, USEC_INFINITY, check_heap_timer, &due[i], &sources[i], NULL), NULL);
        for (int i = 0; i < 20 * COUNT; i++) {
                int k = rand() % COUNT;
                if (rand() % 50 == 0)
                        sources[k] = cop_source_free(sources[k]);
                due[k] = sources[k] && rand() % 3 ? now + (usec_t)(rand() % 20000) : 0;
                if (sources[k])
                        cop_source_set_time(sources[k], due[k] ? due[k] : USEC_INFINITY);
        }
        usec_t end = now + 25000;
        while (cop_now(CLOCK_MONOTONIC) < end)
                ASSERT_OK(cop_loop_turn(loop, 1000), NULL);
        for (int i = 0; i < COUNT; i++)
                ASSERT(due[i] == 0);
}

static void rearm_both(struct cop_source *s, usec_t now, void *userdata)
{
        struct state *st = userdata;

        st->calls++;
        for (int i = 0; i < 2; i++)
                cop_source_set_time(st->sources[i], 0);
}

TEST(timers_that_arm_each_other_for_the_past_starve_nobody)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct state st = {.loop = loop}, io = {.loop = loop};
        int fds[2];

        make_pipe(fds);
        ASSERT_EQ(write(fds[1], "x", 1), 1);
        ASSERT_OK(cop_loop_add_io(loop, fds[0], EPOLLIN, count_io, &io, NULL, NULL), NULL);
        for (int i = 0; i < 2; i++)
                ASSERT_OK(cop_loop_add_timer(loop, 0, rearm_both, &st, &st.sources[i], NULL), NULL);
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(io.calls, 1);
        ASSERT_LE(st.calls, 2);
        close(fds[0]);
        close(fds[1]);
}

/* Frees every source of the test, its own included. */
static void free_all_io(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct state *st = userdata;

        st->calls++;
        for (int i = 0; i < 10; i++)
                st->sources[i] = cop_source_free(st->sources[i]);
}

TEST(a_callback_frees_every_source)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct state st = {.loop = loop};
        int fds[10][2];

        for (int i = 0; i < 10; i++) {
                make_pipe(fds[i]);
                ASSERT_EQ(write(fds[i][1], "x", 1), 1);
                ASSERT_OK(cop_loop_add_io(loop, fds[i][0], EPOLLIN, free_all_io, &st, &st.sources[i], NULL), NULL);
        }
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(st.calls, 1);
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(st.calls, 1);
        for (int i = 0; i < 10; i++) {
                close(fds[i][0]);
                close(fds[i][1]);
        }
}

static void rest_the_other(struct cop_source *s, int fd, uint32_t revents, void *userdata)
{
        struct state *st = userdata;

        st->calls++;
        for (int i = 0; i < 2; i++)
                if (st->sources[i] != s)
                        ASSERT_OK(cop_source_set_events(st->sources[i], 0), NULL);
}

TEST(what_was_put_to_rest_in_this_turn_is_not_called)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct state st = {.loop = loop};
        int fds[2][2];

        for (int i = 0; i < 2; i++) {
                make_pipe(fds[i]);
                ASSERT_EQ(write(fds[i][1], "x", 1), 1);
                ASSERT_OK(cop_loop_add_io(loop, fds[i][0], EPOLLIN, rest_the_other, &st, &st.sources[i], NULL), NULL);
        }
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(st.calls, 1);
        for (int i = 0; i < 2; i++) {
                close(fds[i][0]);
                close(fds[i][1]);
        }
}

static void free_self_and_touch(struct cop_source *s, usec_t now, void *userdata)
{
        struct state *st = userdata;

        st->calls++;
        cop_source_free(s);
        /* A freed source stays freed, whatever is still done to it in this turn. */
        cop_source_free(s);
        cop_source_set_time(s, now);
}

TEST(a_freed_timer_cannot_come_back)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct state st = {.loop = loop};

        ASSERT_OK(cop_loop_add_timer(loop, 0, free_self_and_touch, &st, NULL, NULL), NULL);
        for (int i = 0; i < 3; i++)
                ASSERT_OK(cop_loop_turn(loop, 1000), NULL);
        ASSERT_EQ(st.calls, 1);
}

static void count_defer(struct cop_source *s, void *userdata)
{
        struct state *st = userdata;

        for (int i = 0; i < 64; i++)
                if (st->sources[i] == s)
                        st->counts[i]++;
        st->calls++;
}

TEST(deferred_calls_once_a_turn_while_enabled)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct state st = {.loop = loop};

        ASSERT_OK(cop_loop_add_defer(loop, count_defer, &st, &st.sources[0], NULL), NULL);
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(st.calls, 0);
        cop_source_set_enabled(st.sources[0], 1);
        for (unsigned i = 1; i <= 3; i++) {
                ASSERT_OK(cop_loop_turn(loop, USEC_INFINITY), NULL); /* does not sleep */
                ASSERT_EQ(st.calls, i);
        }
        cop_source_set_enabled(st.sources[0], 0);
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(st.calls, 3);
}

static void free_neighbours(struct cop_source *s, void *userdata)
{
        struct state *st = userdata;

        st->calls++;
        for (int i = 0; i < 20; i++)
                if (st->sources[i] != s && i % 2 == 0)
                        st->sources[i] = cop_source_free(st->sources[i]);
}

TEST(deferred_calls_survive_the_freeing_of_neighbours)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct state st = {.loop = loop};

        for (int i = 0; i < 20; i++) {
                ASSERT_OK(cop_loop_add_defer(loop, i == 11 ? free_neighbours : count_defer, &st, &st.sources[i], NULL),
                          NULL);
                cop_source_set_enabled(st.sources[i], 1);
        }
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        for (int i = 1; i < 20; i += 2)
                if (i != 11)
                        ASSERT_EQ(st.counts[i], 1); /* those that live were called in the very same turn */
        st.calls = 0;
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(st.calls, 10);
}

static void on_child(struct cop_source *s, const siginfo_t *si, void *userdata)
{
        struct state *st = userdata;

        st->calls++;
        st->si = *si;
        cop_loop_quit(st->loop, 5);
}

TEST(children_are_reaped)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct state st = {.loop = loop};
        pid_t pid = fork();

        if (pid == 0)
                _exit(7);
        ASSERT_OK(cop_loop_add_child(loop, pid, on_child, &st, NULL, NULL), NULL);
        ASSERT_EQ(cop_loop_run(loop), 5);
        ASSERT_EQ(st.si.si_pid, pid);
        ASSERT_EQ(st.si.si_code, CLD_EXITED);
        ASSERT_EQ(st.si.si_status, 7);
        ASSERT_EQ(waitpid(pid, NULL, WNOHANG), -1);
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(st.calls, 1);
}

TEST(a_child_reaped_by_somebody_else_ends_the_watch)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct state st = {.loop = loop};
        pid_t pid = fork();

        if (pid == 0)
                _exit(7);
        ASSERT_OK(cop_loop_add_child(loop, pid, on_child, &st, NULL, NULL), NULL);
        ASSERT_EQ(waitpid(pid, NULL, 0), pid);
        ASSERT_EQ(cop_loop_run(loop), 5);
        ASSERT_EQ(st.si.si_code, 0);
        ASSERT_OK(cop_loop_turn(loop, 0), NULL);
        ASSERT_EQ(st.calls, 1);
}

TEST(a_child_that_is_only_reaped)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        pid_t pid = fork();

        if (pid == 0)
                _exit(7);
        ASSERT_OK(cop_loop_add_child(loop, pid, NULL, NULL, NULL, NULL), NULL);
        for (int i = 0; i < 100 && kill(pid, 0) == 0; i++)
                ASSERT_OK(cop_loop_turn(loop, 100 * USEC_PER_MSEC), NULL);
        ASSERT_EQ(waitpid(pid, NULL, WNOHANG), -1);
}

TEST(no_child_no_watch)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_ERRNO(cop_loop_add_child(loop, 0x7ffffff0, on_child, NULL, NULL, &err), ESRCH);
}

static void on_signal(struct cop_source *s, int signo, void *userdata)
{
        struct state *st = userdata;

        st->calls += (unsigned)signo;
}

TEST(signals)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct state st = {.loop = loop};

        ASSERT_OK(cop_loop_add_signal(loop, SIGTERM, on_signal, &st, NULL, NULL), NULL);
        kill(getpid(), SIGTERM);
        ASSERT_OK(cop_loop_turn(loop, USEC_PER_SEC), NULL);
        ASSERT_EQ(st.calls, SIGTERM);
}

static void quit_timer(struct cop_source *s, usec_t now, void *userdata)
{
        cop_loop_quit(userdata, -3);
}

TEST(quit_ends_run_and_run_can_be_called_again)
{
        _cleanup_(cop_loop_freep) struct cop_loop *loop = new_loop();
        struct cop_source *timer = NULL;

        ASSERT_OK(cop_loop_add_timer(loop, 0, quit_timer, loop, &timer, NULL), NULL);
        ASSERT_EQ(cop_loop_run(loop), -3);
        cop_source_set_time(timer, 0);
        ASSERT_EQ(cop_loop_run(loop), -3);
        ASSERT(cop_loop_now(loop) <= cop_now(CLOCK_MONOTONIC));
}

TEST(free_takes_what_is_left)
{
        struct cop_loop *loop = new_loop();
        struct state st = {.loop = loop};
        pid_t pid = fork();

        if (pid == 0)
                _exit(0);
        ASSERT_OK(cop_loop_add_timer(loop, 5, count_timer, &st, NULL, NULL), NULL);
        ASSERT_OK(cop_loop_add_defer(loop, count_defer, &st, NULL, NULL), NULL);
        ASSERT_OK(cop_loop_add_child(loop, pid, on_child, &st, NULL, NULL), NULL);
        ASSERT_OK(cop_loop_add_signal(loop, SIGUSR1, on_signal, &st, NULL, NULL), NULL);
        ASSERT(cop_loop_free(loop) == NULL);
        ASSERT(cop_loop_free(NULL) == NULL);
        ASSERT_EQ(waitpid(pid, NULL, 0), pid);
}
