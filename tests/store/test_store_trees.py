"""Trees: what goes in comes out, the laws are held, and shared tokens count once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_steps import made_pool, made_step

from workbench.numerics.trees import Segment, derived, subtree_values, token_account
from workbench.pipeline.fates import fates
from workbench.store import LedgerError, Store, StoreError, Writer
from workbench.store.rows import trees
from workbench.types import Advantage, Plan, Rollouts, Step

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/tree-store.json").read_text())["cases"]
TREES = {
    c["name"]: [Segment(**n) for n in c["input"]["nodes"]]
    for c in GOLDEN
    if any(n.get("kind") == "prompt" for n in c["input"].get("nodes", ()))
}


def step_of(segments, number: int = 1, ids=None) -> tuple[Step, dict]:
    """A step with one row for each path of the tree, and the tree's columns."""
    above = {s.parent for s in segments}
    ends = [s for s in segments if s.parent is not None and (s.id not in above or s.id in derived(segments).leaves)]
    by_id = {s.id: s for s in segments}
    plan = Plan(np.array([1]), np.array([len(ends)]), step=number)
    rows = Rollouts.of_plan(plan, made_pool(4))

    def length(s):
        own = s.n_tokens if s.kind in ("model", "probe") else 0
        return own + (length(by_id[s.parent]) if s.parent else 0)

    reward = np.array([np.nan if s.reward is None else s.reward for s in ends])
    finish = np.array(["pruned" if s.status != "live" else "stop" for s in ends], object)
    rows = rows.with_(length=np.array([length(s) for s in ends]), reward=reward, correct=reward, finish=finish,
                      purpose=np.array(["probe" if s.kind == "probe" else "train" for s in ends], object))  # fmt: skip
    row = {s.id: i for i, s in enumerate(ends)}
    columns = {
        "node_id": [s.id for s in segments], "tree_id": ["t"] * len(segments), "parent_id": [s.parent for s in segments],
        "kind": [s.kind for s in segments], "n_tokens": [s.n_tokens for s in segments],
        "behaviour_logprob": [s.logprob for s in segments], "reward": [s.reward for s in segments],
        "status": [s.status for s in segments], "duplicate_of": [s.duplicate_of for s in segments],
        "row": [row.get(s.id, -1) for s in segments],
    }  # fmt: skip
    advantage = Advantage.start(rows)
    fate, reason = fates(rows, advantage)
    return Step(number, np.array([1]), plan, rows, advantage, fate, reason), columns


def recorded(folder, step, **beside) -> Store:
    with Writer(folder, {}, made_pool(4), run="a") as writer:
        writer.append(step, **beside)
    return Store.open(folder)


def stored(store) -> list[Segment]:
    rows = store.sql("SELECT * FROM nodes")
    return [
        Segment(r["node_id"], r["parent_id"], r["kind"], r["n_tokens"], r["behaviour_logprob"], r["reward"], r["status"],
                r["duplicate_of"])
        for r in rows.to_pylist()
    ]  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_a_tree_comes_back_with_all_that_follows_from_it(tmp_path, name):
    segments = TREES[name]
    step, nodes = step_of(segments)
    with recorded(tmp_path, step, nodes=nodes) as store:
        back = stored(store)
        rows = {r["node_id"]: r for r in store.sql("SELECT * FROM nodes").to_pylist()}
        spent = store.sql("SELECT sum(length - inherited) AS n FROM rollouts")["n"][0].as_py()
        assert store.sql("SELECT bool_and(balanced) AS ok FROM ledger")["ok"].to_pylist() == [True]
        assert store.ask("tree_of_group", group=0, step=1).num_rows >= 1
    assert [s._replace(status="") for s in back] == [s._replace(status="") for s in segments]
    assert derived(back) == derived(segments) and token_account(back) == token_account(segments)
    for place, value in zip(derived(segments).rows, subtree_values(segments), strict=True):
        assert all(rows[place.id][k] == getattr(place, k) for k in ("segment_depth", "fork_depth", "token_start"))
        assert (rows[place.id]["n_leaves"], rows[place.id]["value"]) == (value.n_leaves, value.value)
    account = token_account(segments)
    assert spent == account.generated + account.probe
    assert {r["prompt_id"] for r in rows.values()} == {"p0001"}


@st.composite
def forests(draw):
    nodes = [Segment("p", None, "prompt", draw(st.integers(0, 9)))]
    for i in range(draw(st.integers(1, 14))):
        parents = [n.id for n in nodes if n.kind != "probe"]
        kind = draw(st.sampled_from(["model", "model", "model", "tool", "feedback", "probe"]))
        status = draw(st.sampled_from(["live", "live", "live", "pruned", "discarded"]))
        reward = draw(st.sampled_from([None, 0.0, 1.0]))
        nodes.append(
            Segment(f"n{i}", draw(st.sampled_from(parents)), kind, draw(st.integers(0, 9)), -1.0, reward, status)
        )
    return nodes


@given(forests())
@settings(max_examples=100, deadline=None)
def test_every_generated_token_is_booked_to_exactly_one_rollout(segments):
    from workbench.store.rows import ledger

    step, nodes = step_of(segments)
    seen = trees.Forest(1, nodes, step.rollouts).counted_once(ledger.origins(1, step.rollouts, step.plan, {}))
    account = token_account(segments)
    assert int((step.rollouts.length - seen.inherited).sum()) == account.generated + account.probe
    assert (seen.inherited >= 0).all() and (seen.tokens >= 0).all()


def test_flat_rollouts_are_trees_without_a_row_of_their_own(tmp_path):
    pool = made_pool(8)
    step = made_step(1, pool, np.random.default_rng(0))
    with Writer(tmp_path, {}, pool, run="a") as writer:
        writer.append(step)
    with Store.open(tmp_path) as store:
        assert store.sql("SELECT count(*) AS n FROM nodes")["n"].to_pylist() == [0]
        found = store.sql('SELECT * FROM trees WHERE group_id = 1 ORDER BY segment_depth, "row"').to_pylist()
    mine = step.rollouts.take(step.rollouts.group == 1)
    reward = [None if np.isnan(r) else r for r in mine.reward]
    leaves = zip(mine.length.tolist(), reward, strict=True)
    wanted = [
        Segment("p", None, "prompt"),
        *(Segment(f"r{i}", "p", "model", n, None, r) for i, (n, r) in enumerate(leaves)),
    ]
    for row, segment, place, value in zip(found, wanted, derived(wanted).rows, subtree_values(wanted), strict=True):
        assert (row["kind"], row["status"], row["reward"]) == (segment.kind, "live", segment.reward)
        assert row["n_tokens"] == (None if segment.kind == "prompt" else segment.n_tokens)
        assert all(row[k] == getattr(place, k) for k in ("segment_depth", "fork_depth", "token_start"))
        assert row["n_leaves"] == value.n_leaves and row["value"] == pytest.approx(value.value)
    assert [r["node_id"] for r in found[1:]] == mine.id.tolist()
    assert {r["parent_id"] for r in found[1:]} == {found[0]["node_id"]}


FORK = [Segment("p", None, "prompt", 20), Segment("a", "p", "model", 10), Segment("b", "a", "model", 5, None, 1.0),
        Segment("c", "a", "model", 6, None, 0.0)]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parent_id": [None, "b", "a", "a"]}, "parent 'b' of segment 'a' must stand before it"),
        ({"token_start": [0, 20, 30, 31]}, "node c says it starts at token 31, but its parent ends at 30"),
        ({"n_tokens": [20, 10, 5, 7]}, "rollout 1:p0001:1 has 16 tokens, the path to its node c has 17"),
        ({"row": [-1, -1, 0, -1]}, "the 6 tokens of node c are on the path of no rollout"),
        ({"row": [-1, -1, 1, 1]}, "rollout 1:p0001:1 ends in 2 nodes"),
        ({"row": [-1, -1, 0, 9]}, "a node names rollout row 9 of 2"),
        ({"node_id": ["p", "a", "b", "b"]}, "node ids must be unique"),
        ({"kind": ["prompt", "model", "model", "human"]}, "kind 'human' of a node is not one of prompt, model"),
        ({"parent_id": [None, "p", "a", None]}, "a tree has one root"),
        ({"extra": [0, 0, 0, 0]}, "table nodes has no column extra to give; it takes node_id, tree_id"),
        ({"kind": ["prompt"]}, "columns of nodes differ in length"),
    ],
)
def test_trees_that_break_a_law_are_refused_and_not_recorded(tmp_path, change, message):
    step, nodes = step_of(FORK)
    with Writer(tmp_path, {}, made_pool(4), run="a") as writer:
        with pytest.raises((LedgerError, StoreError), match=message):
            writer.append(step, nodes=nodes | change)
        writer.append(step, nodes=nodes)
    with Store.open(tmp_path) as store:
        assert store.sql("SELECT row, inherited, length FROM rollouts ORDER BY row").to_pylist() == [
            {"row": 0, "inherited": 0, "length": 15}, {"row": 1, "inherited": 10, "length": 16},
        ]  # fmt: skip


def test_decisions_are_kept_with_their_inputs_and_thinned_where_many(tmp_path):
    step, nodes = step_of(FORK)
    many = 3000
    decisions = {
        "node_id": ["a"] * many + ["1:p0001:0"], "kind": ["fork"] * many + ["prune"], "at_token": [*range(many), 3],
        "outcome": ["fork", "fork"] + ["no"] * (many - 2) + ["prune"],
        "inputs": [{"entropy": i / many} for i in range(many)] + [{"confidence": 0.25}],
    }  # fmt: skip
    with recorded(tmp_path, step, nodes=nodes, decisions=decisions) as store:
        rows = store.sql(
            "SELECT outcome, count(*) AS n, round(sum(weight)) AS tests FROM decisions GROUP BY 1 ORDER BY 1"
        )
        last = store.sql("SELECT * FROM decisions ORDER BY position DESC LIMIT 1").to_pylist()[0]
        assert store.sql("SELECT count(*) AS n FROM decisions")["n"][0].as_py() <= trees.MOST_DECISIONS
    assert rows.select(["outcome", "tests"]).to_pylist() == [
        {"outcome": "fork", "tests": 2}, {"outcome": "no", "tests": many - 2}, {"outcome": "prune", "tests": 1},
    ]  # fmt: skip
    assert (last["node_id"], last["at_token"], dict(last["inputs"])) == ("1:p0001:0", 3, {"confidence": 0.25})
    with Writer(tmp_path, {}, made_pool(4)) as writer, pytest.raises(StoreError, match="names 'z', which is neither"):
        writer.append(step, nodes=nodes, decisions={"node_id": ["z"], "kind": ["fork"], "outcome": ["no"]})


def test_scores_of_nodes_stand_beside_those_of_rollouts(tmp_path):
    step, nodes = step_of(FORK)
    scores = {"node_id": ["a", "a", "b"], "estimator": ["portool"] * 3, "term": ["fork", "fork", "step"],
              "value": [0.5, -0.5, 1.0], "row": [0, 1, -1]}  # fmt: skip
    with recorded(tmp_path, step, nodes=nodes, scores=scores) as store:
        rows = store.sql(
            "SELECT node_id, term, value, rollout_id FROM advantages WHERE node_id IS NOT NULL ORDER BY value"
        )
        assert rows.to_pylist() == [
            {"node_id": "a", "term": "fork", "value": -0.5, "rollout_id": "1:p0001:1"},
            {"node_id": "a", "term": "fork", "value": 0.5, "rollout_id": "1:p0001:0"},
            {"node_id": "b", "term": "step", "value": 1.0, "rollout_id": None},
        ]
        assert len(next(store.steps("a")).advantage.value) == 2
    with Writer(tmp_path, {}, made_pool(4)) as writer, pytest.raises(StoreError, match="'final' belongs to rollouts"):
        writer.append(replace(step, step=1), nodes=nodes, scores=scores | {"term": ["final"] * 3})
