/* The program of allocators.c with mimalloc in the place of glibc's malloc.
 * victim: needs=/usr/lib/x86_64-linux-gnu/libmimalloc.so.2 */
static const char allocator[] = "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2";
#define main allocators_main
#include "allocators.c"
#undef main

int main(int argc, char **argv)
{
        setenv("VICTIM_MALLOC", allocator, 1);
        return allocators_main(argc, argv);
}
