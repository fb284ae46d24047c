#include "server-driver.h"

#include "server/sse.h"

/* -- the encoder ---------------------------------------------------------------------------------------------------- */

static char *encode(const char *in, size_t in_piece, size_t out_piece)
{
        struct cop_sse sse = {.seq = 100};
        struct cop_buf out = COP_BUF(1u << 20);
        size_t len = strlen(in), at = 0, taken;
        char piece[4096];

        while (at < len) {
                size_t n = len - at < in_piece ? len - at : in_piece;
                size_t got = cop_sse_encode(&sse, in + at, n, piece, out_piece, &taken);
                ASSERT_LE(got, out_piece);
                ASSERT(taken > 0);
                cop_buf_add(&out, piece, got);
                at += taken;
        }
        return cop_buf_take(&out);
}

TEST(sse_takes_seq_from_either_end)
{
        static const char in[] = "{\"seq\":7,\"a\":1}\n{\"text\":\"x\",\"seq\":9}\n{\"no\":1}\n{\"a\":\"\\\"seq\\\":5}"
                                 "\"}\n{\"d\":{\"e\":{\"x\":1,\"seq\":5}}}\n";
        static const char wanted[] =
                "data: {\"seq\":7,\"a\":1}\nid: 7\n\ndata: {\"text\":\"x\",\"seq\":9}\nid: 9\n\ndata: {\"no\":1}\nid: "
                "10\n\n"
                "data: {\"a\":\"\\\"seq\\\":5}\"}\nid: 11\n\ndata: {\"d\":{\"e\":{\"x\":1,\"seq\":5}}}\nid: 12\n\n";

        for (size_t in_piece = 1; in_piece < 60; in_piece++)
                for (size_t out_piece = 64; out_piece < 200; out_piece += 7) {
                        char *out = encode(in, in_piece, out_piece);
                        ASSERT_STR(out, wanted);
                        free(out);
                }
}

/* -- streams of cells ------------------------------------------------------------------------------------------------ */

#define CELL "{\"code\":\"later\"}"

static int start_cell(struct rig *rig, const char *accept)
{
        char text[400];
        int fd = rig_connect(rig);

        snprintf(text, sizeof(text),
                 "POST /api/sandboxes/sb/cells HTTP/1.1\r\nHost: x\r\nAccept: %s\r\nContent-Length: %zu\r\n\r\n%s",
                 accept, strlen(CELL), CELL);
        rig_send(rig, fd, text, strlen(text));
        rig_turn(rig, 10);
        return fd;
}

static void expect_contains(struct rig *rig, int fd, const char *text)
{
        char buf[4096];

        rig_turn(rig, 5);
        ssize_t n = recv(fd, buf, sizeof(buf) - 1, MSG_DONTWAIT);
        ASSERT_GT(n, 0);
        buf[n] = '\0';
        ASSERT_CONTAINS(buf, text);
}

TEST(ndjson_comes_as_it_happens)
{
        struct rig rig = rig_new();
        int fd = start_cell(&rig, "application/x-ndjson");

        ASSERT(json_is_true(json_object_get(fake.last, "stream")));
        expect_contains(&rig, fd, "Content-Type: application/x-ndjson");
        fake_record_add(rig.engine, "{\"seq\":1,\"type\":\"start\"}");
        expect_contains(&rig, fd, "{\"seq\":1,\"type\":\"start\"}\n");
        fake_record_add(rig.engine, "{\"seq\":2,\"type\":\"stdout\",\"text\":\"a\"}");
        fake_record_add(rig.engine, "{\"seq\":3,\"type\":\"end\"}");
        fake_record_end(rig.engine);
        expect_contains(&rig, fd, "{\"seq\":3,\"type\":\"end\"}\n\r\n0\r\n");
        ASSERT_EQ(fake.open_readers, 0);
        ASSERT_EQ(fake.disconnected, 0);
        /* The connection goes on. */
        static const char next[] = "GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n";
        rig_send(&rig, fd, next, sizeof(next) - 1);
        expect_contains(&rig, fd, "200 OK");
        close(fd);
        rig_turn(&rig, 5);
        rig_free(&rig);
}

TEST(sse_events_have_ids)
{
        struct rig rig = rig_new();
        int fd = start_cell(&rig, "text/event-stream");

        fake_record_add(rig.engine, "{\"seq\":1,\"type\":\"start\"}");
        expect_contains(&rig, fd, "data: {\"seq\":1,\"type\":\"start\"}\nid: 1\n\n");
        fake_record_end(rig.engine);
        expect_contains(&rig, fd, "0\r\n\r\n");
        close(fd);
        rig_turn(&rig, 5);
        rig_free(&rig);
}

TEST_LIMIT(sse_keeps_the_connection_alive, 40)
{
        struct rig rig = rig_new();
        int fd = start_cell(&rig, "text/event-stream");
        char buf[1000];

        while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
                ;
        for (int i = 0; i < 160; i++)
                cop_loop_turn(rig.loop, 100 * USEC_PER_MSEC);
        expect_contains(&rig, fd, ": still here\n\n");
        fake_record_add(rig.engine, "{\"seq\":1}");
        expect_contains(&rig, fd, "data: {\"seq\":1}\nid: 1\n\n");
        close(fd);
        rig_turn(&rig, 5);
        ASSERT_EQ(fake.open_readers, 0);
        rig_free(&rig);
}

TEST(a_stream_client_that_leaves_is_told_to_the_engine)
{
        struct rig rig = rig_new();

        for (unsigned i = 0; i < 2; i++) {
                int fd = start_cell(&rig, i ? "text/event-stream" : "application/x-ndjson");
                fake_record_add(rig.engine, "{\"seq\":1}");
                rig_turn(&rig, 5);
                ASSERT_EQ(fake.open_readers, 1);
                ASSERT_EQ(fake.disconnected, i);
                close(fd);
                rig_turn(&rig, 5);
                ASSERT_EQ(fake.disconnected, i + 1);
                ASSERT_EQ(fake.open_readers, 0);
        }
        rig_free(&rig);
}

TEST(refusals_come_before_the_stream)
{
        struct rig rig = rig_new();
        struct answer a = rig_call(&rig, "POST", "/api/sandboxes/nobody/cells", "Accept: text/event-stream\r\n", CELL);

        ASSERT_EQ(a.status, 404);
        ASSERT_CONTAINS(a.body, "sandbox_not_found");
        answer_done(&a);
        a = rig_call(&rig, "GET", "/api/sandboxes/sb/cells/missing/stream", NULL, NULL);
        ASSERT_EQ(a.status, 404);
        ASSERT_CONTAINS(a.body, "cell_not_found");
        answer_done(&a);
        ASSERT_EQ(fake.open_readers, 0);
        rig_free(&rig);
}

TEST(following_from_a_place)
{
        struct rig rig = rig_new();

        fake_record_end(rig.engine);
        struct answer a = rig_call(&rig, "GET", "/api/sandboxes/sb/cells/c/stream?after=5", NULL, NULL);
        ASSERT_EQ(fake.read_after, 5);
        answer_done(&a);
        a = rig_call(&rig, "GET", "/api/sandboxes/sb/cells/c/stream",
                     "Accept: text/event-stream\r\nLast-Event-ID: 17\r\n", NULL);
        ASSERT_EQ(fake.read_after, 17);
        answer_done(&a);
        a = rig_call(&rig, "GET", "/api/events?after=3", NULL, NULL);
        ASSERT_EQ(a.status, 200);
        ASSERT_EQ(fake.read_after, 3);
        answer_done(&a);
        a = rig_call(&rig, "HEAD", "/api/sandboxes/sb/logs", NULL, NULL);
        ASSERT_EQ(a.status, 200);
        answer_done(&a);
        ASSERT_EQ(fake.open_readers, 0);
        rig_free(&rig);
}

TEST(long_records_are_complete)
{
        enum { LINES = 20000 };
        struct rig rig = rig_new();
        char line[200];

        for (int i = 1; i <= LINES; i++) {
                snprintf(line, sizeof(line),
                         "{\"type\":\"stdout\",\"text\":\"line %d of many, to fill some room\",\"seq\":%d}", i, i);
                fake_record_add(rig.engine, line);
        }
        fake_record_end(rig.engine);
        for (int sse = 0; sse < 2; sse++) {
                struct answer a = rig_call(&rig, "GET", "/api/sandboxes/sb/cells/c/stream",
                                           sse ? "Accept: text/event-stream\r\n" : NULL, NULL);
                ASSERT_EQ(a.status, 200);
                ASSERT(a.complete);
                size_t count = 0;
                for (const char *p = a.body; (p = strstr(p, sse ? "\n\n" : "}\n")); p += 2)
                        count++;
                ASSERT_EQ(count, LINES);
                snprintf(line, sizeof(line), sse ? "\"seq\":%d}\nid: %d\n\n" : "\"seq\":%d}\n", LINES, LINES);
                ASSERT_STR(a.body + a.body_len - strlen(line), line);
                answer_done(&a);
        }
        rig_free(&rig);
}

TEST(a_client_that_does_not_read_costs_nothing)
{
        enum { LINES = 100000 };
        struct rig rig = rig_new();
        int slow = start_cell(&rig, "application/x-ndjson");
        char line[200];

        for (int i = 1; i <= LINES; i++) {
                snprintf(line, sizeof(line),
                         "{\"type\":\"stdout\",\"text\":\"line %d of many, to fill some room\",\"seq\":%d}", i, i);
                fake_record_add(rig.engine, line);
                if (i % 1000 == 0)
                        rig_turn(&rig, 1);
        }
        /* Others are served meanwhile, and the loop sleeps. */
        struct answer a = rig_call(&rig, "GET", "/api/health", NULL, NULL);
        ASSERT_EQ(a.status, 200);
        answer_done(&a);
        usec_t before = cop_now(CLOCK_PROCESS_CPUTIME_ID);
        for (int i = 0; i < 20; i++)
                cop_loop_turn(rig.loop, 10 * USEC_PER_MSEC);
        ASSERT_LT(cop_now(CLOCK_PROCESS_CPUTIME_ID) - before, 50 * USEC_PER_MSEC);
        fake_record_end(rig.engine);
        a = rig_receive(&rig, slow, false, 1000);
        ASSERT(a.complete);
        snprintf(line, sizeof(line), "\"seq\":%d}\n", LINES);
        ASSERT_STR(a.body + a.body_len - strlen(line), line);
        answer_done(&a);
        close(slow);
        rig_turn(&rig, 5);
        rig_free(&rig);
}

/* -- feeds ------------------------------------------------------------------------------------------------------------ */

TEST(builds_stream_their_progress)
{
        static const char request[] = "POST /api/images/build HTTP/1.1\r\nHost: x\r\nAccept: "
                                      "application/x-ndjson\r\nContent-Length: 2\r\n\r\n{}";
        struct rig rig = rig_new();
        int fd = rig_connect(&rig);

        rig_send(&rig, fd, request, sizeof(request) - 1);
        rig_turn(&rig, 5);
        fake_progress(rig.engine, "half");
        expect_contains(&rig, fd, "{\"seq\":2,\"type\":\"progress\",\"stage\":\"packages\",\"message\":\"half\"}\n");
        fake_cell_end(rig.engine);
        expect_contains(&rig, fd, "{\"seq\":3,\"type\":\"end\",\"image\":{\"id\":\"im_0123456789\"}}\n");
        close(fd);
        rig_turn(&rig, 5);

        fd = rig_connect(&rig);
        rig_send(&rig, fd, request, sizeof(request) - 1);
        rig_turn(&rig, 5);
        close(fd);
        rig_turn(&rig, 5);
        ASSERT_EQ(fake.cancelled, 1);
        rig_free(&rig);
}

TEST(exec_streams_too)
{
        struct rig rig = rig_new();

        fake_record_add(rig.engine, "{\"seq\":1,\"type\":\"start\"}");
        fake_record_end(rig.engine);
        struct answer a =
                rig_call(&rig, "POST", "/api/sandboxes/sb/exec", "Accept: application/x-ndjson\r\n",
                         "{\"argv\":[\"ls\",\"-l\"],\"stdin_base64\":\"aGVsbG8=\",\"on_disconnect\":\"kill\"}");
        ASSERT_EQ(a.status, 200);
        ASSERT_STR(a.body, "{\"seq\":1,\"type\":\"start\"}\n");
        ASSERT_STR(json_string_value(json_object_get(fake.last, "stdin")), "hello");
        ASSERT(json_is_true(json_object_get(fake.last, "kill")));
        answer_done(&a);
        a = rig_call(&rig, "POST", "/api/sandboxes/sb/commands/7/kill", NULL,
                     "{\"signal\":\"SIGKILL\",\"group\":false}");
        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "signal")), 9);
        answer_done(&a);
        rig_free(&rig);
}
