#include "lib/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "keeper/logfile.h"
#include "sandbox/wire.h"

struct content {
        size_t out, err, frames;
        unsigned long long dropped;
        bool torn;
};

static int dir_fd(void)
{
        int fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        ASSERT_GE(fd, 0);
        return fd;
}

static struct content read_back(int dir, const char *name)
{
        struct content c = {0};
        struct cop_error err = COP_ERROR_NULL;
        _cleanup_free_ char *text = NULL;
        size_t n, at = 8;
        unsigned magic;

        ASSERT_OK(cop_read_file(dir, name, 1 << 24, &text, &n, &err), &err);
        memcpy(&magic, text, 4);
        ASSERT_EQ(magic, COP_LOG_MAGIC);
        while (at < n) {
                struct cop_log_frame f;
                if (n - at < sizeof(f)) {
                        c.torn = true;
                        break;
                }
                memcpy(&f, text + at, sizeof(f));
                at += sizeof(f);
                if (f.length > n - at) {
                        c.torn = true;
                        break;
                }
                ASSERT_LE(f.length, 65536);
                if (f.stream == 3)
                        memcpy(&c.dropped, text + at, 8);
                else
                        *(f.stream == 1 ? &c.out : &c.err) += f.length;
                c.frames++;
                at += f.length;
        }
        return c;
}

TEST(frames_keep_their_stream)
{
        struct cop_logfile l = COP_LOGFILE_NULL;
        struct cop_error err = COP_ERROR_NULL;
        int dir = dir_fd();

        ASSERT_OK(cop_logfile_create(dir, "a.log", 1000, &l, &err), &err);
        ASSERT_CODE(cop_logfile_create(dir, "a.log", 1000, &l, &err), &err, COP_ERR_in_use);
        cop_logfile_append(&l, 1, "hello", 5, 7);
        cop_logfile_append(&l, 2, "", 0, 8);
        cop_logfile_append(&l, 2, "oops", 4, 9);
        cop_logfile_sync_mark(&l, 10);
        struct content c = read_back(dir, "a.log");
        ASSERT_EQ(c.out, 5);
        ASSERT_EQ(c.err, 4);
        ASSERT_EQ(c.frames, 2);
        struct stat st;
        fstat(l.fd, &st);
        ASSERT_EQ(st.st_size, l.size);
        cop_logfile_close(&l);
        close(dir);
}

TEST(the_cap_is_exact_and_the_mark_moves_in_place)
{
        struct cop_logfile l = COP_LOGFILE_NULL;
        struct cop_error err = COP_ERROR_NULL;
        int dir = dir_fd();
        static char block[200000];

        /* 100000 bytes are two frames, 50000 one. */
        ASSERT_OK(cop_logfile_create(dir, "a.log", 150000 + 3 * sizeof(struct cop_log_frame), &l, &err), &err);
        cop_logfile_append(&l, 1, block, 100000, 1); /* two frames */
        ASSERT(!cop_logfile_full(&l));
        cop_logfile_append(&l, 2, block, 100000, 2);
        ASSERT(cop_logfile_full(&l));
        cop_logfile_sync_mark(&l, 3);
        uint64_t size = l.size;
        struct content c = read_back(dir, "a.log");
        ASSERT_EQ(c.out, 100000);
        ASSERT_EQ(c.err, 50000);
        ASSERT_EQ(c.dropped, 50000);
        ASSERT_EQ(c.frames, 4);
        cop_logfile_append(&l, 1, block, 1, 4);
        cop_logfile_drop(&l, 1000000);
        cop_logfile_sync_mark(&l, 5);
        ASSERT_EQ(l.size, size);
        c = read_back(dir, "a.log");
        ASSERT_EQ(c.dropped, 1050001);
        ASSERT_EQ(c.frames, 4);
        cop_logfile_close(&l);
        cop_logfile_append(&l, 1, "late", 4, 6); /* after the end: counted, not written */
        ASSERT_EQ(l.dropped, 1050005);
        close(dir);
}

/* One byte at a time, the headers are nearly everything: they count. */
TEST(the_cap_is_that_of_the_file)
{
        struct cop_logfile l = COP_LOGFILE_NULL;
        struct cop_error err = COP_ERROR_NULL;
        const uint64_t max = 100 * (sizeof(struct cop_log_frame) + 1) + sizeof(struct cop_log_frame);
        int dir = dir_fd();

        ASSERT_OK(cop_logfile_create(dir, "a.log", max, &l, &err), &err);
        uint64_t before = l.size;
        for (int i = 0; i < 1000; i++) {
                ASSERT_EQ(cop_logfile_full(&l), i >= 100); /* a header alone is no room */
                cop_logfile_append(&l, 1, "x", 1, 1);
        }
        ASSERT_EQ(l.size, before + max - sizeof(struct cop_log_frame));
        cop_logfile_sync_mark(&l, 2);
        struct content c = read_back(dir, "a.log");
        ASSERT_EQ(c.out, 100);
        ASSERT_EQ(c.dropped, 900);
        cop_logfile_close(&l);
        close(dir);
}

TEST(nothing_kept_at_all)
{
        struct cop_logfile l = COP_LOGFILE_NULL;
        struct cop_error err = COP_ERROR_NULL;
        int dir = dir_fd();

        ASSERT_OK(cop_logfile_create(dir, "a.log", 0, &l, &err), &err);
        cop_logfile_append(&l, 1, "abc", 3, 1);
        cop_logfile_sync_mark(&l, 1);
        struct content c = read_back(dir, "a.log");
        ASSERT_EQ(c.dropped, 3);
        ASSERT_EQ(c.frames, 1);
        cop_logfile_close(&l);
        close(dir);
}

/* A limit of the file size stands for a full disk: the write that crosses it is cut or refused. */
TEST(a_full_disk_tears_no_frame)
{
        struct cop_logfile l = COP_LOGFILE_NULL;
        struct cop_error err = COP_ERROR_NULL;
        struct rlimit small = {5000, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
        int dir = dir_fd();
        static char block[4000];

        signal(SIGXFSZ, SIG_IGN);
        ASSERT_OK(cop_logfile_create(dir, "a.log", 1 << 20, &l, &err), &err);
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
        cop_logfile_append(&l, 1, block, sizeof(block), 1);
        cop_logfile_append(&l, 1, block, sizeof(block), 2); /* does not fit */
        cop_logfile_append(&l, 1, "x", 1, 3);               /* would fit, but after a gap */
        ASSERT(cop_logfile_full(&l));
        cop_logfile_sync_mark(&l, 4);
        struct content c = read_back(dir, "a.log");
        ASSERT(!c.torn);
        ASSERT_EQ(c.out, 4000);
        ASSERT_EQ(c.dropped, 4001);
        ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
        cop_logfile_close(&l);
        close(dir);
}
