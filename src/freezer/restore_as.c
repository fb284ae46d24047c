/* Calls in the name of another process.  The kernel notes who made a unix socket pair, listened, connected or sent a message with
 * credentials, by pid and user: not the first process, which rebuilds all sockets, but one of those that are yet to be.  So the
 * call is made by a child with that pid, which is free as long as the tree is not forked, and that user and group.
 */
#include <errno.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "freezer/child_call.h"
#include "freezer/restore_sock.h"

struct order {
        const struct img_credentials *who; /* borrowed */
        int (*call)(void *argument);
        void *argument;
};

/* Not through libc, which would tell threads that are not the child's own; the rights are kept. */
static int carry_out(void *pointer)
{
        const struct order *o = pointer;

        if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0 ||
            syscall(SYS_setresgid, o->who->gid, o->who->gid, o->who->gid) < 0 ||
            syscall(SYS_setresuid, o->who->uid, o->who->uid, o->who->uid) < 0)
                return -errno;
        return o->call(o->argument);
}

const struct img_credentials *cop_restore_credentials(const struct cop_restore *r, const struct img_ref *ref)
{
        return ref->length == sizeof(struct img_credentials) ? cop_image_at(r->image, ref) : NULL;
}

int cop_restore_as(const struct img_credentials *who, int (*call)(void *argument), void *argument)
{
        struct order order = {.who = who, .call = call, .argument = argument};

        if (!who || who->uid == UINT32_MAX || who->gid == UINT32_MAX ||
            (who->pid <= 1 && who->uid == 0 && who->gid == 0))
                return call(argument);
        int ret = cop_child_call(who->pid > 1 ? who->pid : 0, carry_out, &order);
        if (who->pid > 1 && (ret == -EEXIST || ret == -EINVAL)) /* a number that is not to be had here */
                ret = cop_child_call(0, carry_out, &order);
        /* The change of user has cleared it for the memory that both share: /proc/self would belong to nobody. */
        if (prctl(PR_SET_DUMPABLE, 1) < 0 && ret == 0)
                ret = -errno;
        return ret;
}
