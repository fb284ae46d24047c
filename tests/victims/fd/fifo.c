/* FIFOs: with data, opened for both, one end only (non-blocking), deleted ones, with their owner and
 * mode, one of whose two names is left; a new opener finds the same pipe.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/stat.h>

#include "../victim.h"

int main(void)
{
        char buf[64] = {0};

        CHECK(mkfifo("f", 0600) == 0 && mkfifo("lone", 0600) == 0 && mkfifo("gone", 0600) == 0 &&
              mkfifo("rw", 0600) == 0);
        int r = open("f", O_RDONLY | O_NONBLOCK), w = open("f", O_WRONLY), lone = open("lone", O_RDONLY | O_NONBLOCK);
        int gr = open("gone", O_RDONLY | O_NONBLOCK), gw = open("gone", O_WRONLY), rw = open("rw", O_RDWR);
        CHECK(r >= 0 && w >= 0 && lone >= 0 && gr >= 0 && gw >= 0 && rw >= 0);
        CHECK(write(w, "in the fifo", 11) == 11 && write(gw, "gone", 4) == 4 && unlink("gone") == 0 &&
              write(rw, "both", 4) == 4);
        CHECK(fchown(gr, 12, 34) == 0 && fchmod(gr, 0640) == 0);
        CHECK(mkfifo("l", 0600) == 0 && link("l", "left") == 0);
        int two = open("l", O_RDONLY | O_NONBLOCK);
        CHECK(two >= 0 && unlink("l") == 0);
        victim_ready();
        victim_wait();
        CHECK(read(r, buf, 64) == 11 && memcmp(buf, "in the fifo", 11) == 0);
        CHECK(read(r, buf, 64) == -1 && errno == EAGAIN);
        CHECK(read(lone, buf, 64) == 0);
        int w2 = open("lone", O_WRONLY | O_NONBLOCK), w3 = open("f", O_WRONLY | O_NONBLOCK);
        CHECK(w2 >= 0 && write(w2, "new", 3) == 3 && read(lone, buf, 64) == 3);
        CHECK(w3 >= 0 && write(w3, "more", 4) == 4 && read(r, buf, 64) == 4);
        CHECK(read(gr, buf, 64) == 4 && write(gw, "x", 1) == 1 && read(gr, buf, 64) == 1);
        struct stat st;
        CHECK(fstat(gr, &st) == 0 && st.st_uid == 12 && st.st_gid == 34 && st.st_mode == (S_IFIFO | 0640) &&
              st.st_nlink == 0);
        int left = open("left", O_WRONLY | O_NONBLOCK);
        CHECK(left >= 0 && write(left, "left", 4) == 4 && read(two, buf, 64) == 4);
        CHECK(read(rw, buf, 64) == 4 && write(rw, "again", 5) == 5 && read(rw, buf, 64) == 5);
        victim_pass();
}
