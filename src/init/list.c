/* LIST: one message per entry through the data socket. */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "ops.h"
#include "sandbox/wire.h"
#include "walk.h"

#define TARGET_MAX 4096

struct listing {
        struct cop_file_request *q; /* borrowed */
        uint64_t sent;
        bool full;
};

static int send_entry(const struct cop_walk_entry *entry, void *userdata, struct cop_error *err)
{
        struct listing *l = userdata;
        _cleanup_msg_ struct cop_msg m;
        char target[TARGET_MAX];

        if (l->sent == l->q->count) {
                l->full = true;
                return -ECANCELED;
        }
        cop_msg_init(&m, COP_WIRE_REPLY, 0);
        cop_msg_add_str(&m, COP_TAG_NAME, entry->path);
        cop_file_add_stat(&m, &entry->st);
        if (S_ISLNK(entry->st.st_mode)) {
                ssize_t n = readlinkat(entry->dir_fd, entry->name, target, sizeof(target));
                if (n >= 0)
                        cop_msg_add_bytes(&m, COP_TAG_TARGET, target, (size_t)n);
        }
        int r = cop_msg_send(l->q->data_fd, &m);
        if (r == -EPIPE || r == -ECONNRESET)
                return cop_error_set(err, -r, COP_ERR_cancelled, "the reader of %.600s went away", l->q->path);
        if (r < 0)
                return cop_file_error(err, -r, "listing", l->q->path);
        l->sent++;
        return 0;
}

int cop_file_list(struct cop_file_request *q, struct cop_error *err)
{
        struct listing l = {.q = q};
        struct cop_walk walk = {.fn = send_entry, .userdata = &l, .depth = q->depth, .skip_unreadable = true};
        _cleanup_close_ int fd = open(q->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return cop_file_error(err, errno, "listing", q->path);
        int r = cop_walk_tree(&walk, fd, q->path, err);
        if (r < 0 && !l.full)
                return r;
        cop_file_add_stat(&q->reply, &st);
        if (l.full || walk.truncated)
                cop_msg_add_u64(&q->reply, COP_TAG_FLAGS, COP_FILE_TRUNCATED);
        cop_msg_add_u64(&q->reply, COP_TAG_COUNT, l.sent);
        return 0;
}
