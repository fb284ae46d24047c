/* Trees as packs and back, without the daemon: what a sandbox can leave in a layer. */
#include "lib/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "pack/members.h"
#include "pack/read.h"
#include "pack/write.h"
#include "tree-model.h"

static const char script[] =
        "mkdir -p a/b/c opaque locked; echo x >a/f; ln a/f a/b/g; ln -s /etc/passwd a/link; mkfifo a/fifo; "
        "mknod gone c 0 0; ln gone a/b/gone; setfattr -n user.overlay.opaque -v y opaque; : >empty; "
        "echo s >suid; chown 1000:1001 suid; chmod 4755 suid; truncate -s 300M hole; echo end >>hole; "
        "truncate -s 1M nothing; setfattr -n user.k -v '' a/f; "
        "setfattr -n security.capability -v 0x0100000200000000000000000000000000000000 a/f; "
        "setfattr -n system.posix_acl_access "
        "-v 0x0200000001000700ffffffff020004000500000004000500ffffffff10000500ffffffff20000500ffffffff a; "
        "echo l >locked/l; chmod 000 locked; touch -h -d 2003-01-01 a/link; touch -d '1960-01-01 00:00:00.5' a/b; "
        "chown -h 5:6 a/link";

static void pack_to(const char *file, const int *layers, size_t count)
{
        _cleanup_close_ int out = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        const struct cop_pack_job job = {.node_fd = layers[0],
                                         .layer_fds = layers,
                                         .layers = count,
                                         .manifest = count == 2
                                                             ? "{\"coppice_pack\": 1, \"layers\": 2, \"image\": "
                                                               "{\"digest\": \"d\"}, \"node\": {\"kind\": \"files\"}}"
                                                             : "{\"coppice_pack\": 1, \"layers\": 1, \"image\": "
                                                               "{\"digest\": \"d\"}, \"node\": {\"kind\": \"files\"}}",
                                         .out_fd = out};
        struct cop_error err;

        ASSERT_OK(cop_pack_write(&job, &err), &err);
}

static int unpack_from(const char *file, int root_fd, struct cop_error *err)
{
        _cleanup_close_ int in = open(file, O_RDONLY | O_CLOEXEC);
        _cleanup_json_ json_t *images = json_pack("[s]", "d");
        const struct cop_unpack_job job = {.in_fd = in, .root_fd = root_fd, .images = images};

        return cop_pack_read(&job, err);
}

TEST_LIMIT(a_tree_comes_back_as_it_was, 60)
{
        struct cop_error err;
        char file[300];

        if (geteuid() != 0)
                SKIP("only root can make files of others");
        snprintf(file, sizeof(file), "%s/pack", test_dir());
        _cleanup_close_ int from = folder("from"), below = folder("lower"), to = folder("to");
        run(from, script);
        run(below, "mkdir d; echo lower >d/f");
        pack_to(file, (const int[]){from, below}, 2);
        struct stat st;
        ASSERT_EQ(stat(file, &st), 0);
        ASSERT_LT(st.st_size, 20000); /* 300 MiB of nothing */
        ASSERT_OK(unpack_from(file, to, &err), &err);
        _cleanup_close_ int layer = openat(to, "layer", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                            second = openat(to, "below/1", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ASSERT_GE(layer, 0);
        same(from, layer);
        same(below, second);
        ASSERT_EQ(fstatat(layer, "hole", &st, 0), 0);
        ASSERT_LT(st.st_blocks, 100);
}

TEST(a_folder_that_is_not_empty_is_not_written_over)
{
        struct cop_error err;
        char file[300];

        if (geteuid() != 0)
                SKIP("only root can give files their owners");
        snprintf(file, sizeof(file), "%s/pack", test_dir());
        _cleanup_close_ int from = folder("from"), to = folder("to");
        run(from, "echo new >f");
        pack_to(file, (const int[]){from}, 1);
        run(to, "mkdir layer; echo old >layer/f");
        ASSERT_CODE(unpack_from(file, to, &err), &err, COP_ERR_pack_damaged);
        ASSERT_CONTAINS(err.message, "comes twice");
        run(to, "grep -q old layer/f");
}

TEST(ranges_are_joined)
{
        struct cop_ranges r = {.list = calloc(300000, sizeof(*r.list))};

        for (size_t i = 0; i < 5; i++)
                r.list[r.count++] = (struct cop_range){(4 - i) * 100, i == 2 ? 250 : 50};
        cop_ranges_tidy(&r); /* 0-50 100-150 200-450 swallows 300-350 400-450 */
        ASSERT_EQ(r.count, 3);
        ASSERT_EQ(r.list[2].offset, 200);
        ASSERT_EQ(r.list[2].length, 250);
        r.count = 0;
        for (size_t i = 0; i < 300000; i++)
                r.list[r.count++] = (struct cop_range){i * 8192, 4096};
        cop_ranges_tidy(&r); /* more than an archive should list */
        ASSERT_EQ(r.count, 1);
        ASSERT_EQ(r.list[0].length, 299999ULL * 8192 + 4096);
        cop_ranges_done(&r);
}
