"""What forked and cut rollouts cost, from their rows alone: the nodes, the store and the count of a run agree on any tree."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from made_steps import made_pool
from test_store_trees import recorded

from tests.benchmarks.trees import spent
from workbench.numerics.forks import nodes_of
from workbench.pipeline.fates import fates
from workbench.types import Advantage, Plan, Ragged, Rollouts, Step


def grown(rows: list[tuple[int, int, int, str]]) -> Step:
    """A step of (parent, fork_at, own tokens, finish); parent -1 for a root, a prompt each. Every token has its own id."""
    roots = [i for i, (parent, *_) in enumerate(rows) if parent < 0]
    plan = Plan(np.arange(len(roots)), np.ones(len(roots), np.int64), step=1)
    of, paths, made = [], [], 0
    for parent, at, own, _ in rows:
        of.append(roots.index(len(of)) if parent < 0 else of[parent])
        above = [] if parent < 0 else paths[parent][:at]
        paths.append([*above, *range(made, made + own)])
        made += own
    base = Rollouts.of_plan(plan, made_pool(len(roots) + 1)).take(np.array(of))
    finish = np.array([f for *_, f in rows], dtype=object)
    done = np.where(np.isin(finish, ("stop", "aborted")), 1.0, np.nan)
    rollouts = base.with_(
        id=np.array([f"r{i}" for i in range(len(rows))], dtype=object),
        parent=np.array(["" if p < 0 else f"r{p}" for p, *_ in rows], dtype=object),
        fork_at=np.array([-1 if p < 0 else at for p, at, *_ in rows]),
        group=np.array(of), length=np.array([len(p) for p in paths]), finish=finish, reward=done, correct=done,
        tokens=Ragged.of(paths, np.int32), extra={"cut_reason": np.where(finish == "stop", "", "told").astype(object)},
    )  # fmt: skip
    advantage = Advantage.start(rollouts).drop(finish == "aborted", "told")
    fate, reason = fates(rollouts, advantage)
    return Step(1, np.arange(len(roots)), plan, rollouts, advantage, fate, reason)


@st.composite
def forks(draw: st.DrawFn) -> Step:
    ends = st.sampled_from(["stop", "stop", "pruned", "pruned", "aborted", "carried"])
    rows = [(-1, -1, draw(st.integers(0, 6)), draw(ends)) for _ in range(draw(st.integers(1, 2)))]
    lengths = [own for _, _, own, _ in rows]
    for _ in range(draw(st.integers(0, 7))):
        parent = draw(st.integers(0, len(rows) - 1))
        at = draw(st.integers(max(rows[parent][1], 0), lengths[parent]))
        own = draw(st.integers(0, 4))
        rows.append((parent, at, own, draw(ends)))
        lengths.append(at + own)
    return grown(rows)


def asked(folder, step: Step) -> dict[str, int]:
    with recorded(folder, step, nodes=nodes_of(step.rollouts, step.fate)) as store:
        assert store.sql("SELECT bool_and(balanced) AS ok FROM ledger")["ok"].to_pylist() == [True]
        rows = store.ask("savings_by_group").to_pylist()
    return {
        name: sum(r[name] for r in rows) for name in ("generated", "kept", "pruned", "discarded", "flat_equivalent")
    }


def tokens(rows: Rollouts, which: np.ndarray) -> set[int]:
    return set(rows.tokens.take(which).values.tolist())


def agrees(folder, step: Step) -> None:
    r, lost = step.rollouts, np.isin(step.fate, ("pruned", "discarded"))
    said, counted = asked(folder, step), spent(step, {})
    kept = tokens(r, ~lost)
    assert said["generated"] == counted["generated"] == len(tokens(r, np.ones(len(r), bool)))
    assert said["kept"] == counted["kept"] == len(kept)
    assert said["pruned"] + said["discarded"] == counted["pruned"]
    assert said["flat_equivalent"] == counted["flat_equivalent"] == int(r.length[~lost].sum())
    discarded = tokens(r, step.fate == "discarded") - tokens(r, step.fate != "discarded")
    assert said["discarded"] == len(discarded)


def test_tokens_below_which_all_was_cut_are_cut(tmp_path):
    step = grown([(-1, -1, 10, "pruned"), (0, 6, 3, "pruned"), (-1, -1, 4, "stop")])
    agrees(tmp_path, step)
    assert asked(tmp_path / "again", step) == {
        "generated": 17, "kept": 4, "pruned": 13, "discarded": 0, "flat_equivalent": 4
    }  # fmt: skip


@given(forks())
@settings(max_examples=15, deadline=None)
def test_any_tree_of_rows_adds_up(tmp_path_factory, step):
    agrees(tmp_path_factory.mktemp("forks"), step)
