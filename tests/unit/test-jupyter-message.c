#include "jupyter/message.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "lib/test.h"

#define HEADER                                                                                                        \
        "{\"msg_id\":\"m1\",\"session\":\"s\",\"username\":\"u\",\"date\":\"d\",\"msg_type\":\"stream\",\"version\":" \
        "\"5.3\"}"
#define PARENT "{\"msg_id\":\"p1\"}"

static struct cop_frame frame(const char *s)
{
        return (struct cop_frame){(char *)s, strlen(s)};
}

static struct cop_signer *signer(const char *key)
{
        struct cop_signer *s = NULL;
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_OK(cop_signer_new(key, &s, &err), &err);
        return s;
}

/* RFC 4231, test cases 1 and 2: the four frames are signed as one text. */
TEST(signs_as_rfc_4231)
{
        struct cop_signer *s = signer("Jefe");
        struct cop_frame frames[4] = {frame("what do ya "), frame("want "), frame("for nothing"), frame("?")};
        char signature[COP_SIGNATURE_SIZE];

        ASSERT_OK(cop_signer_sign(s, frames, signature), NULL);
        ASSERT_STR(signature, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        /* Again: the context must start anew each time. */
        ASSERT_OK(cop_signer_sign(s, frames, signature), NULL);
        ASSERT_STR(signature, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        cop_signer_free(s);

        s = signer("\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b");
        struct cop_frame other[4] = {frame("Hi"), frame(" There"), frame(""), frame("")};
        ASSERT_OK(cop_signer_sign(s, other, signature), NULL);
        ASSERT_STR(signature, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        cop_signer_free(s);
}

TEST(an_empty_key_signs_nothing)
{
        struct cop_signer *s = signer("");
        struct cop_frame frames[4] = {frame("a"), frame("b"), frame("c"), frame("d")}, any = frame("whatever");
        char signature[COP_SIGNATURE_SIZE];

        ASSERT_OK(cop_signer_sign(s, frames, signature), NULL);
        ASSERT_STR(signature, "");
        ASSERT(cop_signer_check(s, &any, frames));
        cop_signer_free(s);
}

/* Builds a request and takes it apart again, with `topic` frames before it and `buffers` behind. */
static int round_trip(const char *key, const char *other_key, size_t topic, size_t buffers, struct cop_message *ret)
{
        struct cop_signer *sign = signer(key), *check = signer(other_key);
        struct cop_kernel_request request;
        struct cop_frame frames[100];
        size_t n = 0;
        _cleanup_json_ json_t *parent = json_pack("{ss}", "msg_id", "p1");
        _cleanup_json_ json_t *content = json_pack("{ss}", "code", "1+1 \xc3\xa9");

        ASSERT_OK(cop_kernel_request_build(sign, "sess", "id-1", "execute_request", parent, content, &request, NULL),
                  NULL);
        for (size_t i = 0; i < topic; i++)
                frames[n++] = frame("topic");
        for (size_t i = 0; i < 6; i++)
                frames[n++] = request.frames[i];
        for (size_t i = 0; i < buffers; i++)
                frames[n++] = frame("buffer");
        int r = cop_message_parse(frames, n, check, ret, NULL);
        if (r >= 0) {
                _cleanup_json_ json_t *got = NULL;
                ASSERT_OK(cop_message_content(ret, &got, NULL, NULL), NULL);
                ASSERT(json_equal(got, content));
        }
        cop_kernel_request_done(&request);
        cop_signer_free(sign);
        cop_signer_free(check);
        return r;
}

TEST(takes_apart_what_it_builds)
{
        struct cop_message m;

        for (size_t topic = 0; topic < 3; topic++)
                for (size_t buffers = 0; buffers < 4; buffers++) {
                        ASSERT_OK(round_trip("key", "key", topic, buffers, &m), NULL);
                        ASSERT_STR(m.type, "execute_request");
                        ASSERT_STR(m.id, "id-1");
                        ASSERT_STR(m.parent_id, "p1");
                        ASSERT_STR(json_string_value(json_object_get(m.header, "session")), "sess");
                        ASSERT_EQ(m.buffer_count, buffers);
                        cop_message_done(&m);
                }
}

TEST(refuses_a_wrong_signature)
{
        struct cop_message m;

        ASSERT_ERRNO(round_trip("key", "another", 0, 0, &m), EKEYREJECTED);
        ASSERT_ERRNO(round_trip("", "key", 0, 0, &m), EKEYREJECTED);
        ASSERT(!m.header);
}

static int parse(const char *const *texts, struct cop_message *ret)
{
        struct cop_signer *s = signer("");
        struct cop_frame frames[32];
        size_t n = 0;

        for (; texts[n]; n++)
                frames[n] = frame(texts[n]);
        int r = cop_message_parse(frames, n, s, ret, NULL);
        cop_signer_free(s);
        return r;
}

TEST(refuses_malformed_frames)
{
        static const char *const bad[][12] = {
                {NULL},
                {"topic", NULL},
                {"<IDS|MSG>", NULL},
                {"<IDS|MSG>", "", HEADER, PARENT, "{}", NULL},
                {"<IDS|MSG> ", "", HEADER, PARENT, "{}", "{}", NULL},
                {"<IDS|MSG>", "", "", PARENT, "{}", "{}", NULL},
                {"<IDS|MSG>", "", "[]", PARENT, "{}", "{}", NULL},
                {"<IDS|MSG>", "", "null", PARENT, "{}", "{}", NULL},
                {"<IDS|MSG>", "", "{}", PARENT, "{}", "{}", NULL},
                {"<IDS|MSG>", "", "{\"msg_type\":7}", PARENT, "{}", "{}", NULL},
                {"<IDS|MSG>", "", "{\"msg_type\":\"a\\u0000b\"}", PARENT, "{}", "{}", NULL},
                {"<IDS|MSG>", "", "{\"msg_type\":\"\"}", PARENT, "{}", "{}", NULL},
                {"<IDS|MSG>", "", HEADER, "7", "{}", "{}", NULL},
                {"<IDS|MSG>", "", HEADER, "{\"msg_id\":[]}", "{}", "{}", NULL},
        };
        struct cop_message m;

        for (size_t i = 0; i < ELEMENTSOF(bad); i++)
                ASSERT_ERRNO(parse(bad[i], &m), EBADMSG);
}

TEST(refuses_oversized_names)
{
        char header[500], type[100] = "";
        const char *texts[] = {"<IDS|MSG>", "", header, PARENT, "{}", "{}", NULL};
        struct cop_message m;

        memset(type, 'a', COP_MESSAGE_TYPE_MAX - 1);
        snprintf(header, sizeof(header), "{\"msg_type\":\"%s\"}", type);
        ASSERT_OK(parse(texts, &m), NULL);
        cop_message_done(&m);
        type[COP_MESSAGE_TYPE_MAX - 1] = 'a';
        snprintf(header, sizeof(header), "{\"msg_type\":\"%s\"}", type);
        ASSERT_ERRNO(parse(texts, &m), EBADMSG);
}

TEST(content_must_be_an_object)
{
        const char *texts[] = {"<IDS|MSG>", "", HEADER, "{}", "{}", "[1]", NULL};
        _cleanup_json_ json_t *content = NULL;
        struct cop_message m;

        ASSERT_OK(parse(texts, &m), NULL);
        ASSERT_STR(m.parent_id, "");
        ASSERT_ERRNO(cop_message_content(&m, &content, NULL, NULL), EBADMSG);
        cop_message_done(&m);
}

TEST(a_null_parent_id_is_none)
{
        const char *texts[] = {"<IDS|MSG>", "", HEADER, "{\"msg_id\":null}", "{}", "{}", NULL};
        struct cop_message m;

        ASSERT_OK(parse(texts, &m), NULL);
        ASSERT_STR(m.parent_id, "");
        cop_message_done(&m);
}
