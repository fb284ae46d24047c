/* For victims of memory: patterns that tell every byte. */
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "victim.h"

#define PAGE 4096UL
#define ANON(size, prot) mmap(NULL, (size), (prot), MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
#define RW (PROT_READ | PROT_WRITE)

/* Fills with a pattern that depends on the seed and the offset. */
static inline void fill(void *p, size_t n, uint64_t seed)
{
        uint64_t *w = p;

        for (size_t i = 0; i < n / 8; i++)
                w[i] = (seed + 1) * 0x9e3779b97f4a7c15UL + i * 0xff51afd7ed558ccdUL;
}

/* Offset of the first byte that is not the pattern's, -1 when all are. */
static inline long differs(const void *p, size_t n, uint64_t seed)
{
        const uint64_t *w = p;

        for (size_t i = 0; i < n / 8; i++)
                if (w[i] != (seed + 1) * 0x9e3779b97f4a7c15UL + i * 0xff51afd7ed558ccdUL)
                        return (long)(i * 8);
        return -1;
}

static inline long not_zero(const void *p, size_t n)
{
        const uint64_t *w = p;

        for (size_t i = 0; i < n / 8; i++)
                if (w[i] != 0)
                        return (long)(i * 8);
        return -1;
}

#define CHECK_FILLED(p, n, seed)                                        \
        do {                                                            \
                long at_ = differs(p, n, seed);                         \
                if (at_ >= 0)                                           \
                        victim_fail("%s differs at byte %ld", #p, at_); \
        } while (0)
#define CHECK_ZERO(p, n)                                                    \
        do {                                                                \
                long at_ = not_zero(p, n);                                  \
                if (at_ >= 0)                                               \
                        victim_fail("%s is not zero at byte %ld", #p, at_); \
        } while (0)

/* Permissions and so on of the mapping at p, as /proc/self/maps has them ("rw-p"), with VmFlags after a space if asked. */
static inline void mapping_of(const void *p, char perms[8], char *flags, size_t flags_size)
{
        char line[512];
        unsigned long from, to;
        int here = 0;
        FILE *f = fopen("/proc/self/smaps", "r");

        perms[0] = '\0';
        if (flags)
                flags[0] = '\0';
        while (f && fgets(line, sizeof(line), f)) {
                char pr[8];
                if (sscanf(line, "%lx-%lx %7s", &from, &to, pr) == 3 && strchr(line, '-') && line[0] != 'V') {
                        here = from <= (unsigned long)p && (unsigned long)p < to;
                        if (here)
                                memcpy(perms, pr, 8);
                } else if (here && flags && strncmp(line, "VmFlags:", 8) == 0)
                        snprintf(flags, flags_size, "%.200s", line + 8);
        }
        if (f)
                fclose(f);
}
