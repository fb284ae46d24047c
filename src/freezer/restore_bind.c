/* The addresses of sockets that are made anew: the files of unix sockets, and what is in the way of a port. */
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "freezer/restore_sock.h"

int cop_socket_file(int fd)
{
        int file_fd = ioctl(fd, SIOCUNIXFILE);

        return file_fd < 0 ? -errno : file_fd;
}

void cop_socket_file_address(int file_fd, struct sockaddr_un *ret)
{
        *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
        snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d", file_fd);
}

int cop_socket_connect_unix(int fd, int to, const struct sockaddr *address, socklen_t length)
{
        struct sockaddr_un through;
        _cleanup_close_ int file_fd = cop_socket_file(to);

        if (file_fd >= 0) {
                cop_socket_file_address(file_fd, &through);
                address = (const void *)&through;
                length = sizeof(through);
        }
        return connect(fd, address, length) < 0 ? -errno : 0;
}

/* A socket whose file was renamed or removed: its address belongs to somebody else by now, or to nobody. */
static int bind_elsewhere(struct cop_restore *r, const struct img_file *f, int fd, const char *path)
{
        const struct sockaddr *a = cop_socket_address(r, &f->path);
        const char *place = cop_restore_string(r, &f->place);
        struct sockaddr_un other = {.sun_family = AF_UNIX};
        char aside[4352], random[17];

        snprintf(aside, sizeof(aside), "%s.%s", path, cop_id_hex(random, 8));
        bool moved = rename(path, aside) == 0;
        int ret = bind(fd, a, f->path.length) < 0 ? -errno : 0;
        if (ret == -ENOENT) { /* its folder is gone, too */
                snprintf(other.sun_path, sizeof(other.sun_path), "/tmp/.%s", random);
                ret = bind(fd, (const struct sockaddr *)&other, sizeof(other)) < 0 ? -errno : 0;
                path = other.sun_path;
        }
        if (ret == 0 && (!f->arg[IMG_SOCK_MODE] || rename(path, place) < 0))
                unlink(path);
        if (moved && rename(aside, path) < 0 && ret == 0)
                ret = -errno;
        return ret;
}

static int bind_here(struct cop_restore *r, const struct img_file *f, int fd)
{
        const struct sockaddr_un *a = (const void *)cop_socket_address(r, &f->path);
        bool file = a->sun_path[0] != '\0';
        char path[sizeof(a->sun_path) + 1] = {0};

        memcpy(path, a->sun_path, MIN_OF(f->path.length - offsetof(struct sockaddr_un, sun_path), sizeof(a->sun_path)));
        if (file && path[0] != '/' && f->arg[IMG_SOCK_CWD] < r->image->count[IMG_PROCS] &&
            strcmp(cop_restore_string(r, &RESTORE_PROC(r, f->arg[IMG_SOCK_CWD])->root), "/") == 0)
                (void)!chdir(cop_restore_string(r, &RESTORE_PROC(r, f->arg[IMG_SOCK_CWD])->cwd));
        const char *there = f->place.length ? cop_restore_string(r, &f->place) : path;
        if (file && (!f->arg[IMG_SOCK_MODE] || f->place.length)) {
                int ret = bind_elsewhere(r, f, fd, path);
                if (ret < 0 || !f->arg[IMG_SOCK_MODE])
                        return ret;
        } else {
                if (file)
                        unlink(path); /* the old socket's own file */
                if (bind(fd, (const struct sockaddr *)a, f->path.length) < 0)
                        return -errno;
        }
        return file && (chmod(there, (mode_t)f->arg[IMG_SOCK_MODE] & 07777) < 0 ||
                        lchown(there, (uid_t)f->arg[IMG_SOCK_OWNER], (gid_t)(f->arg[IMG_SOCK_OWNER] >> 32)) < 0)
                       ? -errno
                       : 0;
}

/* A unix address means what its owner sees: behind a chroot a child goes there to bind. */
static int bind_unix(struct cop_restore *r, const struct img_file *f, int fd)
{
        uint64_t owner = f->arg[IMG_SOCK_CWD];
        const struct img_proc *p = owner < r->image->count[IMG_PROCS] ? RESTORE_PROC(r, owner) : NULL;
        const char *root = p ? cop_restore_string(r, &p->root) : "/";
        int status = 0;

        if (!cop_socket_named(f))
                return 0;
        if (strcmp(root, "/") == 0)
                return bind_here(r, f, fd);
        pid_t pid = cop_restore_fork_helper(r);
        if (pid == 0) {
                (void)!chdir(cop_restore_string(r, &p->cwd));
                if (chroot(root) < 0)
                        _exit(errno);
                _exit(-bind_here(r, f, fd));
        }
        if (pid < 0 || waitpid(pid, &status, __WALL) < 0)
                return -errno;
        return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

bool cop_socket_is_here(const struct cop_restore *r, const struct img_file *like, const struct img_ref *address)
{
        struct sockaddr_in6 a = {0};

        memcpy(&a, cop_socket_address(r, address), MIN_OF((size_t)address->length, sizeof(a)));
        a.sin6_port = 0; /* at the same place for IPv4 */
        if (a.sin6_family == AF_INET &&
            ntohl(((const struct sockaddr_in *)(const void *)&a)->sin_addr.s_addr) >> 24 == 127)
                return true;
        _cleanup_close_ int fd = cop_socket_new(like);
        return fd >= 0 && bind(fd, (const struct sockaddr *)&a, MIN_OF(address->length, (uint32_t)sizeof(a))) == 0;
}

/* Of several sockets at one port one may have taken its consent (SO_REUSEPORT) back since: all have it until options are set. */
void cop_socket_share_port(struct cop_restore *r, const struct img_file *f, int fd)
{
        int on = 1;

        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
        for (uint32_t i = 0; i < r->image->count[IMG_FILES]; i++) {
                const struct img_file *g = RESTORE_FILE(r, i);
                if (g->kind == IMG_FILE_INET && r->objects[i] >= 0 && g->arg[IMG_SOCK_TYPE] == f->arg[IMG_SOCK_TYPE] &&
                    cop_socket_named(g) &&
                    cop_socket_port(cop_socket_address(r, &g->path)) ==
                            cop_socket_port(cop_socket_address(r, &f->path)))
                        setsockopt(r->objects[i], SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
        }
}

/* An address that is not here: the socket has been bound to it by IP_FREEBIND, or it has gone since. */
static int bind_to_absent(const struct sockaddr *address, socklen_t length, int fd)
{
        int on = 1, off = 0, was = 0;
        socklen_t size = sizeof(was);

        (void)getsockopt(fd, IPPROTO_IP, IP_FREEBIND, &was, &size);
        (void)setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on));
        int ret = bind(fd, address, length) < 0 ? -errno : 0;
        if (!was)
                (void)setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &off, sizeof(off));
        return ret;
}

static int bind_inet(struct cop_restore *r, const struct img_file *f, int fd)
{
        const struct sockaddr *a = cop_socket_address(r, &f->path);
        int on = 1;

        if (!cop_socket_named(f) || cop_socket_port(a) == 0)
                return 0;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        cop_socket_set_before_bind(r, f, fd);
        int ret = bind(fd, a, f->path.length) < 0 ? -errno : 0;
        if (ret == -EADDRNOTAVAIL && cop_socket_single(f))
                ret = bind_to_absent(a, f->path.length, fd);
        if (ret == -EADDRINUSE) {
                cop_socket_share_port(r, f, fd);
                ret = bind(fd, a, f->path.length) < 0 ? -errno : 0;
        }
        return ret;
}

int cop_socket_bind(struct cop_restore *r, const struct img_file *f, int fd)
{
        return f->kind == IMG_FILE_UNIX ? bind_unix(r, f, fd) : bind_inet(r, f, fd);
}
