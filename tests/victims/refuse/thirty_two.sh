# A 32-bit program: refused by name, as the engine's calls inside are those of 64 bits.
# victim: refuse=32-bit
# victim: needs=as,ld
set -u
as --32 -o it.o - <<'END' || { echo "SKIP: no assembler for 32 bits"; exit 77; }
        .globl _start
_start: mov $162, %eax          # nanosleep(2 ms)
        mov $pause, %ebx
        xor %ecx, %ecx
        int $0x80
        mov $33, %eax           # access("go")
        mov $go, %ebx
        xor %ecx, %ecx
        int $0x80
        test %eax, %eax
        jnz _start
        mov $1, %eax            # exit(42)
        mov $42, %ebx
        int $0x80
        .data
pause:  .long 0, 2000000
go:     .asciz "go"
END
ld -m elf_i386 -o it it.o || { echo "SKIP: no linker for 32 bits"; exit 77; }
./it &
pid=$!
sleep 0.1
kill -0 $pid 2>/dev/null || { echo "SKIP: no 32-bit programs here"; exit 77; }
echo READY
wait $pid
[ $? = 42 ] && echo PASS || { echo "FAIL: it has ended in another way"; exit 1; }
