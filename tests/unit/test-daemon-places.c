#include "lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/notify.h"
#include "daemon/places.h"

TEST(a_home_is_made_and_private)
{
        struct cop_error err = COP_ERROR_NULL;
        static struct cop_places p;
        char home[200];
        struct stat st;

        snprintf(home, sizeof(home), "%s/a/b", test_dir());
        ASSERT_OK(cop_places_find(home, NULL, &p, &err), &err);
        ASSERT_STR(p.home, home);
        ASSERT_CONTAINS(p.socket, "/a/b/coppice.sock");
        ASSERT_EQ(stat(home, &st), 0);
        ASSERT_EQ(st.st_mode & 07777, 0700);
        ASSERT_OK(cop_places_find(home, "/elsewhere.sock", &p, &err), &err);
        ASSERT_STR(p.socket, "/elsewhere.sock");
}

TEST(variables_choose)
{
        struct cop_error err = COP_ERROR_NULL;
        static struct cop_places p;
        char home[200];

        snprintf(home, sizeof(home), "%s/h", test_dir());
        setenv("COPPICE_HOME", home, 1);
        setenv("COPPICE_KEEPER", "/k", 1);
        setenv("COPPICE_IMAGE_TOOL", "/t", 1);
        setenv("COPPICE_RECIPES", "/r", 1);
        ASSERT_OK(cop_places_find(NULL, NULL, &p, &err), &err);
        ASSERT_STR(p.home, home);
        ASSERT_STR(p.keeper, "/k");
        ASSERT_STR(p.image_tool, "/t");
        ASSERT_STR(p.recipes, "/r");
}

TEST(homes_that_cannot_be)
{
        struct cop_error err = COP_ERROR_NULL;
        static struct cop_places p;

        ASSERT(cop_places_find("/proc/nothing/here", NULL, &p, &err) < 0);
        ASSERT_CONTAINS(err.message, "/proc/nothing/here");
        ASSERT_CONTAINS(err.message, "--home");
}

TEST(one_lock_for_a_home)
{
        struct cop_error err = COP_ERROR_NULL;
        static struct cop_places p;
        char home[200], pid[20];

        snprintf(home, sizeof(home), "%s/h", test_dir());
        ASSERT_OK(cop_places_find(home, NULL, &p, &err), &err);
        int fd = cop_places_lock(&p, &err);
        ASSERT_OK(fd, &err);
        ASSERT_CODE(cop_places_lock(&p, &err), &err, COP_ERR_in_use);
        snprintf(pid, sizeof(pid), "pid %d", (int)getpid());
        ASSERT_CONTAINS(err.message, pid);
        close(fd);
        fd = cop_places_lock(&p, &err);
        ASSERT_OK(fd, &err);
        close(fd);
}

TEST(the_service_manager_is_told)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        char buf[100];

        cop_notify("READY=1"); /* nobody listens: nothing happens */
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", test_dir());
        setenv("NOTIFY_SOCKET", address.sun_path, 1);
        cop_notify("READY=1");
        int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
        ASSERT_EQ(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        cop_notify("READY=1");
        ssize_t n = recv(fd, buf, sizeof(buf) - 1, MSG_DONTWAIT);
        ASSERT_GT(n, 0);
        buf[n] = '\0';
        ASSERT_STR(buf, "READY=1");
        close(fd);
}
