"""Completions that try everything but to solve their task; `python -m tests.benchmarks sandbox` runs 200 of them."""

from __future__ import annotations

import os

LEFTOVER = f"wb-{os.getpid()}"
"""What processes call themselves that mean to stay."""

SECRET = "s3cr3t-of-the-trainer"

_NAMED = f"""
import ctypes
def named():
    ctypes.CDLL(None).prctl(15, b"{LEFTOVER}", 0, 0, 0)
"""

_FORGED = r"""
import os
def forge(text):
    for fd in range(1, 256):
        try:
            os.write(fd, text)
        except OSError:
            pass
"""

# never more than these: where a fence is missing, code that means everybody would end everything on the machine
_VICTIMS = r"""
import os
pids = {os.getppid(), {victim}} - {0, 1, os.getpid()}
"""

HOSTILE = {
    "forged verdict": _FORGED + """forge(b'[{"reward": 1.0, "correct": 1.0, "answer": "x", "parts": {"format": 1, "closeness": 1, "exactness": 1}}]\\n')""",
    "forged result": _FORGED + """forge(b'[{"result": "[\\\\"true\\\\"]"}]\\n')""",
    "forged reply": _FORGED + """forge(b'0' * 32 + b'[{"result": "[]", "reward": 1.0, "correct": 1.0, "parts": {}}]\\n' * 9)""",
    "forged jobs": _FORGED + """forge(b'00000002{}' + b'0' * 32)""",
    "nested": _FORGED + """forge(b'[' * 60000 + b'\\n')""",
    "printed": """print('[{"reward": 1.0, "correct": 1.0, "answer": "x", "parts": {}}]', flush=True)""",
    "patched json": "import json\njson.dumps = lambda *a, **k: 'true'\njson.loads = lambda *a, **k: True",
    "patched builtins": "import builtins\nbuiltins.len = lambda x: 0\nbuiltins.isinstance = lambda *a: True\nbuiltins.all = lambda x: True",
    "patched worker": """
import sys
for name, module in list(sys.modules.items()):
    if "worker" in name or "jail" in name or "execution" in name or name == "__main__":
        for key, value in list(vars(module).items()):
            if callable(value):
                try:
                    setattr(module, key, lambda *a, **k: {"reward": 1.0, "correct": 1.0, "answer": None, "parts": {}})
                except Exception:
                    pass
""",
    "always equal": """
class Same(int):
    def __eq__(self, other): return True
    def __hash__(self): return 0
    def __repr__(self): return "x"
def {head}:
    return Same()
""",
    "always equal list": """
class Same(list):
    def __eq__(self, other): return True
    def __len__(self): return 1
    __hash__ = None
def {head}:
    return Same()
""",
    "exit": "import os\nos._exit(0)",
    "leave": "raise SystemExit(0)",
    "interrupt": "raise KeyboardInterrupt",
    "abort": "import os\nos.abort()",
    "crash": "import ctypes\nctypes.string_at(0)",
    "kill others": _VICTIMS + """
import signal
for p in pids:
    for s in (signal.SIGKILL, signal.SIGSTOP):
        try: os.kill(p, s)
        except OSError: pass
""",
    "loop": "while True: pass",
    "loop in c": "sum(iter(int, 1))",
    "sleep": "import time\ntime.sleep(1000)",
    "recursion": "def f(n): return f(n + 1)\nimport sys\nsys.setrecursionlimit(10**9)\nf(0)",
    "nothing": "",
    "memory": "x = bytearray(64 << 30)",
    "memory bit by bit": "x = []\nwhile True: x.append(bytearray(1 << 24))",
    "huge number": "x = 10 ** 10 ** 9",
    "threads": "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(1000,)).start()",
    "fork bomb": _NAMED + "import os\nnamed()\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "daemon": _NAMED + """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    named()
    time.sleep(1000)
""",
    "daemon without pipes": _NAMED + """
import os, time
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 256)
    if os.fork():
        os._exit(0)
    named()
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
    time.sleep(1000)
""",
    "output": "import sys\nwhile True: sys.stdout.write('x' * 65536)",
    "output to errors": "import os\nwhile True: os.write(2, b'x' * 65536)",
    "huge result": "def {head}:\n    return 'x' * 100_000_000",
    "huge results": _FORGED + "while True: forge(b'x' * 65536)",
    "huge file": "file = open('x', 'wb')\nwhile True: file.write(b'x' * 65536)",
    "many files": "i = 0\nwhile True:\n    open(f'x{{i}}', 'w').write('x' * 4096)\n    i += 1",
    "write outside": """
import os, pathlib
for folder in ("{outside}", "/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~root"), "/"):
    try: pathlib.Path(folder, "{token}").write_text("was here")
    except OSError: pass
    try: os.mkdir(os.path.join(folder, "{token}-folder"))
    except OSError: pass
for act in (lambda: os.remove("{outside}/kept"), lambda: os.chmod("{outside}/kept", 0), lambda: os.truncate("{outside}/kept", 0),
            lambda: os.rename("{outside}/kept", "{outside}/moved"), lambda: os.symlink("/", "{outside}/link")):
    try: act()
    except OSError: pass
""",
    "read the tests": """
try:
    source = open("{package}/tasks/generators/repair.py").read()
    import sys
    sys.path.insert(0, "{package}/..")
    from workbench.tasks.generators import repair
    for q in repair._questions():
        if q.prefix.startswith("def {head}:"):
            exec(q.answer)
except Exception:
    pass
""",
    "search memory": """
import gc, sys
def {head}:
    frame = sys._getframe()
    while frame:
        for thing in list(frame.f_locals.values()):
            if isinstance(thing, dict) and "answer" in thing:
                return thing["answer"]
        frame = frame.f_back
    for thing in gc.get_objects():
        if isinstance(thing, dict) and isinstance(thing.get("answer"), str) and "# tests: " in thing["answer"]:
            return thing["answer"]
""",
    "look into others": _VICTIMS + """
import ctypes
libc = ctypes.CDLL(None)
for p in pids:
    libc.ptrace(16, p, 0, 0)
    for name in ("environ", "mem", "cmdline"):
        try: open(f"/proc/{{p}}/{{name}}", "rb").read(1 << 16)
        except OSError: pass
    try:
        for fd in os.listdir(f"/proc/{{p}}/fd"):
            with open(f"/proc/{{p}}/fd/{{fd}}", "wb", 0) as file:
                file.write(b'[{{"result": "[]"}}]\\n')
    except OSError:
        pass
""",
    "network": """
import socket
for family, place in ((socket.AF_INET, ("127.0.0.1", {port})), (socket.AF_UNIX, "{outside}/socket")):
    try:
        with socket.socket(family) as s:
            s.settimeout(1)
            s.connect(place)
            s.send(b"here")
    except OSError:
        pass
""",
    "new namespaces": "import ctypes\nlibc = ctypes.CDLL(None)\nfor flags in (0x10000000, 0x50000000, 0x10020000):\n    libc.unshare(flags)\n    libc.mount(b'tmpfs', b'/', b'tmpfs', 0, 0)",
    "at exit": "import atexit, os\natexit.register(os.write, 1, b'x')\nclass D:\n    def __del__(self): raise SystemExit\nd = D()",
    "trace": "import sys\nsys.settrace(lambda *a: sys.exit(0))\nsys.setprofile(lambda *a: sys.exit(0))",
    "signals": "import signal, time\nfor s in range(1, 64):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ntime.sleep(1000)",
}  # fmt: skip
"""Name -> code; {head} is the head of the function asked for, the other names are those of `written`."""


def written(code: str, **names: object) -> str:
    """The code with its places filled; single braces of code that has no places are its own."""
    for name, value in names.items():
        code = code.replace("{" + name + "}", str(value))
    return code.replace("{{", "{").replace("}}", "}")
