/* System V objects of the tree's ipc namespace: all of them, attached or not.  The engine enters the namespace for a moment
 * and asks as anyone would; message queues are read with MSG_COPY.  Adjustments of SEM_UNDO are not kept. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/dump.h"
#include "freezer/sysv.h"

#define MESSAGE_MAX (1UL << 20)

#ifndef MSG_COPY
#define MSG_COPY 040000
#endif

static int dump_segment(struct cop_dump *d, int id, struct img_file *f, struct cop_error *err)
{
        const char *at = shmat(id, NULL, SHM_RDONLY);
        size_t pages = (f->arg[IMG_SYSV_SIZE] + IMG_PAGE - 1) / IMG_PAGE;

        if (at == (const char *)-1)
                return cop_error_errno(err, errno, "attaching the SysV segment %d", id);
        f->first_extent = cop_image_count(d->writer, IMG_EXTENTS);
        int r = cop_dump_filled_pages(d, f, 0, at, pages, err);
        shmdt(at);
        return r;
}

static int dump_semaphores(struct cop_dump *d, int id, struct img_file *f, struct cop_error *err)
{
        size_t n = f->arg[IMG_SYSV_SIZE];
        _cleanup_free_ unsigned short *values = calloc(n + 1, sizeof(*values));

        if (!values)
                return cop_error_errno(err, ENOMEM, "reading semaphores");
        if (semctl(id, 0, GETALL, values) < 0)
                return cop_error_errno(err, errno, "reading the SysV semaphores %d", id);
        f->data = cop_image_put(d->writer, values, n * sizeof(*values));
        return 0;
}

static int dump_messages(struct cop_dump *d, int id, struct img_file *f, struct cop_error *err)
{
        _cleanup_free_ long *buf = malloc(sizeof(long) + MESSAGE_MAX);

        struct msqid_ds ds;

        if (!buf)
                return cop_error_errno(err, ENOMEM, "reading messages");
        if (msgctl(id, IPC_STAT, &ds) < 0)
                return cop_error_errno(err, errno, "reading the SysV queue %d", id);
        f->arg[IMG_SYSV_ROOM] = ds.msg_qbytes;
        f->first_packet = cop_image_count(d->writer, IMG_PACKETS);
        for (long i = 0;; i++) {
                ssize_t n = msgrcv(id, buf, MESSAGE_MAX, i, IPC_NOWAIT | MSG_COPY);
                if (n < 0 && errno == ENOMSG)
                        return 0;
                if (n < 0)
                        return cop_error_errno(err, errno, "reading the SysV messages of queue %d", id);
                struct img_packet p = {.data = cop_image_put(d->writer, buf, sizeof(long) + (size_t)n)};
                cop_image_add(d->writer, IMG_PACKETS, &p);
                f->packets++;
        }
}

static int dump_object(struct cop_dump *d, unsigned type, int id, struct img_file *f, struct cop_error *err)
{
        switch (type) {
        case IMG_SYSV_SHM:
                return dump_segment(d, id, f, err);
        case IMG_SYSV_SEM:
                return dump_semaphores(d, id, f, err);
        default:
                return dump_messages(d, id, f, err);
        }
}

/* Lines of /proc/sysvipc: key, id, mode, then differing columns. */
static bool parse_line(struct cop_dump *d, unsigned type, const char *line, struct img_file *f)
{
        int key, id;
        unsigned mode, uid = 0, gid = 0;
        unsigned long size = 0;
        int n = type == IMG_SYSV_SHM
                        ? sscanf(line, "%d %d %o %lu %*d %*d %*d %u %u", &key, &id, &mode, &size, &uid, &gid)
                : type == IMG_SYSV_SEM
                        ? sscanf(line, "%d %d %o %lu %u %u", &key, &id, &mode, &size, &uid, &gid)
                        : sscanf(line, "%d %d %o %lu %*d %*d %*d %u %u", &key, &id, &mode, &size, &uid, &gid);

        if (n != 6)
                return false;
        f->arg[IMG_SYSV_TYPE] = type;
        f->arg[IMG_SYSV_ID] = (uint64_t)id;
        f->arg[IMG_SYSV_KEY] = (uint32_t)key;
        f->arg[IMG_SYSV_MODE] = mode;
        f->arg[IMG_SYSV_UID] = cop_dump_uid(d, uid);
        f->arg[IMG_SYSV_GID] = cop_dump_gid(d, gid);
        f->arg[IMG_SYSV_SIZE] = size;
        return true;
}

static int dump_kind(struct cop_dump *d, unsigned type, const char *path, struct cop_error *err)
{
        _cleanup_free_ char *text = NULL;
        int r = cop_read_file(AT_FDCWD, path, 16UL << 20, &text, NULL, NULL);

        if (r < 0)
                return 0; /* a kernel without SysV IPC */
        for (char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
                struct img_file f = {.kind = IMG_FILE_SYSV};
                if (!parse_line(d, type, line + 1, &f))
                        continue;
                r = dump_object(d, type, (int)f.arg[IMG_SYSV_ID], &f, err);
                if (r < 0)
                        return r;
                cop_image_add(d->writer, IMG_FILES, &f);
        }
        return 0;
}

struct img_ipc_limits cop_ipc_limits(void)
{
        struct shminfo shm = {0};
        struct seminfo sem = {0};
        struct msginfo msg = {0};

        (void)!shmctl(0, IPC_INFO, (struct shmid_ds *)(void *)&shm);
        (void)!semctl(0, 0, IPC_INFO, &sem);
        (void)!msgctl(0, IPC_INFO, (struct msqid_ds *)(void *)&msg);
        return (struct img_ipc_limits){
                .shmmax = shm.shmmax,
                .shmall = shm.shmall,
                .shmmni = shm.shmmni,
                .msgmax = (uint64_t)msg.msgmax,
                .msgmnb = (uint64_t)msg.msgmnb,
                .msgmni = (uint64_t)msg.msgmni,
                .sem = {(uint32_t)sem.semmsl, (uint32_t)sem.semmns, (uint32_t)sem.semopm, (uint32_t)sem.semmni},
        };
}

static void dump_limits(struct cop_dump *d)
{
        struct img_ipc_limits limits = cop_ipc_limits();
        struct img_file f = {.kind = IMG_FILE_SYSV, .arg[IMG_SYSV_TYPE] = IMG_SYSV_LIMITS};

        f.data = cop_image_put(d->writer, &limits, sizeof(limits));
        cop_image_add(d->writer, IMG_FILES, &f);
}

int cop_dump_sysv(struct cop_dump *d, struct cop_error *err)
{
        struct cop_visit visit;
        int r = cop_dump_enter(d, "ipc", CLONE_NEWIPC, &visit, err);

        if (r < 0)
                return r;
        dump_limits(d);
        r = dump_kind(d, IMG_SYSV_SHM, "/proc/sysvipc/shm", err);
        if (r == 0)
                r = dump_kind(d, IMG_SYSV_SEM, "/proc/sysvipc/sem", err);
        if (r == 0)
                r = dump_kind(d, IMG_SYSV_MSG, "/proc/sysvipc/msg", err);
        int left = cop_dump_leave(&visit, r < 0 ? NULL : err);
        return r < 0 ? r : left;
}

int cop_dump_sysv_area(struct cop_dump *d, uint32_t proc, const struct cop_vma *v, struct cop_error *err)
{
        /* The inode number of such a mapping is the segment's id. */
        for (uint32_t i = 0; i < cop_image_count(d->writer, IMG_FILES); i++) {
                const struct img_file *f = cop_image_record(d->writer, IMG_FILES, i);
                if (f->kind == IMG_FILE_SYSV && f->arg[IMG_SYSV_TYPE] == IMG_SYSV_SHM && f->arg[IMG_SYSV_ID] == v->ino)
                        return (int)i;
        }
        return cop_not_freezable(d, proc, err, "has SysV shared memory of another ipc namespace attached at %#llx",
                                 (unsigned long long)v->start);
}
