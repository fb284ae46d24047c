/* The list of checksums in a pack against the one that was summed up: any bytes but the same are refused. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "pack/sums.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
        if (!holds)
                abort();
}

static void add_member(struct cop_sums *s, const char *name, const char *text)
{
        struct archive_entry *entry = archive_entry_new();
        struct cop_error err;

        require(entry != NULL);
        archive_entry_copy_pathname(entry, name);
        cop_sums_begin(s, entry);
        cop_sums_data(s, 0, text, strlen(text));
        require(cop_sums_end(s, &err) == 0);
        archive_entry_free(entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct cop_sums *s;
        struct cop_error err;
        uint64_t length;
        char own[1024];

        require(cop_sums_new(&s, &err) == 0);
        add_member(s, "manifest.json", "{}");
        add_member(s, "layer/0/a\nb", "text");
        int fd = cop_sums_list(s, &length);
        require(length < sizeof(own) && pread(fd, own, length, 0) == (ssize_t)length);
        size_t cut = size ? data[0] % (size + 1) : 0;
        int r = cop_sums_compare(s, data, cut, &err);
        if (r == 0)
                r = cop_sums_compare(s, data + cut, size - cut, &err);
        if (r == 0)
                r = cop_sums_compared(s, &err);
        require((r == 0) == (size == length && memcmp(data, own, size) == 0));
        cop_sums_free(s);
        return 0;
}
