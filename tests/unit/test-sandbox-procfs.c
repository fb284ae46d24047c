#include "lib/test.h"

#include <stdint.h>
#include <stdlib.h>

#include "sandbox/procfs.h"

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
