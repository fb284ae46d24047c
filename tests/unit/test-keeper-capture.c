#include "lib/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "keeper/capture.h"
#include "tree-model.h"

static void pass(struct cop_capture *c)
{
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_OK(cop_capture_pass(c, &err), &err);
}

static void settle(void)
{
        usleep(30000);
}

/* -- what a sandbox can have --------------------------------------------------------------------------------------------------------- */

static const char everything[] =
        "umask 022; mkdir -p d/e plain sticky empty; echo hello >f; echo x >d/e/x; ln f d/hard; ln f d/e/hard; ln -s "
        "../f d/link; "
        "ln -s nowhere dangling; ln dangling dangling2; mknod gone c 0 0; ln gone d/gone2; mkfifo -m 622 pipe; chmod "
        "1777 sticky; "
        "cp /bin/true suid; chown 33:33 suid; chmod 6755 suid; chmod 000 empty; chown 1000:100 d; "
        "touch -d '2001-02-03 04:05:06.789' f d/e/x plain; touch -h -d '2002-02-03 04:05:06.5' dangling; "
        "printf '%b' 'bad\\0377\\0376name' | xargs -0 touch; touch 'new\nline' '-rf' ' '; "
        "truncate -s 300M sparse; printf end | dd of=sparse bs=1 seek=200000000 conv=notrunc 2>/dev/null; chown 0:0 f; "
        "chown 1000:1000 f";

static void set(int dir, const char *name, const char *attribute, const char *value, size_t n)
{
        char path[300];

        snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir, name);
        if (lsetxattr(path, attribute, value, n, 0) < 0)
                FAIL("%s of %s: %s", attribute, name, strerror(errno));
}

static void make_everything(int upper)
{
        static const char capability[] = "\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0"; /* cap_net_bind_service+ep */

        run(upper, everything);
        set(upper, "d/e", "user.overlay.opaque", "y", 1);
        set(upper, "d", "user.overlay.redirect", "/other", 6);
        set(upper, "plain", "user.note", "some text", 9);
        set(upper, "f", "user.note", "", 0);
        set(upper, "suid", "security.capability", capability, 20);
        set(upper, "dangling", "trusted.x", "on a link", 9);
        run(upper, "setfacl -m u:1000:rx plain 2>/dev/null || true");
}

static void start(struct cop_capture *c, int *ret_upper, int *ret_layer)
{
        if (geteuid() != 0)
                SKIP("needs root");
        *ret_upper = folder("upper");
        *ret_layer = folder("layer");
        *c = (struct cop_capture){.upper_fd = *ret_upper, .layer_fd = *ret_layer, .parent_fd = -EBADF};
}

static void end(struct cop_capture *c, int upper, int layer)
{
        cop_capture_done(c);
        close(upper);
        close(layer);
}

TEST(everything_is_captured_in_one_pass)
{
        struct cop_capture c;
        struct stat st;
        int upper, layer;

        start(&c, &upper, &layer);
        make_everything(upper);
        pass(&c);
        same(upper, layer);
        ASSERT_EQ(fstatat(layer, "sparse", &st, 0), 0);
        ASSERT_EQ(st.st_size, 300 << 20);
        ASSERT_LE(st.st_blocks * 512, 1 << 20);
        end(&c, upper, layer);
}

TEST(a_second_pass_takes_what_changed_and_no_more)
{
        struct cop_capture c;
        int upper, layer;

        start(&c, &upper, &layer);
        make_everything(upper);
        settle();
        pass(&c);
        uint64_t files = c.files;
        pass(&c);
        ASSERT_EQ(c.files, files);
        run(upper,
            "printf j | dd of=d/e/x bs=1 conv=notrunc 2>/dev/null; ln f later; rm d/hard; rm -r sticky; echo new "
            ">sticky; "
            "mv suid d/e/suid; rm pipe; mkdir pipe; echo y >pipe/y; rm gone d/gone2; mkdir gone; touch gone/inside; "
            "setfattr -x user.note plain; setfattr -x user.overlay.opaque d/e; chmod 700 empty; rm dangling2; ln -s "
            "other dangling2");
        pass(&c);
        same(upper, layer);
        end(&c, upper, layer);
}

/* -- random changes between passes --------------------------------------------------------------------------------------------------- */

static unsigned seed;

static unsigned pick(unsigned n)
{
        seed = seed * 1103515245 + 12345;
        return (seed >> 8) % n;
}

static void random_name(char *name, size_t size)
{
        static const char *const folders[] = {"", "a/", "a/b/", "a/b/c/", "d/", "d/e/"};

        snprintf(name, size, "%sn%u", folders[pick(6)], pick(12));
}

static void write_something(int upper, const char *name, bool append)
{
        int fd = openat(upper, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (append ? O_APPEND : 0),
                        0640);

        if (fd < 0)
                return;
        for (unsigned i = pick(4) + 1; i > 0; i--)
                if (pick(3) == 0)
                        (void)!pwrite(fd, "hole", 4, pick(1 << 20));
                else
                        (void)!write(fd, &seed, sizeof(seed));
        if (pick(5) == 0)
                (void)!ftruncate(fd, pick(5000));
        close(fd);
}

static void mutate(int upper)
{
        char a[64], b[64];

        random_name(a, sizeof(a));
        random_name(b, sizeof(b));
        switch (pick(14)) {
        case 0:
        case 1:
        case 2:
                write_something(upper, a, false);
                break;
        case 3:
                write_something(upper, a, true);
                break;
        case 4:
                linkat(upper, a, upper, b, 0);
                break;
        case 5:
                renameat(upper, a, upper, b);
                break;
        case 6:
                if (unlinkat(upper, a, 0) < 0)
                        cop_remove_tree(upper, a, NULL);
                break;
        case 7:
                mkdirat(upper, a, 0711);
                snprintf(b, sizeof(b), "%.50s/in%u", a, pick(3));
                write_something(upper, b, false);
                break;
        case 8:
                symlinkat(b, upper, a);
                break;
        case 9:
                mknodat(upper, a, pick(2) ? S_IFIFO | 0600 : S_IFCHR, 0);
                break;
        case 10:
                fchownat(upper, a, pick(3), pick(3), AT_SYMLINK_NOFOLLOW);
                break;
        case 11:
                fchmodat(upper, a, pick(07777), 0);
                break;
        case 12: {
                char path[128];
                snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", upper, a);
                if (pick(2))
                        lsetxattr(path, "user.overlay.opaque", "y", 1, 0);
                else
                        lremovexattr(path, "user.overlay.opaque");
                break;
        }
        default:
                syscall(SYS_renameat2, upper, a, upper, b, 2 /* RENAME_EXCHANGE */);
        }
}

static void restore_folders(int upper)
{
        static const char *const folders[] = {"a", "a/b", "a/b/c", "d", "d/e"};

        for (size_t i = 0; i < ELEMENTSOF(folders); i++)
                mkdirat(upper, folders[i], 0755);
}

TEST_LIMIT(random_changes_between_passes, 240)
{
        int upper, layer;

        for (unsigned round = 0; round < 60; round++) {
                struct cop_capture c;
                start(&c, &upper, &layer);
                seed = round * 7919 + 1;
                for (unsigned i = 0; i < 4; i++) {
                        restore_folders(upper);
                        for (unsigned n = pick(i ? 25 : 120); n > 0; n--)
                                mutate(upper);
                        if (pick(2))
                                settle();
                        pass(&c);
                        if (pick(2) == 0)
                                continue; /* changes pile up */
                        same(upper, layer);
                }
                pass(&c);
                same(upper, layer);
                end(&c, upper, layer);
                int top = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                cop_remove_tree(top, "upper", NULL);
                cop_remove_tree(top, "layer", NULL);
                close(top);
        }
}

/* Captures that link into each other: the older ones stay what they were. */
TEST_LIMIT(parents_are_immutable, 240)
{
        enum { GENERATIONS = 6 };
        int upper, layers[GENERATIONS], copies[GENERATIONS];
        uint64_t copied = 0;
        char name[32];

        if (geteuid() != 0)
                SKIP("needs root");
        upper = folder("upper");
        seed = 99;
        for (unsigned i = 0; i < GENERATIONS; i++) {
                restore_folders(upper);
                for (unsigned n = i ? 20 : 150; n > 0; n--)
                        mutate(upper);
                settle();
                snprintf(name, sizeof(name), "layer%u", i);
                layers[i] = folder(name);
                snprintf(name, sizeof(name), "copy%u", i);
                copies[i] = folder(name);
                struct cop_capture c = {
                        .upper_fd = upper, .layer_fd = layers[i], .parent_fd = i ? layers[i - 1] : -EBADF};
                pass(&c);
                mutate(upper);
                pass(&c);
                same(upper, layers[i]);
                copied += i ? c.files : 0;
                cop_capture_done(&c);
                char path[64];
                snprintf(path, sizeof(path), "cp -a ../upper/. ../copy%u/", i);
                run(upper, path);
        }
        for (unsigned i = 0; i < GENERATIONS; i++) {
                seen_count = 0;
                same_entry(copies[i], layers[i], ".", false);
                close(layers[i]);
                close(copies[i]);
        }
        close(upper);
        ASSERT_GT(copied, 0);
        ASSERT_LE(copied, 5 * 45); /* the rest was linked */
}

/* -- limits ------------------------------------------------------------------------------------------------------------------------------ */

TEST(too_deep_is_said)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_capture c;
        int upper, layer;

        start(&c, &upper, &layer);
        run(upper, "python3 -c 'import os\nfor i in range(450): os.mkdir(\"deep\"); os.chdir(\"deep\")'");
        ASSERT_EQ(cop_capture_pass(&c, &err), -ELOOP);
        ASSERT(strstr(err.message, "400") && strstr(err.message, "deep"));
        end(&c, upper, layer);
}

TEST(a_pass_can_be_cancelled)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_capture c;
        int upper, layer;

        start(&c, &upper, &layer);
        run(upper, "touch a b");
        atomic_store(&c.cancel, true);
        ASSERT_EQ(cop_capture_pass(&c, &err), -ECANCELED);
        end(&c, upper, layer);
}

TEST(a_full_disk_is_said)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_capture c;
        int upper, layer, top;

        start(&c, &upper, &layer);
        top = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        run(top, "mkdir small; mount -t tmpfs -o size=1m none small 2>/dev/null");
        close(layer);
        c.layer_fd = layer = folder("small");
        run(upper, "head -c 4000000 /dev/urandom >big");
        int r = cop_capture_pass(&c, &err);
        cop_capture_done(&c);
        close(upper);
        close(layer);
        run(top, "umount small");
        close(top);
        ASSERT_EQ(r, -ENOSPC);
        ASSERT_EQ(err.code, COP_ERR_disk_full);
        ASSERT(strstr(err.message, "big"));
}

TEST_LIMIT(huge_folders, 240)
{
        struct cop_capture c;
        int upper, layer;

        start(&c, &upper, &layer);
        run(upper, "python3 -c 'for i in range(50000): open(f\"file{i}\", \"w\").close()'");
        settle();
        usec_t a = cop_now(CLOCK_MONOTONIC);
        pass(&c);
        usec_t b = cop_now(CLOCK_MONOTONIC);
        pass(&c);
        usec_t d = cop_now(CLOCK_MONOTONIC);
        run(upper, "touch one-more");
        usec_t e = cop_now(CLOCK_MONOTONIC);
        pass(&c);
        printf("# 50,000 files: first pass %.0f ms, nothing changed %.1f ms, one new %.1f ms\n", (double)(b - a) / 1000,
               (double)(d - b) / 1000, (double)(cop_now(CLOCK_MONOTONIC) - e) / 1000);
        ASSERT_EQ(c.files, 50001);
        ASSERT_EQ(count_of(layer, -1, false), 50001);
        end(&c, upper, layer);
}
