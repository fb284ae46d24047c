#include "sse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line of the engine has its seq as the first field or as the last one. */
static void note_seq(struct cop_sse *s)
{
        static const char first[] = "{\"seq\":", last[] = ",\"seq\":";
        char *end;

        s->head[s->head_len] = '\0';
        s->tail[s->tail_len] = '\0';
        if (strncmp(s->head, first, sizeof(first) - 1) == 0) {
                s->seq = strtoull(s->head + sizeof(first) - 1, NULL, 10);
                return;
        }
        const char *p = strstr(s->tail, last);
        for (const char *next = p; next; next = strstr(next + 1, last))
                p = next;
        uint64_t n = p ? strtoull(p + sizeof(last) - 1, &end, 10) : 0;
        s->seq = p && strcmp(end, "}") == 0 ? n : s->seq + 1;
}

/* Keeps the two ends of the line. */
static void note_part(struct cop_sse *s, const char *part, size_t n)
{
        const size_t max = sizeof(s->head) - 1;
        size_t head = max - s->head_len < n ? max - s->head_len : n;

        memcpy(s->head + s->head_len, part, head);
        s->head_len += head;
        if (n >= max) {
                memcpy(s->tail, part + n - max, max);
                s->tail_len = max;
                return;
        }
        size_t keep = s->tail_len < max - n ? s->tail_len : max - n;
        memmove(s->tail, s->tail + s->tail_len - keep, keep);
        memcpy(s->tail + keep, part, n);
        s->tail_len = keep + n;
}

size_t cop_sse_encode(struct cop_sse *s, const char *in, size_t in_len, char *out, size_t n, size_t *ret_taken)
{
        static const char prefix[] = "data: ";
        size_t taken = 0, len = 0;

        while (taken < in_len && n - len >= 64) {
                if (!s->in_line) {
                        memcpy(out + len, prefix, sizeof(prefix) - 1);
                        len += sizeof(prefix) - 1;
                        s->in_line = true;
                        s->head_len = s->tail_len = 0;
                }
                const char *newline = memchr(in + taken, '\n', in_len - taken);
                size_t part = (newline ? (size_t)(newline - in) : in_len) - taken;
                if (part > n - len - 48)
                        part = n - len - 48;
                memcpy(out + len, in + taken, part);
                note_part(s, in + taken, part);
                len += part;
                taken += part;
                if (taken < in_len && in[taken] == '\n') {
                        note_seq(s);
                        len += (size_t)snprintf(out + len, n - len, "\nid: %llu\n\n", (unsigned long long)s->seq);
                        taken++;
                        s->in_line = false;
                }
        }
        *ret_taken = taken;
        return len;
}
