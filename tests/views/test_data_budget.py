"""What the budget page reads: every rollout and token in one place, however often one looks."""

import pytest

from workbench.methods.dapo_dynamic_sampling import DapoDynamicSampling
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline
from workbench.store import Writer
from workbench.views.data.budget import OTHER, UNITS, asks, budget, decisions, kind, part
from workbench.views.data.run import Source


def read(store, run):
    source = Source(store)
    source.refresh(0)
    return source, source.run(run)


def test_the_ledger_holds_every_rollout_and_token_once(recording):
    rec = recording(Pipeline(Grpo(), DapoDynamicSampling())).go(6)
    source, data = read(recording.store, rec.run)
    found = budget(data)
    made = source.store.sql(
        "SELECT purpose = 'eval' AS eval, count(*) AS n, sum(length) AS tokens FROM rollouts GROUP BY ALL ORDER BY eval"
    ).to_pylist()
    assert (found.spent("rollouts"), found.spent("tokens")) == (made[0]["n"], made[0]["tokens"])
    assert (found.spent("rollouts", ("eval",)), found.spent("tokens", ("eval",))) == (made[1]["n"], made[1]["tokens"])
    for unit in UNITS:
        assert sum(found.stacks[unit].totals().values()) == found.spent(unit)
        assert found.cost.total(unit).sum() == found.spent(unit)
    assert {e.reason for e in found.ledger if e.kind == "dropped"} - {""}
    assert found.ledger[-1].kind == "evaluation"


def test_growing_with_the_run_gives_what_one_look_at_the_end_gives(recording):
    rec = recording()
    source, data = read(recording.store, rec.run)
    assert [e.kind for e in budget(data).ledger] == ["evaluation"]
    for _ in range(7):
        rec.go(1)
        source.refresh(0)
        budget(data)
    grown, once = budget(data), budget(read(recording.store, rec.run)[1])
    assert grown.ledger == once.ledger
    for name in ("asked", "savings"):
        one, other = vars(getattr(grown, name)), vars(getattr(once, name))
        assert {k: v.tolist() for k, v in one.items()} == {k: v.tolist() for k, v in other.items()}
    for one, other in zip(grown.cost, once.cost, strict=True):
        assert {k: v.tolist() for k, v in one.items()} == {k: v.tolist() for k, v in other.items()}
    assert grown.stacks["tokens"].totals() == once.stacks["tokens"].totals()


def test_asked_and_spent_are_told_by_step(recording):
    rec = recording().go(3)
    _, data = read(recording.store, rec.run)
    found = budget(data)
    assert found.asked.step.tolist() == [1, 2, 3]
    assert found.asked.asked.tolist() == [64] * 3
    assert found.asked.spent.tolist() == [64] * 3
    assert found.asked.prompts.tolist() == [8] * 3
    assert (found.asked.useful < 64).any()
    assert found.savings.saved.tolist() == [0, 0, 0]  # flat rollouts share nothing
    assert found.savings.generated.tolist() == found.savings.flat_equivalent.tolist() == found.asked.tokens.tolist()


def test_strata_sum_their_prompts(recording):
    rec = recording().go(3)
    _, data = read(recording.store, rec.run)
    cost, by = budget(data).cost, budget(data).by_stratum
    assert set(budget(data).strata) == set(data.prompts.stratum)
    assert by.total("rollouts").sum() == 3 * 64
    assert by.wasted("tokens").sum() == cost.wasted("tokens").sum() > 0


def test_kinds_and_parts():
    row = {"purpose": "train", "fate": "trained", "reason": "zero_advantage", "outcome": "none solved"}
    assert kind(row) == "zero advantage, none solved"
    assert kind({**row, "purpose": "probe", "fate": "dropped"}) == OTHER
    assert [part("train", "trained", False), part("train", "trained", True), part("train", "pruned", False)] == [
        "with signal", "zero advantage", "lost",
    ]  # fmt: skip
    assert part("profile", "dropped", False) == OTHER


def test_the_log_of_asks_is_paged_newest_first(recording):
    rec = recording().go(3)
    _, data = read(recording.store, rec.run)
    rows, total = asks(data, 0, 5, None)
    assert (len(rows), total) == (5, 24)
    assert [r["step"] for r in rows] == [3] * 5
    assert all(r["tried"] == r["n"] == 8 and 0 <= r["solved"] <= 8 and r["tokens"] > 0 for r in rows)
    more, _ = asks(data, 5, 5, None)
    assert [r["step"] for r in more] == [3, 3, 3, 2, 2]
    assert asks(data, 0, 50, 2)[1] == 8
    assert asks(data, 0, 50, 99) == ([], 0)


def test_the_log_of_tests_inside_rollouts(tmp_path):
    from workbench.worlds import SimWorld

    pool = SimWorld(n_prompts=12, seed=0).pool
    step = flat_step(pool)
    tests = {
        "node_id": step.rollouts.id[:3].tolist(), "at_token": [3, 5, 7], "kind": ["fork", "prune", "fork"],
        "inputs": [{"entropy": 2.5}, {"score": 0.1, "bar": 0.3}, {}], "outcome": ["fork:2", "cut", "no"],
    }  # fmt: skip
    with Writer(tmp_path, {}, pool, run="a") as writer:
        writer.append(step, decisions=tests)
    _, data = read(str(tmp_path), "a")
    assert budget(data).tests == {("fork", "fork:2"): 1, ("fork", "no"): 1, ("prune", "cut"): 1}
    rows, total = decisions(data, 0, 10, None, False)
    assert total == 3
    assert rows[0]["prompt_id"] in pool.ids
    assert dict(rows[1]["inputs"]) == {"score": 0.1, "bar": 0.3}
    assert [(r["kind"], r["outcome"], r["at_token"]) for r in decisions(data, 0, 10, 1, True)[0]] == [
        ("fork", "fork:2", 3), ("prune", "cut", 5),
    ]  # fmt: skip


def flat_step(pool):
    from workbench.pipeline import advance
    from workbench.types import Budget
    from workbench.worlds import SimWorld

    pipeline = Pipeline(Grpo())
    world = SimWorld(n_prompts=12, seed=0)
    return advance(pipeline, pipeline.init(pool), world, Budget(prompts=2, rollouts=8), step=1, seed=0)[1]


@pytest.mark.parametrize("unit", UNITS)
def test_a_run_that_was_never_stepped_has_an_empty_budget(recording, unit):
    rec = recording()
    _, data = read(recording.store, rec.run)
    assert budget(data).spent(unit) == 0
    assert budget(data).stacks[unit].totals() == {}
