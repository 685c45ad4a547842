"""Several processes make one run: what they record is what one records, one inbox steers all, and they end together."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.timing import patience, until
from workbench import Store
from workbench.parallel import processes
from workbench.parallel.watchdog import Watch
from workbench.runs.run import Run
from workbench.runs.steering.remote import Remote
from workbench.store import StoreError

from .run_processes import TINY, overlapped

SCRIPT = Path(__file__).with_name("run_processes.py")
pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch has no gloo"
)


def start(what: str, folder: Path, n: int = 2) -> list[subprocess.Popen]:
    """Processes as torchrun would start them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        "WORLD_SIZE": str(n),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "PYTHONPATH": str(SCRIPT.parents[2]),
    }
    return [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), what, str(folder)],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(n)
    ]


def ended(running: list[subprocess.Popen], codes: tuple[int, ...] = (0, 0)) -> list:
    """What the processes found, once they have ended."""
    try:
        said = [one.communicate(timeout=patience(240)) for one in running]
    finally:
        for one in running:
            one.kill()
    assert tuple(one.returncode for one in running) == codes, said
    return [json.loads(out.splitlines()[-1]) if out.strip() else None for out, _ in said]


def recorded(store: Path, run: str) -> dict:
    """What a store keeps of a run, without clocks."""
    questions = {
        "asks": "SELECT step, ask, prompt_id, n FROM asks WHERE run = ? ORDER BY ALL",
        "rollouts": "SELECT step, row, rollout_id, purpose, reward, correct, finish, version FROM rollouts WHERE run = ? ORDER BY ALL",
        "texts": "SELECT step, row, text, tokens FROM completions WHERE run = ? ORDER BY ALL",
        "fates": "SELECT step, row, fate, reason FROM fates WHERE run = ? ORDER BY ALL",
    }
    with Store.open(store) as it:
        found = {name: it.sql(text, [run]).to_pylist() for name, text in questions.items()}
        return found | {"loss": [s.update["loss"] for s in it.steps(run)], "runs": it.runs().to_pylist()}


@pytest.mark.slow
def test_a_killed_run_of_two_processes_is_resumed_by_torchrun_as_the_run_of_one(tmp_path) -> None:
    ended(start("killed", tmp_path / "two"), (9, 9))
    (run,) = (p.name for p in (tmp_path / "two" / "checkpoints").iterdir())
    (tmp_path / "e.toml").write_text(TINY.to_toml())
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "workbench", "run", "e.toml", "--store", "two", "--resume", run,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=patience(240))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("grpo + mopps\n") == 1  # one of them speaks
    assert "step 6/6" in done.stdout
    with Run(TINY.with_(store=str(tmp_path / "one"))) as alone:
        while not alone.done:
            alone.step()
    two, one = recorded(tmp_path / "two", run), recorded(tmp_path / "one", alone.run_id)
    for name in ("asks", "rollouts", "texts", "fates"):
        assert two[name] == one[name], name
        assert two[name]
    assert two["loss"] == pytest.approx(one["loss"], abs=1e-5)
    assert [(r["status"], r["last_step"]) for r in two["runs"]] == [("finished", 6)]
    assert [p.name for p in (tmp_path / "two" / "checkpoints" / run).iterdir()] == ["step-000006"]


@pytest.mark.slow
def test_one_inbox_steers_all(tmp_path) -> None:
    running = start("steered", tmp_path)

    def watched() -> Remote | None:
        assert all(one.poll() is None for one in running), [one.communicate() for one in running]
        try:
            remote = Remote(str(tmp_path), who="ada")
        except (StoreError, ValueError):  # not there yet
            return None
        return remote if remote.n_steps else None

    remote = until(watched, 120, every=0.1)
    with Store.open(tmp_path) as store:
        ids = store.pool(remote.run_id)[0].ids.tolist()
    asked = [
        remote.pause().last_request,
        remote.set(prompts=5, group_size=3, temperature=0.9, lr=2e-4).last_request,
        remote.pin(ids[3]).last_request,
        remote.boost(ids[3], 2.0).last_request,
        remote.drop(ids[4]).last_request,
        remote.drop(ids[5]).last_request,
        remote.undo().last_request,
        remote.add("vade").last_request,
        remote.swap("grpo + vade").last_request,
        remote.add("mopps").last_request,
        remote.remove("vade").last_request,
        remote.step(2).last_request,
    ]
    refused = remote.set(lr=-1.0).last_request
    done = [remote.wait(request, 120) for request in asked]
    asked.append(remote.checkpoint().last_request)
    done.append(remote.wait(asked[-1], 120))
    with pytest.raises(ValueError, match="lr must be a number from 0 to 1"):
        remote.wait(refused, 120)
    asked += [remote.resume().last_request, remote.stop().last_request]
    first, second = ended(running)
    assert first == second
    assert [first["known"][r.id] for r in asked] == [
        "pause", "set", "pin", "boost", "drop", "drop", "drop", "swap", "swap", "swap", "swap", "step", "checkpoint",
        "resume", "stop",
    ]  # fmt: skip
    assert (first["budget"], first["temperature"], first["lr"]) == ([5, 15], [0.9, 0.9], 2e-4)
    assert (first["pinned"], first["dropped"], first["pipeline"]) == ([3], [4], "grpo + mopps")
    assert first["boost"] == [2.0 if i == 3 else 1.0 for i in range(len(ids))]
    acting = {d["step"] for d in done[1:11]}
    assert len(acting) == 1
    with Store.open(tmp_path) as store:
        rows = store.ask("commands", run=remote.run_id).to_pylist()
        assert sorted(json.loads(r["payload"])["id"] for r in rows) == sorted(r.id for r in [*asked, refused])
        (at,) = acting
        asks = store.sql("SELECT prompt_id, n FROM asks WHERE step = ? ORDER BY ask", [at]).to_pylist()
    assert len(asks) == 5 and sum(a["n"] for a in asks) == 15
    assert asks[0] == {"prompt_id": ids[3], "n": 5}
    saved = done[-1]["step"]
    assert remote.n_steps >= saved and list((tmp_path / "checkpoints" / remote.run_id).iterdir()) != []


@pytest.mark.slow
def test_two_processes_generate_ahead_as_one_does(tmp_path) -> None:
    first, second = ended(start("overlapped", tmp_path / "two"))
    alone = overlapped(tmp_path / "one")
    assert first == second
    for name in ("id", "text", "version", "session"):
        assert first[name] == alone[name], name
    assert first["loss"] == pytest.approx(alone["loss"], abs=1e-5)
    assert {v for step in first["version"] for v in step} == {0, 1, 2}


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_gpus_generate_ahead_and_hold_the_same(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DEVICE", "cuda")
    first, second = ended(start("overlapped", tmp_path))
    assert first == second
    assert first["session"] == "stopped"
    assert {v for step in first["version"] for v in step} == {0, 1, 2}


@pytest.mark.slow
def test_what_ends_in_one_process_ends_in_all_and_is_recorded(tmp_path) -> None:
    first, second = ended(start("left", tmp_path))
    why = "2 processes were started (WORLD_SIZE), and this one knows none of the others; make the run inside `with workbench.parallel.processes.joined():`"
    assert first[0] == second[0] == ["alone", "ValueError", why]
    assert first[1:4] == [
        ["second", "ProcessError", "process 1 failed: ValueError: enough"],
        ["first", "ValueError", "enough"],
        ["interrupted", "KeyboardInterrupt", "process 1 was interrupted"],
    ]
    assert second[1:4] == [
        ["second", "ValueError", "enough"],
        ["first", "ProcessError", "process 0 failed: ValueError: enough"],
        ["interrupted", "KeyboardInterrupt", ""],
    ]
    assert first[4] == second[4] == ["verified", "LookupError", "no verdict (in process 1 of 2)"]
    assert first[5] == second[5] == ["ahead", "LookupError", "no verdict (in process 1 of 2)"]
    assert first[6] == second[6]
    assert "processes 0 and 1 of 2 have different plans for step 1" in first[6][2]
    assert first[7] == second[7] == ["gone", "", ""]
    with Store.open(tmp_path) as store:
        rows = store.sql("SELECT run, status, message FROM statuses").to_pylist()
    ends = {r["run"].split("-")[3]: (r["status"], r["message"]) for r in rows}
    assert ends == {
        "valueerror1": ("failed", "ProcessError: process 1 failed: ValueError: enough"),
        "valueerror0": ("failed", "ValueError: enough"),
        "keyboardinterrupt1": ("stopped", ""),
        "verified": ("failed", "LookupError: no verdict (in process 1 of 2)"),
        "ahead": ("failed", "LookupError: no verdict (in process 1 of 2)"),
        "planned": ("failed", f"ProcessError: {first[6][2]}"),
        "gone": ("stopped", ""),
    }


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_run(tmp_path) -> None:
    running = start("lost", tmp_path)
    said = [one.communicate(timeout=patience(120)) for one in running]
    assert [one.returncode for one in running] == [1, -9], said
    assert "ProcessError: another process of this run has gone without a word" in said[0][1]
    with Store.open(tmp_path) as store:
        assert [(r["status"], r["last_step"]) for r in store.runs().to_pylist()] == [("failed", 2)]


def test_who_waits_in_vain_for_a_process_that_failed_is_ended_after_its_callbacks() -> None:
    met, said, over = dist.HashStore(), [], threading.Event()
    mine, other = (Watch(met, rank, grace=0.05, every=0.02, end=lambda status: over.set()) for rank in (0, 1))
    mine.callbacks.append(said.append)
    other.report(ValueError("enough"))
    mine.report(RuntimeError("cut off"))  # who fails later does not take its place
    assert over.wait(patience(10))
    assert [str(error) for error in said] == ["process 1 failed: ValueError: enough"]
    assert other.failure() is None
    for watch in (mine, other):
        watch.end()


def test_a_process_that_ends_by_itself_is_left_alone() -> None:
    met, over = dist.HashStore(), threading.Event()
    mine, other = (Watch(met, rank, grace=30.0, every=0.02, end=lambda status: over.set()) for rank in (0, 1))
    other.report(KeyboardInterrupt())
    assert isinstance(mine.failure(), KeyboardInterrupt)
    for watch in (mine, other):
        watch.end()
        assert not watch._thread.is_alive()
    assert not over.is_set()


def test_a_watch_ends_with_its_last_look() -> None:
    """A thread that is still in the store's C++ while the interpreter ends aborts the process ("terminate called")."""
    looking, answered = threading.Event(), threading.Event()

    class Slow:
        def check(self, names: list[str]) -> bool:
            looking.set()
            return not answered.wait(patience(60))

    watch = Watch(Slow(), 0, every=0.01)
    assert looking.wait(patience(10))
    threading.Timer(2.0, answered.set).start()
    watch.end()
    assert not watch._thread.is_alive()


def test_one_process_alone_has_nobody_to_tell() -> None:
    with processes.joined():
        assert (processes.ranks(), processes.rank(), processes.first(), processes.launched()) == (1, 0, True, 1)
        assert processes.gather("a") == ["a"]
        assert processes.on_first(lambda: 3) == processes.broadcast(3) == 3
        processes.check_same(1, "figures")
        error = RuntimeError("Connection closed")
        assert processes.cause(error) is error


def test_processes_without_a_gpu_of_their_own_are_told(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in zip(("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"), "2211", strict=False):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with (
        pytest.raises(ValueError, match="process 1 of this machine has no GPU of its own, there are 1; start fewer"),
        processes.joined(),
    ):
        pass
