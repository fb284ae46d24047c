/* An epoll with a registration whose number is closed while another descriptor holds the file: it reports on. */
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "../victim.h"

int main(void)
{
        int e = epoll_create1(0), ev = eventfd(0, 0), other = dup(ev);
        struct epoll_event in = {.events = EPOLLIN, .data.u64 = 8}, out;

        CHECK(epoll_ctl(e, EPOLL_CTL_ADD, ev, &in) == 0 && close(ev) == 0);
        victim_ready();
        victim_wait();
        CHECK(write(other, &(uint64_t){1}, 8) == 8 && epoll_wait(e, &out, 1, 100) == 1 && out.data.u64 == 8);
        victim_pass();
}
