/* A socket of a family that cannot leave the machine (vsock) is refused by name.
 * victim: refuse=socket */
#include <linux/vm_sockets.h>
#include <sys/socket.h>

#include "../victim.h"

int main(void)
{
        int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
        struct sockaddr_vm a = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = 12345};

        if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(fd, 1) != 0)
                victim_skip("no vsock here");
        victim_ready();
        victim_wait();
        CHECK(listen(fd, 2) == 0);
        victim_pass();
}
