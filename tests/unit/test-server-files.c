#include "server-driver.h"

#include "sandbox/wire.h"

static void check_pattern(const struct answer *a, uint64_t offset, uint64_t n)
{
        ASSERT_EQ(a->body_len, n);
        for (uint64_t i = 0; i < n; i++)
                if ((unsigned char)a->body[i] != fake_byte(offset + i))
                        FAIL("byte %llu differs", (unsigned long long)i);
}

TEST(downloads_of_all_sizes)
{
        static const uint64_t sizes[] = {0, 1, 65535, 65536, 65537, 3000000};
        struct rig rig = rig_new();
        char buf[512], want[32];

        for (size_t i = 0; i < ELEMENTSOF(sizes); i++)
                for (int slow = 0; slow < 2; slow++) {
                        fake.file_size = sizes[i];
                        fake.file_step = slow ? 10007 : UINT64_MAX;
                        struct answer a = rig_call(&rig, "GET", "/api/sandboxes/sb/files?path=/pattern", NULL, NULL);
                        ASSERT_EQ(a.status, 200);
                        ASSERT(a.complete);
                        snprintf(want, sizeof(want), "%llu", (unsigned long long)sizes[i]);
                        ASSERT_STR(answer_header(&a, "Content-Length", buf), want);
                        ASSERT_STR(answer_header(&a, "X-Content-Type-Options", buf), "nosniff");
                        check_pattern(&a, 0, sizes[i]);
                        answer_done(&a);
                        ASSERT_EQ(fake.open_streams, 0);
                }
        expect_error(&rig, "GET", "/api/sandboxes/sb/files?path=/missing", NULL, "file_not_found", NULL);
        rig_free(&rig);
}

TEST(ranges_of_a_file)
{
        struct rig rig = rig_new();
        char buf[512], etag[512], text[600];

        fake.file_size = 100000;
        struct answer a =
                rig_call(&rig, "GET", "/api/sandboxes/sb/files?path=/pattern", "Range: bytes=1000-1999\r\n", NULL);
        ASSERT_EQ(a.status, 206);
        ASSERT_STR(answer_header(&a, "Content-Range", buf), "bytes 1000-1999/100000");
        ASSERT(answer_header(&a, "ETag", etag));
        check_pattern(&a, 1000, 1000);
        answer_done(&a);
        a = rig_call(&rig, "GET", "/api/sandboxes/sb/files?path=/pattern", "Range: bytes=-10\r\n", NULL);
        ASSERT_EQ(a.status, 206);
        check_pattern(&a, 99990, 10);
        answer_done(&a);
        a = rig_call(&rig, "GET", "/api/sandboxes/sb/files?path=/pattern", "Range: bytes=100000-\r\n", NULL);
        ASSERT_EQ(a.status, 416);
        ASSERT_STR(answer_header(&a, "Content-Range", buf), "bytes */100000");
        answer_done(&a);
        snprintf(text, sizeof(text), "Range: bytes=5-9\r\nIf-Range: %s\r\n", etag);
        a = rig_call(&rig, "GET", "/api/sandboxes/sb/files?path=/pattern", text, NULL);
        ASSERT_EQ(a.status, 206);
        answer_done(&a);
        a = rig_call(&rig, "GET", "/api/sandboxes/sb/files?path=/pattern", "Range: bytes=5-9\r\nIf-Range: \"old\"\r\n",
                     NULL);
        ASSERT_EQ(a.status, 200);
        check_pattern(&a, 0, 100000);
        answer_done(&a);
        rig_free(&rig);
}

TEST(head_of_a_file)
{
        struct rig rig = rig_new();
        char buf[512];

        fake.file_size = 5000000000ULL;
        struct answer a = rig_call(&rig, "HEAD", "/api/sandboxes/sb/files?path=/pattern", NULL, NULL);
        ASSERT_EQ(a.status, 200);
        ASSERT_STR(answer_header(&a, "Content-Length", buf), "5000000000");
        answer_done(&a);
        a = rig_call(&rig, "HEAD", "/api/sandboxes/sb/files?path=/missing", NULL, NULL);
        ASSERT_EQ(a.status, 404);
        answer_done(&a);
        a = rig_call(&rig, "HEAD", "/api/sandboxes/sb/files?path=/folder", NULL, NULL);
        ASSERT_EQ(a.status, 409);
        answer_done(&a);
        ASSERT_EQ(fake.open_streams, 0);
        rig_free(&rig);
}

TEST(a_download_that_is_given_up)
{
        static const char request[] = "GET /api/sandboxes/sb/files?path=/pattern HTTP/1.1\r\nHost: x\r\n\r\n";
        struct rig rig = rig_new();

        fake.file_size = 100u << 20;
        for (int step = 0; step < 2; step++) {
                fake.file_step = step ? 1000 : UINT64_MAX;
                int fd = rig_connect(&rig);
                rig_send(&rig, fd, request, sizeof(request) - 1);
                rig_turn(&rig, 10);
                ASSERT_EQ(fake.open_streams, 1);
                close(fd);
                rig_turn(&rig, 10);
                ASSERT_EQ(fake.open_streams, 0);
        }
        rig_free(&rig);
}

static struct answer upload(struct rig *rig, const char *target, const char *extra, size_t n, size_t sent,
                            uint64_t *ret_sum)
{
        char head[400];
        char *data = malloc(n + 1);
        int fd = rig_connect(rig);
        uint64_t sum = 0;

        for (size_t i = 0; i < n; i++)
                sum += (unsigned char)(data[i] = (char)fake_byte(i));
        snprintf(head, sizeof(head), "PUT %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %zu\r\n\r\n", target, extra, n);
        rig_send(rig, fd, head, strlen(head));
        rig_send(rig, fd, data, sent);
        struct answer a = {0};
        if (sent == n)
                a = rig_receive(rig, fd, false, 2000);
        free(data);
        close(fd);
        rig_turn(rig, 10);
        if (ret_sum)
                *ret_sum = sum;
        return a;
}

TEST(uploads_of_all_sizes)
{
        static const size_t sizes[] = {0, 1, 65536, 3000000};
        struct rig rig = rig_new();
        uint64_t sum;

        for (size_t i = 0; i < ELEMENTSOF(sizes); i++)
                for (int slow = 0; slow < 2; slow++) {
                        fake.written = fake.write_sum = 0;
                        fake.write_step = slow ? 10007 : UINT64_MAX;
                        struct answer a = upload(&rig, "/api/sandboxes/sb/files?path=/a&mode=0600&parents&sha256=true",
                                                 "", sizes[i], sizes[i], &sum);
                        ASSERT_EQ(a.status, 200);
                        ASSERT_EQ(fake.written, sizes[i]);
                        ASSERT_EQ(fake.write_sum, sum);
                        ASSERT_EQ(fake.write_length, sizes[i]);
                        ASSERT(fake.write_finished);
                        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "mode")), 0600);
                        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "flags")),
                                  COP_FILE_ATOMIC | COP_FILE_PARENTS | COP_FILE_SHA256);
                        answer_done(&a);
                        ASSERT_EQ(fake.open_streams, 0);
                }
        rig_free(&rig);
}

TEST(an_upload_to_nowhere_is_told_early)
{
        struct rig rig = rig_new();

        struct answer a = upload(&rig, "/api/sandboxes/sb/files?path=/missing", "", 20 << 20, 20 << 20, NULL);
        ASSERT_EQ(a.status, 404);
        ASSERT_CONTAINS(a.body, "file_not_found");
        answer_done(&a);
        a = upload(&rig, "/api/sandboxes/nobody/files?path=/a", "", 100, 100, NULL);
        ASSERT_EQ(a.status, 404);
        answer_done(&a);
        ASSERT_EQ(fake.written, 0);
        rig_free(&rig);
}

TEST(a_full_disk_in_the_middle)
{
        struct rig rig = rig_new();

        fake.write_fail_after = 1 << 20;
        struct answer a = upload(&rig, "/api/sandboxes/sb/files?path=/a", "", 50 << 20, 50 << 20, NULL);
        ASSERT_EQ(a.status, 507);
        ASSERT_CONTAINS(a.body, "disk_full");
        answer_done(&a);
        rig_turn(&rig, 5);
        ASSERT_EQ(fake.open_streams, 0);
        rig_free(&rig);
}

TEST(an_upload_that_is_given_up_is_undone)
{
        struct rig rig = rig_new();

        for (int slow = 0; slow < 2; slow++) {
                fake.write_aborted = false;
                fake.write_step = slow ? 100 : UINT64_MAX;
                struct answer a =
                        upload(&rig, "/api/sandboxes/sb/files?path=/a", "", 1 << 20, slow ? 5000 : 500000, NULL);
                ASSERT_EQ(a.status, 0);
                rig_turn(&rig, 200);
                ASSERT(fake.write_aborted);
                ASSERT(!fake.write_finished);
                ASSERT_EQ(fake.open_streams, 0);
        }
        rig_free(&rig);
}

TEST(chunked_upload)
{
        static const char request[] =
                "PUT /api/sandboxes/sb/files?path=/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
        struct rig rig = rig_new();
        int fd = rig_connect(&rig);

        rig_send(&rig, fd, request, sizeof(request) - 1);
        struct answer a = rig_receive(&rig, fd, false, 1000);
        ASSERT_EQ(a.status, 200);
        ASSERT_EQ(fake.written, 11);
        ASSERT(fake.write_length == UINT64_MAX);
        answer_done(&a);
        close(fd);
        rig_turn(&rig, 5);
        rig_free(&rig);
}

TEST(upload_with_expect)
{
        static const char request[] = "PUT /api/sandboxes/sb/files?path=%s HTTP/1.1\r\nHost: x\r\nContent-Length: "
                                      "5\r\nExpect: 100-continue\r\n\r\n";
        struct rig rig = rig_new();
        char text[300];

        int fd = rig_connect(&rig);
        snprintf(text, sizeof(text), request, "/a");
        rig_send(&rig, fd, text, strlen(text));
        rig_turn(&rig, 10);
        ssize_t n = recv(fd, text, sizeof(text) - 1, 0);
        text[n > 0 ? n : 0] = '\0';
        ASSERT_CONTAINS(text, "100 Continue");
        rig_send(&rig, fd, "hello", 5);
        struct answer a = rig_receive(&rig, fd, false, 1000);
        ASSERT_EQ(a.status, 200);
        answer_done(&a);
        close(fd);
        fd = rig_connect(&rig);
        snprintf(text, sizeof(text), request, "/missing");
        rig_send(&rig, fd, text, strlen(text));
        a = rig_receive(&rig, fd, false, 1000);
        ASSERT_EQ(a.status, 404);
        answer_done(&a);
        close(fd);
        rig_turn(&rig, 5);
        rig_free(&rig);
}

TEST(file_operations)
{
        struct rig rig = rig_new();
        struct answer a = rig_call(&rig, "POST", "/api/sandboxes/sb/files/mkdir", NULL,
                                   "{\"path\":\"/a/b\",\"mode\":\"0700\",\"parents\":true}");

        ASSERT_EQ(a.status, 201);
        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "mode")), 0700);
        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "op")), COP_FILE_MKDIR);
        answer_done(&a);
        a = rig_call(&rig, "GET", "/api/sandboxes/sb/files/list?path=/a&depth=3&limit=5", NULL, NULL);
        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "count")), 5);
        answer_done(&a);
        a = rig_call(&rig, "DELETE", "/api/sandboxes/sb/files?path=/a%20b&recursive=true", NULL, NULL);
        ASSERT_STR(json_string_value(json_object_get(fake.last, "path")), "/a b");
        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "flags")), COP_FILE_RECURSIVE);
        answer_done(&a);
        fake.file_size = 100000;
        a = rig_call(&rig, "GET", "/api/sandboxes/sb/files/tar?path=/a", NULL, NULL);
        ASSERT_EQ(a.status, 200);
        check_pattern(&a, 0, 100000);
        answer_done(&a);
        a = upload(&rig, "/api/sandboxes/sb/files/tar?path=/a", "", 1000, 1000, NULL);
        ASSERT_EQ(a.status, 200);
        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "op")), COP_FILE_UNTAR);
        answer_done(&a);
        rig_free(&rig);
}
