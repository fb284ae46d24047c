#include "lib/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"

TEST(adds_up_to_the_maximum_and_not_beyond)
{
        _cleanup_buf_ struct cop_buf b = COP_BUF(10);

        ASSERT_OK(cop_buf_adds(&b, "12345"), NULL);
        ASSERT_OK(cop_buf_add(&b, "67890", 5), NULL);
        ASSERT_ERRNO(cop_buf_addc(&b, 'x'), EMSGSIZE);
        ASSERT_STR(b.data, "1234567890");
        ASSERT_EQ(b.len, 10);
        ASSERT_EQ(b.data[b.len], 0);
}
