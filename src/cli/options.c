#include "options.h"

#include <string.h>

#include "base/parse.h"

static const struct cop_option *by_name(const struct cop_option *options, const char *name, size_t n)
{
        for (; options && options->kind != COP_OPTION_END; options++)
                if (strlen(options->name) == n && strncmp(options->name, name, n) == 0)
                        return options;
        return NULL;
}

static const struct cop_option *by_letter(const struct cop_option *options, char letter)
{
        for (; options && options->kind != COP_OPTION_END; options++)
                if (options->letter == letter)
                        return options;
        return NULL;
}

static int store(const struct cop_option *o, const char *value, struct cop_error *err)
{
        struct cop_list *list = o->to;
        const char *expected = NULL;

        switch (o->kind) {
        case COP_OPTION_FLAG:
                *(bool *)o->to = true;
                break;
        case COP_OPTION_STRING:
                *(const char **)o->to = value;
                break;
        case COP_OPTION_LIST:
                if (list->count == COP_LIST_MAX)
                        return cop_error_set(err, E2BIG, COP_ERR_bad_request, "--%s was given more than %d times",
                                             o->name, COP_LIST_MAX);
                list->items[list->count++] = value;
                break;
        case COP_OPTION_DURATION:
                if (cop_parse_duration(value, o->to) < 0)
                        expected = "a time like 30, 1.5, 250ms, 5m or 2h";
                break;
        case COP_OPTION_SIZE:
                if (cop_parse_size(value, o->to) < 0)
                        expected = "a size like 512M or 4G";
                break;
        case COP_OPTION_NUMBER:
                if (cop_parse_u64(value, o->to) < 0)
                        expected = "a whole number";
                break;
        case COP_OPTION_END:
                break;
        }
        if (expected)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "--%s: \"%.100s\" is not %s", o->name, value,
                                     expected);
        return 0;
}

/* --name, --name=VALUE, --name VALUE.  Returns how many of argv were used. */
static int take_long(const struct cop_option *options, int left, char **argv, struct cop_error *err)
{
        const char *name = argv[0] + 2, *equals = strchr(name, '=');
        const struct cop_option *o = by_name(options, name, equals ? (size_t)(equals - name) : strlen(name));

        if (!o)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "unknown option %.100s", argv[0]);
        if (o->kind == COP_OPTION_FLAG && equals)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "--%s takes no value", o->name);
        if (o->kind == COP_OPTION_FLAG || equals) {
                int r = store(o, equals ? equals + 1 : "", err);
                return r < 0 ? r : 1;
        }
        if (left < 2)
                return cop_error_set(err, EINVAL, COP_ERR_bad_request, "--%s needs a value: --%s %s", o->name, o->name,
                                     o->value);
        int r = store(o, argv[1], err);
        return r < 0 ? r : 2;
}

/* -n VALUE, -nVALUE, -abc.  Returns how many of argv were used. */
static int take_short(const struct cop_option *options, int left, char **argv, struct cop_error *err)
{
        for (const char *c = argv[0] + 1; *c; c++) {
                const struct cop_option *o = by_letter(options, *c);
                int r;
                if (!o)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "unknown option -%c", *c);
                if (o->kind != COP_OPTION_FLAG && !c[1] && left < 2)
                        return cop_error_set(err, EINVAL, COP_ERR_bad_request, "-%c needs a value: -%c %s", *c, *c,
                                             o->value);
                r = store(o, o->kind == COP_OPTION_FLAG ? "" : c[1] ? c + 1 : argv[1], err);
                if (r < 0)
                        return r;
                if (o->kind != COP_OPTION_FLAG)
                        return c[1] ? 1 : 2;
        }
        return 1;
}

int cop_options_parse(const struct cop_option *options, int argc, char **argv, size_t *ret_after, struct cop_error *err)
{
        int kept = 0, i = 0;

        *ret_after = 0;
        while (i < argc) {
                int r;
                if (strcmp(argv[i], "--") == 0) {
                        for (i++; i < argc; (*ret_after)++)
                                argv[kept++] = argv[i++];
                        break;
                }
                if (argv[i][0] != '-' || !argv[i][1]) { /* "-" alone is an argument */
                        argv[kept++] = argv[i++];
                        continue;
                }
                if (argv[i][1] == '-')
                        r = take_long(options, argc - i, argv + i, err);
                else
                        r = take_short(options, argc - i, argv + i, err);
                if (r < 0)
                        return r;
                i += r;
        }
        return kept;
}
