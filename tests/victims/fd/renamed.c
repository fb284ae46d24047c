/* Open files that were renamed since, into another folder too, and one whose old name is another file now.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/stat.h>

#include "../victim.h"

int main(void)
{
        char buf[16] = {0};
        int a = open("a", O_RDWR | O_CREAT, 0600), b = open("b", O_RDWR | O_CREAT, 0600);

        CHECK(write(a, "file a", 6) == 6 && write(b, "file b", 6) == 6);
        CHECK(mkdir("d", 0755) == 0 && rename("a", "d/moved") == 0 && rename("b", "c") == 0);
        int other = open("b", O_WRONLY | O_CREAT, 0600);
        CHECK(write(other, "imposter", 8) == 8 && rename("d", "e") == 0);
        victim_ready();
        victim_wait();
        CHECK(pread(a, buf, 16, 0) == 6 && memcmp(buf, "file a", 6) == 0 && pread(b, buf, 16, 0) == 6 &&
              memcmp(buf, "file b", 6) == 0);
        CHECK(write(a, "+", 1) == 1);
        int m = open("e/moved", O_RDONLY);
        CHECK(m >= 0 && read(m, buf, 16) == 7 && buf[6] == '+');
        victim_pass();
}
