/* The watch over image-backed memory.
 *
 * Theory of operation.  After a thaw, long runs of what was anonymous memory are private mappings of a page file.  They
 * behave as anonymous memory but for these calls, which would bring the page file to light:
 *
 *      madvise DONTNEED, FREE       bytes of the image come back instead of zeros, or EINVAL
 *      madvise WIPEONFORK, GUARD    EINVAL, or the image's bytes after the guard is removed
 *      mremap                       growth shows the bytes that follow in the file; an area that is several mappings now
 *                                   cannot be moved (EFAULT)
 *
 * Written pages of a library's data are such mappings, too, in the place of the library's own.  There DONTNEED has to bring
 * the library's bytes: the engine opens it, hands the descriptor to the caller (as the answer to a notification can) and
 * maps it again.  GUARD and mremap, which nobody tries there, fail with ENOMEM; FREE and WIPEONFORK fail by themselves, as they should.
 *
 * So every process that has such memory gets a seccomp filter with a notification descriptor: a call of these kinds on a
 * range that touches one of its image-backed areas waits until the engine has turned the range into real anonymous
 * memory (fresh for DONTNEED and FREE, else a copy that replaces the range atomically), and then runs.  The filter decides
 * by comparing addresses in units of 64 KiB, so calls elsewhere (what an allocator does with memory it got after the
 * thaw) never leave the kernel.  Children inherit filter and memory; after an execve the addresses mean nothing, which the
 * engine sees and lets pass.
 *
 * To change a thread's memory the engine seizes it: the stop takes the thread out of the notification with ERESTARTSYS,
 * and when it goes on it makes the call again and waits again; now its range is plain and it may go.  Where that cannot be done
 * (no memory, another tracer that stays, no right to trace it) the call fails with ENOMEM.
 *
 * The filter begins with a jump to nowhere on a magic number, by which a later freeze knows it and leaves it out.  Who may not
 * read filters asks it: madvise with that number for advice has an answer that no kernel gives.
 */
#pragma once

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "freezer/image.h"

#define COP_WATCH_PROBE 0x636f7077U
#define COP_WATCH_ANSWER 1907 /* an errno */
#define COP_WATCH_RANGES 128
#define COP_WATCH_UNIT 65536UL /* bytes: what the filter compares addresses in, shifted by 16 */
#define COP_WATCH_PROGRAM (40 + 5 * COP_WATCH_RANGES)

struct cop_watch_range {
        uint64_t start, end;
};
/* Writes the filter for n ascending ranges (joined over the smallest gaps when more than COP_WATCH_RANGES, in place);
 * returns its length. */
size_t cop_watch_program(struct cop_watch_range *ranges, size_t n,
                         struct sock_filter program[static COP_WATCH_PROGRAM]);
bool cop_watch_is_ours(const struct sock_filter *program, size_t n);

struct cop_watch;
/* Engine's side, see freezer.h.  Takes over listener_fd. */
int cop_watch_new(const struct cop_image *image, struct cop_watch **ret, struct cop_error *err);
int cop_watch_add(struct cop_watch *w, int listener_fd, struct cop_error *err);
