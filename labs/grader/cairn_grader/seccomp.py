"""Which calls of the kernel a worker may make (seccomp, since Linux 3.5, needs no rights): those of a program that computes and has threads.
Not among them: processes, files that are written, memory that is shared or has a name, sockets, signals and limits of other processes, tracing."""

import ctypes
import os
import platform
import struct

from .landlock import NO_NEW_PRIVILEGES, libc

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # the kernel's name, and which of the numbers below
ALLOWED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "newfstatat": (262, 79), "lseek": (8, 62), "mprotect": (10, 226),
    "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132), "pread64": (17, 67), "readv": (19, 65), "writev": (20, 66), "access": (21, None), "faccessat": (269, 48),
    "faccessat2": (439, 439), "madvise": (28, 233), "mremap": (25, 216), "exit": (60, 93), "exit_group": (231, 94), "futex": (202, 98),
    "sched_yield": (24, 124), "set_tid_address": (218, 96), "set_robust_list": (273, 99), "rseq": (334, 293),
    "getrandom": (318, 278), "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "nanosleep": (35, 101), "getcwd": (79, 17), "readlink": (89, None),
    "readlinkat": (267, 78), "uname": (63, 160), "sysinfo": (99, 179), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176),
    "getegid": (108, 177), "arch_prctl": (158, None), "execve": (59, 221), "poll": (7, None), "ppoll": (271, 73),
    "select": (23, None), "pselect6": (270, 72), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "getdents64": (217, 61),
    "getrusage": (98, 165), "times": (100, 153), "gettimeofday": (96, 169), "time": (201, None), "getcpu": (309, 168), "statx": (332, 291),
    "stat": (4, None), "lstat": (6, None), "statfs": (137, 43), "membarrier": (324, 283), "restart_syscall": (219, 128),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137), "rt_sigpending": (127, 136), "pause": (34, None), "alarm": (37, None),
    "setitimer": (38, 103), "getitimer": (36, 102), "getrlimit": (97, None)}
CLONE, CLONE3, KILL, TGKILL, PRLIMIT, AFFINITY, PRCTL = (56, 220), (435, 435), (62, 129), (234, 131), (302, 261), (204, 123), (157, 167)
IOCTL, FCNTL, MMAP, OPEN, OPENAT = (16, 29), (72, 25), (9, 222), (2, None), (257, 56)
# CLONE_THREAD, MAP_SHARED, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC
THREAD, SHARED, WRITES = 0x10000, 1, 0x1 | 0x2 | 0x40 | 0x200
TERMINAL, WAITING = 0x5401, 0x541B  # TCGETS, FIONREAD
FCNTLS = (0, 1, 2, 3, 4, 1030)  # duplicate, and flags
NAMES = (15, 16, 0x53564D41)  # of threads and of memory; not that it outlives the grader, say
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, NOT_PERMITTED, NOT_THERE = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38  # EPERM, ENOSYS
SET_SECCOMP, FILTER = 22, 2


def supported():
    """Whether this machine's kernel has it, and this file its numbers."""
    return platform.machine() in ARCHITECTURES and libc.prctl(21, 0, 0, 0, 0) >= 0


def program(process):
    """The filter for the process of this number, in the kernel's machine language (bpf): instructions (code, if true, if false, value)."""
    kernels_name, which = ARCHITECTURES[platform.machine()]
    out = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, kernels_name), (RETURN, 0, 0, NOT_PERMITTED), (LOAD, 0, 0, 0)]

    def rule(numbers, *body):
        if numbers[which] is not None:
            out.extend([(EQUAL, 0, len(body), numbers[which]), *body])

    def argument_is(numbers, argument, values):
        tests = [(EQUAL, len(values) - i, 0, value) for i, value in enumerate(values)]
        rule(numbers, (LOAD, 0, 0, 16 + 8 * argument), *tests, (RETURN, 0, 0, NOT_PERMITTED), (RETURN, 0, 0, ALLOW))

    def argument_has(numbers, argument, bits, then, otherwise):
        rule(numbers, (LOAD, 0, 0, 16 + 8 * argument), (ANY_BIT, 0, 1, bits), (RETURN, 0, 0, then), (RETURN, 0, 0, otherwise))

    for numbers in ALLOWED.values():
        rule(numbers, (RETURN, 0, 0, ALLOW))
    rule(CLONE3, (RETURN, 0, 0, NOT_THERE))  # its flags cannot be seen; the C library takes clone instead
    argument_has(CLONE, 0, THREAD, ALLOW, NOT_PERMITTED)
    argument_has(MMAP, 3, SHARED, NOT_PERMITTED, ALLOW)
    argument_has(OPEN, 1, WRITES, NOT_PERMITTED, ALLOW)
    argument_has(OPENAT, 2, WRITES, NOT_PERMITTED, ALLOW)
    for numbers in (KILL, TGKILL):
        argument_is(numbers, 0, (process,))
    for numbers in (PRLIMIT, AFFINITY):
        argument_is(numbers, 0, (0, process))
    argument_is(IOCTL, 1, (TERMINAL, WAITING))
    argument_is(FCNTL, 1, FCNTLS)
    argument_is(PRCTL, 0, NAMES)
    return [*out, (RETURN, 0, 0, NOT_PERMITTED)]


def restrict():
    """This process, and what it becomes by exec, from now on."""
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program(os.getpid()))
    room = ctypes.create_string_buffer(code)
    head = struct.pack("@HP", len(code) // 8, ctypes.addressof(room))
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(SET_SECCOMP, FILTER, head, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")
