#include "lib/test.h"

#include <sys/mount.h>

#include "compare/stack.h"
#include "compare/text.h"
#include "tree-folder.h"

static const char base[] =
        "mkdir -p a/b c d e f/g h keep; echo base >a/x; echo base >a/b/y; echo base >c/z; echo base >d/w; "
        "echo base >e/v; echo base >f/g/u; echo base >top; echo base >h/k; echo base >keep/k; ln -s top link";

static char *at(const char *name)
{
        static char path[16][512];
        static unsigned next;
        char *p = path[next++ % 16];

        snprintf(p, 512, "%s/%s", test_dir(), name);
        return p;
}

/* Runs a script in an overlay, as a sandbox would: what it did is then in the folder `upper`. */
static void change(const char *lower, const char *upper, const char *script)
{
        char options[4096], work[64];

        snprintf(work, sizeof(work), "%s-work", upper);
        close(folder(upper));
        close(folder(work));
        close(folder("live"));
        snprintf(options, sizeof(options), "userxattr,index=off,lowerdir=%s,upperdir=%s,workdir=%s", lower, at(upper),
                 at(work));
        if (mount("overlay", at("live"), "overlay", 0, options) < 0)
                FAIL("overlay: %s", strerror(errno));
        int fd = folder("live");
        run(fd, script);
        close(fd);
        ASSERT_EQ(umount(at("live")), 0);
}

static char seen_text[65536];

/* "+/path" added, "-/path" removed, "~/path:content,mode" changed, one a line. */
static int note(const struct cop_compare_change *c, void *userdata, struct cop_error *err)
{
        size_t n = strlen(seen_text);

        if (!c->a.exists || !c->b.exists)
                snprintf(seen_text + n, sizeof(seen_text) - n, "%c%s\n", c->a.exists ? '-' : '+', c->path);
        else
                snprintf(seen_text + n, sizeof(seen_text) - n, "~%s:%s%s%s%s\n", c->path, c->type ? "type " : "",
                         c->content ? "content " : "", c->mode ? "mode " : "", c->owner ? "owner " : "");
        return 0;
}

/* names: of folders of the test, topmost first, NULL at the end. */
static struct cop_compare compare(const char *const *a, const char *const *b)
{
        struct cop_compare c = {.fn = note, .full_max = 1000};
        struct cop_error err = COP_ERROR_NULL;
        struct cop_compare_stack *stacks[2];
        const char *const *names[] = {a, b};

        for (int i = 0; i < 2; i++) {
                const char *paths[8];
                size_t n = 0;
                for (; names[i][n]; n++)
                        paths[n] = at(names[i][n]);
                ASSERT_OK(cop_compare_open(paths, n, &stacks[i], &err), &err);
        }
        seen_text[0] = '\0';
        ASSERT_OK(cop_compare_run(&c, stacks[0], stacks[1], &err), &err);
        cop_compare_close(stacks[0]);
        cop_compare_close(stacks[1]);
        return c;
}

#define STACK(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST_LIMIT(whiteouts_opaque_folders_and_changes_are_told, 60)
{
        char lower[2048];

        if (geteuid() != 0)
                SKIP("needs root");
        int fd = folder("base");
        run(fd, base);
        close(fd);
        /* c/z is removed; d is replaced by an empty folder (opaque); e becomes a file; top and a/x change; h goes altogether */
        change(at("base"), "one",
               "rm c/z; rm -r d; mkdir d; echo n >d/n; rm -r e; echo f >e; echo other >top; echo more >>a/x; rm -r h; "
               "chmod 700 a; chown 5 keep/k; ln -sfn a link; mkdir -p new/deep; echo n >new/deep/n; touch keep");
        compare(STACK("base"), STACK("one", "base"));
        ASSERT_STR(seen_text, "~/a:mode \n~/a/x:content \n-/c/z\n+/d/n\n-/d/w\n~/e:type \n-/e/v\n-/h\n-/h/k\n"
                              "~/keep/k:owner \n~/link:content \n+/new\n+/new/deep\n+/new/deep/n\n~/top:content \n");
        compare(STACK("one", "base"), STACK("base"));
        ASSERT_STR(seen_text, "~/a:mode \n~/a/x:content \n+/c/z\n-/d/n\n+/d/w\n~/e:type \n+/e/v\n+/h\n+/h/k\n"
                              "~/keep/k:owner \n~/link:content \n-/new\n-/new/deep\n-/new/deep/n\n~/top:content \n");

        /* A third layer takes some of it back, and hides what the second made. */
        snprintf(lower, sizeof(lower), "%s:%s", at("one"), at("base"));
        change(lower, "two",
               "echo base >c/z; rm d/n; echo base >d/w; rm e; mkdir e; echo base >e/v; echo base >top; rm -r new; "
               "mkdir h; echo base >h/k; echo base >a/x; chmod 755 a; chown 0 keep/k; ln -sfn top link");
        compare(STACK("base"), STACK("two", "one", "base"));
        ASSERT_STR(seen_text, "");
        compare(STACK("one", "base"), STACK("two", "one", "base"));
        ASSERT(strstr(seen_text, "-/new/deep/n\n") && strstr(seen_text, "+/h/k\n") && strstr(seen_text, "-/d/n\n"));
}

TEST(what_both_share_is_not_read)
{
        if (geteuid() != 0)
                SKIP("needs root");
        int fd = folder("base");
        run(fd, "mkdir -p big; for i in 1 2 3 4 5 6 7 8 9; do head -c 100000 /dev/urandom >big/$i; done; echo 1 >f");
        close(fd);
        change(at("base"), "one", "echo 2 >f; echo x >g");
        change(at("base"), "two", "echo 3 >f; echo x >g");
        struct cop_compare c = compare(STACK("one", "base"), STACK("two", "base"));
        ASSERT_STR(seen_text, "~/f:content \n");
        ASSERT_EQ(c.bytes, 8); /* f and g, twice */
        ASSERT_EQ(c.unread + c.unopened, 0);
        c = compare(STACK("one", "base"), STACK("one", "base"));
        ASSERT_EQ(c.told + c.bytes, 0);
}

TEST(noise_is_left_out_and_special_files_are_not_opened)
{
        int fd = folder("a");
        close(fd);
        fd = folder("b");
        run(fd, "mkdir -p etc; touch etc/hosts etc/hostname etc/fstab; mkdir -p __pycache__ x/.cache proc dev run/y "
                "u/run .ipython; touch __pycache__/a x/.cache/b proc/c dev/d "
                "run/y/z u/run/kept .ipython/h; mkfifo pipe; ln -s /etc/passwd link; printf 'x' >'new\nline'");
        close(fd);
        compare(STACK("a"), STACK("b"));
        ASSERT_STR(seen_text, "+/etc\n+/etc/fstab\n+/link\n+/new\nline\n+/pipe\n+/u\n+/u/run\n+/u/run/kept\n+/x\n");
        fd = folder("c");
        run(fd, "mkfifo pipe; ln -s /etc/shadow link");
        close(fd);
        compare(STACK("b"), STACK("c"));
        ASSERT(strstr(seen_text, "~/link:content \n") && !strstr(seen_text, "pipe"));
}

TEST(texts)
{
        _cleanup_buf_ struct cop_buf out = COP_BUF(COP_TEXT_DIFF_MAX + 1);
        bool cut = true;

        int fd = folder("t");
        run(fd, "seq 20 >a; seq 20 | sed 's/^7$/seven/' >b; printf 'a\\0b' >binary; printf '\\377' >latin; seq 40000 "
                ">many; "
                "seq 50000 90000 >other; head -c 300000 /dev/zero | tr '\\0' x >large; printf 'no end' >c");
        const char *const names[] = {"a", "b", "binary", "latin", "many", "other", "large", "c"};
        int fds[ELEMENTSOF(names)];
        for (size_t i = 0; i < ELEMENTSOF(names); i++)
                ASSERT_GE(fds[i] = openat(fd, names[i], O_RDONLY | O_CLOEXEC), 0);
        ASSERT_EQ(cop_text_diff(fds[0], fds[1], &out, &cut), 1);
        ASSERT_STR(out.data, "@@ -4,7 +4,7 @@\n 4\n 5\n 6\n-7\n+seven\n 8\n 9\n 10\n");
        ASSERT(!cut);
        for (size_t i = 2; i < ELEMENTSOF(names); i++) {
                cop_buf_clear(&out);
                bool text = i == 4 || i == 5 || i == 7;
                ASSERT_EQ(cop_text_diff(fds[0], fds[i], &out, &cut), text);
                ASSERT_EQ(out.len > 0, text);
                ASSERT_EQ(cut, i == 4 || i == 5);
                ASSERT_LE(out.len, COP_TEXT_DIFF_MAX);
                if (cut)
                        ASSERT_EQ(out.data[out.len - 1], '\n');
                cut = false;
        }
        for (size_t i = 0; i < ELEMENTSOF(names); i++)
                close(fds[i]);
        close(fd);
}
