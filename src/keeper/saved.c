#include "keeper/saved.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "sandbox/wire.h"

#define KEEP_MAGIC 0x32504b43u /* "CKP2" */
#define KEEP_MAX (sizeof(struct header) + COP_KEEP_COMMANDS_MAX * sizeof(struct cop_saved_command))

struct header {
        uint32_t magic, count;
};

static void save_command(const struct cop_command *c, usec_t now, struct cop_saved_command *s)
{
        *s = (struct cop_saved_command){
                .pid = c->pid,
                .flags = (c->exited ? COP_ENTRY_EXITED : 0) | (c->timed_out ? COP_ENTRY_TIMED_OUT : 0),
                .status = (uint32_t)c->status,
                .forgotten = c->forgotten,
                .started = c->started,
                .ended = c->ended,
                .bytes = {c->out[0].bytes, c->out[1].bytes},
                .log_size = c->log.size,
                .log_room = c->log.room,
                .log_dropped = c->log.dropped,
                .log_mark = c->log.mark_at,
        };
        memcpy(s->key, c->key, sizeof(s->key));
        for (unsigned i = 0; i < 2; i++)
                if (c->out[i].fd >= 0)
                        s->open |= 1u << i;
        if (c->deadline && !c->exited)
                s->timeout_left = c->deadline > now ? c->deadline - now : 1;
}

int cop_saved_write(const struct cop_keep *k, struct cop_buf *ret, struct cop_error *err)
{
        struct header header = {.magic = KEEP_MAGIC};
        usec_t now = cop_now(CLOCK_MONOTONIC);

        *ret = COP_BUF(KEEP_MAX);
        for (const struct cop_command *c = k->commands; c; c = c->next)
                header.count += c->pid != 0;
        int r = cop_buf_add(ret, &header, sizeof(header));
        for (const struct cop_command *c = k->commands; c && r == 0; c = c->next) {
                struct cop_saved_command s;
                if (c->pid == 0)
                        continue;
                save_command(c, now, &s);
                r = cop_buf_add(ret, &s, sizeof(s));
        }
        return r < 0 ? cop_error_errno(err, r, "saving the keeper's state") : 0;
}

static bool is_sound(struct cop_saved_command *s)
{
        size_t n = strnlen(s->key, sizeof(s->key));

        if (n == 0 || n == sizeof(s->key) || s->pid <= 1 || s->pid > INT32_MAX || s->open > 3)
                return false;
        return strspn(s->key, "abcdefghijklmnopqrstuvwxyz0123456789_") == n; /* it names a file */
}

int cop_saved_read(int node_fd, struct cop_saved_command **ret, size_t *ret_count, struct cop_error *err)
{
        _cleanup_free_ struct cop_saved_command *list = NULL;
        _cleanup_free_ char *text = NULL;
        struct header header = {0};
        size_t len;
        int r = cop_read_file(node_fd, "keep", KEEP_MAX, &text, &len, err);

        if (r < 0)
                return cop_error_wrap(err, r, "the node was not completed");
        if (len >= sizeof(header))
                memcpy(&header, text, sizeof(header));
        bool sound = header.magic == KEEP_MAGIC && header.count <= COP_KEEP_COMMANDS_MAX &&
                     len == sizeof(header) + header.count * sizeof(*list);
        if (sound && !(list = calloc(header.count + 1, sizeof(*list))))
                return cop_error_errno(err, ENOMEM, "node");
        for (size_t i = 0; sound && i < header.count; i++) {
                memcpy(&list[i], text + sizeof(header) + i * sizeof(*list), sizeof(*list));
                sound = is_sound(&list[i]);
        }
        if (!sound)
                return cop_error_set(err, EBADMSG, COP_ERR_image_damaged, "the keeper's state in the node is damaged");
        *ret = TAKE_PTR(list);
        *ret_count = header.count;
        return 0;
}

int cop_externals_init(struct cop_externals *x, size_t commands, struct cop_error *err)
{
        *x = (struct cop_externals){.room = 2 + 2 * commands};
        x->list = calloc(x->room, sizeof(*x->list));
        x->names = calloc(x->room, sizeof(*x->names));
        return x->list && x->names ? 0 : cop_error_errno(err, ENOMEM, "descriptors of the sandbox");
}

void cop_externals_done(struct cop_externals *x)
{
        for (size_t i = 0; i < x->count; i++)
                cop_close(x->list[i].fd);
        free(x->list);
        free(x->names);
        *x = (struct cop_externals){0};
}

struct cop_external *cop_externals_add_output(struct cop_externals *x, size_t command, unsigned stream)
{
        char name[32];

        snprintf(name, sizeof(name), "%zu.%u", command, stream);
        return cop_externals_add(x, name);
}

struct cop_external *cop_externals_add(struct cop_externals *x, const char *name)
{
        struct cop_external *e = &x->list[x->count];

        snprintf(x->names[x->count], sizeof(x->names[0]), "%s", name);
        *e = (struct cop_external){.name = x->names[x->count], .fd = -EBADF};
        x->count++;
        return e;
}
