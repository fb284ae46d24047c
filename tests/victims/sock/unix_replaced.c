/* Unix sockets whose file was removed, replaced by another socket's or by a plain file, renamed, or removed with its folder; clients
 * stay connected to whom they were; a datagram socket whose peer is gone.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/stat.h>

#include "../sock.h"

static int bound(int type, const char *name)
{
        struct sockaddr_un a;
        socklen_t n = unix_name(&a, name, strlen(name));
        int fd = socket(AF_UNIX, type, 0);

        CHECK(bind(fd, (struct sockaddr *)&a, n) == 0 && (type == SOCK_DGRAM || listen(fd, 4) == 0));
        return fd;
}

static int client(int type, const char *name)
{
        return unix_client(type, name, strlen(name));
}

static void pass(int from, int to, const char *text)
{
        say(from, text);
        expect(to, text);
}

int main(void)
{
        struct stat st;
        struct sockaddr_un a;
        socklen_t n = sizeof(a);
        int d1 = bound(SOCK_DGRAM, "d"), to_d1 = client(SOCK_DGRAM, "d");
        CHECK(unlink("d") == 0);
        int d2 = bound(SOCK_DGRAM, "d"), to_d2 = client(SOCK_DGRAM, "d");
        int s1 = bound(SOCK_STREAM, "s"), c1 = client(SOCK_STREAM, "s"), a1 = accept(s1, NULL, NULL);
        int waits1 = client(SOCK_STREAM, "s");
        CHECK(unlink("s") == 0);
        int s2 = bound(SOCK_STREAM, "s"), c2 = client(SOCK_STREAM, "s"), a2 = accept(s2, NULL, NULL);
        int waits2 = client(SOCK_STREAM, "s");
        int moved = bound(SOCK_DGRAM, "old"), to_moved = client(SOCK_DGRAM, "old");
        CHECK(rename("old", "new") == 0);
        int plain = bound(SOCK_DGRAM, "plain");
        CHECK(unlink("plain") == 0 && close(open("plain", O_RDWR | O_CREAT, 0600)) == 0);
        CHECK(mkdir("folder", 0700) == 0);
        int lost = bound(SOCK_DGRAM, "folder/lost"), to_lost = client(SOCK_DGRAM, "folder/lost");
        CHECK(unlink("folder/lost") == 0 && rmdir("folder") == 0);
        int gone = bound(SOCK_DGRAM, "gone"), to_gone = client(SOCK_DGRAM, "gone");
        CHECK(close(gone) == 0 && unlink("gone") == 0);
        say(to_d1, "first");
        say(to_d2, "second");
        victim_ready();
        victim_wait();
        expect(d1, "first");
        expect(d2, "second");
        pass(to_d1, d1, "to the first");
        pass(to_d2, d2, "to the second");
        pass(c1, a1, "stream");
        pass(c2, a2, "stream");
        pass(waits1, accept(s1, NULL, NULL), "waiting");
        pass(waits2, accept(s2, NULL, NULL), "waiting");
        pass(to_moved, moved, "moved");
        pass(client(SOCK_DGRAM, "new"), moved, "by its new name");
        pass(client(SOCK_DGRAM, "d"), d2, "by its name");
        pass(to_lost, lost, "without a folder");
        CHECK(access("old", F_OK) == -1 && stat("plain", &st) == 0 && S_ISREG(st.st_mode) &&
              access("gone", F_OK) == -1);
        CHECK(getsockname(plain, (struct sockaddr *)&a, &n) == 0 && strcmp(a.sun_path, "plain") == 0);
        CHECK(send(to_gone, "x", 1, 0) == -1 && errno == ECONNREFUSED);
        CHECK(send(to_gone, "x", 1, 0) == -1 && errno == ENOTCONN);
        victim_pass();
}
