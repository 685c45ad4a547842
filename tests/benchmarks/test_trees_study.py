"""The comparison of trees: what it counts, and that its page says what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import trees
from tests.benchmarks.trees import CASES, Grown, curves, spent, table, variety
from workbench.pipeline import Pipeline
from workbench.store import Writer
from workbench.testing.scripted import pool_of, rollouts_of
from workbench.types import Advantage, Plan, Resume, Step

PAGE = Path(__file__).parents[2] / "docs/results/trees.md"


def step_of(rows):
    plan = Plan(np.arange(2), [2, 2])
    none = np.full(len(rows), "", object)
    return Step(1, np.arange(2), plan, rows, Advantage.start(rows), none, none)


def test_shared_tokens_are_spent_once():
    rows = rollouts_of([[1, 0], [1, 1]])
    rows = rows.with_(
        length=np.array([5, 6, 4, 4]),
        parent=np.array(["", rows.id[0], "", "elsewhere"], object),
        fork_at=np.array([-1, 3, -1, 2]),
    )
    step = step_of(rows)
    assert spent(step, {}) == {"generated": 16, "kept": 16, "flat_equivalent": 19, "pruned": 0, "n_kept": 4}
    step.plan.start[1] = Resume("0:p1:0")
    assert spent(step, {"0:p1:0": 1})["generated"] == 5 + 3 + 3 + 3


def test_what_was_given_up_is_counted_as_the_store_counts_it(tmp_path):
    rows = rollouts_of([[1, 0], [None, 1]])
    ends = np.array(["stop", "aborted", "pruned", "stop"], object)
    rows = rows.with_(length=np.array([5, 6, 4, 4]), finish=ends, step=np.ones(4, np.int64))
    fate = np.array(["trained", "discarded", "pruned", "trained"], object)
    step = replace(step_of(rows), fate=fate)
    with Writer(tmp_path, {}, pool_of(2), run="a") as writer:
        writer.append(step)
    account = spent(step, {})
    assert account == {"generated": 19, "kept": 9, "pruned": 10, "flat_equivalent": 9, "n_kept": 2}
    assert trees._confirmed(str(tmp_path), "cut", account) == 0.0
    with pytest.raises(RuntimeError, match="cut: counted"):
        trees._confirmed(str(tmp_path), "cut", account | {"kept": 8})


def test_variety_of_a_step():
    rows = rollouts_of([[1, 0], [1, 1]])
    rows = rows.with_(answer=np.array(["4", "5", "7", "7"], object))
    assert variety(step_of(rows)).tolist() == [2, 3, 2, 1, 1]  # two answers and one; of two groups one is mixed
    rows = rows.with_(answer=np.array(["4", "4", "7", "7"], object), correct=np.array([1, np.nan, 0, 0]))
    assert variety(step_of(rows)).tolist() == [2, 2, 1, 0, 0]  # a group of one judged rollout cannot be mixed


@pytest.mark.parametrize("case", CASES)
def test_pipelines_can_be_read_and_flat_is_among_them(case):
    made = {label: Pipeline.parse(text) for label, text in CASES[case].pipelines.items()}
    assert made["flat"].text == "grpo"


def test_a_run_is_counted_by_its_store():
    made, curve = trees.grow(CASES["tiny"]._replace(tokens=150), "branchgrpo", 0)
    assert made.generated == curve[-1][0] >= 150
    assert made.generated == made.kept < made.flat_equivalent
    assert (made.steps, len(curve)) == (1, 2)
    assert 0 < made.start < 1


def test_without_a_store_the_run_is_the_same():
    case = CASES["tiny"]._replace(tokens=150)
    made, bare = (trees.grow(case, "latr", 0, store=store)[0] for store in (True, False))
    assert np.isnan(bare.spared)
    same = [n for n in Grown._fields if n not in ("spared", "seconds")]
    assert [getattr(made, n) for n in same] == [getattr(bare, n) for n in same]


def test_table_compares_with_flat():
    row = dict.fromkeys(Grown._fields, 1.0)
    runs = {
        "flat": {"rows": [list((row | {"score": s}).values()) for s in (0.4, 0.5)]},
        "tree": {"rows": [list((row | {"score": s, "flat_equivalent": 1.5}).values()) for s in (0.5, 0.6)]},
    }
    lines = table({"columns": Grown._fields, "runs": runs}).splitlines()
    assert lines[2].startswith("| `flat` | 0.450 |  |  | 1.00 | 1.00 |")
    assert "| `tree` | 0.550 | +0.100 (+0.100 to +0.100) |" in lines[3]
    assert "| 1.50 | +50% |" in lines[3]


def test_the_page_shows_what_was_measured():
    text = PAGE.read_text()
    found = list(PAGE.parent.glob("trees-*.json"))
    assert found
    for path in found:
        data = json.loads(path.read_text())
        assert f"<!-- table: {path.stem} -->\n{table(data)}\n<!-- end -->" in text
        assert curves(data) in text
