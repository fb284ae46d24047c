/* Theory of operation
 *
 * Order matters twice.  Device nodes are cloned as detached mounts before the pivot, because afterwards the host's /dev
 * has no name.  /proc is mounted after the pivot but before the old root goes: the kernel lets an unprivileged user
 * namespace mount proc only while a fully visible one is in the same mount namespace (fs/namespace.c,
 * mount_too_revealing).  Between pivot and unmount every path resolves inside the new root, so a link planted in an image
 * (dev -> /etc) leads nowhere else.
 *
 * What is masked follows the common container practice: files and folders of /proc that tell about or change the machine
 * are covered by an empty read-only file or folder, or bound read-only over themselves.  /sys is an empty read-only tmpfs
 * with the CPU topology in it, which numeric libraries read.  /tmp and /var/tmp belong to the root filesystem: a snapshot
 * keeps them.
 */
#include "mounts.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "sandbox/hosts.h"
#include "sandbox/sysmount.h"

static const char *const device_names[] = {"null", "zero", "full", "random", "urandom", "tty"};

static const char *const masked[] = {
        "/proc/acpi",          "/proc/asound",        "/proc/bus",
        "/proc/driver",        "/proc/dynamic_debug", "/proc/fs",
        "/proc/interrupts",    "/proc/iomem",         "/proc/ioports",
        "/proc/irq",           "/proc/kallsyms",      "/proc/kcore",
        "/proc/key-users",     "/proc/keys",          "/proc/kmsg",
        "/proc/kpagecgroup",   "/proc/kpagecount",    "/proc/kpageflags",
        "/proc/latency_stats", "/proc/modules",       "/proc/mtrr",
        "/proc/pressure",      "/proc/sched_debug",   "/proc/scsi",
        "/proc/slabinfo",      "/proc/sysrq-trigger", "/proc/timer_list",
        "/proc/vmallocinfo",
};

static const char *const read_only[] = {"/proc/sys"};

static const struct {
        const char *target, *name;
} dev_links[] = {
        {"/proc/self/fd", "/dev/fd"},       {"/proc/self/fd/0", "/dev/stdin"}, {"/proc/self/fd/1", "/dev/stdout"},
        {"/proc/self/fd/2", "/dev/stderr"}, {"pts/ptmx", "/dev/ptmx"},
};

static int make_dir(const char *path, mode_t mode, struct cop_error *err)
{
        if (mkdir(path, mode) < 0 && errno != EEXIST)
                return cop_error_errno(err, errno, "creating %s in the sandbox", path);
        return 0;
}

static int make_file(const char *path, mode_t mode, struct cop_error *err)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

        if (fd < 0)
                return cop_error_errno(err, errno, "creating %s in the sandbox", path);
        close(fd);
        return 0;
}

static int mount_fs(const char *type, const char *path, unsigned long flags, const char *options, struct cop_error *err)
{
        int r = make_dir(path, 0755, err);
        struct stat st;

        if (r < 0)
                return r;
        /* With links among /dev, /proc and /sys one mount could cover another, and the masks with it. */
        if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
                return cop_error_set(err, ENOTDIR, COP_ERR_start_failed, "%s in the image is no folder", path);
        if (mount(type, path, type, flags, options) < 0)
                return cop_error_errno(
                        err, errno, "mounting %s on %s in the sandbox%s", type, path,
                        strcmp(type, "proc") == 0 && errno == EPERM
                                ? " (parts of the host's /proc are hidden, as in a container: run Coppice where "
                                  "/proc is whole)"
                                : "");
        return 0;
}

static int clone_devices(int fds[static ELEMENTSOF(device_names)], struct cop_error *err)
{
        char path[32];

        for (size_t i = 0; i < ELEMENTSOF(device_names); i++) {
                snprintf(path, sizeof(path), "/dev/%s", device_names[i]);
                fds[i] = sys_open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
                if (fds[i] < 0)
                        return cop_error_errno(err, errno, "opening the host's %s", path);
        }
        return 0;
}

static int mount_dev(const int fds[static ELEMENTSOF(device_names)], uint64_t shm_max, struct cop_error *err)
{
        char path[32], options[64];
        int r = mount_fs("tmpfs", "/dev", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k", err);

        for (size_t i = 0; i < ELEMENTSOF(device_names) && r == 0; i++) {
                snprintf(path, sizeof(path), "/dev/%s", device_names[i]);
                r = make_file(path, 0666, err);
                if (r == 0 && sys_move_mount(fds[i], "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                        r = cop_error_errno(err, errno, "binding %s", path);
        }
        for (size_t i = 0; i < ELEMENTSOF(dev_links) && r == 0; i++)
                if (symlink(dev_links[i].target, dev_links[i].name) < 0)
                        r = cop_error_errno(err, errno, "linking %s", dev_links[i].name);
        if (r == 0) /* gid 5 is tty on Debian and everywhere else */
                r = mount_fs("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5",
                             err);
        if (shm_max)
                snprintf(options, sizeof(options), "mode=1777,size=%llu", (unsigned long long)shm_max);
        else
                snprintf(options, sizeof(options), "mode=1777");
        if (r == 0)
                r = mount_fs("tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV | MS_NOEXEC, options, err);
        return r;
}

/* Covers path with a clone of the mount at source, read-only. */
static int cover(const char *source, const char *path, struct cop_error *err)
{
        struct mount_attr attr = {.attr_set =
                                          MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};
        _cleanup_close_ int fd = sys_open_tree(AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

        if (fd < 0 || sys_mount_setattr(fd, "", AT_EMPTY_PATH, &attr) < 0 ||
            sys_move_mount(fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return cop_error_errno(err, errno, "masking %s in the sandbox", path);
        return 0;
}

static int mount_proc(struct cop_error *err)
{
        int r = mount_fs("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, err);
        struct stat st;

        for (size_t i = 0; i < ELEMENTSOF(read_only) && r == 0; i++)
                if (lstat(read_only[i], &st) == 0)
                        r = cover(read_only[i], read_only[i], err);
        for (size_t i = 0; i < ELEMENTSOF(masked) && r == 0; i++) {
                if (lstat(masked[i], &st) < 0) /* not in this kernel */
                        continue;
                r = cover(S_ISDIR(st.st_mode) ? "/sys/.empty" : "/sys/.none", masked[i], err);
        }
        return r;
}

int cop_mounts_renew_proc(struct cop_error *err)
{
        return mount_proc(err);
}

static int mount_sys(int cpu_fd, struct cop_error *err)
{
        int r = mount_fs("tmpfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0755,size=64k", err);

        if (r == 0)
                r = make_dir("/sys/.empty", 0555, err); /* what masks are clones of */
        if (r == 0)
                r = make_file("/sys/.none", 0444, err);
        if (r < 0 || cpu_fd < 0)
                return r;
        static const char *const path[] = {"/sys/devices", "/sys/devices/system", "/sys/devices/system/cpu"};
        for (size_t i = 0; i < ELEMENTSOF(path) && r == 0; i++)
                r = make_dir(path[i], 0755, err);
        if (r == 0 && sys_move_mount(cpu_fd, "", AT_FDCWD, path[2], MOVE_MOUNT_F_EMPTY_PATH) < 0)
                r = cop_error_errno(err, errno, "binding %s", path[2]);
        return r;
}

static int mount_run(int ipc_fd, struct cop_error *err)
{
        static const struct {
                const char *path;
                mode_t mode;
        } dirs[] = {{"/run/lock", 01777}, {"/run/user", 0755}};
        int r = mount_fs("tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=0755,size=64m", err);

        for (size_t i = 0; i < ELEMENTSOF(dirs) && r == 0; i++) {
                r = make_dir(dirs[i].path, dirs[i].mode, err);
                if (r == 0 && chmod(dirs[i].path, dirs[i].mode) < 0)
                        r = cop_error_errno(err, errno, "mode of %s", dirs[i].path);
        }
        if (r == 0 && ipc_fd >= 0) {
                r = make_dir("/run/coppice", 0755, err);
                if (r == 0 && sys_move_mount(ipc_fd, "", AT_FDCWD, "/run/coppice", MOVE_MOUNT_F_EMPTY_PATH) < 0)
                        r = cop_error_errno(err, errno, "binding /run/coppice");
        }
        return r;
}

/* Afterwards the old root is stacked on the new one and still reachable as ".". */
static int pivot(struct cop_error *err)
{
        if (syscall(SYS_pivot_root, ".", ".") < 0)
                return cop_error_errno(err, errno,
                                       "pivot_root (is the host's root an initramfs? it must be a real mount)");
        return 0;
}

static int mount_id(const char *path, uint64_t *ret)
{
        struct statx st;

        if (statx(AT_FDCWD, path, AT_NO_AUTOMOUNT, STATX_MNT_ID, &st) < 0 || !(st.stx_mask & STATX_MNT_ID))
                return -ENOSYS;
        *ret = st.stx_mnt_id;
        return 0;
}

/* On the new root lie the old root and, on that, the tmpfs in which the layers were assembled: two mounts to take away.
 * "/.." climbs onto whatever is stacked there, so it tells whether anything was left; a sandbox in which the host's root
 * can be reached must never start. */
static int leave_old_root(struct cop_error *err)
{
        uint64_t root, parent;

        for (int i = 0; i < 2; i++)
                if (umount2(".", MNT_DETACH) < 0)
                        return cop_error_errno(err, errno, "detaching the host's root");
        if (chdir("/") < 0 || mount_id("/", &root) < 0 || mount_id("/..", &parent) < 0)
                return cop_error_errno(err, errno, "checking the sandbox's root");
        if (root != parent)
                return cop_error_set(err, EBUSY, COP_ERR_internal, "something is mounted over the sandbox's root");
        return 0;
}

int cop_mounts_setup(const struct cop_mount_sources *sources, struct cop_error *err)
{
        int devices[ELEMENTSOF(device_names)];

        memset(devices, 0xff, sizeof(devices));
        int r = clone_devices(devices, err);
        if (r == 0)
                r = pivot(err);
        if (r == 0)
                r = mount_dev(devices, sources->shm_max, err);
        if (r == 0)
                r = mount_sys(sources->cpu_fd, err);
        if (r == 0)
                r = mount_proc(err);
        if (r == 0)
                r = mount_run(sources->ipc_fd, err);
        if (r == 0 &&
            mount(NULL, "/sys", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
                r = cop_error_errno(err, errno, "making /sys read-only");
        if (r == 0)
                r = leave_old_root(err);
        if (r == 0)
                r = cop_hosts_write(sources->hostname, err);
        for (size_t i = 0; i < ELEMENTSOF(devices); i++)
                cop_close(devices[i]);
        return r;
}
