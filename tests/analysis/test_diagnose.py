"""Each rule of a diagnosis speaks on a run made to show it, and is silent on a healthy one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench.analysis.diagnose import RULES, diagnose
from workbench.cli.main import main
from workbench.store import Store, Writer
from workbench.testing.scripted import pool_of
from workbench.types import Advantage, Plan, Ragged, Rollouts, Step

POOL = pool_of(40)
STEPS = 20


def step_of(number: int, fault: str) -> Step:
    """8 prompts x 8 rollouts, a healthy step but for one fault."""
    rng = np.random.default_rng([number, 7])
    prompts = (np.arange(8) + 8 * number) % 40
    if fault in ("dead_prompts", "solved_prompts", "idle_groups"):
        prompts = np.arange(8)
    rows = Rollouts.of_plan(Plan(prompts, np.full(8, 8), step=number), POOL, number)
    r = len(rows)
    rate = np.linspace(0.2, 0.8, 40)[rows.prompt]
    if fault == "dead_prompts":
        rate = np.where(rows.prompt < 2, 0.0, rate)
    if fault in ("solved_prompts", "idle_groups"):
        rate = np.where(rows.prompt < (4 if fault == "solved_prompts" else 7), 1.0, rate)
    correct = (rng.random(r) < rate).astype(float)
    late = number / STEPS
    length = np.full(r, round(6 + (14 * late if fault == "length_explosion" else 0)), np.int64)
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    entropy = np.full(offsets[-1], 0.5 * (1 - 0.95 * late if fault == "collapsing_entropy" else 1.0), np.float32)
    logp = np.full(offsets[-1], -1.0, np.float32)
    moved = logp + (rng.normal(0, 0.4, len(logp)).astype(np.float32) if fault == "stale_ratios" else 0.01)
    failed = (rng.random(r) < 0.1) if fault == "verifier_failures" else np.zeros(r, bool)
    part = np.ones(r) if fault == "constant_reward_part" else rng.integers(0, 2, r).astype(float)
    rows = rows.with_(
        reward=np.where(failed, np.nan, correct),
        correct=np.where(failed, np.nan, correct),
        rewards={"exact": np.where(failed, np.nan, correct), "format": part},
        length=length,
        finish=np.full(r, "length" if late > 0.5 and fault == "length_explosion" else "stop", dtype=object),
        failure=np.where(failed, "verifier", "").astype(object),
        group=np.repeat(np.arange(8), 8),
        tokens=Ragged(np.zeros(offsets[-1], np.int32), offsets),
        logp=Ragged(logp, offsets),
        entropy=Ragged(entropy, offsets),
        proximal=Ragged(moved.astype(np.float32), offsets),
    )
    advantage = Advantage.start(rows)
    mean = np.array([np.nanmean(rows.reward[rows.group == g]) for g in rows.group])
    value = np.nan_to_num(rows.reward - mean)
    if fault == "sign_flips":  # rewards that reached the wrong rows
        value = np.roll(value, 1)
    advantage = Advantage(value, advantage.keep, advantage.weight, mean, advantage.reason)
    fate = np.where(failed, "failed", "trained").astype(object)
    reason = np.where(failed, "verifier", np.where(value == 0, "zero_advantage", "")).astype(object)
    return Step(number, prompts, Plan(prompts, np.full(8, 8), step=number), rows, advantage, fate, reason)


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
    writer = Writer(folder, {"name": fault or "healthy", "seed": 0}, POOL)
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
    assert "nothing found by 10 rules" in capsys.readouterr().out


@pytest.mark.parametrize("fault", RULES)
def test_every_rule_finds_the_run_made_for_it(tmp_path: Path, fault: str) -> None:
    with Store.open(recorded(tmp_path / "store", fault)) as store:
        findings = diagnose(store)
        assert fault in [f.rule for f in findings]
        # settled groups also leave most advantages at zero, and the other way round
        assert {f.rule for f in findings} <= {fault, "idle_groups", "solved_prompts"}
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
        assert [f.rule for f in diagnose(store)] == []


def test_what_a_run_says_is_escaped_in_a_notebook(tmp_path: Path) -> None:
    with Store.open(recorded(tmp_path / "store", "dead_prompts")) as store:
        assert "<script" not in diagnose(store)[0]._repr_html_()


def test_an_unknown_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = recorded(tmp_path / "store", "")
    assert main(["diagnose", "nope", "--store", str(folder)]) == 2
    assert "no run 'nope'" in capsys.readouterr().err
