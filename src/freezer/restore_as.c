/* Calls in the name of another process.  The kernel notes who made a unix socket pair, listened, connected or sent a message with
 * credentials, by pid and user: not the first process, which rebuilds all sockets, but one of those that are yet to be.  So the
 * call is made by a child with that pid, which is free as long as the tree is not forked, and that user and group.
 *
 * Sockets are mostly made by the same process, one after the other, and a child costs as much as ten calls: so it stays until
 * another one is asked for.  Both share memory and libc's thread-local data; they take turns (`turn`), and only waiting, which
 * touches neither, is done by both at once.
 */
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "freezer/child_call.h"
#include "freezer/restore_sock.h"

enum turn { TURN_OURS, TURN_CHILD };

struct cop_stand_in {
        struct img_credentials who;
        pid_t pid;
        uint32_t turn;               /* futex */
        int (*call)(void *argument); /* NULL: end */
        void *argument;
        int result;
        char *stack; /* owned */
};

static void await_turn(struct cop_stand_in *s, uint32_t wanted)
{
        uint32_t now;

        while ((now = __atomic_load_n(&s->turn, __ATOMIC_ACQUIRE)) != wanted)
                (void)cop_raw_syscall4(SYS_futex, (long)&s->turn, FUTEX_WAIT, now, 0);
}

static void give_turn(struct cop_stand_in *s, uint32_t to)
{
        __atomic_store_n(&s->turn, to, __ATOMIC_RELEASE);
        (void)cop_raw_syscall4(SYS_futex, (long)&s->turn, FUTEX_WAKE, 1, 0);
}

static int serve(void *pointer)
{
        struct cop_stand_in *s = pointer;

        s->result = cop_child_identity(s->who.uid, s->who.gid);
        for (;;) {
                give_turn(s, TURN_OURS);
                await_turn(s, TURN_CHILD);
                if (!s->call)
                        return 0;
                s->result = s->call(s->argument);
        }
}

static int ask(struct cop_stand_in *s, int (*call)(void *argument), void *argument)
{
        s->call = call;
        s->argument = argument;
        give_turn(s, TURN_CHILD);
        if (!call)
                return 0;
        await_turn(s, TURN_OURS);
        return s->result;
}

void cop_restore_as_done(struct cop_restore *r)
{
        struct cop_stand_in *s = r->stand_in;

        if (!s)
                return;
        (void)ask(s, NULL, NULL);
        cop_child_reap(s->pid);
        free(s->stack);
        free(s);
        r->stand_in = NULL;
}

static int new_stand_in(struct cop_restore *r, const struct img_credentials *who)
{
        struct cop_stand_in *s = calloc(1, sizeof(*s));
        char *stack = aligned_alloc(4096, COP_CHILD_STACK);
        pid_t pid = -ENOMEM;

        if (s && stack) {
                *s = (struct cop_stand_in){.who = *who, .turn = TURN_CHILD, .stack = stack};
                pid = cop_child_start(who->pid > 1 ? who->pid : 0, stack, serve, s);
                if (who->pid > 1 && (pid == -EEXIST || pid == -EINVAL)) /* a number that is not to be had here */
                        pid = cop_child_start(0, stack, serve, s);
        }
        if (pid < 0) {
                free(stack);
                free(s);
                return pid;
        }
        s->pid = pid;
        r->stand_in = s;
        await_turn(s, TURN_OURS);
        /* The change of user has cleared it for the memory that both share: /proc/self would belong to nobody. */
        int ret = prctl(PR_SET_DUMPABLE, 1) < 0 ? -errno : s->result;
        if (ret < 0)
                cop_restore_as_done(r);
        return ret;
}

const struct img_credentials *cop_restore_credentials(const struct cop_restore *r, const struct img_ref *ref)
{
        return ref->length == sizeof(struct img_credentials) ? cop_image_at(r->image, ref) : NULL;
}

int cop_restore_as(struct cop_restore *r, const struct img_credentials *who, int (*call)(void *argument),
                   void *argument)
{
        if (!who || who->uid == UINT32_MAX || who->gid == UINT32_MAX ||
            (who->pid <= 1 && who->uid == 0 && who->gid == 0))
                return call(argument);
        struct cop_stand_in *s = r->stand_in;
        if (!s || s->who.pid != who->pid || s->who.uid != who->uid || s->who.gid != who->gid) {
                cop_restore_as_done(r);
                int ret = new_stand_in(r, who);
                if (ret < 0)
                        return ret;
        }
        return ask(r->stand_in, call, argument);
}
