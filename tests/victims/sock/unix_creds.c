/* SO_PASSCRED and queued credentials (of a child that has ended), SO_PEERCRED, SO_PASSSEC-less options. */
#include <sys/wait.h>

#include "../sock.h"

int main(void)
{
        int s[2], pair[2], one = 1;
        char buf[32], control[CMSG_SPACE(sizeof(struct ucred))];
        struct iovec iov = {buf, sizeof(buf)};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        struct ucred cred;
        socklen_t n = sizeof(cred);

        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        CHECK(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                say(s[0], "mine");
                _exit(0);
        }
        CHECK(waitpid(pid, NULL, 0) == pid);
        victim_ready();
        victim_wait();
        CHECK(recvmsg(s[1], &m, 0) == 4);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        CHECK(h && h->cmsg_type == SCM_CREDENTIALS);
        memcpy(&cred, CMSG_DATA(h), sizeof(cred));
        CHECK(cred.uid == getuid() && cred.gid == getgid());
        say(s[0], "now");
        m.msg_controllen = sizeof(control);
        CHECK(recvmsg(s[1], &m, 0) == 3 && (h = CMSG_FIRSTHDR(&m)) != NULL);
        memcpy(&cred, CMSG_DATA(h), sizeof(cred));
        CHECK(cred.pid == getpid());
        CHECK(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0 && cred.uid == getuid() &&
              cred.pid == getpid());
        victim_pass();
}
