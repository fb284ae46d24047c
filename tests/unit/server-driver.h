/* A server on the fake engine and a client in the same process: the client's socket does not block, and the loop turns while it
 * waits.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/loop.h"
#include "fake-engine.h"
#include "lib/test.h"
#include "server/server.h"

struct rig {
        struct cop_loop *loop;
        struct cop_engine *engine;
        struct cop_server *server;
        char path[200];
};

struct answer {
        int status;
        char *head; /* owned: status line and headers */
        char *body; /* owned, chunks joined */
        size_t body_len;
        bool closed, complete;
};

static inline struct rig rig_new_with(struct cop_server_config config)
{
        struct cop_error err = COP_ERROR_NULL;
        struct rig rig = {0};

        ASSERT_OK(cop_loop_new(&rig.loop, &err), &err);
        rig.engine = fake_engine_new(rig.loop);
        snprintf(rig.path, sizeof(rig.path), "%s/s", test_dir());
        config.loop = rig.loop;
        config.engine = rig.engine;
        config.socket_path = rig.path;
        ASSERT_OK(cop_server_new(&config, &rig.server, &err), &err);
        return rig;
}

static inline struct rig rig_new(void)
{
        return rig_new_with((struct cop_server_config){.listen = "127.0.0.1:0"});
}

static inline void rig_turn(struct rig *rig, int turns)
{
        for (int i = 0; i < turns; i++)
                ASSERT(cop_loop_turn(rig->loop, 1000) >= 0);
}

static inline void rig_free(struct rig *rig)
{
        cop_server_free(rig->server);
        fake_engine_free(rig->engine);
        cop_loop_free(rig->loop);
        unlink(rig->path);
}

static inline int rig_connect(struct rig *rig)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        strcpy(address.sun_path, rig->path);
        ASSERT_EQ(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

static inline int rig_connect_tcp(struct rig *rig)
{
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)cop_server_port(rig->server)),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        ASSERT_EQ(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

/* Sends all; a peer that has closed is no failure (early replies). */
static inline void rig_send(struct rig *rig, int fd, const char *data, size_t n)
{
        while (n > 0) {
                ssize_t sent = send(fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (sent < 0 && errno != EAGAIN)
                        return;
                if (sent > 0) {
                        data += sent;
                        n -= (size_t)sent;
                }
                rig_turn(rig, 1);
        }
}

static inline const char *answer_header(const struct answer *a, const char *name, char buf[static 512])
{
        size_t len = strlen(name);

        for (const char *line = strstr(a->head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
                if (strncasecmp(line + 2, name, len) == 0 && line[2 + len] == ':') {
                        const char *value = line + 3 + len + strspn(line + 3 + len, " ");
                        snprintf(buf, 512, "%.*s", (int)strcspn(value, "\r"), value);
                        return buf;
                }
        return NULL;
}

/* Joins the chunks; true when the last one is there. */
static inline bool join_chunks(const char *in, size_t n, struct cop_buf *out)
{
        cop_buf_clear(out);
        for (;;) {
                char *end;
                const char *line = memmem(in, n, "\r\n", 2);
                if (!line)
                        return false;
                size_t size = strtoul(in, &end, 16), used = (size_t)(line + 2 - in);
                if (size == 0)
                        return true;
                size_t have = n - used < size ? n - used : size;
                cop_buf_add(out, in + used, have);
                if (n - used < size + 2)
                        return false;
                in += used + size + 2;
                n -= used + size + 2;
        }
}

/* What has come so far, parsed. */
static inline bool parse_answer(const struct cop_buf *raw, bool head_request, struct answer *a)
{
        char buf[512];
        const char *end = raw->data ? memmem(raw->data, raw->len, "\r\n\r\n", 4) : NULL;

        if (!end)
                return false;
        size_t head_len = (size_t)(end - raw->data) + 4;
        free(a->head);
        free(a->body);
        a->head = strndup(raw->data, head_len - 2);
        a->body = NULL;
        a->status = atoi(a->head + 9);
        struct cop_buf body = COP_BUF(1u << 30);
        bool complete = false;
        const char *length = answer_header(a, "Content-Length", buf);
        size_t have = raw->len - head_len;
        if (head_request || a->status == 204) {
                complete = true;
        } else if (length) {
                size_t want = strtoul(length, NULL, 10);
                cop_buf_add(&body, raw->data + head_len, have < want ? have : want);
                complete = have >= want;
        } else if (answer_header(a, "Transfer-Encoding", buf)) {
                complete = join_chunks(raw->data + head_len, have, &body);
        } else {
                cop_buf_add(&body, raw->data + head_len, have);
        }
        a->body_len = body.len;
        a->body = cop_buf_take(&body);
        a->complete = complete;
        return complete;
}

/* Reads until the answer is complete, the peer closes, or `turns` turns bring nothing new. */
static inline struct answer rig_receive(struct rig *rig, int fd, bool head_request, int turns)
{
        struct cop_buf raw = COP_BUF(1u << 30);
        struct answer a = {0};

        for (int idle = 0; idle < turns;) {
                static char piece[1 << 20];
                ssize_t n = recv(fd, piece, sizeof(piece), MSG_DONTWAIT);
                if (n > 0) {
                        cop_buf_add(&raw, piece, (size_t)n);
                        /* Parsing all for every piece is quadratic: only when it may be the end. */
                        if ((raw.len < (1u << 20) || (size_t)n < sizeof(piece) / 2) &&
                            parse_answer(&raw, head_request, &a))
                                break;
                        idle = 0;
                        continue;
                }
                if (n == 0 || errno != EAGAIN) {
                        a.closed = true;
                        break;
                }
                rig_turn(rig, 1);
                idle++;
        }
        if (!a.complete)
                parse_answer(&raw, head_request, &a);
        cop_buf_done(&raw);
        return a;
}

static inline void answer_done(struct answer *a)
{
        free(a->head);
        free(a->body);
        *a = (struct answer){0};
}

/* One request on a connection of its own. extra: header lines, each with \r\n. */
static inline struct answer rig_call(struct rig *rig, const char *method, const char *target, const char *extra,
                                     const char *body)
{
        _cleanup_buf_ struct cop_buf b = COP_BUF(1u << 30);
        int fd = rig_connect(rig);

        cop_buf_addf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, target, extra ? extra : "");
        if (body)
                cop_buf_addf(&b, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
        else
                cop_buf_adds(&b, "\r\n");
        rig_send(rig, fd, b.data, b.len);
        struct answer a = rig_receive(rig, fd, strcmp(method, "HEAD") == 0, 2000);
        close(fd);
        rig_turn(rig, 3);
        return a;
}

/* Status and, for errors, code of a call. */
static inline void expect_error(struct rig *rig, const char *method, const char *target, const char *body,
                                const char *code, const char *message)
{
        struct answer a = rig_call(rig, method, target, NULL, body);
        _cleanup_json_ json_t *json = NULL;

        int status = cop_err_code_status((enum cop_err_code)cop_err_code_from_name(code));
        if (a.status != status)
                FAIL("%s %s %.200s: status %d, expected %d: %s", method, target, body ? body : "", a.status, status,
                     a.body ? a.body : "");
        json = json_loads(a.body ? a.body : "", 0, NULL);
        ASSERT(json);
        ASSERT(json_is_true(json_object_get(json, "error")));
        ASSERT(json_is_boolean(json_object_get(json, "retryable")));
        ASSERT_STR(json_string_value(json_object_get(json, "code")), code);
        if (message)
                ASSERT_CONTAINS(json_string_value(json_object_get(json, "message")), message);
        answer_done(&a);
}
