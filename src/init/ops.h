/* File operations, carried out by a forked worker that has already become the user.  Theory of operation: ops.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/msg.h"

#define COP_FILE_CHUNK 65536 /* bytes moved at a time */
#define COP_FILE_LIST_DEFAULT 10000
#define COP_FILE_LIST_MAX 1000000

/* A worker without progress for that long is ended: 60. */
extern unsigned cop_file_stall_seconds;

struct cop_file_request {
        unsigned op;        /* enum cop_file_op */
        uint64_t flags;     /* COP_FILE_* */
        char *path, *path2; /* owned; absolute, path2 may be NULL */
        mode_t mode;
        bool has_offset;
        uint64_t offset;
        uint64_t length; /* UINT64_MAX: to the end */
        uint64_t depth, count;
        int data_fd;   /* borrowed; -EBADF when none came */
        int result_fd; /* borrowed; where the reply goes */
        bool replied;
        struct cop_msg reply; /* being filled; sent by cop_file_run */
};

/* Fields of an OPEN request; relative paths are put below workdir.  bad_request for what is missing or malformed. */
int cop_file_parse(const struct cop_msg *m, const char *workdir, struct cop_file_request *ret, struct cop_error *err);
void cop_file_request_done(struct cop_file_request *q);

/* Does it and sends the reply. */
void cop_file_run(struct cop_file_request *q);

/* -- for the operations ----------------------------------------------------------------------------------------------
 */

/* errnum as an error of the API: `doing` is "reading", "writing" … */
int cop_file_error(struct cop_error *err, int errnum, const char *doing, const char *path);
/* Called whenever bytes or entries moved: puts the end of the worker off. */
void cop_file_progress(void);
/* TYPE, SIZE, MODE, UID, GID, MTIME. */
void cop_file_add_stat(struct cop_msg *m, const struct stat *st);
void cop_file_send_reply(struct cop_file_request *q);
/* Opens a regular file and nothing else: file_type for folders, FIFOs, devices, sockets.  flags: O_RDONLY or O_WRONLY …
 */
int cop_file_open_regular(int at_fd, const char *path, int flags, struct stat *ret_st, struct cop_error *err);
/* All n bytes into the data socket; cancelled when the reader went away. */
int cop_file_send_data(const struct cop_file_request *q, const void *data, size_t n, struct cop_error *err);
/* Bytes read from the data socket; 0 when the writer shut it down, cancelled when the writer is gone. */
ssize_t cop_file_recv_data(const struct cop_file_request *q, void *data, size_t n, struct cop_error *err);
/* The folder that holds path, as a malloc'd string: "/" for "/x". */
char *cop_file_parent(const char *path);
int cop_file_make_parents(const char *path, struct cop_error *err);

int cop_file_read(struct cop_file_request *q, struct cop_error *err);
int cop_file_write(struct cop_file_request *q, struct cop_error *err);
int cop_file_hash(struct cop_file_request *q, struct stat *ret_st, struct cop_error *err);
int cop_file_list(struct cop_file_request *q, struct cop_error *err);
int cop_file_move(struct cop_file_request *q, struct cop_error *err);
int cop_file_tar(struct cop_file_request *q, struct cop_error *err);
int cop_file_untar(struct cop_file_request *q, struct cop_error *err);
