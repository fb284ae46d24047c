/* A process with segments of its own (modify_ldt), as programs that run 32-bit or 16-bit code have them.
 * victim: refuse=segments of its own */
#include <asm/ldt.h>
#include <sys/syscall.h>

#include "../victim.h"

int main(void)
{
        struct user_desc entry = {
                .entry_number = 3, .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1, .useable = 1};
        unsigned char before[64] = {0}, after[64] = {0};

        if (syscall(SYS_modify_ldt, 1, &entry, sizeof(entry)) != 0)
                victim_skip("no modify_ldt");
        CHECK(syscall(SYS_modify_ldt, 0, before, sizeof(before)) > 0);
        victim_ready();
        victim_wait();
        CHECK(syscall(SYS_modify_ldt, 0, after, sizeof(after)) > 0 && memcmp(before, after, sizeof(before)) == 0);
        victim_pass();
}
