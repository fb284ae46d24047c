/* A client that cannot be given another socket, for what waits to be accepted is known by its name, a file.
 * victim: refuse_running=by a socket (fd 4) which is bound to a file: what is in that listener's queue only a suspend can keep */
#include "../sock.h"

int main(void)
{
        struct sockaddr_un a;
        int l = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), c;
        CHECK(bind(l, (struct sockaddr *)&a, unix_name(&a, "\0names", 6)) == 0 && listen(l, 5) == 0);
        CHECK(dup2(l, 3) == 3 && (c = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0 && dup2(c, 4) == 4);
        if (l != 3)
                close(l);
        if (c != 4)
                close(c);
        CHECK(bind(4, (struct sockaddr *)&a, unix_name(&a, "named", 6)) == 0);
        CHECK(connect(4, (struct sockaddr *)&a, unix_name(&a, "\0names", 6)) == 0);
        say(4, "hello");
        victim_ready();
        victim_wait();
        int s = accept(3, NULL, NULL);
        socklen_t n = sizeof(a);
        expect(s, "hello");
        CHECK(getpeername(s, (struct sockaddr *)&a, &n) == 0 && strcmp(a.sun_path, "named") == 0);
        say(s, "answer");
        expect(4, "answer");
        victim_pass();
}
