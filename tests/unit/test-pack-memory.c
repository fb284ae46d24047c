/* Memory from elsewhere: what an image may say of its threads. */
#include "lib/test.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "freezer/image.h"
#include "freezer/sockets.h"
#include "pack/memory.h"

#include "sandbox/lockdown.h"

enum wrong {
        NOTHING,
        NO_FILTER,
        OTHER_FILTER,
        SHORT_FILTER,
        CAPABILITY,
        BOUNDING,
        CORE,
        CORE_NONE,
        RAW_SOCKET,
        ECHO_SOCKET,
        OTHER_FAMILY,
        PACKET_SOCKET,
};

static void put_file(int dir_fd, const char *name, const void *data, size_t n)
{
        _cleanup_close_ int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

        ASSERT_EQ(write(fd, data, n), (ssize_t)n);
}

static void add_filter(struct cop_image_writer *w, struct img_thread *t, enum wrong wrong)
{
        size_t size;
        const void *ours = cop_lockdown_filter(&size);
        _cleanup_free_ char *program = malloc(size);

        if (wrong == NO_FILTER)
                return;
        memcpy(program, ours, size);
        if (wrong == OTHER_FILTER)
                program[size - 1] ^= 1;
        if (wrong == SHORT_FILTER)
                size -= 8;
        const struct img_filter f = {.program = cop_image_put(w, program, size)};
        t->first_filter = cop_image_add(w, IMG_FILTERS, &f);
        t->filters = 1;
}

/* Such as sandboxes have, or one that they may not. */
static void add_sockets(struct cop_image_writer *w, enum wrong wrong)
{
        struct img_file f = {.kind = IMG_FILE_INET, .arg = {[IMG_SOCK_TYPE] = SOCK_DGRAM, [IMG_SOCK_FAMILY] = AF_INET}};
        struct img_file u = {.kind = IMG_FILE_UNIX,
                             .arg = {[IMG_SOCK_TYPE] = SOCK_STREAM, [IMG_SOCK_FAMILY] = AF_UNIX}};

        if (wrong == RAW_SOCKET)
                f.arg[IMG_SOCK_TYPE] = SOCK_RAW;
        if (wrong == ECHO_SOCKET)
                f.arg[IMG_SOCK_PROTOCOL] = IPPROTO_ICMP;
        if (wrong == OTHER_FAMILY)
                f.arg[IMG_SOCK_FAMILY] = AF_PACKET;
        if (wrong == PACKET_SOCKET)
                f.kind = IMG_FILE_PACKET;
        cop_image_add(w, IMG_FILES, &f);
        cop_image_add(w, IMG_FILES, &u);
}

static void make_image(int mem_fd, enum wrong wrong)
{
        static const char zeros[64 * 32];
        struct cop_image_writer *w;
        struct cop_error err;

        ASSERT_OK(cop_image_create(mem_fd, NULL, -EBADF, NULL, &w, &err), &err);
        struct img_tree tree = {0};
        struct img_thread t = {.tid = 1, .comm = "init", .creds = {.bounding = 1ULL << CAP_CHOWN}};
        struct img_proc p = {.pid = 1,
                             .parent = IMG_NONE,
                             .state = IMG_RUNNING,
                             .threads = 1,
                             .exe = IMG_NONE,
                             .cwd_file = IMG_NONE,
                             .root_file = IMG_NONE,
                             .tty = IMG_NONE};
        p.sigactions = cop_image_put(w, zeros, sizeof(zeros));
        p.rlimits[RLIMIT_CORE][0] = p.rlimits[RLIMIT_CORE][1] = 1;
        add_filter(w, &t, wrong);
        if (wrong == CAPABILITY)
                t.creds.permitted = 1ULL << CAP_SYS_ADMIN;
        if (wrong == BOUNDING)
                t.creds.bounding |= 1ULL << CAP_NET_RAW;
        if (wrong == CORE)
                p.rlimits[RLIMIT_CORE][1] = RLIM_INFINITY;
        if (wrong == CORE_NONE) /* the kernel starts a pipe's program even then */
                p.rlimits[RLIMIT_CORE][0] = p.rlimits[RLIMIT_CORE][1] = 0;
        cop_image_add(w, IMG_TREE, &tree);
        cop_image_add(w, IMG_PROCS, &p);
        cop_image_add(w, IMG_THREADS, &t);
        add_sockets(w, wrong);
        uint64_t bytes;
        ASSERT_OK(cop_image_commit(w, false, &bytes, &err), &err);
        cop_image_writer_free(w);
}

/* A node's folder. */
static int make_node(enum wrong wrong)
{
        static const uint32_t keep[] = {0x32504b43u, 0}; /* "CKP2", no commands */
        int fd = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        ASSERT_EQ(mkdirat(fd, "mem", 0700), 0);
        _cleanup_close_ int mem_fd = openat(fd, "mem", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        make_image(mem_fd, wrong);
        put_file(fd, "keep", keep, sizeof(keep));
        put_file(fd, "init", "program", 7);
        return fd;
}

static void refuse(enum wrong wrong, const char *words)
{
        struct cop_error err;
        _cleanup_close_ int fd = make_node(wrong);

        ASSERT_CODE(cop_pack_check_memory(fd, &err), &err, COP_ERR_image_mismatch);
        ASSERT_CONTAINS(err.message, words);
        ASSERT_CONTAINS(err.message, "--files-only");
}

TEST(a_sandbox_of_this_engine_is_taken)
{
        struct cop_error err;
        _cleanup_close_ int fd = make_node(NOTHING);

        ASSERT_OK(cop_pack_check_memory(fd, &err), &err);
}

TEST(a_thread_without_the_filter_is_refused)
{
        refuse(NO_FILTER, "system call filter");
}

TEST(a_filter_that_was_changed_is_refused)
{
        refuse(OTHER_FILTER, "system call filter");
}

TEST(a_filter_that_was_cut_is_refused)
{
        refuse(SHORT_FILTER, "system call filter");
}

TEST(a_capability_that_no_sandbox_has_is_refused)
{
        refuse(CAPABILITY, "capabilities");
}

TEST(a_capability_to_be_had_is_refused)
{
        refuse(BOUNDING, "capabilities");
}

TEST(core_dumps_are_refused)
{
        refuse(CORE, "core");
}

TEST(core_dumps_of_size_0_are_refused)
{
        refuse(CORE_NONE, "core");
}

TEST(sockets_that_no_sandbox_may_make_are_refused)
{
        refuse(RAW_SOCKET, "is a socket");
}

TEST(echo_sockets_are_refused)
{
        refuse(ECHO_SOCKET, "is a socket");
}

TEST(sockets_of_another_family_than_they_say_are_refused)
{
        refuse(OTHER_FAMILY, "is a socket");
}

TEST(packet_sockets_are_refused)
{
        refuse(PACKET_SOCKET, "is a socket");
}

TEST(a_node_without_its_parts_is_damaged)
{
        static const char *const parts[] = {"keep", "init", "mem/meta.img"};
        struct cop_error err;
        _cleanup_close_ int fd = make_node(NOTHING);

        for (size_t i = 0; i < ELEMENTSOF(parts); i++) {
                ASSERT_EQ(renameat(fd, parts[i], fd, "away"), 0);
                ASSERT_LT(cop_pack_check_memory(fd, &err), 0);
                ASSERT_EQ(renameat(fd, "away", fd, parts[i]), 0);
        }
        ASSERT_OK(cop_pack_check_memory(fd, &err), &err);
}
