/* The kernel client against a kernel that does exactly what a test says: zmq sockets in the same thread. */
#include "jupyter/kernel.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "base/json.h"
#include "jupyter/message.h"
#include "lib/test.h"

#define KEY "0123456789abcdef"
#define SESSION "test-session"

enum { SHELL, IOPUB, STDIN, CONTROL, CHANNELS };

struct fake {
        struct cop_loop *loop;
        struct cop_jupyter *jupyter;
        struct cop_kernel *kernel;
        struct cop_signer *signer;
        void *zmq, *sockets[CHANNELS];
        int dir_fd;
        bool answer_info, publish_info; /* kernel_info_request: reply on shell, status on iopub */
        bool answer_control;
        bool hand_over; /* as coppice_kernel sets it */
        bool busy;      /* does not look at shell and stdin */

        /* the last request that was not kernel_info */
        char type[64], id[300], identity[100], parent[300];
        json_t *content;
        unsigned infos;

        /* what the client reported */
        bool ready, failed, done, free_in_ready, free_in_output, free_in_late, free_in_done, free_in_failed, rerun;
        struct cop_error error;
        char text[4096], late[4096], late_id[300], last_id[300];
        enum cop_output_kind kinds[16];
        unsigned outputs, lates, parentless, dones, inputs;
        struct cop_execution_result result;
        char ename[64];
};

/* -- the fake kernel --------------------------------------------------------------------------------------------------- */

static void fake_bind(struct fake *f)
{
        static const int types[] = {ZMQ_ROUTER, ZMQ_PUB, ZMQ_ROUTER, ZMQ_ROUTER};
        char endpoint[300];
        int zero = 0, yes = 1;

        f->zmq = zmq_ctx_new();
        for (int i = 0; i < CHANNELS; i++) {
                f->sockets[i] = zmq_socket(f->zmq, types[i]);
                zmq_setsockopt(f->sockets[i], ZMQ_LINGER, &zero, sizeof(zero));
                zmq_setsockopt(f->sockets[i], ZMQ_SNDHWM, &zero, sizeof(zero));
                if (types[i] == ZMQ_ROUTER && f->hand_over)
                        zmq_setsockopt(f->sockets[i], ZMQ_ROUTER_HANDOVER, &yes, sizeof(yes));
                snprintf(endpoint, sizeof(endpoint), "ipc://%s/k-%d", test_dir(), i + 1);
                ASSERT_EQ(zmq_bind(f->sockets[i], endpoint), 0);
        }
}

static void fake_unbind(struct fake *f)
{
        for (int i = 0; i < CHANNELS && f->zmq; i++)
                zmq_close(f->sockets[i]);
        if (f->zmq)
                zmq_ctx_term(f->zmq);
        f->zmq = NULL;
}

/* Sends a message whose parent is parent_id ("" = none), with a message id of its own. */
static void say(struct fake *f, int channel, const char *type, const char *parent_id, const char *content)
{
        static unsigned counter;
        char header[300], parent[400] = "{}", signature[COP_SIGNATURE_SIZE];

        snprintf(header, sizeof(header), "{\"msg_id\":\"fake-%u\",\"msg_type\":\"%s\"}", ++counter, type);
        if (*parent_id)
                snprintf(parent, sizeof(parent), "{\"msg_id\":\"%s\"}", parent_id);
        struct cop_frame frames[4] = {{header, strlen(header)},
                                      {parent, strlen(parent)},
                                      {(char *)"{}", 2},
                                      {(char *)content, strlen(content)}};
        cop_signer_sign(f->signer, frames, signature);
        const char *first = channel == IOPUB ? "topic" : f->identity;
        zmq_send(f->sockets[channel], first, strlen(first), ZMQ_SNDMORE);
        zmq_send(f->sockets[channel], "<IDS|MSG>", 9, ZMQ_SNDMORE);
        zmq_send(f->sockets[channel], signature, 64, ZMQ_SNDMORE);
        for (int i = 0; i < 4; i++)
                zmq_send(f->sockets[channel], frames[i].data, frames[i].len, i < 3 ? ZMQ_SNDMORE : 0);
}

static void say_status(struct fake *f, const char *parent_id, const char *state)
{
        char content[100];

        snprintf(content, sizeof(content), "{\"execution_state\":\"%s\"}", state);
        say(f, IOPUB, "status", parent_id, content);
}

static void say_print(struct fake *f, const char *parent_id, const char *text)
{
        char content[1000];

        snprintf(content, sizeof(content), "{\"name\":\"stdout\",\"text\":\"%s\"}", text);
        say(f, IOPUB, "stream", parent_id, content);
}

static void on_request(struct fake *f, int channel, struct cop_message *m)
{
        if (strcmp(m->type, "kernel_info_request") == 0) {
                f->infos++;
                if (f->publish_info)
                        say_status(f, m->id, "busy");
                if ((channel == SHELL && f->answer_info) || (channel == CONTROL && f->answer_control))
                        say(f, channel, "kernel_info_reply", m->id,
                            "{\"protocol_version\":\"5.3\",\"language_info\":{\"name\":\"fake\"}}");
                if (f->publish_info)
                        say_status(f, m->id, "idle");
                return;
        }
        snprintf(f->type, sizeof(f->type), "%s", m->type);
        snprintf(f->id, sizeof(f->id), "%s", m->id);
        snprintf(f->parent, sizeof(f->parent), "%s", m->parent_id);
        json_decref(f->content);
        ASSERT_OK(cop_message_content(m, &f->content, NULL, NULL), NULL);
}

static void fake_receive(struct fake *f)
{
        static char room[12][65536];
        struct cop_frame frames[12];
        struct cop_message m;

        for (int channel = 0; f->zmq && channel < CHANNELS; channel++) {
                if (channel == IOPUB || (f->busy && channel != CONTROL))
                        continue;
                for (;;) {
                        size_t n = 0;
                        int more = 1, len = 0;
                        size_t size = sizeof(more);
                        while (more && n < 12 &&
                               (len = zmq_recv(f->sockets[channel], room[n], 65535, ZMQ_DONTWAIT)) >= 0) {
                                frames[n] = (struct cop_frame){room[n], (size_t)len};
                                n++;
                                zmq_getsockopt(f->sockets[channel], ZMQ_RCVMORE, &more, &size);
                        }
                        if (n == 0)
                                break;
                        snprintf(f->identity, sizeof(f->identity), "%.*s", (int)frames[0].len, frames[0].data);
                        ASSERT_OK(cop_message_parse(frames, n, f->signer, &m, NULL), NULL);
                        on_request(f, channel, &m);
                        cop_message_done(&m);
                }
        }
}

static void turn(struct fake *f)
{
        fake_receive(f);
        cop_loop_turn(f->loop, 2 * USEC_PER_MSEC);
}

#define UNTIL(f, condition)                                                 \
        do {                                                                \
                usec_t _end = cop_now(CLOCK_MONOTONIC) + 10 * USEC_PER_SEC; \
                while (!(condition)) {                                      \
                        turn(f);                                            \
                        if (cop_now(CLOCK_MONOTONIC) > _end)                \
                                FAIL("%s never came", #condition);          \
                }                                                           \
        } while (0)

static void settle(struct fake *f, unsigned ms)
{
        usec_t end = cop_now(CLOCK_MONOTONIC) + ms * USEC_PER_MSEC;

        while (cop_now(CLOCK_MONOTONIC) < end)
                turn(f);
}

/* -- what the client reports -------------------------------------------------------------------------------------------- */

static void on_ready(struct cop_kernel *k, const struct cop_kernel_info *info, void *userdata)
{
        struct fake *f = userdata;

        ASSERT(!f->ready && !f->failed);
        ASSERT_STR(info->language, "fake");
        f->ready = true;
        if (f->free_in_ready)
                f->kernel = cop_kernel_free(k);
}

static void on_failed(struct cop_kernel *k, const struct cop_error *error, void *userdata)
{
        struct fake *f = userdata;

        ASSERT(!f->failed);
        f->failed = true;
        f->error = *error;
        if (f->free_in_failed)
                f->kernel = cop_kernel_free(k);
}

static void on_late(struct cop_kernel *k, const char *msg_id, const struct cop_output *o, void *userdata)
{
        struct fake *f = userdata;

        f->lates++;
        snprintf(f->late_id, sizeof(f->late_id), "%s", msg_id ? msg_id : "(none)");
        if (o->kind == COP_OUTPUT_STREAM)
                strncat(f->late, o->text, sizeof(f->late) - strlen(f->late) - 1);
        if (f->free_in_late)
                f->kernel = cop_kernel_free(k);
}

static void on_output(struct cop_execution *x, const struct cop_output *o, void *userdata)
{
        struct fake *f = userdata;

        if (f->outputs < ELEMENTSOF(f->kinds))
                f->kinds[f->outputs] = o->kind;
        f->outputs++;
        f->parentless += o->parentless;
        if (o->kind == COP_OUTPUT_STREAM)
                strncat(f->text, o->text, sizeof(f->text) - strlen(f->text) - 1);
        if (f->free_in_output)
                f->kernel = cop_kernel_free(f->kernel);
}

static void on_input(struct cop_execution *x, const char *prompt, bool password, void *userdata)
{
        struct fake *f = userdata;

        f->inputs++;
        ASSERT_STR(prompt, "name?");
        ASSERT(password);
}

static void execute(struct fake *f, const struct cop_execute_options *options);

static void on_done(struct cop_execution *x, const struct cop_execution_result *r, void *userdata)
{
        struct fake *f = userdata;

        f->done = true;
        f->dones++;
        f->result = *r;
        snprintf(f->last_id, sizeof(f->last_id), "%s", cop_execution_id(x));
        snprintf(f->ename, sizeof(f->ename), "%s", r->ename ? r->ename : "");
        ASSERT(!cop_kernel_running(f->kernel));
        ASSERT(!cop_execution_abandon(x));
        if (f->rerun) {
                f->rerun = false;
                execute(f, NULL);
        }
        if (f->free_in_done)
                f->kernel = cop_kernel_free(f->kernel);
}

static const struct cop_execution_events execution_events = {on_output, on_input, on_done};

static void execute(struct fake *f, const struct cop_execute_options *options)
{
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_OK(cop_kernel_execute(f->kernel, "code", 4, options, &execution_events, f, NULL, &err), &err);
}

static const struct cop_kernel_events kernel_events = {.ready = on_ready, .failed = on_failed, .late_output = on_late};

static void open_with(struct fake *f, usec_t timeout, bool adopt)
{
        struct cop_error err = COP_ERROR_NULL;
        struct cop_kernel_options options = {
                .dir_fd = f->dir_fd, .key = KEY, .session = SESSION, .timeout = timeout, .adopt = adopt};

        ASSERT_OK(cop_kernel_open(f->jupyter, &options, &kernel_events, f, &f->kernel, &err), &err);
}

static struct fake *fake_new(void)
{
        struct fake *f = calloc(1, sizeof(*f));
        struct cop_error err = COP_ERROR_NULL;

        f->answer_info = f->publish_info = f->answer_control = f->hand_over = true;
        f->dir_fd = open(test_dir(), O_PATH | O_DIRECTORY | O_CLOEXEC);
        ASSERT_OK(cop_signer_new(KEY, &f->signer, &err), &err);
        ASSERT_OK(cop_loop_new(&f->loop, &err), &err);
        ASSERT_OK(cop_jupyter_new(f->loop, 4, &f->jupyter, &err), &err);
        return f;
}

static struct fake *fake_ready(void)
{
        struct fake *f = fake_new();

        fake_bind(f);
        open_with(f, 0, false);
        UNTIL(f, f->ready);
        return f;
}

static void fake_free(struct fake *f)
{
        cop_kernel_free(f->kernel);
        cop_jupyter_free(f->jupyter);
        cop_loop_free(f->loop);
        fake_unbind(f);
        cop_signer_free(f->signer);
        json_decref(f->content);
        cop_close(f->dir_fd);
        free(f);
}

/* Starts a cell and waits until the kernel has it. */
static void begin(struct fake *f, const struct cop_execute_options *options)
{
        f->done = false;
        f->type[0] = '\0';
        execute(f, options);
        UNTIL(f, strcmp(f->type, "execute_request") == 0);
}

/* -- starting ----------------------------------------------------------------------------------------------------------- */

TEST(ready_needs_a_reply_and_iopub)
{
        struct fake *f = fake_new();

        fake_bind(f);
        f->publish_info = false;
        open_with(f, 0, false);
        UNTIL(f, f->infos >= 3); /* asked again, since only the reply came */
        settle(f, 30);
        ASSERT(!f->ready);
        say_status(f, "", "idle");
        UNTIL(f, f->ready);
        fake_free(f);

        f = fake_new();
        fake_bind(f);
        f->answer_info = false;
        open_with(f, 0, false);
        UNTIL(f, f->infos >= 1);
        settle(f, 50);
        ASSERT(!f->ready);
        ASSERT_EQ(f->infos, 1); /* a kernel that is starting is not flooded */
        fake_free(f);
}

TEST(sockets_may_come_late)
{
        struct fake *f = fake_new();

        open_with(f, 0, false);
        settle(f, 50);
        fake_bind(f);
        UNTIL(f, f->ready);
        fake_free(f);
}

TEST(no_kernel_in_time)
{
        struct fake *f = fake_new();

        f->free_in_failed = true;
        open_with(f, 50 * USEC_PER_MSEC, false);
        UNTIL(f, f->failed);
        ASSERT_EQ(f->error.code, COP_ERR_kernel_start_failed);
        fake_free(f);
}

static void refused(const char *(*plant)(char *path))
{
        struct fake *f = fake_new();
        char path[300];

        fake_bind(f);
        snprintf(path, sizeof(path), "%s/k-2", test_dir());
        plant(path);
        open_with(f, 5 * USEC_PER_SEC, false);
        UNTIL(f, f->failed);
        ASSERT(!f->ready);
        fake_free(f);
}

static const char *plant_link(char *path)
{
        char real[310];

        snprintf(real, sizeof(real), "%s.real", path);
        ASSERT_EQ(rename(path, real), 0);
        ASSERT_EQ(symlink(real, path), 0);
        return NULL;
}

static const char *plant_fifo(char *path)
{
        ASSERT_EQ(unlink(path), 0);
        ASSERT_EQ(mkfifo(path, 0666), 0);
        return NULL;
}

static const char *plant_file(char *path)
{
        ASSERT_EQ(unlink(path), 0);
        ASSERT_OK(cop_close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666)) + EBADF, NULL);
        return NULL;
}

TEST(a_link_is_not_followed)
{
        refused(plant_link);
}

TEST(a_fifo_is_no_socket)
{
        refused(plant_fifo);
}

TEST(a_file_is_no_socket)
{
        refused(plant_file);
}

TEST(bad_options)
{
        struct fake *f = fake_new();
        struct cop_kernel_options options = {.dir_fd = f->dir_fd, .key = KEY, .session = "a b"};
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_CODE(cop_kernel_open(f->jupyter, &options, &kernel_events, f, &f->kernel, &err), &err,
                    COP_ERR_bad_request);
        options.session = "ok";
        options.base = "../k";
        ASSERT_CODE(cop_kernel_open(f->jupyter, &options, &kernel_events, f, &f->kernel, &err), &err,
                    COP_ERR_bad_request);
        fake_free(f);
}

/* -- cells --------------------------------------------------------------------------------------------------------------- */

TEST(a_cell)
{
        struct fake *f = fake_ready();
        struct cop_error err = COP_ERROR_NULL;

        begin(f, NULL);
        ASSERT_STR(f->identity, SESSION);
        ASSERT_STR(json_string_value(json_object_get(f->content, "code")), "code");
        ASSERT(json_is_true(json_object_get(f->content, "store_history")));
        ASSERT(json_is_false(json_object_get(f->content, "stop_on_error")));
        ASSERT_CODE(cop_kernel_execute(f->kernel, "x", 1, NULL, &execution_events, f, NULL, &err), &err,
                    COP_ERR_invalid_state);
        say_status(f, f->id, "busy");
        say_print(f, f->id, "one ");
        say(f, IOPUB, "execute_result", f->id, "{\"data\":{\"text/plain\":\"2\"},\"execution_count\":7}");
        say_print(f, "", "nobody's ");
        say_print(f, "another-cell", "late");
        say(f, SHELL, "execute_reply", f->id, "{\"status\":\"ok\",\"execution_count\":7,\"user_expressions\":{}}");
        UNTIL(f, f->lates == 1);
        settle(f, 10);
        ASSERT(!f->done);
        say_status(f, f->id, "idle");
        UNTIL(f, f->done);
        ASSERT_STR(f->text, "one nobody's ");
        ASSERT_EQ(f->parentless, 1);
        ASSERT_EQ(f->kinds[1], COP_OUTPUT_RESULT);
        ASSERT_STR(f->late, "late");
        ASSERT_STR(f->late_id, "another-cell");
        ASSERT_EQ(f->result.status, COP_EXECUTION_OK);
        ASSERT_EQ(f->result.execution_count, 7);
        ASSERT(!f->result.output_incomplete);
        say_print(f, f->last_id, "afterwards");
        say_print(f, "", "!");
        UNTIL(f, f->lates == 3);
        ASSERT_STR(f->late, "lateafterwards!");
        ASSERT_STR(f->late_id, "(none)");
        fake_free(f);
}

TEST(idle_may_come_first_and_errors_are_told)
{
        struct fake *f = fake_ready();

        begin(f, NULL);
        say_status(f, f->id, "idle");
        settle(f, 10);
        ASSERT(!f->done);
        say(f, SHELL, "execute_reply", f->id,
            "{\"status\":\"error\",\"ename\":\"E\",\"evalue\":\"v\",\"traceback\":[\"t\"],\"execution_count\":1}");
        UNTIL(f, f->done);
        ASSERT_EQ(f->result.status, COP_EXECUTION_ERROR);
        ASSERT_STR(f->ename, "E");

        begin(f, NULL);
        say_status(f, f->id, "idle");
        say(f, SHELL, "execute_reply", f->id, "{\"status\":\"aborted\"}");
        UNTIL(f, f->done);
        ASSERT_EQ(f->result.status, COP_EXECUTION_ABORTED);
        ASSERT_EQ(f->result.execution_count, -1);
        fake_free(f);
}

TEST(a_missing_half)
{
        struct fake *f = fake_ready();
        struct cop_execute_options quick = {.idle_timeout = 20 * USEC_PER_MSEC, .reply_timeout = 20 * USEC_PER_MSEC};

        begin(f, &quick);
        say(f, SHELL, "execute_reply", f->id, "{\"status\":\"ok\",\"payload\":[{\"source\":\"ask_exit\"}]}");
        UNTIL(f, f->done);
        ASSERT_EQ(f->result.status, COP_EXECUTION_OK);
        ASSERT(f->result.output_incomplete);
        ASSERT(f->result.ask_exit);

        begin(f, &quick);
        say_status(f, f->id, "idle");
        UNTIL(f, f->done);
        ASSERT_EQ(f->result.status, COP_EXECUTION_NO_REPLY);
        ASSERT(!f->result.output_incomplete);
        fake_free(f);
}

TEST(the_pager_is_an_output)
{
        struct fake *f = fake_ready();

        begin(f, NULL);
        say_status(f, f->id, "idle");
        say(f, SHELL, "execute_reply", f->id,
            "{\"status\":\"ok\",\"payload\":[{\"source\":\"page\",\"data\":{\"text/plain\":\"help\"}}]}");
        UNTIL(f, f->done);
        ASSERT_EQ(f->outputs, 1);
        ASSERT_EQ(f->kinds[0], COP_OUTPUT_DISPLAY);
        fake_free(f);
}

TEST(forged_and_broken_messages_are_dropped)
{
        struct fake *f = fake_ready();
        struct cop_signer *right = f->signer;
        struct cop_kernel_stats stats;

        begin(f, NULL);
        ASSERT_OK(cop_signer_new("another key", &f->signer, NULL), NULL);
        say_print(f, f->id, "forged");
        say(f, SHELL, "execute_reply", f->id, "{\"status\":\"ok\"}");
        say_status(f, f->id, "idle");
        cop_signer_free(f->signer);
        f->signer = right;
        zmq_send(f->sockets[IOPUB], "garbage", 7, 0);
        say(f, IOPUB, "stream", f->id, "{\"name\":\"stdout\"");
        say_print(f, f->id, "real");
        UNTIL(f, f->outputs == 1);
        settle(f, 20);
        ASSERT(!f->done);
        ASSERT_STR(f->text, "real");
        cop_kernel_get_stats(f->kernel, &stats);
        ASSERT_EQ(stats.bad_signature, 3);
        ASSERT_EQ(stats.malformed, 2);
        say(f, SHELL, "execute_reply", f->id, "{\"status\":\"ok\"}");
        say_status(f, f->id, "idle");
        UNTIL(f, f->done);
        ASSERT(f->result.output_incomplete); /* the broken one was an output */
        fake_free(f);
}

TEST(input)
{
        struct fake *f = fake_ready();
        struct cop_execute_options options = {.allow_stdin = true};

        begin(f, &options);
        ASSERT(json_is_true(json_object_get(f->content, "allow_stdin")));
        ASSERT_ERRNO(cop_execution_input(cop_kernel_running(f->kernel), "x", 1, NULL), ENOENT);
        char cell[300];
        snprintf(cell, sizeof(cell), "%s", f->id);
        /* stdin has the same routing id as shell, or this would be dropped */
        say(f, STDIN, "input_request", cell, "{\"prompt\":\"name?\",\"password\":true}");
        UNTIL(f, f->inputs == 1);
        ASSERT_OK(cop_execution_input(cop_kernel_running(f->kernel), "Zo\xC3\xAB", 4, NULL), NULL);
        UNTIL(f, strcmp(f->type, "input_reply") == 0);
        ASSERT_STR(json_string_value(json_object_get(f->content, "value")), "Zo\xC3\xAB");
        ASSERT_CONTAINS(f->parent, "fake-");
        ASSERT_ERRNO(cop_execution_input(cop_kernel_running(f->kernel), "x", 1, NULL), ENOENT);
        fake_free(f);
}

TEST(control_requests)
{
        struct fake *f = fake_ready();

        ASSERT_OK(cop_kernel_interrupt(f->kernel, NULL), NULL);
        UNTIL(f, strcmp(f->type, "interrupt_request") == 0);
        ASSERT_OK(cop_kernel_shutdown(f->kernel, true, NULL), NULL);
        UNTIL(f, strcmp(f->type, "shutdown_request") == 0);
        ASSERT(json_is_true(json_object_get(f->content, "restart")));
        unsigned before = f->infos;
        ASSERT_OK(cop_kernel_poke(f->kernel, NULL), NULL);
        UNTIL(f, f->infos == before + 1);
        fake_free(f);
}

TEST(code_that_is_no_utf8)
{
        struct fake *f = fake_ready();
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_CODE(cop_kernel_execute(f->kernel, "\xff", 1, NULL, &execution_events, f, NULL, &err), &err,
                    COP_ERR_bad_request);
        ASSERT(!cop_kernel_running(f->kernel));
        fake_free(f);
}

TEST(abandon)
{
        struct fake *f = fake_ready();
        char first[300];

        begin(f, NULL);
        snprintf(first, sizeof(first), "%s", f->id);
        cop_execution_abandon(cop_kernel_running(f->kernel));
        begin(f, NULL);
        say_print(f, first, "old");
        say(f, SHELL, "execute_reply", first, "{\"status\":\"ok\"}");
        say_status(f, first, "idle");
        UNTIL(f, f->lates == 1);
        settle(f, 10);
        ASSERT(!f->done);
        ASSERT_STR(f->late_id, first);
        fake_free(f);
}

/* -- freeing and running inside callbacks ----------------------------------------------------------------------------------- */

TEST(free_in_ready)
{
        struct fake *f = fake_new();

        f->free_in_ready = true;
        fake_bind(f);
        open_with(f, 0, false);
        UNTIL(f, f->ready);
        settle(f, 10);
        fake_free(f);
}

TEST(free_in_output)
{
        struct fake *f = fake_ready();

        begin(f, NULL);
        f->free_in_output = true;
        say_print(f, f->id, "a");
        say_print(f, f->id, "b");
        UNTIL(f, f->outputs);
        settle(f, 10);
        ASSERT_EQ(f->outputs, 1);
        ASSERT_EQ(f->dones, 0);
        fake_free(f);
}

TEST(free_in_pager_output)
{
        struct fake *f = fake_ready();

        begin(f, NULL);
        f->free_in_output = true;
        say(f, SHELL, "execute_reply", f->id,
            "{\"status\":\"ok\",\"payload\":[{\"source\":\"page\",\"data\":{\"text/plain\":\"help\"}}]}");
        UNTIL(f, f->outputs);
        settle(f, 10);
        fake_free(f);
}

TEST(free_in_late)
{
        struct fake *f = fake_ready();

        f->free_in_late = true;
        say_print(f, "", "a");
        say_print(f, "", "b");
        UNTIL(f, f->lates);
        settle(f, 10);
        ASSERT_EQ(f->lates, 1);
        fake_free(f);
}

TEST(free_and_rerun_in_done)
{
        struct fake *f = fake_ready();

        f->rerun = true;
        begin(f, NULL);
        char first[300];
        snprintf(first, sizeof(first), "%s", f->id);
        say(f, SHELL, "execute_reply", first, "{\"status\":\"ok\"}");
        say_status(f, first, "idle");
        UNTIL(f, f->dones == 1 && strcmp(f->id, first) != 0);
        f->free_in_done = true;
        say(f, SHELL, "execute_reply", f->id, "{\"status\":\"ok\"}");
        say_status(f, f->id, "idle");
        UNTIL(f, f->dones == 2);
        settle(f, 10);
        fake_free(f);
}

/* -- ends and new beginnings -------------------------------------------------------------------------------------------------- */

TEST(death_delivers_what_is_left)
{
        struct fake *f = fake_ready();

        begin(f, NULL);
        for (int i = 0; i < 100; i++)
                say_print(f, f->id, "x");
        usleep(20000); /* LINGER is 0: give the io thread time to write them */
        fake_unbind(f);
        cop_kernel_died(f->kernel);
        UNTIL(f, f->done);
        ASSERT_EQ(f->outputs, 100);
        ASSERT_EQ(f->result.status, COP_EXECUTION_NO_REPLY);
        ASSERT_ERRNO(cop_kernel_poke(f->kernel, NULL), ENOTCONN);
        fake_free(f);
}

TEST(death_with_sockets_still_held)
{
        struct fake *f = fake_ready();

        begin(f, NULL);
        f->free_in_done = true;
        cop_kernel_died(f->kernel);
        UNTIL(f, f->done);
        fake_free(f);
}

TEST(adopts_a_busy_kernel)
{
        struct fake *f = fake_ready();
        char id[300];

        begin(f, NULL);
        snprintf(id, sizeof(id), "%s", f->id);
        f->kernel = cop_kernel_free(f->kernel);
        f->ready = false;
        f->answer_info = false; /* busy: shell is not answered, control is */
        open_with(f, 0, true);
        UNTIL(f, f->ready);
        ASSERT_OK(cop_kernel_adopt_execution(f->kernel, id, &execution_events, f, NULL, NULL), NULL);
        say_print(f, id, "still");
        UNTIL(f, f->outputs == 1);
        say(f, SHELL, "execute_reply", id, "{\"status\":\"ok\",\"execution_count\":3}");
        say_status(f, id, "idle");
        UNTIL(f, f->done);
        ASSERT_EQ(f->result.status, COP_EXECUTION_OK);
        ASSERT_EQ(f->result.execution_count, 3);
        ASSERT_STR(f->last_id, id);
        fake_free(f);
}

/* A stock kernel: busy, it has not cleared the old connection away when the new one comes with the same routing id. */
TEST(adopts_a_kernel_that_does_not_hand_over)
{
        struct fake *f = fake_new();
        int zero = 0;
        char id[300];

        f->hand_over = false;
        fake_bind(f);
        for (int i = 0; i < CHANNELS; i++)
                zmq_setsockopt(f->sockets[i], ZMQ_ROUTER_HANDOVER, &zero, sizeof(zero));
        int yes = 1; /* as ipykernel does on control */
        zmq_setsockopt(f->sockets[CONTROL], ZMQ_ROUTER_HANDOVER, &yes, sizeof(yes));
        open_with(f, 0, false);
        UNTIL(f, f->ready);
        begin(f, NULL);
        snprintf(id, sizeof(id), "%s", f->id);
        f->busy = true;
        f->kernel = cop_kernel_free(f->kernel);
        settle(f, 30);
        f->ready = false;
        open_with(f, 0, true);
        UNTIL(f, f->ready);
        ASSERT_OK(cop_kernel_adopt_execution(f->kernel, id, &execution_events, f, NULL, NULL), NULL);
        settle(f, 30);
        f->busy = false;
        say(f, SHELL, "execute_reply", id, "{\"status\":\"ok\"}");
        say_status(f, id, "idle");
        UNTIL(f, f->done);
        ASSERT_NE(f->result.status, COP_EXECUTION_ERROR);
        /* Whether the reply was lost or not: the next cell works. */
        begin(f, NULL);
        say(f, SHELL, "execute_reply", f->id, "{\"status\":\"ok\"}");
        say_status(f, f->id, "idle");
        UNTIL(f, f->done);
        ASSERT_EQ(f->result.status, COP_EXECUTION_OK);
        fake_free(f);
}

TEST(adopts_a_cell_that_ended_unseen)
{
        struct fake *f = fake_new();

        fake_bind(f);
        open_with(f, 0, true);
        UNTIL(f, f->ready);
        ASSERT_OK(cop_kernel_adopt_execution(f->kernel, "long-ago", &execution_events, f, NULL, NULL), NULL);
        UNTIL(f, f->done);
        ASSERT_EQ(f->result.status, COP_EXECUTION_NO_REPLY);
        ASSERT(f->result.output_incomplete);
        fake_free(f);
}

TEST_LIMIT(an_oversized_message, 120)
{
        struct fake *f = fake_ready();
        struct cop_execute_options quick = {.idle_timeout = 500 * USEC_PER_MSEC};
        struct cop_kernel_stats stats;
        zmq_msg_t huge;

        begin(f, &quick);
        zmq_msg_init_size(&huge, (size_t)257 << 20);
        memset(zmq_msg_data(&huge), 0, (size_t)257 << 20);
        ASSERT_GE(zmq_msg_send(&huge, f->sockets[IOPUB], 0), 0);
        say(f, SHELL, "execute_reply", f->id, "{\"status\":\"ok\"}");
        UNTIL(f, f->done);
        ASSERT(f->result.output_incomplete);
        cop_kernel_get_stats(f->kernel, &stats);
        ASSERT_EQ(stats.disconnects, 1);
        /* The connection comes back by itself. */
        begin(f, &quick);
        settle(f, 100);
        say_print(f, f->id, "again");
        UNTIL(f, f->outputs == 1);
        fake_free(f);
}

TEST(a_flood_leaves_room_for_others)
{
        struct fake *f = fake_ready();

        begin(f, NULL);
        for (int i = 0; i < 500; i++)
                say_print(f, f->id, "x");
        say(f, SHELL, "execute_reply", f->id, "{\"status\":\"ok\"}");
        usleep(100000);
        unsigned before = f->outputs, most = 0;
        while (f->outputs < 500) {
                cop_loop_turn(f->loop, USEC_PER_MSEC);
                most = MAX_OF(most, f->outputs - before);
                before = f->outputs;
        }
        /* One share by the descriptor and one by the deferred source. */
        ASSERT_LE(most, 64);
        fake_free(f);
}
