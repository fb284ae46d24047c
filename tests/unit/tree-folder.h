/* For tests of trees of files: a folder of the test, and shell scripts in one. */
#pragma once

#include "lib/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"

static int folder(const char *name)
{
        char path[512];

        ASSERT_OK(cop_path_format(path, sizeof(path), "%s/%s", test_dir(), name), NULL);
        mkdir(path, 0755);
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ASSERT_GE(fd, 0);
        return fd;
}

static void run(int dir_fd, const char *script)
{
        pid_t pid = fork();
        int status = -1;

        if (pid == 0) {
                if (fchdir(dir_fd) == 0)
                        execl("/bin/sh", "sh", "-ec", script, NULL);
                _exit(127);
        }
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        if (status != 0)
                FAIL("status %d of: %s", status, script);
}
