#include "daemon/places.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"

/* Folder of this program, without its name. */
static int program_folder(char *buf, size_t n, struct cop_error *err)
{
        ssize_t len = readlink("/proc/self/exe", buf, n - 1);

        if (len < 0)
                return cop_error_errno(err, errno, "reading /proc/self/exe; is /proc mounted?");
        buf[len] = '\0';
        *strrchr(buf, '/') = '\0';
        return 0;
}

/* The variable, else the first candidate below folder that exists, else the last one. */
static int choose(const char *variable, const char *folder, const char *const *candidates, char *buf,
                  struct cop_error *err)
{
        const char *value = getenv(variable);
        int r = 0;

        if (value && *value) {
                r = cop_path_format(buf, PATH_MAX, "%s", value);
                return r < 0 ? cop_error_errno(err, r, "$%s", variable) : 0;
        }
        for (; *candidates; candidates++) {
                char path[PATH_MAX];
                r = cop_path_format(path, sizeof(path), "%s/%s", folder, *candidates);
                if (r < 0)
                        return cop_error_errno(err, r, "%s", *candidates);
                if (realpath(path, buf))
                        return 0;
                memcpy(buf, path, sizeof(path));
        }
        return 0;
}

static int default_home(char *buf, struct cop_error *err)
{
        const char *home = getenv("COPPICE_HOME"), *user = getenv("HOME");
        int r;

        if (home && *home)
                r = cop_path_format(buf, PATH_MAX, "%s", home);
        else if (geteuid() == 0)
                r = cop_path_format(buf, PATH_MAX, "/var/lib/coppice");
        else if (user && *user == '/')
                r = cop_path_format(buf, PATH_MAX, "%s/.local/share/coppice", user);
        else
                return cop_error_set(err, EINVAL, COP_ERR_bad_request,
                                     "$HOME is not set; say where to keep things with --home DIR");
        return r < 0 ? cop_error_errno(err, r, "home folder") : 0;
}

static int make_home(const char *path, char *ret, struct cop_error *err)
{
        struct stat st;

        int r = cop_mkdir_p(path, 0700, err);
        if (r < 0)
                return cop_error_wrap(err, r, "making %s (choose another folder with --home DIR)", path);
        if (!realpath(path, ret))
                return cop_error_errno(err, errno, "%s", path);
        if (stat(ret, &st) < 0)
                return cop_error_errno(err, errno, "%s", ret);
        if (st.st_uid != geteuid())
                return cop_error_set(err, EPERM, COP_ERR_bad_request,
                                     "%s belongs to uid %u, not to uid %u who runs the daemon", ret,
                                     (unsigned)st.st_uid, (unsigned)geteuid());
        return 0;
}

int cop_places_find(const char *home, const char *socket, struct cop_places *ret, struct cop_error *err)
{
        /* PREFIX/bin/coppiced when installed; in a build tree, tools/link-bin.sh makes BUILD look like a prefix. */
        static const char *const keeper[] = {"coppice-keeper", "../libexec/coppice/coppice-keeper", NULL};
        static const char *const pack[] = {"coppice-pack", "../libexec/coppice/coppice-pack", NULL};
        static const char *const compare[] = {"coppice-compare", "../libexec/coppice/coppice-compare", NULL};
        static const char *const tool[] = {"../libexec/coppice/coppice-image", "../libexec/coppice-image",
                                           "../../libexec/coppice-image", NULL};
        static const char *const recipes[] = {"../share/coppice/images", "../images", "../../images", NULL};
        char folder[PATH_MAX], wanted[PATH_MAX];
        int r = 0;

        if (home)
                r = cop_path_format(wanted, sizeof(wanted), "%s", home);
        else
                r = default_home(wanted, err);
        if (r < 0)
                return home ? cop_error_errno(err, r, "--home") : r;
        if ((r = make_home(wanted, ret->home, err)) < 0 || (r = program_folder(folder, sizeof(folder), err)) < 0 ||
            (r = choose("COPPICE_KEEPER", folder, keeper, ret->keeper, err)) < 0 ||
            (r = choose("COPPICE_PACK", folder, pack, ret->pack, err)) < 0 ||
            (r = choose("COPPICE_COMPARE", folder, compare, ret->compare, err)) < 0 ||
            (r = choose("COPPICE_IMAGE_TOOL", folder, tool, ret->image_tool, err)) < 0 ||
            (r = choose("COPPICE_RECIPES", folder, recipes, ret->recipes, err)) < 0)
                return r;
        if (socket)
                r = cop_path_format(ret->socket, sizeof(ret->socket), "%s", socket);
        else
                r = cop_path_format(ret->socket, sizeof(ret->socket), "%s/coppice.sock", ret->home);
        return r < 0 ? cop_error_errno(err, r, "socket path") : 0;
}

int cop_places_lock(const struct cop_places *places, struct cop_error *err)
{
        char path[PATH_MAX], pid[32] = "";
        _cleanup_close_ int fd = -EBADF;

        int r = cop_path_format(path, sizeof(path), "%s/lock", places->home);
        if (r < 0)
                return cop_error_errno(err, r, "lock file");
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return cop_error_errno(err, errno, "opening %s", path);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                if (errno != EWOULDBLOCK)
                        return cop_error_errno(err, errno, "locking %s", path);
                ssize_t n = read(fd, pid, sizeof(pid) - 1);
                pid[n > 0 ? (size_t)n : 0] = '\0';
                pid[strcspn(pid, "\n")] = '\0';
                return cop_error_set(err, EWOULDBLOCK, COP_ERR_in_use,
                                     "another daemon (pid %s) already runs with home %s", *pid ? pid : "?",
                                     places->home);
        }
        int n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
        if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n)
                return cop_error_errno(err, errno ? errno : EIO, "writing %s", path);
        r = cop_path_format(path, sizeof(path), "%s/coppiced.pid", places->home);
        if (r == 0)
                r = cop_write_file_atomic(AT_FDCWD, path, pid, (size_t)n, 0600, err);
        return r < 0 ? r : TAKE_FD(fd);
}
