/* See tramp.h.  rbx holds the flags of the current operation; the kernel keeps all but rax, rcx and r11. */
#define OP_FLAGS   4
#define OP_ARG     8
#define OP_RESULT  56
#define OP_EXPECT  64
#define OP_CHILD   72
#define OP_SIZE    80

#define CTL_PARKED 0
#define CTL_FAILED 4
#define CTL_OP     8
#define CTL_RESULT 16
#define CTL_NR     24

        .section .rodata
        .globl cop_tramp_start, cop_tramp_end
        .hidden cop_tramp_start, cop_tramp_end
        .balign 16
cop_tramp_start:
1:      mov OP_FLAGS(%r12), %ebx
        test $0x8, %ebx
        jnz 5f
        test $0x10, %ebx
        jnz 6f
        test $0x40, %ebx
        jnz 9f
        test $0x80, %ebx
        jnz 10f
2:      mov (%r12), %eax
        mov OP_ARG(%r12), %rdi
        mov OP_ARG+8(%r12), %rsi
        mov OP_ARG+16(%r12), %rdx
        mov OP_ARG+24(%r12), %r10
        mov OP_ARG+32(%r12), %r8
        mov OP_ARG+40(%r12), %r9
        test $0x100, %ebx
        jz 21f
        mov (%rdi), %rdi
21:     syscall
        test $0x20, %ebx
        jz 3f
        cmp $-4, %rax
        je 2b
        cmp $-11, %rax
        je 2b
3:      test $0x4, %ebx
        jz 4f
        test %rax, %rax
        jnz 4f
        mov OP_CHILD(%r12), %r12
        jmp 1b
4:      mov %rax, OP_RESULT(%r12)
        test $0x2, %ebx
        jz 41f
        cmp OP_EXPECT(%r12), %rax
        jne 8f
41:     test $0x1, %ebx
        jz 42f
        cmp $-4095, %rax
        jae 8f
42:     add $OP_SIZE, %r12
        jmp 1b

5:      int3
        add $OP_SIZE, %r12
        jmp 1b

6:      mov OP_ARG(%r12), %rdi
        test %rdi, %rdi
        jz 61f
        lock incl (%rdi)
        mov $202, %eax                  /* futex(word, FUTEX_WAKE, 1) */
        mov $1, %esi
        mov $1, %edx
        syscall
61:     lock incl CTL_PARKED(%r13)
        mov $202, %eax                  /* futex(&parked, FUTEX_WAKE, 1) */
        lea CTL_PARKED(%r13), %rdi
        mov $1, %esi
        mov $1, %edx
        syscall
7:      mov $34, %eax                   /* pause() */
        syscall
        jmp 7b

9:      mov OP_ARG(%r12), %rdi
        mov (%rdi), %edx
        cmp OP_ARG+8(%r12), %edx
        jae 42b
        mov $202, %eax                  /* futex(word, FUTEX_WAIT, what it was, NULL) */
        xor %esi, %esi
        xor %r10d, %r10d
        syscall
        jmp 9b

10:     mov OP_ARG(%r12), %rdi
        mov OP_ARG+8(%r12), %rcx
101:    orb $0, (%rdi)
        add $4096, %rdi
        dec %rcx
        jnz 101b
        jmp 42b

8:      mov %r12, CTL_OP(%r13)
        mov %rax, CTL_RESULT(%r13)
        mov (%r12), %eax
        mov %rax, CTL_NR(%r13)
        movl $1, CTL_FAILED(%r13)
        mov $202, %eax
        lea CTL_PARKED(%r13), %rdi
        mov $1, %esi
        mov $1, %edx
        syscall
        mov $231, %eax                  /* exit_group(119) */
        mov $119, %edi
        syscall
        ud2
cop_tramp_end:
        .section .note.GNU-stack, "", @progbits
