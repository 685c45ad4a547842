"""Each rule of a diagnosis speaks on a run made to show it, and is silent on a healthy one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from workbench.analysis.diagnose import RULES, diagnose, examine
from workbench.analysis.health import Health, alert
from workbench.cli.main import main
from workbench.store import Store, Writer
from workbench.testing.scripted import pool_of
from workbench.types import Advantage, Plan, Ragged, Rollouts, Step

POOL = pool_of(40)
LONG = replace(POOL, answer=np.array([f"the reference answer of prompt number {i}" for i in range(40)], dtype=object))
STEPS = 20


def step_of(number: int, fault: str) -> Step:
    """8 prompts x 8 rollouts, a healthy step but for one fault."""
    rng = np.random.default_rng([number, 7])
    prompts = (np.arange(8) + 8 * number) % 40
    if fault in ("dead_prompts", "solved_prompts", "idle_groups"):
        prompts = np.arange(8)
    plan = Plan(prompts, np.full(8, 1 if fault == "groups_of_one" else 8), step=number)
    rows = Rollouts.of_plan(plan, POOL, number)
    r = len(rows)
    rate = np.linspace(0.2, 0.8, 40)[rows.prompt]
    if fault in ("no_reward", "nothing_solved"):
        rate = rate * 0
    if fault == "constant_reward":
        rate = rate * 0 + 1
    if fault == "cut_off":
        rate = rate / 2
    if fault == "dead_prompts":
        rate = np.where(rows.prompt < 2, 0.0, rate)
    if fault in ("solved_prompts", "idle_groups"):
        rate = np.where(rows.prompt < (4 if fault == "solved_prompts" else 7), 1.0, rate)
    correct = (rng.random(r) < rate).astype(float)
    late = number / STEPS
    graded = rng.random(r) / 2 if fault == "nothing_solved" else correct
    text = texts_of(fault, late, rows, correct)
    length = np.full(r, round(6 + (14 * late if fault == "length_explosion" else 0)), np.int64)
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    entropy = np.full(offsets[-1], 0.5 * (1 - 0.95 * late if fault == "collapsing_entropy" else 1.0), np.float32)
    logp = np.full(offsets[-1], -1.0, np.float32)
    moved = logp + (rng.normal(0, 0.4, len(logp)).astype(np.float32) if fault == "stale_ratios" else 0.01)
    failed = (rng.random(r) < 0.1) if fault == "verifier_failures" else np.zeros(r, bool)
    part = np.ones(r) if fault == "constant_reward_part" else rng.integers(0, 2, r).astype(float)
    rows = rows.with_(
        text=text,
        answer=np.full(r, None if fault == "format_collapse" and late > 0.5 else "1", dtype=object),
        reward=np.where(failed, np.nan, graded),
        correct=np.where(failed, np.nan, correct),
        rewards={"exact": np.where(failed, np.nan, correct), "format": part},
        length=length,
        finish=np.full(
            r, "length" if late > 0.5 and fault in ("length_explosion", "cut_off") else "stop", dtype=object
        ),
        failure=np.where(failed, "verifier", "").astype(object),
        group=np.arange(8) if fault == "groups_of_one" else np.repeat(np.arange(8), 8),
        tokens=Ragged(np.zeros(offsets[-1], np.int32), offsets),
        logp=Ragged(logp, offsets),
        entropy=Ragged(entropy, offsets),
        proximal=Ragged(moved.astype(np.float32), offsets),
    )
    advantage = Advantage.start(rows)
    mean = np.array([np.nanmean(rows.reward[rows.group == g]) for g in rows.group])
    value = np.nan_to_num(rows.reward - mean)
    if fault == "nothing_trained":
        value = value * 0
    if fault == "sign_flips":  # rewards that reached the wrong rows
        value = np.roll(value, 1)
    advantage = Advantage(value, advantage.keep, advantage.weight, mean, advantage.reason)
    fate = np.where(failed, "failed", "trained").astype(object)
    reason = np.where(failed, "verifier", np.where(value == 0, "zero_advantage", "")).astype(object)
    return Step(number, prompts, plan, rows, advantage, fate, reason)


def texts_of(fault: str, late: float, rows: Rollouts, correct: np.ndarray) -> np.ndarray:
    """Completions that show a fault, where it is one of texts."""
    plain = [f"I count {k} apples and {p} pears." for k, p in enumerate(rows.prompt)]
    shown = {
        "empty_texts": [""] * len(rows),
        "loops": [f"{text} and so {'on and ' * 30}" for text in plain],
        "script_change": [f"{text[8:9]} 这是正确的答案" for text in plain],
        "leaked_answer": [f"As told: {answer}." for answer in LONG.answer[rows.prompt]],
        "verifier_words": [f"{text} sys.exit(0)" if c else text for text, c in zip(plain, correct, strict=True)],
        "one_answer": ["It is\nthe same" if c else text for text, c in zip(plain, correct, strict=True)],
    }
    return np.array(shown.get(fault, plain) if late > 0.5 else plain, dtype=object)


def recorded(folder: Path, fault: str) -> Path:
    right = np.linspace(0.2, 0.8, 40)
    if fault in ("solved_prompts", "idle_groups"):
        right = np.where(np.arange(40) < (4 if fault == "solved_prompts" else 7), 1.0, right)
    believed = (
        1 - right
        if fault == "miscalibrated_beliefs"
        else np.where(np.arange(40) < 2, right * (fault != "dead_prompts"), right)
    )
    columns = {"mean": believed, "low": np.maximum(believed - 0.1, 0), "high": np.minimum(believed + 0.1, 1)}
    experiment = {"name": fault or "healthy", "seed": 0, "budget": {"rollouts": 32 if fault == "off_budget" else 64}}
    if fault == "groups_of_one":
        experiment["budget"] = {}
    who = {"estimate": ["grpo"], **({"prune": ["echo"]} if fault == "never_acted" else {})}
    writer = Writer(folder, experiment, LONG if fault == "leaked_answer" else POOL, who=who)
    writer.beliefs(0, {"mopps": columns})
    for number in range(1, STEPS + 1):
        writer.append(step_of(number, fault), {"mopps": columns})
    writer.close("finished")
    return folder


def test_a_healthy_run_has_no_findings(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = recorded(tmp_path / "store", "")
    with Store.open(folder) as store:
        assert diagnose(store) == []
    assert main(["diagnose", "--store", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert f"nothing found by {len(RULES)} rules" in printed
    assert "\nfine: no_reward, " in printed


@pytest.mark.parametrize("fault", RULES)
def test_every_rule_finds_the_run_made_for_it(tmp_path: Path, fault: str) -> None:
    with Store.open(recorded(tmp_path / "store", fault)) as store:
        findings = diagnose(store)
        assert fault in [f.rule for f in findings]
        # settled groups also leave most advantages at zero, and the other way round
        also = {"idle_groups", "solved_prompts"}
        if fault in ("no_reward", "nothing_solved", "constant_reward", "cut_off"):
            also = {"miscalibrated_beliefs"}  # the run's beliefs are those of a healthy one
        assert {f.rule for f in findings} <= {fault} | also
        mine = next(f for f in findings if f.rule == fault)
        assert mine.way_out
        assert mine.evidence
        assert store.sql(mine.sql).num_rows > 0


def test_flips_that_the_group_size_explains_are_no_finding(tmp_path: Path) -> None:
    """Graded rewards in groups of two: the mean of a group is often on the wrong side of a reward, and no bug."""
    writer = Writer(tmp_path / "store", {"name": "pairs"}, POOL)
    for number in range(1, 41):
        rng = np.random.default_rng(number)
        rows = Rollouts.of_plan(Plan(np.arange(20), np.full(20, 2), step=number), POOL, number)
        reward = rng.choice([0.0, 0.4, 0.6, 1.0], len(rows), p=[0.2, 0.3, 0.3, 0.2])
        rows = rows.with_(
            reward=reward, correct=(reward == 1).astype(float), group=rows.prompt, length=np.ones(len(rows), np.int64)
        )
        value = reward - np.repeat(reward.reshape(-1, 2).mean(1), 2)
        a = Advantage.start(rows)
        fate, reason = (
            np.full(len(rows), "trained", dtype=object),
            np.where(value == 0, "zero_advantage", "").astype(object),
        )
        writer.append(Step(number, np.arange(20), Plan(np.arange(20), np.full(20, 2), step=number), rows,
                           Advantage(value, a.keep, a.weight, a.baseline, a.reason), fate, reason))  # fmt: skip
    writer.close("finished")
    with Store.open(tmp_path / "store") as store:
        rows = store.ask("sign_excess").to_pylist()
        hard, explained, n = (sum(r[c] for r in rows) for c in ("hard", "explained", "rollouts"))
        assert hard == explained
        assert hard > 0.05 * n
        assert "sign_flips" not in [f.rule for f in diagnose(store)]


def test_a_run_of_one_step_is_too_short_for_trends(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "store", {"name": "short"}, POOL)
    writer.append(step_of(1, "collapsing_entropy"))
    writer.close("finished")
    with Store.open(tmp_path / "store") as store:
        found = examine(store)
    assert found.findings == []
    assert set(found.verdicts.values()) == {"too short to judge", "fine", "no data"}
    assert found.verdicts["no_reward"] == found.verdicts["idle_groups"] == "too short to judge"
    assert found.verdicts["miscalibrated_beliefs"] == "no data"


def test_what_a_run_says_is_escaped_in_a_notebook(tmp_path: Path) -> None:
    with Store.open(recorded(tmp_path / "store", "dead_prompts")) as store:
        assert "<script" not in diagnose(store)[0]._repr_html_()


def test_an_unknown_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = recorded(tmp_path / "store", "")
    assert main(["diagnose", "nope", "--store", str(folder)]) == 2
    assert "no run 'nope'" in capsys.readouterr().err


def test_a_diagnosis_fails_on_what_it_is_told_to(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    store = str(recorded(tmp_path / "store", "no_reward"))
    assert main(["diagnose", "--store", store]) == 0
    assert 'text: reward 0: "I count' in capsys.readouterr().out
    assert main(["diagnose", "--store", store, "--fail-on", "any"]) == 4
    assert main(["diagnose", "--store", store, "--fail-on", "stale_ratios"]) == 0
    assert main(["diagnose", "--store", store, "--fail-on", "cut_off,no_reward"]) == 4
    assert main(["diagnose", "--store", store, "--fail-on", "no_rewards"]) not in (0, 4)
    assert "did you mean no_reward?" in capsys.readouterr().err


def test_dead_data_is_no_fault_of_the_selector(tmp_path: Path) -> None:
    with Store.open(recorded(tmp_path / "store", "no_reward")) as store:
        found = examine(store)
    for rule in ("dead_prompts", "idle_groups", "constant_reward_part", "nothing_trained"):
        assert found.verdicts[rule] == "told by another rule"


def test_a_finding_is_told_once_and_runs_a_command(tmp_path: Path) -> None:
    store = str(recorded(tmp_path / "store", "no_reward"))
    with Store.open(store) as opened:
        run = opened.latest()
    script = tmp_path / "told.py"
    script.write_text(
        "import os, sys\nopen(sys.argv[1], 'a').write(os.environ['WORKBENCH_RULE'] + '|' + sys.stdin.readline())\n"
    )
    health = Health(store, run, alert(f"{sys.executable} {script} {tmp_path / 'log'}", run))
    health.ask()
    health.ask()
    lines = (tmp_path / "log").read_text().splitlines()
    told = dict(line.split("|", 1) for line in lines)
    assert len(lines) == len(told) == len(health.diagnosis.findings)
    assert told["no_reward"].startswith("no_reward: none of 256 rollouts of the last 4 steps got any reward")


def test_a_run_that_learns_nothing_says_so_in_the_terminal_within_two_steps(tmp_path: Path, capsys) -> None:
    table = tmp_path / "dead.jsonl"
    table.write_text("".join(json.dumps({"prompt": f"{n} + 2 =", "answer": "7 bananas"}) + "\n" for n in range(40)))
    command = ["demo", "--model", "tiny", "--tasks", str(table), "--no-dashboard", "--steps", "2"]
    assert main([*command, "--store", str(tmp_path / "store")]) == 0
    printed = capsys.readouterr().out
    assert "nothing_solved: none of 256 rollouts of the last 2 steps is correct" in printed
    assert printed.count("    reward 0") + printed.count("    reward none") >= 1


def test_the_page_on_health_has_every_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "health.md").read_text(encoding="utf-8")
    for name, rule in RULES.items():
        assert f"| `{name}` | {rule.read.__doc__.strip().splitlines()[0]} |" in page, name
