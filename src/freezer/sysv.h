/* What images say about System V objects (img_file of kind sysv), and about what an ipc namespace allows of them. */
#pragma once

#include <stdint.h>

enum img_sysv_type { IMG_SYSV_SHM, IMG_SYSV_SEM, IMG_SYSV_MSG, IMG_SYSV_LIMITS /* data: struct img_ipc_limits */ };

enum img_sysv_arg {
        IMG_SYSV_ID,
        IMG_SYSV_KEY,
        IMG_SYSV_MODE, /* with SHM_DEST for a segment that goes with its last attachment */
        IMG_SYSV_UID,
        IMG_SYSV_GID,
        IMG_SYSV_SIZE, /* bytes, number of semaphores, bytes queued */
        IMG_SYSV_TYPE,
        IMG_SYSV_ROOM, /* of a message queue, in bytes */
};

struct img_ipc_limits {
        uint64_t shmmax, shmall, shmmni, msgmax, msgmnb, msgmni;
        uint32_t sem[4]; /* semmsl, semmns, semopm, semmni */
};

/* dump_sysv.c: of the ipc namespace of the caller. */
struct img_ipc_limits cop_ipc_limits(void);
