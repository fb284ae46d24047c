/* A unix connection that its client has written to and closed before it was accepted. */
#include "../sock.h"

int main(void)
{
        struct sockaddr_un a;
        socklen_t n = unix_name(&a, "\0closed", 7);
        int l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);

        CHECK(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 4) == 0 && connect(c, (struct sockaddr *)&a, n) == 0);
        say(c, "a line for the log");
        close(c);
        victim_ready();
        victim_wait();
        int s = accept(l, NULL, NULL);
        expect(s, "a line for the log");
        expect(s, "");
        victim_pass();
}
