/* What is in a folder in memory (/dev/shm): files that nobody has open, of every type, with their attributes; POSIX shared memory. */
#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "../victim.h"

#define DIR "/dev/shm/kept"
#define SIZE (6UL << 20) /* sparse: the last page alone, and what a mapping writes */

static void put(const char *path, const char *text, mode_t mode)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
        CHECK(fchmod(fd, mode) == 0 && close(fd) == 0);
}

static void check_text(const char *path, const char *text)
{
        char got[64] = "";
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0 && read(fd, got, sizeof(got) - 1) == (ssize_t)strlen(text) && strcmp(got, text) == 0);
        close(fd);
}

static int bind_at(const char *path)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
        CHECK(fd >= 0 && bind(fd, (void *)&a, sizeof(a)) == 0 && listen(fd, 5) == 0);
        return fd;
}

static int connect_to(const char *path)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
        return connect(fd, (void *)&a, sizeof(a)) < 0 ? errno : 0;
}

int main(void)
{
        struct timespec old[2] = {{1000000000, 5}, {1100000000, 7}};
        struct stat st, other;
        char link[16] = "";

        CHECK(mkdir(DIR, 0700) == 0 && mkdir(DIR "/closed", 0700) == 0 && mkdir(DIR "/closed/empty", 0700) == 0 &&
              chmod(DIR "/closed/empty", 01777) == 0);
        put(DIR "/one", "first", 0640);
        put(DIR "/closed/within", "second", 04711);
        put(DIR "/nothing", "", 0400);
        CHECK(symlink("one", DIR "/link") == 0 && symlink("/gone", DIR "/dangling") == 0);
        CHECK(linkat(AT_FDCWD, DIR "/one", AT_FDCWD, DIR "/closed/same", 0) == 0);
        CHECK(mkfifo(DIR "/fifo", 0622) == 0 && chmod(DIR "/fifo", 0622) == 0);
        int listener = bind_at(DIR "/socket");
        close(bind_at(DIR "/dead"));
        CHECK(utimensat(AT_FDCWD, DIR "/one", old, 0) == 0);
        CHECK(chmod(DIR "/closed", 0500) == 0 && utimensat(AT_FDCWD, DIR "/closed", old, 0) == 0);

        int fd = shm_open("/victim-shm", O_RDWR | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
        char *shared = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(shared != MAP_FAILED && close(fd) == 0);
        memset(shared + (1UL << 20), 'a', 3UL << 20);
        shared[SIZE - 1] = 'z';
        fd = open(DIR "/unmapped", O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0 && ftruncate(fd, 100001) == 0 && pwrite(fd, "tail", 4, 99997) == 4 && close(fd) == 0);
        sem_t *sem = sem_open("/victim-sem", O_CREAT | O_EXCL, 0600, 3);
        CHECK(sem != SEM_FAILED);

        victim_ready();
        for (unsigned i = 0; !victim_gone(); i++) { /* a little of it is another at each freeze */
                shared[(2UL << 20) + i % 4096] = 'b';
                __atomic_store_n(&shared[0], (char)('0' + i % 10), __ATOMIC_SEQ_CST);
                usleep(1000);
        }

        check_text(DIR "/one", "first");
        check_text(DIR "/closed/within", "second");
        check_text(DIR "/nothing", "");
        CHECK(stat(DIR "/one", &st) == 0 && stat(DIR "/closed/same", &other) == 0);
        CHECK(st.st_ino == other.st_ino && st.st_nlink == 2 && (st.st_mode & 07777) == 0640);
        CHECK(st.st_mtim.tv_sec == old[1].tv_sec && st.st_mtim.tv_nsec == old[1].tv_nsec);
        CHECK(stat(DIR "/closed", &st) == 0 && (st.st_mode & 07777) == 0500 && st.st_mtim.tv_sec == old[1].tv_sec);
        CHECK(stat(DIR "/closed/empty", &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 07777) == 01777);
        CHECK(stat(DIR "/closed/within", &st) == 0 && (st.st_mode & 07777) == 04711);
        CHECK(readlink(DIR "/link", link, sizeof(link) - 1) == 3 && strcmp(link, "one") == 0);
        CHECK(readlink(DIR "/dangling", link, sizeof(link) - 1) == 5);
        CHECK(stat(DIR "/fifo", &st) == 0 && S_ISFIFO(st.st_mode) && (st.st_mode & 07777) == 0622);
        CHECK(connect_to(DIR "/socket") == 0 && connect_to(DIR "/dead") == ECONNREFUSED);
        CHECK(accept(listener, NULL, NULL) >= 0);

        fd = shm_open("/victim-shm", O_RDWR, 0);
        CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size == (off_t)SIZE);
        char *again = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(again != MAP_FAILED && memcmp(again, shared, SIZE) == 0);
        shared[5] = 'q';
        CHECK(again[5] == 'q' && again[SIZE - 1] == 'z' && again[(4UL << 20) - 1] == 'a' && again[4UL << 20] == 0);
        CHECK(again[2UL << 20] == 'b' && again[(2UL << 20) + 4096] == 'a' && again[(2UL << 20) - 1] == 'a');
        fd = open(DIR "/unmapped", O_RDONLY);
        CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size == 100001 && pread(fd, link, 4, 99997) == 4);
        CHECK(memcmp(link, "tail", 4) == 0);
        int value;
        CHECK(sem_wait(sem) == 0 && sem_getvalue(sem, &value) == 0 && value == 2);
        victim_pass();
}
