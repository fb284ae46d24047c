/* What init says to the keeper: messages of any type, id and fields, some well-formed enough to hit open requests, some raw
 * bytes through the parser.  Three commands are starting and a file operation is under way when they come. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "keeper/command.h"
#include "keeper/keep.h"
#include "sandbox/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint16_t tags[] = {COP_TAG_PID,         COP_TAG_STATUS,     COP_TAG_VERSION,       COP_TAG_KEY,
                                COP_TAG_ERROR_ERRNO, COP_TAG_ERROR_CODE, COP_TAG_ERROR_MESSAGE, COP_TAG_NAME};
static const uint16_t types[] = {COP_WIRE_REPLY, COP_WIRE_CHILD, COP_WIRE_READY, COP_WIRE_SPAWN, COP_WIRE_EVENT_EXIT, 0,
                                 0xffff};

struct input {
        const uint8_t *p;
        size_t left;
};

static uint8_t byte(struct input *in)
{
        if (in->left == 0)
                return 0;
        in->left--;
        return *in->p++;
}

static void add_field(struct input *in, struct cop_msg *m)
{
        uint8_t kind = byte(in);
        uint16_t tag = tags[kind % ELEMENTSOF(tags)];

        if (kind & 0x80) { /* a number of the right size, small or odd */
                uint64_t value = byte(in);
                cop_msg_add_u64(m, tag, kind & 0x40 ? value : value * 0x0102040810204081ULL);
                return;
        }
        size_t n = MIN_OF((size_t)byte(in), in->left);
        cop_msg_add_bytes(m, tag, in->p, n);
        in->p += n;
        in->left -= n;
}

static void deliver(struct cop_keep *k, struct input *in)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
        uint8_t how = byte(in);

        if (how == 0xff) {
                size_t n = MIN_OF((size_t)byte(in), in->left);
                if (cop_msg_parse(in->p, n, &m) < 0)
                        return;
                in->p += n;
                in->left -= n;
        } else {
                cop_msg_init(&m, types[how % ELEMENTSOF(types)], byte(in) % 8);
                for (uint8_t count = byte(in) % 6; count > 0; count--)
                        add_field(in, &m);
        }
        cop_keep_init_calls.message(k->init, &m, k);
        cop_loop_turn(k->loop, 0);
}

static void request(struct cop_keep *k, const char *key)
{
        _cleanup_msg_ struct cop_msg m;

        cop_msg_init(&m, key ? COP_WIRE_EXEC : COP_WIRE_FILE, 1);
        cop_msg_add_str(&m, COP_TAG_KEY, key);
        cop_msg_add_u64(&m, COP_TAG_TIMEOUT, 1000);
        if (key)
                cop_keep_exec(k, &m);
        else
                cop_keep_call(k, &m, 2, NULL, NULL);
}

static char logs[] = "/tmp/coppice-fuzz-XXXXXX";
static int logs_fd = -EBADF;

static void unlink_logs(void)
{
        unlinkat(logs_fd, "a.log", 0);
        unlinkat(logs_fd, "b.log", 0);
        unlinkat(logs_fd, "c.log", 0);
}

static void remove_logs(void)
{
        unlink_logs();
        rmdir(logs);
}

static void make_logs(void)
{
        if (!mkdtemp(logs) || (logs_fd = open(logs, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
                abort();
        atexit(remove_logs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const struct cop_error ended = {.errnum = EPIPE, .code = COP_ERR_sandbox_ended, .message = "over"};
        struct cop_keep k = {.listen_fd = -EBADF, .state = COP_KEEP_RUNNING};
        struct input in = {data, size};
        int fds[2];

        if (logs_fd < 0)
                make_logs();
        k.logs_fd = logs_fd;
        k.uid_base = getuid();
        k.default_gid = getgid() - k.uid_base;
        if (cop_loop_new(&k.loop, NULL) < 0 || cop_keep_commands_init(&k, NULL) < 0 ||
            cop_keep_life_init(&k, NULL) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0 ||
            cop_link_new(k.loop, fds[0], &cop_keep_init_calls, &k, &k.init, NULL) < 0)
                abort();
        request(&k, "a");
        request(&k, "b");
        request(&k, NULL);
        request(&k, "c");
        while (in.left > 0)
                deliver(&k, &in);
        size_t live = 0;
        for (struct cop_command *c = k.commands; c; c = c->next)
                live += !c->exited;
        if (live != k.running_count || k.command_count > 3)
                abort();
        cop_keep_calls_fail(&k, &ended);
        cop_keep_commands_killed(&k);
        if (k.running_count != 0)
                abort();
        cop_keep_commands_free(&k);
        unlink_logs();
        cop_link_free(k.init);
        close(fds[1]);
        cop_loop_free(k.loop);
        return 0;
}
