#include "layers.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/rights.h"
#include "sandbox/sysmount.h"

int cop_mount_clone(const char *path, uint64_t flags, struct cop_error *err)
{
        _cleanup_close_ int fd = sys_open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        struct mount_attr attr = {
                .attr_set = MOUNT_ATTR_NOATIME | flags, .attr_clr = MOUNT_ATTR__ATIME, .propagation = MS_PRIVATE};

        if (fd < 0)
                return cop_error_errno(err, errno, "opening %s", path);
        if (sys_mount_setattr(fd, "", AT_EMPTY_PATH, &attr) < 0)
                return cop_error_errno(err, errno, "cloning the mount of %s", path);
        return TAKE_FD(fd);
}

int cop_mount_idmap(int mnt_fd, int userns_fd, const char *what, struct cop_error *err)
{
        struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)userns_fd};

        if (sys_mount_setattr(mnt_fd, "", AT_EMPTY_PATH, &attr) == 0)
                return 0;
        if (errno == EINVAL)
                return cop_error_set(
                        err, EINVAL, COP_ERR_unsupported,
                        "%s is on a filesystem without id-mapped mounts; put COPPICE_HOME on ext4, xfs, btrfs "
                        "or tmpfs and use Linux 5.19 or newer (see coppice doctor)",
                        what);
        if (errno == EPERM)
                return cop_error_set(err, EPERM, COP_ERR_unsupported,
                                     "not allowed to map the ids of %s; coppice-keeper needs CAP_SYS_ADMIN on the host",
                                     what);
        return cop_error_errno(err, errno, "mapping the ids of %s", what);
}

int cop_check_private(const char *path, bool itself, struct cop_error *err)
{
        _cleanup_close_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct stat st, above;

        if (fd < 0 || fstat(fd, &st) < 0)
                return cop_error_errno(err, errno, "opening %s", path);
        if (itself && !(st.st_mode & S_IXOTH))
                return 0;
        for (;;) {
                int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (up < 0 || fstat(up, &above) < 0) {
                        cop_close(up);
                        return cop_error_errno(err, errno, "checking who can reach %s", path);
                }
                cop_close(fd);
                fd = up;
                if (!(above.st_mode & S_IXOTH))
                        return 0;
                if (above.st_dev == st.st_dev && above.st_ino == st.st_ino)
                        return cop_error_set(
                                err, EACCES, COP_ERR_start_failed,
                                "every user of this host can reach %s, where a sandbox may leave setuid programs; "
                                "chmod 700 the folder of COPPICE_HOME",
                                path);
                st = above;
        }
}

static int prepare_upper(const char *path, struct cop_error *err)
{
        static const char *const names[] = {"upper", "work"};
        _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0)
                return cop_error_errno(err, errno, "opening the writable layer %s", path);
        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                if (mkdirat(fd, names[i], 0700) < 0 && errno == EEXIST)
                        continue;
                if (fchmodat(fd, names[i], 0755, 0) < 0) /* whatever our umask; upper's mode is that of / inside */
                        return cop_error_errno(err, errno, "creating %s/%s", path, names[i]);
        }
        return 0;
}

int cop_layers_open(const char *const *lower, size_t lower_count, const char *upper, struct cop_layers *ret,
                    struct cop_error *err)
{
        struct cop_layers layers = COP_LAYERS_NULL;
        int r = prepare_upper(upper, err);

        if (r < 0)
                return r;
        if (lower_count == 0 || lower_count > COP_LAYERS_MAX)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "%zu layers; between 1 and %d are possible",
                                     lower_count, COP_LAYERS_MAX);
        layers.lower_fds = calloc(lower_count, sizeof(int));
        if (!layers.lower_fds)
                return cop_error_errno(err, ENOMEM, "layers");
        for (size_t i = 0; i < lower_count && r >= 0; i++) {
                r = cop_mount_clone(lower[i], MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, err);
                if (r >= 0)
                        layers.lower_fds[layers.lower_count++] = r;
        }
        if (r >= 0)
                r = layers.upper_fd = cop_mount_clone(upper, MOUNT_ATTR_NODEV, err);
        if (r < 0) {
                cop_layers_done(&layers);
                return r;
        }
        *ret = layers;
        return 0;
}

int cop_layers_idmap(const struct cop_layers *layers, int userns_fd, struct cop_error *err)
{
        int r = cop_mount_idmap(layers->upper_fd, userns_fd, "the sandbox's writable layer", err);

        for (size_t i = 0; i < layers->lower_count && r == 0; i++)
                r = cop_mount_idmap(layers->lower_fds[i], userns_fd, "a read-only layer", err);
        return r;
}

void cop_layers_done(struct cop_layers *layers)
{
        for (size_t i = 0; i < layers->lower_count; i++)
                cop_close(layers->lower_fds[i]);
        free(layers->lower_fds);
        cop_close(layers->upper_fd);
        *layers = COP_LAYERS_NULL;
}

/* -- handing them over ------------------------------------------------------------------------------------------------------- */

/* One byte and descriptors: lower layers, topmost first, in as many messages as it takes (SCM_RIGHTS carries 253), then the upper one. */
#define SEND_LOWER 'l'
#define SEND_UPPER 'u'
#define SEND_MOST 200u

static int send_fds(int socket_fd, char byte, const int *fds, size_t n, struct cop_error *err)
{
        _Alignas(struct cmsghdr) char control[COP_RIGHTS_SPACE(SEND_MOST)] = {0};
        struct iovec iov = {.iov_base = &byte, .iov_len = 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control};

        cop_rights_put(&m, fds, n);
        return sendmsg(socket_fd, &m, MSG_NOSIGNAL) == 1
                       ? 0
                       : cop_error_errno(err, errno, "handing the layers to the first process of the sandbox");
}

int cop_layers_send(const struct cop_layers *layers, int socket_fd, struct cop_error *err)
{
        int r = 0;

        for (size_t i = 0; i < layers->lower_count && r == 0; i += SEND_MOST)
                r = send_fds(socket_fd, SEND_LOWER, layers->lower_fds + i, MIN_OF(layers->lower_count - i, SEND_MOST),
                             err);
        return r < 0 ? r : send_fds(socket_fd, SEND_UPPER, &layers->upper_fd, 1, err);
}

/* The number of descriptors, all owned by the caller. */
static int receive_fds(int socket_fd, char *ret_byte, int fds[static SEND_MOST], struct cop_error *err)
{
        _Alignas(struct cmsghdr) char control[COP_RIGHTS_SPACE(SEND_MOST)];
        struct iovec iov = {.iov_base = ret_byte, .iov_len = 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        ssize_t got;

        do
                got = recvmsg(socket_fd, &m, MSG_CMSG_CLOEXEC);
        while (got < 0 && errno == EINTR);
        if (got <= 0)
                return cop_error_errno(err, got < 0 ? errno : EPIPE, "waiting for the layers");
        const struct cmsghdr *c = cop_rights_find(&m);
        if (!c || m.msg_flags & MSG_CTRUNC) /* it ends, and with it what has come */
                return cop_error_errno(err, EMFILE, "taking over the layers");
        size_t n = cop_rights_count(c);
        memcpy(fds, CMSG_DATA(c), n * sizeof(int));
        return (int)n;
}

int cop_layers_receive(int socket_fd, struct cop_layers *ret, struct cop_error *err)
{
        struct cop_layers layers = COP_LAYERS_NULL;
        int fds[SEND_MOST], n;
        char byte = 0;

        while ((n = receive_fds(socket_fd, &byte, fds, err)) > 0 && byte == SEND_LOWER) {
                int *more = realloc(layers.lower_fds, (layers.lower_count + (size_t)n) * sizeof(int));
                if (!more) {
                        for (int i = 0; i < n; i++)
                                cop_close(fds[i]);
                        n = cop_error_errno(err, ENOMEM, "layers");
                        break;
                }
                layers.lower_fds = more;
                memcpy(more + layers.lower_count, fds, (size_t)n * sizeof(int));
                layers.lower_count += (size_t)n;
        }
        if (n < 0) {
                cop_layers_done(&layers);
                return n;
        }
        layers.upper_fd = fds[0];
        *ret = layers;
        return 0;
}

/* -- mounting ---------------------------------------------------------------------------------------------------------------- */

/* A tmpfs on top of "/" that is reached through its descriptor alone; it becomes the current directory. */
static int mount_stage(struct cop_error *err)
{
        _cleanup_close_ int fs = sys_fsopen("tmpfs", FSOPEN_CLOEXEC);

        if (fs < 0 || sys_fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700", 0) < 0 ||
            sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return cop_error_errno(err, errno, "making a tmpfs in the sandbox");
        _cleanup_close_ int mnt = sys_fsmount(fs, FSMOUNT_CLOEXEC, 0);
        if (mnt < 0 || sys_move_mount(mnt, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0 || fchdir(mnt) < 0)
                return cop_error_errno(err, errno, "mounting a tmpfs in the sandbox");
        return 0;
}

static int place(int mnt_fd, const char *name, struct cop_error *err)
{
        if (mkdir(name, 0700) < 0 || sys_move_mount(mnt_fd, "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return cop_error_errno(err, errno, "placing layer %s", name);
        return 0;
}

int cop_layers_mount(const struct cop_layers *layers, struct cop_error *err)
{
        _cleanup_buf_ struct cop_buf options = COP_BUF(4095); /* mount(2) takes one page */
        char name[24];
        int r = mount_stage(err);

        /* Relative names: short, and /proc/self/mounts inside shows nothing of the host. */
        cop_buf_adds(&options, "lowerdir=");
        for (size_t i = 0; i < layers->lower_count && r == 0; i++) {
                snprintf(name, sizeof(name), "%zu", i);
                r = place(layers->lower_fds[i], name, err);
                cop_buf_addf(&options, "%s%s", i ? ":" : "", name);
        }
        if (r == 0)
                r = place(layers->upper_fd, "rw", err);
        if (r < 0)
                return r;
        /* index=off, whatever the kernel's default: with it a sandbox could not start again while the end of the one before is
         * still being written to disk (release_root in sandbox.c). */
        if (cop_buf_adds(&options, ",upperdir=rw/upper,workdir=rw/work,userxattr,index=off") < 0)
                return cop_error_errno(err, E2BIG, "overlay options of %zu layers", layers->lower_count);
        if (mkdir("root", 0755) < 0 || mount("overlay", "root", "overlay", 0, options.data) < 0 || chdir("root") < 0)
                return cop_error_errno(err, errno,
                                       "mounting the overlay of %zu layers (needs Linux 5.19; see coppice doctor)",
                                       layers->lower_count);
        return 0;
}
