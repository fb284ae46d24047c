#include "download.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

int cop_download(struct cop_client *client, const char *path, const char *to, cop_progress_fn progress, void *userdata,
                 struct cop_error *err)
{
        struct cop_transfer t = {
                .method = "GET", .path = path, .fd = STDOUT_FILENO, .progress = progress, .userdata = userdata};
        _cleanup_free_ char *temp = NULL;
        struct stat st;
        bool special = stat(to, &st) == 0 && !S_ISREG(st.st_mode);

        if (strcmp(to, "-") == 0)
                return cop_client_transfer(client, &t, NULL, err);
        if (asprintf(&temp, "%s.%d.part", to, (int)getpid()) < 0)
                return cop_error_errno(err, ENOMEM, "copying");
        const char *target = special ? to : temp;
        _cleanup_close_ int fd = open(target, O_WRONLY | O_CLOEXEC | (special ? 0 : O_CREAT | O_EXCL), 0666);
        if (fd < 0)
                return cop_error_errno(err, errno, "creating %s", target);
        t.fd = fd;
        int r = cop_client_transfer(client, &t, NULL, err);
        if (r == 0 && !special && rename(temp, to) < 0)
                r = cop_error_errno(err, errno, "creating %s", to);
        if (r < 0 && !special)
                unlink(temp);
        return r;
}
