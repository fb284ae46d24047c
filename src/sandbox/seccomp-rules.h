/* The table that gen-seccomp compiles. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define COP_SECCOMP_ARGS 2

struct cop_seccomp_arg {
        unsigned arg;
        int op; /* enum scmp_compare; 0 ends the list */
        uint64_t a, b;
};

struct cop_seccomp_rule {
        const char *name;
        int number; /* for names newer than the build's libseccomp */
        int allow;
        int errnum; /* when not allowed; 0 = pretend success */
        struct cop_seccomp_arg args[COP_SECCOMP_ARGS];
};

extern const struct cop_seccomp_rule cop_seccomp_rules[];
extern const size_t cop_seccomp_rule_count;
