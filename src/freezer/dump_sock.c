#include "freezer/dump.h"

int cop_dump_socket(struct cop_dump *d, struct cop_dump_file *known, struct img_file *f, struct cop_error *err)
{
        return cop_not_freezable(d, known->proc, err, "holds a socket (fd %d)", known->fd);
}

int cop_dump_sockets_finish(struct cop_dump *d, struct cop_error *err)
{
        return 0;
}
