/* File operations of coppice-init, on a real root in real namespaces. */
#include <openssl/sha.h>

#include "init-driver.h"

static struct driver d;
static struct cop_error err;

#define OUT() COP_BUF(64u << 20)

static void run(const char *user, const char *script)
{
        _cleanup_buf_ struct cop_buf out = OUT();
        int status = driver_shell(&d, user, script, &out);

        if (status != 0)
                FAIL("%s: status %d: %s", script, status, out.data ? out.data : "");
}

static const char *shell(const char *script) /* its output, until the next call */
{
        static struct cop_buf out = {.max = 1 << 20};

        driver_shell(&d, "root", script, &out);
        return out.data ? out.data : "";
}

static const char *field(const struct cop_msg *m, uint16_t tag) /* until the next four calls */
{
        static char text[4][8192];
        static unsigned turn;
        const void *data = "";
        size_t n = 0;
        char *out = text[turn++ % 4];

        cop_msg_get_bytes(m, tag, 0, &data, &n);
        ASSERT_LT(n, sizeof(text[0]));
        memcpy(out, data, n);
        out[n] = '\0';
        return out;
}

/* -- stat, mkdir, remove, move
 * ------------------------------------------------------------------------------------------ */

TEST(stat_kinds)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;

        driver_start(&d);
        run(NULL, "cd /workspace; printf hello >f; chmod 640 f; touch -d @1000 f; ln -s f l; ln -s nowhere dangling; "
                  "mkfifo p; mkdir dir");
        ASSERT_OK(driver_do(&d, COP_FILE_STAT, "/workspace/f", NULL, 0, &m, &err), &err);
        ASSERT_STR(field(&m, COP_TAG_TYPE), "file");
        ASSERT_STR(field(&m, COP_TAG_PATH), "/workspace/f");
        ASSERT_EQ(cop_msg_u64_or(&m, COP_TAG_SIZE, 0), 5);
        ASSERT_EQ(cop_msg_u64_or(&m, COP_TAG_MODE, 0), 0640);
        ASSERT_EQ(cop_msg_u64_or(&m, COP_TAG_UID, 0), 1000);
        ASSERT_EQ(cop_msg_u64_or(&m, COP_TAG_MTIME, 0), 1000000000);
        cop_msg_done(&m);
        ASSERT_OK(driver_do(&d, COP_FILE_STAT, "l", NULL, COP_FILE_NOFOLLOW, &m, &err), &err);
        ASSERT_STR(field(&m, COP_TAG_TYPE), "symlink");
        ASSERT_STR(field(&m, COP_TAG_TARGET), "f");
        ASSERT_STR(field(&m, COP_TAG_PATH), "/workspace/l");
        cop_msg_done(&m);
        ASSERT_OK(driver_do(&d, COP_FILE_STAT, "./l", NULL, COP_FILE_SHA256, &m, &err), &err);
        ASSERT_STR(field(&m, COP_TAG_SHA256), "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
        ASSERT_STR(field(&m, COP_TAG_TYPE), "file");
        cop_msg_done(&m);
        ASSERT_OK(driver_do(&d, COP_FILE_STAT, "p", NULL, 0, &m, &err), &err);
        ASSERT_STR(field(&m, COP_TAG_TYPE), "fifo");
        ASSERT_CODE(driver_do(&d, COP_FILE_STAT, "dangling", NULL, 0, NULL, &err), &err, COP_ERR_file_not_found);
        ASSERT_CODE(driver_do(&d, COP_FILE_STAT, "p", NULL, COP_FILE_SHA256, NULL, &err), &err, COP_ERR_file_type);
        ASSERT_CODE(driver_do(&d, COP_FILE_STAT, "dir", NULL, COP_FILE_SHA256, NULL, &err), &err, COP_ERR_file_type);
        ASSERT_CODE(driver_do(&d, COP_FILE_STAT, "f/x", NULL, 0, NULL, &err), &err, COP_ERR_file_type);
        ASSERT_CODE(driver_do(&d, COP_FILE_STAT, "", NULL, 0, NULL, &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(driver_do(&d, 99, "f", NULL, 0, NULL, &err), &err, COP_ERR_bad_request);
        driver_stop(&d);
}

TEST(mkdir_exact_mode_and_parents)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;

        driver_start(&d);
        driver_file(&d, &m, COP_FILE_MKDIR, "a/b/c", COP_FILE_PARENTS);
        cop_msg_add_u64(&m, COP_TAG_MODE, 0775);
        _cleanup_msg_ struct cop_msg reply = COP_MSG_NULL;
        ASSERT_OK(driver_call(&d, &m, &reply, &err), &err);
        ASSERT_EQ(cop_msg_u64_or(&reply, COP_TAG_MODE, 0), 0775);
        ASSERT_STR(shell("cd /workspace; stat -c '%a %u' a a/b a/b/c"), "755 1000\n755 1000\n775 1000\n");
        ASSERT_OK(driver_do(&d, COP_FILE_MKDIR, "a/b", NULL, COP_FILE_PARENTS, NULL, &err), &err);
        ASSERT_CODE(driver_do(&d, COP_FILE_MKDIR, "a/b", NULL, 0, NULL, &err), &err, COP_ERR_file_exists);
        ASSERT_CODE(driver_do(&d, COP_FILE_MKDIR, "x/y", NULL, 0, NULL, &err), &err, COP_ERR_file_not_found);
        ASSERT_CODE(driver_do(&d, COP_FILE_MKDIR, "/etc/x", NULL, 0, NULL, &err), &err, COP_ERR_file_access);
        ASSERT_CODE(driver_do(&d, COP_FILE_MKDIR, "/etc/passwd/x", NULL, COP_FILE_PARENTS, NULL, &err), &err,
                    COP_ERR_file_type);
        ASSERT_OK(driver_do(&d, COP_FILE_MKDIR, "/", NULL, COP_FILE_PARENTS, NULL, &err), &err);
        driver_stop(&d);
}

TEST(remove_files_and_trees)
{
        driver_start(&d);
        run(NULL, "cd /workspace; mkdir -p t/a/b t/c; touch t/f t/a/g; ln -s /etc t/link; mkfifo t/a/p; touch f; ln -s "
                  "/workspace/t lt");
        ASSERT_OK(driver_do(&d, COP_FILE_REMOVE, "f", NULL, 0, NULL, &err), &err);
        ASSERT_CODE(driver_do(&d, COP_FILE_REMOVE, "f", NULL, 0, NULL, &err), &err, COP_ERR_file_not_found);
        ASSERT_CODE(driver_do(&d, COP_FILE_REMOVE, "t", NULL, 0, NULL, &err), &err, COP_ERR_file_exists);
        ASSERT_CONTAINS(err.message, "recursive");
        ASSERT_OK(driver_do(&d, COP_FILE_REMOVE, "lt", NULL, COP_FILE_RECURSIVE, NULL, &err), &err); /* the link */
        ASSERT_OK(driver_do(&d, COP_FILE_REMOVE, "t", NULL, COP_FILE_RECURSIVE, NULL, &err), &err);
        ASSERT_STR(shell("ls -A /workspace; ls /etc | wc -l"), "2\n");
        ASSERT_CODE(driver_do(&d, COP_FILE_REMOVE, "/", NULL, COP_FILE_RECURSIVE, NULL, &err), &err,
                    COP_ERR_bad_request);
        ASSERT_CODE(driver_do(&d, COP_FILE_REMOVE, "/proc/1/root", NULL, COP_FILE_RECURSIVE, NULL, &err), &err,
                    COP_ERR_file_access);
        ASSERT_CODE(driver_do(&d, COP_FILE_REMOVE, "/workspace/../", NULL, COP_FILE_RECURSIVE, NULL, &err), &err,
                    COP_ERR_bad_request);
        ASSERT_CODE(driver_do(&d, COP_FILE_REMOVE, "/etc", NULL, COP_FILE_RECURSIVE, NULL, &err), &err,
                    COP_ERR_file_access);
        driver_stop(&d);
}

TEST_LIMIT(remove_very_deep_and_very_wide, 90)
{
        driver_start(&d);
        run(NULL,
            "cd /workspace; python3 -c '\nimport os\nos.mkdir(\"deep\"); os.chdir(\"deep\")\n"
            "for i in range(6000):\n os.mkdir(\"d\"); os.chdir(\"d\")\nopen(\"end\",\"w\")\nos.symlink(\"/\",\"l\")'");
        ASSERT_OK(driver_do(&d, COP_FILE_REMOVE, "deep", NULL, COP_FILE_RECURSIVE, NULL, &err), &err);
        run(NULL, "mkdir /workspace/wide; cd /workspace/wide; seq 20000 | xargs touch");
        ASSERT_OK(driver_do(&d, COP_FILE_REMOVE, "wide", NULL, COP_FILE_RECURSIVE, NULL, &err), &err);
        ASSERT_STR(shell("ls -A /workspace"), "");
        driver_stop(&d);
}

TEST(remove_while_others_rename_and_fill)
{
        driver_start(&d);
        run(NULL, "cd /workspace; mkdir -p keep; touch keep/precious; mkdir -p t/a/b/c/d t/e");
        struct spawn racer = {.argv = {"bash", "-c",
                                       "cd /workspace; while :; do mv t/a/b keep/b; mv keep/b t/a/b; mkdir -p "
                                       "t/a/b/c/x; : >t/e/f; done 2>/dev/null"},
                              .no_output = true};
        pid_t pid;
        int fd;
        ASSERT_OK(driver_spawn(&d, &racer, &pid, &fd, &err), &err);
        for (int i = 0; i < 200; i++) /* whatever comes back, it comes back, and nothing outside t goes */
                driver_do(&d, COP_FILE_REMOVE, "t", NULL, COP_FILE_RECURSIVE, NULL, &err);
        ASSERT_OK(driver_kill(&d, pid, SIGKILL, COP_EXEC_GROUP, &err), &err);
        driver_wait(&d, pid);
        ASSERT_STR(shell("ls /workspace/keep/precious"), "/workspace/keep/precious\n");
        driver_stop(&d);
}

TEST(move_within_and_across)
{
        driver_start(&d);
        run("root", "mount -t tmpfs -o mode=1777 tmpfs /tmp");
        run(NULL, "cd /workspace; mkdir -p t/sub; echo data >t/sub/f; chmod 600 t/sub/f; touch -d @5000 t/sub/f; ln -s "
                  "f t/sub/l; mkfifo t/p; "
                  "chmod 750 t/sub; echo 1 >one; echo 2 >two");
        ASSERT_CODE(driver_do(&d, COP_FILE_MOVE, "one", "two", 0, NULL, &err), &err, COP_ERR_file_exists);
        ASSERT_OK(driver_do(&d, COP_FILE_MOVE, "one", "two", COP_FILE_OVERWRITE, NULL, &err), &err);
        ASSERT_STR(shell("cd /workspace; cat two; ls"), "1\nt\ntwo\n");
        ASSERT_CODE(driver_do(&d, COP_FILE_MOVE, "t", "t/sub/t", 0, NULL, &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(driver_do(&d, COP_FILE_MOVE, "nosuch", "x", 0, NULL, &err), &err, COP_ERR_file_not_found);
        ASSERT_CODE(driver_do(&d, COP_FILE_MOVE, "two", NULL, 0, NULL, &err), &err, COP_ERR_bad_request);
        ASSERT_CODE(driver_do(&d, COP_FILE_MOVE, "two", "/etc/x", 0, NULL, &err), &err, COP_ERR_file_access);

        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
        ASSERT_OK(driver_do(&d, COP_FILE_MOVE, "t", "/tmp/t", 0, &m, &err), &err); /* another file system */
        ASSERT_STR(field(&m, COP_TAG_PATH), "/tmp/t");
        ASSERT_STR(shell("cd /tmp/t && cat sub/f && stat -c '%a %u' sub && stat -c '%a %Y' sub/f && readlink sub/l && "
                         "test -p p && ls -A /tmp; ls /workspace"),
                   "data\n750 1000\n600 5000\nf\nt\ntwo\n");
        driver_stop(&d);
}

/* -- read and write
 * ------------------------------------------------------------------------------------------------------- */

TEST(read_ranges)
{
        static const struct {
                uint64_t offset, length;
                const char *content;
        } cases[] = {{0, 0, "0123456789"}, {3, 4, "3456"}, {8, 100, "89"}, {10, 0, ""}, {10, 5, ""}};

        driver_start(&d);
        run(NULL, "printf 0123456789 >/workspace/f");
        for (size_t i = 0; i <= ELEMENTSOF(cases); i++) {
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;
                _cleanup_buf_ struct cop_buf out = OUT();
                bool beyond = i == ELEMENTSOF(cases);
                driver_file(&d, &m, COP_FILE_READ, "f", 0);
                cop_msg_add_u64(&m, COP_TAG_OFFSET, beyond ? 11 : cases[i].offset);
                cop_msg_add_u64(&m, COP_TAG_LENGTH, beyond ? 0 : cases[i].length);
                _cleanup_close_ int fd = driver_add_socket(&m, SOCK_STREAM);
                int r = driver_call(&d, &m, &reply, &err);
                if (beyond) {
                        ASSERT_CODE(r, &err, COP_ERR_range_invalid);
                        break;
                }
                ASSERT_OK(r, &err);
                while (cop_buf_read(&out, fd, 4096) > 0)
                        ;
                ASSERT_STR(out.data ? out.data : "", cases[i].content);
                ASSERT_EQ(cop_msg_u64_or(&reply, COP_TAG_SIZE, 0), 10);
                ASSERT_EQ(cop_msg_u64_or(&reply, COP_TAG_LENGTH, 99), strlen(cases[i].content));
        }
        driver_stop(&d);
}

TEST(read_large_and_virtual)
{
        _cleanup_buf_ struct cop_buf out = OUT();
        uint64_t size = 0;

        driver_start(&d);
        run(NULL, "head -c 20000000 /dev/urandom >/workspace/big 2>/dev/null || python3 -c 'import "
                  "os;open(\"/workspace/big\",\"wb\").write(os.urandom(20000000))'");
        ASSERT_OK(driver_read(&d, "big", &out, &size, &err), &err);
        ASSERT_EQ(size, 20000000);
        ASSERT_EQ(out.len, 20000000);
        ASSERT_OK(driver_read(&d, "/proc/meminfo", &out, &size, &err), &err);
        ASSERT_CONTAINS(out.data, "MemTotal:");
        ASSERT_EQ(out.len, size);
        driver_stop(&d);
}

TEST(read_only_regular_files)
{
        static const struct {
                const char *path;
                enum cop_err_code code;
        } cases[] = {{"p", COP_ERR_file_type},
                     {"lp", COP_ERR_file_type},
                     {"/dev/null", COP_ERR_file_type},
                     {"/workspace", COP_ERR_file_type},
                     {"sock", COP_ERR_file_type},
                     {"loop", COP_ERR_file_type},
                     {"/proc/self/fd/3", COP_ERR_file_type}, /* a socket of the worker itself */
                     {"/proc/self/fd/2", COP_ERR_file_type},
                     {"/proc/1/fd/3", COP_ERR_file_access},
                     {"/proc/1/environ", COP_ERR_file_access},
                     {"/root/x", COP_ERR_file_access},
                     {"nosuch", COP_ERR_file_not_found}};
        _cleanup_buf_ struct cop_buf out = OUT();

        driver_start(&d);
        run("root", "chmod 700 /root; touch /root/x");
        run(NULL, "cd /workspace; mkfifo p; ln -s p lp; ln -s loop loop; python3 -c 'import "
                  "socket;socket.socket(socket.AF_UNIX).bind(\"sock\")'");
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                int r = driver_read(&d, cases[i].path, &out, NULL, &err);
                if (r >= 0 || err.code != cases[i].code)
                        FAIL("%s: %d, %s: %s", cases[i].path, r, cop_err_code_name(err.code), err.message);
        }
        driver_stop(&d);
}

TEST(read_of_a_file_that_shrinks_ends_early)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;
        _cleanup_buf_ struct cop_buf out = OUT();

        driver_start(&d);
        run(NULL, "head -c 8000000 /dev/zero >/workspace/f 2>/dev/null || truncate -s 8000000 /workspace/f");
        driver_file(&d, &m, COP_FILE_READ, "f", 0);
        _cleanup_close_ int fd = driver_add_socket(&m, SOCK_STREAM);
        ASSERT_OK(driver_call(&d, &m, &reply, &err), &err);
        ASSERT_EQ(cop_msg_u64_or(&reply, COP_TAG_SIZE, 0), 8000000);
        run(NULL, "truncate -s 100 /workspace/f");
        while (cop_buf_read(&out, fd, 65536) > 0)
                ;
        ASSERT_LT(out.len, 8000000);
        driver_stop(&d);
}

TEST(write_and_replace)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL;
        _cleanup_buf_ struct cop_buf out = OUT();

        driver_start(&d);
        ASSERT_OK(driver_write_file(&d, "new/deep/f", "hello", COP_FILE_ATOMIC | COP_FILE_PARENTS, &err), &err);
        ASSERT_STR(shell("cd /workspace/new/deep; cat f; stat -c ' %a %u:%g' f; ls -A"), "hello 644 1000:1000\nf\n");
        run(NULL, "cd /workspace; echo old >f; chmod 600 f; ln -s f l; ln -s sub/made dangling; mkdir sub");
        ASSERT_OK(driver_put(
                          &d,
                          &(struct put){COP_FILE_WRITE, "l", "hello", 5, UINT64_MAX, COP_FILE_ATOMIC | COP_FILE_SHA256},
                          &m, &err),
                  &err);
        ASSERT_STR(field(&m, COP_TAG_SHA256), "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
        ASSERT_EQ(cop_msg_u64_or(&m, COP_TAG_SIZE, 0), 5);
        ASSERT_STR(shell("cd /workspace; cat f; stat -c ' %a' f; stat -c %F l; ls -A"),
                   "hello 600\nsymbolic link\ndangling\nf\nl\nnew\nsub\n");
        ASSERT_OK(driver_write_file(&d, "dangling", "x", COP_FILE_ATOMIC, &err), &err);
        ASSERT_STR(shell("cat /workspace/sub/made"), "x");
        ASSERT_CODE(driver_write_file(&d, "f", "y", COP_FILE_ATOMIC | COP_FILE_EXCLUSIVE, &err), &err,
                    COP_ERR_file_exists);
        ASSERT_CODE(driver_write_file(&d, "f", "y", COP_FILE_EXCLUSIVE, &err), &err, COP_ERR_file_exists);
        ASSERT_OK(driver_write_file(&d, "ex", "y", COP_FILE_ATOMIC | COP_FILE_EXCLUSIVE, &err), &err);
        ASSERT_OK(driver_write_file(&d, "f", "shorter", 0, &err), &err);
        ASSERT_OK(driver_read(&d, "f", &out, NULL, &err), &err);
        ASSERT_STR(out.data, "shorter");
        ASSERT_OK(driver_write_file(&d, "empty", "", COP_FILE_ATOMIC, &err), &err);
        ASSERT_CODE(driver_write_file(&d, "/etc/passwd", "x", COP_FILE_ATOMIC, &err), &err, COP_ERR_file_access);
        ASSERT_CODE(driver_write_file(&d, "/etc/passwd", "x", 0, &err), &err, COP_ERR_file_access);
        ASSERT_CODE(driver_write_file(&d, "/workspace", "x", COP_FILE_ATOMIC, &err), &err, COP_ERR_file_type);
        ASSERT_CODE(driver_write_file(&d, "no/dir", "x", COP_FILE_ATOMIC, &err), &err, COP_ERR_file_not_found);
        run(NULL, "mkfifo /workspace/p");
        ASSERT_CODE(driver_write_file(&d, "p", "x", 0, &err), &err, COP_ERR_file_type);
        ASSERT_CODE(driver_write_file(&d, "p", "x", COP_FILE_ATOMIC, &err), &err, COP_ERR_file_type);
        driver_stop(&d);
}

TEST(write_at_offset)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;

        driver_start(&d);
        run(NULL, "printf 0123456789 >/workspace/f");
        driver_file(&d, &m, COP_FILE_WRITE, "f", 0);
        cop_msg_add_u64(&m, COP_TAG_OFFSET, 4);
        cop_msg_add_u64(&m, COP_TAG_LENGTH, 2);
        int fd = driver_add_socket(&m, SOCK_STREAM);
        driver_send(&d, &m);
        ASSERT_EQ(write(fd, "ab", 2), 2);
        driver_recv(&d, m.id, &reply); /* the exact length is enough: no end of file is needed */
        ASSERT(!cop_msg_get_error(&reply, &err));
        close(fd);
        ASSERT_STR(shell("cat /workspace/f"), "0123ab6789");
        driver_stop(&d);
}

TEST(cancelled_writes_replace_nothing)
{
        driver_start(&d);
        run(NULL, "printf old >/workspace/f");
        ASSERT_CODE(driver_put(&d, &(struct put){COP_FILE_WRITE, "f", "half", 4, 8, COP_FILE_ATOMIC}, NULL, &err), &err,
                    COP_ERR_cancelled);
        ASSERT_CODE(driver_put(&d, &(struct put){COP_FILE_WRITE, "g", "half", 4, 8, 0}, NULL, &err), &err,
                    COP_ERR_cancelled);
        for (int direct = 0; direct < 2; direct++) { /* the writer dies, length unknown */
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;
                driver_file(&d, &m, COP_FILE_WRITE, direct ? "h" : "f", direct ? 0 : COP_FILE_ATOMIC);
                int fd = driver_add_socket(&m, SOCK_STREAM);
                driver_send(&d, &m);
                ASSERT_EQ(write(fd, "part", 4), 4);
                close(fd);
                driver_recv(&d, m.id, &reply);
                ASSERT(cop_msg_get_error(&reply, &err));
                ASSERT_EQ(err.code, COP_ERR_cancelled);
        }
        ASSERT_STR(shell("cd /workspace; cat f; echo; ls -A"), "old\nf\n");
        driver_stop(&d);
}

TEST(disk_full_is_said)
{
        _cleanup_buf_ struct cop_buf data = COP_BUF(4 << 20);

        driver_start(&d);
        run("root", "mount -t tmpfs -o size=1m,mode=1777 tmpfs /tmp");
        run(NULL, "printf old >/tmp/f");
        ASSERT_OK(cop_buf_reserve(&data, 3 << 20), NULL);
        memset(data.data, 'x', 3 << 20);
        ASSERT_CODE(driver_put(&d,
                               &(struct put){COP_FILE_WRITE, "/tmp/f", data.data, 3 << 20, 3 << 20, COP_FILE_ATOMIC},
                               NULL, &err),
                    &err, COP_ERR_disk_full);
        ASSERT_CONTAINS(err.message, "delete files or raise its limit");
        ASSERT_CODE(
                driver_put(&d, &(struct put){COP_FILE_WRITE, "/tmp/g", data.data, 3 << 20, UINT64_MAX, 0}, NULL, &err),
                &err, COP_ERR_disk_full);
        run(NULL, "truncate -s 3M /workspace/sparse");
        ASSERT_CODE(driver_do(&d, COP_FILE_MOVE, "sparse", "/tmp/sparse", 0, NULL, &err), &err, COP_ERR_disk_full);
        ASSERT_STR(shell("cat /tmp/f; echo; ls -A /tmp; ls /workspace"), "old\nf\nsparse\n");
        driver_stop(&d);
}

TEST(killed_and_stopped_workers_are_answered)
{
        driver_start(&d);
        for (int round = 0; round < 2; round++) {
                _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;
                driver_file(&d, &m, COP_FILE_WRITE, "f", COP_FILE_ATOMIC);
                int fd = driver_add_socket(&m, SOCK_STREAM);
                driver_send(&d, &m);
                ASSERT_EQ(write(fd, "x", 1), 1);
                usleep(50000);
                struct spawn killer = {.argv = {"bash", "-c", round ? "kill -STOP -1" : "kill -KILL -1"},
                                       .no_output = true};
                pid_t pid;
                int out;
                ASSERT_OK(driver_spawn(&d, &killer, &pid, &out, &err), &err);
                driver_recv(&d, m.id, &reply);
                ASSERT(cop_msg_get_error(&reply, &err));
                ASSERT_EQ(err.code, COP_ERR_io_error);
                ASSERT_CONTAINS(err.message, "killed");
                close(fd);
        }
        ASSERT_STR(shell("ls -A /workspace"), ""); /* the file without a name went with its worker */
        driver_stop(&d);
}

TEST(number_of_workers_is_bounded)
{
        enum { MAX = 32 };
        struct cop_msg m[MAX + 1];
        int fds[MAX + 1];

        driver_start(&d);
        for (int i = 0; i <= MAX; i++) {
                driver_file(&d, &m[i], COP_FILE_WRITE, "f", COP_FILE_ATOMIC);
                fds[i] = driver_add_socket(&m[i], SOCK_STREAM);
                driver_send(&d, &m[i]);
        }
        _cleanup_msg_ struct cop_msg reply = COP_MSG_NULL;
        driver_recv(&d, m[MAX].id, &reply);
        ASSERT(cop_msg_get_error(&reply, &err));
        ASSERT_EQ(err.code, COP_ERR_too_many);
        ASSERT_EQ(driver_shell(&d, NULL, "exit 2", NULL), 2 << 8); /* commands still start */
        for (int i = 0; i <= MAX; i++)
                close(fds[i]);
        for (int i = 0; i < MAX; i++) {
                _cleanup_msg_ struct cop_msg r = COP_MSG_NULL;
                ASSERT_EQ(cop_msg_recv(d.fd, &r), 1);
        }
        for (int i = 0; i <= MAX; i++)
                cop_msg_done(&m[i]);
        ASSERT_OK(driver_write_file(&d, "f", "x", COP_FILE_ATOMIC, &err), &err);
        driver_stop(&d);
}

TEST(no_progress_ends_in_timeout)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;

        driver_start_with(&d, "--stall=1");
        driver_file(&d, &m, COP_FILE_WRITE, "f", COP_FILE_ATOMIC);
        int fd = driver_add_socket(&m, SOCK_STREAM);
        driver_send(&d, &m);
        driver_recv(&d, m.id, &reply);
        ASSERT(cop_msg_get_error(&reply, &err));
        ASSERT_EQ(err.code, COP_ERR_timeout);
        ASSERT_CONTAINS(err.message, "no progress for 1 s");
        close(fd);
        driver_stop(&d);
}

TEST(users_of_file_operations)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;

        driver_start(&d);
        driver_file(&d, &m, COP_FILE_MKDIR, "/root/made", 0);
        cop_msg_add_str(&m, COP_TAG_USER, "root");
        ASSERT_OK(driver_call(&d, &m, &reply, &err), &err);
        ASSERT_EQ(cop_msg_u64_or(&reply, COP_TAG_UID, 99), 0);
        cop_msg_done(&m);
        cop_msg_done(&reply);
        driver_file(&d, &m, COP_FILE_MKDIR, "/x", 0);
        cop_msg_add_str(&m, COP_TAG_USER, "nosuch");
        ASSERT_CODE(driver_call(&d, &m, &reply, &err), &err, COP_ERR_bad_request);
        driver_stop(&d);
}

/* -- list
 * ----------------------------------------------------------------------------------------------------------------- */

struct listing {
        size_t count;
        bool truncated;
        char *names; /* owned: sorted, each with its type's first letter, joined by spaces */
};

static int compare(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list(const char *path, uint64_t depth, uint64_t count, bool names, struct listing *ret)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;
        char **all = calloc(100000, sizeof(*all));
        int r;

        *ret = (struct listing){0};
        driver_file(&d, &m, COP_FILE_LIST, path, 0);
        cop_msg_add_u64(&m, COP_TAG_DEPTH, depth);
        if (count)
                cop_msg_add_u64(&m, COP_TAG_COUNT, count);
        _cleanup_close_ int fd = driver_add_socket(&m, SOCK_SEQPACKET);
        driver_send(&d, &m);
        for (;;) {
                _cleanup_msg_ struct cop_msg entry = COP_MSG_NULL;
                r = cop_msg_recv(fd, &entry);
                if (r == 0 || r == -ECONNRESET)
                        break;
                ASSERT_OK(r, NULL);
                ASSERT(asprintf(&all[ret->count], "%.1s:%s", field(&entry, COP_TAG_TYPE), field(&entry, COP_TAG_NAME)) >
                       0);
                ret->count++;
        }
        driver_recv(&d, m.id, &reply);
        r = cop_msg_get_error(&reply, &err) ? -err.errnum : 0;
        ret->truncated = cop_msg_u64_or(&reply, COP_TAG_FLAGS, 0) & COP_FILE_TRUNCATED;
        qsort(all, ret->count, sizeof(*all), compare);
        _cleanup_buf_ struct cop_buf out = OUT();
        for (size_t i = 0; i < ret->count; i++) {
                if (names)
                        cop_buf_addf(&out, "%s%s", i ? " " : "", all[i]);
                free(all[i]);
        }
        free(all);
        ret->names = cop_buf_take(&out);
        return r;
}

TEST(list_folders)
{
        struct listing l;

        driver_start(&d);
        run(NULL, "cd /workspace; mkdir -p a/b; touch f a/g a/b/h \"$(printf 'bad\\377name')\" 'with space'; ln -s a "
                  "l; mkfifo p; mkdir closed; chmod 0 closed");
        ASSERT_OK(list("/workspace", 1, 0, true, &l), &err);
        ASSERT_STR(l.names, "d:a d:closed f:bad\377name f:f f:p f:with space s:l");
        free(l.names);
        ASSERT_OK(list("/workspace", 2, 0, true, &l), &err);
        ASSERT_STR(l.names, "d:a d:a/b d:closed f:a/g f:bad\377name f:f f:p f:with space s:l");
        free(l.names);
        ASSERT_OK(list("l", 9, 0, true, &l), &err);
        ASSERT_STR(l.names, "d:b f:b/h f:g");
        ASSERT(!l.truncated);
        free(l.names);
        ASSERT_CODE(list("f", 1, 0, true, &l), &err, COP_ERR_file_type);
        free(l.names);
        ASSERT_CODE(list("nosuch", 1, 0, true, &l), &err, COP_ERR_file_not_found);
        free(l.names);
        ASSERT_CODE(list("closed", 1, 0, true, &l), &err, COP_ERR_file_access);
        free(l.names);
        driver_stop(&d);
}

TEST_LIMIT(list_huge_and_deep, 90)
{
        struct listing l;

        driver_start(&d);
        run(NULL, "mkdir /workspace/wide; cd /workspace/wide; seq 12000 | xargs touch");
        ASSERT_OK(list("wide", 1, 0, false, &l), &err);
        ASSERT_EQ(l.count, 10000);
        ASSERT(l.truncated);
        free(l.names);
        ASSERT_OK(list("wide", 1, 50000, false, &l), &err);
        ASSERT_EQ(l.count, 12000);
        ASSERT(!l.truncated);
        free(l.names);
        run(NULL, "cd /workspace; python3 -c '\nimport os\nos.mkdir(\"deep\"); os.chdir(\"deep\")\n"
                  "for i in range(1000):\n os.mkdir(\"d\"); os.chdir(\"d\")'");
        ASSERT_OK(list("deep", 100000, 0, false, &l), &err);
        ASSERT_EQ(l.count, 256);
        ASSERT(l.truncated);
        free(l.names);
        driver_stop(&d);
}

/* -- tar
 * ------------------------------------------------------------------------------------------------------------------ */

static int get_tar(const char *path, struct cop_buf *out)
{
        _cleanup_msg_ struct cop_msg m = COP_MSG_NULL, reply = COP_MSG_NULL;

        driver_file(&d, &m, COP_FILE_TAR, path, 0);
        _cleanup_close_ int fd = driver_add_socket(&m, SOCK_STREAM);
        driver_send(&d, &m);
        cop_buf_clear(out);
        while (cop_buf_read(out, fd, 65536) > 0)
                ;
        driver_recv(&d, m.id, &reply);
        return cop_msg_get_error(&reply, &err) ? -err.errnum : 0;
}

static int put_tar(const char *path, const struct cop_buf *data)
{
        return driver_put(&d, &(struct put){COP_FILE_UNTAR, path, data->data, data->len, UINT64_MAX, COP_FILE_PARENTS},
                          NULL, &err);
}

TEST(tar_and_back)
{
        _cleanup_buf_ struct cop_buf archive = OUT();

        driver_start(&d);
        run(NULL, "cd /workspace; mkdir -p t/sub/empty t/ro; echo data >t/sub/f; chmod 750 t/sub/f; touch -d @7000 "
                  "t/sub/f; ln -s sub/f t/l; "
                  "mkfifo t/p; echo u >t/ünicode; echo b >\"$(printf 't/bad\\377')\"; echo r >t/ro/r; chmod 555 t/ro; "
                  "n=$(printf '%0200d' 7); mkdir -p t/$n/$n; echo long >t/$n/$n/f; truncate -s 100000 t/zeros");
        ASSERT_OK(get_tar("t", &archive), &err);
        ASSERT_OK(put_tar("copy", &archive), &err);
        run(NULL,
            "cd /workspace; rm t/p; diff -r t copy/t; test $(stat -c '%a %Y' copy/t/sub/f | tr ' ' _) = 750_7000; "
            "test $(stat -c %a copy/t/ro) = 555; test $(readlink copy/t/l) = sub/f; test -d copy/t/sub/empty");
        /* What others make of it, and we of theirs. */
        run(NULL,
            "cd /workspace; chmod -R u+w copy; rm -rf copy; tar -cf theirs.tar t; tar --format=gnu -cf gnu.tar t");
        ASSERT_OK(driver_write_file(&d, "unused", "", 0, &err), &err);
        ASSERT_OK(driver_put(&d, &(struct put){COP_FILE_WRITE, "ours.tar", archive.data, archive.len, archive.len, 0},
                             NULL, &err),
                  &err);
        run(NULL, "cd /workspace; mkdir x; tar -xf ours.tar -C x; diff -r t x/t; python3 -c 'import "
                  "tarfile;tarfile.open(\"ours.tar\").getmembers()'");
        for (const char **file = (const char *[]){"theirs.tar", "gnu.tar", NULL}; *file; file++) {
                ASSERT_OK(driver_read(&d, *file, &archive, NULL, &err), &err);
                ASSERT_OK(put_tar("back", &archive), &err);
                run(NULL, "cd /workspace; diff -r t back/t; chmod -R u+w back; rm -rf back");
        }
        ASSERT_OK(get_tar("t/sub/f", &archive), &err); /* a single file */
        ASSERT_EQ(archive.len, 512 * 4);
        ASSERT_CODE(get_tar("nosuch", &archive), &err, COP_ERR_file_not_found);
        ASSERT_EQ(archive.len, 0);
        driver_stop(&d);
}

TEST(untar_refuses_what_leads_out)
{
        static const struct {
                const char *python; /* adds members to `t` */
                enum cop_err_code code;
        } cases[] = {
                {"add('../evil')", COP_ERR_bad_request},
                {"add('a/../../evil')", COP_ERR_bad_request},
                {"add('/tmp/evil')", COP_ERR_bad_request},
                {"link('l', '/etc'); add('l/evil')", COP_ERR_bad_request},
                {"link('l', '../..')", COP_ERR_bad_request},
                {"link('a/l', '../../x')", COP_ERR_bad_request},
                {"link('l', 'a'); add('l/evil')", COP_ERR_file_type}, /* stays inside, but is no folder */
                {"link('a', '.'); link('a/b', '..')", COP_ERR_file_type},
                {"hard('h', '/etc/passwd')", COP_ERR_bad_request},
                {"hard('h', '../x')", COP_ERR_bad_request},
                {"add('existing-link/evil')", COP_ERR_file_type},
                {"special('d', tarfile.CHRTYPE)", COP_ERR_unsupported},
                {"special('d', tarfile.BLKTYPE)", COP_ERR_unsupported},
                {"special('d', tarfile.FIFOTYPE)", COP_ERR_unsupported},
                {"add('x'*255+'y')", COP_ERR_bad_request},
        };
        _cleanup_buf_ struct cop_buf archive = OUT();
        char script[2048];

        driver_start(&d);
        run(NULL, "mkdir -p /workspace/out /workspace/target; ln -s /workspace/out /workspace/target/existing-link");
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                snprintf(script, sizeof(script),
                         "cd /workspace; python3 -c \"\nimport tarfile,io\nt=tarfile.open('a.tar','w')\n"
                         "def add(n):\n i=tarfile.TarInfo(n); i.size=1; t.addfile(i,io.BytesIO(b'x'))\n"
                         "def special(n,ty,to=''):\n i=tarfile.TarInfo(n); i.type=ty; i.linkname=to; t.addfile(i)\n"
                         "def link(n,to): special(n,tarfile.SYMTYPE,to)\ndef hard(n,to): "
                         "special(n,tarfile.LNKTYPE,to)\n%s\nt.close()\"",
                         cases[i].python);
                run(NULL, script);
                ASSERT_OK(driver_read(&d, "a.tar", &archive, NULL, &err), &err);
                int r = put_tar("target", &archive);
                if (r >= 0 || err.code != cases[i].code)
                        FAIL("%s: %d, %s: %s", cases[i].python, r, r < 0 ? cop_err_code_name(err.code) : "ok",
                             r < 0 ? err.message : "");
        }
        ASSERT_STR(shell("ls -A /workspace/out; find / -xdev -name '*evil*' | grep -v ^/proc"), "");
        driver_stop(&d);
}

TEST(untar_replaces_links_instead_of_writing_through)
{
        _cleanup_buf_ struct cop_buf archive = OUT();

        driver_start(&d);
        run(NULL, "cd /workspace; mkdir t; echo new >t/f; echo hard >t/h; ln t/h t/h2");
        ASSERT_OK(get_tar("t", &archive), &err);
        run(NULL, "cd /workspace; echo precious >p; mkdir -p x/t; ln -s ../../p x/t/f");
        ASSERT_OK(put_tar("x", &archive), &err);
        ASSERT_STR(shell("cd /workspace; cat p x/t/f; tar -cf h.tar t"), "precious\nnew\n");
        ASSERT_OK(driver_read(&d, "h.tar", &archive, NULL, &err), &err);
        ASSERT_OK(put_tar("y", &archive), &err);
        ASSERT_STR(shell("stat -c %h /workspace/y/t/h"), "2\n");
        driver_stop(&d);
}

TEST(untar_of_damaged_archives)
{
        _cleanup_buf_ struct cop_buf archive = OUT();

        driver_start(&d);
        run(NULL, "cd /workspace; mkdir t; head -c 3000 /usr/bin/ls >t/f; touch t/g");
        ASSERT_OK(get_tar("t", &archive), &err);
        size_t full = archive.len;
        for (archive.len = 0; archive.len < full - 1024; archive.len += 512)
                ASSERT_CODE(put_tar("x", &archive), &err, COP_ERR_bad_request);
        archive.len = full;
        archive.data[100] ^= 1;
        ASSERT_CODE(put_tar("x", &archive), &err, COP_ERR_bad_request);
        ASSERT_CONTAINS(err.message, "checksum");
        driver_stop(&d);
}
