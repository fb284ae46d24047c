/* What a pack's manifest says of a sandbox is foreign: sound ones come as far as the image, which is not here, others are refused. */
#include "engine-driver.h"

#include <sys/stat.h>

#include "base/fs.h"
#include "base/pack.h"
#include "engine/pack.h"

static void write_manifest(const struct engine_fixture *f, const char *commands)
{
        char path[500], text[4000];

        snprintf(path, sizeof(path), "%s/nodes", f->home);
        (void)mkdir(path, 0700);
        snprintf(path, sizeof(path), "%s/nodes/nd_0123456789", f->home);
        (void)mkdir(path, 0700);
        int n = snprintf(
                text, sizeof(text),
                "{\"layers\": 1, \"image\": {\"digest\": \"sha256:0\"}, \"node\": {\"kind\": \"memory\", \"spec\": {"
                "\"contexts\": [], \"generation\": 1, \"limits\": {}, \"env\": {}, \"policy\": {}%s%s}}}",
                commands ? ", \"commands\": " : "", commands ? commands : "");
        ASSERT(n > 0 && (size_t)n < sizeof(text));
        snprintf(path, sizeof(path), "%s/nodes/nd_0123456789/" COP_PACK_MANIFEST, f->home);
        struct cop_error err = COP_ERROR_NULL;
        ASSERT_OK(cop_write_file_atomic(AT_FDCWD, path, text, (size_t)n, 0600, &err), &err);
}

static enum cop_err_code verdict(struct engine_fixture *f, const char *commands)
{
        struct cop_node_row *row = NULL;
        struct cop_error err = COP_ERROR_NULL;

        write_manifest(f, commands);
        ASSERT(cop_unpack_commit(f->engine, "nd_0123456789", NULL, false, &row, &err) < 0);
        return err.code;
}

#define COMMAND(id, spec) \
        "[{\"id\": \"" id "\", \"pid\": 7, \"detached\": true, \"started_at\": 1, \"spec\": \"" spec "\"}]"

TEST(commands_of_a_manifest)
{
        static const char *const sound[] = {
                NULL,
                "[]",
                COMMAND("cmd_0123456789", "{}"),
                COMMAND("cmd_0123456789", "{\\\"argv\\\": [\\\"sleep\\\", \\\"1\\\"], \\\"timeout_seconds\\\": null}"),
                COMMAND("cmd_a", "{\\\"command\\\": \\\"a\\\\nb\\\", \\\"restart\\\": true, \\\"env\\\": {\\\"A\\\": "
                                 "\\\"1\\\"}}"),
        };
        static const char *const unsound[] = {
                "{}",
                "[1]",
                "[{}]",
                "[{\"id\": \"cmd_a\"}]",
                COMMAND("ker_0123456789", "{}"),
                COMMAND("cmd_../../x", "{}"),
                COMMAND("cmd_0123456789012345678901234567890123456789", "{}"),
                COMMAND("cmd_a", "[]"),
                COMMAND("cmd_a", "not JSON"),
                COMMAND("cmd_a", "{\\\"argv\\\": [1]}"),
                COMMAND("cmd_a", "{\\\"argv\\\": {}}"),
                COMMAND("cmd_a", "{\\\"command\\\": []}"),
                COMMAND("cmd_a", "{\\\"env\\\": [1]}"),
                COMMAND("cmd_a", "{\\\"output_max\\\": -1}"),
                COMMAND("cmd_a", "{\\\"output_max\\\": 99999999999}"),
                COMMAND("cmd_a", "{\\\"other\\\": 1}"),
                "[{\"id\": \"cmd_a\", \"pid\": -7, \"detached\": true, \"started_at\": 1, \"spec\": \"{}\"}]",
                "[{\"id\": \"cmd_a\", \"pid\": 7, \"detached\": 1, \"started_at\": 1, \"spec\": \"{}\"}]",
                "[{\"id\": \"cmd_a\", \"pid\": 7, \"detached\": true, \"started_at\": 1, \"spec\": \"{}\", \"x\": 1}]",
        };
        struct engine_fixture f = {0};

        engine_open(&f);
        for (size_t i = 0; i < ELEMENTSOF(sound); i++)
                if (verdict(&f, sound[i]) != COP_ERR_image_not_found)
                        FAIL("%s", sound[i] ? sound[i] : "none");
        for (size_t i = 0; i < ELEMENTSOF(unsound); i++)
                if (verdict(&f, unsound[i]) != COP_ERR_pack_damaged)
                        FAIL("%s", unsound[i]);
        engine_close(&f);
}
