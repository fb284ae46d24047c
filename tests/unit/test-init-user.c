/* /etc/passwd and /etc/group as coppice-init reads them. */
#include <stdio.h>

#include "init/user.h"
#include "lib/test.h"

static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n"
                             "# comment\n"
                             "short:x:5\n"
                             "bad:x:-1:5::/:/\n"
                             "big:x:99999999999:5::/:/\n"
                             "max:x:4294967295:5::/:/\n" /* (uid_t)-1: "no change" to setresuid */
                             "user:x:1000:1001:A,B:/home/user:/bin/zsh\n"
                             "twin:x:1000:7::/twin:/bin/sh\n"
                             "last:x:5:6::/l:/s"; /* no newline */

static const char group[] = "root:x:0:\nsudo:x:27:user,root\nuser:x:1000:\nmany:x:44:,user,,other\nbroken:x:x:"
                            "user\nhigh:x:70000:user\nx:x:9:users";

TEST(passwd_by_name_and_number)
{
        struct cop_user u = {0};

        ASSERT_EQ(cop_user_parse_passwd(passwd, sizeof(passwd) - 1, "user", 0, &u), 1);
        ASSERT_EQ(u.uid, 1000);
        ASSERT_EQ(u.gid, 1001);
        ASSERT_STR(u.home, "/home/user");
        ASSERT_STR(u.shell, "/bin/zsh");
        ASSERT_EQ(cop_user_parse_passwd(passwd, sizeof(passwd) - 1, NULL, 1000, &u), 1);
        ASSERT_STR(u.name, "user"); /* the first of two */
        ASSERT_EQ(cop_user_parse_passwd(passwd, sizeof(passwd) - 1, "last", 0, &u), 1);
        ASSERT_STR(u.shell, "/s");
        for (const char **name = (const char *[]){"short", "bad", "big", "max", "", "# comment", "roo", "root:", NULL};
             *name; name++)
                ASSERT_EQ(cop_user_parse_passwd(passwd, sizeof(passwd) - 1, *name, 0, &u), 0);
}

TEST(long_and_binary_fields_count_as_absent)
{
        char text[1000] = "user:x:1:1::/";
        struct cop_user u = {0};

        memset(text + strlen(text), 'h', 600);
        strcat(text, ":/bin/sh\n");
        ASSERT_EQ(cop_user_parse_passwd(text, strlen(text), "user", 0, &u), 1);
        ASSERT_STR(u.home, "");
        ASSERT_STR(u.shell, "/bin/sh");
        ASSERT_EQ(cop_user_parse_passwd("user:x:1:1::/a\0b:/c", 19, "user", 0, &u), 1);
        ASSERT_STR(u.home, "");
}

TEST(group_memberships)
{
        struct cop_user u = {.name = "user"};
        gid_t gid = 99;

        cop_user_parse_memberships(group, sizeof(group) - 1, &u);
        ASSERT_EQ(u.group_count, 2); /* 27 and 44: not the broken one, not one that the sandbox does not map */
        ASSERT_EQ(u.groups[0], 27);
        ASSERT_EQ(u.groups[1], 44);
        ASSERT_EQ(cop_user_parse_group(group, sizeof(group) - 1, "sudo", &gid), 1);
        ASSERT_EQ(gid, 27);
        ASSERT_EQ(cop_user_parse_group(group, sizeof(group) - 1, "broken", &gid), 0);
        struct cop_user nameless = {0};
        cop_user_parse_memberships(group, sizeof(group) - 1, &nameless);
        ASSERT_EQ(nameless.group_count, 0);
}

TEST(endless_memberships_are_bounded)
{
        struct cop_user u = {.name = "u"};
        static char text[400 * 12];
        size_t n = 0;

        for (int i = 0; i < 400; i++)
                n += (size_t)snprintf(text + n, sizeof(text) - n, "g:x:%d:u\n", i);
        cop_user_parse_memberships(text, n, &u);
        ASSERT_EQ(u.group_count, COP_USER_GROUPS_MAX);
}
