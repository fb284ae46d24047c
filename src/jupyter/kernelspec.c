#include "kernelspec.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/json.h"

#define SPECS_MAX 100
#define ARGS_MAX 200
#define ENV_MAX 200
#define NAME_MAX_LEN 100
#define TEXT_MAX 4096
#define SPEC_BYTES_MAX (1024 * 1024)

static void strings_free(char **list)
{
        for (char **s = list; s && *s; s++)
                free(*s);
        free(list);
}

static void spec_done(struct cop_kernelspec *s)
{
        free(s->name);
        free(s->display_name);
        free(s->language);
        free(s->resource_dir);
        strings_free(s->argv);
        strings_free(s->env);
        *s = (struct cop_kernelspec){0};
}

void cop_kernelspecs_done(struct cop_kernelspecs *s)
{
        for (size_t i = 0; i < s->count; i++)
                spec_done(&s->list[i]);
        free(s->list);
        *s = (struct cop_kernelspecs){0};
}

static bool name_valid(const char *name)
{
        size_t n = strlen(name);

        if (n == 0 || n > NAME_MAX_LEN || name[0] == '.')
                return false;
        for (size_t i = 0; i < n; i++)
                if (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i]))
                        return false;
        return true;
}

/* A usable C string: no NUL inside, not endless. */
static const char *text_of(json_t *value)
{
        const char *s = json_string_value(value);

        return s && strlen(s) == json_string_length(value) && strlen(s) <= TEXT_MAX ? s : NULL;
}

static char **read_argv(json_t *array)
{
        size_t n = json_array_size(array);
        char **argv = n > 0 && n <= ARGS_MAX ? calloc(n + 1, sizeof(*argv)) : NULL;

        for (size_t i = 0; argv && i < n; i++) {
                const char *s = text_of(json_array_get(array, i));
                argv[i] = s ? strdup(s) : NULL;
                if (!argv[i]) {
                        strings_free(argv);
                        return NULL;
                }
        }
        return argv;
}

static char **read_env(json_t *object)
{
        size_t n = 0;
        const char *name;
        json_t *value;
        char **env = calloc(MIN_OF(json_object_size(object), (size_t)ENV_MAX) + 1, sizeof(*env));

        if (!env)
                return NULL;
        json_object_foreach (object, name, value) {
                const char *s = text_of(value);
                /* Not ours to judge what it holds, but what cannot be a variable is left out. */
                if (!s || !*name || strchr(name, '=') || strlen(name) > TEXT_MAX || n == ENV_MAX)
                        continue;
                if (asprintf(&env[n], "%s=%s", name, s) < 0) {
                        env[n] = NULL;
                        strings_free(env);
                        return NULL;
                }
                n++;
        }
        return env;
}

/* 1 = a spec, 0 = makes no sense, negative = out of memory. */
static int read_spec(const char *name, json_t *object, struct cop_kernelspec *ret)
{
        const char *display = text_of(json_object_get(object, "display_name"));
        const char *language = text_of(json_object_get(object, "language"));
        const char *mode = text_of(json_object_get(object, "interrupt_mode"));
        const char *resources = text_of(json_object_get(object, "resource_dir"));

        *ret = (struct cop_kernelspec){0};
        if (!name || !name_valid(name) || !json_is_array(json_object_get(object, "argv")))
                return 0;
        ret->argv = read_argv(json_object_get(object, "argv"));
        if (!ret->argv)
                return 0;
        ret->env = read_env(json_object_get(object, "env"));
        ret->name = strdup(name);
        ret->display_name = strdup(display ? display : name);
        ret->language = strdup(language ? language : "");
        ret->resource_dir = resources ? strdup(resources) : NULL;
        ret->interrupt_mode = mode && strcmp(mode, "message") == 0 ? COP_INTERRUPT_MESSAGE : COP_INTERRUPT_SIGNAL;
        if (!ret->env || !ret->name || !ret->display_name || !ret->language || (resources && !ret->resource_dir)) {
                spec_done(ret);
                return -ENOMEM;
        }
        return 1;
}

static bool have(const struct cop_kernelspecs *s, const char *name)
{
        for (size_t i = 0; i < s->count; i++)
                if (strcmp(s->list[i].name, name) == 0)
                        return true;
        return false;
}

static int add(struct cop_kernelspecs *s, const char *name, json_t *object, struct cop_error *err)
{
        if (s->count == SPECS_MAX)
                return 0;
        if (!s->list)
                s->list = calloc(SPECS_MAX, sizeof(*s->list));
        int r = s->list ? read_spec(name, object, &s->list[s->count]) : -ENOMEM;
        if (r < 0)
                return cop_error_errno(err, ENOMEM, "kernelspecs");
        if (r > 0 && have(s, name))
                spec_done(&s->list[s->count]);
        else if (r > 0)
                s->count++;
        return 0;
}

int cop_kernelspecs_from_json(json_t *array, struct cop_kernelspecs *ret, struct cop_error *err)
{
        struct cop_kernelspecs s = {0};
        json_t *entry;
        size_t i;

        json_array_foreach (array, i, entry) {
                int r = add(&s, text_of(json_object_get(entry, "name")), entry, err);
                if (r < 0) {
                        cop_kernelspecs_done(&s);
                        return r;
                }
        }
        *ret = s;
        return 0;
}

static json_t *read_kernel_json(int dir_fd, const char *name)
{
        char path[NAME_MAX_LEN + 32];
        size_t len;
        struct stat st;
        char *text = NULL;
        json_t *spec = NULL;

        snprintf(path, sizeof(path), "%s/kernel.json", name);
        _cleanup_close_ int fd = cop_open_beneath(dir_fd, path, O_RDONLY | O_NONBLOCK, 0, 1, NULL);
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return NULL;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (cop_read_file(AT_FDCWD, path, SPEC_BYTES_MAX, &text, &len, NULL) >= 0)
                spec = json_loadb(text, len, 0, NULL);
        free(text);
        return spec;
}

static int by_name(const void *a, const void *b)
{
        return strcmp(((const struct cop_kernelspec *)a)->name, ((const struct cop_kernelspec *)b)->name);
}

int cop_kernelspecs_from_dir(int dir_fd, struct cop_kernelspecs *ret, struct cop_error *err)
{
        struct cop_kernelspecs s = {0};
        int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_closedir_ DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
        int r = 0;

        if (!dir) {
                int saved = errno;
                cop_close(fd);
                return cop_error_errno(err, saved, "reading the kernelspecs");
        }
        for (struct dirent *entry; r >= 0 && (entry = readdir(dir));) {
                if (!name_valid(entry->d_name))
                        continue;
                _cleanup_json_ json_t *spec = read_kernel_json(dir_fd, entry->d_name);
                if (spec)
                        r = add(&s, entry->d_name, spec, err);
        }
        if (r < 0) {
                cop_kernelspecs_done(&s);
                return r;
        }
        if (s.count)
                qsort(s.list, s.count, sizeof(*s.list), by_name);
        *ret = s;
        return 0;
}

const struct cop_kernelspec *cop_kernelspecs_find(const struct cop_kernelspecs *s, const char *name)
{
        for (size_t i = 0; i < s->count; i++)
                if (strcmp(s->list[i].name, name) == 0)
                        return &s->list[i];
        for (size_t i = 0; i < s->count; i++)
                if (strcasecmp(s->list[i].language, name) == 0)
                        return &s->list[i];
        return NULL;
}

bool cop_kernelspec_is_ipykernel(const struct cop_kernelspec *spec)
{
        for (char **a = spec->argv; *a && a[1]; a++)
                if (strcmp(*a, "-m") == 0)
                        return strcmp(a[1], "ipykernel_launcher") == 0 || strcmp(a[1], "ipykernel") == 0;
        return false;
}
