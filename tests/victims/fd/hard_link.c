/* An open file whose opened name is gone but that has another one: what is written comes to the other name.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>

#include "../victim.h"

int main(void)
{
        char buf[16] = {0};
        int l = open("l", O_RDWR | O_CREAT, 0600);

        CHECK(write(l, "linked", 6) == 6 && link("l", "kept") == 0 && unlink("l") == 0);
        victim_ready();
        victim_wait();
        CHECK(write(l, "-more", 5) == 5);
        int k = open("kept", O_RDONLY);
        CHECK(k >= 0 && read(k, buf, 16) == 11 && memcmp(buf, "linked-more", 11) == 0);
        victim_pass();
}
