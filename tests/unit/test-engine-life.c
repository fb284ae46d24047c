/* Sandboxes from create to end with the real keeper, on an image given by $COPPICE_TEST_IMAGE (a folder with rootfs and
 * image.json).  tools/run-checks.py runs it once more with one, as the suite engine-life. */
#include "engine-driver.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "engine/sandbox.h"
#include "engine/uids.h"
#include "sandbox/cgroup.h"

static void find_image(char path[static 400])
{
        const char *env = getenv("COPPICE_TEST_IMAGE");
        _cleanup_free_ char *real = NULL;

#ifdef __SANITIZE_ADDRESS__
        SKIP("a sanitized coppice-init needs the host's libraries, which no sandbox has");
#endif
        if (geteuid() != 0)
                SKIP("needs root");
        if (!env)
                SKIP("no image to test with: set COPPICE_TEST_IMAGE");
        real = realpath(env, NULL);
        if (!real)
                SKIP("no image at %s", env);
        snprintf(path, 400, "%s", real);
}

static void add_image(struct engine_fixture *f)
{
        _cleanup_free_ char *info = NULL;
        struct cop_image_row row = {.id = "im_test", .name = (char *)"test", .created_at = 1};
        struct cop_error err;
        char path[400], file[420];
        size_t n;

        find_image(path);
        if (access(f->keeper, X_OK) < 0)
                SKIP("no keeper at %s", f->keeper);
        snprintf(file, sizeof(file), "%s/image.json", path);
        ASSERT_OK(cop_read_file(AT_FDCWD, file, 16 << 20, &info, &n, &err), &err);
        row.path = path;
        row.info = info;
        ASSERT_OK(cop_store_image_insert(f->engine->store, &row, &err), &err);
}

static void open_with_image(struct engine_fixture *f)
{
        engine_open(f);
        add_image(f);
}

static void create(struct engine_fixture *f, const char *name, usec_t ttl, struct answer *a)
{
        struct cop_sandbox_params p = {.name = name, .image = "test", .ttl = ttl};
        struct cop_op *op;

        cop_sandbox_create(f->engine, &p, answer_to(a), &op);
        wait_answer(f, a);
}

static void remove_it(struct engine_fixture *f, const char *ref, struct answer *a)
{
        struct cop_op *op;

        cop_sandbox_remove(f->engine, ref, answer_to(a), &op);
        wait_answer(f, a);
}

static bool exists(struct engine_fixture *f, const char *id, const char *what)
{
        char path[500];

        snprintf(path, sizeof(path), "%s/sandboxes/%s%s", f->home, id, what);
        return access(path, F_OK) == 0;
}

/* Living processes in the cgroup of a sandbox.  (The harness adopts orphans and reaps them late.) */
static unsigned count_processes(const char *id)
{
        _cleanup_closedir_ DIR *dir = opendir("/proc");
        struct dirent *entry;
        unsigned n = 0;

        while ((entry = readdir(dir))) {
                _cleanup_free_ char *text = NULL;
                char path[300];
                snprintf(path, sizeof(path), "/proc/%s/cgroup", entry->d_name);
                if (cop_read_word(AT_FDCWD, path, &text, NULL) < 0 || !strstr(text, id))
                        continue;
                _cleanup_free_ char *stat = NULL;
                snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
                n += cop_read_word(AT_FDCWD, path, &stat, NULL) == 0 && !strstr(stat, ") Z ");
        }
        return n;
}

TEST(created_used_and_removed)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, got = {0}, gone = {0}, late = {0};
        struct cop_op *op;
        char id[COP_ID_MAX];

        open_with_image(&f);
        create(&f, "demo", USEC_INFINITY, &a);
        assert_good(&a);
        snprintf(id, sizeof(id), "%s", text_of(&a, "id"));
        ASSERT_STR(text_of(&a, "state"), "running");
        ASSERT_STR(text_of(&a, "name"), "demo");
        ASSERT(json_number_value(json_object_get(a.result, "start_ms")) > 0);
        ASSERT(exists(&f, id, "/fs/upper"));

        cop_sandbox_get(f.engine, "demo", true, answer_to(&got), &op);
        wait_answer(&f, &got);
        assert_good(&got);
        ASSERT_GT(json_integer_value(json_object_get(json_object_get(got.result, "usage"), "memory_bytes")), 0);

        remove_it(&f, "demo", &gone);
        assert_good(&gone);
        ASSERT_STR(text_of(&gone, "state"), "ended");
        ASSERT_STR(text_of(&gone, "ended_reason"), "removed");
        ASSERT(!exists(&f, id, ""));
        remove_it(&f, id, &late);
        ASSERT_EQ(late.err.code, COP_ERR_sandbox_ended);
        engine_close(&f);
}

TEST(a_second_engine_takes_the_sandbox_over)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, got = {0}, gone = {0};
        struct cop_op *op;

        open_with_image(&f);
        create(&f, "demo", USEC_INFINITY, &a);
        assert_good(&a);
        f.engine = cop_engine_free(f.engine);
        ASSERT_GT(count_processes(text_of(&a, "id")), 0);
        engine_open(&f);
        /* Before the keeper has answered: requests wait. */
        json_t *patch = json_pack("{s:{s:s}}", "labels", "a", "b");
        cop_sandbox_update(f.engine, "demo", patch, answer_to(&got), &op);
        json_decref(patch);
        ASSERT_EQ(got.calls, 0);
        wait_answer(&f, &got);
        assert_good(&got);
        ASSERT_STR(text_of(&got, "state"), "running");
        ASSERT_STR(text_of(&got, "id"), text_of(&a, "id"));
        remove_it(&f, "demo", &gone);
        assert_good(&gone);
        engine_close(&f);
}

TEST(a_keeper_that_was_killed_ends_its_sandbox)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, got = {0}, again = {0}, gone = {0};
        char id[COP_ID_MAX];
        struct cop_op *op;

        open_with_image(&f);
        create(&f, "demo", USEC_INFINITY, &a);
        assert_good(&a);
        snprintf(id, sizeof(id), "%s", text_of(&a, "id"));
        cop_keeper_kill(f.engine->sandboxes->keeper);
        while (f.engine->sandboxes)
                ASSERT_OK(cop_loop_turn(f.loop, USEC_PER_SEC), NULL);
        cop_sandbox_get(f.engine, id, false, answer_to(&got), &op);
        wait_answer(&f, &got);
        assert_good(&got);
        ASSERT_STR(text_of(&got, "ended_reason"), "keeper_died");
        ASSERT(!exists(&f, id, "/fs"));
        ASSERT(exists(&f, id, "/logs"));
        ASSERT_EQ(count_processes(id), 0);
        /* The name is free; removing the ended one clears its logs. */
        create(&f, "demo", USEC_INFINITY, &again);
        assert_good(&again);
        remove_it(&f, id, &gone);
        assert_good(&gone);
        ASSERT(!exists(&f, id, ""));
        answer_done(&gone);
        remove_it(&f, "demo", &gone);
        assert_good(&gone);
        engine_close(&f);
}

TEST(a_keeper_that_died_while_no_engine_ran)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, got = {0};
        char id[COP_ID_MAX];
        struct cop_op *op;

        open_with_image(&f);
        create(&f, NULL, USEC_INFINITY, &a);
        assert_good(&a);
        snprintf(id, sizeof(id), "%s", text_of(&a, "id"));
        cop_keeper_kill(f.engine->sandboxes->keeper);
        f.engine = cop_engine_free(f.engine);
        while (count_processes(id) > 0)
                usleep(1000);
        engine_open(&f);
        while (f.engine->sandboxes)
                ASSERT_OK(cop_loop_turn(f.loop, USEC_PER_SEC), NULL);
        cop_sandbox_get(f.engine, id, false, answer_to(&got), &op);
        wait_answer(&f, &got);
        ASSERT_STR(text_of(&got, "ended_reason"), "keeper_died");
        engine_close(&f);
}

TEST(the_ttl_ends_it)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, got = {0};
        char id[COP_ID_MAX];
        struct cop_op *op;

        open_with_image(&f);
        create(&f, NULL, 300 * USEC_PER_MSEC, &a);
        assert_good(&a);
        snprintf(id, sizeof(id), "%s", text_of(&a, "id"));
        ASSERT(text_of(&a, "expires_at") != NULL);
        while (f.engine->sandboxes)
                ASSERT_OK(cop_loop_turn(f.loop, USEC_PER_SEC), NULL);
        cop_sandbox_get(f.engine, id, false, answer_to(&got), &op);
        wait_answer(&f, &got);
        ASSERT_STR(text_of(&got, "ended_reason"), "ttl");
        engine_close(&f);
}

TEST(limits_change_while_it_runs)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, got = {0}, bad = {0}, gone = {0};
        struct cop_op *op;

        open_with_image(&f);
        create(&f, "demo", USEC_INFINITY, &a);
        assert_good(&a);
        json_t *patch = json_pack("{s:s, s:f, s:i, s:s}", "memory", "512M", "cpus", 0.5, "pids", 99, "name", "other");
        cop_sandbox_update(f.engine, "demo", patch, answer_to(&got), &op);
        json_decref(patch);
        wait_answer(&f, &got);
        assert_good(&got);
        json_t *limits = json_object_get(got.result, "limits");
        ASSERT_EQ(json_integer_value(json_object_get(limits, "memory_bytes")), 512 << 20);
        ASSERT_EQ(json_integer_value(json_object_get(limits, "pids")), 99);
        ASSERT_STR(text_of(&got, "name"), "other");
        patch = json_pack("{s:s, s:s}", "memory", "1M", "name", "third");
        cop_sandbox_update(f.engine, "other", patch, answer_to(&bad), &op);
        json_decref(patch);
        wait_answer(&f, &bad);
        ASSERT_EQ(bad.err.code, COP_ERR_bad_request);
        ASSERT_CONTAINS(bad.err.message, "memory");
        remove_it(&f, "other", &gone);
        assert_good(&gone);
        engine_close(&f);
}

TEST(names_and_images_are_checked_first)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, twin = {0}, odd = {0}, none = {0}, gone = {0};
        struct cop_sandbox_params p = {.image = "nope", .ttl = USEC_INFINITY};
        struct cop_op *op;

        open_with_image(&f);
        create(&f, "demo", USEC_INFINITY, &a);
        assert_good(&a);
        create(&f, "demo", USEC_INFINITY, &twin);
        ASSERT_EQ(twin.err.code, COP_ERR_name_taken);
        create(&f, "a/b", USEC_INFINITY, &odd);
        ASSERT_EQ(odd.err.code, COP_ERR_bad_request);
        cop_sandbox_create(f.engine, &p, answer_to(&none), &op);
        ASSERT_EQ(op, NULL);
        wait_answer(&f, &none);
        ASSERT_EQ(none.err.code, COP_ERR_image_not_found);
        ASSERT_CONTAINS(none.err.message, "coppice image build");
        cop_sandbox_remove_all(f.engine, answer_to(&gone), &op);
        wait_answer(&f, &gone);
        assert_good(&gone);
        ASSERT_EQ(json_array_size(json_object_get(gone.result, "removed")), 1);
        engine_close(&f);
}

TEST(a_start_that_fails_leaves_nothing)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0};
        struct cop_image_row row = {
                .id = "im_bad", .name = (char *)"test", .path = (char *)"/nonexistent", .created_at = 1};
        struct cop_error err;

        row.info = (char *)"{\"version\":1,\"kernelspecs\":[],\"defaults\":{\"user\":\"root\",\"uid\":0,\"gid\":0,"
                           "\"workdir\":\"/\"}}";
        engine_open(&f);
        if (geteuid() != 0 || access(f.keeper, X_OK) < 0)
                SKIP("needs root and the keeper");
        ASSERT_OK(cop_store_image_insert(f.engine->store, &row, &err), &err);
        create(&f, "demo", USEC_INFINITY, &a);
        ASSERT(a.result == NULL);
        ASSERT_CONTAINS(a.err.message, "could not be started");
        while (f.engine->sandboxes)
                ASSERT_OK(cop_loop_turn(f.loop, USEC_PER_SEC), NULL);
        wait_durable(&f);
        char path[400];
        snprintf(path, sizeof(path), "%s/sandboxes", f.home);
        ASSERT_OK(rmdir(path), NULL); /* empty */
        engine_close(&f);
}

TEST(removed_while_it_starts)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, gone = {0}, twin = {0}, left = {0};
        struct cop_sandbox_params p = {.name = "demo", .image = "test", .ttl = USEC_INFINITY};
        struct cop_op *op, *remove;

        open_with_image(&f);
        cop_sandbox_create(f.engine, &p, answer_to(&a), &op);
        ASSERT_EQ(a.calls, 0);
        cop_sandbox_remove(f.engine, "demo", answer_to(&gone), &remove);
        ASSERT_EQ(a.err.code, COP_ERR_sandbox_ended);
        /* The name is free before the old one is quite gone. */
        create(&f, "demo", USEC_INFINITY, &twin);
        assert_good(&twin);
        wait_answer(&f, &gone);
        assert_good(&gone);
        ASSERT_EQ(count_processes(text_of(&gone, "id")), 0);
        ASSERT(!exists(&f, text_of(&gone, "id"), ""));

        /* Who leaves before the answer leaves no sandbox behind. */
        p.name = "other";
        cop_sandbox_create(f.engine, &p, answer_to(&left), &op);
        cop_op_cancel(op);
        while (f.engine->sandboxes->next)
                ASSERT_OK(cop_loop_turn(f.loop, USEC_PER_SEC), NULL);
        ASSERT_EQ(left.calls, 0);
        ASSERT_STR(f.engine->sandboxes->id, text_of(&twin, "id"));
        answer_done(&gone);
        remove_it(&f, "demo", &gone);
        assert_good(&gone);
        engine_close(&f);
}

/* -- prepared ------------------------------------------------------------------------------------------------------ */

/* The keeper has done what PREPARE asks for: its first process waits in the cgroup. */
static void wait_prepared(struct engine_fixture *f, const char *id)
{
        for (int i = 0; count_processes(id) == 0; i++) {
                ASSERT_LT(i, 1000);
                ASSERT_OK(cop_loop_turn(f->loop, 10 * USEC_PER_MSEC), NULL);
        }
}

static void wait_gone(struct engine_fixture *f, const char *id)
{
        while (f->engine->adoptions || exists(f, id, ""))
                ASSERT_OK(cop_loop_turn(f->loop, 10 * USEC_PER_MSEC), NULL);
        ASSERT_EQ(count_processes(id), 0);
        ASSERT_OK(cop_cgroup_cleanup(id, 0, NULL), NULL);
}

static struct cop_sandbox *prepare(struct engine_fixture *f, const char *source, char id[static COP_ID_MAX])
{
        struct cop_sandbox *p = cop_sandbox_prepare(f->engine, cop_sandbox_by_ref(f->engine, source)->row);

        ASSERT(p);
        snprintf(id, COP_ID_MAX, "%s", p->id);
        wait_prepared(f, id);
        return p;
}

TEST(what_was_prepared_becomes_the_sandbox)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, b = {0}, list = {0}, other = {0}, garbage = {0}, gone = {0};
        struct cop_sandbox_params p = {.name = "copy", .image = "test", .ttl = USEC_INFINITY};
        struct cop_op *op;
        char id[COP_ID_MAX];

        open_with_image(&f);
        create(&f, "demo", USEC_INFINITY, &a);
        assert_good(&a);
        p.prepared = prepare(&f, "demo", id);

        /* Nobody sees it, nothing takes it for garbage, and its uid range is taken. */
        cop_sandbox_list(f.engine, NULL, answer_to(&list));
        ASSERT_EQ(json_array_size(json_object_get(list.result, "sandboxes")), 1);
        cop_engine_gc(f.engine, true, answer_to(&garbage), &op);
        wait_answer(&f, &garbage);
        assert_good(&garbage);
        ASSERT_EQ(json_array_size(json_object_get(garbage.result, "items")), 0);
        unsigned slot = p.prepared->row->slot;
        create(&f, "other", USEC_INFINITY, &other);
        assert_good(&other);
        ASSERT(cop_sandbox_by_ref(f.engine, "other")->row->slot != slot);

        cop_sandbox_create(f.engine, &p, answer_to(&b), &op);
        ASSERT(!f.engine->prepared);
        wait_answer(&f, &b);
        assert_good(&b);
        ASSERT_STR(text_of(&b, "id"), id);
        ASSERT_STR(text_of(&b, "name"), "copy");
        ASSERT_EQ(cop_sandbox_by_ref(f.engine, "copy")->row->slot, slot);
        remove_it(&f, "copy", &gone);
        assert_good(&gone);
        wait_gone(&f, id);
        engine_close(&f);
}

TEST(what_was_prepared_and_does_not_fit_goes)
{
        enum { OTHER_LIMITS, NO_IMAGE, KEEPER_KILLED, UNPREPARED, WAYS };
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0};
        char id[COP_ID_MAX];

        open_with_image(&f);
        create(&f, "demo", USEC_INFINITY, &a);
        assert_good(&a);
        int claims = cop_uids_claimed(f.engine, NULL);
        for (int way = 0; way < WAYS; way++) {
                _cleanup_answer_ struct answer b = {0}, gone = {0};
                struct cop_sandbox_params p = {.name = "copy",
                                               .image = way == NO_IMAGE ? "nowhere" : "test",
                                               .memory = way == OTHER_LIMITS ? 128u << 20 : 0,
                                               .ttl = USEC_INFINITY};
                struct cop_op *op;
                p.prepared = prepare(&f, "demo", id);
                if (way == KEEPER_KILLED) {
                        cop_keeper_kill(p.prepared->keeper);
                        while (p.prepared->keeper)
                                ASSERT_OK(cop_loop_turn(f.loop, 10 * USEC_PER_MSEC), NULL);
                }
                if (way == UNPREPARED) {
                        cop_sandbox_unprepare(p.prepared);
                } else {
                        cop_sandbox_create(f.engine, &p, answer_to(&b), &op);
                        wait_answer(&f, &b);
                }
                ASSERT(!f.engine->prepared);
                wait_gone(&f, id);
                if (way == UNPREPARED)
                        continue;
                ASSERT_EQ(b.result == NULL, way == NO_IMAGE);
                if (!b.result)
                        continue;
                ASSERT(strcmp(text_of(&b, "id"), id) != 0);
                remove_it(&f, text_of(&b, "id"), &gone);
                assert_good(&gone);
        }
        for (int i = 0; cop_uids_claimed(f.engine, NULL) != claims; i++) { /* until its keepers have ended */
                ASSERT_LT(i, 1000);
                ASSERT_OK(cop_loop_turn(f.loop, 10 * USEC_PER_MSEC), NULL);
        }
        engine_close(&f);
}

/* An engine that ends says so to the keeper; one that dies does not, and the next one does. */
TEST(what_was_prepared_goes_with_the_engine)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0};
        char id[2][COP_ID_MAX];

        open_with_image(&f);
        create(&f, "demo", USEC_INFINITY, &a);
        assert_good(&a);
        for (int killed = 0; killed < 2; killed++) {
                struct cop_sandbox *p = prepare(&f, "demo", id[killed]);
                if (killed) { /* as the end of its process: the connection is closed, and nothing is said */
                        p->keeper = cop_keeper_free(p->keeper);
                        f.engine->prepared = NULL;
                        cop_sandbox_drop(p);
                }
                f.engine = cop_engine_free(f.engine);
                ASSERT(exists(&f, id[killed], ""));
                for (int i = 0; !killed && count_processes(id[killed]) > 0; i++) {
                        ASSERT_LT(i, 1000);
                        usleep(10000);
                }
                ASSERT_EQ(count_processes(id[killed]) > 0, killed == 1);
                engine_open(&f);
                wait_gone(&f, id[killed]);
        }
        engine_close(&f);
}

static void turn_until_spare(struct engine_fixture *f, bool there)
{
        for (int i = 0; !f->engine->prepared == there; i++) {
                ASSERT_LT(i, 1000);
                ASSERT_OK(cop_loop_turn(f->loop, 10 * USEC_PER_MSEC), NULL);
        }
}

TEST(the_spare_is_like_the_last_one)
{
        const struct cop_spare_branch branch = {.count = 1};
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0};
        char id[3][COP_ID_MAX], limits[] = "{\"memory_bytes\":134217728}";

        open_with_image(&f);
        create(&f, "demo", USEC_INFINITY, &a);
        assert_good(&a);
        struct cop_sandbox_row row = *cop_sandbox_by_ref(f.engine, "demo")->row, other = row;
        other.limits = limits;
        cop_spare_make_like(f.engine, &row, &branch);
        turn_until_spare(&f, true);
        snprintf(id[0], sizeof(id[0]), "%s", f.engine->prepared->id);
        wait_prepared(&f, id[0]);
        ASSERT(cop_spare_fits(f.engine, &row) && !cop_spare_fits(f.engine, &other));
        ASSERT(!cop_spare_take(f.engine, &other));

        /* One of another kind takes its place. */
        cop_spare_make_like(f.engine, &other, &branch);
        wait_gone(&f, id[0]);
        turn_until_spare(&f, true);
        snprintf(id[1], sizeof(id[1]), "%s", f.engine->prepared->id);
        wait_prepared(&f, id[1]);
        struct cop_sandbox *p = cop_spare_take(f.engine, &other);
        ASSERT(p);
        ASSERT_STR(p->id, id[1]);
        ASSERT(!cop_spare_fits(f.engine, &other));
        cop_sandbox_unprepare(p);
        wait_gone(&f, id[1]);

        /* It goes with the engine. */
        cop_spare_make_like(f.engine, &row, &branch);
        turn_until_spare(&f, true);
        snprintf(id[2], sizeof(id[2]), "%s", f.engine->prepared->id);
        wait_prepared(&f, id[2]);
        f.engine = cop_engine_free(f.engine);
        for (int i = 0; count_processes(id[2]) > 0; i++) {
                ASSERT_LT(i, 1000);
                usleep(10000);
        }
        engine_open(&f);
        wait_gone(&f, id[2]);
        engine_close(&f);
}

/* Fills what is left of the home's disk. */
static void fill_disk(struct engine_fixture *f)
{
        static char block[65536];
        char path[400];

        snprintf(path, sizeof(path), "%s/ballast", f->home);
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
        memset(block, 'x', sizeof(block));
        for (size_t n = sizeof(block); n > 0;)
                if (write(fd, block, n) <= 0)
                        n /= 2;
        close(fd);
}

TEST(a_full_disk_refuses_and_removing_still_works)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, full = {0}, gone = {0}, again = {0}, rest = {0};
        struct cop_op *op;
        char home[300];

        if (geteuid() != 0)
                SKIP("needs root");
        snprintf(home, sizeof(home), "%s/home", test_dir());
        ASSERT_OK(mkdir(home, 0700), NULL);
        if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", home, "tmpfs", 0, "size=16m") < 0)
                SKIP("cannot mount a tmpfs: %s", strerror(errno));
        open_with_image(&f);
        create(&f, "demo", USEC_INFINITY, &a);
        assert_good(&a);
        fill_disk(&f);
        /* The log of the database may still have room for some. */
        for (int i = 0; i < 200 && full.err.code != COP_ERR_disk_full; i++) {
                answer_done(&full);
                create(&f, NULL, USEC_INFINITY, &full);
                if (full.result)
                        remove_it(&f, text_of(&full, "id"), &rest);
                answer_done(&rest);
        }
        ASSERT_EQ(full.err.code, COP_ERR_disk_full);
        remove_it(&f, "demo", &gone);
        assert_good(&gone);
        ASSERT_STR(text_of(&gone, "state"), "ended");
        char path[400];
        snprintf(path, sizeof(path), "%s/ballast", f.home);
        ASSERT_OK(unlink(path), NULL);
        while (f.engine->sandboxes)
                ASSERT_OK(cop_loop_turn(f.loop, USEC_PER_SEC), NULL);
        create(&f, "demo", USEC_INFINITY, &again);
        assert_good(&again);
        cop_sandbox_remove_all(f.engine, answer_to(&rest), &op);
        wait_answer(&f, &rest);
        engine_close(&f);
        umount2(home, MNT_DETACH);
}

TEST_LIMIT(twenty_at_once, 90)
{
        struct engine_fixture f = {0};
        struct answer a[20] = {0};
        _cleanup_answer_ struct answer gone = {0};
        struct cop_sandbox_params p = {.image = "test", .ttl = USEC_INFINITY};
        struct cop_op *op;

        open_with_image(&f);
        usec_t begun = cop_now(CLOCK_MONOTONIC);
        for (size_t i = 0; i < ELEMENTSOF(a); i++)
                cop_sandbox_create(f.engine, &p, answer_to(&a[i]), &op);
        for (size_t i = 0; i < ELEMENTSOF(a); i++) {
                wait_answer(&f, &a[i]);
                assert_good(&a[i]);
        }
        fprintf(stderr, "# 20 sandboxes in %llu ms\n", (unsigned long long)(cop_now(CLOCK_MONOTONIC) - begun) / 1000);
        cop_sandbox_remove_all(f.engine, answer_to(&gone), &op);
        wait_answer(&f, &gone);
        assert_good(&gone);
        ASSERT_EQ(json_array_size(json_object_get(gone.result, "removed")), 20);
        for (size_t i = 0; i < ELEMENTSOF(a); i++) {
                ASSERT_EQ(count_processes(text_of(&a[i], "id")), 0);
                answer_done(&a[i]);
        }
        engine_close(&f);
}
