#include "lib/test.h"

#include <sys/mount.h>

#include "keeper/merge.h"
#include "tree-model.h"

static const char base[] =
        "mkdir -p a/b c d e f/g h i; echo base >a/x; echo base >a/b/y; echo base >c/z; echo base >d/w; echo base >e/v; "
        "echo base >f/g/u; echo base >top; echo base >h/k; echo base >i/l; ln -s top link";

/* Two sandboxes after each other: what each leaves in its upper directory. */
static const char first[] = "echo one >a/x; rm c/z; rm -r d; echo file >d; rm -r e; mkdir e; echo new >e/n; mkdir n; "
                            "echo n >n/n; ln n/n n/m; "
                            "rm -r h; rm -r i; mkdir i; echo i1 >i/i1; chmod 700 a; setfattr -n user.k -v 1 a/b";
static const char second[] =
        "echo two >>a/x; rm top; rm d; mkdir d; echo d >d/q; echo more >e/m; rm n/n; rm -r f/g; mkdir f/g; echo s "
        ">f/g/t; "
        "mkdir h; echo h2 >h/h2; ln a/x a/hard; rm i/i1; echo z >c/z; touch -h -d '2003-01-01' link; mkfifo p";

static char *at(const char *name)
{
        static char path[8][512];
        static unsigned next;
        char *p = path[next++ % 8];

        snprintf(p, 512, "%s/%s", test_dir(), name);
        return p;
}

static void overlay(const char *name, const char *lower, const char *upper)
{
        char options[4096];

        close(folder(name));
        if (upper) {
                close(folder(upper));
                char work[64];
                snprintf(work, sizeof(work), "%s-work", upper);
                close(folder(work));
                snprintf(options, sizeof(options), "userxattr,index=off,lowerdir=%s,upperdir=%s,workdir=%s", lower,
                         at(upper), at(work));
        } else {
                snprintf(options, sizeof(options), "userxattr,lowerdir=%s", lower);
        }
        if (mount("overlay", at(name), "overlay", 0, options) < 0)
                FAIL("overlay: %s", strerror(errno));
}

static void change(const char *lower, const char *upper, const char *script)
{
        overlay("live", lower, upper);
        int fd = folder("live");
        run(fd, script);
        close(fd);
        ASSERT_EQ(umount(at("live")), 0);
}

TEST_LIMIT(a_merged_stack_shows_the_same, 60)
{
        struct cop_error err = COP_ERROR_NULL;
        char lower[2048];

        if (geteuid() != 0)
                SKIP("needs root");
        int fd = folder("base");
        run(fd, base);
        close(fd);
        change(at("base"), "one", first);
        snprintf(lower, sizeof(lower), "%s:%s", at("one"), at("base"));
        change(lower, "two", second);
        int one = folder("one"), two = folder("two"), merged = folder("merged");
        ASSERT_OK(cop_layer_merge(two, one, merged, &err), &err);
        close(one);
        close(two);
        close(merged);
        snprintf(lower, sizeof(lower), "%s:%s:%s", at("two"), at("one"), at("base"));
        overlay("show1", lower, NULL);
        snprintf(lower, sizeof(lower), "%s:%s", at("merged"), at("base"));
        overlay("show2", lower, NULL);
        int a = folder("show1"), b = folder("show2");
        same(a, b);
        struct stat x, y;
        ASSERT_EQ(fstatat(b, "i/i1", &x, 0), -1);
        ASSERT_EQ(fstatat(b, "h/k", &x, 0), -1);
        ASSERT_EQ(fstatat(b, "a/x", &x, 0), 0);
        ASSERT_EQ(fstatat(b, "a/hard", &y, 0), 0);
        ASSERT_EQ(x.st_ino, y.st_ino);
        close(a);
        close(b);
        ASSERT_EQ(umount(at("show1")), 0);
        ASSERT_EQ(umount(at("show2")), 0);
}

/* Five layers, the last two what a third and a fourth sandbox left. */
TEST_LIMIT(a_merged_stack_of_many_shows_the_same, 60)
{
        static const char *const scripts[] = {first, second,
                                              "rm -r h i; mkdir h; echo h3 >h/h3; echo three >a/x; rm -r n",
                                              "mkdir n; echo 4 >n/n; rm -r h", "echo 5 >>a/x; mkdir h; mv c/z h/z"};
        static const char *const names[] = {"l0", "l1", "l2", "l3", "l4"};
        const char *layers[5];
        char paths[5][512];
        struct cop_error err = COP_ERROR_NULL;
        char lower[4096] = "", stack[4096];
        struct stat st;

        if (geteuid() != 0)
                SKIP("needs root");
        int fd = folder("base");
        run(fd, base);
        close(fd);
        snprintf(lower, sizeof(lower), "%s", at("base"));
        for (int i = 0; i < 5; i++) {
                change(lower, names[i], scripts[i]);
                snprintf(stack, sizeof(stack), "%s:%s", at(names[i]), lower);
                memcpy(lower, stack, sizeof(lower));
        }
        for (int i = 0; i < 5; i++)
                layers[i] = strcpy(paths[i], at(names[4 - i]));
        close(folder("flat.partial")); /* one that was cut off */
        close(folder("flat.partial/7"));
        ASSERT_OK(cop_layer_merge_stack(layers, 5, at("flat"), &err), &err);
        ASSERT_EQ(stat(at("flat.partial"), &st), -1);
        ASSERT_OK(cop_layer_merge_stack(layers, 5, at("flat"), &err), &err); /* there already */
        overlay("show1", lower, NULL);
        snprintf(lower, sizeof(lower), "%s:%s", at("flat"), at("base"));
        overlay("show2", lower, NULL);
        int a = folder("show1"), b = folder("show2");
        same(a, b);
        close(a);
        close(b);
        ASSERT_EQ(umount(at("show1")), 0);
        ASSERT_EQ(umount(at("show2")), 0);
        layers[2] = at("missing");
        ASSERT_EQ(cop_layer_merge_stack(layers, 5, at("other"), &err), -ENOENT);
        ASSERT_EQ(stat(at("other"), &st), -1);
        ASSERT_EQ(stat(at("other.partial"), &st), -1);
}

TEST(redirects_are_refused)
{
        struct cop_error err = COP_ERROR_NULL;

        if (geteuid() != 0)
                SKIP("needs root");
        int one = folder("one"), two = folder("two"), merged = folder("merged");
        run(two, "mkdir d; setfattr -n user.overlay.redirect -v /x d 2>/dev/null || python3 -c 'import os; "
                 "os.setxattr(\"d\",\"user.overlay.redirect\",b\"/x\")'");
        ASSERT_EQ(cop_layer_merge(two, one, merged, &err), -EOPNOTSUPP);
        ASSERT_EQ(err.code, COP_ERR_unsupported);
        close(one);
        close(two);
        close(merged);
}
