/* A pidfd that was sent into a unix connection which is not accepted yet: refused when that is seen, and the tree, whether it was to run on
 * or to end, finds the connections as they were.
 * victim: flavours=unfrozen,kill,run-on,tracked,owner
 * victim: refuse=has a pidfd or a file of /proc */
#include "../sock.h"
#include <sys/syscall.h>

int main(void)
{
        struct sockaddr_un a;
        char byte;
        int l = socket(AF_UNIX, SOCK_STREAM, 0), fds[2];

        CHECK(bind(l, (struct sockaddr *)&a, unix_name(&a, "\0pidfds", 7)) == 0 && listen(l, 5) == 0);
        int first = unix_client(SOCK_STREAM, "\0pidfds", 7), c = unix_client(SOCK_STREAM, "\0pidfds", 7),
            last = unix_client(SOCK_STREAM, "\0pidfds", 7);
        int own[] = {(int)syscall(SYS_pidfd_open, getpid(), 0), open("/dev/null", O_RDONLY)};
        CHECK(own[0] >= 0 && own[1] >= 0);
        say(first, "first");
        say(c, "before");
        send_fds(c, own, 2, "two of them");
        say(c, "after");
        say(last, "last");
        close(own[0]);
        close(own[1]);
        victim_ready();
        victim_wait();
        int s = accept(l, NULL, NULL), t = accept(l, NULL, NULL), u = accept(l, NULL, NULL);
        expect(s, "first");
        CHECK(receive_fds(t, fds, "before") == 0 && receive_fds(t, fds, "two of them") == 2);
        CHECK(syscall(SYS_pidfd_send_signal, fds[0], 0, NULL, 0) == 0 && read(fds[1], &byte, 1) == 0);
        expect(t, "after");
        expect(u, "last");
        say(t, "answer");
        expect(c, "answer");
        victim_pass();
}
