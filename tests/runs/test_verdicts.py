"""Runs whose verifier says nothing end, and verifiers that only a record names are not imported."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from workbench import tasks
from workbench.cli.main import main
from workbench.runs.experiment import Experiment
from workbench.runs.verdicts import VerdictWatch, VerifierFailed
from workbench.store import Store
from workbench.tasks.isolated import CREDIT, PATIENCE, Isolated
from workbench.types import Budget, Plan, Rollouts

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

ROWS = [{"prompt": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(1, 41)]


def rolled(failure: str, n: int = 12) -> Rollouts:
    task = tasks.load(ROWS, verifier="exact")
    rows = Rollouts.of_plan(Plan(np.array([0]), np.array([n]), step=1), task.pool)
    null = np.full(n, np.nan if failure else 0.0)
    text = np.array([f"text {i}" for i in range(n)], dtype=object)
    why = np.full(n, "KeyError: 'x'", dtype=object)
    return rows.with_(
        text=text, reward=null, correct=null, failure=np.full(n, failure, dtype=object), extra={"failure_text": why}
    )


def test_nothing_but_failures_ends_a_run_at_once_and_one_that_worked_after_three_steps() -> None:
    watch = VerdictWatch(lambda: "my_module:judge")
    with pytest.raises(VerifierFailed, match=r"my_module:judge gave no verdict on any of 12 .*KeyError: 'x'") as error:
        watch.see(rolled("verifier_raised"))
    assert all(f"'text {i}'" in str(error.value) for i in range(3))
    watch = VerdictWatch(str)
    watch.see(rolled("verifier_raised", 2))  # too few to judge
    for _ in range(2):
        watch.see(rolled(""))
        watch.see(rolled("verifier_timeout"))
        watch.see(rolled("verifier_timeout"))
        watch.see(rolled("engine"))  # says nothing of the verifier
    with pytest.raises(VerifierFailed, match="any of 36"):
        watch.see(rolled("verifier_timeout"))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise KeyError('x')", "verifier_raised: KeyError: 'x'"),
        ("return None", "verifier_invalid: TypeError: reward is NoneType, not a number"),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "sandbox=False"),
    ],
)
def test_a_run_whose_verifier_always_fails_stops_with_exit_code_3(tmp_path, monkeypatch, capsys, body, told) -> None:
    (tmp_path / "failing_judge.py").write_text(f"def judge(completion, answer):\n    {body}\n")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    monkeypatch.syspath_prepend(tmp_path)
    experiment = Experiment(
        model="tiny", tasks=str(tmp_path / "rows.jsonl"), pipeline="grpo", budget=Budget(2, 8), steps=2, eval_every=0,
        checkpoint_every=0, store=str(tmp_path / "store"),
        task_options={"verifier": "failing_judge:judge", "max_tokens": 4},
    )  # fmt: skip
    (tmp_path / "run.toml").write_text(experiment.to_toml())
    assert main(["run", str(tmp_path / "run.toml")]) == 3
    said = capsys.readouterr().err
    assert "failing_judge" in said
    assert ":judge gave no verdict on any of 8 completions" in said
    assert told in said
    with Store.open(tmp_path / "store") as store:
        (run,) = store.runs().to_pylist()
    assert run["status"] == "failed"
    sys.modules.pop("failing_judge", None)


def test_a_verifier_that_hangs_is_given_up_for_the_run_whatever_the_calls() -> None:
    def hangs(completion: str, answer: str) -> float:
        while completion != "fine":
            pass
        return 1.0

    pool = tasks.load(ROWS, verifier="exact").pool
    verifier = Isolated(hangs, timeout=0.02, workers=1)

    def call(*text: str) -> list[str]:
        return list(verifier(text, pool, np.zeros(len(text), int)).message)

    told = [message for _ in range(5) for message in call(*["hangs"] * 4)]
    assert [("given up" in m) for m in told] == [False] * PATIENCE + [True] * 10
    assert "given up" in call("fine")[0]
    verifier.close()
    verifier = Isolated(hangs, timeout=0.02, workers=1)
    call(*["fine"] * 20)  # who has worked is given more time
    assert not any("given up" in m for m in call(*["hangs"] * (CREDIT + PATIENCE)))
    assert "given up" in call("fine")[0]
    verifier.close()
    verifier = Isolated(hangs, timeout=0.02, workers=1)
    told = [m for _ in range(6) for m in call("fine", *["hangs"] * 7)]
    assert any("given up" in m for m in told)  # seven of eight hang
    verifier.close()


def test_resuming_imports_no_verifier_that_only_the_record_names(tmp_path, monkeypatch, capsys) -> None:
    left = tmp_path / "imported"
    (tmp_path / "foreign_judge.py").write_text(
        f"open({str(left)!r}, 'a').write('x')\ndef judge(completion, answer):\n    return len(completion) % 2\n"
    )
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    monkeypatch.syspath_prepend(tmp_path)
    store = str(tmp_path / "store")
    experiment = Experiment(
        model="tiny", tasks=str(tmp_path / "rows.jsonl"), pipeline="grpo", budget=Budget(2, 8), steps=1, eval_every=0,
        checkpoint_every=1, store=store, task_options={"verifier": "foreign_judge:judge", "max_tokens": 4},
    )  # fmt: skip
    list(experiment.run())
    left.unlink()
    demo = ["demo", "--resume", "--store", store, "--steps", "2", "--no-dashboard"]
    assert main(demo) == 2
    said = capsys.readouterr().err
    assert "is named by the record of the store" in said
    assert "--verifier foreign_judge:judge" in said
    assert not left.exists()
    with Store.open(store) as opened:
        (run,) = opened.runs().to_pylist()
    with pytest.raises(ValueError, match="was not judged by other:judge; it names foreign_judge:judge"):
        Experiment.recorded(store, run["run"], verifiers=["other:judge"])
    assert main([*demo, "--verifier", "foreign_judge:judge"]) == 0
    assert Path(left).exists()


def test_verifiers_of_evaluation_sets_are_not_trusted_either() -> None:
    from workbench.runs.spec import Untrusted

    experiment = Experiment(model="tiny", eval_sets={"other": {"verifier": Untrusted("m:f")}})
    with pytest.raises(ValueError, match="the verifier m:f is named by the record"):
        experiment.build_world()
