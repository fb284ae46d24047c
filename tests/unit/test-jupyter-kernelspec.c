#include "jupyter/kernelspec.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"
#include "jupyter/connection.h"
#include "lib/test.h"

static struct cop_kernelspecs from(const char *text)
{
        _cleanup_json_ json_t *array = json_loads(text, JSON_ALLOW_NUL, NULL);
        struct cop_kernelspecs s = {0};

        ASSERT(array);
        ASSERT_OK(cop_kernelspecs_from_json(array, &s, NULL), NULL);
        return s;
}

TEST(reads_the_list_of_an_image)
{
        struct cop_kernelspecs s =
                from("[{\"name\":\"python3\",\"argv\":[\"/usr/bin/python3\",\"-m\",\"ipykernel_launcher\","
                     "\"-f\",\"{connection_file}\"],\"display_name\":\"Python\",\"language\":\"python\","
                     "\"interrupt_mode\":\"signal\",\"env\":{\"A\":\"1\",\"B=\":\"2\",\"C\":7}},"
                     "{\"name\":\"ir\",\"argv\":[\"R\"],\"language\":\"R\",\"interrupt_mode\":\"message\"}]");

        ASSERT_EQ(s.count, 2);
        const struct cop_kernelspec *python = cop_kernelspecs_find(&s, "python3");
        ASSERT(python == &s.list[0] && python == cop_kernelspecs_find(&s, "python"));
        ASSERT(cop_kernelspec_is_ipykernel(python));
        ASSERT_STR(python->env[0], "A=1");
        ASSERT_STR(python->env[1], NULL);
        const struct cop_kernelspec *r = cop_kernelspecs_find(&s, "r");
        ASSERT_STR(r->name, "ir");
        ASSERT_STR(r->display_name, "ir");
        ASSERT_EQ(r->interrupt_mode, COP_INTERRUPT_MESSAGE);
        ASSERT(!cop_kernelspec_is_ipykernel(r));
        ASSERT(!cop_kernelspecs_find(&s, "julia"));
        cop_kernelspecs_done(&s);
}

TEST(leaves_out_what_makes_no_sense)
{
        struct cop_kernelspecs s =
                from("[7,null,{},{\"name\":\"a\"},{\"name\":\"b\",\"argv\":[]},{\"name\":\"c\",\"argv\":[1]},"
                     "{\"name\":\"../d\",\"argv\":[\"x\"]},{\"name\":\".e\",\"argv\":[\"x\"]},"
                     "{\"name\":\"f\\u0000g\",\"argv\":[\"x\"]},{\"name\":\"h\",\"argv\":[\"x\"],\"env\":[]},"
                     "{\"name\":\"h\",\"argv\":[\"second\"]}]");

        ASSERT_EQ(s.count, 1);
        ASSERT_STR(s.list[0].name, "h");
        ASSERT_STR(s.list[0].argv[0], "x");
        cop_kernelspecs_done(&s);
}

static void put(const char *dir, const char *name, const char *text)
{
        char path[512];

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        mkdir(path, 0755);
        snprintf(path, sizeof(path), "%s/%s/kernel.json", dir, name);
        FILE *f = fopen(path, "we");
        fputs(text, f);
        fclose(f);
}

TEST(reads_a_folder)
{
        const char *dir = test_dir();
        struct cop_kernelspecs s = {0};
        char path[512];

        put(dir, "zz", "{\"argv\":[\"z\"]}");
        put(dir, "aa", "{\"argv\":[\"a\"],\"language\":\"python\"}");
        put(dir, "broken", "{");
        snprintf(path, sizeof(path), "%s/link", dir);
        ASSERT_EQ(symlink("aa", path), 0);
        snprintf(path, sizeof(path), "%s/fifo", dir);
        mkdir(path, 0755);
        snprintf(path, sizeof(path), "%s/fifo/kernel.json", dir);
        ASSERT_EQ(mkfifo(path, 0644), 0);
        _cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ASSERT_OK(cop_kernelspecs_from_dir(fd, &s, NULL), NULL);
        ASSERT_EQ(s.count, 2);
        ASSERT_STR(s.list[0].name, "aa");
        ASSERT_STR(s.list[1].name, "zz");
        cop_kernelspecs_done(&s);
}

/* -- launch lines --------------------------------------------------------------------------------------------------- */

static char *joined(char **list)
{
        _cleanup_buf_ struct cop_buf b = COP_BUF(100000);

        cop_buf_adds(&b, "");
        for (; *list; list++)
                cop_buf_addf(&b, "%s|", *list);
        return cop_buf_take(&b);
}

TEST(the_tuned_line)
{
        struct cop_kernelspecs s =
                from("[{\"name\":\"python3\",\"argv\":[\"/usr/bin/python3\",\"-Xfrozen_modules=off\",\"-m\","
                     "\"ipykernel_launcher\",\"-f\",\"{connection_file}\"],\"env\":{\"X\":\"y\"}}]");
        struct cop_launch_options o = {.connection_file = "/run/c.json",
                                       .parent_pid = 1,
                                       .coppice_kernel = true,
                                       .ipython_dir = "/run/ipython"};
        struct cop_launch l = {0};

        ASSERT_OK(cop_launch_kernelspec(&s.list[0], &o, &l, NULL), NULL);
        _cleanup_free_ char *argv = joined(l.argv), *env = joined(l.env);
        ASSERT_CONTAINS(argv, "/usr/bin/python3|-Xfrozen_modules=off|-P|-m|ipykernel_launcher|-f|/run/c.json|--");
        ASSERT_CONTAINS(argv, "--IPKernelApp.outstream_class=coppice_kernel.OutStream|");
        ASSERT_CONTAINS(argv, "--HistoryManager.enabled=False|");
        ASSERT_CONTAINS(env, "JPY_PARENT_PID=1|X=y|");
        ASSERT_CONTAINS(env, "IPYTHONDIR=/run/ipython|");
        ASSERT_CONTAINS(env, "PLOTLY_RENDERER=plotly_mimetype|");
        cop_launch_done(&l);

        o.coppice_launcher = true;
        ASSERT_OK(cop_launch_kernelspec(&s.list[0], &o, &l, NULL), NULL);
        _cleanup_free_ char *ours = joined(l.argv);
        ASSERT_CONTAINS(ours, "/usr/bin/python3|-Xfrozen_modules=off|-P|-m|coppice_kernel|-f|/run/c.json|--");
        cop_launch_done(&l);

        o.coppice_kernel = false;
        ASSERT_OK(cop_launch_kernelspec(&s.list[0], &o, &l, NULL), NULL);
        _cleanup_free_ char *stock = joined(l.argv);
        ASSERT_STR(stock, "/usr/bin/python3|-Xfrozen_modules=off|-m|ipykernel_launcher|-f|/run/c.json|");
        cop_launch_done(&l);
        cop_kernelspecs_done(&s);
}

TEST(other_kernels_keep_their_line)
{
        struct cop_kernelspecs s =
                from("[{\"name\":\"x\",\"argv\":[\"{resource_dir}/run\",\"--c={connection_file}\",\"{other}\"],"
                     "\"resource_dir\":\"/usr/share/x\"}]");
        struct cop_launch_options o = {.connection_file = "/c", .coppice_kernel = true, .ipython_dir = "/i"};
        struct cop_launch l = {0};

        ASSERT_OK(cop_launch_kernelspec(&s.list[0], &o, &l, NULL), NULL);
        _cleanup_free_ char *argv = joined(l.argv), *env = joined(l.env);
        ASSERT_STR(argv, "/usr/share/x/run|--c=/c|{other}|");
        ASSERT_STR(env, "");
        cop_launch_done(&l);
        cop_kernelspecs_done(&s);
}

TEST(connection_files)
{
        _cleanup_buf_ struct cop_buf b = COP_BUF(4096);
        struct cop_error err = COP_ERROR_NULL;
        char path[200];

        ASSERT_OK(cop_connection_file("/run/coppice/3/k", "ab", "python3", &b, &err), &err);
        _cleanup_json_ json_t *j = json_loadb(b.data, b.len, 0, NULL);
        ASSERT_STR(json_string_value(json_object_get(j, "ip")), "/run/coppice/3/k");
        ASSERT_STR(json_string_value(json_object_get(j, "transport")), "ipc");
        ASSERT_EQ(json_integer_value(json_object_get(j, "iopub_port")), 2);
        ASSERT_STR(json_string_value(json_object_get(j, "signature_scheme")), "hmac-sha256");
        memset(path, 'a', sizeof(path));
        path[0] = '/';
        path[106] = '\0';
        ASSERT_ERRNO(cop_connection_file(path, "", "x", &b, &err), ENAMETOOLONG);
        path[105] = '\0';
        cop_buf_clear(&b);
        ASSERT_OK(cop_connection_file(path, "", "x", &b, &err), &err);
}
