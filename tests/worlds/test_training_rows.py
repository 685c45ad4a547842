"""How a shared segment was trained is recorded: once (a row per node), or with every rollout through it (a row per leaf)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from workbench.numerics.forks import nodes_of, trained_nodes, trees_of
from workbench.numerics.roles import own_tokens, without_hints
from workbench.store import Store

from .test_equivalence import ACTIVE, run_of
from .test_orders import steps_of

PER_LEAF = ("echo", "ettrl", "latr")
PER_NODE = ("branchgrpo", "trace")


@pytest.mark.parametrize("slug", [*PER_NODE, *PER_LEAF])
def test_the_store_tells_how_shared_tokens_were_trained(task, tmp_path, slug):
    _, made = run_of(task, f"grpo, {ACTIVE[slug]}", tmp_path)
    with Store.open(tmp_path) as store:
        rows = store.ask("training_rows").to_pylist()
        nodes = store.sql("SELECT * FROM nodes WHERE kind = 'model' AND n_tokens > 0").to_pylist()
    assert {r["row_per"] for r in rows} - {None} == {"node" if slug in PER_NODE else "leaf"}
    for r in rows:
        assert 0 <= r["trained"] <= r["shared"]
        assert r["row_per"] is None or (r["rows_per_token"] == 1) == (slug in PER_NODE)
    for step in made:
        mine = [n for n in nodes if n["step"] == step.step]
        in_trees = np.isin(step.rollouts.id, [n["node_id"].rpartition("@")[0] for n in mine])
        acting = _acting(step)[np.repeat(in_trees, step.rollouts.length)].sum()
        told = sum(n["n_tokens"] * n["trained_rows"] for n in mine)
        assert told == acting if slug in PER_NODE else told >= acting > 0  # echo scales some tokens to zero
    for n in nodes:
        assert n["trained"] == (n["trained_rows"] > 0)
        assert (n["untrained_reason"] == "") == n["trained"]
        assert n["trained_rows"] <= n["trained_leaves"]
        assert n["trained_leaves"] < 2 or (n["trained_rows"] <= 1) == (slug in PER_NODE) or slug == "echo"


def _acting(step):
    a = step.advantage
    row = np.repeat(np.arange(len(step.rollouts)), step.rollouts.length)
    return ((a.value[row] if a.tokens is None else a.tokens.values) != 0) & (step.fate == "trained")[row]


def test_a_segment_that_was_not_trained_says_why(task, tmp_path):
    _, made = run_of(task, f"grpo, {ACTIVE['latr']}", tmp_path / "a")
    step = next(s for s in made if "pruned" in s.fate and "trained" in s.fate)
    told = trees_of(step)
    why = dict(zip(told["node_id"], told["untrained_reason"], strict=True))
    for k in np.flatnonzero(step.fate == "pruned"):
        ends = [i for i, row in zip(told["node_id"], told["row"], strict=True) if row == k]
        assert {why[i] for i in ends} <= {"pruned", "all below", None}
    nodes = nodes_of(step.rollouts, step.fate)
    flat = replace(step, advantage=replace(step.advantage, value=np.zeros(len(step.fate)), tokens=None))
    assert set(trained_nodes(nodes, flat)["trained_rows"]) == {0, None}
    assert "zero_advantage" in trained_nodes(nodes, flat)["untrained_reason"]
    light = replace(step, advantage=replace(step.advantage, weight=np.zeros(len(step.fate))))
    assert set(trained_nodes(nodes, light)["trained_rows"]) == {0, None}


def test_tokens_of_hints_are_no_part_of_a_segment():
    for step in steps_of("grpo, adhint, branchgrpo(every=2)"):
        told = trees_of(step)
        bare = replace(step, rollouts=without_hints(step.rollouts), advantage=own_tokens(step.advantage, step.rollouts))
        assert told == trees_of(bare)
        assert max(n or 0 for n in told["trained_rows"]) >= 1


def test_nothing_is_told_of_steps_without_trees():
    assert all(trees_of(step) is None for step in steps_of("grpo", steps=1))
