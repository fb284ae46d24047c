#include "lib/test.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/msg.h"

static void make_pair(int fds[2])
{
        ASSERT_OK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), NULL);
}

static void close_pair(const int fds[2])
{
        close(fds[0]);
        close(fds[1]);
}

TEST(what_is_sent_arrives)
{
        int s[2];
        char *text = NULL, **argv = NULL;
        const void *bytes;
        size_t n;
        uint64_t u = 0;
        int64_t i = 0;
        _cleanup_msg_ struct cop_msg out = COP_MSG_NULL, in = COP_MSG_NULL;

        make_pair(s);
        cop_msg_init(&out, 7, 42);
        cop_msg_add_str(&out, 1, "hello");
        cop_msg_add_str(&out, 2, NULL);
        cop_msg_add_str(&out, 3, "a");
        cop_msg_add_str(&out, 3, "");
        cop_msg_add_str(&out, 3, "ccc");
        cop_msg_add_u64(&out, 4, UINT64_MAX);
        cop_msg_add_i64(&out, 5, -5);
        cop_msg_add_bytes(&out, 6, "x\0y", 3);
        ASSERT_OK(cop_msg_send(s[0], &out), NULL);
        ASSERT_EQ(cop_msg_recv(s[1], &in), 1);
        ASSERT_EQ(in.type, 7);
        ASSERT_EQ(in.id, 42);
        ASSERT_EQ(in.field_count, 7);
        ASSERT_OK(cop_msg_get_str(&in, 1, 0, &text), NULL);
        ASSERT_STR(text, "hello");
        free(text);
        ASSERT_ERRNO(cop_msg_get_str(&in, 1, 1, &text), ENOENT);
        ASSERT_ERRNO(cop_msg_get_str(&in, 2, 0, &text), ENOENT);
        ASSERT_OK(cop_msg_get_strv(&in, 3, &argv, &n), NULL);
        ASSERT_EQ(n, 3);
        ASSERT_STR(argv[0], "a");
        ASSERT_STR(argv[1], "");
        ASSERT_STR(argv[2], "ccc");
        ASSERT(argv[3] == NULL);
        cop_strv_free(argv);
        ASSERT_OK(cop_msg_get_u64(&in, 4, &u), NULL);
        ASSERT(u == UINT64_MAX);
        ASSERT_OK(cop_msg_get_i64(&in, 5, &i), NULL);
        ASSERT_EQ(i, -5);
        ASSERT_OK(cop_msg_get_bytes(&in, 6, 0, &bytes, &n), NULL);
        ASSERT_EQ(n, 3);
        ASSERT_MEM(bytes, "x\0y", 3);
        ASSERT_ERRNO(cop_msg_get_str(&in, 6, 0, &text), EBADMSG);
        ASSERT_ERRNO(cop_msg_get_strv(&in, 6, &argv, &n), EBADMSG);
        ASSERT_ERRNO(cop_msg_get_u64(&in, 1, &u), EBADMSG);
        ASSERT_EQ(cop_msg_u64_or(&in, 99, 3), 3);
        close_pair(s);
}

TEST(empty_socket_and_end_of_file)
{
        _cleanup_msg_ struct cop_msg in = COP_MSG_NULL, out = COP_MSG_NULL;
        int s[2];

        make_pair(s);
        ASSERT_ERRNO(cop_msg_recv(s[1], &in), EAGAIN);
        close(s[0]);
        ASSERT_EQ(cop_msg_recv(s[1], &in), 0);
        cop_msg_init(&out, 1, 1);
        ASSERT_ERRNO(cop_msg_send(s[1], &out), EPIPE); /* and no SIGPIPE */
        close(s[1]);
}

TEST(descriptors_travel_and_are_close_on_exec)
{
        _cleanup_msg_ struct cop_msg out = COP_MSG_NULL, in = COP_MSG_NULL;
        struct stat a, b;
        int s[2];

        make_pair(s);
        cop_msg_init(&out, 1, 1);
        cop_msg_add_fd(&out, open("/dev/null", O_RDONLY));
        cop_msg_add_fd(&out, open("/dev/zero", O_RDONLY));
        ASSERT_OK(cop_msg_send(s[0], &out), NULL);
        ASSERT_EQ(cop_msg_recv(s[1], &in), 1);
        ASSERT_EQ(in.fd_count, 2);
        _cleanup_close_ int zero = cop_msg_take_fd(&in, 1);
        ASSERT_GE(zero, 0);
        ASSERT(fcntl(zero, F_GETFD) & FD_CLOEXEC);
        ASSERT_OK(fstat(zero, &a), NULL);
        ASSERT_OK(stat("/dev/zero", &b), NULL);
        ASSERT_EQ(a.st_rdev, b.st_rdev);
        ASSERT_ERRNO(cop_msg_take_fd(&in, 1), EBADF);
        ASSERT_ERRNO(cop_msg_take_fd(&in, 2), EBADF);
        close_pair(s); /* descriptor 0 of `in`, and those of `out`, go with the messages */
}

TEST(too_many_descriptors)
{
        _cleanup_msg_ struct cop_msg out = COP_MSG_NULL;
        int s[2];

        make_pair(s);
        cop_msg_init(&out, 1, 1);
        for (int i = 0; i <= COP_MSG_FDS_MAX; i++)
                cop_msg_add_fd(&out, open("/dev/null", O_RDONLY));
        ASSERT_ERRNO(cop_msg_send(s[0], &out), E2BIG);
        close_pair(s);
}

static void send_raw(int fd, const void *data, size_t n, int fd_count)
{
        union {
                struct cmsghdr align;
                char space[CMSG_SPACE(sizeof(int) * 100)];
        } control = {0};
        struct iovec iov = {(void *)data, n};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

        if (fd_count) {
                msg.msg_control = &control;
                msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fd_count);
                struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fd_count);
                int *fds = (int *)(void *)CMSG_DATA(c);
                for (int i = 0; i < fd_count; i++)
                        fds[i] = STDERR_FILENO;
        }
        ASSERT_EQ(sendmsg(fd, &msg, MSG_NOSIGNAL), n);
}

TEST(a_hostile_peer_leaks_no_descriptors)
{
        struct {
                uint32_t magic;
                uint16_t type, fields;
                uint32_t id, length;
        } header = {0x314d5043, 1, 0, 1, 16};
        _cleanup_msg_ struct cop_msg in = COP_MSG_NULL;
        int s[2];

        make_pair(s);
        size_t before = test_count_fds();
        send_raw(s[0], &header, 16, 9);
        ASSERT_ERRNO(cop_msg_recv(s[1], &in), EBADMSG);
        send_raw(s[0], &header, 16, 100);
        ASSERT_ERRNO(cop_msg_recv(s[1], &in), EBADMSG);
        send_raw(s[0], "garbage", 7, 3);
        ASSERT_ERRNO(cop_msg_recv(s[1], &in), EBADMSG);
        send_raw(s[0], "", 0, 1);
        ASSERT_ERRNO(cop_msg_recv(s[1], &in), EBADMSG);
        ASSERT_EQ(test_count_fds(), before);
        send_raw(s[0], &header, 16, 8);
        ASSERT_EQ(cop_msg_recv(s[1], &in), 1);
        ASSERT_EQ(in.fd_count, 8);
        close_pair(s);
}

static int parse_bytes(const void *data, size_t n)
{
        struct cop_msg m = COP_MSG_NULL;
        int r = cop_msg_parse(data, n, &m);

        cop_msg_done(&m);
        return r;
}

TEST(malformed_packets_are_refused)
{
        uint32_t p[8] = {0x314d5043, 1 | 1u << 16, 9, 28, /* field: */ 5, 3, 0x00636261, 0};

        ASSERT_OK(parse_bytes(p, 28), NULL);
        for (size_t n = 0; n < 28; n++) /* cut anywhere */
                ASSERT_ERRNO(parse_bytes(p, n), EBADMSG);
        ASSERT_ERRNO(parse_bytes(p, 32), EBADMSG); /* longer than it says */
        p[0]++;
        ASSERT_ERRNO(parse_bytes(p, 28), EBADMSG); /* magic */
        p[0]--;
        p[1] = 1 | 2u << 16;
        ASSERT_ERRNO(parse_bytes(p, 28), EBADMSG); /* field count */
        p[1] = 1;
        ASSERT_ERRNO(parse_bytes(p, 28), EBADMSG);
        p[1] = 1 | 1u << 16;
        p[4] = 5 | 1u << 16;
        ASSERT_ERRNO(parse_bytes(p, 28), EBADMSG); /* reserved */
        p[4] = 5;
        static const uint32_t lengths[] = {5, 100, 0x7fffffff, 0xfffffffd, 0xffffffff};
        for (size_t i = 0; i < ELEMENTSOF(lengths); i++) {
                p[5] = lengths[i];
                ASSERT_ERRNO(parse_bytes(p, 28), EBADMSG);
        }
}

TEST(random_bytes_never_crash_the_parser)
{
        static uint32_t p[64];

        srand(1);
        for (int round = 0; round < 200000; round++) {
                size_t words = 4 + (size_t)rand() % 60;
                for (size_t i = 0; i < words; i++)
                        p[i] = rand() % 4 ? (uint32_t)rand() % 32 : (uint32_t)rand() * 2654435761u;
                p[0] = 0x314d5043;
                p[3] = (uint32_t)words * 4;
                struct cop_msg m = COP_MSG_NULL;
                if (cop_msg_parse(p, words * 4, &m) == 0) {
                        char *text = NULL, **strv = NULL;
                        for (uint16_t tag = 0; tag < 8; tag++) {
                                if (cop_msg_get_str(&m, tag, 0, &text) == 0)
                                        free(text);
                                if (cop_msg_get_strv(&m, tag, &strv, NULL) == 0)
                                        cop_strv_free(strv);
                        }
                }
                cop_msg_done(&m);
        }
}

TEST(the_largest_message_fits_and_a_larger_one_is_told)
{
        static char data[COP_MSG_MAX];
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, big = COP_MSG_NULL, in = COP_MSG_NULL;
        int s[2];

        make_pair(s);
        cop_msg_init(&m, 1, 1);
        cop_msg_add_bytes(&m, 1, data, COP_MSG_MAX - 16 - 8);
        ASSERT(!m.failed);
        ASSERT_OK(cop_msg_send(s[0], &m), NULL);
        ASSERT_EQ(cop_msg_recv(s[1], &in), 1);
        cop_msg_add_u64(&m, 2, 1);
        ASSERT(m.failed);
        ASSERT_ERRNO(cop_msg_send(s[0], &m), E2BIG);
        /* Built on COP_MSG_NULL without cop_msg_init: the limit holds all the same. */
        cop_msg_add_bytes(&big, 1, data, COP_MSG_MAX - 8);
        ASSERT_ERRNO(cop_msg_send(s[0], &big), E2BIG);
        close_pair(s);
}

TEST(a_full_socket_takes_nothing)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
        static char data[100000];
        int s[2], sent = 0, r;

        make_pair(s);
        cop_msg_init(&m, 1, 1);
        cop_msg_add_bytes(&m, 1, data, sizeof(data));
        while ((r = cop_msg_send(s[0], &m)) == 0)
                sent++;
        ASSERT_ERRNO(r, EAGAIN);
        for (int i = 0; i < sent; i++) {
                _cleanup_msg_ struct cop_msg in = COP_MSG_NULL;
                ASSERT_EQ(cop_msg_recv(s[1], &in), 1);
        }
        struct cop_msg none = COP_MSG_NULL;
        ASSERT_ERRNO(cop_msg_recv(s[1], &none), EAGAIN);
        close_pair(s);
}

TEST(errors_travel)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, plain = COP_MSG_NULL;
        struct cop_error out = COP_ERROR_NULL, in = COP_ERROR_NULL;

        cop_error_set(&out, ENOSPC, COP_ERR_disk_full, "full \xC3\xA9");
        cop_msg_init(&m, 1, 1);
        cop_msg_add_error(&m, &out);
        ASSERT(cop_msg_get_error(&m, &in));
        ASSERT_EQ(in.errnum, ENOSPC);
        ASSERT_EQ(in.code, COP_ERR_disk_full);
        ASSERT_STR(in.message, "full \xC3\xA9");
        cop_msg_init(&plain, 1, 1);
        ASSERT(!cop_msg_get_error(&plain, &in));
}

TEST(a_foreign_error_is_made_harmless)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
        struct cop_error err = COP_ERROR_NULL;

        cop_msg_init(&m, 1, 1);
        cop_msg_add_u64(&m, COP_TAG_ERROR_ERRNO, UINT64_MAX);
        cop_msg_add_str(&m, COP_TAG_ERROR_CODE, "no such code");
        cop_msg_add_bytes(&m, COP_TAG_ERROR_MESSAGE, "%s%n\xFF\0x", 7);
        ASSERT(cop_msg_get_error(&m, &err));
        ASSERT_EQ(err.errnum, EIO);
        ASSERT_EQ(err.code, COP_ERR_internal);
        ASSERT_STR(err.message, "%s%n\xEF\xBF\xBD");
}
