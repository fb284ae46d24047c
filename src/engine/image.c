#include "engine/image.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/parse.h"
#include "engine/node.h"

#define IMAGE_JSON_MAX (16u << 20)
#define SANDBOX_IDS 65536

/* Where the recipe puts our kernel module (images/code-interpreter/recipe.json). */
#define KERNEL_PACKAGE "rootfs/usr/lib/python3/dist-packages/coppice_kernel"

/* -- views --------------------------------------------------------------------------------------------------------- */

json_t *cop_image_view(struct cop_engine *e, const struct cop_image_row *row, bool packages)
{
        static const char *const fields[] = {"os", "kernelspecs", "defaults", "recipe", "source"};
        _cleanup_json_ json_t *info = row->info ? json_loads(row->info, 0, NULL) : NULL;
        _cleanup_free_ char *lists = NULL;
        char stamp[COP_RFC3339_MAX];
        unsigned users = 0;

        cop_store_image_users(e->store, row->id, NULL, 0, &users, NULL);
        json_t *view =
                json_pack("{s:s, s:s?, s:s?, s:I, s:I, s:s, s:i}", "id", row->id, "name", row->name, "digest",
                          row->digest, "size_bytes", (json_int_t)row->size_bytes, "files", (json_int_t)row->files,
                          "created_at", cop_rfc3339(row->created_at, stamp), "sandboxes", (int)users);
        if (!view)
                return NULL;
        json_object_set_new(view, "golden", cop_golden_view(e, row));
        for (size_t i = 0; i < ELEMENTSOF(fields); i++) {
                json_t *value = json_object_get(info, fields[i]);
                json_object_set(view, fields[i], value ? value : json_null());
        }
        if (packages && cop_store_image_packages(e->store, row->id, &lists, NULL) == 0 && lists) {
                _cleanup_json_ json_t *both = json_loads(lists, 0, NULL);
                json_object_update(view, both);
        }
        return view;
}

/* -- image.json -> row --------------------------------------------------------------------------------------------- */

static bool id_ok(json_t *value)
{
        return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) < SANDBOX_IDS;
}

/* An image may come from a stranger: what the daemon acts on is checked. */
static int check_info(json_t *info, const char *dir, struct cop_error *err)
{
        json_t *defaults = json_object_get(info, "defaults"), *value;
        const char *workdir = json_string_value(json_object_get(defaults, "workdir")), *key;

        if (json_integer_value(json_object_get(info, "version")) != 1)
                return cop_error_set(err, EBADMSG, COP_ERR_image_damaged,
                                     "%s/image.json is not of version 1; build the image again", dir);
        if (!json_is_string(json_object_get(defaults, "user")) || !id_ok(json_object_get(defaults, "uid")) ||
            !id_ok(json_object_get(defaults, "gid")) || !workdir || workdir[0] != '/')
                return cop_error_set(
                        err, EBADMSG, COP_ERR_image_damaged,
                        "%s/image.json: \"defaults\" lacks a valid user, uid, gid or workdir; build the image again",
                        dir);
        if (!json_is_array(json_object_get(info, "kernelspecs")))
                return cop_error_set(err, EBADMSG, COP_ERR_image_damaged,
                                     "%s/image.json has no \"kernelspecs\"; build the image again", dir);
        json_object_foreach (json_object_get(defaults, "env"), key, value)
                if (!*key || strchr(key, '=') || !json_is_string(value) ||
                    strlen(json_string_value(value)) != json_string_length(value))
                        return cop_error_set(err, EBADMSG, COP_ERR_image_damaged,
                                             "%s/image.json: \"env\" has an entry that cannot be one", dir);
        return 0;
}

static json_t *has_file(int dir_fd, const char *path)
{
        _cleanup_close_ int fd = cop_open_beneath(dir_fd, path, O_PATH, 0, 1, NULL);

        return json_boolean(fd >= 0);
}

static int read_info(const char *dir, json_t **ret, struct cop_error *err)
{
        _cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_free_ char *text = NULL;
        _cleanup_json_ json_t *info = NULL;
        struct stat st;
        size_t n;

        if (fd < 0 || fstatat(fd, "rootfs", &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
                return cop_error_set(err, ENOENT, COP_ERR_image_damaged,
                                     "%s has no rootfs; build or import the image again", dir);
        int r = cop_read_file(fd, "image.json", IMAGE_JSON_MAX, &text, &n, err);
        if (r < 0)
                return r;
        struct cop_error why;
        r = cop_json_parse(text, n, false, &info, &why);
        if (r < 0)
                return cop_error_set(err, EBADMSG, COP_ERR_image_damaged, "%s/image.json: %s; build the image again",
                                     dir, why.message);
        r = check_info(info, dir, err);
        if (r < 0)
                return r;
        json_t *defaults = json_object_get(info, "defaults");
        json_object_set_new(defaults, "coppice_kernel", has_file(fd, KERNEL_PACKAGE "/__init__.py"));
        json_object_set_new(defaults, "coppice_launcher", has_file(fd, KERNEL_PACKAGE "/__main__.py"));
        *ret = TAKE_PTR(info);
        return 0;
}

static char *dump_packages(json_t *info)
{
        json_t *packages = json_object_get(info, "packages"), *python = json_object_get(info, "python_packages");
        _cleanup_json_ json_t *both = json_pack("{s:O?, s:O?}", "packages", packages, "python_packages", python);
        char *text = both ? json_dumps(both, JSON_COMPACT) : NULL;

        json_object_del(info, "packages");
        json_object_del(info, "python_packages");
        return text;
}

int cop_image_register(struct cop_engine *e, const char *id, const char *name, const char *dir, json_t **ret_view,
                       struct cop_error *err)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = calloc(1, sizeof(*row)), *old = NULL;
        _cleanup_json_ json_t *info = NULL;

        if (!row)
                return cop_error_errno(err, ENOMEM, "image %s", name);
        int r = read_info(dir, &info, err);
        if (r < 0)
                return r;
        const char *digest = json_string_value(json_object_get(info, "digest"));
        snprintf(row->id, sizeof(row->id), "%s", id);
        row->name = strdup(name);
        row->digest = digest ? strdup(digest) : NULL;
        row->path = strdup(dir);
        row->packages = dump_packages(info);
        row->info = json_dumps(info, JSON_COMPACT);
        row->size_bytes = (uint64_t)json_integer_value(json_object_get(info, "size_bytes"));
        row->files = (uint64_t)json_integer_value(json_object_get(info, "files"));
        row->created_at = cop_now(CLOCK_REALTIME);
        if (!row->name || !row->path || !row->packages || !row->info)
                return cop_error_errno(err, ENOMEM, "image %s", name);
        cop_store_image_get(e->store, name, &old, NULL);
        r = cop_store_image_insert(e->store, row, err);
        if (r < 0)
                return r;
        if (old)
                cop_image_release(e, old->id);
        *ret_view = cop_image_view(e, row, true);
        return 0;
}

/* -- using --------------------------------------------------------------------------------------------------------- */

int cop_image_lookup(struct cop_engine *e, const char *ref, struct cop_image_row **ret, json_t **ret_kernelspecs,
                     json_t **ret_defaults, struct cop_error *err)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = NULL;
        _cleanup_json_ json_t *info = NULL;

        int r = cop_store_image_get(e->store, ref, &row, err);
        if (r == -ENOENT)
                return cop_error_set(err, ENOENT, COP_ERR_image_not_found,
                                     "no image \"%.80s\"; `coppice image ls` lists those there are, `coppice image "
                                     "build code-interpreter` makes "
                                     "the standard one",
                                     ref);
        if (r < 0)
                return r;
        info = row->info ? json_loads(row->info, 0, NULL) : NULL;
        if (!json_is_object(info))
                return cop_error_set(err, EBADMSG, COP_ERR_image_damaged,
                                     "what is stored of image %s is damaged; build it again", ref);
        if (ret_kernelspecs)
                *ret_kernelspecs = json_incref(json_object_get(info, "kernelspecs"));
        if (ret_defaults)
                *ret_defaults = json_incref(json_object_get(info, "defaults"));
        if (ret)
                *ret = TAKE_PTR(row);
        return 0;
}

static void delete_image(struct cop_engine *e, const struct cop_image_row *row)
{
        /* The row first: an image that is listed can be used. */
        if (cop_store_image_delete(e->store, row->id, NULL) < 0)
                return;
        cop_trash_add_durable(e, row->path);
        if (row->golden_node[0])
                cop_golden_release(e, row->golden_node);
}

void cop_image_release(struct cop_engine *e, const char *image_id)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = NULL;
        unsigned users = 0;

        if (cop_store_image_get(e->store, image_id, &row, NULL) < 0 || row->name)
                return;
        if (cop_store_image_users(e->store, image_id, NULL, 0, &users, NULL) == 0 && users == 0)
                delete_image(e, row);
}

/* -- operations ---------------------------------------------------------------------------------------------------- */

static int check_name(const char *name, struct cop_error *err)
{
        if (cop_name_valid(name))
                return 0;
        return cop_error_set(
                err, EINVAL, COP_ERR_bad_request,
                "field \"name\": \"%.80s\" is not 1-63 of letters, digits and . _ -, beginning with a letter or digit",
                name);
}

void cop_image_build(struct cop_engine *e, const char *recipe, const char *name, const char *mirror, bool force,
                     struct cop_op_to to, struct cop_op **ret_op)
{
        char path[4200], file[4300];
        struct cop_error err;
        int r = 0;

        if (ret_op)
                *ret_op = NULL;
        recipe = recipe ? recipe : "code-interpreter";
        name = name ? name : recipe;
        if (!cop_name_valid(recipe))
                r = cop_error_set(&err, EINVAL, COP_ERR_bad_request,
                                  "field \"recipe\": \"%.80s\" is no name of a recipe", recipe);
        if (r == 0)
                r = check_name(name, &err);
        if (r == 0 && mirror && mirror[0] == '-')
                r = cop_error_set(&err, EINVAL, COP_ERR_bad_request, "field \"mirror\": expected a URL");
        if (r == 0 && (cop_path_format(path, sizeof(path), "%s/%s", e->recipes, recipe) < 0 ||
                       cop_path_format(file, sizeof(file), "%s/recipe.json", path) < 0 || access(file, R_OK) < 0))
                r = cop_error_set(&err, ENOENT, COP_ERR_image_not_found, "no recipe \"%s\" in %s", recipe, e->recipes);
        if (r < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        const struct cop_image_job_params p = {
                .recipe = path, .mirror = mirror, .name = name, .unless_unchanged = !force};
        cop_image_job_start(e, &p, to, ret_op);
}

void cop_image_import(struct cop_engine *e, const char *source, const char *name, struct cop_op_to to,
                      struct cop_op **ret_op)
{
        const char *colon = source ? strchr(source, ':') : NULL;
        const char *path = colon && strchr(source, '/') > colon ? colon + 1 : source;
        struct cop_error err;
        int r = 0;

        if (ret_op)
                *ret_op = NULL;
        if (!path || path[0] != '/')
                r = cop_error_set(&err, EINVAL, COP_ERR_bad_request,
                                  "field \"source\": expected an absolute path of this host (a folder, a tar file, "
                                  "oci:FOLDER or oci-archive:FILE)");
        if (r == 0 && !name)
                r = cop_error_set(&err, EINVAL, COP_ERR_bad_request, "field \"name\": missing");
        if (r == 0)
                r = check_name(name, &err);
        if (r < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        const struct cop_image_job_params p = {.import = true, .source = source, .name = name};
        cop_image_job_start(e, &p, to, ret_op);
}

void cop_image_list(struct cop_engine *e, struct cop_op_to to)
{
        _cleanup_(cop_image_rows_freep) struct cop_image_row **rows = NULL;
        struct cop_error err;

        if (cop_store_image_list(e->store, &rows, &err) < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        json_t *list = json_array();
        for (struct cop_image_row **row = rows; *row; row++)
                json_array_append_new(list, cop_image_view(e, *row, false));
        cop_answer(to, json_pack("{s:o}", "images", list), NULL);
}

void cop_image_get(struct cop_engine *e, const char *ref, struct cop_op_to to)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = NULL;
        struct cop_error err;

        if (cop_image_lookup(e, ref, &row, NULL, NULL, &err) < 0)
                cop_answer(to, NULL, &err);
        else
                cop_answer(to, cop_image_view(e, row, true), NULL);
}

void cop_image_remove(struct cop_engine *e, const char *ref, struct cop_op_to to, struct cop_op **ret_op)
{
        _cleanup_(cop_image_row_freep) struct cop_image_row *row = NULL;
        struct cop_error err;
        char ids[200];
        unsigned users = 0;

        if (ret_op)
                *ret_op = NULL;
        int r = cop_image_lookup(e, ref, &row, NULL, NULL, &err);
        if (r == 0)
                r = cop_store_image_users(e->store, row->id, ids, sizeof(ids), &users, &err);
        if (r == 0 && users > 0)
                r = cop_error_set(
                        &err, EBUSY, COP_ERR_in_use, "image \"%s\" is used by %u sandbox%s (%s%s); remove them first",
                        row->name ? row->name : row->id, users, users == 1 ? "" : "es", ids, users > 13 ? ", …" : "");
        if (r < 0) {
                cop_answer(to, NULL, &err);
                return;
        }
        json_t *view = cop_image_view(e, row, false);
        delete_image(e, row);
        _cleanup_json_ json_t *detail = json_pack("{s:s, s:s?}", "image_id", row->id, "name", row->name);
        cop_engine_event(e, "image.removed", NULL, detail);
        cop_answer_durable(e, to, view, ret_op);
}

/* -- start --------------------------------------------------------------------------------------------------------- */

void cop_images_sweep(struct cop_engine *e)
{
        _cleanup_(cop_image_rows_freep) struct cop_image_row **rows = NULL;
        _cleanup_closedir_ DIR *dir = NULL;
        char path[4200];
        struct dirent *entry;

        if (cop_store_image_list(e->store, &rows, NULL) < 0 ||
            cop_path_format(path, sizeof(path), "%s/images", e->home) < 0)
                return;
        dir = opendir(path);
        while (dir && (entry = readdir(dir))) {
                bool known = entry->d_name[0] == '.';
                for (struct cop_image_row **row = rows; *row && !known; row++)
                        known = strcmp((*row)->id, entry->d_name) == 0;
                if (known || cop_path_format(path, sizeof(path), "%s/images/%s", e->home, entry->d_name) < 0)
                        continue;
                cop_log_info("removing %s, which an interrupted build left", path);
                cop_trash_add(e, path);
        }
        for (struct cop_image_row **row = rows; *row; row++)
                if (!(*row)->name)
                        cop_image_release(e, (*row)->id);
}
