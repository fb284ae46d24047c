/* Images against a fake image tool: a shell script that does what the test wants. */
#include "engine-driver.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>

#include "engine/image.h"
#include "engine/sandbox.h"

#define GOOD_JSON                                                                                              \
        "{\"version\":1,\"digest\":\"sha256:abc\",\"size_bytes\":5,\"files\":2,\"os\":{\"id\":\"debian\"},"    \
        "\"packages\":[{\"name\":\"a\",\"version\":\"1\"}],\"python_packages\":[],\"recipe\":{\"id\":\"r1\"}," \
        "\"defaults\":{\"user\":\"user\",\"uid\":1000,\"gid\":1000,\"workdir\":\"/w\",\"env\":{\"A\":\"b\"}}," \
        "\"kernelspecs\":[{\"name\":\"python3\",\"argv\":[\"python3\"],\"language\":\"python\"}]}"

/* $out is OUTDIR.  MAKE makes a whole image, as the real tool: beside, then renamed. */
#define PROLOGUE "#!/bin/sh\nverb=$1 source=$2 out=$3\necho \"$@\" >>\"$0.calls\"\n"
#define RECIPE_ID "[ $verb != recipe-id ] || { echo r1; exit; }\n"
#define MAKE                                                                                                      \
        "mkdir -p $out.partial/rootfs && echo '" GOOD_JSON "' >$out.partial/image.json && mv $out.partial $out\n" \
        "echo '{\"stage\":\"done\",\"message\":\"ready\",\"percent\":100}'\n"

static void set_tool(struct engine_fixture *f, const char *script)
{
        struct cop_error err;

        ASSERT_OK(cop_write_file_atomic(AT_FDCWD, f->tool, script, strlen(script), 0755, &err), &err);
}

static void open_fixture(struct engine_fixture *f, const char *script)
{
        char path[400];

        engine_open(f);
        set_tool(f, script);
        snprintf(path, sizeof(path), "%s/ci", f->recipes);
        struct cop_error err;
        ASSERT_OK(cop_mkdir_p(path, 0755, &err), &err);
        snprintf(path, sizeof(path), "%s/ci/recipe.json", f->recipes);
        ASSERT_OK(cop_write_file_atomic(AT_FDCWD, path, "{}", 2, 0644, &err), &err);
}

static void build(struct engine_fixture *f, bool force, struct answer *a)
{
        struct cop_op *op;

        cop_image_build(f->engine, "ci", NULL, NULL, force, answer_to(a), &op);
        wait_answer(f, a);
        ASSERT_EQ(f->engine->image_jobs, NULL);
}

/* Entries of home/images. */
static unsigned count_folders(struct engine_fixture *f)
{
        _cleanup_closedir_ DIR *dir = NULL;
        char path[400];
        struct dirent *entry;
        unsigned n = 0;

        snprintf(path, sizeof(path), "%s/images", f->home);
        dir = opendir(path);
        while ((entry = readdir(dir)))
                n += entry->d_name[0] != '.';
        return n;
}

static unsigned count_calls(struct engine_fixture *f)
{
        _cleanup_free_ char *text = NULL;
        char path[400];
        unsigned lines = 0;
        size_t n;

        snprintf(path, sizeof(path), "%s.calls", f->tool);
        if (cop_read_file(AT_FDCWD, path, 65536, &text, &n, NULL) < 0)
                return 0;
        for (char *p = text; *p; p++)
                lines += *p == '\n';
        return lines;
}

TEST(built_listed_and_removed)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, list = {0}, got = {0}, gone = {0}, none = {0};
        struct cop_op *op;

        open_fixture(&f, PROLOGUE RECIPE_ID "echo '{\"stage\":\"install\",\"message\":\"x\",\"percent\":10}'\n" MAKE);
        build(&f, false, &a);
        assert_good(&a);
        ASSERT_STR(text_of(&a, "name"), "ci");
        ASSERT_STR(text_of(&a, "digest"), "sha256:abc");
        ASSERT_EQ(json_array_size(json_object_get(a.result, "packages")), 1);
        ASSERT_EQ(a.events, 1); /* "done" is the answer, not progress */
        ASSERT_STR(json_string_value(json_object_get(a.last_event, "stage")), "install");

        cop_image_list(f.engine, answer_to(&list));
        json_t *first = json_array_get(json_object_get(list.result, "images"), 0);
        ASSERT(json_object_get(first, "packages") == NULL);
        ASSERT_EQ(json_integer_value(json_object_get(first, "sandboxes")), 0);
        cop_image_get(f.engine, "ci", answer_to(&got));
        assert_good(&got);
        ASSERT_STR(text_of(&got, "id"), text_of(&a, "id"));
        cop_image_remove(f.engine, "ci", answer_to(&gone), &op);
        wait_answer(&f, &gone);
        assert_good(&gone);
        ASSERT_EQ(count_folders(&f), 0);
        cop_image_remove(f.engine, "ci", answer_to(&none), &op);
        ASSERT_EQ(none.err.code, COP_ERR_image_not_found);
        engine_close(&f);
}

TEST(the_same_recipe_is_not_built_twice_unless_forced)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, b = {0}, c = {0};

        open_fixture(&f, PROLOGUE RECIPE_ID MAKE);
        build(&f, false, &a);
        build(&f, false, &b);
        ASSERT_STR(text_of(&b, "id"), text_of(&a, "id"));
        ASSERT_EQ(count_calls(&f), 3);
        build(&f, true, &c);
        assert_good(&c);
        ASSERT(strcmp(text_of(&c, "id"), text_of(&a, "id")) != 0);
        ASSERT_EQ(count_folders(&f), 1); /* nobody used the old one */
        answer_done(&b);
        set_tool(&f, PROLOGUE "[ $verb != recipe-id ] || { echo r2; exit; }\n" MAKE);
        build(&f, false, &b);
        ASSERT(strcmp(text_of(&b, "id"), text_of(&c, "id")) != 0);
        engine_close(&f);
}

TEST(a_replaced_image_stays_while_a_sandbox_uses_it)
{
        struct engine_fixture f = {0};
        struct cop_sandbox_row row = {.id = "sb_user", .state = "running", .created_at = 1};
        _cleanup_answer_ struct answer a = {0}, b = {0}, gone = {0};
        struct cop_op *op;
        struct cop_error err;

        open_fixture(&f, PROLOGUE RECIPE_ID MAKE);
        build(&f, false, &a);
        snprintf(row.image_id, sizeof(row.image_id), "%s", text_of(&a, "id"));
        ASSERT_OK(cop_store_sandbox_insert(f.engine->store, &row, &err), &err);
        build(&f, true, &b);
        ASSERT_EQ(count_folders(&f), 2);
        cop_image_remove(f.engine, text_of(&a, "id"), answer_to(&gone), &op);
        ASSERT_EQ(gone.err.code, COP_ERR_in_use);
        ASSERT_CONTAINS(gone.err.message, "sb_user");
        ASSERT_OK(cop_store_sandbox_ended(f.engine->store, "sb_user", 1, "ttl", false, &err), &err);
        cop_image_release(f.engine, text_of(&a, "id"));
        ASSERT_EQ(count_folders(&f), 2); /* a power cut may bring the row back */
        wait_durable(&f);
        ASSERT_EQ(count_folders(&f), 1);
        engine_close(&f);
}

TEST(failures_say_why_and_leave_nothing)
{
        static const struct {
                const char *script;
                enum cop_err_code code;
                const char *words;
        } cases[] = {
                {PROLOGUE
                 "mkdir $out.partial; echo '{\"stage\":\"error\",\"code\":\"mirror_unreachable\",\"message\":\"no "
                 "route\"}'; exit 1\n",
                 COP_ERR_image_build_failed, "no route"},
                {PROLOGUE "echo '{\"stage\":\"error\",\"code\":\"disk_full\",\"message\":\"full\"}'; exit 1\n",
                 COP_ERR_disk_full, "full"},
                {PROLOGUE "mkdir -p $out.partial/x; exit 7\n", COP_ERR_image_build_failed, "status 7"},
                {PROLOGUE "kill -9 $$\n", COP_ERR_image_build_failed, "signal 9"},
                {PROLOGUE "exit 0\n", COP_ERR_image_damaged, "rootfs"},
                {PROLOGUE "mkdir -p $out/rootfs; echo '{}' >$out/image.json\n", COP_ERR_image_damaged, "version"},
                {PROLOGUE "mkdir -p $out/rootfs; echo '{' >$out/image.json\n", COP_ERR_image_damaged, "image.json"},
                {PROLOGUE "mkdir -p $out; ln -s / $out/rootfs; echo '" GOOD_JSON "' >$out/image.json\n",
                 COP_ERR_image_damaged, "rootfs"},
                {PROLOGUE "mkdir -p $out/rootfs; echo '" GOOD_JSON "' | sed s/1000/99999/ >$out/image.json\n",
                 COP_ERR_image_damaged, "defaults"},
        };
        struct engine_fixture f = {0};

        open_fixture(&f, PROLOGUE);
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_answer_ struct answer a = {0}, list = {0};
                set_tool(&f, cases[i].script);
                build(&f, true, &a);
                if (a.result || a.err.code != cases[i].code)
                        FAIL("case %zu: %s", i, a.result ? "worked" : a.err.message);
                ASSERT_CONTAINS(a.err.message, cases[i].words);
                ASSERT_EQ(count_folders(&f), 0);
                cop_image_list(f.engine, answer_to(&list));
                ASSERT_EQ(json_array_size(json_object_get(list.result, "images")), 0);
        }
        engine_close(&f);
}

TEST(hostile_output_is_bounded)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0};

        open_fixture(
                &f, PROLOGUE
                "head -c 3000000 /dev/zero | tr '\\0' x; echo\n"
                "head -c 100000 /dev/urandom; echo\n"
                "printf "
                "'{\"stage\":\"a\\377b\"}\\n[1]\\n{\"stage\":7}\\n{\"stage\":\"ok\",\"percent\":\"x\",\"evil\":1}\\n'\n"
                "printf '{\"stage\":\"long\",\"message\":\"'; head -c 5000 /dev/zero | tr '\\0' y; printf "
                "'\"}\\n'\n" MAKE);
        build(&f, true, &a);
        assert_good(&a);
        ASSERT_EQ(a.events, 2);
        ASSERT_LT(strlen(json_string_value(json_object_get(a.last_event, "message"))), 600);
        ASSERT(json_object_get(a.last_event, "evil") == NULL);
        engine_close(&f);
}

TEST(a_caller_that_leaves_stops_the_build)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0};
        struct cop_op *op;

        /* A child that would go on if only its parent were told. */
        open_fixture(&f, PROLOGUE "mkdir $out.partial; sleep 300 & echo '{\"stage\":\"go\"}'; wait\n");
        cop_image_build(f.engine, "ci", NULL, NULL, true, answer_to(&a), &op);
        ASSERT(op != NULL);
        while (a.events == 0)
                ASSERT_OK(cop_loop_turn(f.loop, USEC_PER_SEC), NULL);
        cop_op_cancel(op);
        while (f.engine->image_jobs)
                ASSERT_OK(cop_loop_turn(f.loop, USEC_PER_SEC), NULL);
        ASSERT_EQ(a.calls, 0);
        ASSERT_EQ(count_folders(&f), 0);
        engine_close(&f);
}

TEST(one_build_of_a_name_at_a_time)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, b = {0}, bad = {0}, unknown = {0};
        struct cop_op *op, *second;

        open_fixture(&f, PROLOGUE "sleep 0.2\n" MAKE);
        cop_image_build(f.engine, "ci", NULL, NULL, true, answer_to(&a), &op);
        cop_image_build(f.engine, "ci", NULL, NULL, true, answer_to(&b), &second);
        ASSERT_EQ(second, NULL);
        ASSERT_EQ(b.err.code, COP_ERR_in_use);
        cop_image_build(f.engine, "../ci", NULL, NULL, true, answer_to(&bad), &second);
        ASSERT_EQ(bad.err.code, COP_ERR_bad_request);
        cop_image_build(f.engine, "other", NULL, NULL, true, answer_to(&unknown), &second);
        ASSERT_EQ(unknown.err.code, COP_ERR_image_not_found);
        wait_answer(&f, &a);
        assert_good(&a);
        engine_close(&f);
}

TEST(imports_take_absolute_paths_only)
{
        static const char *const refused[] = {"rel/ative", "oci:rel", "--help", "", "http"};
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer good = {0}, nameless = {0};
        struct cop_op *op;

        open_fixture(&f, PROLOGUE "[ \"$4 $5\" = '--name x' ] || exit 1\n" MAKE);
        for (size_t i = 0; i < ELEMENTSOF(refused); i++) {
                _cleanup_answer_ struct answer a = {0};
                cop_image_import(f.engine, refused[i], "x", answer_to(&a), &op);
                ASSERT_EQ(a.err.code, COP_ERR_bad_request);
        }
        cop_image_import(f.engine, "/some/dir", NULL, answer_to(&nameless), &op);
        ASSERT_EQ(nameless.err.code, COP_ERR_bad_request);
        cop_image_import(f.engine, "oci:/some/layout:tag", "x", answer_to(&good), &op);
        wait_answer(&f, &good);
        assert_good(&good);
        engine_close(&f);
}

TEST(what_an_interrupted_build_left_goes_at_the_next_start)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, list = {0};
        struct cop_error err;
        char path[400];

        open_fixture(&f, PROLOGUE MAKE);
        build(&f, true, &a);
        assert_good(&a);
        snprintf(path, sizeof(path), "%s/images/im_half.partial/rootfs", f.home);
        ASSERT_OK(cop_mkdir_p(path, 0755, &err), &err);
        snprintf(path, sizeof(path), "%s/images/im_whole/rootfs", f.home);
        ASSERT_OK(cop_mkdir_p(path, 0755, &err), &err);
        ASSERT_EQ(count_folders(&f), 3);
        f.engine = cop_engine_free(f.engine);
        engine_open(&f);
        ASSERT_EQ(count_folders(&f), 1);
        cop_image_get(f.engine, "ci", answer_to(&list));
        assert_good(&list);
        engine_close(&f);
}

TEST(a_second_engine_is_kept_out)
{
        struct engine_fixture f = {0};
        struct cop_engine *second = NULL;
        struct cop_error err;

        engine_open(&f);
        const struct cop_engine_config config = {
                .home = f.home, .keeper_path = f.keeper, .image_tool = f.tool, .recipes = f.recipes};
        ASSERT_CODE(cop_engine_new(f.loop, &config, &second, &err), &err, COP_ERR_in_use);
        ASSERT_CONTAINS(err.message, f.home);
        engine_close(&f);
}

TEST(tokens_are_known_by_their_hash_only)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer a = {0}, brief = {0}, list = {0}, gone = {0};
        _cleanup_free_ char *token = NULL, *db = NULL;
        char path[400];
        size_t n;

        engine_open(&f);
        cop_token_create(f.engine, "ci", USEC_INFINITY, answer_to(&a), NULL);
        wait_answer(&f, &a);
        assert_good(&a);
        token = strdup(text_of(&a, "token"));
        ASSERT_EQ(strlen(token), 44);
        ASSERT(cop_token_check(f.engine, token));
        token[43] ^= 1;
        ASSERT(!cop_token_check(f.engine, token));
        token[43] ^= 1;
        ASSERT(!cop_token_check(f.engine, ""));
        ASSERT(!cop_token_check(f.engine, "cop_"));
        cop_token_create(f.engine, NULL, 1, answer_to(&brief), NULL);
        wait_answer(&f, &brief);
        ASSERT(!cop_token_check(f.engine, text_of(&brief, "token")));
        cop_token_list(f.engine, answer_to(&list));
        ASSERT_EQ(json_array_size(json_object_get(list.result, "tokens")), 2);
        ASSERT(json_object_get(json_array_get(json_object_get(list.result, "tokens"), 0), "token") == NULL);
        for (int i = 0; i < 2; i++) {
                snprintf(path, sizeof(path), "%s/coppice.db%s", f.home, i ? "-wal" : "");
                ASSERT_OK(cop_read_file(AT_FDCWD, path, 64 << 20, &db, &n, NULL), NULL);
                ASSERT(memmem(db, n, token + 4, 40) == NULL);
                free(TAKE_PTR(db));
        }
        cop_token_remove(f.engine, text_of(&a, "id"), answer_to(&gone), NULL);
        wait_answer(&f, &gone);
        assert_good(&gone);
        ASSERT(!cop_token_check(f.engine, token));
        engine_close(&f);
}

static json_t *find_check(json_t *checks, const char *name)
{
        json_t *check;
        size_t i;

        json_array_foreach (checks, i, check)
                if (strcmp(json_string_value(json_object_get(check, "name")), name) == 0)
                        return check;
        return NULL;
}

TEST(info_and_doctor_answer)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer info = {0}, doctor = {0};

        engine_open(&f);
        cop_engine_info(f.engine, answer_to(&info));
        assert_good(&info);
        ASSERT_STR(text_of(&info, "home"), f.home);
        ASSERT_GT(json_integer_value(json_object_get(info.result, "memory_rss_bytes")), 100000);
        cop_engine_doctor(f.engine, answer_to(&doctor));
        wait_answer(&f, &doctor);
        assert_good(&doctor);
        json_t *checks = json_object_get(doctor.result, "checks");
        /* Of the keeper's trial, and of the daemon's own. */
        ASSERT(find_check(checks, "user_namespaces"));
        ASSERT(json_is_true(json_object_get(find_check(checks, "keeper"), "ok")));
        ASSERT(json_is_true(json_object_get(find_check(checks, "uid_ranges"), "ok")));
        ASSERT(find_check(checks, "disk"));
        ASSERT_EQ(find_check(checks, "coffee"), NULL);
        engine_close(&f);
}

TEST(doctor_without_a_keeper)
{
        struct engine_fixture f = {.keeper = "/nonexistent/coppice-keeper"};
        _cleanup_answer_ struct answer doctor = {0};

        engine_open(&f);
        cop_engine_doctor(f.engine, answer_to(&doctor));
        wait_answer(&f, &doctor);
        assert_good(&doctor);
        json_t *keeper = find_check(json_object_get(doctor.result, "checks"), "keeper");
        ASSERT(json_is_false(json_object_get(doctor.result, "ok")));
        ASSERT(json_is_false(json_object_get(keeper, "ok")));
        ASSERT(json_is_string(json_object_get(keeper, "remedy")));
        engine_close(&f);
}

TEST(doctor_while_the_daemon_stops)
{
        struct engine_fixture f = {0};
        _cleanup_answer_ struct answer doctor = {0};

        engine_open(&f);
        cop_engine_doctor(f.engine, answer_to(&doctor));
        engine_close(&f);
        ASSERT_EQ(doctor.calls, 1);
        ASSERT_EQ(doctor.err.code, COP_ERR_unavailable);
}
