/* Capability sets (effective, permitted, inheritable, ambient, bounding), securebits, no_new_privs, keepcaps. */
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "../victim.h"

static struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};

int main(void)
{
        struct __user_cap_data_struct before[2], now[2];

        CHECK(prctl(PR_CAPBSET_DROP, CAP_SYS_PACCT) == 0 && prctl(PR_CAPBSET_DROP, CAP_SYSLOG) == 0);
        CHECK(prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP | SECBIT_KEEP_CAPS) == 0);
        CHECK(syscall(SYS_capget, &header, before) == 0);
        before[0].effective &= ~(1U << CAP_CHOWN);
        before[0].permitted &= ~(1U << CAP_SYS_TIME);
        before[0].effective &= before[0].permitted;
        before[0].inheritable = 1U << CAP_NET_RAW | 1U << CAP_KILL;
        CHECK(syscall(SYS_capset, &header, before) == 0);
        CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_RAW, 0, 0) == 0);
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        victim_ready();
        victim_wait();
        CHECK(syscall(SYS_capget, &header, now) == 0);
        CHECK(memcmp(before, now, sizeof(now)) == 0);
        CHECK(prctl(PR_CAPBSET_READ, CAP_SYS_PACCT) == 0 && prctl(PR_CAPBSET_READ, CAP_SYSLOG) == 0 &&
              prctl(PR_CAPBSET_READ, CAP_CHOWN) == 1);
        CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_NET_RAW, 0, 0) == 1);
        CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_KILL, 0, 0) == 0);
        CHECK(prctl(PR_GET_SECUREBITS) == (SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP | SECBIT_KEEP_CAPS));
        CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
        victim_pass();
}
