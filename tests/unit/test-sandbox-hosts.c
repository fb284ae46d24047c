#include "lib/test.h"

#include <stdlib.h>

#include "sandbox/hosts.h"

static void expect(const char *old, const char *name, const char *wanted)
{
        int changed = -1;
        char *text = cop_hosts_text(old, name, &changed);

        ASSERT_STR(text, wanted);
        ASSERT_EQ(changed, strcmp(old, wanted) != 0);
        free(text);
}

TEST(the_own_name_is_added_once)
{
        expect("127.0.0.1 localhost\n", "one", "127.0.0.1 localhost\n127.0.1.1\tone # coppice\n");
        expect("127.0.0.1 localhost\n127.0.1.1\tone # coppice\n", "one",
               "127.0.0.1 localhost\n127.0.1.1\tone # coppice\n");
        expect("127.0.0.1 localhost\n127.0.1.1\tone # coppice\n", "two",
               "127.0.0.1 localhost\n127.0.1.1\ttwo # coppice\n");
}

TEST(lines_of_the_user_stay)
{
        expect("10.0.0.1 db\n127.0.0.1 localhost\n127.0.1.1\ta # coppice\n10.0.0.2 cache # mine", "b",
               "10.0.0.1 db\n127.0.0.1 localhost\n10.0.0.2 cache # mine\n127.0.1.1\tb # coppice\n");
}

TEST(a_missing_localhost_is_added)
{
        expect("", "x", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n127.0.1.1\tx # coppice\n");
}
