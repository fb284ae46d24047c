/* Another name for a sandbox that exists already, and in which nothing runs.
 *
 * Files inside are written from inside: a child of ours enters the namespaces, so that links in /etc lead nowhere but into the sandbox, and
 * owners and limits are those of its own root.  Nobody there can meet it, as all others stand still.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sandbox/hosts.h"
#include "sandbox/sandbox.h"

#define RENAME_TIMEOUT_MSEC 10000 /* its disk may be slow */

static int rename_inside(int init_pidfd, const char *hostname, struct cop_error *err)
{
        if (setns(init_pidfd, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS) < 0)
                return cop_error_errno(err, errno, "entering the sandbox");
        int r = cop_userns_become_root(err);
        if (r == 0 && sethostname(hostname, strlen(hostname)) < 0)
                r = cop_error_errno(err, errno, "setting the hostname %s", hostname);
        return r < 0 ? r : cop_hosts_write(hostname, err);
}

/* Nothing at all when it went well. */
static int hear(int fd, struct cop_error *err)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};
        struct cop_error said;

        if (poll(&p, 1, RENAME_TIMEOUT_MSEC) <= 0)
                return cop_error_set(err, ETIMEDOUT, COP_ERR_start_failed, "naming the sandbox took longer than %d s",
                                     RENAME_TIMEOUT_MSEC / 1000);
        if (read(fd, &said, sizeof(said)) != sizeof(said))
                return 0;
        said.message[sizeof(said.message) - 1] = '\0';
        return cop_error_set(err, said.errnum, said.code, "%s", said.message);
}

int cop_sandbox_rename(struct cop_sandbox *sb, const char *hostname, struct cop_error *err)
{
        struct cop_error inside = COP_ERROR_NULL;
        int fds[2], status = 0;

        int r = cop_hosts_check(hostname, err);
        if (r < 0)
                return r;
        if (pipe2(fds, O_CLOEXEC) < 0)
                return cop_error_errno(err, errno, "pipe");
        pid_t pid = fork();
        if (pid == 0) {
                r = rename_inside(cop_sandbox_pidfd(sb), hostname, &inside);
                if (r < 0)
                        (void)!write(fds[1], &inside, sizeof(inside));
                _exit(r < 0);
        }
        if (pid < 0)
                r = cop_error_errno(err, errno, "fork");
        close(fds[1]);
        if (r == 0) {
                r = hear(fds[0], err);
                if (r < 0)
                        kill(pid, SIGKILL); /* it ends anyway, or is late */
                while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                        ;
        }
        close(fds[0]);
        return r == 0 && status != 0
                       ? cop_error_set(err, EPIPE, COP_ERR_start_failed, "naming the sandbox failed (%#x)", status)
                       : r;
}
