#include "lib/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sandbox/layers.h"
#include "sandbox/probe.h"
#include "sandbox/sandbox.h"

static const char *sub(const char *name)
{
        static char paths[8][4096];
        static int n;
        char *path = paths[n++ % 8];

        snprintf(path, 4096, "%s/%s", test_dir(), name);
        return path;
}

TEST(folders_open_to_all_are_refused)
{
        struct cop_error err = COP_ERROR_NULL;

        ASSERT_EQ(mkdir(sub("a"), 0700) | mkdir(sub("a/b"), 0755) | mkdir(sub("a/b/c"), 0755), 0);
        ASSERT_OK(cop_check_private(sub("a/b/c"), true, &err), &err);
        ASSERT_OK(cop_check_private(sub("a"), true, &err), &err);
        ASSERT_EQ(chmod(test_dir(), 0755) | chmod(sub("a"), 0755), 0);
        struct stat st;
        if (stat("/tmp", &st) == 0 && (st.st_mode & 1) && strncmp(test_dir(), "/tmp/", 5) == 0) {
                ASSERT_CODE(cop_check_private(sub("a/b/c"), true, &err), &err, COP_ERR_start_failed);
                ASSERT_CONTAINS(err.message, "chmod 700");
                ASSERT_EQ(chmod(sub("a/b/c"), 0700), 0);
                ASSERT_OK(cop_check_private(sub("a/b/c"), true, &err), &err);
                ASSERT_CODE(cop_check_private(sub("a/b/c"), false, &err), &err, COP_ERR_start_failed);
        }
        ASSERT_LT(cop_check_private(sub("none"), true, &err), 0);
}

TEST(layers_are_checked)
{
        struct cop_layers layers = COP_LAYERS_NULL;
        struct cop_error err = COP_ERROR_NULL;
        const char *missing[] = {sub("missing")};

        if (geteuid() != 0)
                SKIP("needs root");
        ASSERT_CODE(cop_layers_open(missing, 0, test_dir(), &layers, &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(cop_layers_open(missing, COP_LAYERS_MAX + 1, test_dir(), &layers, &err), &err, COP_ERR_bad_request);
        ASSERT_LT(cop_layers_open(missing, 1, test_dir(), &layers, &err), 0);
        ASSERT_CONTAINS(err.message, "missing");
        ASSERT_LT(cop_layers_open(missing, 1, sub("nowhere"), &layers, &err), 0);
        ASSERT_CONTAINS(err.message, "nowhere");
        /* upper/ is the root folder inside: its mode must not depend on our umask. */
        umask(077);
        ASSERT_EQ(mkdir(sub("low"), 0755) | mkdir(sub("rw"), 0755), 0);
        const char *lower[] = {sub("low")};
        ASSERT_OK(cop_layers_open(lower, 1, sub("rw"), &layers, &err), &err);
        struct stat st;
        ASSERT_EQ(stat(sub("rw/upper"), &st), 0);
        ASSERT_EQ(st.st_mode & 07777, 0755);
        ASSERT_EQ(layers.lower_count, 1);
        cop_layers_done(&layers);
        cop_layers_done(&layers);
}

static ino_t inode_of(int fd)
{
        struct stat st;

        ASSERT_EQ(fstat(fd, &st), 0);
        return st.st_ino;
}

/* In their order, whatever number a message takes. */
TEST(layers_are_handed_over)
{
        static const size_t counts[] = {1, 199, 200, 201, 400};
        struct cop_error err;
        int pair[2];

        for (size_t c = 0; c < ELEMENTSOF(counts); c++) {
                struct cop_layers sent = {.lower_fds = calloc(counts[c], sizeof(int))}, got = COP_LAYERS_NULL;
                ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
                for (; sent.lower_count < counts[c]; sent.lower_count++)
                        sent.lower_fds[sent.lower_count] = memfd_create("layer", MFD_CLOEXEC);
                sent.upper_fd = memfd_create("upper", MFD_CLOEXEC);
                ASSERT_OK(cop_layers_send(&sent, pair[0], &err), &err);
                ASSERT_OK(cop_layers_receive(pair[1], &got, &err), &err);
                ASSERT_EQ(got.lower_count, counts[c]);
                for (size_t i = 0; i < counts[c]; i++)
                        ASSERT_EQ(inode_of(got.lower_fds[i]), inode_of(sent.lower_fds[i]));
                ASSERT_EQ(inode_of(got.upper_fd), inode_of(sent.upper_fd));
                cop_layers_done(&got);
                close(pair[0]);
                ASSERT_EQ(cop_layers_receive(pair[1], &got, &err), -EPIPE);
                ASSERT_EQ(cop_layers_send(&sent, pair[1], &err), -EPIPE);
                close(pair[1]);
                cop_layers_done(&sent);
        }
}

TEST(bad_specifications_leave_nothing)
{
        struct cop_sandbox *sb = NULL;
        struct cop_error err = COP_ERROR_NULL;
        char name[32];
        const char *lower[] = {sub("low")};

        if (geteuid() != 0)
                SKIP("needs root");
        snprintf(name, sizeof(name), "test-%d", (int)getpid());
        ASSERT_EQ(mkdir(sub("low"), 0755) | mkdir(sub("rw"), 0700), 0);
        const struct cop_sandbox_spec good = {.lower = lower,
                                              .lower_count = 1,
                                              .upper = sub("rw"),
                                              .cgroup = name,
                                              .uid_base = 1 << 20,
                                              .init_path = "/nonexistent/coppice-init"};
        struct cop_sandbox_spec spec = good;
        spec.uid_base = 1000;
        ASSERT_CODE(cop_sandbox_start(&spec, &sb, &err), &err, COP_ERR_bad_request);
        spec.uid_base = UINT32_MAX - 100;
        ASSERT_CODE(cop_sandbox_start(&spec, &sb, &err), &err, COP_ERR_bad_request);
        spec = good;
        spec.cgroup = "../x";
        ASSERT_CODE(cop_sandbox_start(&spec, &sb, &err), &err, COP_ERR_bad_request);
        spec = good;
        spec.default_uid = 65536;
        ASSERT_CODE(cop_sandbox_start(&spec, &sb, &err), &err, COP_ERR_bad_request);
        spec = good;
        spec.workdir = "relative";
        ASSERT_CODE(cop_sandbox_start(&spec, &sb, &err), &err, COP_ERR_bad_request);
        ASSERT_LT(cop_sandbox_start(&good, &sb, &err), 0);
        ASSERT_CONTAINS(err.message, "coppice-init");
        /* The image has no /proc, and the root of the sandbox cannot be made: told by the child. */
        spec = good;
        spec.init_path = "/bin/true"; /* dynamic: no loader inside, execve fails after everything else worked */
        ASSERT_CODE(cop_sandbox_start(&spec, &sb, &err), &err, COP_ERR_start_failed);
        ASSERT_CONTAINS(err.message, "coppice-init");
        ASSERT_OK(cop_cgroup_cleanup(name, 0, &err), &err);
        ASSERT(!sb);
}

TEST(this_host_is_probed)
{
        struct cop_probe_result results[COP_PROBE_MAX];
        size_t n = cop_probe(test_dir(), results);

        ASSERT_GT(n, 4);
        for (size_t i = 0; i < n; i++) {
                fprintf(stderr, "%s %s: %s%s%s\n", results[i].ok ? "ok" : "LACKS", results[i].name, results[i].detail,
                        results[i].remedy ? " -> " : "", results[i].remedy ? results[i].remedy : "");
                ASSERT_EQ(results[i].ok, results[i].remedy == NULL);
                ASSERT(results[i].detail[0]);
        }
        if (geteuid() == 0)
                for (size_t i = 0; i < n; i++)
                        if (!results[i].ok && results[i].needed)
                                SKIP("this host lacks %s", results[i].name);
        ASSERT_EQ(access(sub("probe"), F_OK), -1);
}
