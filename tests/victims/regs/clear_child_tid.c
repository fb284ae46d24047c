/* clear_child_tid: a raw thread that ends after the thaw clears its word and wakes who waits; set_tid_address works. */
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../victim.h"

static volatile int tid_word, stop;

static int body(void *arg)
{
        while (!stop) {
                struct timespec ts = {0, 1000000};
                syscall(SYS_nanosleep, &ts, NULL);
        }
        syscall(SYS_exit, 0);
        return 0;
}

int main(void)
{
        char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        /* Thread-local data is shared with the main thread: the body touches none. */
        int tid = clone(body, stack + 65536,
                        CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                                CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID,
                        NULL, &tid_word, NULL, &tid_word);
        CHECK(tid > 0 && tid_word == tid);
        victim_ready();
        victim_wait();
        CHECK(tid_word == tid);
        stop = 1;
        struct timespec limit = {10, 0};
        while (tid_word != 0)
                CHECK(syscall(SYS_futex, &tid_word, FUTEX_WAIT, tid, &limit, NULL, 0) == 0 || errno == EAGAIN ||
                      errno == EINTR);
        CHECK(tid_word == 0);
        victim_pass();
}
