/* Two engines on one machine, each with a store of its own, and one file of claims. */
#include "engine-driver.h"

#include "engine/uids.h"

struct daemon {
        struct cop_loop *loop;
        struct cop_engine *engine;
};

static struct daemon start(const char *name, unsigned slots)
{
        struct daemon d = {0};
        struct cop_error err = COP_ERROR_NULL;
        char home[400], claims[400];

        snprintf(home, sizeof(home), "%s/%s", test_dir(), name);
        snprintf(claims, sizeof(claims), "%s/run/uids", test_dir());
        const struct cop_engine_config config = {.home = home,
                                                 .keeper_path = "/bin/false",
                                                 .image_tool = "/bin/false",
                                                 .recipes = home,
                                                 .slots = slots,
                                                 .uid_claims = claims};
        ASSERT_OK(cop_loop_new(&d.loop, &err), &err);
        ASSERT_OK(cop_engine_new(d.loop, &config, &d.engine, &err), &err);
        return d;
}

static void stop(struct daemon *d)
{
        cop_engine_free(d->engine);
        cop_loop_free(d->loop);
}

static void add_row(struct daemon *d, const char *id, unsigned slot)
{
        struct cop_sandbox_row row = {.state = "running", .image_id = "im_a", .slot = slot, .created_at = 1};
        struct cop_error err = COP_ERROR_NULL;

        snprintf(row.id, sizeof(row.id), "%s", id);
        ASSERT_OK(cop_store_sandbox_insert(d->engine->store, &row, &err), &err);
}

TEST(two_daemons_never_share_a_range)
{
        struct daemon a = start("a", 3), b = start("b", 3);
        struct cop_error err = COP_ERROR_NULL;
        int fds[3] = {-EBADF, -EBADF, -EBADF}, late = -EBADF;
        unsigned slot = 0;

        ASSERT_EQ(cop_uids_claimed(a.engine, &err), 0);
        add_row(&a, "sb_a0", 0);
        ASSERT_OK(cop_uids_take(a.engine, &slot, &fds[0], &err), &err);
        ASSERT_EQ(slot, 0);
        add_row(&b, "sb_b0", 0);
        ASSERT_OK(cop_uids_take(b.engine, &slot, &fds[1], &err), &err);
        ASSERT_EQ(slot, 1);
        /* The first choice is the last slot, taken: the search goes on from the beginning. */
        slot = 2;
        ASSERT_OK(cop_uids_take(a.engine, &slot, &fds[2], &err), &err);
        ASSERT_EQ(slot, 2);
        ASSERT_EQ(cop_uids_claimed(b.engine, &err), 3);
        ASSERT_CODE(cop_uids_take(b.engine, &slot, &late, &err), &err, COP_ERR_too_many);
        ASSERT_CONTAINS(err.message, "another daemon");
        ASSERT_EQ(slot, 2);
        cop_close(fds[0]);
        ASSERT_CODE(cop_uids_take(b.engine, &slot, &late, &err), &err, COP_ERR_too_many); /* 0 is sb_b0's row */
        ASSERT_OK(cop_store_sandbox_ended(b.engine->store, "sb_b0", 1, "removed", false, &err), &err);
        ASSERT_OK(cop_uids_take(b.engine, &slot, &late, &err), &err);
        ASSERT_EQ(slot, 0);
        cop_close(late);
        cop_close(fds[1]);
        cop_close(fds[2]);
        stop(&a);
        stop(&b);
}

/* The keeper's copy keeps the claim when the daemon is gone. */
TEST(a_claim_lasts_as_long_as_a_copy_of_its_descriptor)
{
        struct daemon a = start("a", 1), b = start("b", 1);
        struct cop_error err = COP_ERROR_NULL;
        int fd = -EBADF, other = -EBADF;
        unsigned slot = 0;

        ASSERT_OK(cop_uids_take(a.engine, &slot, &fd, &err), &err);
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        ASSERT_GE(copy, 0);
        cop_close(fd);
        stop(&a);
        ASSERT_CODE(cop_uids_take(b.engine, &slot, &other, &err), &err, COP_ERR_too_many);
        cop_close(copy);
        ASSERT_OK(cop_uids_take(b.engine, &slot, &other, &err), &err);
        cop_close(other);
        stop(&b);
}

TEST(claims_that_cannot_be_kept_are_an_error_with_the_path)
{
        struct daemon a = start("a", 1);
        struct cop_error err = COP_ERROR_NULL;
        unsigned slot = 0;
        int fd = -EBADF;
        char dir[400];

        snprintf(dir, sizeof(dir), "%s/run", test_dir());
        ASSERT_OK(cop_write_file_atomic(AT_FDCWD, dir, "", 0, 0600, &err), &err);
        ASSERT(cop_uids_take(a.engine, &slot, &fd, &err) < 0);
        ASSERT_CONTAINS(err.message, "/run");
        ASSERT(cop_uids_claimed(a.engine, &err) < 0);
        stop(&a);
}
