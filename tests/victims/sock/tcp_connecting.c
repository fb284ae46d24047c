/* Connections that the listener's full queue does not let in: a non-blocking client is still connecting, from its port, a blocked one
 * waits on; both come in when there is room. */
#include <sys/wait.h>

#include "../sock.h"

static int state_of(int fd)
{
        struct tcp_info info;
        socklen_t n = sizeof(info);

        CHECK(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0);
        return info.tcpi_state;
}

int main(void)
{
        struct sockaddr_in a = LOOPBACK, b = LOOPBACK;
        int l = tcp_listen(&a, 0), other = tcp_listen(&b, 0), c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), st;

        CHECK(tcp_connect(&a) >= 0 && tcp_connect(&b) >= 0 && connect(c, (struct sockaddr *)&a, sizeof(a)) == -1 &&
              errno == EINPROGRESS);
        usleep(20000);
        if (state_of(c) != TCP_SYN_SENT)
                victim_skip("the queue has more room here");
        in_port_t port = own_name(c).sin_port;
        pid_t pid = fork();
        if (pid == 0)
                _exit(connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&b, sizeof(b)) == 0 ? 5 : 1);
        usleep(20000);
        victim_ready();
        victim_wait();
        struct pollfd p = {c, POLLOUT, 0};
        CHECK(state_of(c) == TCP_SYN_SENT && poll(&p, 1, 0) == 0 && own_name(c).sin_port == port);
        for (int i = 0; i < 2; i++)
                CHECK(accept(l, NULL, NULL) >= 0 && accept(other, NULL, NULL) >= 0);
        CHECK(poll(&p, 1, 10000) == 1 && p.revents == POLLOUT && get_option(c, SOL_SOCKET, SO_ERROR) == 0);
        CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 5);
        victim_pass();
}
