/* The keeper's client against a fake keeper in a process of its own. */
#include "lib/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "engine/keeper.h"

struct fixture {
        struct cop_loop *loop;
        struct cop_keeper *keeper;
        char path[300];
        pid_t pid;
        unsigned replies, events, lost;
        uint64_t last; /* PID of the last reply */
        char order[80];
        struct cop_error err;
        bool free_in_reply, free_in_event;
};

typedef void (*script_fn)(int fd);

static void on_event(struct cop_msg *event, void *userdata)
{
        struct fixture *f = userdata;

        f->events++;
        if (f->free_in_event)
                f->keeper = cop_keeper_free(f->keeper);
}

static void on_lost(const struct cop_error *err, void *userdata)
{
        struct fixture *f = userdata;

        f->lost++;
        f->err = *err;
}

static void on_reply(struct cop_msg *reply, const struct cop_error *err, void *userdata)
{
        struct fixture *f = userdata;

        f->replies++;
        f->err = err ? *err : COP_ERROR_NULL;
        f->last = reply ? cop_msg_u64_or(reply, COP_TAG_PID, 0) : 0;
        if (strlen(f->order) < sizeof(f->order) - 20)
                snprintf(f->order + strlen(f->order), 20, "%u ", (unsigned)f->last);
        if (f->free_in_reply)
                f->keeper = cop_keeper_free(f->keeper);
}

static int listen_at(const char *path)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 1) < 0)
                FAIL("%s: %s", path, strerror(errno));
        return fd;
}

static void open_fixture(struct fixture *f, script_fn script)
{
        const struct cop_keeper_events events = {on_event, on_lost, f};
        struct cop_error err;

        snprintf(f->path, sizeof(f->path), "%s/keeper.sock", test_dir());
        int fd = listen_at(f->path);
        f->pid = fork();
        ASSERT_GE(f->pid, 0);
        if (f->pid == 0) {
                int client = accept(fd, NULL, NULL);
                script(client);
                _exit(0);
        }
        close(fd);
        ASSERT_OK(cop_loop_new(&f->loop, &err), &err);
        ASSERT_OK(cop_keeper_connect(f->loop, f->path, &events, &f->keeper, &err), &err);
}

static void close_fixture(struct fixture *f)
{
        cop_keeper_free(f->keeper);
        cop_loop_free(f->loop);
        kill(f->pid, SIGKILL);
        waitpid(f->pid, NULL, 0);
}

static struct cop_keeper_call *call(struct fixture *f, usec_t deadline)
{
        struct cop_msg m;

        cop_msg_init(&m, COP_WIRE_STATS, 0);
        return cop_keeper_call(f->keeper, &m, deadline, on_reply, f);
}

static void turn_until(struct fixture *f, const unsigned *counter, unsigned wanted)
{
        while (*counter < wanted)
                ASSERT_OK(cop_loop_turn(f->loop, USEC_PER_SEC), NULL);
}

/* -- scripts: run in the fake keeper ------------------------------------------------------------------------------- */

static bool receive(int fd, struct cop_msg *m)
{
        return cop_msg_recv(fd, m) > 0;
}

static void reply(int fd, uint32_t id, uint64_t pid)
{
        _cleanup_msg_ struct cop_msg m;

        cop_msg_init(&m, COP_WIRE_REPLY, id);
        cop_msg_add_u64(&m, COP_TAG_PID, pid);
        if (cop_msg_send(fd, &m) < 0)
                _exit(1);
}

static void send_event(int fd)
{
        _cleanup_msg_ struct cop_msg m;

        cop_msg_init(&m, COP_WIRE_EVENT_LOG, 0);
        cop_msg_send(fd, &m);
}

static void serve_all(int fd)
{
        struct cop_msg m;

        while (receive(fd, &m)) {
                reply(fd, m.id, m.id);
                cop_msg_done(&m);
        }
}

static void serve_backwards(int fd)
{
        uint32_t ids[3];

        for (int i = 0; i < 3; i++) {
                struct cop_msg m;
                if (!receive(fd, &m))
                        return;
                ids[i] = m.id;
                cop_msg_done(&m);
        }
        for (int i = 2; i >= 0; i--)
                reply(fd, ids[i], ids[i]);
        pause();
}

static void serve_error(int fd)
{
        struct cop_msg m;
        struct cop_error err;

        if (!receive(fd, &m))
                return;
        _cleanup_msg_ struct cop_msg answer;
        cop_msg_init(&answer, COP_WIRE_REPLY, m.id);
        cop_error_set(&err, ENOSPC, COP_ERR_disk_full, "no room for it");
        cop_msg_add_error(&answer, &err);
        cop_msg_send(fd, &answer);
        pause();
}

static void serve_nothing(int fd)
{
        pause();
}

static void serve_late(int fd)
{
        struct cop_msg m;

        if (!receive(fd, &m))
                return;
        usleep(150000);
        reply(fd, m.id, 1);
        if (!receive(fd, &m))
                return;
        reply(fd, m.id, 2);
        pause();
}

static void serve_events_then_die(int fd)
{
        struct cop_msg m;

        if (!receive(fd, &m))
                return;
        for (int i = 0; i < 5; i++)
                send_event(fd);
}

static void serve_garbage(int fd)
{
        if (write(fd, "garbage", 7) == 7)
                pause();
}

/* Reads nothing until told to by a signal-free way: the socket is full by then. */
static void serve_slowly(int fd)
{
        usleep(300000);
        serve_all(fd);
}

static void serve_with_fd(int fd)
{
        struct cop_msg m;

        if (!receive(fd, &m) || m.fd_count != 1 || write(m.fds[0], "hello", 5) != 5)
                return;
        reply(fd, m.id, 1);
        pause();
}

/* -- tests --------------------------------------------------------------------------------------------------------- */

TEST(replies_find_their_calls_in_any_order)
{
        struct fixture f = {0};

        open_fixture(&f, serve_backwards);
        call(&f, USEC_INFINITY);
        call(&f, USEC_INFINITY);
        call(&f, USEC_INFINITY);
        turn_until(&f, &f.replies, 3);
        ASSERT_STR(f.order, "3 2 1 ");
        close_fixture(&f);
}

TEST(an_error_reply_keeps_its_code)
{
        struct fixture f = {0};

        open_fixture(&f, serve_error);
        call(&f, USEC_INFINITY);
        turn_until(&f, &f.replies, 1);
        ASSERT_EQ(f.err.code, COP_ERR_disk_full);
        ASSERT_EQ(f.err.errnum, ENOSPC);
        ASSERT_CONTAINS(f.err.message, "no room for it");
        close_fixture(&f);
}

TEST(a_silent_keeper_runs_into_the_deadline)
{
        struct fixture f = {0};

        open_fixture(&f, serve_nothing);
        call(&f, 50 * USEC_PER_MSEC);
        call(&f, USEC_INFINITY);
        turn_until(&f, &f.replies, 1);
        ASSERT_EQ(f.err.code, COP_ERR_timeout);
        ASSERT_OK(cop_loop_turn(f.loop, 20 * USEC_PER_MSEC), NULL);
        ASSERT_EQ(f.replies, 1);
        ASSERT_EQ(f.lost, 0);
        close_fixture(&f);
}

TEST(a_reply_after_the_deadline_goes_to_nobody)
{
        struct fixture f = {0};

        open_fixture(&f, serve_late);
        call(&f, 20 * USEC_PER_MSEC);
        turn_until(&f, &f.replies, 1);
        ASSERT_EQ(f.err.code, COP_ERR_timeout);
        call(&f, USEC_INFINITY);
        turn_until(&f, &f.replies, 2);
        ASSERT_EQ(f.last, 2);
        close_fixture(&f);
}

TEST(a_cancelled_call_is_not_answered)
{
        struct fixture f = {0};

        open_fixture(&f, serve_all);
        cop_keeper_call_cancel(call(&f, USEC_INFINITY));
        call(&f, USEC_INFINITY);
        turn_until(&f, &f.replies, 1);
        ASSERT_EQ(f.last, 2);
        cop_keeper_call_cancel(NULL);
        close_fixture(&f);
}

TEST(events_before_the_end_are_delivered_and_open_calls_fail_once)
{
        struct fixture f = {0};

        open_fixture(&f, serve_events_then_die);
        call(&f, USEC_INFINITY);
        turn_until(&f, &f.lost, 1);
        ASSERT_EQ(f.events, 5);
        ASSERT_EQ(f.replies, 1);
        ASSERT_EQ(f.err.code, COP_ERR_unavailable);
        /* Asking on is an answer, not a crash. */
        call(&f, USEC_INFINITY);
        ASSERT_EQ(f.replies, 1);
        turn_until(&f, &f.replies, 2);
        ASSERT_EQ(f.err.code, COP_ERR_unavailable);
        ASSERT_EQ(f.lost, 1);
        close_fixture(&f);
}

TEST(what_is_no_message_ends_the_connection)
{
        struct fixture f = {0};

        open_fixture(&f, serve_garbage);
        turn_until(&f, &f.lost, 1);
        ASSERT_CONTAINS(f.err.message, "no message");
        close_fixture(&f);
}

TEST(a_full_socket_queues_and_then_drains_in_order)
{
        struct fixture f = {0};
        static char block[60000];

        open_fixture(&f, serve_slowly);
        for (int i = 0; i < 100; i++) {
                struct cop_msg m;
                cop_msg_init(&m, COP_WIRE_STATS, 0);
                cop_msg_add_bytes(&m, COP_TAG_NAME, block, sizeof(block));
                cop_keeper_call(f.keeper, &m, USEC_INFINITY, on_reply, &f);
        }
        turn_until(&f, &f.replies, 100);
        ASSERT_EQ(f.last, 100);
        ASSERT_EQ(f.err.errnum, 0);
        close_fixture(&f);
}

TEST(the_queue_has_an_end)
{
        struct fixture f = {0};
        static char block[100000];
        unsigned refused = 0;

        open_fixture(&f, serve_nothing);
        for (int i = 0; i < 5; i++) {
                struct cop_msg m;
                cop_msg_init(&m, COP_WIRE_STATS, 0);
                cop_msg_add_bytes(&m, COP_TAG_NAME, block, sizeof(block));
                cop_keeper_call(f.keeper, &m, USEC_INFINITY, on_reply, &f);
        }
        for (int i = 0; i < 4200; i++)
                call(&f, USEC_INFINITY);
        for (int i = 0; i < 20; i++)
                ASSERT_OK(cop_loop_turn(f.loop, 0), NULL);
        refused = f.replies;
        ASSERT_GT(refused, 90);
        ASSERT_LT(refused, 130);
        ASSERT_EQ(f.err.code, COP_ERR_too_many);
        close_fixture(&f);
}

TEST(a_message_that_is_too_large_says_so)
{
        struct fixture f = {0};
        struct cop_msg m;
        _cleanup_free_ char *block = calloc(1, COP_MSG_MAX);

        open_fixture(&f, serve_all);
        cop_msg_init(&m, COP_WIRE_STATS, 0);
        cop_msg_add_bytes(&m, COP_TAG_NAME, block, COP_MSG_MAX);
        cop_keeper_call(f.keeper, &m, USEC_INFINITY, on_reply, &f);
        turn_until(&f, &f.replies, 1);
        ASSERT_EQ(f.err.code, COP_ERR_bad_request);
        ASSERT_CONTAINS(f.err.message, "too large");
        call(&f, USEC_INFINITY);
        turn_until(&f, &f.replies, 2);
        ASSERT_EQ(f.err.errnum, 0);
        close_fixture(&f);
}

TEST(descriptors_travel)
{
        struct fixture f = {0};
        struct cop_msg m;
        int fds[2];
        char text[6] = "";

        open_fixture(&f, serve_with_fd);
        ASSERT_OK(pipe(fds), NULL);
        cop_msg_init(&m, COP_WIRE_EXEC, 0);
        cop_msg_add_fd(&m, fds[1]);
        cop_keeper_call(f.keeper, &m, USEC_INFINITY, on_reply, &f);
        turn_until(&f, &f.replies, 1);
        ASSERT_EQ(read(fds[0], text, 5), 5);
        ASSERT_STR(text, "hello");
        close(fds[0]);
        close_fixture(&f);
}

TEST(freed_inside_its_own_callbacks)
{
        struct fixture f = {.free_in_reply = true}, g = {.free_in_event = true};

        open_fixture(&f, serve_all);
        call(&f, USEC_INFINITY);
        call(&f, USEC_INFINITY);
        turn_until(&f, &f.replies, 1);
        ASSERT_OK(cop_loop_turn(f.loop, 10 * USEC_PER_MSEC), NULL);
        ASSERT_EQ(f.replies, 1);
        ASSERT_EQ(f.keeper, NULL);
        close_fixture(&f);
        unlink(f.path);

        open_fixture(&g, serve_events_then_die);
        call(&g, USEC_INFINITY);
        turn_until(&g, &g.events, 1);
        ASSERT_OK(cop_loop_turn(g.loop, 10 * USEC_PER_MSEC), NULL);
        ASSERT_EQ(g.events, 1);
        ASSERT_EQ(g.lost, 0);
        close_fixture(&g);
}

TEST(nobody_listens)
{
        const struct cop_keeper_events events = {0};
        struct cop_keeper *k = NULL;
        struct cop_loop *loop;
        struct cop_error err;
        char path[300];

        ASSERT_OK(cop_loop_new(&loop, &err), &err);
        snprintf(path, sizeof(path), "%s/none.sock", test_dir());
        ASSERT_ERRNO(cop_keeper_connect(loop, path, &events, &k, &err), ENOENT);
        close(listen_at(path));
        ASSERT_ERRNO(cop_keeper_connect(loop, path, &events, &k, &err), ECONNREFUSED);
        cop_loop_free(loop);
}

/* A path far beyond sun_path, as a deep COPPICE_HOME gives. */
static void deep_folder(char path[static 600])
{
        int n = snprintf(path, 600, "%s", test_dir());

        for (int i = 0; i < 8; i++) {
                n += snprintf(path + n, 600 - (size_t)n, "/a-folder-with-a-name-of-some-length-%d", i);
                ASSERT_OK(mkdir(path, 0700), NULL);
        }
}

TEST(a_keeper_is_started_with_its_socket)
{
        const struct cop_keeper_events events = {0};
        struct cop_keeper *k = NULL;
        struct cop_loop *loop;
        struct cop_error err;
        char dir[600], socket_path[700], log_path[700], script[700];
        _cleanup_free_ char *log = NULL;
        struct stat st;
        size_t n = 0;

        ASSERT_OK(cop_loop_new(&loop, &err), &err);
        deep_folder(dir);
        snprintf(socket_path, sizeof(socket_path), "%s/keeper.sock", dir);
        snprintf(log_path, sizeof(log_path), "%s/log", dir);
        snprintf(script, sizeof(script), "%s/keeper", dir);
        static const char text[] = "#!/bin/sh\necho \"$@\" >&2\nreadlink /proc/self/fd/3 >&2\nps -o sid= -p $$ "
                                   ">/dev/null\nexec sleep 30\n";
        ASSERT_OK(cop_write_file_atomic(AT_FDCWD, script, text, strlen(text), 0755, &err), &err);
        const struct cop_keeper_start start = {script, socket_path, log_path, -EBADF};
        ASSERT_OK(cop_keeper_start(loop, &start, &events, &k, &err), &err);
        ASSERT_OK(stat(socket_path, &st), NULL);
        ASSERT_EQ(st.st_mode & 0777, 0600);
        for (int i = 0; i < 1000 && (!log || !strstr(log, "socket:")); i++) {
                usleep(2000);
                free(TAKE_PTR(log));
                ASSERT_OK(cop_read_file(AT_FDCWD, log_path, 65536, &log, &n, &err), &err);
        }
        ASSERT_CONTAINS(log, "--socket-fd 3\nsocket:");
        cop_keeper_kill(k);
        cop_keeper_free(k);
        cop_loop_free(loop);
}

TEST(a_keeper_that_cannot_be_started_leaves_no_socket)
{
        const struct cop_keeper_events events = {0};
        struct cop_keeper *k = NULL;
        struct cop_loop *loop;
        struct cop_error err;
        char socket_path[300], log_path[300];

        ASSERT_OK(cop_loop_new(&loop, &err), &err);
        snprintf(socket_path, sizeof(socket_path), "%s/k.sock", test_dir());
        snprintf(log_path, sizeof(log_path), "%s/log", test_dir());
        const struct cop_keeper_start start = {"/nonexistent/keeper", socket_path, log_path, -EBADF};
        ASSERT_ERRNO(cop_keeper_start(loop, &start, &events, &k, &err), ENOENT);
        ASSERT_CONTAINS(err.message, "/nonexistent/keeper");
        ASSERT(access(socket_path, F_OK) < 0);
        cop_loop_free(loop);
}

TEST(a_keeper_that_dies_at_once_is_lost)
{
        struct fixture f = {0};
        const struct cop_keeper_events events = {on_event, on_lost, &f};
        struct cop_error err;
        char socket_path[300], log_path[300];

        ASSERT_OK(cop_loop_new(&f.loop, &err), &err);
        snprintf(socket_path, sizeof(socket_path), "%s/k.sock", test_dir());
        snprintf(log_path, sizeof(log_path), "%s/log", test_dir());
        const struct cop_keeper_start start = {"/bin/false", socket_path, log_path, -EBADF};
        ASSERT_OK(cop_keeper_start(f.loop, &start, &events, &f.keeper, &err), &err);
        call(&f, USEC_INFINITY);
        turn_until(&f, &f.replies, 1);
        ASSERT_EQ(f.err.code, COP_ERR_unavailable);
        cop_keeper_free(f.keeper);
        cop_loop_free(f.loop);
}
