#include "message.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "jupyter/decode.h"

#define DELIMITER "<IDS|MSG>"
#define PROTOCOL_VERSION "5.3"
#define DIGEST_SIZE 32

/* -- signatures --------------------------------------------------------------------------------------------------- */

struct cop_signer {
        EVP_MAC_CTX *mac; /* owned; NULL = no key */
};

int cop_signer_new(const char *key, struct cop_signer **ret, struct cop_error *err)
{
        struct cop_signer *s = calloc(1, sizeof(*s));

        if (!s)
                return cop_error_errno(err, ENOMEM, "message signer");
        if (*key) {
                char digest[] = "SHA256";
                OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                       OSSL_PARAM_construct_end()};
                EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
                s->mac = mac ? EVP_MAC_CTX_new(mac) : NULL;
                EVP_MAC_free(mac);
                if (!s->mac || !EVP_MAC_init(s->mac, (const unsigned char *)key, strlen(key), params)) {
                        cop_signer_free(s);
                        return cop_error_set(err, ENOTSUP, COP_ERR_internal, "libcrypto offers no HMAC-SHA256");
                }
        }
        *ret = s;
        return 0;
}

struct cop_signer *cop_signer_free(struct cop_signer *s)
{
        if (s)
                EVP_MAC_CTX_free(s->mac);
        free(s);
        return NULL;
}

int cop_signer_sign(struct cop_signer *s, const struct cop_frame frames[static 4], char ret[static COP_SIGNATURE_SIZE])
{
        unsigned char digest[DIGEST_SIZE];
        size_t len;

        ret[0] = '\0';
        if (!s->mac)
                return 0;
        /* A NULL key means: the same again, from the start. */
        int ok = EVP_MAC_init(s->mac, NULL, 0, NULL);
        for (int i = 0; i < 4; i++)
                ok = ok && EVP_MAC_update(s->mac, (const unsigned char *)frames[i].data, frames[i].len);
        if (!ok || !EVP_MAC_final(s->mac, digest, &len, sizeof(digest)) || len != sizeof(digest))
                return -EIO;
        for (size_t i = 0; i < len; i++) {
                ret[2 * i] = "0123456789abcdef"[digest[i] >> 4];
                ret[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
        }
        ret[2 * len] = '\0';
        return 0;
}

bool cop_signer_check(struct cop_signer *s, const struct cop_frame *signature, const struct cop_frame frames[static 4])
{
        char expected[COP_SIGNATURE_SIZE];

        if (!s->mac)
                return true;
        if (signature->len != COP_SIGNATURE_SIZE - 1 || cop_signer_sign(s, frames, expected) < 0)
                return false;
        return CRYPTO_memcmp(signature->data, expected, COP_SIGNATURE_SIZE - 1) == 0;
}

/* -- receiving ----------------------------------------------------------------------------------------------------- */

void cop_message_done(struct cop_message *m)
{
        json_decref(m->header);
        *m = (struct cop_message){0};
}

static int malformed(struct cop_error *err, const char *what)
{
        return cop_error_set(err, EBADMSG, COP_ERR_bad_request, "malformed kernel message: %s", what);
}

/* Copies a string member into room; a missing one is "". */
static int get_string(json_t *object, const char *key, char *room, size_t size)
{
        json_t *value = json_object_get(object, key);
        size_t len = json_string_length(value);

        room[0] = '\0';
        if (!value || json_is_null(value))
                return 0;
        if (!json_is_string(value) || len >= size || strlen(json_string_value(value)) != len)
                return -EBADMSG;
        memcpy(room, json_string_value(value), len + 1);
        return 0;
}

static int decode_header(const struct cop_frame *f, json_t **ret, struct cop_error *err)
{
        if (f->len > COP_MESSAGE_HEADER_MAX)
                return malformed(err, "oversized header");
        int r = cop_decode_json(f->data, f->len, ret, NULL, err);
        if (r < 0)
                return r;
        if (!json_is_object(*ret)) {
                json_decref(*ret);
                *ret = NULL;
                return malformed(err, "header is no object");
        }
        return 0;
}

int cop_message_parse(struct cop_frame *frames, size_t count, struct cop_signer *signer, struct cop_message *ret,
                      struct cop_error *err)
{
        struct cop_message m = {0};
        _cleanup_json_ json_t *parent = NULL;
        size_t i = 0;

        *ret = m;
        while (i < count &&
               !(frames[i].len == strlen(DELIMITER) && memcmp(frames[i].data, DELIMITER, frames[i].len) == 0))
                i++;
        if (count - i < 6)
                return malformed(err, i == count ? "no delimiter" : "too few frames");
        const struct cop_frame *f = frames + i + 1;
        if (!cop_signer_check(signer, f, f + 1))
                return cop_error_set(err, EKEYREJECTED, COP_ERR_bad_request, "kernel message with a wrong signature");

        int r = decode_header(f + 1, &m.header, err);
        if (r >= 0)
                r = decode_header(f + 2, &parent, err);
        if (r >= 0 && (get_string(m.header, "msg_type", m.type, sizeof(m.type)) < 0 || !m.type[0] ||
                       get_string(m.header, "msg_id", m.id, sizeof(m.id)) < 0 ||
                       get_string(parent, "msg_id", m.parent_id, sizeof(m.parent_id)) < 0))
                r = malformed(err, "header without usable msg_type or msg_id");
        if (r < 0) {
                cop_message_done(&m);
                return r;
        }
        m.metadata = f[3];
        m.content = f[4];
        m.buffer_count = count - i - 6;
        *ret = m;
        return 0;
}

int cop_message_content(const struct cop_message *m, json_t **ret, bool *ret_repaired, struct cop_error *err)
{
        json_t *value;
        int r = cop_decode_json(m->content.data, m->content.len, &value, ret_repaired, err);

        if (r < 0)
                return r;
        if (!json_is_object(value)) {
                json_decref(value);
                return malformed(err, "content is no object");
        }
        *ret = value;
        return 0;
}

/* -- sending ------------------------------------------------------------------------------------------------------- */

void cop_kernel_request_done(struct cop_kernel_request *r)
{
        free(r->header);
        free(r->parent);
        free(r->content);
        *r = (struct cop_kernel_request){0};
}

static struct cop_frame frame(const char *s)
{
        return (struct cop_frame){(char *)s, strlen(s)};
}

int cop_kernel_request_build(struct cop_signer *signer, const char *session, const char *msg_id, const char *type,
                             json_t *parent, json_t *content, struct cop_kernel_request *ret, struct cop_error *err)
{
        struct cop_kernel_request r = {0};
        char date[COP_RFC3339_MAX];

        json_t *header =
                json_pack("{ss ss ss ss ss ss}", "msg_id", msg_id, "session", session, "username", "coppice", "date",
                          cop_rfc3339(cop_now(CLOCK_REALTIME), date), "msg_type", type, "version", PROTOCOL_VERSION);
        r.header = header ? json_dumps(header, JSON_COMPACT) : NULL;
        json_decref(header);
        r.parent = parent ? json_dumps(parent, JSON_COMPACT) : strdup("{}");
        r.content = json_dumps(content, JSON_COMPACT);
        if (!r.header || !r.parent || !r.content) {
                cop_kernel_request_done(&r);
                return cop_error_errno(err, ENOMEM, "building a %s", type);
        }
        *ret = r;
        ret->frames[0] = frame(DELIMITER);
        ret->frames[2] = frame(r.header);
        ret->frames[3] = frame(r.parent);
        ret->frames[4] = frame("{}");
        ret->frames[5] = frame(r.content);
        if (cop_signer_sign(signer, ret->frames + 2, ret->signature) < 0) {
                cop_kernel_request_done(ret);
                return cop_error_set(err, EIO, COP_ERR_internal, "libcrypto could not sign a message");
        }
        ret->frames[1] = frame(ret->signature);
        return 0;
}
