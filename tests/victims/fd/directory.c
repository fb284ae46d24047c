/* Directories: reading goes on at its position (nothing twice, nothing missed), fchdir and openat work, O_PATH ones too. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "../victim.h"

#define N 300
static char seen[N];

static int take(DIR *d)
{
        struct dirent *e;
        int i;

        while ((e = readdir(d)))
                if (sscanf(e->d_name, "f%d", &i) == 1) {
                        if (seen[i]++)
                                victim_fail("%s comes twice", e->d_name);
                        return 1;
                }
        return 0;
}

int main(void)
{
        char name[32];

        CHECK(mkdir("d", 0755) == 0);
        for (int i = 0; i < N; i++) {
                snprintf(name, sizeof(name), "d/f%d", i);
                close(open(name, O_WRONLY | O_CREAT, 0600));
        }
        DIR *d = opendir("d");
        int p = open("d", O_PATH | O_DIRECTORY), n = 0;
        CHECK(d && p >= 0);
        for (int i = 0; i < 100; i++)
                n += take(d);
        victim_ready();
        victim_wait();
        while (take(d))
                n++;
        if (n != N)
                victim_fail("%d of %d entries", n, N);
        rewinddir(d);
        memset(seen, 0, sizeof(seen));
        CHECK(take(d));
        CHECK(openat(p, "f7", O_RDONLY) >= 0 && faccessat(dirfd(d), "f8", F_OK, 0) == 0 && fchdir(dirfd(d)) == 0 &&
              access("f9", F_OK) == 0);
        victim_pass();
}
