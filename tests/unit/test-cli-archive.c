#include "lib/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/tar.h"
#include "cli/archive.h"

static const char *in_dir(const char *name)
{
        static char paths[4][PATH_MAX];
        static unsigned next;
        char *path = paths[next++ % 4];

        ASSERT_OK(cop_path_format(path, PATH_MAX, "%s/%s", test_dir(), name), NULL);
        return path;
}

static void put_file(const char *name, const char *text, mode_t mode)
{
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_OK(cop_write_file_atomic(AT_FDCWD, in_dir(name), text, strlen(text), mode, &err), &err);
}

static void expect_file(const char *name, const char *text, mode_t mode)
{
        _cleanup_free_ char *got = NULL;
        struct cop_error err = COP_ERROR_NULL;
        struct stat st;

        ASSERT_OK(cop_read_file(AT_FDCWD, in_dir(name), 1 << 20, &got, NULL, &err), &err);
        ASSERT_STR(got, text);
        ASSERT_OK(lstat(in_dir(name), &st), NULL);
        ASSERT(S_ISREG(st.st_mode));
        ASSERT_EQ(st.st_mode & 07777, mode);
}

static bool exists(const char *name)
{
        struct stat st;

        return lstat(in_dir(name), &st) == 0;
}

/* Extracts the archive file "a.tar" into "out". */
static int unpack(bool strip, struct cop_error *err)
{
        _cleanup_close_ int fd = open(in_dir("a.tar"), O_RDONLY | O_CLOEXEC);

        ASSERT_GE(fd, 0);
        return cop_unpack(fd, in_dir("out"), strip, err);
}

static void begin(struct cop_buf *archive)
{
        umask(022);
        cop_buf_init(archive, 1 << 20);
}

static void add(struct cop_buf *archive, enum cop_tar_type type, const char *name, const char *data_or_target,
                mode_t mode)
{
        bool file = type == COP_TAR_FILE;
        struct cop_tar_entry e = {
                .type = type, .name = name, .target = file ? NULL : data_or_target, .mode = mode, .mtime = 1000000000};

        e.size = file ? strlen(data_or_target) : 0;
        ASSERT_OK(cop_tar_add_header(archive, &e), NULL);
        if (file) {
                static const char zeros[COP_TAR_BLOCK];
                ASSERT_OK(cop_buf_add(archive, data_or_target, e.size), NULL);
                ASSERT_OK(cop_buf_add(archive, zeros, cop_tar_padding(e.size)), NULL);
        }
}

static void end(struct cop_buf *archive)
{
        static const char zeros[2 * COP_TAR_BLOCK];
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_OK(cop_buf_add(archive, zeros, sizeof(zeros)), NULL);
        ASSERT_OK(cop_write_file_atomic(AT_FDCWD, in_dir("a.tar"), archive->data, archive->len, 0644, &err), &err);
        cop_buf_done(archive);
}

TEST(a_tree_survives_the_way_there_and_back)
{
        struct cop_error err = COP_ERROR_NULL;
        struct stat st;
        char link[64] = "";

        umask(022);
        ASSERT_OK(cop_mkdir_p(in_dir("in/sub/empty"), 0755, &err), &err);
        put_file("in/f", "hello", 0644);
        put_file("in/sub/script", "#!/bin/sh\n", 0755);
        put_file("in/sub/nothing", "", 0600);
        ASSERT_OK(symlink("sub/script", in_dir("in/inside")), NULL);
        ASSERT_OK(symlink("/etc/passwd", in_dir("in/outside")), NULL);
        ASSERT_OK(mkfifo(in_dir("in/fifo"), 0600), NULL);
        int fd = open(in_dir("a.tar"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ASSERT_OK(cop_pack(in_dir("in"), "top", fd, &err), &err);
        close(fd);
        ASSERT_OK(unpack(true, &err), &err);
        expect_file("out/f", "hello", 0644);
        expect_file("out/sub/script", "#!/bin/sh\n", 0755);
        expect_file("out/sub/nothing", "", 0600);
        ASSERT_OK(stat(in_dir("out/sub/empty"), &st), NULL);
        ASSERT_GT(readlink(in_dir("out/inside"), link, sizeof(link) - 1), 0);
        ASSERT_STR(link, "sub/script");
        ASSERT(!exists("out/outside"));
        ASSERT(!exists("out/fifo"));
}

TEST(the_systems_tar_reads_what_is_packed)
{
        struct cop_error err = COP_ERROR_NULL;
        char command[2 * PATH_MAX], longest[200];

        memset(longest, 'n', sizeof(longest) - 1);
        longest[sizeof(longest) - 1] = '\0';
        char *name = NULL;
        ASSERT_OK(asprintf(&name, "in/%s", longest), NULL);
        ASSERT_OK(cop_mkdir_p(in_dir("in"), 0755, &err), &err);
        put_file(name, "long", 0644);
        put_file("in/caf\xC3\xA9", "utf", 0644);
        int fd = open(in_dir("a.tar"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ASSERT_OK(cop_pack(in_dir("in"), "", fd, &err), &err);
        close(fd);
        snprintf(command, sizeof(command), "cd %s && mkdir out && tar xf a.tar -C out && diff -r in out", test_dir());
        ASSERT_EQ(system(command), 0);
        free(name);
}

TEST(nothing_leaves_the_folder)
{
        static const char *const names[] = {"../evil", "a/../../evil", "/tmp/coppice-test-evil", "..", "a/.."};

        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                struct cop_buf archive;
                struct cop_error err = COP_ERROR_NULL;
                begin(&archive);
                add(&archive, COP_TAR_FILE, names[i], "x", 0644);
                end(&archive);
                ASSERT_CODE(unpack(false, &err), &err, COP_ERR_bad_request);
                ASSERT(!exists("evil"));
                ASSERT_EQ(access("/tmp/coppice-test-evil", F_OK), -1);
        }
}

TEST(links_are_never_followed)
{
        struct cop_buf archive;
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_OK(mkdir(in_dir("target"), 0755), NULL);
        ASSERT_OK(mkdir(in_dir("out"), 0755), NULL);
        ASSERT_OK(symlink("../target", in_dir("out/there")), NULL); /* stood there before */
        put_file("target/kept", "kept", 0644);
        begin(&archive);
        add(&archive, COP_TAR_FILE, "there/new", "x", 0644);
        end(&archive);
        ASSERT_LT(unpack(false, &err), 0);
        ASSERT(!exists("target/new"));

        begin(&archive);
        add(&archive, COP_TAR_FOLDER, "there/sub", NULL, 0755);
        end(&archive);
        ASSERT_LT(unpack(false, &err), 0);
        ASSERT(!exists("target/sub"));

        /* A link of the archive itself, then a file through it and a file in its place. */
        begin(&archive);
        add(&archive, COP_TAR_FOLDER, "d", NULL, 0755);
        add(&archive, COP_TAR_SYMLINK, "l", "d", 0777);
        add(&archive, COP_TAR_FILE, "l/x", "x", 0644);
        end(&archive);
        ASSERT_LT(unpack(false, &err), 0);
        ASSERT(!exists("out/d/x"));

        ASSERT_OK(symlink("../target/kept", in_dir("out/f")), NULL);
        begin(&archive);
        add(&archive, COP_TAR_FILE, "f", "new", 0644);
        end(&archive);
        ASSERT_OK(unpack(false, &err), &err);
        expect_file("out/f", "new", 0644);
        expect_file("target/kept", "kept", 0644);
}

TEST(links_that_lead_out_are_left_out)
{
        static const char *const targets[] = {"/etc/passwd", "../x", "a/../../x"};
        struct cop_buf archive;
        struct cop_error err = COP_ERROR_NULL;

        begin(&archive);
        for (size_t i = 0; i < ELEMENTSOF(targets); i++) {
                char name[8];
                snprintf(name, sizeof(name), "l%zu", i);
                add(&archive, COP_TAR_SYMLINK, name, targets[i], 0777);
        }
        add(&archive, COP_TAR_FILE, "f", "x", 0644);
        end(&archive);
        ASSERT_OK(unpack(false, &err), &err);
        ASSERT(!exists("out/l0") && !exists("out/l1") && !exists("out/l2") && exists("out/f"));
}

TEST(hard_links_stay_within)
{
        struct cop_buf archive;
        struct cop_error err = COP_ERROR_NULL;
        struct stat st;

        put_file("secret", "s", 0600);
        begin(&archive);
        add(&archive, COP_TAR_FILE, "top/f", "x", 0644);
        add(&archive, COP_TAR_HARDLINK, "top/g", "top/f", 0644);
        end(&archive);
        ASSERT_OK(unpack(true, &err), &err);
        ASSERT_OK(stat(in_dir("out/g"), &st), NULL);
        ASSERT_EQ(st.st_nlink, 2);
        begin(&archive);
        add(&archive, COP_TAR_HARDLINK, "h", "../secret", 0644);
        end(&archive);
        ASSERT_CODE(unpack(false, &err), &err, COP_ERR_bad_request);
        begin(&archive);
        add(&archive, COP_TAR_HARDLINK, "h", "absent", 0644);
        end(&archive);
        ASSERT_ERRNO(unpack(false, &err), ENOENT);
}

TEST(no_set_user_id)
{
        struct cop_buf archive;
        struct cop_error err = COP_ERROR_NULL;

        begin(&archive);
        add(&archive, COP_TAR_FILE, "su", "x", 06755);
        end(&archive);
        ASSERT_OK(unpack(false, &err), &err);
        expect_file("out/su", "x", 0755);
}

TEST(a_cut_archive_is_an_error)
{
        struct cop_buf archive;
        struct cop_error err = COP_ERROR_NULL;

        begin(&archive);
        add(&archive, COP_TAR_FILE, "f", "hello", 0644);
        end(&archive);
        ASSERT_OK(truncate(in_dir("a.tar"), 600), NULL);
        ASSERT_LT(unpack(false, &err), 0);
        ASSERT_OK(truncate(in_dir("a.tar"), 100), NULL);
        ASSERT_LT(unpack(false, &err), 0);
}
