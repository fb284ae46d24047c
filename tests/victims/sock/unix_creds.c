/* SO_PASSCRED and queued credentials of a child that has ended and of one that lives on as another user; SO_PEERCRED of a socket
 * pair and of both ends of a connection between processes. */
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../sock.h"

static struct ucred peer_of(int fd)
{
        struct ucred cred = {0};
        socklen_t n = sizeof(cred);

        CHECK(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0);
        return cred;
}

/* Another user, who connects and writes, and looks after the thaw whom it is connected to. */
static pid_t start_client(const struct sockaddr_un *a, socklen_t n, int datagrams, int done)
{
        pid_t parent = getpid(), pid = fork();

        if (pid == 0) {
                int c = socket(AF_UNIX, SOCK_STREAM, 0);
                CHECK(setresgid(2, 2, 0) == 0 && setresuid(1, 1, 0) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
                CHECK(connect(c, (const struct sockaddr *)a, n) == 0);
                say(datagrams, "other");
                CHECK(write(done, "x", 1) == 1);
                victim_wait();
                _exit(peer_of(c).pid == parent && peer_of(c).uid == 0 ? 0 : 1);
        }
        return pid;
}

int main(void)
{
        int s[2], pair[2], one = 1;
        char buf[32], control[CMSG_SPACE(sizeof(struct ucred))];
        struct iovec iov = {buf, sizeof(buf)};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        struct ucred cred;
        struct sockaddr_un a;
        socklen_t an = unix_name(&a, "\0creds", 6);
        int l = socket(AF_UNIX, SOCK_STREAM, 0), status, done[2];

        CHECK(pipe(done) == 0 && bind(l, (struct sockaddr *)&a, an) == 0 && listen(l, 1) == 0);
        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        CHECK(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                say(s[0], "mine");
                _exit(0);
        }
        CHECK(waitpid(pid, NULL, 0) == pid);
        pid_t kid = start_client(&a, an, s[0], done[1]);
        int accepted = accept(l, NULL, NULL);
        CHECK(read(done[0], buf, 1) == 1);
        victim_ready();
        victim_wait();
        CHECK(recvmsg(s[1], &m, 0) == 4);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        CHECK(h && h->cmsg_type == SCM_CREDENTIALS);
        memcpy(&cred, CMSG_DATA(h), sizeof(cred));
        CHECK(cred.uid == getuid() && cred.gid == getgid());
        m.msg_controllen = sizeof(control);
        CHECK(recvmsg(s[1], &m, 0) == 5 && (h = CMSG_FIRSTHDR(&m)) != NULL);
        memcpy(&cred, CMSG_DATA(h), sizeof(cred));
        CHECK(cred.pid == kid && cred.uid == 1 && cred.gid == 2);
        say(s[0], "now");
        m.msg_controllen = sizeof(control);
        CHECK(recvmsg(s[1], &m, 0) == 3 && (h = CMSG_FIRSTHDR(&m)) != NULL);
        memcpy(&cred, CMSG_DATA(h), sizeof(cred));
        CHECK(cred.pid == getpid());
        CHECK(peer_of(pair[0]).pid == getpid() && peer_of(pair[0]).uid == getuid());
        CHECK(peer_of(accepted).pid == kid && peer_of(accepted).uid == 1 && peer_of(accepted).gid == 2);
        CHECK(waitpid(kid, &status, 0) == kid && status == 0);
        victim_pass();
}
