/* Shared open file descriptions: by dup, dup2, fork, descriptor passing; separately opened ones stay separate.
 * victim: flavours=unfrozen,kill,twice,tracked */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "../victim.h"

static void send_fd(int to, int fd)
{
        char c = 'F', control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec iov = {&c, 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);

        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(h), &fd, sizeof(int));
        CHECK(sendmsg(to, &m, 0) == 1);
}

static int receive_fd(int from)
{
        char c, control[CMSG_SPACE(sizeof(int))];
        struct iovec iov = {&c, 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        int fd;

        CHECK(recvmsg(from, &m, 0) == 1 && CMSG_FIRSTHDR(&m));
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
        return fd;
}

int main(void)
{
        char buf[16];
        int s[2], p[2], st, f = open("f", O_RDWR | O_CREAT, 0600), d = dup(f), own = open("f", O_RDWR),
                            d2 = dup2(f, 77);

        CHECK(write(f, "0123456789abcdef", 16) == 16 && lseek(f, 1, SEEK_SET) == 1 && lseek(own, 9, SEEK_SET) == 9);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && pipe(p) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                int mine = receive_fd(s[1]); /* own's description, sent by the parent */
                victim_wait();
                if (read(p[0], buf, 1) != 1)
                        _exit(1);
                if (lseek(f, 0, SEEK_CUR) != 4 || lseek(mine, 0, SEEK_CUR) != 11)
                        _exit(2);
                if (fcntl(mine, F_SETFL, O_APPEND | O_NONBLOCK) != 0)
                        _exit(3);
                _exit(lseek(mine, 15, SEEK_SET) == 15 ? 0 : 4);
        }
        send_fd(s[0], own);
        usleep(20000);
        victim_ready();
        victim_wait();
        CHECK(read(d, buf, 2) == 2 && buf[0] == '1' && lseek(d2, 1, SEEK_CUR) == 4 && read(own, buf, 2) == 2 &&
              buf[0] == '9');
        CHECK(write(p[1], "g", 1) == 1 && waitpid(pid, &st, 0) == pid);
        if (st)
                victim_fail("the child's check %d", WEXITSTATUS(st));
        CHECK(lseek(own, 0, SEEK_CUR) == 15 && fcntl(own, F_GETFL) & O_APPEND && lseek(f, 0, SEEK_CUR) == 4);
        victim_pass();
}
