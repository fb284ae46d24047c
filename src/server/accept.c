#include "accept.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

static const struct {
        const char *type;
        enum cop_accept accept;
} types[] = {
        {"application/json", COP_ACCEPT_JSON},      {"application/x-ndjson", COP_ACCEPT_NDJSON},
        {"application/ndjson", COP_ACCEPT_NDJSON},  {"application/jsonl", COP_ACCEPT_NDJSON},
        {"application/x-jsonl", COP_ACCEPT_NDJSON}, {"application/jsonlines", COP_ACCEPT_NDJSON},
        {"text/event-stream", COP_ACCEPT_SSE},
};

/* Quality in thousandths of one element "type;a=b;q=0.5"; 1000 without. */
static int quality(const char *element, size_t len)
{
        for (size_t i = 0; i + 2 < len; i++) {
                if (element[i] != ';')
                        continue;
                size_t k = i + 1;
                while (k < len && element[k] == ' ')
                        k++;
                if (k + 2 >= len || (element[k] != 'q' && element[k] != 'Q') || element[k + 1] != '=')
                        continue;
                int q = element[k + 2] == '1' ? 1000 : 0, unit = 100;
                for (k += 3; k < len && q < 1000; k++) {
                        if (element[k] >= '0' && element[k] <= '9') {
                                q += (element[k] - '0') * unit;
                                unit /= 10;
                        } else if (element[k] != '.') {
                                break;
                        }
                }
                return q;
        }
        return 1000;
}

enum cop_accept cop_accept_parse(const char *header, enum cop_accept fallback)
{
        enum cop_accept best = fallback;
        int best_quality = 0;

        for (const char *p = header ? header : ""; *p;) {
                p += strspn(p, " \t,");
                size_t len = strcspn(p, ","), type_len = strcspn(p, ",; \t");
                for (size_t i = 0; i < ELEMENTSOF(types); i++) {
                        if (strlen(types[i].type) != type_len || strncasecmp(types[i].type, p, type_len) != 0)
                                continue;
                        int q = quality(p, len);
                        if (q > best_quality) {
                                best = types[i].accept;
                                best_quality = q;
                        }
                }
                p += len;
        }
        return best;
}

/* Decimal digits at *p; false when there are none or too many. */
static bool number(const char **p, uint64_t *ret)
{
        const char *s = *p;
        uint64_t n = 0;

        for (; *s >= '0' && *s <= '9'; s++)
                if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, (uint64_t)(*s - '0'), &n))
                        return false;
        if (s == *p)
                return false;
        *p = s;
        *ret = n;
        return true;
}

int cop_range_parse(const char *header, uint64_t size, struct cop_range *ret, struct cop_error *err)
{
        uint64_t first = 0, last = UINT64_MAX;
        bool have_first, have_last;

        if (!header || strncasecmp(header, "bytes=", 6) != 0 || strchr(header, ','))
                return 0;
        const char *p = header + 6;
        p += strspn(p, " ");
        have_first = number(&p, &first);
        if (*p++ != '-')
                return 0;
        have_last = number(&p, &last);
        if (*p || (!have_first && !have_last) || (have_first && have_last && last < first))
                return 0;
        if (!have_first) {
                if (last == 0 || size == 0)
                        goto outside;
                first = last >= size ? 0 : size - last;
                last = size - 1;
        }
        if (first >= size)
                goto outside;
        if (!have_last || last >= size)
                last = size - 1;
        *ret = (struct cop_range){.first = first, .length = last - first + 1};
        return 1;
outside:
        return cop_error_set(err, ERANGE, COP_ERR_range_invalid, "range \"%.60s\" lies outside the %llu bytes", header,
                             (unsigned long long)size);
}
