/* An engine on a home of its own, driven from a test: each call runs the loop until its operation is done. */
#pragma once

#include "lib/test.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "engine/internal.h"

struct answer {
        json_t *result; /* owned */
        struct cop_error err;
        unsigned calls, events;
        json_t *last_event; /* owned */
};

static inline void answer_done(struct answer *a)
{
        json_decref(a->result);
        json_decref(a->last_event);
        *a = (struct answer){0};
}
#define _cleanup_answer_ __attribute__((cleanup(answer_done)))

static inline void on_done(json_t *result, const struct cop_error *err, void *userdata)
{
        struct answer *a = userdata;

        a->calls++;
        json_decref(a->result);
        a->result = json_incref(result);
        a->err = err ? *err : COP_ERROR_NULL;
}

static inline void on_progress(json_t *event, void *userdata)
{
        struct answer *a = userdata;

        a->events++;
        json_decref(a->last_event);
        a->last_event = json_incref(event);
}

static inline struct cop_op_to answer_to(struct answer *a)
{
        return (struct cop_op_to){on_done, on_progress, a};
}

struct engine_fixture {
        struct cop_loop *loop;
        struct cop_engine *engine;
        char home[300], keeper[PATH_MAX + 40], tool[320], recipes[320];
};

/* The programs lie in $BIN, else in the bin folder of the build tree that this test belongs to. */
static inline void find_programs(struct engine_fixture *f)
{
        char self[PATH_MAX] = "";
        const char *bin = getenv("BIN");

        if (bin) {
                snprintf(f->keeper, sizeof(f->keeper), "%s/coppice-keeper", bin);
                return;
        }
        if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
                FAIL("readlink");
        for (int i = 0; i < 3; i++)
                *strrchr(self, '/') = '\0';
        snprintf(f->keeper, sizeof(f->keeper), "%s/bin/coppice-keeper", self);
}

static inline void engine_open(struct engine_fixture *f)
{
        struct cop_error err = COP_ERROR_NULL;

        snprintf(f->home, sizeof(f->home), "%s/home", test_dir());
        if (!f->keeper[0])
                find_programs(f);
        if (!f->tool[0])
                snprintf(f->tool, sizeof(f->tool), "%s/tool", test_dir());
        snprintf(f->recipes, sizeof(f->recipes), "%s/recipes", test_dir());
        const struct cop_engine_config config = {
                .home = f->home, .keeper_path = f->keeper, .image_tool = f->tool, .recipes = f->recipes};
        if (!f->loop)
                ASSERT_OK(cop_loop_new(&f->loop, &err), &err);
        ASSERT_OK(cop_engine_new(f->loop, &config, &f->engine, &err), &err);
}

static inline void engine_close(struct engine_fixture *f)
{
        f->engine = cop_engine_free(f->engine);
        f->loop = cop_loop_free(f->loop);
}

static inline void wait_answer(struct engine_fixture *f, struct answer *a)
{
        while (a->calls == 0)
                ASSERT_OK(cop_loop_turn(f->loop, USEC_PER_SEC), NULL);
        ASSERT_EQ(a->calls, 1);
}

/* Turns the loop for a while. */
static inline void on_driver_durable(const struct cop_error *err, void *userdata)
{
        *(bool *)userdata = true;
}

/* Until what was committed is on disk, and what waited for that has happened. */
static inline void wait_durable(struct engine_fixture *f)
{
        bool done = false;

        cop_engine_when_durable(f->engine, on_driver_durable, &done);
        while (!done)
                ASSERT_OK(cop_loop_turn(f->loop, USEC_PER_SEC), NULL);
}

static inline void turn_for(struct engine_fixture *f, usec_t time)
{
        for (usec_t end = cop_now(CLOCK_MONOTONIC) + time; cop_now(CLOCK_MONOTONIC) < end;)
                ASSERT_OK(cop_loop_turn(f->loop, 10 * USEC_PER_MSEC), NULL);
}

static inline const char *text_of(const struct answer *a, const char *key)
{
        return json_string_value(json_object_get(a->result, key));
}

static inline void assert_good(const struct answer *a)
{
        if (!a->result)
                FAIL("%s: %s", cop_err_code_name(a->err.code), a->err.message);
}
