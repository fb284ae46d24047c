#include "lib/test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/mountinfo.h"

static int next(char *text, struct cop_mountinfo *m)
{
        char *cursor = text;

        return cop_mountinfo_next(&cursor, m);
}

TEST(a_line_of_mountinfo)
{
        char text[] = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n"
                      "37 36 0:5 / /proc rw - proc proc rw\n";
        char *cursor = text;
        struct cop_mountinfo m;

        ASSERT_EQ(cop_mountinfo_next(&cursor, &m), 1);
        ASSERT_EQ(m.mount_id, 36);
        ASSERT_EQ(m.parent_id, 35);
        ASSERT_EQ(m.device, makedev(98, 0));
        ASSERT_STR(m.root, "/mnt1");
        ASSERT_STR(m.mount_point, "/mnt2");
        ASSERT_STR(m.options, "rw,noatime");
        ASSERT_STR(m.fs_type, "ext3");
        ASSERT_STR(m.source, "/dev/root");
        ASSERT_STR(m.super_options, "rw,errors=continue");
        ASSERT_EQ(cop_mountinfo_next(&cursor, &m), 1);
        ASSERT_STR(m.mount_point, "/proc");
        ASSERT_EQ(cop_mountinfo_next(&cursor, &m), 0);
        ASSERT_EQ(cop_mountinfo_next(&cursor, &m), 0);
}

TEST(escapes_in_mountinfo)
{
        char text[] = "1 1 0:1 / /a\\040b\\011c\\134d\\012 rw - tmpfs with\\040space rw";
        char odd[] = "1 1 0:1 / /a\\04 rw - tmpfs x\\9 rw";
        struct cop_mountinfo m;

        ASSERT_EQ(next(text, &m), 1);
        ASSERT_STR(m.mount_point, "/a b\tc\\d\n");
        ASSERT_STR(m.source, "with space");
        ASSERT_EQ(next(odd, &m), 1);
        ASSERT_STR(m.mount_point, "/a\\04");
        ASSERT_STR(m.source, "x\\9");
}

TEST(malformed_mountinfo)
{
        static const char *const lines[] = {
                "x",
                "1 2",
                "1 2 0:1 / /",
                "1 2 0:1 / / rw",
                "1 2 0:1 / / rw -",
                "1 2 0:1 / / rw - tmpfs",
                "1 2 0:1 / / rw - tmpfs x",
                "a 2 0:1 / / rw - tmpfs x rw",
                "1 -2 0:1 / / rw - tmpfs x rw",
                "99999999999 2 0:1 / / rw - tmpfs x rw",
                " ",
                "- - - - - - - - -",
                "1 2 0 / / rw - tmpfs x rw",
        };
        struct cop_mountinfo m;

        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
                char text[128];
                strcpy(text, lines[i]);
                ASSERT_ERRNO(next(text, &m), EBADMSG);
        }
        /* A bad line does not hide the next one. */
        char text[] = "bad\n1 1 0:1 / /good rw - tmpfs x rw\n";
        char *cursor = text;
        ASSERT_ERRNO(cop_mountinfo_next(&cursor, &m), EBADMSG);
        ASSERT_EQ(cop_mountinfo_next(&cursor, &m), 1);
        ASSERT_STR(m.mount_point, "/good");
}

TEST(the_mounts_of_this_process)
{
        struct cop_mounts mounts = {0};
        struct cop_error err;
        size_t roots = 0;

        ASSERT_OK(cop_mounts_read(AT_FDCWD, "/proc/self/mountinfo", 4UL << 20, &mounts, &err), &err);
        for (size_t i = 0; i < mounts.count; i++)
                roots += strcmp(mounts.list[i].mount_point, "/") == 0;
        ASSERT(roots > 0);
        ASSERT_ERRNO(cop_mounts_read(AT_FDCWD, "/proc/self/none", 4UL << 20, &mounts, &err), ENOENT);
        ASSERT_LT(cop_mounts_read(AT_FDCWD, "/proc/self/mountinfo", 8, &mounts, &err), 0);
        ASSERT(mounts.count > 0);
        cop_mounts_done(&mounts);
}
