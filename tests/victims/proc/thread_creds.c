/* Threads with credentials of their own, set past the C library: user, groups, capabilities, and no new privileges for one of them.
 * victim: owner_again=may not be traced */
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "../victim.h"

static volatile int ready;
static const char *bad;

static void *other_user(void *unused)
{
        static const gid_t mine[] = {77, 78};
        uid_t r, e, s;
        gid_t now[8];

        if (syscall(SYS_setgroups, 2, mine) != 0 || syscall(SYS_setresgid, 21, 22, 23) != 0 ||
            syscall(SYS_setresuid, 11, 12, 13) != 0)
                bad = "no ids of a thread's own";
        ready++;
        victim_wait();
        if (getresuid(&r, &e, &s) != 0 || r != 11 || e != 12 || s != 13)
                bad = "user of a thread";
        if (getresgid(&r, &e, &s) != 0 || r != 21 || e != 22 || s != 23)
                bad = "group of a thread";
        if (getgroups(8, now) != 2 || now[0] != 77 || now[1] != 78)
                bad = "groups of a thread";
        return unused;
}

static void *fewer_rights(void *unused)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct caps[2] = {{1 << CAP_KILL, 1 << CAP_KILL | 1 << CAP_CHOWN, 0}}, now[2];

        if (syscall(SYS_capset, &header, caps) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
                bad = "no rights of a thread's own";
        ready++;
        victim_wait();
        if (syscall(SYS_capget, &header, now) != 0 || memcmp(now, caps, sizeof(now)) != 0)
                bad = "capabilities of a thread";
        if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
                bad = "no_new_privs of a thread";
        return unused;
}

int main(void)
{
        pthread_t a, b;

        if (setresuid(0, 0, 0) != 0)
                victim_skip("not root here");
        CHECK(pthread_create(&a, NULL, other_user, NULL) == 0 && pthread_create(&b, NULL, fewer_rights, NULL) == 0);
        while (ready < 2)
                usleep(1000);
        CHECK(!bad);
        victim_ready();
        victim_wait();
        CHECK(getuid() == 0 && geteuid() == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
        CHECK(pthread_join(a, NULL) == 0 && pthread_join(b, NULL) == 0);
        if (bad)
                victim_fail("%s", bad);
        victim_pass();
}
