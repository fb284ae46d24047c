/* State of coppice-init, pid 1 of a sandbox.  Theory of operation: main.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/msg.h"

#define COP_INIT_WORKERS_MAX 32    /* file operations under way at a time */
#define COP_INIT_SPAWNS_MAX 64     /* processes between fork and execve at a time */
#define COP_INIT_CHILDREN_MAX 4096 /* spawned processes that run, and ended ones whose process group lives on */

struct cop_init_child {
        pid_t pid;
        bool failed;     /* never reached execve, the reply said so: end it without an event */
        bool ended;      /* reaped; kept while its process group has members */
        int report_fd;   /* owned; >= 0 until execve succeeded or failed */
        uint32_t id;     /* of the SPAWN request, while report_fd >= 0 */
        usec_t deadline; /* of the start, CLOCK_MONOTONIC */
};

struct cop_init_worker {
        pid_t pid;     /* 0: free slot */
        int result_fd; /* owned; SOCK_SEQPACKET; -EBADF once it was read */
        bool replied;
        uint32_t id;
};

struct packet {
        struct packet *next;
        struct cop_msg msg;
};

struct cop_init {
        int control_fd;
        bool closed;                     /* the keeper is gone: end */
        struct packet *first, *last;     /* not sent yet: the socket was full */
        struct cop_init_child *children; /* owned array, unordered */
        size_t child_count, child_allocated, spawn_count;
        struct cop_init_worker workers[COP_INIT_WORKERS_MAX];
        uid_t default_uid;
        gid_t default_gid;
        const char *workdir; /* borrowed from argv */
        usec_t pruned;       /* when ended children were last looked through */
};

/* main.c: sends or queues one packet; takes over what is in m. */
void cop_init_send(struct cop_init *init, struct cop_msg *m);
void cop_init_send_error(struct cop_init *init, uint32_t id, const struct cop_error *err);

/* children.c */
struct cop_init_child *cop_init_child_find(struct cop_init *init, pid_t pid);
/* Makes room for one more, or says why there is none. */
int cop_init_child_check_room(struct cop_init *init, struct cop_error *err);
void cop_init_child_add(struct cop_init *init, const struct cop_init_child *c); /* after cop_init_child_check_room */
/* SIGCHLD: reaps everything, sends CHILD events. */
void cop_init_child_reap_all(struct cop_init *init);
void cop_init_child_handle_kill(struct cop_init *init, const struct cop_msg *m);

/* spawn.c */
void cop_init_spawn_handle(struct cop_init *init, struct cop_msg *m);
/* The report pipe of a starting child is readable or closed: answers the request.
 * Sets c->failed when the program could not be started. */
void cop_init_spawn_finish(struct cop_init *init, struct cop_init_child *c);
/* Kills what did not reach execve in time; returns the next deadline. */
usec_t cop_init_spawn_expire(struct cop_init *init, usec_t now);

/* worker.c */
void cop_init_worker_handle(struct cop_init *init, struct cop_msg *m);
void cop_init_worker_forward(struct cop_init *init, struct cop_init_worker *w);
/* True when pid was a worker; status as from waitpid. */
bool cop_init_worker_reaped(struct cop_init *init, pid_t pid, int status);
