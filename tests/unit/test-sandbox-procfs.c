#include "lib/test.h"

#include <stdint.h>
#include <stdlib.h>

#include "sandbox/procfs.h"

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

TEST(words_of_lists)
{
        ASSERT(cop_list_has("rw,cpu,cpuacct", "cpu"));
        ASSERT(cop_list_has("rw,cpu,cpuacct", "cpuacct"));
        ASSERT(cop_list_has("memory", "memory"));
        ASSERT(!cop_list_has("rw,cpuacct", "cpu"));
        ASSERT(!cop_list_has("xcpu,cpux", "cpu"));
        ASSERT(!cop_list_has("", "cpu"));
        ASSERT(!cop_list_has(",,", "cpu"));
        ASSERT(cop_list_has(",,cpu", "cpu"));
}

TEST(cgroup_paths)
{
        static const char text[] = "9:name=systemd:/a\n4:cpu,cpuacct:/b:c\n3:memory:/m\n0::/user.slice/x\nbroken\n:\n";
        char *path = NULL;

        ASSERT_EQ(cop_proc_cgroup_path(text, "", &path), 0);
        ASSERT_STR(path, "/user.slice/x");
        free(path);
        ASSERT_EQ(cop_proc_cgroup_path(text, "cpuacct", &path), 0);
        ASSERT_STR(path, "/b:c");
        free(path);
        ASSERT_EQ(cop_proc_cgroup_path(text, "name=systemd", &path), 0);
        ASSERT_STR(path, "/a");
        free(path);
        ASSERT_ERRNO(cop_proc_cgroup_path(text, "pids", &path), ENOENT);
        ASSERT_ERRNO(cop_proc_cgroup_path("", "", &path), ENOENT);
}

TEST(flat_keyed_files)
{
        static const char text[] =
                "oom_kill_disable 0\nunder_oom 0\noom_kill 17\nbig 99999999999999999999999\nneg -1\nempty \n";
        uint64_t value = 0;

        ASSERT_EQ(cop_keyed_u64(text, "oom_kill", &value), 0);
        ASSERT_EQ(value, 17);
        ASSERT_ERRNO(cop_keyed_u64(text, "oom", &value), ENOENT);
        ASSERT_ERRNO(cop_keyed_u64(text, "big", &value), EBADMSG);
        ASSERT_ERRNO(cop_keyed_u64(text, "neg", &value), EBADMSG);
        ASSERT_ERRNO(cop_keyed_u64(text, "empty", &value), EBADMSG);
        ASSERT_EQ(value, 17);
}

TEST(limits)
{
        uint64_t value = 5;

        ASSERT_EQ(cop_limit_u64("max\n", &value), 0);
        ASSERT(value == UINT64_MAX);
        ASSERT_EQ(cop_limit_u64("123\n", &value), 0);
        ASSERT_EQ(value, 123);
        ASSERT_ERRNO(cop_limit_u64("", &value), EBADMSG);
        ASSERT_ERRNO(cop_limit_u64("maximum", &value), EBADMSG);
        ASSERT_ERRNO(cop_limit_u64("1 2", &value), EBADMSG);
        ASSERT_ERRNO(cop_limit_u64("99999999999999999999", &value), EBADMSG);
        ASSERT_EQ(value, 123);
}
