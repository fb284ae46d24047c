/* System V objects, made anew in the helper: in the tree's ipc namespace, but with the engine's /proc still in sight, where
 * the next id can be chosen (CONFIG_CHECKPOINT_RESTORE). */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "freezer/restore.h"
#include "freezer/sysv.h"

#define SHM_DEST_ 01000

static int choose_id(const char *kind, uint64_t id, struct cop_error *err)
{
        char path[64], text[16];

        snprintf(path, sizeof(path), "/proc/sys/kernel/%s_next_id", kind);
        snprintf(text, sizeof(text), "%llu", (unsigned long long)id);
        return cop_write_kernel_file(AT_FDCWD, path, text, err);
}

static int set_limit(const char *name, uint64_t now, uint64_t wanted, struct cop_error *err)
{
        char path[64], text[24];

        if (now == wanted)
                return 0;
        snprintf(path, sizeof(path), "/proc/sys/kernel/%s", name);
        snprintf(text, sizeof(text), "%llu", (unsigned long long)wanted);
        return cop_write_kernel_file(AT_FDCWD, path, text, err);
}

/* Before the objects, which may need them. */
static int set_limits(const struct img_ipc_limits *to, struct cop_error *err)
{
        struct img_ipc_limits is = cop_ipc_limits();
        char sem[64];
        int r = set_limit("shmmax", is.shmmax, to->shmmax, err);

        r = r < 0 ? r : set_limit("shmall", is.shmall, to->shmall, err);
        r = r < 0 ? r : set_limit("shmmni", is.shmmni, to->shmmni, err);
        r = r < 0 ? r : set_limit("msgmax", is.msgmax, to->msgmax, err);
        r = r < 0 ? r : set_limit("msgmnb", is.msgmnb, to->msgmnb, err);
        r = r < 0 ? r : set_limit("msgmni", is.msgmni, to->msgmni, err);
        if (r < 0 || memcmp(is.sem, to->sem, sizeof(is.sem)) == 0)
                return r;
        snprintf(sem, sizeof(sem), "%u %u %u %u", to->sem[0], to->sem[1], to->sem[2], to->sem[3]);
        return cop_write_kernel_file(AT_FDCWD, "/proc/sys/kernel/sem", sem, err);
}

static int restore_limits(const struct cop_restore *r, struct cop_error *err)
{
        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                const struct img_file *f = RESTORE_FILE(r, i);
                struct img_ipc_limits limits;
                if (f->kind != IMG_FILE_SYSV || f->arg[IMG_SYSV_TYPE] != IMG_SYSV_LIMITS ||
                    f->data.length != sizeof(limits))
                        continue;
                memcpy(&limits, cop_image_at(r->image, &f->data), sizeof(limits));
                return set_limits(&limits, err);
        }
        return 0;
}

static int fill_segment(struct cop_restore *r, const struct img_file *f, int id)
{
        char *at = shmat(id, NULL, 0);

        if (at == (char *)-1)
                return -errno;
        for (uint32_t i = 0; i < f->extents; i++) {
                const struct img_extent *e = IMG_RECORD(r->image, IMG_EXTENTS, img_extent, f->first_extent + i);
                size_t n = (size_t)e->pages * IMG_PAGE;
                if (e->address + n > ((f->arg[IMG_SYSV_SIZE] + IMG_PAGE - 1) & ~(uint64_t)(IMG_PAGE - 1)) ||
                    pread(r->image->source_fds[e->source], at + e->address, n, (off_t)e->offset) != (ssize_t)n)
                        return -EIO;
        }
        return shmdt(at) < 0 ? -errno : 0;
}

static int make_segment(struct cop_restore *r, const struct img_file *f)
{
        struct shmid_ds ds = {0};
        int id = shmget((key_t)f->arg[IMG_SYSV_KEY], f->arg[IMG_SYSV_SIZE], IPC_CREAT | IPC_EXCL | 0600);

        if (id < 0 || (uint64_t)id != f->arg[IMG_SYSV_ID])
                return id < 0 ? -errno : -EEXIST;
        int ret = fill_segment(r, f, id);
        if (ret < 0)
                return ret;
        ds.shm_perm.uid = (uid_t)f->arg[IMG_SYSV_UID];
        ds.shm_perm.gid = (gid_t)f->arg[IMG_SYSV_GID];
        ds.shm_perm.mode = (unsigned short)(f->arg[IMG_SYSV_MODE] & 0777);
        return shmctl(id, IPC_SET, &ds) < 0 ? -errno : 0;
}

static int make_semaphores(struct cop_restore *r, const struct img_file *f)
{
        struct semid_ds ds = {0};
        int id = semget((key_t)f->arg[IMG_SYSV_KEY], (int)f->arg[IMG_SYSV_SIZE], IPC_CREAT | IPC_EXCL | 0600);

        if (id < 0 || (uint64_t)id != f->arg[IMG_SYSV_ID] || f->data.length < f->arg[IMG_SYSV_SIZE] * 2)
                return id < 0 ? -errno : -EEXIST;
        if (semctl(id, 0, SETALL, cop_image_at(r->image, &f->data)) < 0)
                return -errno;
        ds.sem_perm.uid = (uid_t)f->arg[IMG_SYSV_UID];
        ds.sem_perm.gid = (gid_t)f->arg[IMG_SYSV_GID];
        ds.sem_perm.mode = (unsigned short)(f->arg[IMG_SYSV_MODE] & 0777);
        return semctl(id, 0, IPC_SET, &ds) < 0 ? -errno : 0;
}

/* Whose it is, and its room: more than msgmnb is for who has rights, so that is raised for a moment. */
static int set_queue(int id, const struct img_file *f)
{
        struct msqid_ds ds = {0};
        uint64_t usual = cop_ipc_limits().msgmnb, room = f->arg[IMG_SYSV_ROOM];

        ds.msg_qbytes = room;
        ds.msg_perm.uid = (uid_t)f->arg[IMG_SYSV_UID];
        ds.msg_perm.gid = (gid_t)f->arg[IMG_SYSV_GID];
        ds.msg_perm.mode = (unsigned short)(f->arg[IMG_SYSV_MODE] & 0777);
        int r = room > usual ? set_limit("msgmnb", usual, room, NULL) : 0;
        if (r == 0 && msgctl(id, IPC_SET, &ds) < 0)
                r = -errno;
        if (room > usual)
                (void)set_limit("msgmnb", room, usual, NULL);
        return r;
}

static int make_queue(struct cop_restore *r, const struct img_file *f)
{
        int id = msgget((key_t)f->arg[IMG_SYSV_KEY], IPC_CREAT | IPC_EXCL | 0600);

        if (id < 0 || (uint64_t)id != f->arg[IMG_SYSV_ID])
                return id < 0 ? -errno : -EEXIST;
        int ret = set_queue(id, f);
        for (uint32_t i = 0; i < f->packets && ret == 0; i++) {
                const struct img_packet *p = IMG_RECORD(r->image, IMG_PACKETS, img_packet, f->first_packet + i);
                if (p->data.length < sizeof(long) ||
                    msgsnd(id, cop_image_at(r->image, &p->data), p->data.length - sizeof(long), IPC_NOWAIT) < 0)
                        ret = -errno;
        }
        return ret;
}

int cop_restore_sysv(struct cop_restore *r, struct cop_error *err)
{
        static const char *const names[] = {"shm", "sem", "msg"};
        bool fresh = r->request->namespaces.ipc_fd < 0; /* else its limits are the caller's */
        int limits = fresh ? restore_limits(r, err) : 0;

        if (limits < 0)
                return limits;
        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                const struct img_file *f = RESTORE_FILE(r, i);
                if (f->kind != IMG_FILE_SYSV || f->arg[IMG_SYSV_TYPE] > IMG_SYSV_MSG)
                        continue;
                int ret = choose_id(names[f->arg[IMG_SYSV_TYPE]], f->arg[IMG_SYSV_ID], err);
                if (ret < 0)
                        return ret;
                ret = f->arg[IMG_SYSV_TYPE] == IMG_SYSV_SHM   ? make_segment(r, f)
                      : f->arg[IMG_SYSV_TYPE] == IMG_SYSV_SEM ? make_semaphores(r, f)
                                                              : make_queue(r, f);
                if (ret < 0)
                        return cop_error_errno(err, -ret, "rebuilding the SysV %s object %llu",
                                               names[f->arg[IMG_SYSV_TYPE]], (unsigned long long)f->arg[IMG_SYSV_ID]);
        }
        return 0;
}

bool cop_restore_sysv_doomed(const struct cop_image *im)
{
        for (uint32_t i = 0; i < im->count[IMG_FILES]; i++) {
                const struct img_file *f = IMG_RECORD(im, IMG_FILES, img_file, i);
                if (f->kind == IMG_FILE_SYSV && f->arg[IMG_SYSV_TYPE] == IMG_SYSV_SHM &&
                    f->arg[IMG_SYSV_MODE] & SHM_DEST_)
                        return true;
        }
        return false;
}

void cop_restore_sysv_remove(const struct cop_image *im)
{
        for (uint32_t i = 0; i < im->count[IMG_FILES]; i++) {
                const struct img_file *f = IMG_RECORD(im, IMG_FILES, img_file, i);
                if (f->kind == IMG_FILE_SYSV && f->arg[IMG_SYSV_TYPE] == IMG_SYSV_SHM &&
                    f->arg[IMG_SYSV_MODE] & SHM_DEST_)
                        shmctl((int)f->arg[IMG_SYSV_ID], IPC_RMID, NULL);
        }
}
