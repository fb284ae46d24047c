/* Connection files and launch lines of kernels (notes/jupyter.md 1.1, 5.3). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "jupyter/kernelspec.h"

/* The JSON of a connection file for ipc sockets <base_path>-1 … -5.  base_path is as seen inside the sandbox and must leave
 * room for "-5" in sun_path (107 bytes).  key: hex, may be "". */
int cop_connection_file(const char *base_path, const char *key, const char *kernel_name, struct cop_buf *ret,
                        struct cop_error *err);

/* A program to start: NULL-terminated arrays of owned strings.  env holds only what is to be set on top of the sandbox's
 * environment, as NAME=value. */
struct cop_launch {
        char **argv;
        char **env;
};

void cop_launch_done(struct cop_launch *l);

struct cop_launch_options {
        const char *connection_file; /* path inside the sandbox */
        const char *ipython_dir;     /* writable directory inside; NULL = not set */
        int parent_pid;              /* JPY_PARENT_PID; 0 = not set.  1 when the kernel's parent is pid 1 */
        /* The image has the coppice_kernel package: use its capture, formatters and limits (Python kernels only). */
        bool coppice_kernel;
        bool coppice_launcher; /* and it can start the kernel (`-m coppice_kernel`), which images of before 2026-12 cannot */
        const char *module_dir; /* where coppice_kernel lies when not on sys.path; NULL = on sys.path */
};

/* A kernelspec's own argv with {connection_file}, {resource_dir} replaced, and its env.  When it is an ipykernel and
 * coppice_kernel is set, the tuned line of note 5.3 with the interpreter of the spec. */
int cop_launch_kernelspec(const struct cop_kernelspec *spec, const struct cop_launch_options *options,
                          struct cop_launch *ret, struct cop_error *err);
