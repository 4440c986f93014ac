# mark 1|2: has plugin.c begin a window, or end it. Does nothing else.
    .globl _start
_start:
    mov 16(%rsp), %rax
    cmpb $'1', (%rax)
    jne 1f
    .byte 0x0f, 0x1f, 0x84, 0x00, 'G', 'W', 'M', 1
    jmp 2f
1:  .byte 0x0f, 0x1f, 0x84, 0x00, 'G', 'W', 'M', 2
2:  mov $60, %eax
    xor %edi, %edi
    syscall
