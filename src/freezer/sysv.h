/* What images say about System V objects (img_file of kind sysv). */
#pragma once

enum img_sysv_type { IMG_SYSV_SHM, IMG_SYSV_SEM, IMG_SYSV_MSG };

enum img_sysv_arg {
        IMG_SYSV_ID,
        IMG_SYSV_KEY,
        IMG_SYSV_MODE, /* with SHM_DEST for a segment that goes with its last attachment */
        IMG_SYSV_UID,
        IMG_SYSV_GID,
        IMG_SYSV_SIZE, /* bytes, number of semaphores, bytes queued */
        IMG_SYSV_TYPE,
};
