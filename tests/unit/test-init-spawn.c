/* coppice-init as pid 1: starting, reaping, signals, and what programs inside see of it. */
#include "init-driver.h"

static struct driver d;
static struct cop_error err;

#define OUT() COP_BUF(1 << 20)

TEST(spawn_runs_as_default_user)
{
        _cleanup_buf_ struct cop_buf out = OUT();

        driver_start(&d);
        ASSERT_EQ(driver_shell(&d, NULL, "id -u; id -g; id -G; pwd; echo $HOME $USER $LOGNAME $SHELL $PATH", &out), 0);
        ASSERT_STR(out.data,
                   "1000\n1000\n1000 27 44\n/workspace\n"
                   "/home/user user user /bin/bash /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n");
        driver_stop(&d);
}

TEST(spawn_users)
{
        static const struct {
                const char *user, *output;
        } cases[] = {{"root", "0 0 0 /root\n"},
                     {"1001", "1001 1001 1001 27 /nowhere\n"},
                     {"other", "1001 1001 1001 27 /nowhere\n"},
                     {"user:video", "1000 44 44 27 /home/user\n"},
                     {"1234:5", "1234 5 5 /\n"},
                     {"1234", "1234 1234 1234 /\n"}};
        _cleanup_buf_ struct cop_buf out = OUT();
        struct spawn s = {.argv = {"true"}};
        pid_t pid;
        int fd;

        driver_start(&d);
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                ASSERT_EQ(driver_shell(&d, cases[i].user, "echo $(id -u) $(id -g) $(id -G) $HOME", &out), 0);
                ASSERT_STR(out.data, cases[i].output);
        }
        for (const char **bad = (const char *[]){"nobody-here", "70000", "user:nosuch", ":5", "-1", "us er", NULL};
             *bad; bad++) {
                s.user = *bad;
                ASSERT_CODE(driver_spawn(&d, &s, &pid, &fd, &err), &err, COP_ERR_bad_request);
        }
        driver_stop(&d);
}

TEST(spawn_environment_and_folder)
{
        struct spawn s = {.argv = {"/bin/sh", "-c",
                                   "echo \"$A|$PATH|$HOME\"; pwd; cat /proc/self/environ | tr '\\0' '\\n' | wc -l"},
                          .env = {"A=x=y z", "PATH=/usr/bin", "HOME="},
                          .cwd = "/tmp"};
        _cleanup_buf_ struct cop_buf out = OUT();
        pid_t pid;
        int fd;

        driver_start(&d);
        ASSERT_OK(driver_spawn(&d, &s, &pid, &fd, &err), &err);
        while (cop_buf_read(&out, fd, 4096) > 0)
                ;
        close(fd);
        ASSERT_EQ(driver_wait(&d, pid), 0);
        ASSERT_CONTAINS(out.data, "x=y z|/usr/bin|\n/tmp\n");
        s.env[0] = "novalue";
        ASSERT_CODE(driver_spawn(&d, &s, &pid, &fd, &err), &err, COP_ERR_bad_request);
        driver_stop(&d);
}

TEST(spawn_failures_say_why)
{
        static const struct {
                const char *program, *cwd;
                int errnum;
                const char *message;
        } cases[] = {{"nosuch", NULL, ENOENT, "nosuch: command not found"},
                     {"/no/such", NULL, ENOENT, "/no/such: No such file"},
                     {"/etc/passwd/x", NULL, ENOENT, "Not a directory"},
                     {"/etc/passwd", NULL, EACCES, "ermission denied"},
                     {"/etc", NULL, EACCES, "ermission denied"},
                     {"/workspace/script", NULL, EACCES, "interpreter"},
                     {"true", "/nosuch", ENOTDIR, "working folder /nosuch"},
                     {"true", "/etc/passwd", ENOTDIR, "working folder /etc/passwd"},
                     {"true", "/root", ENOTDIR, "working folder /root"}};
        pid_t pid;
        int fd;

        driver_start(&d);
        ASSERT_EQ(
                driver_shell(
                        &d, "root",
                        "chmod 700 /root; printf '#!/no/such/shell\\n' >/workspace/script; chmod +x /workspace/script",
                        NULL),
                0);
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                struct spawn s = {.argv = {cases[i].program}, .cwd = cases[i].cwd};
                ASSERT_ERRNO(driver_spawn(&d, &s, &pid, &fd, &err), cases[i].errnum);
                ASSERT_EQ(err.code, COP_ERR_exec_failed);
                ASSERT_CONTAINS(err.message, cases[i].message);
        }
        struct spawn empty = {.argv = {NULL}}, blank = {.argv = {""}};
        ASSERT_CODE(driver_spawn(&d, &empty, &pid, &fd, &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(driver_spawn(&d, &blank, &pid, &fd, &err), &err, COP_ERR_bad_request);
        ASSERT_EQ(driver_shell(&d, NULL, "exit 7", NULL), 7 << 8); /* still serving, and no event for what never ran */
        ASSERT_EQ(d.ended_count, 0);
        driver_stop(&d);
}

TEST(spawn_child_is_clean)
{
        _cleanup_buf_ struct cop_buf out = OUT();

        driver_start(&d);
        ASSERT_EQ(
                driver_shell(
                        &d, NULL,
                        "ls /proc/self/fd | tr '\\n' ' '; cat /proc/self/oom_score_adj; umask;"
                        "grep -E 'SigBlk|SigIgn|CapPrm|CapEff|CapInh|CapAmb' /proc/self/status | sort -u | tr -d '\\t';"
                        "ulimit -c; test $(ps -o sid= -p $$) = $$ && echo leader",
                        &out),
                0);
        ASSERT_CONTAINS(out.data, "0 1 2 3 500\n0022\n"); /* 3 is that of ls itself */
        ASSERT_CONTAINS(out.data,
                        "CapAmb:0000000000000000\nCapEff:0000000000000000\nCapInh:0000000000000000\n"
                        "CapPrm:0000000000000000\nSigBlk:0000000000000000\nSigIgn:0000000000000000\n0\nleader\n");
        driver_stop(&d);
}

TEST(spawn_rlimit_data_is_soft)
{
        struct spawn s = {.argv = {"bash", "-c", "ulimit -Sd; ulimit -Hd"}, .rlimit_data = 1ULL << 30};
        _cleanup_buf_ struct cop_buf out = OUT();
        pid_t pid;
        int fd;

        driver_start(&d);
        ASSERT_OK(driver_spawn(&d, &s, &pid, &fd, &err), &err);
        while (cop_buf_read(&out, fd, 4096) > 0)
                ;
        close(fd);
        driver_wait(&d, pid);
        ASSERT_STR(out.data, "1048576\nunlimited\n");
        driver_stop(&d);
}

TEST(spawn_statuses)
{
        driver_start(&d);
        ASSERT_EQ(driver_shell(&d, NULL, "exit 255", NULL), 255 << 8);
        ASSERT_EQ(driver_shell(&d, NULL, "kill -9 $$", NULL), 9);
        ASSERT_EQ(driver_shell(&d, NULL, "kill -SEGV $$", NULL), 11); /* no core bit */
        driver_stop(&d);
}

TEST(orphans_are_reaped)
{
        _cleanup_buf_ struct cop_buf out = OUT();

        driver_start(&d);
        ASSERT_EQ(driver_shell(&d, NULL, "for i in $(seq 50); do (sleep 0.01 &) ; done >/dev/null 2>&1", NULL), 0);
        usleep(300000);
        ASSERT_EQ(driver_shell(&d, NULL, "ps -eo stat= | grep -c Z", &out), 1 << 8);
        ASSERT_STR(out.data, "0\n");
        ASSERT_EQ(d.ended_count, 0); /* silently */
        driver_stop(&d);
}

TEST(init_is_closed_to_the_inside)
{
        _cleanup_buf_ struct cop_buf out = OUT();

        driver_start(&d);
        ASSERT_NE(driver_shell(&d, NULL, "cat /proc/1/environ", &out), 0);
        ASSERT_NE(driver_shell(&d, NULL, "ls /proc/1/fd/", &out), 0);
        ASSERT_NE(driver_shell(&d, NULL, "cat /proc/1/maps", &out), 0);
        driver_shell(&d, "root", "cat /proc/1/environ | tr -d '\\0'", &out);
        ASSERT(!out.data || !strstr(out.data, "swordfish"));
        /* Root of the sandbox may signal it, and it does not care. */
        ASSERT_EQ(driver_shell(&d, "root", "for s in 1 2 3 6 9 10 11 13 14 15 17 19 20; do kill -$s 1; done", NULL), 0);
        ASSERT_NE(driver_shell(&d, NULL, "kill -9 1", NULL), 0);
        ASSERT_EQ(driver_shell(&d, NULL, "exit 3", NULL), 3 << 8);
        driver_stop(&d);
}

TEST(kill_only_what_was_spawned)
{
        static const pid_t bad[] = {1, -1, 0, -5};
        struct spawn s = {.argv = {"sh", "-c", "setsid sleep 100 & echo $!; exec sleep 100"}};
        char line[32] = "";
        pid_t pid;
        int fd;

        driver_start(&d);
        ASSERT_OK(driver_spawn(&d, &s, &pid, &fd, &err), &err);
        ASSERT_GT(read(fd, line, sizeof(line) - 1), 0);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                ASSERT_CODE(driver_kill(&d, bad[i], SIGKILL, 0, &err), &err, COP_ERR_bad_request);
                ASSERT_CODE(driver_kill(&d, bad[i], SIGKILL, COP_EXEC_GROUP, &err), &err, COP_ERR_bad_request);
        }
        ASSERT_CODE(driver_kill(&d, atoi(line), SIGKILL, 0, &err), &err,
                    COP_ERR_command_not_found); /* not spawned by init */
        ASSERT_CODE(driver_kill(&d, pid, 1000, 0, &err), &err, COP_ERR_bad_request);
        ASSERT_OK(driver_kill(&d, pid, 0, 0, &err), &err);
        ASSERT_OK(driver_kill(&d, pid, SIGTERM, 0, &err), &err);
        ASSERT_EQ(driver_wait(&d, pid), SIGTERM);
        ASSERT_ERRNO(driver_kill(&d, pid, SIGTERM, 0, &err), ESRCH);
        close(fd);
        driver_stop(&d);
}

TEST(kill_group_after_its_leader_ended)
{
        struct spawn s = {.argv = {"sh", "-c", "sleep 100 & echo hi"}};
        _cleanup_buf_ struct cop_buf out = OUT();
        pid_t pid;
        int fd;

        driver_start(&d);
        ASSERT_OK(driver_spawn(&d, &s, &pid, &fd, &err), &err);
        ASSERT_EQ(driver_wait(&d, pid), 0); /* at once, with the sleep alive */
        ASSERT_ERRNO(driver_kill(&d, pid, SIGTERM, 0, &err), ESRCH);
        ASSERT_OK(driver_kill(&d, pid, 0, COP_EXEC_GROUP, &err), &err);
        ASSERT_OK(driver_kill(&d, pid, SIGTERM, COP_EXEC_GROUP, &err), &err);
        while (cop_buf_read(&out, fd, 4096) > 0) /* ends when the sleep is gone */
                ;
        ASSERT_STR(out.data, "hi\n");
        close(fd);
        int r; /* the sleep is a member until it is reaped */
        for (int i = 0; i < 100 && (r = driver_kill(&d, pid, SIGTERM, COP_EXEC_GROUP, &err)) == 0; i++)
                usleep(10000);
        ASSERT_ERRNO(r, ESRCH);
        driver_stop(&d);
}

TEST(many_at_once)
{
        enum { COUNT = 60 };
        struct spawn s = {.argv = {"sh", "-c", "exit 4"}, .no_output = true};
        pid_t pid;
        int fd, rounds;

        driver_start(&d);
        for (rounds = 0; rounds < 10; rounds++) {
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
                for (int i = 0; i < COUNT; i++) { /* without waiting for the replies */
                        driver_new(&d, &m, COP_WIRE_SPAWN);
                        cop_msg_add_str(&m, COP_TAG_ARGV, i % 10 ? "true" : "nosuch");
                        driver_send(&d, &m);
                        cop_msg_done(&m);
                }
                int ended = 0, failed = 0, started = 0;
                while (ended + failed < COUNT || started + failed < COUNT) {
                        ASSERT_EQ(cop_msg_recv(d.fd, &m), 1);
                        if (m.type == COP_WIRE_CHILD)
                                ended++;
                        else if (cop_msg_get_error(&m, &err))
                                failed++;
                        else
                                started++;
                        cop_msg_done(&m);
                }
                ASSERT_EQ(failed, COUNT / 10);
        }
        ASSERT_OK(driver_spawn(&d, &s, &pid, &fd, &err), &err);
        ASSERT_EQ(driver_wait(&d, pid), 4 << 8);
        driver_stop(&d);
}

TEST(unread_events_wait_and_none_is_lost)
{
        enum { COUNT = 1500 };
        struct spawn s = {.argv = {"true"}, .no_output = true};
        int replies = 0, events = 0, sent = 0;

        driver_start(&d);
        fcntl(d.fd, F_SETFL, O_NONBLOCK);
        while (replies < COUNT || events < COUNT) { /* sends as long as it can, then reads one packet */
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
                while (sent < COUNT) {
                        cop_msg_init(&m, COP_WIRE_SPAWN, (uint32_t)sent + 1);
                        cop_msg_add_str(&m, COP_TAG_ARGV, s.argv[0]);
                        int r = cop_msg_send(d.fd, &m);
                        cop_msg_done(&m);
                        if (r == -EAGAIN)
                                break;
                        ASSERT_EQ(r, 0);
                        sent++;
                }
                struct pollfd p = {.fd = d.fd, .events = POLLIN};
                ASSERT_EQ(poll(&p, 1, 20000), 1);
                ASSERT_EQ(cop_msg_recv(d.fd, &m), 1);
                if (m.type == COP_WIRE_CHILD) {
                        events++;
                } else {
                        if (cop_msg_get_error(&m, &err)) { /* too many at a time: allowed to refuse */
                                ASSERT_EQ(err.code, COP_ERR_too_many);
                                events++;
                        }
                        replies++;
                }
        }
        driver_stop(&d);
}

TEST(garbage_on_the_control_socket)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;

        driver_start(&d);
        ASSERT_EQ(send(d.fd, "garbage", 7, 0), 7);
        driver_new(&d, &m, 999);
        ASSERT_CODE(driver_call(&d, &m, &reply, &err), &err, COP_ERR_internal);
        cop_msg_done(&m);
        cop_msg_done(&reply);
        driver_new(&d, &m, COP_WIRE_KILL);
        ASSERT_CODE(driver_call(&d, &m, &reply, &err), &err, COP_ERR_bad_request);
        cop_msg_done(&m);
        cop_msg_done(&reply);
        driver_new(&d, &m, COP_WIRE_SPAWN);
        cop_msg_add_bytes(&m, COP_TAG_ARGV, "a\0b", 3);
        ASSERT_CODE(driver_call(&d, &m, &reply, &err), &err, COP_ERR_bad_request);
        ASSERT_EQ(driver_shell(&d, NULL, "exit 3", NULL), 3 << 8);
        driver_stop(&d);
}

TEST(hostile_user_databases)
{
        driver_start(&d);
        /* A FIFO instead of /etc/passwd must not hang anything: names are unknown then, numbers work. */
        ASSERT_EQ(driver_shell(&d, "root",
                               "rm /etc/passwd; mkfifo /etc/passwd; rm /etc/group; ln -s /dev/zero /etc/group", NULL),
                  0);
        ASSERT_EQ(driver_shell(&d, "1000", "exit 5", NULL), 5 << 8);
        struct spawn s = {.argv = {"true"}, .user = "user"};
        pid_t pid;
        int fd;
        ASSERT_CODE(driver_spawn(&d, &s, &pid, &fd, &err), &err, COP_ERR_bad_request);
        ASSERT_EQ(driver_shell(&d, "0", "rm /etc/passwd; head -c 3000000 /dev/zero | tr '\\0' ':' >/etc/passwd", NULL),
                  0);
        ASSERT_CODE(driver_spawn(&d, &s, &pid, &fd, &err), &err, COP_ERR_bad_request);
        ASSERT_EQ(driver_shell(&d, NULL, "exit 6", NULL), 6 << 8);
        driver_stop(&d);
}

#ifndef __SANITIZE_ADDRESS__
TEST(resident_memory_is_small)
{
        _cleanup_buf_ struct cop_buf out = OUT();

        driver_start(&d);
        for (int i = 0; i < 50; i++)
                ASSERT_EQ(driver_shell(&d, NULL, "exit 0", NULL), 0);
        ASSERT_EQ(driver_shell(&d, "root", "grep RssAnon /proc/1/status | tr -dc 0-9", &out), 0);
        ASSERT_LT(atoi(out.data), 1024);
        driver_stop(&d);
}
#endif
