"""The study of selectors and allocators: what it counts, how it compares, and its page."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import study as studies
from tests.benchmarks import study_page
from tests.benchmarks.study import STEPS, Case, Seed, cases, compared, counted, play, study
from tests.benchmarks.study_answer_time import RULES, solve
from workbench.pipeline import Pipeline, catalog, run
from workbench.types import Budget
from workbench.worlds.sim.world import SimWorld

BINARY = studies.WORLDS["binary"]


def made(**changes: float) -> Seed:
    plain = dict.fromkeys(Seed._fields, 0.0) | {"until": 1000.0, "updates": 120.0}
    return Seed(**plain | changes)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "STEPS", 6)
    monkeypatch.setattr(studies, "PROMPTS", 120)


def test_every_selector_and_allocator_the_simulation_serves_is_in_it() -> None:
    there = set(cases())
    assert {"uniform", "half batch", "oracle 1/2", "dps", "cures", "sgpo", "gdro", "mssr", "v0", "xrpo"} <= there
    assert "grpo" not in there
    for slug in {*catalog.find("select"), *catalog.find("allocate")}:
        method = catalog.make(slug)
        assert slug in there or method.needs - SimWorld.offers


def test_everything_generated_counts_whatever_it_was_for() -> None:
    world = SimWorld(n_prompts=64, n_eval=4, graded=False)
    _, step = next(run(Pipeline.parse("grpo, cures"), world, Budget(16, 128), steps=1))
    rollouts, tokens, train, groups, mixed = counted(step)
    assert (rollouts, train, groups, mixed) == (len(step.rollouts), 0, 0, 0)  # a first look: probes alone
    assert tokens == step.rollouts.length.sum() > 0


def test_replayed_rollouts_are_not_generated() -> None:
    world = SimWorld(n_prompts=64, n_eval=4, graded=False)
    *_, (_, step) = run(Pipeline.parse("grpo, dots_rr"), world, Budget(8, 64), steps=6)
    assert (step.rollouts.ask < 0).any()
    assert counted(step)[0] == (step.rollouts.ask >= 0).sum() < len(step.rollouts)


@pytest.mark.usefixtures("small")
def test_a_method_equal_to_uniform_shows_no_difference() -> None:
    same = Case(lambda world: Pipeline.parse("grpo"))
    rows = compared(study({"uniform": same, "again": same}, BINARY, (0, 1, 2)))["again"]
    assert rows["gain"][:3] == rows["gain_tokens"][:3] == rows["mixed"][:3] == (0.0, 0.0, 0.0)
    assert rows["until"].mean == 1.0


@pytest.mark.usefixtures("small")
def test_a_run_goes_on_until_both_amounts_are_spent() -> None:
    case = Case(lambda world: Pipeline.parse("grpo, dps"), belief="dps")
    got = play(case, 0, BINARY, rollouts=1000, tokens=9000)
    assert got.rollouts[-1] >= 1000
    assert got.tokens[-2] < 9000 <= got.tokens[-1]
    assert got.at(got.rollouts, 0) == 0
    assert got.at(got.rollouts, got.rollouts[3]) == pytest.approx(got.skill[3] - got.start[0])
    assert (got.mixed <= got.groups).all()


def test_knowing_the_pass_rates_makes_mixed_groups() -> None:
    oracle = cases()["oracle 1/2"].pipeline
    world = SimWorld(n_prompts=400, n_eval=4, graded=False)
    for _, step in run(oracle(world), world, Budget(16, 128), steps=3):
        _, _, _, groups, mixed = counted(step)
        assert groups == 16
        assert mixed >= 14


def test_a_target_that_was_not_reached_counts_as_the_whole_run() -> None:
    total = STEPS * studies.BUDGET.rollouts
    rows = {"uniform": [made(), made()], "slow": [made(until=np.nan), made(until=2000.0)]}
    row = compared(rows)["slow"]
    assert row["until"].mean == pytest.approx(np.sqrt(total / 1000 * 2))
    assert row["reached"].mean == 1


def test_the_page_says_what_the_numbers_say(tmp_path: Path) -> None:
    runs = {
        "uniform": [list(made(gain=0.3 + 0.01 * s)) for s in range(3)],
        "a<b": [list(made(gain=0.4 + 0.01 * s + 0.001 * (s == 1), until=500.0)) for s in range(3)],
    }
    kept = {"machine": "one core", "date": "2026-11-28", "seeds": 3, "columns": Seed._fields, "runs": runs}
    (tmp_path / "selection-binary.json").write_text(json.dumps(kept))
    (tmp_path / "selection-findings.md").write_text("## Findings\n\nNone yet.\n")
    study_page.write(tmp_path)
    page = (tmp_path / "selection.md").read_text()
    assert "| `a<b` | **+0.100 [+0.099, +0.102]** |" in page
    assert "0.50 [0.50, 0.50]" in page
    assert "None yet." in page
    drawn = ElementTree.fromstring((tmp_path / "selection.svg").read_text())
    assert any(node.text == "a<b" for node in drawn.iter())


def test_the_published_page_is_made_from_the_kept_numbers(tmp_path: Path) -> None:
    published = Path(__file__).parents[2] / "docs" / "results"
    for path in published.glob("selection*"):
        (tmp_path / path.name).write_text(path.read_text())
    study_page.write(tmp_path)
    for name in ("selection.md", "selection.svg"):
        assert (tmp_path / name).read_text() == (published / name).read_text(), (
            "run: python -m tests.benchmarks study --case page"
        )


@pytest.mark.parametrize("rule", RULES)
def test_an_allocation_at_test_time_keeps_the_number_of_branches(rule: str) -> None:
    rng = np.random.default_rng(0)
    score, x = rng.random(16), rng.standard_normal((16, 4))
    n = RULES[rule](score, x @ x.T / 4)
    assert n.sum() == 16
    assert solve(RULES[rule], np.random.default_rng(1)) == solve(RULES[rule], np.random.default_rng(1))
