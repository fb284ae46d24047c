#include "msg.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "cleanup.h"
#include "rights.h"
#include "utf8.h"

#define MAGIC 0x314d5043u /* "CPM1" */

struct header {
        uint32_t magic;
        uint16_t type;
        uint16_t field_count;
        uint32_t id;
        uint32_t length;
};

struct field {
        uint16_t tag;
        uint16_t zero;
        uint32_t length;
};

static size_t padded(size_t n)
{
        return (n + 3) & ~(size_t)3;
}

void cop_msg_init(struct cop_msg *m, uint16_t type, uint32_t id)
{
        *m = COP_MSG_NULL;
        m->fields.max = COP_MSG_MAX - sizeof(struct header);
        m->type = type;
        m->id = id;
}

void cop_msg_done(struct cop_msg *m)
{
        cop_buf_done(&m->fields);
        for (unsigned i = 0; i < m->fd_count; i++)
                m->fds[i] = cop_close(m->fds[i]);
        m->fd_count = 0;
}

void cop_msg_add_bytes(struct cop_msg *m, uint16_t tag, const void *data, size_t n)
{
        static const char zeros[4];
        struct field f = {.tag = tag, .length = (uint32_t)n};
        size_t before = m->fields.len;

        if (n > COP_MSG_MAX || m->field_count == UINT16_MAX || cop_buf_add(&m->fields, &f, sizeof(f)) < 0 ||
            cop_buf_add(&m->fields, data, n) < 0 || cop_buf_add(&m->fields, zeros, padded(n) - n) < 0) {
                m->fields.len = before;
                m->failed = true;
                return;
        }
        m->field_count++;
}

void cop_msg_add_str(struct cop_msg *m, uint16_t tag, const char *s)
{
        if (s)
                cop_msg_add_bytes(m, tag, s, strlen(s));
}

void cop_msg_add_u64(struct cop_msg *m, uint16_t tag, uint64_t value)
{
        cop_msg_add_bytes(m, tag, &value, sizeof(value));
}

void cop_msg_add_i64(struct cop_msg *m, uint16_t tag, int64_t value)
{
        cop_msg_add_bytes(m, tag, &value, sizeof(value));
}

void cop_msg_add_fd(struct cop_msg *m, int fd)
{
        if (fd < 0 || m->fd_count == COP_MSG_FDS_MAX) {
                cop_close(fd);
                m->failed = true;
                return;
        }
        m->fds[m->fd_count++] = fd;
}

void cop_msg_add_error(struct cop_msg *m, const struct cop_error *err)
{
        cop_msg_add_u64(m, COP_TAG_ERROR_ERRNO, (uint64_t)(err->errnum > 0 ? err->errnum : EIO));
        cop_msg_add_str(m, COP_TAG_ERROR_CODE, cop_err_code_name(err->code));
        cop_msg_add_str(m, COP_TAG_ERROR_MESSAGE, err->message);
}

int cop_msg_get_bytes(const struct cop_msg *m, uint16_t tag, unsigned index, const void **ret, size_t *ret_n)
{
        for (size_t at = 0; at < m->fields.len;) {
                struct field f;
                memcpy(&f, m->fields.data + at, sizeof(f));
                at += sizeof(f);
                if (f.tag == tag && index-- == 0) {
                        *ret = m->fields.data + at;
                        *ret_n = f.length;
                        return 0;
                }
                at += padded(f.length);
        }
        return -ENOENT;
}

static int get_fixed(const struct cop_msg *m, uint16_t tag, void *ret, size_t size)
{
        const void *data;
        size_t n;
        int r = cop_msg_get_bytes(m, tag, 0, &data, &n);

        if (r < 0)
                return r;
        if (n != size)
                return -EBADMSG;
        memcpy(ret, data, size);
        return 0;
}

int cop_msg_get_u64(const struct cop_msg *m, uint16_t tag, uint64_t *ret)
{
        return get_fixed(m, tag, ret, sizeof(*ret));
}

int cop_msg_get_i64(const struct cop_msg *m, uint16_t tag, int64_t *ret)
{
        return get_fixed(m, tag, ret, sizeof(*ret));
}

uint64_t cop_msg_u64_or(const struct cop_msg *m, uint16_t tag, uint64_t fallback)
{
        uint64_t value;

        return cop_msg_get_u64(m, tag, &value) == 0 ? value : fallback;
}

int cop_msg_get_str(const struct cop_msg *m, uint16_t tag, unsigned index, char **ret)
{
        const void *data;
        size_t n;
        int r = cop_msg_get_bytes(m, tag, index, &data, &n);

        if (r < 0)
                return r;
        if (memchr(data, '\0', n))
                return -EBADMSG;
        char *s = strndup(data, n);
        if (!s)
                return -ENOMEM;
        *ret = s;
        return 0;
}

char **cop_strv_free(char **strv)
{
        for (char **s = strv; s && *s; s++)
                free(*s);
        free(strv);
        return NULL;
}

int cop_msg_get_strv(const struct cop_msg *m, uint16_t tag, char ***ret, size_t *ret_n)
{
        char **strv = calloc((size_t)m->field_count + 1, sizeof(*strv));
        size_t n = 0;

        if (!strv)
                return -ENOMEM;
        for (size_t at = 0; at < m->fields.len;) {
                struct field f;
                memcpy(&f, m->fields.data + at, sizeof(f));
                at += sizeof(f);
                if (f.tag == tag) {
                        bool nul = memchr(m->fields.data + at, '\0', f.length);
                        strv[n] = nul ? NULL : strndup(m->fields.data + at, f.length);
                        if (!strv[n]) {
                                cop_strv_free(strv);
                                return nul ? -EBADMSG : -ENOMEM;
                        }
                        n++;
                }
                at += padded(f.length);
        }
        *ret = strv;
        if (ret_n)
                *ret_n = n;
        return 0;
}

int cop_msg_take_fd(struct cop_msg *m, unsigned index)
{
        return index < m->fd_count ? TAKE_FD(m->fds[index]) : -EBADF;
}

bool cop_msg_get_error(const struct cop_msg *m, struct cop_error *err)
{
        _cleanup_free_ char *name = NULL;
        const void *text = "";
        size_t n = 0;
        uint64_t errnum;

        if (cop_msg_get_u64(m, COP_TAG_ERROR_ERRNO, &errnum) < 0)
                return false;
        if (!err)
                return true;
        int code = cop_msg_get_str(m, COP_TAG_ERROR_CODE, 0, &name) == 0 ? cop_err_code_from_name(name) : -1;
        cop_msg_get_bytes(m, COP_TAG_ERROR_MESSAGE, 0, &text, &n);
        _cleanup_free_ char *clean = cop_utf8_repair(text, n, NULL);
        cop_error_set(err, errnum > 0 && errnum < 4096 ? (int)errnum : EIO,
                      code >= 0 ? (enum cop_err_code)code : COP_ERR_internal, "%s", clean ? clean : "out of memory");
        return true;
}

int cop_msg_parse(const void *packet, size_t n, struct cop_msg *ret)
{
        struct header h;
        unsigned count = 0;

        if (n < sizeof(h) || n > COP_MSG_MAX)
                return -EBADMSG;
        memcpy(&h, packet, sizeof(h));
        if (h.magic != MAGIC || h.length != n)
                return -EBADMSG;
        const char *body = (const char *)packet + sizeof(h);
        size_t left = n - sizeof(h);
        for (size_t at = 0; at < left; count++) {
                struct field f;
                if (left - at < sizeof(f))
                        return -EBADMSG;
                memcpy(&f, body + at, sizeof(f));
                at += sizeof(f);
                if (f.zero != 0 || f.length > left - at || padded(f.length) > left - at)
                        return -EBADMSG;
                at += padded(f.length);
        }
        if (count != h.field_count)
                return -EBADMSG;
        cop_msg_init(ret, h.type, h.id);
        if (cop_buf_add(&ret->fields, body, left) < 0)
                return -ENOMEM;
        ret->field_count = count;
        return 0;
}

int cop_msg_send(int socket_fd, struct cop_msg *m)
{
        union {
                struct cmsghdr align;
                char space[CMSG_SPACE(sizeof(int) * COP_MSG_FDS_MAX)];
        } control = {0};
        struct header h = {.magic = MAGIC,
                           .type = m->type,
                           .field_count = (uint16_t)m->field_count,
                           .id = m->id,
                           .length = (uint32_t)(sizeof(h) + m->fields.len)};
        struct iovec iov[2] = {{&h, sizeof(h)}, {m->fields.data, m->fields.len}};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

        if (m->failed || sizeof(h) + m->fields.len > COP_MSG_MAX)
                return -E2BIG;
        if (m->fd_count > 0) {
                msg.msg_control = &control;
                cop_rights_put(&msg, m->fds, m->fd_count);
        }
        for (;;) {
                ssize_t n = sendmsg(socket_fd, &msg, MSG_NOSIGNAL);
                if (n >= 0)
                        return 0;
                if (errno != EINTR)
                        return -errno;
        }
}

bool cop_msg_again(int r)
{
        return r == -EAGAIN || r == -ENOBUFS || r == -ENOMEM || r == -ETOOMANYREFS;
}

/* Collects the descriptors of a received packet; -EBADMSG when there are too many. */
static int collect_fds(struct msghdr *msg, int fds[static COP_MSG_FDS_MAX], unsigned *ret_count)
{
        unsigned count = 0;
        int r = msg->msg_flags & MSG_CTRUNC ? -EBADMSG : 0;

        for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                size_t n = cop_rights_count(c);
                for (size_t i = 0; i < n; i++) {
                        int fd;
                        memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
                        if (count < COP_MSG_FDS_MAX) {
                                fds[count++] = fd;
                        } else {
                                cop_close(fd);
                                r = -EBADMSG;
                        }
                }
        }
        *ret_count = count;
        return r;
}

int cop_msg_recv(int socket_fd, struct cop_msg *ret)
{
        static _Thread_local char *packet; /* one receive buffer a thread, kept for the life of the process */
        union {
                struct cmsghdr align;
                char space[CMSG_SPACE(sizeof(int) * (COP_MSG_FDS_MAX + 1))];
        } control;
        int fds[COP_MSG_FDS_MAX];
        unsigned fd_count = 0;

        if (!packet && !(packet = malloc(COP_MSG_MAX + 1)))
                return -ENOMEM;
        struct iovec iov = {packet, COP_MSG_MAX + 1};
        struct msghdr msg = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
        ssize_t n;
        do
                n = recvmsg(socket_fd, &msg, MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        int r = collect_fds(&msg, fds, &fd_count);
        if (r == 0 && n == 0 && fd_count == 0)
                return 0;
        if (r == 0)
                r = cop_msg_parse(packet, (size_t)n, ret);
        if (r < 0) {
                for (unsigned i = 0; i < fd_count; i++)
                        cop_close(fds[i]);
                return r;
        }
        memcpy(ret->fds, fds, sizeof(int) * fd_count);
        ret->fd_count = fd_count;
        return 1;
}
