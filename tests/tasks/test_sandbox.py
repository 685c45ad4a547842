"""What judged code may not do: win what is not its own, see secrets, leave anything behind."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import workbench
from tests.tasks.hostile import HOSTILE, LEFTOVER, SECRET, written
from tests.timing import patience, until
from workbench import tasks
from workbench.tasks import code
from workbench.tasks.isolated import Isolated

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the fences are those of Linux"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

FAST = (
    "forged verdict", "forged reply", "forged jobs", "patched json", "patched worker", "always equal", "exit", "leave",
    "kill others", "recursion", "daemon", "daemon without pipes", "huge result", "write outside", "read the tests",
    "search memory", "look into others", "network", "new namespaces",
)  # fmt: skip
"""Those that come to an end by themselves; the others cost a time limit each."""


class Outside:
    """What hostile code would reach: a folder, a port and a socket that note who came, and names for its marks."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.token, self.visits = folder, f"wb-{secrets.token_hex(6)}", 0
        (folder / "kept").write_text("what-is-kept")
        self.victim = subprocess.Popen(["sleep", "1000"])
        self._ears = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
        self._ears[1].bind(str(folder / "socket"))
        self._ears[1].listen()
        self.port = self._ears[0].getsockname()[1]
        for ear in self._ears:
            threading.Thread(target=self._listen, args=(ear,), daemon=True).start()

    def _listen(self, ear: socket.socket) -> None:
        while True:
            try:
                ear.accept()
            except OSError:
                return
            self.visits += 1

    def completion(self, name: str, head: str) -> str:
        package = Path(workbench.__file__).parent
        names = {"head": head, "outside": self.folder, "token": self.token, "port": self.port, "package": package}
        names["victim"] = self.victim.pid
        text = written(HOSTILE[name], **names)
        return text if f"def {head}" in text else f"{text}\ndef {head}:\n    return None\n"

    def untouched(self) -> bool:
        marks = [p for d in (self.folder, Path("/tmp"), Path("/dev/shm"), Path("/")) for p in d.glob(f"{self.token}*")]
        there = sorted(p.name for p in self.folder.iterdir())
        return not marks and there == ["kept", "socket"] and (self.folder / "kept").read_text() == "what-is-kept"


def left_over() -> list[str]:
    """Processes of hostile code that are still there."""
    found = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text().strip() == LEFTOVER and "zombie" not in (comm.parent / "status").read_text():
                found.append(comm.parent.name)
        except OSError:
            continue
    return found


@pytest.fixture
def outside(tmp_path) -> Iterator[Outside]:
    there = Outside(tmp_path)
    yield there
    assert there.victim.poll() is None, "somebody ended a process that was not his"
    there.victim.kill()
    there.victim.wait()


def judged(names: list[str], outside: Outside, timeout: float, visits: int = 0) -> float:
    """Judge hostile completions between right ones; all promises are held. Returns the seconds it took."""
    task = tasks.load("repair", size=60)
    verifier = code.verifier(timeout=timeout)
    pool, row = task.pool, np.arange(len(names)) % len(task.pool)
    heads = [pool.answer[i].split("def ")[1].split(":\n")[0] for i in row]
    text = [outside.completion(name, head) for name, head in zip(names, heads, strict=True)]
    os.environ["WORKBENCH_TEST_SECRET"] = SECRET
    try:
        began = time.monotonic()
        # between every two of them one that is right, and must stay so
        verdicts = verifier([t for i, e in enumerate(text) for t in (e, pool.answer[row[i]])], pool, np.repeat(row, 2))
        took = time.monotonic() - began
    finally:
        del os.environ["WORKBENCH_TEST_SECRET"]
        verifier.close()
    won = {
        name: r for name, r, c in zip(names, verdicts.reward[::2], verdicts.correct[::2], strict=True) if c or r > 0.3
    }
    assert not won, f"rewards that are not theirs: {won}"
    assert verdicts.correct[1::2].tolist() == [1.0] * len(names), "a right completion lost its reward to its neighbour"
    assert set(verdicts.failure) == {""}
    assert outside.untouched()
    assert outside.visits == visits
    until(lambda: not left_over(), or_say=lambda: f"processes left: {left_over()}")
    return took


def test_hostile_code_wins_nothing_and_leaves_nothing(outside):
    judged([*FAST, "loop", "fork bomb"], outside, timeout=1.0)


@pytest.mark.slow
def test_every_hostile_completion_wins_nothing_in_200_tries(outside):
    names = [name for _ in range(-(-200 // len(HOSTILE))) for name in HOSTILE][:200]
    limit = 1.0
    took = judged(names, outside, timeout=limit)
    assert took < patience(200 * (limit + 1))


def executes(completion: str, answer: str) -> dict[str, object]:
    """A verifier that executes what it judges in its own process, as many do."""
    space: dict = {}
    try:
        exec(completion, space)
    except Exception as error:
        space = {"answer": f"{type(error).__name__}: {error}"}
    return {"reward": 0.5, "correct": 0, "answer": space.get("answer")}


LOOTING = {
    "environment": "import os\nanswer = str(dict(os.environ))",
    "start of the server": "answer = open('/proc/self/environ').read()",
    "start of others": """
import os
answer = ""
for p in ({victim}, os.getppid()):
    try: answer += open(f"/proc/{p}/environ").read()
    except OSError: pass
""",
    "a file": "answer = open('{outside}/kept').read()",
    "a file of the user": "import os\nanswer = str(os.listdir(os.path.expanduser('~root')) + os.listdir('/root'))",
    "a file of the completion before": "import os\nanswer = str(os.listdir('.')) + os.getcwd()\nopen('left', 'w').write('x')",
    "the answer before": "import sys\nanswer = str(getattr(sys, 'left', ''))\nsys.left = 'what-is-kept'",
}


def test_a_verifier_that_executes_completions_gives_away_its_own_verdict_at_most(outside, monkeypatch):
    monkeypatch.setenv("WORKBENCH_TEST_SECRET", SECRET)
    rows = [{"prompt": f"{i}?", "answer": str(i)} for i in range(20)]
    pool = tasks.load(rows, verifier="exact").pool
    verifier = Isolated(executes, timeout=2.0, workers=1)
    forging = ["forged verdict", "patched worker", "forged reply", "kill others", "write outside", "network"]
    text = [written(t, outside=outside.folder, victim=outside.victim.pid) for t in [*LOOTING.values()] * 2]
    text += [outside.completion(name, "f(x)") for name in forging]
    verdicts = verifier([t for one in text for t in (one, "answer = 'honest'")], pool, np.zeros(2 * len(text), int))
    verifier.close()
    loot = " ".join(str(a) for a in verdicts.answer[::2][: len(LOOTING) * 2])
    assert SECRET not in loot
    assert "what-is-kept" not in loot
    assert "'left'" not in loot
    assert ".ssh" not in loot and ".cache" not in loot
    assert verdicts.answer[1::2].tolist() == ["honest"] * len(text)
    assert verdicts.reward[1::2].tolist() == [0.5] * len(text)
    assert outside.untouched()
    assert outside.visits == 0


def test_a_server_whose_reply_lacks_the_secret_is_not_believed(monkeypatch):
    from workbench.tasks.process import Worker

    line = Worker._line
    verifier = Isolated(executes, workers=1).start()
    pool = tasks.load([{"prompt": f"{i}", "answer": "b"} for i in range(20)], verifier="exact").pool
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "_line", lambda self, deadline: b"0" * 32 + line(self, deadline)[32:])
        verdicts = verifier(["answer = 1"], pool, np.zeros(1, int))
    assert verdicts.failure.tolist() == ["verifier_died"]
    assert verifier(["answer = 1"], pool, np.zeros(1, int)).failure.tolist() == [""]
    verifier.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "without", ["linux.unshare = no", "linux.landlock_version = lambda: 0", "linux.seccomp_program = lambda: None"]
)
def test_each_fence_may_be_missing(outside, monkeypatch, without):
    from workbench.tasks import process

    start = process._START.replace("from sandbox.worker", f"exec({WITHOUT + without!r}); from sandbox.worker")
    monkeypatch.setattr(process, "_START", start)
    # without seccomp a socket in the file system can be reached, as docs/security.md says
    reached = int("seccomp" in without)
    judged([*FAST, "loop", "fork bomb", "threads"], outside, timeout=1.0, visits=reached)


WITHOUT = """
from sandbox import linux
def no(*a): raise OSError(1, "refused")
"""


def test_a_killed_trainer_leaves_no_process_of_a_completion(tmp_path):
    program = f"""
import sys
from workbench import tasks
from workbench.tasks import code
import numpy as np
task = tasks.load("repair", size=20)
verifier = code.verifier(timeout=600.0)
stays = "import ctypes, time\\nctypes.CDLL(None).prctl(15, b'{LEFTOVER}', 0, 0, 0)\\ntime.sleep(1000)\\n" + task.pool.answer[0]
verifier([stays], task.pool, np.zeros(1, int))
"""
    trainer = subprocess.Popen([sys.executable, "-c", program])
    until(left_over, 10, or_say=lambda: "the completion never ran")
    trainer.kill()
    trainer.wait()
    until(lambda: not left_over(), 30, or_say=lambda: f"left: {left_over()}")


def test_repair_golds_are_right_and_faulty_functions_wrong():
    task = tasks.load("repair", size=40, evaluation=10)
    assert task.max_tokens == 32
    rows, pool = np.arange(len(task.pool)), task.pool
    faulty = [text.split("return", 1)[1].split("\n")[0] for text in pool.text]
    right = [a.split("return", 1)[1].split("\n")[0] for a in pool.answer]
    for text, correct in ((list(pool.answer), 1.0), (right, 1.0), (faulty, 0.0)):
        verdicts = task.verifier(text, pool, rows)
        assert verdicts.correct.tolist() == [correct] * len(rows)
        assert verdicts.parts["format"].tolist() == [1.0] * len(rows)
    task.verifier.close()


def test_code_is_found_in_fences_in_words_and_behind_what_was_begun():
    from workbench.tasks.sandbox.execution import execute

    row = {"function": "f", "calls": [[1], [2]], "prefix": "The function:\ndef f(x):\n    return"}
    for completion in (
        " x + 1",
        " x + 1\nThat adds one.",
        "Here:\n```python\ndef f(x):\n    return x + 1\n```\nDone.",
        "def f(x):\n    return x + 1\n\nprint(f(",
    ):
        assert execute(completion, row) == ["2", "3"], completion


def test_values_of_json_are_compared_as_what_they_are():
    assert code.same([1, 2.0], [1, 2])
    assert code.same(0.1 + 0.2, 0.3)
    for got, expected in (
        (True, 1),
        (1, True),
        ("1", 1),
        ([1], [1, 2]),
        (None, 0),
        ({"a": 1}, {"b": 1}),
        (10**20, 10**20 + 1),
    ):
        assert not code.same(got, expected), (got, expected)


def test_mixed_kinds_are_judged_each_by_their_own():
    task = tasks.load(["repair", "add 1d+1d"], size=40, evaluation=4)
    verdicts = task.verifier(list(task.pool.answer), task.pool, np.arange(len(task.pool)))
    assert verdicts.correct.tolist() == [1.0] * len(task.pool)
    task.verifier.verifiers["code"].close()
