/* The state of coppice-keeper.  Theory of operation: main.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"
#include "base/msg.h"
#include "keeper/link.h"
#include "sandbox/sandbox.h"

#define COP_KEEP_RUNNING_MAX 256   /* commands whose main process lives */
#define COP_KEEP_COMMANDS_MAX 1024 /* with the ended ones that were not forgotten, or whose pipes somebody holds */
#define COP_KEEP_CALLS_MAX 512     /* requests under way at init */

enum cop_keep_state {
        COP_KEEP_NEW,
        COP_KEEP_STARTING, /* init executes, READY has not come */
        COP_KEEP_RUNNING,
        COP_KEEP_STOPPING,
        COP_KEEP_ENDED, /* without STOP; waits for the client to hear of it */
};

struct cop_keep_node;
struct cop_tracker;
struct cop_waits;
struct cop_watch;

struct cop_call {
        struct cop_call *next;
        uint32_t id;                  /* towards init */
        uint32_t client_id;           /* of the client's request; 0 = nobody waits */
        uint64_t client_number;       /* which client: a later one must not get the answer */
        struct cop_command *spawning; /* borrowed; SPAWN only */
};

struct cop_keep {
        struct cop_loop *loop; /* owned */
        int listen_fd;         /* owned */
        struct cop_source *listen_source;
        struct cop_source *idle_timer;  /* ends a keeper nobody wants */
        struct cop_source *start_timer; /* READY must come */
        struct cop_source *stop_timer;  /* polls while stopping */
        struct cop_source *flush_timer, *flush_defer;
        struct cop_source *init_source; /* end of init's process */

        struct cop_link *client; /* owned; NULL = none */
        uint64_t client_number;
        struct cop_link *init; /* owned; NULL before START and after the end */

        enum cop_keep_state state;
        bool end_told; /* a client knows that the sandbox ended */
        bool ahead;    /* it is thawed and stands still: nobody uses it yet (COP_THAW_AHEAD) */
        char id[64];   /* the sandbox's, = cgroup name */
        char reason[64];
        struct cop_sandbox *sandbox;  /* owned */
        struct cop_sandbox *prepared; /* owned: for the START to come; state is NEW */
        pid_t init_pid;
        uint32_t uid_base, default_uid, default_gid;
        int logs_fd;                   /* owned; folder of the logs */
        char *upper_path;              /* owned; the folder that holds upper/ and work/ */
        struct cop_keep_node *node;    /* owned: a FREEZE under way (node.c) */
        struct cop_tracker *tracker;   /* owned: which pages were written since the last node */
        struct cop_source *rest_timer; /* after a node (rest.c) */
        int rest_fd;                   /* owned: its folder of memory, until the proof is made */
        struct cop_freeze_room *room;  /* owned: for the next node */
        uint64_t room_wanted;          /* bytes */
        int sync_fd;                   /* owned: to the process that syncs (sync.c), or negative */
        struct cop_watch *watch;       /* owned: of a thawed tree */
        struct cop_source *watch_source;
        struct cop_waits *waits; /* owned: time limits of calls that a freeze or the thaw interrupted */
        struct cop_source *waits_source;
        char *ipc_path; /* owned; emptied at the end */
        usec_t start_began, stop_deadline;
        uint32_t start_id, stop_id; /* client's requests that wait for an answer; 0 = none */
        uint64_t start_client, stop_client;
        bool kill_sent;
        struct cop_cgroup_stats last_stats; /* at the end, when the cgroup is gone */

        struct cop_command *commands; /* owned list */
        size_t command_count, running_count;
        struct cop_call *calls; /* owned list */
        size_t call_count;
        uint32_t next_call_id;
};

/* client.c: the daemon's side */
int cop_keep_listen(struct cop_keep *k, struct cop_error *err);
/* Answers request id of client number `client`; dropped when another client is there by now.  m is emptied. */
void cop_keep_reply(struct cop_keep *k, uint64_t client, uint32_t id, struct cop_msg *m);
void cop_keep_reply_error(struct cop_keep *k, uint64_t client, uint32_t id, const struct cop_error *err);
/* True when a client is there that can take an event now. */
bool cop_keep_client_ready(const struct cop_keep *k);

/* life.c */
void cop_keep_prepare(struct cop_keep *k, struct cop_msg *m);
void cop_keep_start(struct cop_keep *k, struct cop_msg *m);
void cop_keep_name(struct cop_keep *k, struct cop_msg *m);
void cop_keep_stop(struct cop_keep *k, uint64_t client, uint32_t id, usec_t grace);
void cop_keep_ready(struct cop_keep *k); /* init said READY */
void cop_keep_arm_idle(struct cop_keep *k);
int cop_keep_life_init(struct cop_keep *k, struct cop_error *err);
void cop_keep_stats(struct cop_keep *k, struct cop_cgroup_stats *ret);

/* calls.c: requests to init */
extern const struct cop_link_calls cop_keep_init_calls;
/* Sends m (emptied) to init with an id of its own.  client_id 0: nobody waits. */
int cop_keep_call(struct cop_keep *k, struct cop_msg *m, uint32_t client_id, struct cop_command *spawning,
                  struct cop_error *err);
/* Every open call fails: init is gone. */
void cop_keep_calls_fail(struct cop_keep *k, const struct cop_error *err);
