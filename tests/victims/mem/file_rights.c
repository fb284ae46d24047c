/* Shared mappings of a file that was opened for reading cannot be made writable, those of one for both can; a write through a mapping
 * after the thaw tells by the file's times.
 * victim: flavours=unfrozen,kill,twice,tracked,owner */
#include "../mem.h"

#include <sys/stat.h>

int main(void)
{
        static char block[2 * PAGE];
        struct stat before, after;
        int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600), ro = open("data", O_RDONLY);

        fill(block, sizeof(block), 1);
        CHECK(fd >= 0 && ro >= 0 && write(fd, block, sizeof(block)) == (ssize_t)sizeof(block));
        char *reader = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, ro, 0),
             *later = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0),
             *writer = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, fd, 0),
             *nothing = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_SHARED, ro, 0);
        CHECK(reader != MAP_FAILED && later != MAP_FAILED && writer != MAP_FAILED && nothing != MAP_FAILED);
        close(fd);
        close(ro);
        writer[0] = 5;
        CHECK(msync(writer, 2 * PAGE, MS_SYNC) == 0);
        const struct timespec old[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
        CHECK(utimensat(AT_FDCWD, "data", old, 0) == 0);
        victim_ready();
        victim_wait();
        CHECK(stat("data", &before) == 0 && before.st_mtime == 1000000);
        CHECK(reader[0] == 5 && mprotect(reader, PAGE, RW) == -1 && errno == EACCES);
        CHECK(mprotect(nothing, PAGE, RW) == -1 && errno == EACCES && mprotect(nothing, PAGE, PROT_READ) == 0 &&
              nothing[0] == 5);
        CHECK(mprotect(later, PAGE, RW) == 0);
        later[0] = 6;
        CHECK(msync(later, PAGE, MS_SYNC) == 0 && reader[0] == 6);
        CHECK(stat("data", &after) == 0 && after.st_mtime > before.st_mtime);
        victim_pass();
}
