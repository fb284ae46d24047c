/* Cleanup attributes and ownership transfer (see man 1 gcc, "cleanup" attribute).
 *
 *      _cleanup_close_ int fd = -EBADF;
 *      _cleanup_free_ char *path = NULL;
 *      …
 *      *ret_fd = TAKE_FD(fd);
 *
 * COP_DEFINE_CLEANUP(struct cop_x *, cop_x_free) makes cop_x_freep for _cleanup_(cop_x_freep).
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))
#define _unused_ __attribute__((unused))
#define _must_check_ __attribute__((warn_unused_result))

#define ELEMENTSOF(a) (sizeof(a) / sizeof((a)[0]))
#define MIN_OF(a, b)                               \
        ({                                         \
                __typeof__(a) _min_a = (a);        \
                __typeof__(b) _min_b = (b);        \
                _min_a < _min_b ? _min_a : _min_b; \
        })
#define MAX_OF(a, b)                               \
        ({                                         \
                __typeof__(a) _max_a = (a);        \
                __typeof__(b) _max_b = (b);        \
                _max_a > _max_b ? _max_a : _max_b; \
        })

/* Hands the value over and leaves an empty one behind. */
#define TAKE_PTR(p)                              \
        ({                                       \
                __typeof__(p) *_take_p = &(p);   \
                __typeof__(p) _taken = *_take_p; \
                *_take_p = NULL;                 \
                _taken;                          \
        })
#define TAKE_FD(fd)                     \
        ({                              \
                int *_take_fd = &(fd);  \
                int _taken = *_take_fd; \
                *_take_fd = -EBADF;     \
                _taken;                 \
        })

#define COP_DEFINE_CLEANUP(type, func)      \
        static inline void func##p(type *p) \
        {                                   \
                if (*p)                     \
                        func(*p);           \
        }                                   \
        struct cop_semicolon_eater

/* Closes fd if it is >= 0, keeps errno, returns -EBADF: `fd = cop_close(fd);`. */
static inline int cop_close(int fd)
{
        if (fd >= 0) {
                int saved = errno;
                close(fd);
                errno = saved;
        }
        return -EBADF;
}

static inline void cop_closep(int *fd)
{
        *fd = cop_close(*fd);
}

static inline void cop_freep(void *p)
{
        void **pp = p;
        free(*pp);
        *pp = NULL;
}

static inline void cop_fclosep(FILE **f)
{
        if (*f)
                fclose(*f);
        *f = NULL;
}

static inline void cop_closedirp(DIR **d)
{
        if (*d)
                closedir(*d);
        *d = NULL;
}

#define _cleanup_free_ _cleanup_(cop_freep)
#define _cleanup_close_ _cleanup_(cop_closep)
#define _cleanup_fclose_ _cleanup_(cop_fclosep)
#define _cleanup_closedir_ _cleanup_(cop_closedirp)
