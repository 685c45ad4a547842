"""One completion, one process: started, fenced in, listened to, and ended with everything that it has started.

On Linux a short-lived process leaves the namespaces and forks the one that judges, which becomes the first of its own
process ids: when it ends, the kernel ends what it has left behind. What a machine does not offer is left out, and named
in `lacks`; `docs/security.md` says what that means.
"""

from __future__ import annotations

import gc
import os
import select
import shutil
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

with suppress(ImportError):  # Windows has no such limits, and can import this all the same
    import resource
if sys.platform == "linux":
    from . import linux

VERDICT_BYTES, OUTPUT_BYTES = 1 << 16, 1 << 13
"""The longest verdict that is read, and how much of what is printed is passed on; the rest is read and dropped."""

FILE_BYTES, BOX_BYTES, OPEN_FILES, PROCESSES = 16 << 20, 64 << 20, 256, 64
"""Limits of a judged completion: one file, all files, open files, processes and threads."""

NOBODY = 65534
_PID_DIGITS = 12
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix/store")
_SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "passwd", "group", "nsswitch.conf", "ssl/certs", "fonts", "alternatives")  # fmt: skip


class Heard(NamedTuple):
    """What came of a process: its verdict, None where there is none; whether time ran out; its wait status."""

    verdict: bytes | None
    late: bool
    status: int


class Unavailable(Exception):
    """No process could be started or fenced in."""


class Jail:
    """Where completions of one server are judged, one after the other.

    memory: bytes of address space of a process, None for no limit. stdlib: nothing but Python's own library may be read;
    else also what Python imports from (`path`) and the system's programs. Everything else is neither read nor written.
    mine: descriptors that the server keeps to itself.
    """

    def __init__(self, *, memory: int | None, path: Sequence[str], stdlib: bool, mine: Iterable[int]) -> None:
        self.memory, self.mine = memory, tuple(mine)
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="workbench-"))
        self.box = self.folder + "/box"
        os.mkdir(self.box, 0o700)  # noqa: PTH102  pathlib is slow to start
        self.lacks: list[str] = []
        self._passed_on = 0 if stdlib else OUTPUT_BYTES  # what a verifier prints is for its author
        self._namespaces = self._rules = 0
        self._filter: bytes | None = None
        self._processes = PROCESSES
        self._older: set[int] = set()
        if sys.platform == "linux":
            linux.prctl(linux.SUBREAPER)
            linux.prctl(linux.DUMPABLE, 0)  # nobody of this user reads its memory, or opens its pipes through /proc
            self._filter = linux.seccomp_program()
            if self._filter is None or not _works(lambda: self._no_new_privileges(filtered=True)):
                self._filter = None
                self.lacks.append("seccomp")
            self._namespaces = linux.NEWUSER | linux.NEWPID | linux.NEWIPC | linux.NEWNS
            self._namespaces |= 0 if self._filter else linux.NEWNET  # a filter is cheaper than a network without cards
            if not _works(self._leave_namespaces):
                self._namespaces = 0
                self.lacks.append("namespaces")
            if linux.landlock_version():
                self._rules = linux.landlock_rules([*_readable(path, stdlib), (self.folder, -1)])
            else:
                self.lacks.append("landlock")
        else:
            self.lacks += ["namespaces", "landlock", "seccomp"]
        if not self._namespaces:
            self._processes += _threads_of_user()
            self._older = set(_children(os.getpid()))
        gc.collect()
        gc.freeze()  # a collection in a child would copy every page that it shares with the server

    def run(self, work: Callable[[], bytes], seconds: float, started: Callable[[], None]) -> Heard:
        """The bytes that `work` returns, made in a process of its own. started: called once there is nothing more that
        the process could copy from this one. Raises Unavailable where there can be no process."""
        verdict, told = os.pipe()
        output, printed = os.pipe()
        begin, go = os.pipe()
        try:
            first = os.fork()
        except OSError as error:
            for fd in (verdict, told, output, printed, begin, go):
                os.close(fd)
            raise Unavailable(str(error)) from None
        if first == 0:
            self._child(work, told, printed, begin, (verdict, output, go), seconds)
        for fd in (told, printed, begin):
            os.close(fd)
        pid = 0 if self._namespaces else first
        try:
            started()
            if self._namespaces:
                pid = self._second(first, verdict)
            os.write(go, b"g")
            return self._listen(pid, verdict, output, seconds)
        finally:
            for fd in (verdict, output, go):
                os.close(fd)
            if pid:
                self._end(pid)

    def _second(self, first: int, verdict: int) -> int:
        """The process that judges, as the one tells that has made it."""
        told = b""
        while len(told) < _PID_DIGITS and (more := os.read(verdict, _PID_DIGITS - len(told))):
            told += more
        os.waitpid(first, 0)
        if len(told) < _PID_DIGITS:
            raise Unavailable("the namespaces of a process could not be made")
        return int(told)

    def _child(
        self, work: Callable[[], bytes], told: int, printed: int, begin: int, others: tuple[int, ...], seconds: float
    ) -> NoReturn:
        try:
            for fd in (*others, *self.mine):
                os.close(fd)
            if self._namespaces:
                self._leave_namespaces()
                if pid := os.fork():
                    os.write(told, b"%*d" % (_PID_DIGITS, pid))
                    os._exit(0)
            if not os.read(begin, 1):
                os._exit(1)
            self._fence(printed, seconds)
            text = work()
            while text:
                text = text[os.write(told, text) :]
            os._exit(0)
        except BaseException as error:
            with suppress(BaseException):
                os.write(2, f"{type(error).__name__}: {error}\n".encode(errors="replace"))
            os._exit(1)

    def _leave_namespaces(self) -> None:
        # /proc/self is root's while a process cannot be dumped
        linux.prctl(linux.DUMPABLE, 1)
        if os.geteuid() == 0:
            os.setreuid(NOBODY, 0)  # root's own processes are not counted; files are still opened as root
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(file, b"1000")
        os.close(file)
        linux.unshare(self._namespaces)
        if not self._rules:
            with suppress(OSError):
                linux.read_only()
        linux.mount_memory(self.box, BOX_BYTES)
        linux.prctl(linux.DUMPABLE, 0)

    def _fence(self, printed: int, seconds: float) -> None:
        """Everything that a process may still do to itself before it is given what is judged."""
        if sys.platform == "linux":
            linux.prctl(linux.PDEATHSIG, signal.SIGKILL)
        os.setsid()
        os.chdir(self.box)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        cpu = int(seconds) + 2
        for name, limit in (
            ("CPU", cpu), ("FSIZE", FILE_BYTES), ("NOFILE", OPEN_FILES), ("CORE", 0), ("MSGQUEUE", 0),
            ("NPROC", self._processes), ("AS", self.memory),
        ):  # fmt: skip
            if limit is not None and hasattr(resource, f"RLIMIT_{name}"):
                with suppress(ValueError, OSError):  # macOS refuses some, and a hard limit may be lower already
                    resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
        os.umask(0o077)
        path = os.environ.get("PATH", os.defpath)
        os.environ.clear()
        os.environ.update(PATH=path, HOME=self.box, TMPDIR=self.box, LANG="C.UTF-8")
        tempfile.tempdir = None
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if sys.platform == "linux":
            self._no_new_privileges(filtered=self._filter is not None)

    def _no_new_privileges(self, filtered: bool) -> None:
        linux.drop_capabilities()
        linux.prctl(linux.NO_NEW_PRIVS)
        if self._rules:
            linux.landlock_restrict(self._rules)
            os.close(self._rules)
        if filtered and self._filter is not None:
            linux.seccomp(self._filter)

    def _listen(self, pid: int, verdict: int, output: int, seconds: float) -> Heard:
        heard, passed, end = b"", 0, time.monotonic() + seconds
        open_ends, status, ended = [verdict, output, *self.mine[:1]], 0, False
        while verdict in open_ends:
            left = end - time.monotonic()
            if left <= 0:
                return Heard(None, True, 0)
            ready, _, _ = select.select(open_ends, [], [], 0 if ended else min(left, 0.2))
            if ended and verdict not in ready:  # it has ended, and what it left behind still holds its pipes
                break
            for fd in ready:
                if fd in self.mine:
                    os._exit(self._left_alone(pid))
                chunk = os.read(fd, 1 << 16)
                if not chunk:
                    open_ends.remove(fd)
                elif fd == verdict:
                    heard += chunk
                    if heard.endswith(b"\n") or len(heard) > VERDICT_BYTES:
                        return Heard(heard, False, 0)
                elif passed < self._passed_on:
                    passed += len(chunk)
                    os.write(2, chunk[: self._passed_on])
            if not ready and not ended:
                found, status = os.waitpid(pid, os.WNOHANG)
                ended = found == pid
        if not ended:
            _, status = _waited(pid, end)
        return Heard(None, False, status)

    def _left_alone(self, pid: int) -> int:
        """The trainer has gone: end what is under way."""
        self._end(pid)
        self.close()
        return 1

    def _end(self, pid: int) -> None:
        """End a process and all that it has started."""
        for end in (os.kill, os.killpg):
            with suppress(ProcessLookupError, PermissionError):
                end(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        if not self._namespaces:
            self._sweep()

    def _sweep(self) -> None:
        """Without namespaces: end what has left the group of its process, and empty the folder."""
        for _ in range(200):
            left = [p for p in _children(os.getpid()) if p not in self._older]
            if not left:
                break
            for p in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(p, signal.SIGKILL)
            for p in left:
                with suppress(ChildProcessError):
                    os.waitpid(p, 0)
        shutil.rmtree(self.box, ignore_errors=True)
        os.makedirs(self.box, 0o700, exist_ok=True)  # noqa: PTH103

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _waited(pid: int, end: float) -> tuple[int, int]:
    """The status of a process that has closed its pipe, and ends before long unless it hangs."""
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found or time.monotonic() >= end:
            return found, status
        time.sleep(0.001)


def _works(act: Callable[[], None]) -> bool:
    """Whether something can be done, tried in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _readable(path: Sequence[str], stdlib: bool) -> list[tuple[str, int]]:
    """Paths that may be read, with what may be done under them."""
    reads = linux.READ_FILE | linux.READ_DIR
    allowed = [(device, reads | linux.WRITE_FILE) for device in _DEVICES]
    allowed += [(f"/etc/{name}", reads) for name in _SETTINGS]
    allowed += [(folder, reads) for folder in ("/usr/share/zoneinfo", "/usr/lib/locale", "/usr/share/locale")]
    if not stdlib:
        places = dict.fromkeys((*_SYSTEM, sys.prefix, sys.base_prefix, *path))
        return allowed + [(place, reads | linux.EXECUTE) for place in places]
    # one by one: installed packages lie between the parts of the library
    folders = {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        "/lib",
        "/lib64",
        "/usr/lib",
        "/usr/lib64",
    }
    for folder in map(os.path.realpath, folders):
        with suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208
                if not name.startswith("python") and not name.endswith("-packages"):
                    allowed.append((f"{folder}/{name}", reads))
    return allowed


def _children(parent: int) -> list[int]:
    """Ids of the processes that a process has, where /proc tells."""
    found = []
    for name in os.listdir("/proc") if sys.platform == "linux" else ():  # noqa: PTH208
        if name.isdigit():
            with suppress(OSError, ValueError), open(f"/proc/{name}/stat") as file:  # noqa: PTH123
                if int(file.read().rpartition(")")[2].split()[1]) == parent:
                    found.append(int(name))
    return found


def _threads_of_user() -> int:
    """Processes and threads that this user has, which his limit counts."""
    count = 0
    for name in os.listdir("/proc") if sys.platform == "linux" else ():  # noqa: PTH208
        if name.isdigit():
            with suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == os.geteuid():  # noqa: PTH116
                    count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208
    return count
