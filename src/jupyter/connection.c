#include "connection.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"

#define SUN_PATH_MAX 107
#define LIST_MAX 256

int cop_connection_file(const char *base_path, const char *key, const char *kernel_name, struct cop_buf *ret,
                        struct cop_error *err)
{
        if (base_path[0] != '/' || strlen(base_path) + 2 > SUN_PATH_MAX)
                return cop_error_set(err, ENAMETOOLONG, COP_ERR_bad_request,
                                     "socket path %.40s… must be absolute and at most %d bytes", base_path,
                                     SUN_PATH_MAX - 2);
        _cleanup_json_ json_t *j =
                json_pack("{ss ss si si si si si ss ss ss}", "transport", "ipc", "ip", base_path, "shell_port", 1,
                          "iopub_port", 2, "stdin_port", 3, "control_port", 4, "hb_port", 5, "key", key,
                          "signature_scheme", "hmac-sha256", "kernel_name", kernel_name);
        _cleanup_free_ char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
        if (!text || cop_buf_adds(ret, text) == -ENOMEM)
                return cop_error_errno(err, ENOMEM, "connection file");
        if (ret->len < strlen(text))
                return cop_error_set(err, EMSGSIZE, COP_ERR_internal, "connection file is over its limit");
        return 0;
}

/* -- launch lines ----------------------------------------------------------------------------------------------------- */

void cop_launch_done(struct cop_launch *l)
{
        for (char **s = l->argv; s && *s; s++)
                free(*s);
        for (char **s = l->env; s && *s; s++)
                free(*s);
        free(l->argv);
        free(l->env);
        *l = (struct cop_launch){0};
}

/* Takes text; -ENOMEM when it is NULL, so that results of strdup and asprintf can be passed on. */
static int push(char **list, char *text)
{
        size_t n = 0;

        while (list[n])
                n++;
        if (!text || n == LIST_MAX - 1) {
                free(text);
                return -ENOMEM;
        }
        list[n] = text;
        return 0;
}

static int push_copies(char **list, const char *const *texts)
{
        int r = 0;

        for (; r >= 0 && *texts; texts++)
                r = push(list, strdup(*texts));
        return r;
}

static int push_variable(char **env, const char *name, const char *value)
{
        char *text = NULL;

        return push(env, asprintf(&text, "%s=%s", name, value) < 0 ? NULL : text);
}

/* arg with every {connection_file} and {resource_dir} replaced, as jupyter_client does. */
static char *substitute(const char *arg, const char *connection_file, const char *resource_dir)
{
        static const char connection[] = "{connection_file}", resource[] = "{resource_dir}";
        struct cop_buf out = COP_BUF(64 * 1024);
        int r = cop_buf_adds(&out, "");

        while (r >= 0 && *arg) {
                if (strncmp(arg, connection, strlen(connection)) == 0) {
                        r = cop_buf_adds(&out, connection_file);
                        arg += strlen(connection);
                } else if (resource_dir && strncmp(arg, resource, strlen(resource)) == 0) {
                        r = cop_buf_adds(&out, resource_dir);
                        arg += strlen(resource);
                } else {
                        r = cop_buf_addc(&out, *arg++);
                }
        }
        char *text = r < 0 ? NULL : out.data ? cop_buf_take(&out) : strdup("");
        cop_buf_done(&out);
        return text;
}

/* notes/jupyter.md 5.3.  The interpreter and what stands before -m are the spec's own. */
static int tuned_argv(const struct cop_kernelspec *spec, const struct cop_launch_options *o, char **argv)
{
        const char *const options[] = {
                "--HistoryManager.enabled=False",
                "--IPythonKernel._execute_sleep=0",
                "--InteractiveShell.colors=NoColor",
                "--InteractiveShell.xmode=Plain",
                "--IPKernelApp.outstream_class=coppice_kernel.OutStream",
                "--IPKernelApp.extra_extensions=coppice_kernel",
                NULL,
        };
        bool safe_path = false;
        char **a = spec->argv;
        int r = push(argv, strdup(*a++));

        for (; r >= 0 && *a && strcmp(*a, "-m") != 0; a++) {
                safe_path = safe_path || strcmp(*a, "-P") == 0;
                r = push(argv, strdup(*a));
        }
        /* Without it a random.py in the working directory keeps ipykernel 6.17 from starting.  Python 3.11 and newer. */
        if (r >= 0 && !safe_path)
                r = push(argv, strdup("-P"));
        for (bool module = false; r >= 0 && *a; module = strcmp(*a++, "-m") == 0)
                r = push(argv, module && o->coppice_launcher ? strdup("coppice_kernel")
                                                             : substitute(*a, o->connection_file, spec->resource_dir));
        return r >= 0 ? push_copies(argv, options) : r;
}

static int tuned_env(const struct cop_launch_options *o, char **env)
{
        int r = push_variable(env, "PLOTLY_RENDERER", "plotly_mimetype");

        if (r >= 0)
                r = push_variable(env, "TERM", "dumb");
        if (r >= 0)
                /* debugpy checks its files at start and complains on stderr about frozen modules. */
                r = push_variable(env, "PYDEVD_DISABLE_FILE_VALIDATION", "1");
        if (r >= 0 && o->module_dir)
                r = push_variable(env, "PYTHONPATH", o->module_dir);
        return r;
}

int cop_launch_kernelspec(const struct cop_kernelspec *spec, const struct cop_launch_options *options,
                          struct cop_launch *ret, struct cop_error *err)
{
        struct cop_launch l = {calloc(LIST_MAX, sizeof(char *)), calloc(LIST_MAX, sizeof(char *))};
        bool ipykernel = cop_kernelspec_is_ipykernel(spec);
        char number[16];
        int r = l.argv && l.env ? 0 : -ENOMEM;

        snprintf(number, sizeof(number), "%d", options->parent_pid);
        if (r >= 0 && ipykernel && options->coppice_kernel) {
                r = tuned_argv(spec, options, l.argv);
                if (r >= 0)
                        r = tuned_env(options, l.env);
        } else {
                for (char **a = spec->argv; r >= 0 && *a; a++)
                        r = push(l.argv, substitute(*a, options->connection_file, spec->resource_dir));
        }
        if (r >= 0 && options->ipython_dir && ipykernel)
                r = push_variable(l.env, "IPYTHONDIR", options->ipython_dir);
        if (r >= 0 && options->parent_pid)
                r = push_variable(l.env, "JPY_PARENT_PID", number);
        /* Last, so that the spec's own settings win. */
        if (r >= 0)
                r = push_copies(l.env, (const char *const *)spec->env);
        if (r < 0) {
                cop_launch_done(&l);
                return cop_error_set(err, ENOMEM, COP_ERR_no_memory, "launch line of kernel %s is too long",
                                     spec->name);
        }
        *ret = l;
        return 0;
}
