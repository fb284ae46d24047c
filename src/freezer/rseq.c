/* Restartable sequences (rseq(2)) that the stop of a freeze interrupted.
 *
 * A thread that is preempted, moved or gets a signal within a sequence goes on at the sequence's abort address: the kernel looks at its
 * instruction pointer when it returns to user mode.  A thread in which the engine runs code returns elsewhere, and a thawed one is
 * another thread: neither would be aborted, and would go on with what belongs to a CPU on which it no longer is.  So what the kernel does
 * is done here, before any code is run.
 */
#include <linux/rseq.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>

#include "freezer/tracee.h"

void cop_leave_sequence(const struct cop_proc *p, struct cop_task *t)
{
        struct __ptrace_rseq_configuration conf = {0};
        const uint64_t none = 0;
        struct rseq_cs cs;
        uint32_t signature;
        uint64_t at;

        t->rseq = 0;
        if (ptrace((enum __ptrace_request)PTRACE_GET_RSEQ_CONFIGURATION, t->tid, sizeof(conf), &conf) <= 0)
                return;
        t->rseq = conf.rseq_abi_pointer;
        t->rseq_size = conf.rseq_abi_size;
        t->rseq_signature = conf.signature;
        if (t->rseq == 0 || cop_mem_read(p, t->rseq + offsetof(struct rseq, rseq_cs), &at, sizeof(at)) < 0 || at == 0 ||
            cop_mem_read(p, at, &cs, sizeof(cs)) < 0)
                return;
        if (cs.version != 0 || t->regs.rip - cs.start_ip >= cs.post_commit_offset)
                return;
        /* Before the abort address stands the signature, or it is not one: the kernel would end the program. */
        if (cop_mem_read(p, cs.abort_ip - sizeof(signature), &signature, sizeof(signature)) < 0 ||
            signature != t->rseq_signature)
                return;
        t->regs.rip = cs.abort_ip;
        (void)cop_mem_write(p, t->rseq + offsetof(struct rseq, rseq_cs), &none, sizeof(none));
}
