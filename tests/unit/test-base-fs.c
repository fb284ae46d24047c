#include "lib/test.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"

static int open_dir(void)
{
        int fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        ASSERT_GE(fd, 0);
        return fd;
}

static void write_file(int dir, const char *name, const char *text)
{
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_OK(cop_write_file_atomic(dir, name, text, strlen(text), 0644, &err), &err);
}

TEST(paths_stay_beneath_the_root)
{
        static const char *const outside[] = {"..",   "../x",     "sub/../../x", "/etc/passwd",
                                              "up/x", "absolute", "sub/up2"};
        _cleanup_close_ int dir = open_dir();
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_OK(mkdirat(dir, "sub", 0755), NULL);
        write_file(dir, "sub/f", "x");
        ASSERT_OK(symlinkat("..", dir, "up"), NULL);
        ASSERT_OK(symlinkat("../..", dir, "sub/up2"), NULL);
        ASSERT_OK(symlinkat("/etc/passwd", dir, "absolute"), NULL);
        ASSERT_OK(symlinkat("f", dir, "sub/inside"), NULL);
        for (size_t i = 0; i < ELEMENTSOF(outside); i++) {
                int fd = cop_open_beneath(dir, outside[i], O_RDONLY, 0, 0, &err);
                if (fd >= 0)
                        FAIL("%s was opened", outside[i]);
        }
        int fd = cop_open_beneath(dir, "sub/../sub/inside", O_RDONLY, 0, 0, &err);
        ASSERT_OK(fd, &err);
        ASSERT(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        close(fd);
        ASSERT_ERRNO(cop_open_beneath(dir, "sub/inside", O_RDONLY, 0, 1, &err), ELOOP);
        ASSERT_ERRNO(cop_open_beneath(dir, "nothing", O_RDONLY, 0, 0, &err), ENOENT);
        ASSERT_CONTAINS(err.message, "nothing");
}

TEST(opening_beneath_with_a_mode)
{
        _cleanup_close_ int dir = open_dir();
        struct cop_error err = COP_ERROR_NULL;
        struct stat st;

        int fd = cop_open_beneath(dir, "new", O_WRONLY | O_CREAT | O_EXCL, 0640, 1, &err);
        ASSERT_OK(fd, &err);
        ASSERT_OK(fstat(fd, &st), NULL);
        ASSERT_EQ(st.st_mode & 07777, 0640);
        close(fd);
        /* O_DIRECTORY is part of O_TMPFILE's bits; a mode given with it alone must not reach the kernel. */
        ASSERT_OK(mkdirat(dir, "d", 0755), NULL);
        fd = cop_open_beneath(dir, "d", O_RDONLY | O_DIRECTORY, 0755, 1, &err);
        ASSERT_OK(fd, &err);
        close(fd);
}

TEST(whole_files_up_to_a_limit)
{
        _cleanup_close_ int dir = open_dir();
        _cleanup_free_ char *text = NULL;
        struct cop_error err = COP_ERROR_NULL;
        size_t n = 0;

        write_file(dir, "f", "12345");
        ASSERT_OK(cop_read_file(dir, "f", 5, &text, &n, &err), &err);
        ASSERT_EQ(n, 5);
        ASSERT_STR(text, "12345");
        char *untouched = NULL;
        ASSERT_ERRNO(cop_read_file(dir, "f", 4, &untouched, NULL, &err), EFBIG);
        ASSERT_ERRNO(cop_read_file(dir, "absent", 4, &untouched, NULL, &err), ENOENT);
        ASSERT_ERRNO(cop_read_file(dir, ".", 4, &untouched, NULL, &err), EISDIR);
        ASSERT(untouched == NULL);
        write_file(dir, "empty", "");
        _cleanup_free_ char *nothing = NULL;
        ASSERT_OK(cop_read_file(dir, "empty", 0, &nothing, &n, &err), &err);
        ASSERT_STR(nothing, "");
        _cleanup_free_ char *proc = NULL; /* size 0 for stat, content for read */
        ASSERT_OK(cop_read_file(AT_FDCWD, "/proc/self/status", 65536, &proc, &n, &err), &err);
        ASSERT_CONTAINS(proc, "Pid:");
}

TEST(words_lose_their_white_space)
{
        _cleanup_close_ int dir = open_dir();
        _cleanup_free_ char *a = NULL, *b = NULL;
        struct cop_error err = COP_ERROR_NULL;

        write_file(dir, "f", "max \t\n\n");
        ASSERT_OK(cop_read_word(dir, "f", &a, &err), &err);
        ASSERT_STR(a, "max");
        write_file(dir, "f", "\n");
        ASSERT_OK(cop_read_word(dir, "f", &b, &err), &err);
        ASSERT_STR(b, "");
}

TEST(atomic_writing)
{
        _cleanup_close_ int dir = open_dir();
        _cleanup_free_ char *text = NULL;
        struct cop_error err = COP_ERROR_NULL;
        struct stat st;

        umask(077);
        ASSERT_OK(cop_write_file_atomic(dir, "f", "one", 3, 0664, &err), &err);
        ASSERT_OK(cop_write_file_atomic(dir, "f", "two\0x", 5, 0600, &err), &err);
        ASSERT_OK(fstatat(dir, "f", &st, 0), NULL);
        ASSERT_EQ(st.st_mode & 07777, 0600);
        ASSERT_EQ(st.st_size, 5);
        ASSERT_OK(cop_write_file_atomic(dir, "g", "", 0, 0664, &err), &err);
        ASSERT_OK(fstatat(dir, "g", &st, 0), NULL);
        ASSERT_EQ(st.st_mode & 07777, 0664); /* exact, whatever the umask */
        ASSERT_ERRNO(cop_write_file_atomic(dir, "no/such/folder", "x", 1, 0600, &err), ENOENT);
        ASSERT_OK(mkdirat(dir, "taken", 0700), NULL);
        ASSERT_ERRNO(cop_write_file_atomic(dir, "taken", "x", 1, 0600, &err), EISDIR);
        ASSERT_OK(cop_read_file(dir, "f", 10, &text, NULL, &err), &err);
        _cleanup_closedir_ DIR *d = fdopendir(open_dir());
        for (struct dirent *e; (e = readdir(d));)
                if (strstr(e->d_name, ".tmp"))
                        FAIL("%s was left behind", e->d_name);
}

TEST(kernel_files_are_never_created)
{
        _cleanup_close_ int dir = open_dir();
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_ERRNO(cop_write_kernel_file(dir, "cgroup.procs", "0", &err), ENOENT);
        ASSERT_CONTAINS(err.message, "cgroup.procs");
        ASSERT_OK(cop_write_kernel_file(AT_FDCWD, "/proc/self/comm", "renamed", &err), &err);
}

TEST(spread_subfolders)
{
        _cleanup_close_ int dir = open_dir();
        int flags = 0;

        cop_spread_subfolders("/nonexistent");
        cop_spread_subfolders("/proc");
        cop_spread_subfolders(test_dir());
        cop_spread_subfolders(test_dir());
        if (ioctl(dir, FS_IOC_GETFLAGS, &flags) < 0 || !(flags & FS_TOPDIR_FL))
                SKIP("this file system has no such flag");
        ASSERT_OK(mkdirat(dir, "a", 0700), NULL);
        _cleanup_close_ int sub = openat(dir, "a", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ASSERT_OK(ioctl(sub, FS_IOC_GETFLAGS, &flags), NULL);
        ASSERT_EQ(flags & FS_TOPDIR_FL, 0); /* what lies together in one stays together */
}

TEST(mkdir_p)
{
        char path[PATH_MAX];
        struct cop_error err = COP_ERROR_NULL;
        struct stat st;

        ASSERT_OK(cop_path_format(path, sizeof(path), "%s/a/b//c/", test_dir()), NULL);
        ASSERT_OK(cop_mkdir_p(path, 0700, &err), &err);
        ASSERT_OK(cop_mkdir_p(path, 0700, &err), &err);
        ASSERT_OK(stat(path, &st), NULL);
        ASSERT_EQ(st.st_mode & 07777, 0700);
        ASSERT_OK(cop_mkdir_p("/", 0700, &err), &err);
        ASSERT_ERRNO(cop_mkdir_p("", 0700, &err), ENOENT);
        ASSERT_ERRNO(cop_mkdir_p("/dev/null", 0700, &err), ENOTDIR);
        ASSERT_ERRNO(cop_mkdir_p("/dev/null/x", 0700, &err), ENOTDIR);
        ASSERT_OK(chdir(test_dir()), NULL);
        ASSERT_OK(cop_mkdir_p("relative/path", 0755, &err), &err);
        ASSERT_OK(stat("relative/path", &st), NULL);
}

TEST(trees_are_removed_without_following_links)
{
        _cleanup_close_ int dir = open_dir();
        struct cop_error err = COP_ERROR_NULL;
        struct stat st;

        ASSERT_OK(mkdirat(dir, "kept", 0755), NULL);
        write_file(dir, "kept/f", "x");
        ASSERT_OK(mkdirat(dir, "t", 0755), NULL);
        ASSERT_OK(mkdirat(dir, "t/sub", 0755), NULL);
        write_file(dir, "t/sub/f", "x");
        write_file(dir, "t/f", "x");
        ASSERT_OK(symlinkat("../kept", dir, "t/link"), NULL);
        ASSERT_OK(symlinkat("../../kept", dir, "t/sub/link"), NULL);
        ASSERT_OK(mkfifoat(dir, "t/fifo", 0600), NULL);
        ASSERT_OK(mkdirat(dir, "t/locked", 0000), NULL);
        ASSERT_OK(cop_remove_tree(dir, "t", &err), &err);
        ASSERT_EQ(fstatat(dir, "t", &st, AT_SYMLINK_NOFOLLOW), -1);
        ASSERT_OK(fstatat(dir, "kept/f", &st, 0), NULL);
        ASSERT_OK(cop_remove_tree(dir, "t", &err), &err); /* missing is fine */
        ASSERT_OK(symlinkat("kept", dir, "l"), NULL);
        ASSERT_OK(cop_remove_tree(dir, "l", &err), &err);
        ASSERT_OK(fstatat(dir, "kept/f", &st, 0), NULL);
        ASSERT_OK(cop_remove_tree(dir, "kept", &err), &err);
        ASSERT_OK(cop_remove_tree(dir, "no/such/parent", &err), &err);
}

TEST(a_wide_tree_is_removed)
{
        _cleanup_close_ int dir = open_dir();
        struct cop_error err = COP_ERROR_NULL;
        struct stat st;
        char name[64];

        ASSERT_OK(mkdirat(dir, "t", 0755), NULL);
        for (int i = 0; i < 5000; i++) {
                snprintf(name, sizeof(name), "t/%d", i);
                int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
                ASSERT_GE(fd, 0);
                close(fd);
        }
        ASSERT_OK(cop_remove_tree(dir, "t", &err), &err);
        ASSERT_EQ(fstatat(dir, "t", &st, 0), -1);
}

/* Deeper than PATH_MAX and than any limit of descriptors: made, and to be removed, one level at a time. */
TEST_LIMIT(a_tree_of_any_depth_is_removed, 60)
{
        struct cop_error err = COP_ERROR_NULL;
        int dir = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct rlimit few = {200, 200};

        ASSERT_EQ(mkdirat(dir, "deep", 0700), 0);
        int at = openat(dir, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (int i = 0; i < 3000; i++) {
                ASSERT_EQ(mkdirat(at, "d", 0700), 0);
                int file = openat(at, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
                ASSERT_GE(file, 0);
                close(file);
                int next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                ASSERT_GE(next, 0);
                close(at);
                at = next;
        }
        close(at);
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
        ASSERT_OK(cop_remove_tree(dir, "deep", &err), &err);
        ASSERT_EQ(faccessat(dir, "deep", F_OK, AT_SYMLINK_NOFOLLOW), -1);
        close(dir);
}

TEST(path_format_tells_when_it_cuts)
{
        char buf[8];

        ASSERT_OK(cop_path_format(buf, sizeof(buf), "%s", "1234567"), NULL);
        ASSERT_ERRNO(cop_path_format(buf, sizeof(buf), "%s", "12345678"), ENAMETOOLONG);
}

TEST(flags)
{
        int fds[2];

        ASSERT_OK(pipe(fds), NULL);
        ASSERT_OK(cop_set_cloexec(fds[0], 1), NULL);
        ASSERT(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
        ASSERT_OK(cop_set_cloexec(fds[0], 0), NULL);
        ASSERT(!(fcntl(fds[0], F_GETFD) & FD_CLOEXEC));
        ASSERT_OK(cop_set_nonblock(fds[0], 1), NULL);
        ASSERT(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
        ASSERT_OK(cop_set_nonblock(fds[0], 0), NULL);
        ASSERT(!(fcntl(fds[0], F_GETFL) & O_NONBLOCK));
        close(fds[0]);
        close(fds[1]);
        ASSERT_ERRNO(cop_set_cloexec(fds[0], 1), EBADF);
}
