/* For tests of captured and merged files: folders, shell scripts, and whether two trees are the same. */
#pragma once

#include "tree-folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"

#define NOTE "trusted.coppice.source"

/* -- the model: two trees are the same ------------------------------------------------------------------------------------------- */

struct seen {
        uint64_t a, b;
} seen[20000];
static size_t seen_count;

static void same_links(const struct stat *a, const struct stat *b, const char *name)
{
        for (size_t i = 0; i < seen_count; i++)
                if ((seen[i].a == a->st_ino) != (seen[i].b == b->st_ino))
                        FAIL("%s: links differ", name);
        if (a->st_nlink > 1 && seen_count < ELEMENTSOF(seen))
                seen[seen_count++] = (struct seen){a->st_ino, b->st_ino};
}

static void same_xattrs(int a, int b, const char *name)
{
        char p[600], q[600], names[4096], v[4096], w[4096];
        size_t count[2] = {0, 0};

        snprintf(p, sizeof(p), "/proc/self/fd/%d/%s", a, name);
        snprintf(q, sizeof(q), "/proc/self/fd/%d/%s", b, name);
        for (int side = 0; side < 2; side++) {
                ssize_t n = llistxattr(side ? q : p, names, sizeof(names));
                for (char *x = names; n > 0 && x < names + n; x += strlen(x) + 1) {
                        if (strcmp(x, NOTE) == 0)
                                continue;
                        count[side]++;
                        ssize_t i = lgetxattr(p, x, v, sizeof(v)), j = lgetxattr(q, x, w, sizeof(w));
                        if (i < 0 || i != j || memcmp(v, w, (size_t)i) != 0)
                                FAIL("%s: attribute %s differs", name, x);
                }
        }
        ASSERT_EQ(count[0], count[1]);
}

static void same_content(int a, int b, const char *name)
{
        static char x[65536], y[65536];
        int p = openat(a, name, O_RDONLY | O_CLOEXEC), q = openat(b, name, O_RDONLY | O_CLOEXEC);
        ssize_t n, m;

        ASSERT_GE(p, 0);
        ASSERT_GE(q, 0);
        do {
                n = read(p, x, sizeof(x));
                m = read(q, y, sizeof(y));
                if (n != m || (n > 0 && memcmp(x, y, (size_t)n) != 0))
                        FAIL("%s: content differs", name);
        } while (n > 0);
        close(p);
        close(q);
}

static size_t same_folders(int a, int b, bool links);

static void same_entry(int a, int b, const char *name, bool links)
{
        struct stat p, q;

        ASSERT_EQ(fstatat(a, name, &p, AT_SYMLINK_NOFOLLOW), 0);
        if (fstatat(b, name, &q, AT_SYMLINK_NOFOLLOW) < 0)
                FAIL("%s is missing", name);
        if (p.st_mode != q.st_mode || p.st_uid != q.st_uid || p.st_gid != q.st_gid || p.st_rdev != q.st_rdev)
                FAIL("%s: mode %o %o, owner %u %u", name, p.st_mode, q.st_mode, p.st_uid, q.st_uid);
        if (p.st_mtim.tv_sec != q.st_mtim.tv_sec || p.st_mtim.tv_nsec != q.st_mtim.tv_nsec)
                FAIL("%s: times differ", name);
        same_xattrs(a, b, name);
        if (S_ISDIR(p.st_mode)) {
                int x = openat(a, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                    y = openat(b, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                same_folders(x, y, links);
                close(x);
                close(y);
                return;
        }
        ASSERT_EQ(p.st_size, q.st_size);
        if (links)
                same_links(&p, &q, name);
        if (S_ISREG(p.st_mode)) {
                same_content(a, b, name);
        } else if (S_ISLNK(p.st_mode)) {
                char x[4097] = "", y[4097] = "";
                ASSERT_GE(readlinkat(a, name, x, 4096), 0);
                ASSERT_GE(readlinkat(b, name, y, 4096), 0);
                ASSERT_STR(x, y);
        }
}

static size_t count_of(int fd, int with, bool links)
{
        DIR *dir = fdopendir(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        struct dirent *entry;
        size_t n = 0;

        ASSERT(dir != NULL);
        while ((entry = readdir(dir))) {
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;
                n++;
                if (with >= 0)
                        same_entry(fd, with, entry->d_name, links);
        }
        closedir(dir);
        return n;
}

static size_t same_folders(int a, int b, bool links)
{
        size_t n = count_of(a, b, links);

        ASSERT_EQ(n, count_of(b, -1, false));
        return n;
}

static void same(int a, int b)
{
        seen_count = 0;
        same_entry(a, b, ".", true);
}
