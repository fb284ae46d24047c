/* The log of a command as results read it: heads and tails, exact counts, files that are not whole. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/command.h"
#include "lib/test.h"
#include "sandbox/wire.h"

static struct cop_error err;
static int logs_fd, log_fd;

static void begin(void)
{
        const uint32_t header[2] = {COP_LOG_MAGIC, 0};

        logs_fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        log_fd = openat(logs_fd, "cmd_x.log", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        ASSERT(log_fd >= 0 && write(log_fd, header, sizeof(header)) == sizeof(header));
}

static void frame(unsigned char stream, const void *data, size_t n)
{
        struct cop_log_frame f = {.stream = stream, .length = (unsigned)n, .time = 1};

        ASSERT(write(log_fd, &f, sizeof(f)) == sizeof(f) && write(log_fd, data, n) == (ssize_t)n);
}

static void end(void)
{
        close(log_fd);
        close(logs_fd);
}

/* Reads the log and gives the text of stream i; the numbers of `truncated` into counts when there are any. */
static char *text_of(unsigned i, size_t output_max, uint64_t total, long long counts[4])
{
        struct cop_command_output o;
        json_t *truncated = NULL;

        ASSERT_OK(cop_command_output_read(logs_fd, "cmd_x", UINT64_MAX, output_max, &o, &err), &err);
        json_t *text = cop_command_output_text(&o, i, total == UINT64_MAX ? o.streams[i].bytes : total, &truncated);
        char *copy = strdup(json_string_value(text));
        static const char *const keys[] = {"bytes", "kept_head", "kept_tail", "dropped"};
        json_t *of_stream = json_object_get(truncated, i ? "stderr" : "stdout");
        for (int k = 0; k < 4; k++)
                counts[k] = of_stream ? json_integer_value(json_object_get(of_stream, keys[k])) : -1;
        json_decref(truncated);
        json_decref(text);
        cop_command_output_done(&o);
        return copy;
}

static void check(unsigned i, size_t output_max, uint64_t total, const char *wanted, long long dropped)
{
        long long counts[4];
        char *text = text_of(i, output_max, total, counts);

        ASSERT_STR(text, wanted);
        ASSERT_EQ(counts[3], dropped);
        if (dropped >= 0)
                ASSERT_EQ(counts[0], counts[1] + counts[2] + counts[3]);
        free(text);
}

TEST(streams_are_kept_apart)
{
        begin();
        frame(1, "one", 3);
        frame(2, "err", 3);
        frame(1, "two", 3);
        check(0, 100, UINT64_MAX, "onetwo", -1);
        check(1, 100, UINT64_MAX, "err", -1);
        end();
}

TEST(head_and_tail_with_exact_counts)
{
        begin();
        for (char c = 'a'; c <= 'z'; c++)
                frame(1, &c, 1);
        check(0, 26, UINT64_MAX, "abcdefghijklmnopqrstuvwxyz", -1);
        check(0, 24, UINT64_MAX, "abcdefghijkl\n[… 2 bytes left out …]\nopqrstuvwxyz", 2);
        check(0, 4, UINT64_MAX, "ab\n[… 22 bytes left out …]\nyz", 22);
        end();
}

TEST(characters_are_not_cut)
{
        begin();
        frame(1,
              "a\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc"
              "b",
              10); /* 4 ü */
        check(0, 4, UINT64_MAX, "a\n[… 8 bytes left out …]\nb", 8);
        check(0, 10, UINT64_MAX, "aüüüüb", -1);
        end();
}

TEST(a_log_that_ran_full_has_no_tail)
{
        const uint64_t dropped = 90;

        begin();
        frame(1, "0123456789", 10);
        frame(3, &dropped, sizeof(dropped));
        check(0, 8, 100, "0123\n[… 96 bytes left out …]\n", 96);
        end();
}

TEST(a_frame_that_is_not_whole_is_not_there)
{
        struct cop_log_frame half = {.stream = 1, .length = 100};

        begin();
        frame(1, "whole", 5);
        ASSERT(write(log_fd, &half, sizeof(half)) == sizeof(half) && write(log_fd, "part", 4) == 4);
        check(0, 100, UINT64_MAX, "whole", -1);
        end();
}

TEST(damage_is_an_error)
{
        struct cop_command_output o;

        begin();
        frame(1, "x", 1);
        frame(7, "x", 1);
        ASSERT_CODE(cop_command_output_read(logs_fd, "cmd_x", UINT64_MAX, 100, &o, &err), &err, COP_ERR_io_error);
        cop_command_output_done(&o);
        /* One that is not there reads as empty. */
        ASSERT_OK(cop_command_output_read(logs_fd, "cmd_nosuch", UINT64_MAX, 100, &o, &err), &err);
        ASSERT_EQ(o.streams[0].bytes, 0);
        cop_command_output_done(&o);
        end();
}

TEST(large_output_of_random_pieces)
{
        size_t total = 0;
        char last[64] = "";

        begin();
        for (unsigned i = 0; i < 20000; i++) {
                char piece[64];
                int n = snprintf(piece, sizeof(piece), "%u,%.*s\n", i, (int)(i * 7 % 40),
                                 "........................................");
                frame(1, piece, (size_t)n);
                total += (size_t)n;
                memcpy(last, piece, sizeof(last));
        }
        long long counts[4];
        char *text = text_of(0, 5000, UINT64_MAX, counts);
        ASSERT_EQ(counts[0], total);
        ASSERT_EQ(counts[1], 2500);
        ASSERT_EQ(counts[2], 2500);
        ASSERT_EQ(counts[3], total - 5000);
        ASSERT(strncmp(text, "0,\n1,", 5) == 0);
        ASSERT_STR(text + strlen(text) - strlen(last), last);
        free(text);
        end();
}
