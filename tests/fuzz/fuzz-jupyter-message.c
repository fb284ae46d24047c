/* Messages of kernels: frames (here divided by the byte 0x1e), headers, contents, outputs, streams decoded in place. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "jupyter/decode.h"
#include "jupyter/kernelspec.h"
#include "jupyter/message.h"
#include "jupyter/output.h"

#define DIVIDER 0x1e

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
        if (!condition)
                abort();
}

/* Each frame in memory of its own, so that a sanitizer sees a byte too many. */
static size_t divide(const uint8_t *data, size_t size, struct cop_frame frames[static COP_MESSAGE_FRAMES_MAX])
{
        size_t n = 0;

        for (const uint8_t *end = data + size; n < COP_MESSAGE_FRAMES_MAX;) {
                const uint8_t *stop = memchr(data, DIVIDER, (size_t)(end - data));
                size_t len = (size_t)((stop ? stop : end) - data);
                frames[n].data = malloc(len ? len : 1);
                must(frames[n].data);
                memcpy(frames[n].data, data, len);
                frames[n++].len = len;
                if (!stop)
                        break;
                data = stop + 1;
        }
        return n;
}

static void check_output(const struct cop_output *o)
{
        if (o->kind == COP_OUTPUT_STREAM) {
                must(cop_utf8_valid(o->text, o->text_len));
                must(o->text[o->text_len] == '\0');
        } else if (o->kind == COP_OUTPUT_ERROR) {
                must(o->ename && o->evalue && json_is_array(o->traceback));
        } else if (o->kind != COP_OUTPUT_CLEAR) {
                must(json_is_object(o->data) && json_is_object(o->metadata));
        }
}

/* Whatever the quick decoder takes, the other one must understand in the same way. */
static void compare_decoders(const struct cop_frame *f)
{
        json_t *slow = NULL;
        const char *name;
        char *text, *copy = malloc(f->len ? f->len : 1);
        size_t len;

        must(copy);
        memcpy(copy, f->data, f->len);
        bool strict = cop_decode_json(f->data, f->len, &slow, NULL, NULL) >= 0;
        if (cop_decode_stream(copy, f->len, &name, &text, &len) == 1) {
                must(strict);
                json_t *value = json_object_get(slow, "text");
                must(json_is_string(value) && json_string_length(value) == len);
                must(memcmp(json_string_value(value), text, len) == 0);
        } else {
                must(memcmp(copy, f->data, f->len) == 0);
        }
        json_decref(slow);
        free(copy);
}

static void read_specs(json_t *content)
{
        struct cop_kernelspecs specs;

        if (cop_kernelspecs_from_json(json_object_get(content, "kernelspecs"), &specs, NULL) < 0)
                return;
        for (size_t i = 0; i < specs.count; i++)
                must(specs.list[i].argv[0] && cop_kernelspecs_find(&specs, specs.list[i].name));
        cop_kernelspecs_done(&specs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct cop_frame frames[COP_MESSAGE_FRAMES_MAX];
        struct cop_decoded_output decoded;
        struct cop_signer *signer;
        struct cop_message m;
        json_t *content;
        size_t n = divide(data, size, frames);

        must(cop_signer_new("", &signer, NULL) >= 0);
        for (size_t i = 0; i < n; i++)
                compare_decoders(&frames[i]);
        if (cop_message_parse(frames, n, signer, &m, NULL) >= 0) {
                must(m.type[0] && json_is_object(m.header));
                if (cop_message_content(&m, &content, NULL, NULL) >= 0) {
                        read_specs(content);
                        json_decref(content);
                }
                /* Last: it changes the frame. */
                if (cop_output_decode(&m, &decoded, NULL) == 1) {
                        check_output(&decoded.output);
                        cop_decoded_output_done(&decoded);
                }
                cop_message_done(&m);
        }
        cop_signer_free(signer);
        for (size_t i = 0; i < n; i++)
                free(frames[i].data);
        return 0;
}
