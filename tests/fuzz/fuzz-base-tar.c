/* The tar reader over any bytes, and its writer over what the reader accepted. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
        const uint8_t *data;
        size_t size, at;
};

static void require(bool holds)
{
        if (!holds)
                abort();
}

/* In pieces of odd sizes, as a socket would. */
static ssize_t read_input(void *userdata, void *buf, size_t n, struct cop_error *err)
{
        struct input *in = userdata;

        size_t piece = 1 + in->at % 700;
        n = MIN_OF(n, piece);
        n = MIN_OF(n, in->size - in->at);
        memcpy(buf, in->data + in->at, n);
        in->at += n;
        return (ssize_t)n;
}

static void check_names(const struct cop_tar_entry *e)
{
        char clean[COP_TAR_NAME_MAX + 1];

        require(e->name[0] && strlen(e->name) <= COP_TAR_NAME_MAX);
        int r = cop_tar_clean_name(e->name, clean);
        if (r <= 0)
                return;
        require(clean[0] && clean[0] != '/' && strlen(clean) <= strlen(e->name));
        for (const char *p = clean; p; p = strchr(p, '/')) {
                p += *p == '/';
                require(strncmp(p, "../", 3) != 0 && strcmp(p, "..") != 0 && *p && *p != '/');
        }
        if (e->target && cop_tar_link_stays(clean, e->target))
                require(e->target[0] != '/');
}

/* What was read, written and read again, is the same. */
static void round_trip(const struct cop_tar_entry *e)
{
        _cleanup_buf_ struct cop_buf out = COP_BUF(1 << 20);
        struct cop_tar_entry again;
        struct cop_tar_reader *r;
        struct cop_error err;

        require(cop_tar_add_header(&out, e) == 0 && out.len % COP_TAR_BLOCK == 0);
        struct input in = {(const uint8_t *)out.data, out.len, 0};
        require(cop_tar_reader_new(read_input, &in, &r, &err) == 0);
        require(cop_tar_next(r, &again, &err) == 1 && in.at == in.size);
        require(strcmp(again.name, e->name) == 0 && again.size == e->size && again.mode == e->mode);
        require(!again.target == !e->target && (!e->target || strcmp(again.target, e->target) == 0));
        bool folder_by_name = e->type == COP_TAR_FILE && e->name[strlen(e->name) - 1] == '/';
        require(again.type == (folder_by_name ? COP_TAR_FOLDER : e->type));
        cop_tar_reader_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct input in = {data, size, 0};
        struct cop_tar_entry e;
        struct cop_tar_reader *r;
        struct cop_error err;
        uint64_t total = 0;
        char chunk[300];
        ssize_t n = 0;

        require(cop_tar_reader_new(read_input, &in, &r, &err) == 0);
        while (n >= 0 && cop_tar_next(r, &e, &err) > 0) {
                check_names(&e);
                round_trip(&e);
                /* Every second entry is skipped instead of read. */
                for (bool read = in.at / COP_TAR_BLOCK % 2;
                     read && (n = cop_tar_data(r, chunk, sizeof(chunk), &err)) > 0;)
                        total += (uint64_t)n;
        }
        require(total <= size);
        cop_tar_reader_free(r);
        return 0;
}
