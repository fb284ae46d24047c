#include "decode.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/utf8.h"

#define REPLACEMENT_ESCAPE "\\ufffd"
#define COUNT_FROM (1024 * 1024)
#define VALUES_MAX 2000000
#define MEND_MAX (64 * 1024 * 1024)

/* A value of two bytes takes forty in memory: 200 MiB of "[1,1,1…" would take the daemon 4 GiB.  Counts commas and brackets
 * outside strings. */
static bool too_many_values(const char *s, size_t n)
{
        size_t values = 0;
        bool string = false;

        for (size_t i = 0; i < n; i++) {
                if (string) {
                        if (s[i] == '\\')
                                i++;
                        else if (s[i] == '"')
                                string = false;
                } else if (s[i] == '"') {
                        string = true;
                } else if (s[i] == ',' || s[i] == '[' || s[i] == '{') {
                        values++;
                }
        }
        return values > VALUES_MAX;
}

/* -- mending ------------------------------------------------------------------------------------------------------ */

static int hex4(const char *s, size_t n, unsigned *ret)
{
        unsigned value = 0;

        if (n < 4)
                return 0;
        for (int i = 0; i < 4; i++) {
                unsigned char c = (unsigned char)s[i];
                if (c >= '0' && c <= '9')
                        value = value * 16 + c - '0';
                else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
                        value = value * 16 + (c | 0x20) - 'a' + 10;
                else
                        return 0;
        }
        *ret = value;
        return 1;
}

/* Copies the escape at s (s[0] is a backslash); returns the bytes taken, or a negative errno. */
static ssize_t mend_escape(struct cop_buf *out, const char *s, size_t n, bool drop_nul)
{
        unsigned high, low;
        int r;

        if (n < 2)
                return -EBADMSG;
        if (s[1] != 'u') {
                r = cop_buf_add(out, s, 2);
                return r < 0 ? r : 2;
        }
        if (!hex4(s + 2, n - 2, &high))
                return -EBADMSG;
        if (high >= 0xD800 && high <= 0xDBFF && n >= 12 && s[6] == '\\' && s[7] == 'u' && hex4(s + 8, n - 8, &low) &&
            low >= 0xDC00 && low <= 0xDFFF) {
                r = cop_buf_add(out, s, 12);
                return r < 0 ? r : 12;
        }
        if ((high >= 0xD800 && high <= 0xDFFF) || (drop_nul && high == 0))
                r = cop_buf_adds(out, REPLACEMENT_ESCAPE);
        else
                r = cop_buf_add(out, s, 6);
        return r < 0 ? r : 6;
}

static ssize_t mend_string(struct cop_buf *out, const char *s, size_t n, bool drop_nul)
{
        size_t i = 1;
        int r = cop_buf_addc(out, '"');

        while (r >= 0 && i < n && s[i] != '"') {
                size_t plain = i;
                while (plain < n && s[plain] != '"' && s[plain] != '\\' && (unsigned char)s[plain] >= 0x20)
                        plain++;
                r = cop_buf_add(out, s + i, plain - i);
                i = plain;
                if (r < 0 || i >= n || s[i] == '"')
                        continue;
                if (s[i] == '\\') {
                        ssize_t taken = mend_escape(out, s + i, n - i, drop_nul);
                        if (taken < 0)
                                return taken;
                        i += (size_t)taken;
                } else {
                        r = s[i] == 0 && drop_nul ? cop_buf_adds(out, REPLACEMENT_ESCAPE)
                                                  : cop_buf_addf(out, "\\u%04x", (unsigned char)s[i]);
                        i++;
                }
        }
        if (r < 0)
                return r;
        if (i >= n)
                return -EBADMSG;
        r = cop_buf_addc(out, '"');
        return r < 0 ? r : (ssize_t)i + 1;
}

/* A run of characters of numbers and bare words: true, -1.5e3, NaN, -Infinity. */
static ssize_t mend_word(struct cop_buf *out, const char *s, size_t n)
{
        char number[400], *end;
        size_t len = strspn(s, "+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
        bool integer = true;
        int r;

        if (len > n)
                len = n;
        if (len == 0)
                return -EBADMSG;
        if ((s[0] < '0' || s[0] > '9') && s[0] != '-') {
                bool keep = (len == 4 && (memcmp(s, "true", 4) == 0 || memcmp(s, "null", 4) == 0)) ||
                            (len == 5 && memcmp(s, "false", 5) == 0);
                bool nan = (len == 3 && memcmp(s, "NaN", 3) == 0) || (len == 8 && memcmp(s, "Infinity", 8) == 0);
                if (!keep && !nan)
                        return -EBADMSG;
                r = keep ? cop_buf_add(out, s, len) : cop_buf_adds(out, "null");
                return r < 0 ? r : (ssize_t)len;
        }
        for (size_t i = 1; i < len; i++)
                integer = integer && s[i] >= '0' && s[i] <= '9';
        /* More digits than a double can have: infinite as well. */
        double value = INFINITY;
        if (len < sizeof(number)) {
                memcpy(number, s, len);
                number[len] = '\0';
                value = strtod(number, &end);
                if (*end)
                        return -EBADMSG;
        } else if (!integer) {
                return -EBADMSG;
        }
        if (!isfinite(value))
                r = cop_buf_adds(out, "null");
        else if (integer && len - (s[0] == '-') > 18)
                r = cop_buf_addf(out, "%.17e", value);
        else
                r = cop_buf_add(out, s, len);
        return r < 0 ? r : (ssize_t)len;
}

/* s must be NUL-terminated valid UTF-8. */
static int mend(struct cop_buf *out, const char *s, size_t n, bool drop_nul)
{
        for (size_t i = 0; i < n;) {
                ssize_t taken = 1;
                if (s[i] == '"') {
                        taken = mend_string(out, s + i, n - i, drop_nul);
                } else if (s[i] != '\0' && strchr("{}[]:, \t\r\n", s[i])) {
                        int r = cop_buf_addc(out, s[i]);
                        taken = r < 0 ? r : 1;
                } else {
                        taken = mend_word(out, s + i, n - i);
                }
                if (taken < 0)
                        return (int)taken;
                i += (size_t)taken;
        }
        return 0;
}

int cop_decode_json(const char *text, size_t n, json_t **ret, bool *ret_repaired, struct cop_error *err)
{
        json_error_t error;

        if (n > COUNT_FROM && too_many_values(text, n))
                return cop_error_set(err, EBADMSG, COP_ERR_bad_request, "kernel message holds more than %d values",
                                     VALUES_MAX);
        json_t *value = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
        if (ret_repaired)
                *ret_repaired = !value;
        if (!value && n <= MEND_MAX) {
                size_t len;
                _cleanup_free_ char *clean = cop_utf8_repair(text, n, &len);
                if (!clean)
                        return cop_error_errno(err, ENOMEM, "kernel message");
                for (int drop_nul = 0; drop_nul < 2 && !value; drop_nul++) {
                        /* The worst growth is a control character, 1 byte to 6. */
                        _cleanup_buf_ struct cop_buf out = COP_BUF(6 * len + 16);
                        int r = mend(&out, clean, len, drop_nul);
                        if (r == -ENOMEM)
                                return cop_error_errno(err, ENOMEM, "kernel message");
                        if (r == 0 && out.len)
                                value = json_loadb(out.data, out.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
                }
        }
        if (!value)
                return cop_error_set(err, EBADMSG, COP_ERR_bad_request, "kernel message is no JSON: %s", error.text);
        *ret = value;
        return 0;
}

/* -- stream messages ---------------------------------------------------------------------------------------------- */

static size_t skip_space(const char *s, size_t n, size_t i)
{
        while (i < n && (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r'))
                i++;
        return i;
}

/* Checks the string that starts at s[i] == '"'; returns the index of its closing quote, 0 when it is not strict. */
static size_t string_end(const char *s, size_t n, size_t i)
{
        unsigned high, low;

        for (i++; i < n; i++) {
                const char *plain = s + i;
                while (i < n && s[i] != '"' && s[i] != '\\' && (unsigned char)s[i] >= 0x20)
                        i++;
                if (!cop_utf8_valid(plain, (size_t)(s + i - plain)))
                        return 0;
                if (i >= n || s[i] == '"')
                        return i < n ? i : 0;
                if (s[i] != '\\' || ++i >= n)
                        return 0;
                if (s[i] != 'u') {
                        if (s[i] == '\0' || !strchr("\"\\/bfnrt", s[i]))
                                return 0;
                        continue;
                }
                if (!hex4(s + i + 1, n - i - 1, &high) || (high >= 0xDC00 && high <= 0xDFFF))
                        return 0;
                i += 4;
                if (high < 0xD800 || high > 0xDBFF)
                        continue;
                if (n - i < 7 || s[i + 1] != '\\' || s[i + 2] != 'u' || !hex4(s + i + 3, n - i - 3, &low) ||
                    low < 0xDC00 || low > 0xDFFF)
                        return 0;
                i += 6;
        }
        return 0;
}

static size_t put_utf8(char *out, unsigned c)
{
        if (c < 0x80) {
                out[0] = (char)c;
                return 1;
        }
        if (c < 0x800) {
                out[0] = (char)(0xC0 | c >> 6);
                out[1] = (char)(0x80 | (c & 0x3F));
                return 2;
        }
        if (c < 0x10000) {
                out[0] = (char)(0xE0 | c >> 12);
                out[1] = (char)(0x80 | (c >> 6 & 0x3F));
                out[2] = (char)(0x80 | (c & 0x3F));
                return 3;
        }
        out[0] = (char)(0xF0 | c >> 18);
        out[1] = (char)(0x80 | (c >> 12 & 0x3F));
        out[2] = (char)(0x80 | (c >> 6 & 0x3F));
        out[3] = (char)(0x80 | (c & 0x3F));
        return 4;
}

/* Decodes the checked string between its quotes in place; returns its length.  An escape is never shorter than what it
 * stands for, so writing never overtakes reading. */
static size_t decode_in_place(char *s, size_t n)
{
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        size_t used = 0;

        for (size_t i = 0; i < n;) {
                char *escape = memchr(s + i, '\\', n - i);
                size_t plain = escape ? (size_t)(escape - s) - i : n - i;
                if (used != i)
                        memmove(s + used, s + i, plain);
                used += plain;
                i += plain;
                if (i >= n)
                        break;
                if (s[i + 1] != 'u') {
                        s[used++] = to[strchr(from, s[i + 1]) - from];
                        i += 2;
                        continue;
                }
                unsigned c = 0, low = 0;
                hex4(s + i + 2, 4, &c);
                i += 6;
                if (c >= 0xD800 && c <= 0xDBFF) {
                        hex4(s + i + 2, 4, &low);
                        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
                        i += 6;
                }
                used += put_utf8(s + used, c);
        }
        s[used] = '\0';
        return used;
}

int cop_decode_stream(char *text, size_t n, const char **ret_name, char **ret_text, size_t *ret_text_len)
{
        size_t begin[2] = {0}, end[2] = {0}; /* name, text: the places of their quotes */
        size_t i = skip_space(text, n, 0);

        if (i >= n || text[i++] != '{')
                return 0;
        for (int member = 0; member < 2; member++) {
                i = skip_space(text, n, i);
                if (n - i < 7 || memcmp(text + i, "\"name\"", 6) != 0)
                        if (n - i < 7 || memcmp(text + i, "\"text\"", 6) != 0)
                                return 0;
                int which = text[i + 1] == 't';
                i = skip_space(text, n, i + 6);
                if (end[which] || i >= n || text[i] != ':')
                        return 0;
                i = skip_space(text, n, i + 1);
                if (i >= n || text[i] != '"')
                        return 0;
                begin[which] = i;
                end[which] = string_end(text, n, i);
                if (!end[which])
                        return 0;
                i = skip_space(text, n, end[which] + 1);
                if (i >= n || text[i++] != (member == 0 ? ',' : '}'))
                        return 0;
        }
        if (skip_space(text, n, i) != n)
                return 0;
        decode_in_place(text + begin[0] + 1, end[0] - begin[0] - 1);
        *ret_name = text + begin[0] + 1;
        *ret_text_len = decode_in_place(text + begin[1] + 1, end[1] - begin[1] - 1);
        *ret_text = text + begin[1] + 1;
        return 1;
}
