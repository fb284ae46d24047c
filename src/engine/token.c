/* Bearer tokens.  Only the SHA-256 is stored: 40 characters of [a-z0-9] are 206 bits, so a plain hash needs no salt. */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/id.h"
#include "engine/internal.h"

#define TOKEN_PREFIX "cop_"
#define TOKEN_RANDOM 40
#define TOKENS_MAX 1000

static int hash(const char *token, char ret[static 65])
{
        unsigned char digest[EVP_MAX_MD_SIZE];
        static const char hex[] = "0123456789abcdef";
        unsigned n = 0;

        if (EVP_Digest(token, strlen(token), digest, &n, EVP_sha256(), NULL) != 1 || n != 32)
                return -EIO;
        for (unsigned i = 0; i < n; i++) {
                ret[2 * i] = hex[digest[i] >> 4];
                ret[2 * i + 1] = hex[digest[i] & 15];
        }
        ret[64] = '\0';
        OPENSSL_cleanse(digest, sizeof(digest));
        return 0;
}

static json_t *view(const struct cop_token_row *row, const char *token)
{
        char created[COP_RFC3339_MAX], expires[COP_RFC3339_MAX];

        return json_pack("{s:s, s:s?, s:s, s:s?, s:s*}", "id", row->id, "name", row->name, "created_at",
                         cop_rfc3339(row->created_at, created), "expires_at",
                         row->expires_at ? cop_rfc3339(row->expires_at, expires) : NULL, "token", token);
}

static int check(struct cop_engine *e, const char *name, struct cop_error *err)
{
        _cleanup_(cop_token_rows_freep) struct cop_token_row **rows = NULL;
        size_t n = 0;

        if (name && (!*name || strlen(name) > 100))
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "field \"name\": expected 1 to 100 bytes");
        int r = cop_store_token_list(e->store, &rows, err);
        if (r < 0)
                return r;
        while (rows[n])
                n++;
        if (n >= TOKENS_MAX)
                return cop_error_set(err, EBUSY, COP_ERR_too_many, "there are %zu tokens; remove some first", n);
        return 0;
}

void cop_token_create(struct cop_engine *e, const char *name, usec_t lifetime, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        char token[sizeof(TOKEN_PREFIX) + TOKEN_RANDOM];
        struct cop_token_row row = {.name = (char *)name, .created_at = cop_now(CLOCK_REALTIME)};
        struct cop_error err;

        int r = check(e, name, &err);
        if (r == 0) {
                cop_id_new(row.id, "tok_", 10);
                cop_id_new(token, TOKEN_PREFIX, TOKEN_RANDOM);
                row.expires_at = lifetime == USEC_INFINITY ? 0 : cop_usec_add(row.created_at, lifetime);
                if (hash(token, row.sha256) < 0)
                        r = cop_error_set(&err, EIO, COP_ERR_internal, "SHA-256 is not available");
        }
        if (r == 0)
                r = cop_store_token_insert(e->store, &row, &err);
        if (ret_op)
                *ret_op = NULL;
        if (r < 0)
                cop_answer(to, NULL, &err);
        else
                cop_answer_durable(e, to, view(&row, token), ret_op);
        OPENSSL_cleanse(token, sizeof(token));
}

void cop_token_list(struct cop_engine *e, struct cop_op_to to)
{
        _cleanup_(cop_token_rows_freep) struct cop_token_row **rows = NULL;
        struct cop_error err;

        if (cop_store_token_list(e->store, &rows, &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        json_t *list = json_array();
        for (struct cop_token_row **row = rows; *row; row++)
                json_array_append_new(list, view(*row, NULL));
        cop_answer(to, json_pack("{s:o}", "tokens", list), NULL);
}

/* It stays removed: a power cut after the answer does not bring it back. */
void cop_token_remove(struct cop_engine *e, const char *id, struct cop_op_to to, struct cop_op **ret_op)
{
        struct cop_error err;

        if (ret_op)
                *ret_op = NULL;
        if (cop_store_token_delete(e->store, id, &err) < 0)
                cop_answer(to, NULL, &err);
        else
                cop_answer_durable(e, to, json_pack("{s:s, s:b}", "id", id, "removed", 1), ret_op);
}

bool cop_token_check(struct cop_engine *e, const char *token)
{
        _cleanup_(cop_token_rows_freep) struct cop_token_row **rows = NULL;
        usec_t now = cop_now(CLOCK_REALTIME);
        bool good = false;
        char sha256[65];

        if (strncmp(token, TOKEN_PREFIX, strlen(TOKEN_PREFIX)) != 0 ||
            strlen(token) != sizeof(TOKEN_PREFIX) - 1 + TOKEN_RANDOM)
                return false;
        if (hash(token, sha256) < 0 || cop_store_token_list(e->store, &rows, NULL) < 0)
                return false;
        /* All of them, each in constant time: how long it takes tells nothing of which one was nearly right. */
        for (struct cop_token_row **row = rows; *row; row++) {
                bool same = CRYPTO_memcmp((*row)->sha256, sha256, 64) == 0;
                good |= same & ((*row)->expires_at == 0 || (*row)->expires_at > now);
        }
        return good;
}
