/* Commands: what EXEC started, with its pipes, log and events. */
#pragma once

#include "keeper/keep.h"
#include "keeper/logfile.h"

struct cop_output {
        struct cop_command *command;
        int fd; /* owned; read end, -EBADF at end of file */
        struct cop_source *source;
        uint64_t bytes; /* written by the command, whether kept or not */
};

struct cop_command {
        struct cop_command *next;
        struct cop_keep *keep;
        char key[64];
        int64_t pid; /* inside; 0 while starting */
        bool exited, forgotten, timed_out;
        int status;
        usec_t started, ended;    /* realtime */
        usec_t timeout, deadline; /* deadline: monotonic, 0 = none */
        struct cop_source *timer;
        struct cop_output out[2]; /* stdout, stderr */
        struct cop_logfile log;
        usec_t log_event_next;                 /* monotonic; not before */
        bool log_event, exit_event, eof_event; /* to be sent */
};

int cop_keep_commands_init(struct cop_keep *k, struct cop_error *err);
void cop_keep_exec(struct cop_keep *k, struct cop_msg *m);
void cop_keep_signal(struct cop_keep *k, struct cop_msg *m);
void cop_keep_list(struct cop_keep *k, struct cop_msg *m);
void cop_keep_forget(struct cop_keep *k, struct cop_msg *m);

/* The answer of init to SPAWN: the pid, or why not. */
void cop_command_spawned(struct cop_command *c, struct cop_call *call, struct cop_msg *reply);
/* A command of a thawed tree, with neither log nor pipes yet.  timeout_left: µs, 0 = none. */
int cop_command_restore(struct cop_keep *k, const char *key, int64_t pid, bool exited, bool forgotten,
                        usec_t timeout_left, struct cop_command **ret, struct cop_error *err);
/* Init's CHILD event. */
void cop_keep_child_ended(struct cop_keep *k, int64_t pid, int status);
/* The sandbox is gone: everything that ran was killed. */
void cop_keep_commands_killed(struct cop_keep *k);
void cop_keep_commands_free(struct cop_keep *k);

/* Hands the events that are due to the client's socket, as long as it takes them; the rest follow. */
void cop_keep_flush_events(struct cop_keep *k);
void cop_keep_schedule_flush(struct cop_keep *k);

/* output.c */
/* Makes the pipe of stream i (0, 1); the write end is the caller's. */
int cop_output_open(struct cop_command *c, unsigned i, uint32_t owner_uid, uint32_t owner_gid, int *ret_write_fd,
                    struct cop_error *err);
int cop_output_watch(struct cop_command *c, struct cop_error *err);
/* Takes out what is in the pipes now, at most their capacity. */
void cop_output_drain(struct cop_command *c);
void cop_output_close(struct cop_command *c);
bool cop_output_eof(const struct cop_command *c);
