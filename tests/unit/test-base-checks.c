#include "lib/test.h"

#include <string.h>

#include "base/checks.h"
#include "base/json.h"

static const char *text_of(json_t *list, size_t i, const char *key)
{
        return json_string_value(json_object_get(json_array_get(list, i), key));
}

TEST(lines_become_checks)
{
        static const char text[] = "kernel\tok\tneeded\tLinux 6.1\t\n"
                                   "cgroup\tfails\tneeded\tnone \xff\tmount it\n"
                                   "open_files\tfails\toptional\tfew\traise it\n";
        _cleanup_json_ json_t *list = cop_checks_parse(text, strlen(text));

        ASSERT_EQ(json_array_size(list), 3);
        ASSERT_STR(text_of(list, 0, "name"), "kernel");
        ASSERT(json_is_true(json_object_get(json_array_get(list, 0), "ok")));
        ASSERT(json_is_true(json_object_get(json_array_get(list, 0), "needed")));
        ASSERT(json_is_null(json_object_get(json_array_get(list, 0), "remedy")));
        ASSERT_STR(text_of(list, 1, "detail"), "none \xef\xbf\xbd");
        ASSERT_STR(text_of(list, 1, "remedy"), "mount it");
        ASSERT(json_is_false(json_object_get(json_array_get(list, 1), "ok")));
        ASSERT(json_is_false(json_object_get(json_array_get(list, 2), "needed")));
}

TEST(what_is_no_check_is_left_out)
{
        static const char text[] =
                "\nkernel\n\tok\tneeded\td\tr\na\tok\tneeded\td\tr\textra\nb\tok\tneeded\td\tr\ncut\tok\tnee";
        _cleanup_json_ json_t *list = cop_checks_parse(text, strlen(text));

        ASSERT_EQ(json_array_size(list), 1);
        ASSERT_STR(text_of(list, 0, "name"), "b");
        _cleanup_json_ json_t *none = cop_checks_parse("", 0);
        ASSERT_EQ(json_array_size(none), 0);
}
