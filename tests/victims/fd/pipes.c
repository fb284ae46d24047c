/* Pipes: data, full, empty, closed ends, both kinds of O_NONBLOCK, packet mode, a changed size, one end twice. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>

#include "../victim.h"

int main(void)
{
        int data[2], full[2], empty[2], noreader[2], nowriter[2], packet[2], big[2], half[2];
        static char block[1 << 18], back[1 << 18];
        ssize_t n, sent = 0;

        signal(SIGPIPE, SIG_IGN);
        for (size_t i = 0; i < sizeof(block); i++)
                block[i] = (char)(i * 13 + i / 4096);
        CHECK(pipe(data) == 0 && pipe2(full, O_NONBLOCK) == 0 && pipe2(empty, O_CLOEXEC) == 0 && pipe(noreader) == 0 &&
              pipe(nowriter) == 0);
        CHECK(pipe2(packet, O_DIRECT) == 0 && pipe(big) == 0 && pipe(half) == 0);
        CHECK(write(data[1], block, 10000) == 10000 && read(data[0], back, 1000) == 1000);
        while ((n = write(full[1], block, 4096)) > 0) /* whole pages: full in whatever pieces it is filled again */
                sent += n;
        close(noreader[0]);
        CHECK(write(nowriter[1], "tail", 4) == 4 && close(nowriter[1]) == 0);
        CHECK(write(packet[1], "abc", 3) == 3 && write(packet[1], "defgh", 5) == 5);
        int size = fcntl(big[1], F_SETPIPE_SZ, 1 << 18);
        CHECK(size == 1 << 18 && write(big[1], block, 1 << 18) == 1 << 18);
        CHECK(fcntl(half[0], F_SETFL, O_NONBLOCK) == 0);
        int flags[2] = {fcntl(packet[1], F_GETFL), fcntl(full[0], F_GETFL)};
        victim_ready();
        victim_wait();
        CHECK(fcntl(packet[1], F_GETFL) == flags[0] && fcntl(full[0], F_GETFL) == flags[1]);
        CHECK(read(data[0], back, sizeof(back)) == 9000 && memcmp(back, block + 1000, 9000) == 0);
        CHECK(write(full[1], "x", 1) == -1 && errno == EAGAIN);
        ssize_t got = 0;
        while ((n = read(full[0], back, 1000)) > 0)
                got += n;
        CHECK(n == -1 && errno == EAGAIN && got == sent);
        CHECK(write(empty[1], "e", 1) == 1 && read(empty[0], back, 10) == 1 && fcntl(empty[0], F_GETFD) == FD_CLOEXEC);
        CHECK(write(noreader[1], "x", 1) == -1 && errno == EPIPE);
        CHECK(read(nowriter[0], back, 10) == 4 && read(nowriter[0], back, 10) == 0);
        CHECK(read(packet[0], back, 100) == 3 && read(packet[0], back, 100) == 5);
        CHECK(fcntl(big[0], F_GETPIPE_SZ) == 1 << 18 && read(big[0], back, 1 << 18) == 1 << 18 &&
              memcmp(back, block, 1 << 18) == 0);
        CHECK(read(half[0], back, 1) == -1 && errno == EAGAIN && (fcntl(half[1], F_GETFL) & O_NONBLOCK) == 0);
        victim_pass();
}
