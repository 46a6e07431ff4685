"""Linux's sandbox for processes without rights (landlock, since 5.13): what this process and its children may read and write from now on."""

import ctypes
import os
import struct

CREATE, ADD, RESTRICT = 444, 445, 446  # the same numbers on every architecture
NO_NEW_PRIVILEGES = 38
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL
RIGHTS = {0: 0, 1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}  # by version; then with IOCTL
libc = ctypes.CDLL(None, use_errno=True)


def version():
    """0 where the kernel has none."""
    try:
        return max(0, libc.syscall(CREATE, None, ctypes.c_size_t(0), 1))
    except (AttributeError, OSError):
        return 0


def restrict(read, write):
    """Files below `read` may be read and executed, those below `write` may be everything; TCP, and signals to processes outside, are refused
    where the kernel can. Paths that do not exist are left out. Nothing happens where the kernel has no landlock."""
    known = version()
    if not known:
        return
    handled = RIGHTS.get(known, (1 << 16) - 1)
    attributes = struct.pack("QQQ", handled, 3 if known >= 4 else 0, 3 if known >= 6 else 0)[: 8 if known < 4 else 16 if known < 6 else 24]
    rules = libc.syscall(CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if rules < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    for paths, rights in ((read, EXECUTE | READ_FILE | READ_DIR), (write, handled)):
        for path in paths:
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            allowed = rights & handled & (-1 if os.path.isdir(path) else OF_FILES)
            if libc.syscall(ADD, rules, 1, struct.pack("=Qi", allowed, place), 0):
                raise OSError(ctypes.get_errno(), f"landlock_add_rule {path}")
            os.close(place)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(RESTRICT, rules, 0):
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    os.close(rules)
