#include "server-driver.h"

static const char *expect_status(struct rig *rig, const char *method, const char *target, const char *extra,
                                 const char *body, int status)
{
        static char text[2000];
        struct answer a = rig_call(rig, method, target, extra, body);

        snprintf(text, sizeof(text), "%s", a.body ? a.body : "");
        if (a.status != status)
                FAIL("%s %s: status %d, expected %d: %s", method, target, a.status, status, text);
        answer_done(&a);
        return text;
}

TEST(routes_methods_and_paths)
{
        struct rig rig = rig_new();
        char buf[512];

        ASSERT_CONTAINS(expect_status(&rig, "GET", "/api/health", NULL, NULL, 200), "\"ok\"");
        ASSERT_CONTAINS(expect_status(&rig, "GET", "//api//health/", NULL, NULL, 200), "\"ok\"");
        expect_status(&rig, "GET", "/api/sandboxes/sb", NULL, NULL, 200);
        expect_status(&rig, "GET", "/api/sandboxes/s%62", NULL, NULL, 200);
        expect_error(&rig, "GET", "/api/sandboxes/nobody", NULL, "sandbox_not_found", "nobody");
        expect_error(&rig, "GET", "/", NULL, "route_not_found", NULL);
        expect_error(&rig, "GET", "/api/nothing", NULL, "route_not_found", "/api/nothing");
        expect_error(&rig, "GET", "/api/a%zz", NULL, "bad_request", "percent");
        expect_error(&rig, "GET", "/api/sandboxes?wrong=1", NULL, "bad_request", "wrong");
        expect_error(&rig, "GET", "/api/sandboxes?state=asleep", NULL, "bad_request", "state");

        struct answer a = rig_call(&rig, "PUT", "/api/sandboxes/sb", NULL, NULL);
        ASSERT_EQ(a.status, 405);
        ASSERT_STR(answer_header(&a, "Allow", buf), "GET, PATCH, DELETE, HEAD, OPTIONS");
        ASSERT_CONTAINS(a.body, "method_not_allowed");
        answer_done(&a);
        a = rig_call(&rig, "OPTIONS", "/api/sandboxes/sb/cells", NULL, NULL);
        ASSERT_EQ(a.status, 204);
        ASSERT_STR(answer_header(&a, "Allow", buf), "POST, GET, HEAD, OPTIONS");
        answer_done(&a);
        a = rig_call(&rig, "HEAD", "/api/health", NULL, NULL);
        ASSERT_EQ(a.status, 200);
        ASSERT(answer_header(&a, "Content-Length", buf));
        answer_done(&a);
        expect_error(&rig, "BREW", "/api/health", NULL, "method_not_allowed", "BREW");
        rig_free(&rig);
}

TEST(sandbox_parameters_reach_the_engine)
{
        struct rig rig = rig_new();

        expect_status(&rig, "POST", "/api/sandboxes", NULL, NULL, 201);
        ASSERT(json_is_true(json_object_get(fake.last, "start_kernel")));
        expect_status(&rig, "POST", "/api/sandboxes", NULL,
                      "{\"name\":\"demo\",\"memory\":\"2G\",\"cpus\":1.5,\"pids\":100,\"ttl_seconds\":60,\"labels\":{"
                      "\"a\":\"b\"},\"start_kernel\":false,"
                      "\"nofile\":null}",
                      201);
        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "memory")), 2LL << 30);
        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "cpu_milli")), 1500);
        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "ttl")), 60000000);
        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "nofile")), 0);
        ASSERT(json_is_false(json_object_get(fake.last, "start_kernel")));
        expect_status(&rig, "GET", "/api/sandboxes?label=a=b&label=c=d%3De&all", NULL, NULL, 200);
        ASSERT_STR(json_string_value(json_object_get(json_object_get(fake.last, "labels"), "c")), "d=e");
        ASSERT(json_is_true(json_object_get(fake.last, "all")));
        expect_status(&rig, "PATCH", "/api/sandboxes/sb", NULL, "{\"memory\":\"64M\",\"name\":null}", 200);
        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "memory")), 64 << 20);
        expect_error(&rig, "DELETE", "/api/sandboxes", NULL, "bad_request", "all=true");
        expect_status(&rig, "DELETE", "/api/sandboxes?all=true", NULL, NULL, 200);
        rig_free(&rig);
}

TEST(bad_fields_are_named)
{
        static const struct {
                const char *target, *body, *message;
        } cases[] = {
                {"/api/sandboxes", "{\"nmae\":\"x\"}", "nmae"},
                {"/api/sandboxes", "{\"name\":5}", "\"name\""},
                {"/api/sandboxes", "{\"name\":\"a b\"}", "\"name\""},
                {"/api/sandboxes", "{\"name\":\"\"}", "\"name\""},
                {"/api/sandboxes", "{\"name\":\"../x\"}", "\"name\""},
                {"/api/sandboxes", "{\"memory\":\"lots\"}", "\"memory\""},
                {"/api/sandboxes", "{\"memory\":1}", "\"memory\""},
                {"/api/sandboxes", "{\"cpus\":0}", "\"cpus\""},
                {"/api/sandboxes", "{\"pids\":\"many\"}", "\"pids\""},
                {"/api/sandboxes", "{\"ttl_seconds\":-1}", "\"ttl_seconds\""},
                {"/api/sandboxes", "{\"ttl_seconds\":0}", "\"ttl_seconds\""},
                {"/api/sandboxes", "{\"labels\":{\"a\":1}}", "labels.a"},
                {"/api/sandboxes", "{\"env\":{\"A=B\":\"1\"}}", "\"env\""},
                {"/api/sandboxes", "{\"start_kernel\":1}", "\"start_kernel\""},
                {"/api/sandboxes", "[]", "object"},
                {"/api/sandboxes", "{", "line 1"},
                {"/api/sandboxes/sb/cells", "{}", "\"code\""},
                {"/api/sandboxes/sb/cells", "{\"code\":null}", "\"code\""},
                {"/api/sandboxes/sb/cells", "{\"code\":[]}", "\"code\""},
                {"/api/sandboxes/sb/cells", "{\"code\":\"a\\u0000\"}", "\"code\""},
                {"/api/sandboxes/sb/cells", "{\"code\":\"\\udfff\"}", "surrogate"},
                {"/api/sandboxes/sb/cells", "{\"code\":\"1\",\"timeout\":\"5\"}", "\"timeout\""},
                {"/api/sandboxes/sb/cells", "{\"code\":\"1\",\"timeout\":0}", "\"timeout\""},
                {"/api/sandboxes/sb/cells", "{\"code\":\"1\",\"timeout\":90000}", "\"timeout\""},
                {"/api/sandboxes/sb/cells", "{\"code\":\"1\",\"stdin\":\"yes\"}", "\"stdin\""},
                {"/api/sandboxes/sb/cells", "{\"code\":\"1\",\"output_max\":1}", "\"output_max\""},
                {"/api/sandboxes/sb/exec", "{}", "\"command\""},
                {"/api/sandboxes/sb/exec", "{\"command\":\"a\",\"argv\":[\"a\"]}", "not both"},
                {"/api/sandboxes/sb/exec", "{\"argv\":[]}", "\"argv\""},
                {"/api/sandboxes/sb/exec", "{\"argv\":[\"a\",1]}", "argv[1]"},
                {"/api/sandboxes/sb/exec", "{\"command\":\"a\",\"stdin_base64\":\"a\"}", "stdin_base64"},
                {"/api/sandboxes/sb/exec", "{\"command\":\"a\",\"timeout\":0}", "detach"},
                {"/api/sandboxes/sb/commands/1/kill", "{\"signal\":\"BOO\"}", "\"signal\""},
                {"/api/sandboxes/sb/contexts", "{\"language\":\"python\",\"kernelspec\":\"python3\"}", "not both"},
                {"/api/sandboxes/sb/contexts/default/restart", "{\"now\":true}", "now"},
                {"/api/sandboxes/sb/files/mkdir", "{}", "\"path\""},
                {"/api/sandboxes/sb/files/mkdir", "{\"path\":\"a\",\"mode\":\"9\"}", "\"mode\""},
                {"/api/sandboxes/sb/files/move", "{\"from\":\"a\"}", "\"to\""},
                {"/api/images/import", "{\"source\":\"/x\"}", "\"name\""},
                {"/api/tokens", "{\"name\":\"a\",\"expires_seconds\":0}", "\"expires_seconds\""},
        };
        struct rig rig = rig_new();

        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                expect_error(&rig, "POST", cases[i].target, cases[i].body, "bad_request", cases[i].message);
        expect_error(&rig, "GET", "/api/sandboxes/sb/files", NULL, "bad_request", "\"path\"");
        expect_error(&rig, "PUT", "/api/sandboxes/sb/files?path=/a&mode=rwx", "x", "bad_request", "\"mode\"");
        rig_free(&rig);
}

TEST(cells_now_and_later)
{
        struct rig rig = rig_new();

        ASSERT_CONTAINS(expect_status(&rig, "POST", "/api/sandboxes/sb/cells", NULL, "{\"code\":\"now\"}", 200),
                        "\"status\":\"ok\"");
        ASSERT_CONTAINS(expect_status(&rig, "POST", "/api/sandboxes/sb/cells", NULL,
                                      "{\"code\":\"later\",\"timeout\":1.5,\"stdin\":\"open\"}", 200),
                        "\"status\":\"ok\"");
        ASSERT_EQ(json_integer_value(json_object_get(fake.last, "timeout")), 1500000);
        ASSERT(json_is_true(json_object_get(fake.last, "stdin_open")));
        expect_error(&rig, "POST", "/api/sandboxes/nobody/cells", "{\"code\":\"1\"}", "sandbox_not_found", "nobody");
        rig_free(&rig);
}

TEST(keep_alive_serves_many)
{
        static const char request[] =
                "POST /api/sandboxes/sb/cells HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\n{\"code\":\"later\"}";
        struct rig rig = rig_new();
        int fd = rig_connect(&rig);

        for (int i = 0; i < 50; i++) {
                rig_send(&rig, fd, request, sizeof(request) - 1);
                struct answer a = rig_receive(&rig, fd, false, 1000);
                ASSERT_EQ(a.status, 200);
                answer_done(&a);
        }
        close(fd);
        rig_turn(&rig, 5);
        rig_free(&rig);
}

TEST(a_client_that_leaves_cancels_its_operation)
{
        static const char request[] =
                "POST /api/sandboxes/sb/cells HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer good-token\r\n"
                "Content-Length: 16\r\n\r\n{\"code\":\"never\"}";
        struct rig rig = rig_new();

        for (int tcp = 0; tcp < 2; tcp++) {
                int fd = tcp ? rig_connect_tcp(&rig) : rig_connect(&rig);
                rig_send(&rig, fd, request, sizeof(request) - 1);
                rig_turn(&rig, 10);
                ASSERT_EQ(fake.cancelled, tcp);
                close(fd);
                rig_turn(&rig, 10);
                ASSERT_EQ(fake.cancelled, tcp + 1);
        }
        rig_free(&rig);
}

TEST(half_closed_unix_client_still_gets_its_answer)
{
        static const char request[] =
                "POST /api/sandboxes/sb/cells HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\n{\"code\":\"never\"}";
        struct rig rig = rig_new();
        int fd = rig_connect(&rig);

        rig_send(&rig, fd, request, sizeof(request) - 1);
        rig_turn(&rig, 5);
        shutdown(fd, SHUT_WR);
        rig_turn(&rig, 5);
        ASSERT_EQ(fake.cancelled, 0);
        fake_cell_end(rig.engine);
        struct answer a = rig_receive(&rig, fd, false, 100);
        ASSERT_EQ(a.status, 200);
        answer_done(&a);
        close(fd);
        rig_turn(&rig, 5);
        rig_free(&rig);
}

TEST(stopping_the_server_with_requests_under_way)
{
        static const char request[] =
                "POST /api/sandboxes/sb/cells HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\n{\"code\":\"never\"}";
        struct rig rig = rig_new();
        int fds[5];

        for (int i = 0; i < 5; i++) {
                fds[i] = rig_connect(&rig);
                rig_send(&rig, fds[i], request, sizeof(request) - 1);
        }
        rig_turn(&rig, 10);
        rig_free(&rig);
        ASSERT_EQ(fake.cancelled, 5);
        for (int i = 0; i < 5; i++)
                close(fds[i]);
}

static struct answer tcp_call(struct rig *rig, const char *target, const char *headers)
{
        char text[1000];
        int fd = rig_connect_tcp(rig);

        snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\n%s\r\n", target, headers);
        rig_send(rig, fd, text, strlen(text));
        struct answer a = rig_receive(rig, fd, false, 1000);
        close(fd);
        rig_turn(rig, 3);
        return a;
}

TEST(tcp_needs_token_and_host)
{
        static const struct {
                const char *target, *headers;
                int status;
        } cases[] = {
                {"/api/health", "Host: localhost\r\n", 200},
                {"/api/health", "Host: evil.example\r\n", 403},
                {"/api/health", "", 400},
                {"/api/sandboxes", "Host: localhost\r\n", 401},
                {"/api/sandboxes", "Host: localhost\r\nAuthorization: Bearer wrong\r\n", 401},
                {"/api/sandboxes", "Host: localhost\r\nAuthorization: Basic good-token\r\n", 401},
                {"/api/sandboxes", "Host: localhost\r\nAuthorization: Bearer good-token\r\n", 200},
                {"/api/sandboxes", "Host: localhost\r\nAuthorization: bearer  good-token\r\n", 200},
                {"/api/sandboxes", "Host: evil.example\r\nAuthorization: Bearer good-token\r\n", 403},
                {"/api/sandboxes", "Host: ours.example:80\r\nAuthorization: Bearer good-token\r\n", 200},
                {"/api/tokens", "Host: localhost\r\nAuthorization: Bearer good-token\r\n", 403},
                {"/api/tokens", "Host: localhost\r\n", 401},
                {"/api/nothing", "Host: localhost\r\n", 401},
                {"/api/nothing", "Host: localhost\r\nAuthorization: Bearer good-token\r\n", 404},
        };
        static const char *const hosts[] = {"ours.example", NULL};
        struct rig rig = rig_new_with((struct cop_server_config){.listen = "127.0.0.1:0", .allowed_hosts = hosts});
        char buf[512];

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                struct answer a = tcp_call(&rig, cases[i].target, cases[i].headers);
                if (a.status != cases[i].status)
                        FAIL("%s with %s: %d, expected %d", cases[i].target, cases[i].headers, a.status,
                             cases[i].status);
                if (a.status == 401)
                        ASSERT_CONTAINS(answer_header(&a, "WWW-Authenticate", buf), "Bearer");
                answer_done(&a);
        }
        rig_free(&rig);
}

TEST(listen_addresses)
{
        static const char *const bad[] = {"8000",    "localhost", "127.0.0.1:99999", "example.com:80", "127.0.0.1:",
                                          "[::1:80", "0.0.0.0:0", "[::]:0",          "10.0.0.1:80"};
        struct cop_error err = COP_ERROR_NULL;
        struct cop_server *s = NULL;
        struct cop_loop *loop;
        char address[64];

        ASSERT_OK(cop_loop_new(&loop, &err), &err);
        for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
                struct cop_server_config config = {.loop = loop, .listen = bad[i]};
                if (cop_server_new(&config, &s, &err) >= 0)
                        FAIL("%s was accepted", bad[i]);
                ASSERT_EQ(err.code, COP_ERR_bad_request);
        }
        struct cop_server_config any = {.loop = loop, .listen = "0.0.0.0:0", .listen_any = true};
        ASSERT_OK(cop_server_new(&any, &s, &err), &err);
        snprintf(address, sizeof(address), "127.0.0.1:%u", cop_server_port(s));
        struct cop_server *second = NULL;
        struct cop_server_config taken = {.loop = loop, .listen = address};
        ASSERT_CODE(cop_server_new(&taken, &second, &err), &err, COP_ERR_in_use);
        cop_server_free(s);
        cop_loop_free(loop);
}

TEST(sockets_that_are_in_the_way)
{
        struct rig rig = rig_new();
        struct cop_error err = COP_ERROR_NULL;
        struct cop_server *s = NULL;
        char path[300];

        struct cop_server_config same = {.loop = rig.loop, .socket_path = rig.path};
        ASSERT_CODE(cop_server_new(&same, &s, &err), &err, COP_ERR_in_use);
        snprintf(path, sizeof(path), "%s/file", test_dir());
        fclose(fopen(path, "w"));
        struct cop_server_config file = {.loop = rig.loop, .socket_path = path};
        ASSERT_CODE(cop_server_new(&file, &s, &err), &err, COP_ERR_in_use);
        ASSERT_EQ(access(path, F_OK), 0);
        /* One that a killed daemon left. */
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/stale", test_dir());
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        ASSERT_EQ(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        close(fd);
        struct cop_server_config stale = {.loop = rig.loop, .socket_path = address.sun_path};
        ASSERT_OK(cop_server_new(&stale, &s, &err), &err);
        cop_server_free(s);
        ASSERT_EQ(access(address.sun_path, F_OK), -1);
        memset(path, 'x', 200);
        path[0] = '/';
        path[200] = '\0';
        struct cop_server_config longer = {.loop = rig.loop, .socket_path = path};
        ASSERT_CODE(cop_server_new(&longer, &s, &err), &err, COP_ERR_bad_request);
        rig_free(&rig);
}

TEST(too_many_connections_are_told_so)
{
        struct rig rig = rig_new_with((struct cop_server_config){.connections_max = 3});
        int fds[3];

        for (int i = 0; i < 3; i++)
                fds[i] = rig_connect(&rig);
        rig_turn(&rig, 5);
        expect_error(&rig, "GET", "/api/health", NULL, "unavailable", "3 connections");
        for (int i = 0; i < 3; i++)
                close(fds[i]);
        rig_turn(&rig, 5);
        expect_status(&rig, "GET", "/api/health", NULL, NULL, 200);
        rig_free(&rig);
}

/* -- bodies -------------------------------------------------------------------------------------------------------- */

static char *cell_of(size_t n)
{
        char *body = malloc(n + 32);

        memcpy(body, "{\"code\":\"", 9);
        memset(body + 9, 'x', n);
        strcpy(body + 9 + n, "\"}");
        return body;
}

TEST(a_cell_of_5_mb_works)
{
        struct rig rig = rig_new();
        char *body = cell_of(5 << 20);

        expect_status(&rig, "POST", "/api/sandboxes/sb/cells", NULL, body, 200);
        ASSERT_EQ(fake.code_len, 5 << 20);
        free(body);
        body = cell_of((16 << 20) + 1);
        expect_error(&rig, "POST", "/api/sandboxes/sb/cells", body, "payload_too_large", "16 MiB");
        free(body);
        rig_free(&rig);
}

TEST(a_cell_of_100_mb_gets_its_413)
{
        struct rig rig = rig_new();
        char *body = cell_of(100 << 20);
        int fd = rig_connect(&rig);
        char head[200];

        /* A client that sends all before it reads. */
        snprintf(head, sizeof(head), "POST /api/sandboxes/sb/cells HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
                 strlen(body));
        rig_send(&rig, fd, head, strlen(head));
        rig_send(&rig, fd, body, strlen(body));
        struct answer a = rig_receive(&rig, fd, false, 1000);
        ASSERT_EQ(a.status, 413);
        ASSERT_CONTAINS(a.body, "payload_too_large");
        answer_done(&a);
        close(fd);
        free(body);
        rig_turn(&rig, 5);
        rig_free(&rig);
}

TEST(chunked_bodies)
{
        static const char start[] =
                "POST /api/sandboxes/sb/cells HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        static const char small[] = "8\r\n{\"code\":\r\n6\r\n\"now\"}\r\n0\r\n\r\n";
        struct rig rig = rig_new();
        int fd = rig_connect(&rig);

        rig_send(&rig, fd, start, sizeof(start) - 1);
        rig_send(&rig, fd, small, sizeof(small) - 1);
        struct answer a = rig_receive(&rig, fd, false, 1000);
        ASSERT_EQ(a.status, 200);
        answer_done(&a);
        close(fd);

        /* Too large without saying so before. */
        char *chunk = malloc((1 << 20) + 16);
        memset(chunk, 'x', (1 << 20) + 16);
        memcpy(chunk, "100000\r\n", 8);
        memcpy(chunk + 8 + (1 << 20), "\r\n", 2);
        fd = rig_connect(&rig);
        rig_send(&rig, fd, start, sizeof(start) - 1);
        for (int i = 0; i < 60; i++)
                rig_send(&rig, fd, chunk, (1 << 20) + 10);
        a = rig_receive(&rig, fd, false, 1000);
        ASSERT_EQ(a.status, 413);
        answer_done(&a);
        close(fd);
        free(chunk);
        rig_turn(&rig, 5);
        rig_free(&rig);
}

TEST(expect_100_continue)
{
        static const char large[] = "POST /api/sandboxes/sb/cells HTTP/1.1\r\nHost: x\r\nContent-Length: "
                                    "104857600\r\nExpect: 100-continue\r\n\r\n";
        static const char fine[] = "POST /api/sandboxes/sb/cells HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\nExpect: "
                                   "100-continue\r\n\r\n";
        struct rig rig = rig_new();
        int fd = rig_connect(&rig);

        rig_send(&rig, fd, large, sizeof(large) - 1);
        struct answer a = rig_receive(&rig, fd, false, 1000);
        ASSERT_EQ(a.status, 413);
        answer_done(&a);
        close(fd);
        fd = rig_connect(&rig);
        rig_send(&rig, fd, fine, sizeof(fine) - 1);
        rig_turn(&rig, 5);
        char buf[100];
        ssize_t n = recv(fd, buf, sizeof(buf) - 1, 0);
        ASSERT_GT(n, 0);
        buf[n] = '\0';
        ASSERT_CONTAINS(buf, "100 Continue");
        rig_send(&rig, fd, "{\"code\":\"now\"}", 14);
        a = rig_receive(&rig, fd, false, 1000);
        ASSERT_EQ(a.status, 200);
        answer_done(&a);
        close(fd);
        rig_turn(&rig, 5);
        rig_free(&rig);
}

TEST(a_refused_small_body_keeps_the_connection)
{
        static const char bad[] = "POST /api/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
        static const char good[] = "GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n";
        struct rig rig = rig_new();
        int fd = rig_connect(&rig);

        rig_send(&rig, fd, bad, sizeof(bad) - 1);
        struct answer a = rig_receive(&rig, fd, false, 1000);
        ASSERT_EQ(a.status, 404);
        answer_done(&a);
        rig_send(&rig, fd, good, sizeof(good) - 1);
        a = rig_receive(&rig, fd, false, 1000);
        ASSERT_EQ(a.status, 200);
        answer_done(&a);
        close(fd);
        rig_turn(&rig, 5);
        rig_free(&rig);
}

TEST(garbage_does_no_harm)
{
        static const char *const garbage[] = {
                "\r\n\r\n\r\n",
                "GET\r\n\r\n",
                "GET / HTTP/9.9\r\n\r\n",
                "\x16\x03\x01\x02\x00\x01\x00\x01",
                "POST /api/sandboxes HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                "GET /api/health HTTP/1.1\r\nbroken\r\n\r\n",
                "POST /api/sandboxes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"};
        struct rig rig = rig_new();

        for (size_t i = 0; i < ELEMENTSOF(garbage); i++) {
                int fd = rig_connect(&rig);
                rig_send(&rig, fd, garbage[i], strlen(garbage[i]));
                struct answer a = rig_receive(&rig, fd, false, 20);
                answer_done(&a);
                close(fd);
                rig_turn(&rig, 3);
        }
        expect_status(&rig, "GET", "/api/health", NULL, NULL, 200);
        rig_free(&rig);
}

TEST(huge_headers_get_431)
{
        struct rig rig = rig_new();
        char *text = malloc(300000);

        strcpy(text, "GET /api/health HTTP/1.1\r\nX: ");
        size_t n = strlen(text);
        memset(text + n, 'a', 280000);
        strcpy(text + n + 280000, "\r\n\r\n");
        int fd = rig_connect(&rig);
        rig_send(&rig, fd, text, strlen(text));
        struct answer a = rig_receive(&rig, fd, false, 100);
        ASSERT(a.status == 431 || a.status == 414 || a.status == 413);
        answer_done(&a);
        close(fd);
        free(text);
        rig_turn(&rig, 3);
        rig_free(&rig);
}
