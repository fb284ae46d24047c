/* Packets between coppiced, coppice-keeper and coppice-init: parsing any bytes, and every getter on what was accepted. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct cop_msg *m, uint16_t tag)
{
        struct cop_error err;
        char **strv = NULL, *text = NULL;
        const void *bytes;
        uint64_t u;
        int64_t i;
        size_t n;

        for (unsigned index = 0; cop_msg_get_bytes(m, tag, index, &bytes, &n) == 0; index++) {
                if ((const char *)bytes < m->fields.data || (const char *)bytes + n > m->fields.data + m->fields.len)
                        abort();
                if (cop_msg_get_str(m, tag, index, &text) == 0) {
                        if (strlen(text) != n)
                                abort();
                        free(text);
                }
        }
        (void)cop_msg_get_u64(m, tag, &u);
        (void)cop_msg_get_i64(m, tag, &i);
        if (cop_msg_get_strv(m, tag, &strv, &n) == 0)
                cop_strv_free(strv);
        if (cop_msg_get_error(m, &err) && strlen(err.message) >= COP_ERROR_MESSAGE_MAX)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct cop_msg m = COP_MSG_NULL;

        /* The getters are linear in the fields before theirs: larger packets add time, not paths. */
        if (cop_msg_parse(data, size, &m) < 0 || size > 8192) {
                cop_msg_done(&m);
                return 0;
        }
        for (uint16_t tag = 0; tag < 20; tag++)
                read_all(&m, tag);
        read_all(&m, COP_TAG_ERROR_ERRNO);
        read_all(&m, COP_TAG_ERROR_CODE);
        read_all(&m, COP_TAG_ERROR_MESSAGE);
        cop_msg_done(&m);
        return 0;
}
