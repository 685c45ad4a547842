"""Linux's own fences, through ctypes: namespaces, Landlock, seccomp, capabilities, prctl. For unprivileged processes.

Each call raises OSError where the kernel, a container or a policy refuses it; `jail` decides what to do without.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable

PDEATHSIG, DUMPABLE, SECCOMP, SUBREAPER, NO_NEW_PRIVS = 1, 4, 22, 36, 38
"""Options of prctl."""

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
"""Flags of unshare: mounts, System V IPC, users, process ids, network."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _syscall(number: int, *arguments: object) -> int:
    return _checked(_libc.syscall(ctypes.c_long(number), *arguments))


def prctl(option: int, value: int = 1) -> None:
    """One of the options above, with one value."""
    _checked(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)))


def unshare(flags: int) -> None:
    """Leave the namespaces of the parent; with NEWUSER the user keeps his number in the new one, and no rights outside."""
    user, group = os.geteuid(), os.getegid()
    _checked(_libc.unshare(flags))
    if flags & NEWUSER:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            file = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(file, text.encode())
            os.close(file)


def read_only() -> None:
    """Make all that is mounted read-only in this namespace, since Linux 5.12; for kernels without Landlock."""
    attributes, everywhere = struct.pack("=QQQQ", 1, 0, 0, 0), 0x8000
    _syscall(442, ctypes.c_int(-100), b"/", ctypes.c_uint(everywhere), attributes, ctypes.c_size_t(32))


def mount_memory(folder: str, size: int) -> None:
    """An empty file system of at most `size` bytes in memory, in place of a folder."""
    _checked(
        _libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", ctypes.c_ulong(6), f"size={size},nr_inodes=4096".encode())
    )


def drop_capabilities() -> None:
    """Give up every capability, those of a user namespace and those of root alike."""
    header, none = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    _checked(_libc.capset(header, none))


# Landlock: since Linux 5.13 (files), 6.7 (TCP), 6.12 (signals and abstract sockets). The three calls have one number on all machines.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Version of the interface -> all rights on files it knows, as bits."""
_ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | 1 << 15


def landlock_version() -> int:
    """The version of Landlock's interface, 0 without it."""
    try:
        return _syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except OSError:
        return 0


def landlock_rules(allowed: Iterable[tuple[str, int]]) -> int:
    """A descriptor of rules for `landlock_restrict`: paths with what may be done under them, and nothing else anywhere.

    rights: bits as above, -1 for all. Paths that are not there are left out. No TCP, no signals to processes outside."""
    version = landlock_version()
    every = max(bits for since, bits in _FILE_RIGHTS.items() if since <= max(version, 1))
    attributes = struct.pack("=QQQ", every, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = _syscall(_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    for path, rights in allowed:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rights &= every if os.path.isdir(path) else _ON_FILES & every  # noqa: PTH112  pathlib is slow to start
        try:
            rule = struct.pack("=Qi", rights, place)
            _syscall(_ADD, ctypes.c_int(rules), ctypes.c_int(1), rule, ctypes.c_uint32(0))
        finally:
            os.close(place)
    return rules


def landlock_restrict(rules: int) -> None:
    """Keep this process and its children to some rules, for ever. Needs NO_NEW_PRIVS."""
    _syscall(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))


# seccomp: a program over (number of the call, architecture, arguments). Numbers: x86_64, aarch64.
_NUMBERS = {
    "socket": (41, 198), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "io_uring_setup": (425, 425), "bpf": (321, 280), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "unshare": (272, 97),
    "setns": (308, 268), "mount": (165, 40), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "clone": (56, 220), "clone3": (435, 435), "prctl": (157, 167),
}  # fmt: skip
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NAMESPACES = 0x7E020000  # flags of clone that make a namespace


def seccomp_program() -> bytes | None:
    """Refuses sockets, looking into other processes, new namespaces and asking to outlive the parent; None where the
    numbers of a machine's calls are not known here. Threads and processes are allowed, also through clone."""
    if platform.machine() not in _MACHINES or struct.calcsize("P") != 8:
        return None
    column, architecture = _MACHINES[platform.machine()]
    number = {name: numbers[column] for name, numbers in _NUMBERS.items()}
    denied = [n for name, n in number.items() if name not in ("clone", "clone3", "prctl")]

    def returns(code: int) -> tuple[int, int, int, int]:
        return (_RETURN, 0, 0, code)

    deny = returns(_ERROR | errno.EACCES)
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), returns(_KILL), (_LOAD, 0, 0, 0)]
    if column == 0:
        lines += [(_AT_LEAST, 0, 1, 0x40000000), deny]  # x32, the same calls under other numbers
    for n in denied:
        lines += [(_EQUAL, 0, 1, n), deny]
    # glibc falls back to clone, whose flags can be read here
    lines += [(_EQUAL, 0, 1, number["clone3"]), returns(_ERROR | errno.ENOSYS)]
    lines += [(_EQUAL, 0, 4, number["clone"]), (_LOAD, 0, 0, 16), (_ANY_BIT, 0, 1, _NAMESPACES), deny]
    lines += [returns(_ALLOW)]
    lines += [(_EQUAL, 0, 3, number["prctl"]), (_LOAD, 0, 0, 16), (_EQUAL, 0, 1, PDEATHSIG), deny, returns(_ALLOW)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def seccomp(program: bytes) -> None:
    """Filter the calls of this process and its children from now on. Needs NO_NEW_PRIVS."""
    lines = ctypes.create_string_buffer(program)
    whole = struct.pack("@HP", len(program) // 8, ctypes.addressof(lines))
    _checked(_libc.prctl(SECCOMP, ctypes.c_ulong(2), whole, ctypes.c_ulong(0), ctypes.c_ulong(0)))
