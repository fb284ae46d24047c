#include "parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

int cop_parse_u64(const char *s, uint64_t *ret)
{
        uint64_t value = 0;

        if (!*s)
                return -EINVAL;
        for (; *s; s++) {
                if (*s < '0' || *s > '9')
                        return -EINVAL;
                if (__builtin_mul_overflow(value, 10, &value) ||
                    __builtin_add_overflow(value, (uint64_t)(*s - '0'), &value))
                        return -ERANGE;
        }
        *ret = value;
        return 0;
}

int cop_parse_i64(const char *s, int64_t *ret)
{
        bool negative = *s == '-';
        uint64_t value;

        int r = cop_parse_u64(s + negative, &value);
        if (r < 0)
                return r;
        if (value > (uint64_t)INT64_MAX + negative)
                return -ERANGE;
        *ret = negative ? (int64_t)(0 - value) : (int64_t)value;
        return 0;
}

/* A non-negative decimal fraction; *ret_rest points behind it. */
static int parse_decimal(const char *s, double *ret, const char **ret_rest)
{
        double value = 0, scale = 1;
        size_t digits = 0;

        for (; *s >= '0' && *s <= '9'; s++, digits++)
                value = value * 10 + (*s - '0');
        if (*s == '.')
                for (s++; *s >= '0' && *s <= '9'; s++, digits++)
                        value += (*s - '0') * (scale /= 10);
        if (digits == 0)
                return -EINVAL;
        *ret = value;
        *ret_rest = s;
        return 0;
}

int cop_parse_size(const char *s, uint64_t *ret_bytes)
{
        static const char units[] = "KMGT";
        const char *rest;
        double value, factor = 1;

        int r = parse_decimal(s, &value, &rest);
        if (r < 0)
                return r;
        bool binary = false;
        if (*rest && *rest != 'B') {
                const char *unit = strchr(units, toupper((unsigned char)*rest));
                if (!unit)
                        return -EINVAL;
                factor = (double)(1ULL << (10 * (unit - units + 1)));
                rest++;
                binary = *rest == 'i';
                rest += binary;
        }
        if (*rest == 'B')
                rest++;
        else if (binary)
                return -EINVAL;
        if (*rest)
                return -EINVAL;
        value *= factor;
        if (value >= (double)(1ULL << 62))
                return -ERANGE;
        *ret_bytes = (uint64_t)value;
        return 0;
}

int cop_parse_duration(const char *s, usec_t *ret)
{
        static const struct {
                const char *suffix;
                double usec;
        } units[] = {{"", 1e6}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"m", 60e6}, {"h", 3600e6}, {"d", 86400e6}};
        const char *rest;
        double value;

        int r = parse_decimal(s, &value, &rest);
        if (r < 0)
                return r;
        for (size_t i = 0; i < ELEMENTSOF(units); i++) {
                if (strcmp(rest, units[i].suffix) != 0)
                        continue;
                value *= units[i].usec;
                if (value >= (double)(1ULL << 62))
                        return -ERANGE;
                *ret = (usec_t)(value + 0.5);
                return 0;
        }
        return -EINVAL;
}

char *cop_format_size(uint64_t bytes, char buf[static COP_SIZE_MAX])
{
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
        double value = (double)bytes;
        size_t unit = 0;

        while (value >= 1024 && unit + 1 < ELEMENTSOF(units)) {
                value /= 1024;
                unit++;
        }
        snprintf(buf, COP_SIZE_MAX, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
        return buf;
}

bool cop_id_valid(const char *s, const char *prefix, size_t n)
{
        size_t skip = strlen(prefix);

        if (strncmp(s, prefix, skip) != 0 || strlen(s + skip) != n)
                return false;
        for (s += skip; *s; s++)
                if (!(*s >= 'a' && *s <= 'z') && !(*s >= '0' && *s <= '9'))
                        return false;
        return true;
}

bool cop_name_valid(const char *s)
{
        static const char *const id_prefixes[] = {"sb_", "im_", "ctx_", "cell_", "cmd_", "nd_"};
        size_t n = strlen(s);

        if (n == 0 || n > 63 || !isalnum((unsigned char)s[0]))
                return false;
        for (size_t i = 0; i < ELEMENTSOF(id_prefixes); i++)
                if (strncmp(s, id_prefixes[i], strlen(id_prefixes[i])) == 0)
                        return false;
        for (; *s; s++)
                if (!isalnum((unsigned char)*s) && !strchr("._-", *s))
                        return false;
        return true;
}
