/* Starts coppice-init as pid 1 of fresh namespaces on a small root (the host's /usr, its own /etc, /tmp, /workspace)
 * and speaks wire.h with it.  Needs root. */
#pragma once

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/msg.h"
#include "lib/test.h"
#include "sandbox/wire.h"

#define EVENTS_MAX 64

struct driver {
        int fd;
        pid_t outer; /* parent of init in our pid namespace */
        uint32_t next_id;
        struct {
                pid_t pid;
                int status;
        } ended[EVENTS_MAX];
        size_t ended_count;
};

static inline void driver_write(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
                perror(path);
                _exit(99);
        }
        close(fd);
}

#define DRIVER_CHECK(x)             \
        do {                        \
                if ((x) < 0) {      \
                        perror(#x); \
                        _exit(99);  \
                }                   \
        } while (0)

static inline void driver_make_root(const char *root)
{
        static const char *const folders[] = {"usr",       "etc",  "proc",      "dev", "tmp",
                                              "workspace", "home", "home/user", "root"};
        static const char *const links[] = {"bin", "sbin", "lib", "lib64"};
        char target[64];

        DRIVER_CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
        DRIVER_CHECK(mount("tmpfs", root, "tmpfs", 0, "mode=0755,size=64m"));
        DRIVER_CHECK(chdir(root));
        for (size_t i = 0; i < ELEMENTSOF(folders); i++)
                DRIVER_CHECK(mkdir(folders[i], 0755));
        for (size_t i = 0; i < ELEMENTSOF(links); i++) {
                snprintf(target, sizeof(target), "usr/%s", links[i]);
                DRIVER_CHECK(symlink(target, links[i]));
        }
        DRIVER_CHECK(mount("/usr", "usr", NULL, MS_BIND | MS_REC, NULL));
        driver_write("dev/null", "");
        DRIVER_CHECK(mount("/dev/null", "dev/null", NULL, MS_BIND, NULL));
        DRIVER_CHECK(mount("proc", "proc", "proc", 0, NULL));
        DRIVER_CHECK(chmod("tmp", 01777));
        DRIVER_CHECK(chown("workspace", 1000, 1000));
        DRIVER_CHECK(chown("home/user", 1000, 1000));
        driver_write("etc/passwd",
                     "root:x:0:0:root:/root:/bin/bash\nbroken line\nuser:x:1000:1000::/home/user:/bin/bash\n"
                     "other:x:1001:1001:,,,:/nowhere:/bin/sh");
        driver_write("etc/group", "root:x:0:\nsudo:x:27:user,other\nuser:x:1000:\nvideo:x:44:x,user\n");
        DRIVER_CHECK(chroot("."));
        DRIVER_CHECK(chdir("/"));
}

static inline void driver_exec_init(int control_fd, int init_fd, const char *root, const char *option)
{
        const char *const argv[] = {"coppice-init", "--user=1000:1000", "--workdir=/workspace", option, NULL};
        /* Looking for leaks means tracing, which init does not let; a handler would make it die by kill -SEGV from inside. */
        static const char *const env[] = {"SECRET=swordfish", "ASAN_OPTIONS=detect_leaks=0:handle_segv=0", NULL};

        driver_make_root(root);
        DRIVER_CHECK(dup2(init_fd, 100));
        DRIVER_CHECK(dup2(control_fd, COP_INIT_CONTROL_FD));
        DRIVER_CHECK(fcntl(100, F_SETFD, FD_CLOEXEC));
        DRIVER_CHECK(close_range(4, 99, 0));
        syscall(SYS_execveat, 100, "", argv, env, AT_EMPTY_PATH);
        perror("coppice-init");
        _exit(99);
}

static inline int driver_open_init(void)
{
        char path[4096];
        const char *given = getenv("COPPICE_INIT");
        ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);

        if (n < 0)
                FAIL("readlink: %s", strerror(errno));
        path[n] = '\0';
        char *end = strstr(path, "/tests/");
        if (end)
                strcpy(end, "/src/init/coppice-init");
        int fd = open(given ? given : path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                FAIL("%s: %s", given ? given : path, strerror(errno));
        return fd;
}

static inline void driver_map(pid_t pid, const char *which)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/%s", pid, which);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0 100000 65536", 14) != 14)
                FAIL("%s: %s", path, strerror(errno));
        close(fd);
}

/* The next packet; CHILD events go to d->ended. */
static inline void driver_recv(struct driver *d, uint32_t id, struct cop_msg *ret)
{
        for (;;) {
                struct pollfd p = {.fd = d->fd, .events = POLLIN};
                if (poll(&p, 1, 100000) != 1)
                        FAIL("init does not answer");
                *ret = COP_MSG_NULL;
                int r = cop_msg_recv(d->fd, ret);
                if (r != 1)
                        FAIL("init ended: %d", r);
                if (ret->type == COP_WIRE_CHILD) {
                        ASSERT_LT(d->ended_count, EVENTS_MAX);
                        d->ended[d->ended_count].pid = (pid_t)cop_msg_u64_or(ret, COP_TAG_PID, 0);
                        d->ended[d->ended_count++].status = (int)cop_msg_u64_or(ret, COP_TAG_STATUS, 0);
                        cop_msg_done(ret);
                        if (id == 0)
                                return;
                        continue;
                }
                ASSERT_EQ(ret->id, id);
                return;
        }
}

static inline void driver_start_with(struct driver *d, const char *option)
{
        const char *root = test_dir(); /* before the fork: it belongs to this process */
        int sockets[2], ready[2], go[2];
        char c;

        if (geteuid() != 0)
                SKIP("needs root");
        int init_fd = driver_open_init();
        ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0);
        ASSERT(pipe2(ready, O_CLOEXEC) == 0 && pipe2(go, O_CLOEXEC) == 0);
        chmod(root, 0755);
        *d = (struct driver){.fd = sockets[0], .next_id = 1};
        d->outer = fork();
        if (d->outer == 0) {
                close(sockets[0]);
                DRIVER_CHECK(unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET));
                if (write(ready[1], "x", 1) != 1 || read(go[0], &c, 1) != 1)
                        _exit(99);
                DRIVER_CHECK(setgroups(0, NULL));
                DRIVER_CHECK(setresgid(0, 0, 0));
                DRIVER_CHECK(setresuid(0, 0, 0));
                pid_t pid = fork();
                if (pid == 0)
                        driver_exec_init(sockets[1], init_fd, root, option);
                int status;
                close(sockets[1]);
                waitpid(pid, &status, 0);
                _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        }
        close(ready[1]);
        if (read(ready[0], &c, 1) != 1)
                SKIP("no namespaces here");
        driver_map(d->outer, "gid_map");
        driver_map(d->outer, "uid_map");
        ASSERT(write(go[1], "x", 1) == 1);
        close(ready[0]);
        close(go[0]);
        close(go[1]);
        close(sockets[1]);
        close(init_fd);
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
        driver_recv(d, 0, &m);
        ASSERT_EQ(m.type, COP_WIRE_READY);
        ASSERT_EQ(cop_msg_u64_or(&m, COP_TAG_VERSION, 0), COP_WIRE_VERSION);
}

static inline void driver_start(struct driver *d)
{
        driver_start_with(d, NULL);
}

/* Closing the control socket ends the sandbox. */
static inline void driver_stop(struct driver *d)
{
        int status = -1;

        close(d->fd);
        ASSERT_EQ(waitpid(d->outer, &status, 0), d->outer);
        ASSERT_EQ(status, 0);
}

static inline void driver_new(struct driver *d, struct cop_msg *m, uint16_t type)
{
        cop_msg_init(m, type, d->next_id++);
}

static inline void driver_send(struct driver *d, struct cop_msg *m)
{
        int r = cop_msg_send(d->fd, m);

        if (r < 0)
                FAIL("sending: %s", strerror(-r));
        for (unsigned i = 0; i < m->fd_count; i++) /* the receiver has its own now */
                m->fds[i] = cop_close(m->fds[i]);
        m->fd_count = 0;
}

/* 0, or -errno with err: as the request was answered. */
static inline int driver_call(struct driver *d, struct cop_msg *m, struct cop_msg *ret, struct cop_error *err)
{
        driver_send(d, m);
        driver_recv(d, m->id, ret);
        ASSERT_EQ(ret->type, COP_WIRE_REPLY);
        return cop_msg_get_error(ret, err) ? -err->errnum : 0;
}

/* Status of a spawned process, waiting for its end. */
static inline int driver_wait(struct driver *d, pid_t pid)
{
        for (;;) {
                for (size_t i = 0; i < d->ended_count; i++)
                        if (d->ended[i].pid == pid) {
                                int status = d->ended[i].status;
                                d->ended[i] = d->ended[--d->ended_count];
                                return status;
                        }
                struct cop_msg m;
                driver_recv(d, 0, &m);
        }
}

struct spawn {
        const char *argv[8];
        const char *env[4];
        const char *cwd, *user;
        uint64_t rlimit_data;
        bool no_output;
};

/* Starts it; output (stdout and stderr) is readable from *ret_fd. */
static inline int driver_spawn(struct driver *d, const struct spawn *s, pid_t *ret_pid, int *ret_fd,
                               struct cop_error *err)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;
        int fds[2];

        driver_new(d, &m, COP_WIRE_SPAWN);
        for (size_t i = 0; s->argv[i]; i++)
                cop_msg_add_str(&m, COP_TAG_ARGV, s->argv[i]);
        for (size_t i = 0; s->env[i]; i++)
                cop_msg_add_str(&m, COP_TAG_ENV, s->env[i]);
        cop_msg_add_str(&m, COP_TAG_CWD, s->cwd);
        cop_msg_add_str(&m, COP_TAG_USER, s->user);
        if (s->rlimit_data)
                cop_msg_add_u64(&m, COP_TAG_RLIMIT_DATA, s->rlimit_data);
        *ret_fd = -EBADF;
        if (!s->no_output) {
                ASSERT(pipe2(fds, O_CLOEXEC) == 0);
                cop_msg_add_fd(&m, open("/dev/null", O_RDONLY | O_CLOEXEC));
                cop_msg_add_fd(&m, fcntl(fds[1], F_DUPFD_CLOEXEC, 3));
                cop_msg_add_fd(&m, fds[1]);
                *ret_fd = fds[0];
        }
        int r = driver_call(d, &m, &reply, err);
        if (r < 0) {
                *ret_fd = cop_close(*ret_fd);
                return r;
        }
        *ret_pid = (pid_t)cop_msg_u64_or(&reply, COP_TAG_PID, 0);
        ASSERT_GT(*ret_pid, 1);
        return 0;
}

/* A shell command: its status as in STATUS, its output in out. */
static inline int driver_shell(struct driver *d, const char *user, const char *script, struct cop_buf *out)
{
        struct spawn s = {.argv = {"sh", "-c", script}, .user = user};
        struct cop_error err;
        pid_t pid;
        int fd;
        ssize_t n;

        if (out)
                cop_buf_clear(out);
        ASSERT_OK(driver_spawn(d, &s, &pid, &fd, &err), &err);
        _cleanup_buf_ struct cop_buf rest = COP_BUF(1 << 20);
        while ((n = cop_buf_read(out ? out : &rest, fd, 65536)) > 0)
                ;
        close(fd);
        return driver_wait(d, pid);
}

static inline int driver_kill(struct driver *d, pid_t pid, int sig, unsigned flags, struct cop_error *err)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;

        driver_new(d, &m, COP_WIRE_KILL);
        cop_msg_add_i64(&m, COP_TAG_PID, pid);
        cop_msg_add_u64(&m, COP_TAG_SIGNAL, (uint64_t)sig);
        cop_msg_add_u64(&m, COP_TAG_FLAGS, flags);
        return driver_call(d, &m, &reply, err);
}

/* An OPEN request; more fields may be added before it is sent. */
static inline void driver_file(struct driver *d, struct cop_msg *m, enum cop_file_op op, const char *path,
                               uint64_t flags)
{
        driver_new(d, m, COP_WIRE_OPEN);
        cop_msg_add_u64(m, COP_TAG_OP, op);
        cop_msg_add_str(m, COP_TAG_PATH, path);
        cop_msg_add_u64(m, COP_TAG_FLAGS, flags);
}

/* One without data. */
static inline int driver_do(struct driver *d, enum cop_file_op op, const char *path, const char *path2, uint64_t flags,
                            struct cop_msg *ret, struct cop_error *err)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;

        driver_file(d, &m, op, path, flags);
        cop_msg_add_str(&m, COP_TAG_PATH2, path2);
        return driver_call(d, &m, ret ? ret : &reply, err);
}

/* Adds the far end of a socket pair to m and returns the near one. */
static inline int driver_add_socket(struct cop_msg *m, int type)
{
        int sockets[2];

        ASSERT(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sockets) == 0);
        cop_msg_add_fd(m, sockets[1]);
        return sockets[0];
}

static inline int driver_read(struct driver *d, const char *path, struct cop_buf *out, uint64_t *ret_size,
                              struct cop_error *err)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;
        ssize_t n;

        driver_file(d, &m, COP_FILE_READ, path, 0);
        _cleanup_close_ int fd = driver_add_socket(&m, SOCK_STREAM);
        int r = driver_call(d, &m, &reply, err);
        if (r < 0)
                return r;
        if (ret_size)
                *ret_size = cop_msg_u64_or(&reply, COP_TAG_SIZE, 0);
        cop_buf_clear(out);
        while ((n = cop_buf_read(out, fd, 65536)) > 0)
                ;
        return (int)n;
}

struct put {
        enum cop_file_op op;
        const char *path;
        const void *data;
        size_t n;
        uint64_t length; /* as announced; UINT64_MAX: not */
        uint64_t flags;
};

/* WRITE or UNTAR. */
static inline int driver_put(struct driver *d, const struct put *p, struct cop_msg *ret, struct cop_error *err)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;

        driver_file(d, &m, p->op, p->path, p->flags);
        if (p->length != UINT64_MAX)
                cop_msg_add_u64(&m, COP_TAG_LENGTH, p->length);
        _cleanup_close_ int fd = driver_add_socket(&m, SOCK_STREAM);
        driver_send(d, &m);
        for (size_t done = 0; done < p->n;) {
                ssize_t put = send(fd, (const char *)p->data + done, p->n - done, MSG_NOSIGNAL);
                if (put < 0)
                        break; /* refused early: the reply says why */
                done += (size_t)put;
        }
        shutdown(fd, SHUT_WR);
        driver_recv(d, m.id, ret ? ret : &reply);
        return cop_msg_get_error(ret ? ret : &reply, err) ? -err->errnum : 0;
}

static inline int driver_write_file(struct driver *d, const char *path, const char *text, uint64_t flags,
                                    struct cop_error *err)
{
        return driver_put(d, &(struct put){COP_FILE_WRITE, path, text, strlen(text), strlen(text), flags}, NULL, err);
}
