/* SPAWN: from a request to a running program.
 *
 * Order in the child, and why: new session (the group that KILL means); oom_score_adj, which needs root;
 * descriptors (the passed ones to 0-2, all others close on exec); the user, looked up in the sandbox's files; the
 * working folder and the search of PATH, with the user's rights; execve.  What fails is written as a struct cop_error
 * into a close-on-exec pipe; an empty pipe that closes means that the program runs.  Pid 1 reads that pipe from its
 * loop, because a path lookup in the child can take as long as the sandbox likes.  Errors use errno as the caller needs
 * it: ENOENT no such command, EACCES not executable, ENOTDIR the working folder.
 */
#include "init.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sandbox/wire.h"
#include "user.h"

#define START_USEC (30 * USEC_PER_SEC)
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define PARKING 16 /* above the targets 0-2, so that no target overwrites a source */

struct request {
        char **argv, **env;
        char *cwd, *user;
        uint64_t rlimit_data, nofile;
        int fds[3]; /* borrowed; -EBADF: /dev/null */
};

static void request_done(struct request *q)
{
        cop_strv_free(q->argv);
        cop_strv_free(q->env);
        free(q->cwd);
        free(q->user);
}

static int request_parse(const struct cop_msg *m, struct request *q, struct cop_error *err)
{
        size_t argc = 0;
        int r = cop_msg_get_strv(m, COP_TAG_ARGV, &q->argv, &argc);

        if (r == 0)
                r = cop_msg_get_strv(m, COP_TAG_ENV, &q->env, NULL);
        if (r == 0 && (r = cop_msg_get_str(m, COP_TAG_CWD, 0, &q->cwd)) == -ENOENT)
                r = 0;
        if (r == 0 && (r = cop_msg_get_str(m, COP_TAG_USER, 0, &q->user)) == -ENOENT)
                r = 0;
        if (r == -EBADMSG)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "a NUL byte in the command, its environment, folder or user");
        if (r < 0)
                return cop_error_errno(err, -r, "starting a command");
        if (argc == 0 || !q->argv[0][0])
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "the command is empty");
        for (char **e = q->env; *e; e++)
                if (!strchr(*e, '=') || **e == '=')
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                             "environment: \"%.64s\" is not NAME=value", *e);
        q->rlimit_data = cop_msg_u64_or(m, COP_TAG_RLIMIT_DATA, 0);
        q->nofile = cop_msg_u64_or(m, COP_TAG_NOFILE, 0);
        for (unsigned i = 0; i < ELEMENTSOF(q->fds); i++)
                q->fds[i] = i < m->fd_count ? m->fds[i] : -EBADF;
        return 0;
}

/* -- in the child ----------------------------------------------------------------------------------------------------
 */

/* Soft limits only: the user may raise them again, as far as the hard one. */
static void limit_soft(__rlimit_resource_t resource, uint64_t value)
{
        struct rlimit limit;

        if (value == 0 || getrlimit(resource, &limit) < 0)
                return;
        limit.rlim_cur = MIN_OF((rlim_t)value, limit.rlim_max);
        setrlimit(resource, &limit);
}

static int place_fds(const struct request *q, struct cop_error *err)
{
        int parked[3];

        for (int i = 0; i < 3; i++) {
                int fd = q->fds[i] >= 0 ? fcntl(q->fds[i], F_DUPFD_CLOEXEC, PARKING)
                                        : open("/dev/null", O_RDWR | O_CLOEXEC);
                if (fd >= 0 && fd < PARKING)
                        fd = fcntl(fd, F_DUPFD_CLOEXEC, PARKING);
                if (fd < 0)
                        return cop_error_errno(err, errno, "preparing descriptor %d of the command", i);
                parked[i] = fd;
        }
        for (int i = 0; i < 3; i++)
                if (dup2(parked[i], i) < 0)
                        return cop_error_errno(err, errno, "preparing descriptor %d of the command", i);
        if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
                return cop_error_errno(err, errno, "closing descriptors");
        return 0;
}

static int enter_folder(const struct cop_init *init, const struct request *q, const struct cop_user *u,
                        struct cop_error *err)
{
        if (q->cwd && q->cwd[0]) {
                /* A relative one starts where the default is. */
                if (q->cwd[0] != '/' && chdir(init->workdir) < 0)
                        return cop_error_set(err, ENOTDIR, COP_ERR_exec_failed,
                                             "the default folder %s is not there: %s", init->workdir, strerror(errno));
                if (chdir(q->cwd) == 0)
                        return 0;
                return cop_error_set(err, ENOTDIR, COP_ERR_exec_failed, "cannot enter the working folder %.300s: %s",
                                     q->cwd, strerror(errno));
        }
        if (chdir(init->workdir) == 0 || chdir(u->home) == 0 || chdir("/") == 0)
                return 0;
        return cop_error_set(err, ENOTDIR, COP_ERR_exec_failed, "cannot enter the folder /: %s", strerror(errno));
}

static const char *get_env(char **env, const char *name)
{
        size_t n = strlen(name);

        for (; *env; env++)
                if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
                        return *env + n + 1;
        return NULL;
}

static int fill_environment(struct request *q, const struct cop_user *u)
{
        const char *defaults[][2] = {{"HOME", u->home},
                                     {"USER", u->name},
                                     {"LOGNAME", u->name},
                                     {"SHELL", u->shell},
                                     {"PATH", DEFAULT_PATH}};
        size_t n = 0;

        while (q->env[n])
                n++;
        char **env = reallocarray(q->env, n + ELEMENTSOF(defaults) + 1, sizeof(*env));
        if (!env)
                return -ENOMEM;
        q->env = env;
        for (size_t i = 0; i < ELEMENTSOF(defaults); i++) {
                if (get_env(env, defaults[i][0]))
                        continue;
                if (asprintf(&env[n], "%s=%s", defaults[i][0], defaults[i][1]) < 0)
                        return -ENOMEM;
                env[++n] = NULL;
        }
        return 0;
}

static int exec_error(const char *name, int errnum, struct cop_error *err)
{
        bool path = strchr(name, '/');

        switch (errnum) {
        case ENOENT:
        case ENOTDIR:
                if (path && access(name, F_OK) == 0)
                        return cop_error_set(err, EACCES, COP_ERR_exec_failed,
                                             "%.300s: the interpreter or loader that it names is not there", name);
                return cop_error_set(err, ENOENT, COP_ERR_exec_failed, "%.300s: %s", name,
                                     path ? strerror(errnum) : "command not found");
        case E2BIG:
                return cop_error_set(err, errnum, COP_ERR_exec_failed,
                                     "%.300s: the arguments and environment are too long for the kernel", name);
        case EAGAIN:
                return cop_error_set(err, errnum, COP_ERR_too_many, "%.300s: the limit on processes is reached", name);
        case EISDIR:
        case EPERM:
                errnum = EACCES;
                break;
        default:
                break;
        }
        return cop_error_set(err, errnum, COP_ERR_exec_failed, "%.300s: %s", name, strerror(errnum));
}

static int run(const struct cop_init *init, struct request *q, struct cop_error *err)
{
        struct cop_user u;
        int r;

        setsid();
        cop_user_prepare_child();
        limit_soft(RLIMIT_NOFILE, q->nofile);
        r = place_fds(q, err);
        if (r == 0)
                r = cop_user_find(q->user, init->default_uid, init->default_gid, &u, err);
        if (r == 0)
                r = cop_user_become(&u, err);
        if (r == 0)
                r = enter_folder(init, q, &u, err);
        if (r < 0)
                return r;
        r = fill_environment(q, &u);
        if (r < 0)
                return cop_error_errno(err, -r, "the environment of the command");
        limit_soft(RLIMIT_DATA, q->rlimit_data); /* last: it is the program's, not for what is done here */
        environ = q->env;                        /* execvp searches the PATH of the program's environment */
        execvp(q->argv[0], q->argv);
        return exec_error(q->argv[0], errno, err);
}

/* -- in pid 1 ---------------------------------------------------------------------------------------------------------
 */

static int start(struct cop_init *init, struct request *q, uint32_t id, struct cop_error *err)
{
        _cleanup_close_ int read_fd = -EBADF, write_fd = -EBADF;
        int fds[2], r = cop_init_child_check_room(init, err);

        if (r < 0)
                return r;
        if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
                return cop_error_errno(err, errno, "starting a command");
        read_fd = fds[0];
        write_fd = fds[1];
        pid_t pid = fork();
        if (pid < 0 && errno == EAGAIN)
                return cop_error_set(err, EAGAIN, COP_ERR_too_many,
                                     "the sandbox has reached its limit on processes; end some or raise it");
        if (pid < 0)
                return cop_error_errno(err, errno, "starting a command");
        if (pid == 0) {
                struct cop_error failure = {0};
                run(init, q, &failure);
                _exit(write(write_fd, &failure, sizeof(failure)) == sizeof(failure) ? 127 : 126);
        }
        cop_init_child_add(init,
                           &(struct cop_init_child){.pid = pid,
                                                    .report_fd = TAKE_FD(read_fd),
                                                    .id = id,
                                                    .deadline = cop_usec_add(cop_now(CLOCK_MONOTONIC), START_USEC)});
        return 0;
}

void cop_init_spawn_handle(struct cop_init *init, struct cop_msg *m)
{
        __attribute__((cleanup(request_done))) struct request q = {0};
        struct cop_error err;

        if (request_parse(m, &q, &err) < 0 || start(init, &q, m->id, &err) < 0)
                cop_init_send_error(init, m->id, &err);
}

static void answer(struct cop_init *init, struct cop_init_child *c, const struct cop_error *failure)
{
        _cleanup_msg_ struct cop_msg m;

        c->report_fd = cop_close(c->report_fd);
        c->failed = failure;
        init->spawn_count--;
        cop_msg_init(&m, COP_WIRE_REPLY, c->id);
        if (failure)
                cop_msg_add_error(&m, failure);
        else
                cop_msg_add_i64(&m, COP_TAG_PID, c->pid);
        cop_init_send(init, &m);
}

void cop_init_spawn_finish(struct cop_init *init, struct cop_init_child *c)
{
        struct cop_error failure;
        ssize_t n = read(c->report_fd, &failure, sizeof(failure));

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return;
        failure.message[sizeof(failure.message) - 1] = '\0';
        answer(init, c, n == sizeof(failure) ? &failure : NULL);
}

usec_t cop_init_spawn_expire(struct cop_init *init, usec_t now)
{
        usec_t next = USEC_INFINITY;
        struct cop_error err;

        for (struct cop_init_child *c = init->children; c < init->children + init->child_count; c++) {
                if (c->report_fd < 0)
                        continue;
                if (c->deadline > now) {
                        next = MIN_OF(next, c->deadline);
                        continue;
                }
                kill(c->pid, SIGKILL);
                cop_error_set(
                        &err, ETIMEDOUT, COP_ERR_timeout,
                        "the command did not start within %d s; its program, folder or /etc/passwd cannot be read",
                        (int)(START_USEC / USEC_PER_SEC));
                answer(init, c, &err);
        }
        return next;
}
