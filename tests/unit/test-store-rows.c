#include "lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "store/store.h"

static struct cop_store *open_store(void)
{
        char path[300];
        struct cop_store *s = NULL;
        struct cop_error err;

        snprintf(path, sizeof(path), "%s/coppice.db", test_dir());
        ASSERT_OK(cop_store_open(path, &s, &err), &err);
        return s;
}

static struct cop_sandbox_row sandbox(const char *id, const char *name, unsigned slot)
{
        struct cop_sandbox_row row = {
                .state = "starting", .image_id = "im_a", .name = (char *)name, .slot = slot, .created_at = 1000 + slot};

        snprintf(row.id, sizeof(row.id), "%s", id);
        return row;
}

static void add_sandbox(struct cop_store *s, const char *id, const char *name, unsigned slot)
{
        struct cop_sandbox_row row = sandbox(id, name, slot);
        struct cop_error err;

        ASSERT_OK(cop_store_sandbox_insert(s, &row, &err), &err);
}

TEST(the_file_is_closed_to_others)
{
        char path[300];
        struct stat st;
        struct cop_store *s = open_store();

        add_sandbox(s, "sb_a", NULL, 0);
        for (size_t i = 0; i < 3; i++) {
                static const char *const names[] = {"", "-wal", "-shm"};
                snprintf(path, sizeof(path), "%s/coppice.db%s", test_dir(), names[i]);
                ASSERT_OK(stat(path, &st), NULL);
                ASSERT_EQ(st.st_mode & 0777, 0600);
        }
        cop_store_close(s);
}

TEST(every_field_of_a_sandbox_comes_back)
{
        struct cop_store *s = open_store();
        struct cop_sandbox_row row = sandbox("sb_a", "demo", 7);
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *back = NULL;
        struct cop_error err;

        row.image_name = (char *)"code-interpreter";
        row.labels = (char *)"{\"a\":\"b\"}";
        row.metadata = (char *)"{\"m\":1}";
        row.env = (char *)"{\"E\":\"\xc3\xa9\"}";
        row.limits = (char *)"{\"pids\":5}";
        row.user = (char *)"user";
        row.workdir = (char *)"/workspace";
        row.boot_id = (char *)"boot";
        row.history = (char *)"{\"after\":7}";
        row.ttl = 60000000;
        row.generation = UINT32_MAX + 5ULL;
        ASSERT_OK(cop_store_sandbox_insert(s, &row, &err), &err);
        row.started_at = 1234567890123456;
        row.start_time = 17000;
        row.expires_at = row.started_at + row.ttl;
        ASSERT_OK(cop_store_sandbox_started(s, &row, &err), &err);

        ASSERT_OK(cop_store_sandbox_get(s, "demo", &back, &err), &err);
        ASSERT_STR(back->id, "sb_a");
        ASSERT_STR(back->state, "running");
        ASSERT_STR(back->image_id, "im_a");
        ASSERT_STR(back->image_name, row.image_name);
        ASSERT_STR(back->labels, row.labels);
        ASSERT_STR(back->metadata, row.metadata);
        ASSERT_STR(back->env, row.env);
        ASSERT_STR(back->limits, row.limits);
        ASSERT_STR(back->user, row.user);
        ASSERT_STR(back->workdir, row.workdir);
        ASSERT_STR(back->boot_id, row.boot_id);
        ASSERT_STR(back->history, row.history);
        ASSERT_STR(back->ended_reason, NULL);
        ASSERT_EQ(back->slot, 7);
        ASSERT_EQ(back->ttl, row.ttl);
        ASSERT_EQ(back->started_at, row.started_at);
        ASSERT_EQ(back->start_time, 17000);
        ASSERT_EQ(back->expires_at, row.expires_at);
        ASSERT_EQ(back->generation, row.generation);
        cop_store_close(s);
}

TEST(names_are_unique_among_the_living_only)
{
        struct cop_store *s = open_store();
        struct cop_sandbox_row second = sandbox("sb_b", "demo", 1), renamed = sandbox("sb_c", "other", 2);
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *back = NULL;
        struct cop_error err;

        add_sandbox(s, "sb_a", "demo", 0);
        ASSERT_CODE(cop_store_sandbox_insert(s, &second, &err), &err, COP_ERR_name_taken);
        ASSERT_CONTAINS(err.message, "demo");
        ASSERT_OK(cop_store_sandbox_insert(s, &renamed, &err), &err);
        renamed.name = (char *)"demo";
        ASSERT_CODE(cop_store_sandbox_update(s, &renamed, &err), &err, COP_ERR_name_taken);

        /* Free as soon as the end begins. */
        ASSERT_OK(cop_store_sandbox_ending(s, "sb_a", &err), &err);
        ASSERT_OK(cop_store_sandbox_insert(s, &second, &err), &err);
        ASSERT_OK(cop_store_sandbox_ended(s, "sb_a", 5000, "removed", false, &err), &err);
        ASSERT_OK(cop_store_sandbox_get(s, "demo", &back, &err), &err);
        ASSERT_STR(back->id, "sb_b");
        back = cop_sandbox_row_free(back);

        /* Nobody alive has it: the one that ended last is meant. */
        ASSERT_OK(cop_store_sandbox_ended(s, "sb_b", 4000, "ttl", false, &err), &err);
        ASSERT_OK(cop_store_sandbox_get(s, "demo", &back, &err), &err);
        ASSERT_STR(back->id, "sb_a");
        ASSERT_STR(back->ended_reason, "removed");
        cop_store_close(s);
}

TEST(slots_fill_gaps_and_run_out)
{
        struct cop_store *s = open_store();
        struct cop_sandbox_row clash = sandbox("sb_x", NULL, 2);
        struct cop_error err;
        unsigned slot = 99;

        ASSERT_OK(cop_store_sandbox_free_slot(s, 0, 3, &slot, &err), &err);
        ASSERT_EQ(slot, 0);
        add_sandbox(s, "sb_a", NULL, 0);
        add_sandbox(s, "sb_b", NULL, 2);
        ASSERT_ERRNO(cop_store_sandbox_insert(s, &clash, &err), EEXIST);
        ASSERT_OK(cop_store_sandbox_free_slot(s, 0, 3, &slot, &err), &err);
        ASSERT_EQ(slot, 1);
        ASSERT_OK(cop_store_sandbox_free_slot(s, 2, 5, &slot, &err), &err);
        ASSERT_EQ(slot, 3);
        ASSERT_CODE(cop_store_sandbox_free_slot(s, 2, 3, &slot, &err), &err, COP_ERR_too_many);
        ASSERT_OK(cop_store_sandbox_set_slot(s, "sb_b", 0xffff, &err), &err);
        ASSERT_OK(cop_store_sandbox_free_slot(s, 2, 5, &slot, &err), &err);
        ASSERT_EQ(slot, 2);
        ASSERT_OK(cop_store_sandbox_set_slot(s, "sb_b", 2, &err), &err);
        ASSERT_CODE(cop_store_sandbox_set_slot(s, "sb_z", 2, &err), &err, COP_ERR_sandbox_not_found);
        add_sandbox(s, "sb_c", NULL, 1);
        ASSERT_CODE(cop_store_sandbox_free_slot(s, 0, 3, &slot, &err), &err, COP_ERR_too_many);
        /* Still held while it is ending, free when it has ended. */
        ASSERT_OK(cop_store_sandbox_ending(s, "sb_b", &err), &err);
        ASSERT_CODE(cop_store_sandbox_free_slot(s, 0, 3, &slot, &err), &err, COP_ERR_too_many);
        ASSERT_OK(cop_store_sandbox_ended(s, "sb_b", 1, "ttl", false, &err), &err);
        ASSERT_OK(cop_store_sandbox_free_slot(s, 0, 3, &slot, &err), &err);
        ASSERT_EQ(slot, 2);
        cop_store_close(s);
}

TEST(lists_are_filtered_and_newest_first)
{
        struct cop_store *s = open_store();
        struct cop_sandbox_row **rows;
        struct cop_error err;

        add_sandbox(s, "sb_a", NULL, 0);
        add_sandbox(s, "sb_b", NULL, 1);
        add_sandbox(s, "sb_c", NULL, 2);
        ASSERT_OK(cop_store_sandbox_ended(s, "sb_b", 10, "oom", false, &err), &err);
        ASSERT_OK(cop_store_sandbox_list(s, COP_STORE_LIVE, 0, &rows, &err), &err);
        ASSERT_STR(rows[0]->id, "sb_c");
        ASSERT_STR(rows[1]->id, "sb_a");
        ASSERT_EQ(rows[2], NULL);
        cop_sandbox_rows_free(rows);
        ASSERT_OK(cop_store_sandbox_list(s, COP_STORE_ENDED, 0, &rows, &err), &err);
        ASSERT_STR(rows[0]->id, "sb_b");
        ASSERT_EQ(rows[1], NULL);
        cop_sandbox_rows_free(rows);
        ASSERT_OK(cop_store_sandbox_list(s, COP_STORE_ALL, 2, &rows, &err), &err);
        ASSERT_STR(rows[1]->id, "sb_b");
        ASSERT_EQ(rows[2], NULL);
        cop_sandbox_rows_free(rows);
        cop_store_close(s);
}

TEST(an_image_gives_its_name_to_the_next)
{
        struct cop_store *s = open_store();
        struct cop_image_row a = {
                .id = "im_a", .name = (char *)"ci", .path = (char *)"/a", .created_at = 1, .packages = (char *)"{}"};
        struct cop_image_row b = {.id = "im_b", .name = (char *)"ci", .path = (char *)"/b", .created_at = 2};
        _cleanup_(cop_image_row_freep) struct cop_image_row *got = NULL, *old = NULL;
        _cleanup_free_ char *packages = NULL;
        struct cop_error err;
        char ids[40];
        unsigned users;

        ASSERT_OK(cop_store_image_insert(s, &a, &err), &err);
        ASSERT_OK(cop_store_image_insert(s, &b, &err), &err);
        ASSERT_OK(cop_store_image_get(s, "ci", &got, &err), &err);
        ASSERT_STR(got->id, "im_b");
        ASSERT_OK(cop_store_image_get(s, "im_a", &old, &err), &err);
        ASSERT_STR(old->name, NULL);
        ASSERT_STR(old->packages, NULL);
        ASSERT_OK(cop_store_image_packages(s, "im_a", &packages, &err), &err);
        ASSERT_STR(packages, "{}");
        add_sandbox(s, "sb_1", NULL, 0);
        add_sandbox(s, "sb_2", NULL, 1);
        ASSERT_OK(cop_store_image_users(s, "im_a", ids, sizeof(ids), &users, &err), &err);
        ASSERT_EQ(users, 2);
        ASSERT_STR(ids, "sb_1, sb_2");
        ASSERT_OK(cop_store_image_users(s, "im_a", ids, 9, &users, &err), &err);
        ASSERT_STR(ids, "sb_1");
        ASSERT_OK(cop_store_image_delete(s, "im_b", &err), &err);
        ASSERT_CODE(cop_store_image_delete(s, "im_b", &err), &err, COP_ERR_image_not_found);
        ASSERT_CODE(cop_store_image_get(s, "ci", &got, &err), &err, COP_ERR_image_not_found);
        cop_store_close(s);
}

static int64_t add_ran(struct cop_store *s, const char *id, uint64_t generation, const char *of, bool ended)
{
        struct cop_cell_row row = {.sandbox_id = "sb_a",
                                   .context_id = "default",
                                   .status = "queued",
                                   .code = (char *)"1",
                                   .options = (char *)"{}",
                                   .execution_count = -1,
                                   .pure = of != NULL};
        struct cop_error err;

        snprintf(row.id, sizeof(row.id), "%s", id);
        snprintf(row.replay_of, sizeof(row.replay_of), "%s", of ? of : "");
        ASSERT_OK(cop_store_cell_insert(s, &row, &err), &err);
        snprintf(row.status, sizeof(row.status), "ok");
        row.generation = generation;
        row.started_at = generation ? 5 : 0;
        ASSERT_OK(cop_store_cell_start(s, &row, &err), &err);
        row.ended_at = ended ? 6 : 0;
        ASSERT_OK(cop_store_cell_end(s, &row, NULL, &err), &err);
        return row.seq;
}

static void assert_made(struct cop_store *s, int64_t after, int64_t upto, uint64_t generation, unsigned limit,
                        const char *want)
{
        const struct cop_cell_range range = {.sandbox_id = "sb_a",
                                             .context_id = "default",
                                             .after = after,
                                             .upto = upto,
                                             .generation = generation,
                                             .limit = limit};
        _cleanup_(cop_cell_rows_freep) struct cop_cell_row **rows = NULL;
        struct cop_error err;
        char have[200] = "";

        ASSERT_OK(cop_store_cell_made(s, &range, &rows, &err), &err);
        for (struct cop_cell_row **row = rows; *row; row++)
                snprintf(have + strlen(have), sizeof(have) - strlen(have), "%s ", (*row)->id);
        ASSERT_STR(have, want);
}

static uint64_t count_of(struct cop_store *s, const char *sandbox_id, int64_t after, int64_t upto)
{
        const struct cop_cell_range range = {.sandbox_id = sandbox_id, .after = after, .upto = upto};
        struct cop_error err;
        uint64_t n = 0;

        ASSERT_OK(cop_store_cell_count(s, &range, &n, &err), &err);
        return n;
}

TEST(ranges_of_cells_are_counted_and_made_again)
{
        struct cop_store *s = open_store();
        _cleanup_(cop_cell_rows_freep) struct cop_cell_row **rows = NULL;
        struct cop_error err;

        add_sandbox(s, "sb_a", NULL, 0);
        int64_t c1 = add_ran(s, "c1", 1, NULL, true), c2 = add_ran(s, "c2", 1, NULL, true);
        int64_t waiting = add_ran(s, "waiting", 0, NULL, false), c3 = add_ran(s, "c3", 1, NULL, true);
        int64_t r1 = add_ran(s, "r1", 2, "c1", true), d1 = add_ran(s, "d1", 2, NULL, false);
        assert_made(s, 0, d1, 1, 100, "c1 c2 c3 ");
        assert_made(s, c1, c3, 1, 100, "c2 c3 ");
        assert_made(s, 0, waiting, 1, 100, "c1 c2 ");
        assert_made(s, 0, d1, 1, 2, "c2 c3 ");
        assert_made(s, 0, d1, 2, 100, "r1 d1 ");
        assert_made(s, d1, d1, 2, 100, "");
        ASSERT_EQ(count_of(s, "sb_a", 0, d1), 3); /* no replay, and nothing that has not ended */
        ASSERT_EQ(count_of(s, "sb_a", c2, r1), 1);
        ASSERT_EQ(count_of(s, "sb_none", 0, d1), 0);
        const struct cop_cell_range range = {
                .sandbox_id = "sb_a", .context_id = "default", .after = c3, .upto = d1, .generation = 2, .limit = 9};
        ASSERT_OK(cop_store_cell_made(s, &range, &rows, &err), &err);
        ASSERT_STR(rows[0]->replay_of, "c1");
        ASSERT_EQ(rows[0]->pure, 1);
        ASSERT_STR(rows[0]->options, "{}");
        const struct cop_cell_filter originals = {.sandbox_id = "sb_a", .originals = true, .limit = 2};
        rows = cop_cell_rows_free(rows);
        ASSERT_OK(cop_store_cell_list(s, &originals, &rows, &err), &err);
        ASSERT_STR(rows[0]->id, "c3");
        ASSERT_STR(rows[1]->id, "d1");
        cop_store_close(s);
}

static void add_node(struct cop_store *s, const char *id, const char *sandbox_id, const char *cell_id)
{
        struct cop_node_row row = {.kind = "memory",
                                   .reason = "snapshot",
                                   .image_id = "im_a",
                                   .layers = (char *)"[]",
                                   .spec = (char *)"{}"};
        struct cop_error err;

        snprintf(row.id, sizeof(row.id), "%s", id);
        snprintf(row.sandbox_id, sizeof(row.sandbox_id), "%s", sandbox_id);
        snprintf(row.cell_id, sizeof(row.cell_id), "%s", cell_id);
        ASSERT_OK(cop_store_node_insert(s, &row, &err), &err);
}

TEST(an_image_needs_its_golden_node_but_is_not_needed_by_it)
{
        struct cop_store *s = open_store();
        struct cop_image_row a = {.id = "im_a", .name = (char *)"ci", .path = (char *)"/a", .created_at = 1};
        _cleanup_(cop_image_row_freep) struct cop_image_row *got = NULL;
        struct cop_error err;
        char ids[40];
        unsigned users;

        ASSERT_OK(cop_store_image_insert(s, &a, &err), &err);
        add_node(s, "nd_0000000001", "sb_a", "");
        add_node(s, "nd_0000000002", "sb_a", "");
        ASSERT_EQ(cop_store_node_in_use(s, "nd_0000000001", &err), 0);
        snprintf(a.golden_node, sizeof(a.golden_node), "nd_0000000001");
        a.golden = (char *)"{\"code\": \"1\"}";
        ASSERT_OK(cop_store_image_set_golden(s, &a, &err), &err);
        ASSERT_EQ(cop_store_node_in_use(s, "nd_0000000001", &err), 1);
        ASSERT_EQ(cop_store_node_in_use(s, "nd_0000000002", &err), 0);
        ASSERT_OK(cop_store_image_users(s, "im_a", ids, sizeof(ids), &users, &err), &err);
        ASSERT_EQ(users, 1);
        ASSERT_STR(ids, "nd_0000000002");
        ASSERT_OK(cop_store_image_get(s, "ci", &got, &err), &err);
        ASSERT_STR(got->golden_node, "nd_0000000001");
        ASSERT_STR(got->golden, "{\"code\": \"1\"}");
        ASSERT_OK(cop_store_image_delete(s, "im_a", &err), &err);
        ASSERT_EQ(cop_store_node_in_use(s, "nd_0000000001", &err), 0);
        ASSERT_CODE(cop_store_image_set_golden(s, &a, &err), &err, COP_ERR_image_not_found);
        cop_store_close(s);
}

TEST(contexts_belong_to_a_sandbox)
{
        struct cop_store *s = open_store();
        struct cop_context_row c = {
                .sandbox_id = "sb_a", .id = "default", .state = "starting", .kernelspec = (char *)"python3"};
        struct cop_context_row **rows;
        struct cop_error err;

        ASSERT_CODE(cop_store_context_insert(s, &c, &err), &err, COP_ERR_invalid_state);
        add_sandbox(s, "sb_a", NULL, 0);
        ASSERT_OK(cop_store_context_insert(s, &c, &err), &err);
        ASSERT_CODE(cop_store_context_insert(s, &c, &err), &err, COP_ERR_invalid_state);
        snprintf(c.state, sizeof(c.state), "idle");
        snprintf(c.kernel_key, sizeof(c.kernel_key), "ker_0123456789");
        c.kernel_dir = (char *)"k123";
        c.key = (char *)"abcdef";
        c.session = (char *)"s1";
        c.generation = 3;
        c.kernel_pid = 77;
        ASSERT_OK(cop_store_context_update(s, &c, &err), &err);
        snprintf(c.state, sizeof(c.state), "busy");
        c.execution_count = 12;
        c.kernel_pid = 78; /* not what touch writes */
        ASSERT_OK(cop_store_context_touch(s, &c, &err), &err);
        ASSERT_OK(cop_store_context_list(s, "sb_a", &rows, &err), &err);
        ASSERT_EQ(rows[1], NULL);
        ASSERT_STR(rows[0]->state, "busy");
        ASSERT_STR(rows[0]->kernel_key, "ker_0123456789");
        ASSERT_STR(rows[0]->key, "abcdef");
        ASSERT_EQ(rows[0]->execution_count, 12);
        ASSERT_EQ(rows[0]->kernel_pid, 77);
        cop_context_rows_free(rows);
        ASSERT_OK(cop_store_context_delete(s, "sb_a", "default", &err), &err);
        ASSERT_CODE(cop_store_context_touch(s, &c, &err), &err, COP_ERR_context_not_found);
        cop_store_close(s);
}

static void add_cell(struct cop_store *s, const char *id, const char *context, const char *code)
{
        struct cop_cell_row row = {
                .sandbox_id = "sb_a", .status = "queued", .code = (char *)code, .execution_count = -1, .created_at = 1};
        struct cop_error err;

        snprintf(row.id, sizeof(row.id), "%s", id);
        snprintf(row.context_id, sizeof(row.context_id), "%s", context);
        ASSERT_OK(cop_store_cell_insert(s, &row, &err), &err);
        ASSERT_GT(row.seq, 0);
}

TEST(a_cell_from_queue_to_end)
{
        struct cop_store *s = open_store();
        struct cop_cell_row row = {
                .id = "cell_1", .status = "running", .msg_id = (char *)"m1", .generation = 2, .started_at = 50};
        _cleanup_(cop_cell_row_freep) struct cop_cell_row *back = NULL;
        struct cop_error err;

        add_sandbox(s, "sb_a", NULL, 0);
        add_cell(s, "cell_1", "default", "x = '\xf0\x9f\x98\x80'");
        ASSERT_OK(cop_store_cell_start(s, &row, &err), &err);
        snprintf(row.status, sizeof(row.status), "ok");
        row.execution_count = 4;
        row.ended_at = 90;
        row.summary = (char *)"{\"duration_ms\":1}";
        row.outputs = (char *)"[]";
        row.log_bytes = 123;
        row.log_complete = true;
        ASSERT_OK(cop_store_cell_end(s, &row, NULL, &err), &err);
        ASSERT_OK(cop_store_cell_get(s, "sb_a", "cell_1", &back, &err), &err);
        ASSERT_STR(back->code, "x = '\xf0\x9f\x98\x80'");
        ASSERT_EQ(back->code_len, strlen(back->code));
        ASSERT_STR(back->status, "ok");
        ASSERT_STR(back->msg_id, "m1");
        ASSERT_EQ(back->execution_count, 4);
        ASSERT_EQ(back->started_at, 50);
        ASSERT_EQ(back->ended_at, 90);
        ASSERT_EQ(back->log_bytes, 123);
        ASSERT(back->log_complete);
        ASSERT_CODE(cop_store_cell_get(s, "sb_b", "cell_1", &back, &err), &err, COP_ERR_cell_not_found);
        snprintf(row.id, sizeof(row.id), "cell_2");
        ASSERT_CODE(cop_store_cell_end(s, &row, NULL, &err), &err, COP_ERR_cell_not_found);
        cop_store_close(s);
}

/* "id id …" of what the filter gives */
static const char *cells(struct cop_store *s, struct cop_cell_filter f)
{
        static char text[400];
        struct cop_cell_row **rows;
        struct cop_error err;

        f.sandbox_id = "sb_a";
        ASSERT_OK(cop_store_cell_list(s, &f, &rows, &err), &err);
        text[0] = '\0';
        for (size_t i = 0; rows[i]; i++) {
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? " " : "", rows[i]->id);
                ASSERT_EQ(rows[i]->code != NULL, f.code);
        }
        cop_cell_rows_free(rows);
        return text;
}

TEST(cells_are_listed_in_order_from_either_end)
{
        struct cop_store *s = open_store();
        struct cop_error err;

        add_sandbox(s, "sb_a", NULL, 0);
        add_cell(s, "c1", "default", "1");
        add_cell(s, "c2", "ctx_b", "2");
        add_cell(s, "c3", "default", "3");
        add_cell(s, "c4", "default", "4");
        struct cop_cell_row end = {.id = "c1", .status = "error", .ended_at = 9, .execution_count = 1};
        ASSERT_OK(cop_store_cell_end(s, &end, NULL, &err), &err);

        ASSERT_STR(cells(s, (struct cop_cell_filter){.code = true}), "c1 c2 c3 c4");
        ASSERT_STR(cells(s, (struct cop_cell_filter){.limit = 2}), "c3 c4");
        ASSERT_STR(cells(s, (struct cop_cell_filter){.limit = 2, .oldest_first = true}), "c1 c2");
        ASSERT_STR(cells(s, (struct cop_cell_filter){.limit = 2, .before_seq = 4}), "c2 c3");
        ASSERT_STR(cells(s, (struct cop_cell_filter){.after_seq = 2, .oldest_first = true}), "c3 c4");
        ASSERT_STR(cells(s, (struct cop_cell_filter){.context_id = "default"}), "c1 c3 c4");
        ASSERT_STR(cells(s, (struct cop_cell_filter){.open = true}), "c2 c3 c4");
        ASSERT_STR(cells(s, (struct cop_cell_filter){.status = "error"}), "c1");
        ASSERT_STR(cells(s, (struct cop_cell_filter){.context_id = "none"}), "");
        cop_store_close(s);
}

TEST(the_newest_cell_and_whether_one_is_kept)
{
        struct cop_store *s = open_store();
        struct cop_error err;
        int64_t seq = 99;

        add_sandbox(s, "sb_a", NULL, 0);
        ASSERT_OK(cop_store_cell_newest(s, "sb_a", false, &seq, &err), &err);
        ASSERT_EQ(seq, 0);
        add_cell(s, "c1", "default", "1");
        add_cell(s, "c2", "default", "2");
        struct cop_cell_row end = {.id = "c1", .status = "ok", .ended_at = 9, .execution_count = 1};
        ASSERT_OK(cop_store_cell_end(s, &end, NULL, &err), &err);
        ASSERT_OK(cop_store_cell_newest(s, "sb_a", false, &seq, &err), &err);
        ASSERT_EQ(seq, 2);
        ASSERT_OK(cop_store_cell_newest(s, "sb_a", true, &seq, &err), &err);
        ASSERT_EQ(seq, 1);
        ASSERT_EQ(cop_store_cell_recorded(s, "sb_a", 2, &err), 1);
        ASSERT_EQ(cop_store_cell_recorded(s, "sb_a", 3, &err), 0);
        ASSERT_EQ(cop_store_cell_recorded(s, "sb_b", 2, &err), 0);
        cop_store_close(s);
}

TEST(the_node_that_stands_right_after_a_cell)
{
        struct cop_store *s = open_store();
        char id[COP_STORE_ID_MAX];
        struct cop_node_row **rows;
        struct cop_error err;

        add_node(s, "nd_copy", "sb_b", "c1");
        add_node(s, "nd_first", "sb_a", "c1");
        add_node(s, "nd_later", "sb_a", "c1");
        add_node(s, "nd_other", "sb_b", "c2");
        ASSERT_OK(cop_store_node_after_cell(s, "sb_a", "c1", id, &err), &err);
        ASSERT_STR(id, "nd_first");
        ASSERT_OK(cop_store_node_after_cell(s, "sb_a", "c2", id, &err), &err);
        ASSERT_STR(id, "nd_other");
        ASSERT_OK(cop_store_node_after_cell(s, "sb_a", "c3", id, &err), &err);
        ASSERT_STR(id, "");
        const struct cop_node_filter brief = {.sandbox_id = "sb_a", .brief = true}, whole = {.sandbox_id = "sb_a"};
        ASSERT_OK(cop_store_node_list(s, &brief, &rows, &err), &err);
        ASSERT_STR(rows[0]->spec, "");
        ASSERT_STR(rows[0]->layers, "[]");
        cop_node_rows_free(rows);
        ASSERT_OK(cop_store_node_list(s, &whole, &rows, &err), &err);
        ASSERT_STR(rows[0]->spec, "{}");
        cop_node_rows_free(rows);
        cop_store_close(s);
}

TEST(a_long_cell_and_its_outputs_are_kept_whole)
{
        struct cop_store *s = open_store();
        _cleanup_(cop_cell_row_freep) struct cop_cell_row *back = NULL;
        size_t n = 5u << 20;
        _cleanup_free_ char *code = malloc(n + 1), *outputs = malloc(2 * n + 1);
        struct cop_error err;

        memset(code, 'x', n);
        code[n] = '\0';
        memset(outputs, 'y', 2 * n);
        outputs[2 * n] = '\0';
        add_sandbox(s, "sb_a", NULL, 0);
        add_cell(s, "c1", "default", code);
        struct cop_cell_row end = {.id = "c1", .status = "ok", .ended_at = 9, .outputs = outputs};
        ASSERT_OK(cop_store_cell_end(s, &end, NULL, &err), &err);
        ASSERT_OK(cop_store_cell_get(s, "sb_a", "c1", &back, &err), &err);
        ASSERT_EQ(back->code_len, n);
        ASSERT_STR(back->outputs, outputs);
        cop_store_close(s);
}

TEST(commands_by_id_and_by_newest_pid)
{
        struct cop_store *s = open_store();
        struct cop_command_row row = {
                .id = "cmd_1", .sandbox_id = "sb_a", .status = "running", .exit_code = -1, .spec = (char *)"{}"};
        struct cop_command_row **rows;
        struct cop_command_filter f = {.sandbox_id = "sb_a"};
        _cleanup_(cop_command_row_freep) struct cop_command_row *back = NULL, *by_pid = NULL;
        struct cop_error err;

        add_sandbox(s, "sb_a", NULL, 0);
        ASSERT_OK(cop_store_command_insert(s, &row, &err), &err);
        ASSERT_OK(cop_store_command_set_pid(s, "sb_a", "cmd_1", 55, &err), &err);
        snprintf(row.status, sizeof(row.status), "exited");
        row.exit_code = 3;
        row.ended_at = 8;
        row.stdout_bytes = 1ULL << 40;
        ASSERT_OK(cop_store_command_end(s, &row, &err), &err);
        ASSERT_OK(cop_store_command_get(s, "sb_a", "cmd_1", &back, &err), &err);
        ASSERT_EQ(back->pid, 55);
        ASSERT_EQ(back->exit_code, 3);
        ASSERT_EQ(back->stdout_bytes, 1LL << 40);
        snprintf(row.id, sizeof(row.id), "cmd_2");
        row.pid = 55;
        ASSERT_OK(cop_store_command_insert(s, &row, &err), &err);
        ASSERT_OK(cop_store_command_get(s, "sb_a", "55", &by_pid, &err), &err);
        ASSERT_STR(by_pid->id, "cmd_2");
        by_pid = cop_command_row_free(by_pid);
        ASSERT_CODE(cop_store_command_get(s, "sb_a", "56", &by_pid, &err), &err, COP_ERR_command_not_found);
        ASSERT_OK(cop_store_command_list(s, &f, &rows, &err), &err);
        ASSERT_STR(rows[0]->id, "cmd_1");
        ASSERT_STR(rows[1]->id, "cmd_2");
        cop_command_rows_free(rows);
        cop_store_close(s);
}

TEST(a_fork_has_commands_of_the_same_ids)
{
        struct cop_store *s = open_store();
        struct cop_command_row row = {
                .id = "cmd_1", .sandbox_id = "sb_a", .status = "running", .exit_code = -1, .spec = (char *)"{}"};
        _cleanup_(cop_command_row_freep) struct cop_command_row *a = NULL, *b = NULL;
        struct cop_error err;

        add_sandbox(s, "sb_a", NULL, 0);
        add_sandbox(s, "sb_b", NULL, 1);
        ASSERT_OK(cop_store_command_insert(s, &row, &err), &err);
        ASSERT(cop_store_command_insert(s, &row, &err) < 0);
        snprintf(row.sandbox_id, sizeof(row.sandbox_id), "sb_b");
        ASSERT_OK(cop_store_command_insert(s, &row, &err), &err);
        ASSERT_OK(cop_store_command_set_pid(s, "sb_b", "cmd_1", 7, &err), &err);
        snprintf(row.status, sizeof(row.status), "killed");
        ASSERT_OK(cop_store_command_end(s, &row, &err), &err);
        ASSERT_OK(cop_store_command_get(s, "sb_a", "cmd_1", &a, &err), &err);
        ASSERT_OK(cop_store_command_get(s, "sb_b", "cmd_1", &b, &err), &err);
        ASSERT_STR(a->status, "running");
        ASSERT_STR(b->status, "killed");
        ASSERT_EQ(a->pid, 0);
        ASSERT_EQ(b->pid, 7);
        cop_store_close(s);
}

static unsigned purge(struct cop_store *s)
{
        struct cop_error err;
        unsigned steps = 0;
        int r;

        while ((r = cop_store_purge_step(s, &err)) > 0)
                steps++;
        ASSERT_OK(r, &err);
        return steps;
}

TEST(the_end_settles_or_purges_what_is_below)
{
        struct cop_store *s = open_store();
        struct cop_command_row command = {
                .id = "cmd_1", .sandbox_id = "sb_a", .status = "running", .spec = (char *)"{}"};
        struct cop_context_row context = {.sandbox_id = "sb_a", .id = "default", .state = "busy"};
        _cleanup_(cop_command_row_freep) struct cop_command_row *c = NULL;
        struct cop_context_row **contexts;
        struct cop_error err;

        add_sandbox(s, "sb_a", NULL, 0);
        add_cell(s, "c1", "default", "1");
        add_cell(s, "c2", "default", "2");
        struct cop_cell_row end = {.id = "c1", .status = "ok", .ended_at = 9};
        ASSERT_OK(cop_store_cell_end(s, &end, NULL, &err), &err);
        ASSERT_OK(cop_store_command_insert(s, &command, &err), &err);
        ASSERT_OK(cop_store_context_insert(s, &context, &err), &err);
        ASSERT_OK(cop_store_sandbox_ended(s, "sb_a", 77, "keeper_died", false, &err), &err);
        ASSERT_STR(cells(s, (struct cop_cell_filter){.status = "ok"}), "c1");
        ASSERT_STR(cells(s, (struct cop_cell_filter){.status = "lost"}), "c2");
        ASSERT_OK(cop_store_command_get(s, "sb_a", "cmd_1", &c, &err), &err);
        ASSERT_STR(c->status, "lost");
        ASSERT_EQ(c->ended_at, 77);
        ASSERT_OK(cop_store_sandbox_ended(s, "sb_a", 77, "removed", true, &err), &err);
        purge(s);
        ASSERT_STR(cells(s, (struct cop_cell_filter){0}), "");
        ASSERT_OK(cop_store_context_list(s, "sb_a", &contexts, &err), &err);
        ASSERT_EQ(contexts[0], NULL);
        cop_context_rows_free(contexts);
        ASSERT_CODE(cop_store_sandbox_ended(s, "sb_none", 1, "ttl", false, &err), &err, COP_ERR_sandbox_not_found);
        cop_store_close(s);
}

TEST(deleting_a_sandbox_takes_everything_below_along)
{
        struct cop_store *s = open_store();
        struct cop_sandbox_row **rows;
        struct cop_error err;
        char id[20];

        for (unsigned i = 0; i < 6; i++) {
                snprintf(id, sizeof(id), "sb_%u", i);
                add_sandbox(s, id, NULL, i);
                if (i < 5)
                        ASSERT_OK(cop_store_sandbox_ended(s, id, 100 + i, "ttl", false, &err), &err);
        }
        ASSERT_OK(cop_store_sandbox_prunable(s, 3, &rows, &err), &err);
        ASSERT_STR(rows[0]->id, "sb_1");
        ASSERT_STR(rows[1]->id, "sb_0");
        ASSERT_EQ(rows[2], NULL);
        cop_sandbox_rows_free(rows);
        add_sandbox(s, "sb_a", NULL, 9);
        add_cell(s, "c1", "default", "1");
        ASSERT_OK(cop_store_sandbox_delete(s, "sb_a", &err), &err);
        ASSERT_STR(cells(s, (struct cop_cell_filter){0}), "");
        cop_store_close(s);
}

TEST(what_is_given_up_goes_in_small_steps)
{
        struct cop_store *s = open_store();
        struct cop_sandbox_row *row = NULL;
        struct cop_error err;

        ASSERT_EQ(purge(s), 0);
        add_sandbox(s, "sb_a", NULL, 0);
        add_sandbox(s, "sb_b", NULL, 1);
        add_cell(s, "c1", "default", "1");
        add_cell(s, "c2", "default", "2");
        ASSERT_OK(cop_store_sandbox_ended(s, "sb_a", 77, "removed", true, &err), &err);
        ASSERT_GT(cop_store_purge_step(s, &err), 0);
        ASSERT_STR(cells(s, (struct cop_cell_filter){0}), "c2");
        cop_store_close(s); /* a daemon that stops in between */
        s = open_store();
        ASSERT_EQ(purge(s), 2);
        ASSERT_STR(cells(s, (struct cop_cell_filter){0}), "");
        ASSERT_OK(cop_store_sandbox_get(s, "sb_a", &row, &err), &err);
        row = cop_sandbox_row_free(row);

        ASSERT_OK(cop_store_sandbox_forget(s, "sb_a", &err), &err);
        ASSERT_EQ(purge(s), 1);
        ASSERT_CODE(cop_store_sandbox_get(s, "sb_a", &row, &err), &err, COP_ERR_sandbox_not_found);
        ASSERT_OK(cop_store_sandbox_get(s, "sb_b", &row, &err), &err);
        cop_sandbox_row_free(row);
        cop_store_close(s);
}

TEST(events_are_numbered_and_pruned)
{
        struct cop_store *s = open_store();
        struct cop_event_row **rows;
        struct cop_error err;
        int64_t first = 0, id = 0;
        size_t n = 0;

        ASSERT_OK(cop_store_begin(s, &err), &err);
        ASSERT_OK(cop_store_event_add(s, 1, "a", "sb_a", "{}", &first, &err), &err);
        for (int i = 0; i < COP_STORE_EVENTS_KEEP + 600; i++)
                ASSERT_OK(cop_store_event_add(s, 1, "b", i % 2 ? "sb_b" : NULL, NULL, &id, &err), &err);
        ASSERT_OK(cop_store_commit(s, &err), &err);
        ASSERT_EQ(id, first + COP_STORE_EVENTS_KEEP + 600);
        ASSERT_OK(cop_store_event_list(s, 0, NULL, 100000, &rows, &err), &err);
        ASSERT_GT(rows[0]->id, first);
        while (rows[n])
                n++;
        ASSERT_GE(n, COP_STORE_EVENTS_KEEP);
        ASSERT_LE(n, COP_STORE_EVENTS_KEEP + 500);
        cop_event_rows_free(rows);
        ASSERT_OK(cop_store_event_list(s, id - 3, "sb_b", 0, &rows, &err), &err);
        ASSERT_STR(rows[0]->sandbox_id, "sb_b");
        cop_event_rows_free(rows);
        cop_store_close(s);
}

TEST(tokens)
{
        struct cop_store *s = open_store();
        struct cop_token_row row = {
                .id = "tok_1", .sha256 = "aa", .name = (char *)"ci", .created_at = 1, .expires_at = 9};
        struct cop_token_row **rows;
        struct cop_error err;

        ASSERT_OK(cop_store_token_insert(s, &row, &err), &err);
        ASSERT_OK(cop_store_token_list(s, &rows, &err), &err);
        ASSERT_STR(rows[0]->sha256, "aa");
        ASSERT_EQ(rows[0]->expires_at, 9);
        cop_token_rows_free(rows);
        ASSERT_OK(cop_store_token_delete(s, "tok_1", &err), &err);
        ASSERT_CODE(cop_store_token_delete(s, "tok_1", &err), &err, COP_ERR_token_not_found);
        cop_store_close(s);
}

TEST(transactions_undo_and_survive_closing)
{
        struct cop_store *s = open_store();
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *row = NULL;
        struct cop_error err;

        ASSERT_OK(cop_store_begin(s, &err), &err);
        add_sandbox(s, "sb_a", NULL, 0);
        cop_store_rollback(s);
        cop_store_rollback(s);
        ASSERT_CODE(cop_store_sandbox_get(s, "sb_a", &row, &err), &err, COP_ERR_sandbox_not_found);
        ASSERT_OK(cop_store_begin(s, &err), &err);
        add_sandbox(s, "sb_b", NULL, 0);
        ASSERT_OK(cop_store_commit(s, &err), &err);
        ASSERT_OK(cop_store_begin(s, &err), &err);
        add_sandbox(s, "sb_c", NULL, 1);
        cop_store_close(s); /* as a daemon that stops in between */
        s = open_store();
        ASSERT_OK(cop_store_sandbox_get(s, "sb_b", &row, &err), &err);
        row = cop_sandbox_row_free(row);
        ASSERT_CODE(cop_store_sandbox_get(s, "sb_c", &row, &err), &err, COP_ERR_sandbox_not_found);
        cop_store_close(s);
}

TEST(hostile_text_stays_text)
{
        struct cop_store *s = open_store();
        _cleanup_(cop_sandbox_row_freep) struct cop_sandbox_row *row = NULL;
        struct cop_error err;

        add_sandbox(s, "sb_a", "x'; DROP TABLE sandboxes; --", 0);
        ASSERT_OK(cop_store_sandbox_get(s, "x'; DROP TABLE sandboxes; --", &row, &err), &err);
        ASSERT_STR(row->id, "sb_a");
        row = cop_sandbox_row_free(row);
        ASSERT_CODE(cop_store_sandbox_get(s, "' OR 1=1 --", &row, &err), &err, COP_ERR_sandbox_not_found);
        cop_store_close(s);
}

static void add_snapshot(struct cop_store *s, const char *id, const char *name, usec_t expires_at)
{
        char layers[60];
        struct cop_node_row row = {.kind = "files", .reason = "snapshot", .image_id = "im_a", .spec = (char *)"{}"};
        struct cop_error err;

        snprintf(row.id, sizeof(row.id), "%s", id);
        snprintf(layers, sizeof(layers), "[\"%s\"]", id);
        row.layers = layers;
        row.name = (char *)name;
        row.expires_at = expires_at;
        ASSERT_OK(cop_store_node_insert(s, &row, &err), &err);
}

static void add_written(struct cop_store *s, const char *id, const char *boot)
{
        struct cop_node_row row = {
                .kind = "memory", .reason = "fork", .image_id = "im_a", .layers = (char *)"[]", .spec = (char *)"{}"};
        struct cop_error err;

        snprintf(row.id, sizeof(row.id), "%s", id);
        snprintf(row.written_boot, sizeof(row.written_boot), "%s", boot);
        ASSERT_OK(cop_store_node_insert(s, &row, &err), &err);
}

TEST(nodes_that_were_only_written_are_told_in_another_boot)
{
        struct cop_store *s = open_store();
        _cleanup_(cop_node_rows_freep) struct cop_node_row **rows = NULL, **none = NULL;
        struct cop_error err;
        int64_t newest = -1;

        ASSERT_OK(cop_store_node_newest(s, &newest, &err), &err);
        ASSERT_EQ(newest, 0);
        add_written(s, "nd_a", "boot-1");
        add_written(s, "nd_b", "");
        ASSERT_OK(cop_store_node_newest(s, &newest, &err), &err);
        add_written(s, "nd_c", "boot-1");
        add_written(s, "nd_d", "boot-2");
        ASSERT_OK(cop_store_nodes_synced(s, newest, &err), &err); /* nd_c came while it was synced */
        ASSERT_OK(cop_store_nodes_written_before(s, "boot-2", &rows, &err), &err);
        ASSERT(rows[0] && !rows[1]);
        ASSERT_STR(rows[0]->id, "nd_c");
        ASSERT_STR(rows[0]->written_boot, "boot-1");
        ASSERT_OK(cop_store_nodes_synced(s, INT64_MAX, &err), &err);
        ASSERT_OK(cop_store_nodes_written_before(s, "boot-3", &none, &err), &err);
        ASSERT(!none[0]);
        cop_store_close(s);
}

TEST(snapshots_expire_in_order_and_once)
{
        struct cop_store *s = open_store();
        _cleanup_(cop_node_rows_freep) struct cop_node_row **rows = NULL, **later = NULL;
        _cleanup_(cop_node_row_freep) struct cop_node_row *back = NULL;
        struct cop_error err;
        usec_t next = 7;

        ASSERT_OK(cop_store_node_next_expiry(s, &next, &err), &err);
        ASSERT_EQ(next, 0);
        add_snapshot(s, "nd_never00000", "never", 0);
        add_snapshot(s, "nd_late000000", "late", 3000);
        add_snapshot(s, "nd_soon000000", "soon", 1000);
        add_snapshot(s, "nd_mid0000000", NULL, 2000);
        ASSERT_OK(cop_store_node_next_expiry(s, &next, &err), &err);
        ASSERT_EQ(next, 1000);
        ASSERT_OK(cop_store_node_expired(s, 2000, &rows, &err), &err);
        ASSERT_STR(rows[0]->id, "nd_soon000000");
        ASSERT_STR(rows[1]->id, "nd_mid0000000");
        ASSERT(rows[2] == NULL);
        ASSERT_EQ(rows[1]->expires_at, 2000);
        ASSERT_OK(cop_store_node_give_up(s, "nd_soon000000", &err), &err);
        ASSERT_OK(cop_store_node_get(s, "nd_soon000000", &back, &err), &err);
        ASSERT(back->name == NULL && back->expires_at == 0);
        add_snapshot(s, "nd_again00000", "soon", 0); /* its name is free */
        ASSERT_OK(cop_store_node_expired(s, 2000, &later, &err), &err);
        ASSERT_STR(later[0]->id, "nd_mid0000000");
        ASSERT(later[1] == NULL);
        ASSERT_CODE(cop_store_node_give_up(s, "nd_none000000", &err), &err, COP_ERR_node_not_found);
        cop_store_close(s);
}
