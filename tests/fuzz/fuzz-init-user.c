/* /etc/passwd and /etc/group of a sandbox, as coppice-init reads them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "init/user.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct cop_user *u)
{
        if (u->group_count > COP_USER_GROUPS_MAX || strnlen(u->name, COP_USER_TEXT_MAX) == COP_USER_TEXT_MAX ||
            strnlen(u->home, COP_USER_TEXT_MAX) == COP_USER_TEXT_MAX ||
            strnlen(u->shell, COP_USER_TEXT_MAX) == COP_USER_TEXT_MAX)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const char *const names[] = {"root", "user", "", "a:b", "x"};
        const char *text = (const char *)data;

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                struct cop_user u = {0};
                gid_t gid = 0;
                cop_user_parse_passwd(text, size, names[i], 0, &u);
                check(&u);
                cop_user_parse_memberships(text, size, &u);
                check(&u);
                cop_user_parse_group(text, size, names[i], &gid);
        }
        struct cop_user by_number = {0};
        cop_user_parse_passwd(text, size, NULL, 1000, &by_number);
        strcpy(by_number.name, "user");
        cop_user_parse_memberships(text, size, &by_number);
        check(&by_number);
        return 0;
}
