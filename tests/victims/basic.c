/* One process: registers, stack, heap, data, a pipe with data, a file's offset. */
#include <fcntl.h>
#include <sys/mman.h>

#include "victim.h"

static int data = 42;

int main(void)
{
        int p[2];
        char buf[8] = {0};
        unsigned char *heap = malloc(3 << 20);
        double d = 1.5;
        pid_t pid = getpid();

        CHECK(heap && pipe(p) == 0);
        for (int i = 0; i < 3 << 20; i++)
                heap[i] = (unsigned char)(i * 7);
        CHECK(write(p[1], "hello", 5) == 5);
        int f = open("file", O_RDWR | O_CREAT, 0600);
        CHECK(f >= 0 && write(f, "0123456789", 10) == 10 && lseek(f, 4, SEEK_SET) == 4);
        data++;
        victim_ready();
        victim_wait();
        CHECK(data == 43 && d == 1.5 && getpid() == pid);
        for (int i = 0; i < 3 << 20; i++)
                CHECK(heap[i] == (unsigned char)(i * 7));
        CHECK(read(p[0], buf, 8) == 5 && strcmp(buf, "hello") == 0);
        CHECK(lseek(f, 0, SEEK_CUR) == 4);
        victim_pass();
}
