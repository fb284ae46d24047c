#include "lib/test.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"

TEST(adds_up_to_the_maximum_and_not_beyond)
{
        _cleanup_buf_ struct cop_buf b = COP_BUF(10);

        ASSERT_OK(cop_buf_adds(&b, "12345"), NULL);
        ASSERT_OK(cop_buf_add(&b, "67890", 5), NULL);
        ASSERT_ERRNO(cop_buf_addc(&b, 'x'), EMSGSIZE);
        ASSERT_ERRNO(cop_buf_addf(&b, "%d", 1), EMSGSIZE);
        ASSERT_STR(b.data, "1234567890");
        ASSERT_EQ(b.len, 10);
        ASSERT_EQ(b.data[b.len], 0);
}

TEST(an_unlimited_buffer_does_not_overflow_its_sums)
{
        _cleanup_buf_ struct cop_buf b = COP_BUF(SIZE_MAX);

        ASSERT_OK(cop_buf_adds(&b, "abc"), NULL);
        ASSERT_STR(b.data, "abc");
        ASSERT_ERRNO(cop_buf_reserve(&b, SIZE_MAX), EMSGSIZE);
        ASSERT_ERRNO(cop_buf_reserve(&b, SIZE_MAX - 1), EMSGSIZE);
}

TEST(grows_over_many_adds)
{
        _cleanup_buf_ struct cop_buf b = COP_BUF(1 << 20);

        for (int i = 0; i < 100000; i++)
                ASSERT_OK(cop_buf_addc(&b, (char)('a' + i % 26)), NULL);
        ASSERT_EQ(b.len, 100000);
        for (int i = 0; i < 100000; i++)
                ASSERT_EQ(b.data[i], 'a' + i % 26);
        ASSERT_LE(b.allocated, 200000);
}

TEST(formats)
{
        _cleanup_buf_ struct cop_buf b = COP_BUF(100);

        ASSERT_OK(cop_buf_addf(&b, "%s-%d", "x", 42), NULL);
        ASSERT_OK(cop_buf_addf(&b, "%c", 'y'), NULL);
        ASSERT_STR(b.data, "x-42y");
}

TEST(consumes_from_the_front)
{
        _cleanup_buf_ struct cop_buf b = COP_BUF(100);

        cop_buf_consume(&b, 0); /* nothing there yet */
        ASSERT_OK(cop_buf_adds(&b, "hello world"), NULL);
        cop_buf_consume(&b, 6);
        ASSERT_STR(b.data, "world");
        cop_buf_consume(&b, 5);
        ASSERT_EQ(b.len, 0);
        ASSERT_STR(b.data, "");
}

TEST(take_hands_the_memory_over)
{
        _cleanup_buf_ struct cop_buf b = COP_BUF(100);
        _cleanup_free_ char *empty = cop_buf_take(&b);

        ASSERT_STR(empty, "");
        ASSERT_OK(cop_buf_adds(&b, "text"), NULL);
        _cleanup_free_ char *text = cop_buf_take(&b);
        ASSERT_STR(text, "text");
        ASSERT_EQ(b.len, 0);
        ASSERT(b.data == NULL);
        ASSERT_OK(cop_buf_adds(&b, "again"), NULL);
        ASSERT_STR(b.data, "again");
}

TEST(keeps_nul_bytes)
{
        _cleanup_buf_ struct cop_buf b = COP_BUF(100);

        ASSERT_OK(cop_buf_add(&b, "a\0b", 3), NULL);
        ASSERT_EQ(b.len, 3);
        ASSERT_MEM(b.data, "a\0b", 4);
}

TEST(reads_from_a_descriptor_until_full)
{
        _cleanup_buf_ struct cop_buf b = COP_BUF(8);
        int fds[2];

        ASSERT_OK(pipe2(fds, O_CLOEXEC), NULL);
        ASSERT_EQ(write(fds[1], "0123456789", 10), 10);
        close(fds[1]);
        ASSERT_EQ(cop_buf_read(&b, fds[0], 5), 5);
        ASSERT_EQ(cop_buf_read(&b, fds[0], 5), 3);
        ASSERT_ERRNO(cop_buf_read(&b, fds[0], 5), EMSGSIZE);
        ASSERT_STR(b.data, "01234567");
        cop_buf_clear(&b);
        ASSERT_EQ(cop_buf_read(&b, fds[0], 5), 2);
        ASSERT_EQ(cop_buf_read(&b, fds[0], 5), 0);
        close(fds[0]);
        ASSERT_ERRNO(cop_buf_read(&b, fds[0], 5), EBADF);
        ASSERT_STR(b.data, "89");
}
