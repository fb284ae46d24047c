/* A BPF map is refused by name and keeps its value.
 * victim: refuse=bpf */
#include <linux/bpf.h>
#include <sys/syscall.h>

#include "../victim.h"

int main(void)
{
        union bpf_attr a = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1};
        int fd = (int)syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof(a)), key = 0;
        unsigned long value = 77, got = 0;

        if (fd < 0)
                victim_skip("no BPF maps here");
        memset(&a, 0, sizeof(a));
        a.map_fd = (unsigned)fd;
        a.key = (unsigned long)&key;
        a.value = (unsigned long)&value;
        CHECK(syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &a, sizeof(a)) == 0);
        victim_ready();
        victim_wait();
        a.value = (unsigned long)&got;
        CHECK(syscall(SYS_bpf, BPF_MAP_LOOKUP_ELEM, &a, sizeof(a)) == 0 && got == 77);
        victim_pass();
}
