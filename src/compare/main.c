/* coppice-compare: what differs between the files of two saved states, as lines of JSON.
 *
 *      coppice-compare [--text] --a LAYER… --b LAYER…          topmost first
 *
 * Theory of operation
 *
 * The daemon would have to open files that a sandbox made, as root.  So this program does: it opens the layers' folders, gives up
 * every right but that to read (CAP_DAC_READ_SEARCH, and the uid nobody), and then looks at what is in them.  It knows no
 * database and writes nothing but its standard output, which the daemon takes as foreign:
 *
 *      {"path", "change": "added"|"changed"|"removed", "what": [...], "a": {type, size, mode, mtime, sha256?, target?}, "b", "diff"?}
 *      {"end": true, "changes", "truncated", "unread", "unopened"}
 *
 * or {"error": {"code", "message"}} as the last line.  At most CHANGES_MAX lines; the rest is counted.
 */
#include <errno.h>
#include <grp.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "compare/stack.h"
#include "compare/text.h"

#define CHANGES_MAX 10000
#define TEXT_TOTAL_MAX (4u << 20) /* bytes of text differences in all */
#define TEXT_COUNT_MAX 500
#define NOBODY 65534
#define CPU_SECONDS 60
#define MEMORY_MAX (1ULL << 30)

struct report {
        bool text;
        size_t lines, texts, text_bytes;
};

static json_t *file_view(const struct cop_compare_file *f)
{
        char mode[8], stamp[COP_RFC3339_MAX];
        time_t seconds = MIN_OF(MAX_OF(f->st.st_mtim.tv_sec, (time_t)0), (time_t)253402300799LL);

        snprintf(mode, sizeof(mode), "%04o", (unsigned)f->st.st_mode & 07777);
        json_t *view =
                json_pack("{s:s, s:I, s:s, s:i, s:i, s:s}", "type", cop_file_type_name(f->st.st_mode), "size",
                          (json_int_t)(S_ISDIR(f->st.st_mode) ? 0 : f->st.st_size), "mode", mode, "uid",
                          (int)f->st.st_uid, "gid", (int)f->st.st_gid, "mtime",
                          cop_rfc3339((usec_t)seconds * USEC_PER_SEC + (usec_t)f->st.st_mtim.tv_nsec / 1000, stamp));
        if (view && f->sha256[0])
                json_object_set_new(view, "sha256", json_string(f->sha256));
        if (view && f->target[0])
                json_object_set_new(view, "target", cop_json_foreign_string(f->target, strlen(f->target)));
        return view;
}

static void add_text(struct report *r, const struct cop_compare_change *c, json_t *line)
{
        _cleanup_buf_ struct cop_buf out = COP_BUF(COP_TEXT_DIFF_MAX + 1);
        bool cut = false;

        if (!r->text || c->a.fd < 0 || c->b.fd < 0 || r->texts >= TEXT_COUNT_MAX || r->text_bytes >= TEXT_TOTAL_MAX)
                return;
        if (cop_text_diff(c->a.fd, c->b.fd, &out, &cut) <= 0)
                return;
        r->texts++;
        r->text_bytes += out.len;
        json_object_set_new(line, "diff", cop_json_foreign_string(out.data ? out.data : "", out.len));
        if (cut)
                json_object_set_new(line, "diff_cut", json_true());
}

static int print_line(const json_t *line, struct cop_error *err)
{
        if (json_dumpf(line, stdout, JSON_COMPACT) < 0 || putchar('\n') == EOF)
                return cop_error_errno(err, EPIPE, "writing the differences");
        return 0;
}

static int on_change(const struct cop_compare_change *c, void *userdata, struct cop_error *err)
{
        struct report *r = userdata;
        const struct {
                bool is;
                const char *word;
        } what[] = {{c->type, "type"}, {c->content, "content"}, {c->mode, "mode"}, {c->owner, "owner"}};

        if (r->lines >= CHANGES_MAX)
                return 0;
        r->lines++;
        _cleanup_json_ json_t *line = json_object(), *words = json_array();
        json_object_set_new(line, "path", cop_json_foreign_string(c->path, strlen(c->path)));
        json_object_set_new(line, "change", json_string(!c->a.exists ? "added" : !c->b.exists ? "removed" : "changed"));
        for (size_t i = 0; i < ELEMENTSOF(what); i++)
                if (what[i].is)
                        json_array_append_new(words, json_string(what[i].word));
        json_object_set(line, "what", words);
        if (c->a.exists)
                json_object_set_new(line, "a", file_view(&c->a));
        if (c->b.exists)
                json_object_set_new(line, "b", file_view(&c->b));
        if (c->content)
                add_text(r, c, line);
        return print_line(line, err);
}

/* -- rights ------------------------------------------------------------------------------------------------------------ */

static int keep_only_reading(struct cop_error *err)
{
        const cap_value_t read_search = CAP_DAC_READ_SEARCH;
        const struct rlimit cpu = {CPU_SECONDS, CPU_SECONDS + 1}, memory = {MEMORY_MAX, MEMORY_MAX};
        struct rlimit files;

        if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
                files.rlim_cur = files.rlim_max;
                setrlimit(RLIMIT_NOFILE, &files);
        }
        if (setrlimit(RLIMIT_CPU, &cpu) < 0 || setrlimit(RLIMIT_AS, &memory) < 0)
                return cop_error_errno(err, errno, "limits");
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return cop_error_errno(err, errno, "no_new_privs");
        if (geteuid() != 0)
                return 0; /* it has no rights to give up */
        if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
            setresuid(NOBODY, NOBODY, NOBODY) < 0)
                return cop_error_errno(err, errno, "becoming nobody");
        cap_t caps = cap_init();
        int r = !caps || cap_set_flag(caps, CAP_PERMITTED, 1, &read_search, CAP_SET) < 0 ||
                                cap_set_flag(caps, CAP_EFFECTIVE, 1, &read_search, CAP_SET) < 0 ||
                                cap_set_proc(caps) < 0
                        ? cop_error_errno(err, errno, "giving up capabilities")
                        : 0;
        cap_free(caps);
        if (r == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0) /* other credentials have cleared it */
                r = cop_error_errno(err, errno, "death signal");
        return r;
}

/* -- main -------------------------------------------------------------------------------------------------------------- */

static int compare(bool text, char **a, size_t a_count, char **b, size_t b_count, struct cop_error *err)
{
        struct report report = {.text = text};
        struct cop_compare c = {.fn = on_change, .userdata = &report, .full_max = CHANGES_MAX};
        struct cop_compare_stack *x = NULL, *y = NULL;

        int r = cop_compare_open((const char *const *)a, a_count, &x, err);
        if (r == 0)
                r = cop_compare_open((const char *const *)b, b_count, &y, err);
        if (r == 0)
                r = keep_only_reading(err);
        if (r == 0)
                r = cop_compare_run(&c, x, y, err);
        cop_compare_close(x);
        cop_compare_close(y);
        if (r < 0)
                return r;
        _cleanup_json_ json_t *end =
                json_pack("{s:b, s:I, s:b, s:I, s:I}", "end", 1, "changes", (json_int_t)c.told, "truncated",
                          c.told > report.lines, "unread", (json_int_t)c.unread, "unopened", (json_int_t)c.unopened);
        return print_line(end, err);
}

int main(int argc, char **argv)
{
        int at = 1;
        bool text = argc > 1 && strcmp(argv[1], "--text") == 0;
        struct cop_error err = COP_ERROR_NULL;

        signal(SIGPIPE, SIG_DFL);
        at += text;
        int a = at + 1, b = a;
        while (b < argc && strcmp(argv[b], "--b") != 0)
                b++;
        if (at >= argc || strcmp(argv[at], "--a") != 0 || b >= argc) {
                fprintf(stderr, "usage: coppice-compare [--text] --a LAYER... --b LAYER...\n");
                return 2;
        }
        int r = compare(text, argv + a, (size_t)(b - a), argv + b + 1, (size_t)(argc - b - 1), &err);
        if (r < 0) {
                _cleanup_json_ json_t *line = json_pack("{s:{s:s, s:s}}", "error", "code", cop_err_code_name(err.code),
                                                        "message", err.message);
                print_line(line, NULL);
        }
        return fflush(stdout) != 0 || r < 0;
}
