/* Open files that have a path, or had one; see dump_file.c. */
#pragma once

#include <stdint.h>
#include <sys/stat.h>

#include "freezer/dump.h"

/* What /proc tells of a descriptor. */
struct cop_fd_info {
        char link[COP_DUMP_LINK];
        struct stat st;
        long fs_type;
        char *text; /* owned: fdinfo */
        uint32_t flags;
        uint64_t position;
};

/* Afterwards the link is a path of the file, or it has none: then st_nlink is 0. */
int cop_dump_settle_name(struct cop_dump *d, const struct cop_dump_file *known, struct cop_fd_info *fi,
                         struct cop_error *err);
int cop_dump_memfd(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_fd_info *fi,
                   struct cop_error *err);
int cop_dump_regular(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_fd_info *fi,
                     struct cop_error *err);
/* Symbolic links and sockets, too. */
int cop_dump_folder(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_fd_info *fi,
                    struct cop_error *err);
/* Of a device that can be opened again by the name it has everywhere; else NULL. */
const char *cop_dump_device_name(dev_t device);
