/* The processes that SPAWN started: table, reaping, signals.
 *
 * A pid is handed out again only after it was reaped and no process group or session uses its number, so a child that
 * is not reaped yet can be signalled by pid without a race.  After a child has ended its entry stays as long as its
 * process group has members ("sleep 30 & echo hi"), so that the group can still be killed; a group that became empty is
 * forgotten at the next look, at most a second of activity later and always before a KILL.
 */
#include "init.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "sandbox/wire.h"

#define PRUNE_USEC USEC_PER_SEC
#define CORE_BIT 0x80

struct cop_init_child *cop_init_child_find(struct cop_init *init, pid_t pid)
{
        for (size_t i = 0; i < init->child_count; i++)
                if (init->children[i].pid == pid)
                        return &init->children[i];
        return NULL;
}

static void forget(struct cop_init *init, struct cop_init_child *c)
{
        if (c->report_fd >= 0) {
                c->report_fd = cop_close(c->report_fd);
                init->spawn_count--;
        }
        *c = init->children[--init->child_count];
}

/* Forgets ended children whose process group is empty. */
static void prune(struct cop_init *init, usec_t now)
{
        init->pruned = now;
        for (size_t i = init->child_count; i-- > 0;) {
                struct cop_init_child *c = &init->children[i];
                if (c->ended && kill(-c->pid, 0) < 0 && errno == ESRCH)
                        forget(init, c);
        }
}

int cop_init_child_check_room(struct cop_init *init, struct cop_error *err)
{
        if (init->child_count >= COP_INIT_CHILDREN_MAX)
                prune(init, cop_now(CLOCK_MONOTONIC));
        if (init->child_count >= COP_INIT_CHILDREN_MAX)
                return cop_error_set(err, EAGAIN, COP_ERR_too_many,
                                     "%d commands run in the sandbox or left background processes; end some first",
                                     COP_INIT_CHILDREN_MAX);
        if (init->spawn_count >= COP_INIT_SPAWNS_MAX)
                return cop_error_set(err, EAGAIN, COP_ERR_too_many, "%d commands are being started; try again",
                                     COP_INIT_SPAWNS_MAX);
        if (init->child_count < init->child_allocated)
                return 0;
        size_t want = init->child_allocated ? init->child_allocated * 2 : 16;
        struct cop_init_child *children = reallocarray(init->children, want, sizeof(*children));
        if (!children)
                return cop_error_errno(err, ENOMEM, "starting a command");
        init->children = children;
        init->child_allocated = want;
        return 0;
}

/* Room was made by cop_init_child_check_room. */
void cop_init_child_add(struct cop_init *init, const struct cop_init_child *c)
{
        /* The number of an ended child comes back only when its group is empty: that entry is stale. */
        struct cop_init_child *stale = cop_init_child_find(init, c->pid);
        if (stale)
                forget(init, stale);
        init->children[init->child_count++] = *c;
        init->spawn_count++;
}

static void child_ended(struct cop_init *init, struct cop_init_child *c, int status)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;

        if (c->report_fd >= 0)
                cop_init_spawn_finish(init, c);
        if (c->failed) {
                forget(init, c);
                return;
        }
        c->ended = true;
        cop_msg_init(&m, COP_WIRE_CHILD, 0);
        cop_msg_add_i64(&m, COP_TAG_PID, c->pid);
        cop_msg_add_i64(&m, COP_TAG_STATUS, status & ~CORE_BIT);
        cop_init_send(init, &m);
}

void cop_init_child_reap_all(struct cop_init *init)
{
        pid_t pid;
        int status;
        bool any = false;

        while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
                struct cop_init_child *c = cop_init_child_find(init, pid);
                any = true;
                if (!c || c->ended)
                        cop_init_worker_reaped(init, pid, status); /* or an orphan */
                else if (!WIFSTOPPED(status))
                        child_ended(init, c, status);
        }
        if (!any)
                return;
        usec_t now = cop_now(CLOCK_MONOTONIC);
        if (now - init->pruned >= PRUNE_USEC)
                prune(init, now);
}

static int kill_child(struct cop_init *init, const struct cop_msg *m, struct cop_error *err)
{
        int64_t pid, sig;
        uint64_t flags = cop_msg_u64_or(m, COP_TAG_FLAGS, 0);

        if (cop_msg_get_i64(m, COP_TAG_PID, &pid) < 0 || cop_msg_get_i64(m, COP_TAG_SIGNAL, &sig) < 0)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "a signal needs a pid and a number");
        if (sig < 0 || sig > SIGRTMAX)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "%lld is no signal number", (long long)sig);
        if (pid <= 1 || pid > INT32_MAX)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "pid %lld is no command", (long long)pid);
        prune(init, cop_now(CLOCK_MONOTONIC));
        struct cop_init_child *c = cop_init_child_find(init, (pid_t)pid);
        bool group = flags & COP_EXEC_GROUP;
        if (!c || (c->ended && !group))
                return cop_error_set(err, ESRCH, COP_ERR_command_not_found, "no command with pid %lld runs",
                                     (long long)pid);
        if (kill(group ? -c->pid : c->pid, (int)sig) == 0)
                return 0;
        if (errno == ESRCH)
                return cop_error_set(err, ESRCH, COP_ERR_command_not_found, "the command with pid %lld has ended",
                                     (long long)pid);
        return cop_error_errno(err, errno, "sending signal %lld to pid %lld", (long long)sig, (long long)pid);
}

void cop_init_child_handle_kill(struct cop_init *init, const struct cop_msg *request)
{
        _cleanup_msg_ struct cop_msg m;
        struct cop_error err;

        cop_msg_init(&m, COP_WIRE_REPLY, request->id);
        if (kill_child(init, request, &err) < 0)
                cop_msg_add_error(&m, &err);
        cop_init_send(init, &m);
}
