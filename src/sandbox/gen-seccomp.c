/* Build-time program: compiles the rules of seccomp-rules.c with libseccomp and prints the filter as C initialisers.
 *
 * Compiling takes 5 ms, which would be spent at every start of a sandbox; the result depends on nothing
 * but the architecture.  Names that this libseccomp does not know yet are given by number (since Linux 5.6 new calls have
 * the same number everywhere).
 */
#include <errno.h>
#include <linux/filter.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "seccomp-rules.h"

static void die(const char *what, int r)
{
        fprintf(stderr, "gen-seccomp: %s: %s\n", what, strerror(-r));
        exit(1);
}

static void add_rule(scmp_filter_ctx ctx, const struct cop_seccomp_rule *rule)
{
        struct scmp_arg_cmp args[COP_SECCOMP_ARGS];
        unsigned n = 0;
        int number = seccomp_syscall_resolve_name(rule->name);

        if (number == __NR_SCMP_ERROR)
                number = rule->number ? rule->number : __NR_SCMP_ERROR;
        if (number == __NR_SCMP_ERROR) {
                fprintf(stderr, "gen-seccomp: unknown system call %s\n", rule->name);
                exit(1);
        }
        if (number < 0) /* known, but not on this architecture */
                return;
        for (; n < COP_SECCOMP_ARGS && rule->args[n].op; n++)
                args[n] = (struct scmp_arg_cmp){.arg = rule->args[n].arg,
                                                .op = (enum scmp_compare)rule->args[n].op,
                                                .datum_a = rule->args[n].a,
                                                .datum_b = rule->args[n].b};
        int r = seccomp_rule_add_array(ctx, rule->allow ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO((unsigned)rule->errnum),
                                       number, n, args);
        if (r < 0)
                die(rule->name, r);
}

int main(void)
{
        scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
        struct sock_filter code[8192];
        int r;

        if (!ctx)
                die("seccomp_init", -ENOMEM);
        if ((r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS))) < 0 ||
            (r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2)) < 0)
                die("seccomp_attr_set", r);
        for (size_t i = 0; i < cop_seccomp_rule_count; i++)
                add_rule(ctx, &cop_seccomp_rules[i]);
        FILE *f = tmpfile();
        if (!f || (r = seccomp_export_bpf(ctx, fileno(f))) < 0)
                die("seccomp_export_bpf", f ? r : -errno);
        seccomp_release(ctx);
        rewind(f);
        size_t n = fread(code, sizeof(code[0]), sizeof(code) / sizeof(code[0]), f);
        fclose(f);
        if (n == 0 || n > BPF_MAXINSNS)
                die("filter size", -E2BIG);
        for (size_t i = 0; i < n; i++)
                printf("{0x%04x, %u, %u, 0x%08x},\n", code[i].code, code[i].jt, code[i].jf, code[i].k);
        return 0;
}
