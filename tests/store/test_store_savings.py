"""What trees saved is computed from what was recorded: literal trees, and the law that every token is in one place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from made_steps import made_pool, made_step
from test_store_trees import FORK, TREES, forests, recorded, step_of

from workbench.numerics.trees import Segment, token_account
from workbench.store import Store, Writer
from workbench.types import Advantage, Plan, Rollouts, Step

PARTS = ("generated", "kept", "pruned", "discarded", "probe", "flat_equivalent", "saved")


def asked(folder, segments, **rows):
    step, nodes = step_of(segments)
    with recorded(folder, step, nodes=nodes) as store:
        return store.ask("savings_by_group").to_pylist(), store.ask("savings_by_step").to_pylist()


def parts(row):
    return [row[name] for name in PARTS]


def test_a_fork_saves_its_shared_prefix(tmp_path):
    groups, steps = asked(tmp_path, FORK)  # 10 shared tokens, then 5 and 6
    assert parts(groups[0]) == [21, 21, 0, 0, 0, 31, 10]
    assert groups[0]["sharing"] == pytest.approx(31 / 21)
    assert (groups[0]["n_kept"], groups[0]["n_lost"], groups[0]["spared"]) == (2, 0, 0)
    assert parts(steps[0]) == parts(groups[0])


def test_what_was_cut_counts_against_the_saving_and_its_shared_prefix_is_kept(tmp_path):
    cut = [
        *FORK,
        Segment("d", "a", "model", 2, None, None, "pruned"),
        Segment("e", "p", "model", 4, status="discarded"),
    ]
    groups, _ = asked(tmp_path, cut)
    assert parts(groups[0]) == [27, 21, 2, 4, 0, 31, 4]
    assert groups[0]["n_lost"] == 2
    assert groups[0]["spared"] == 2 * 15.5 - (12 + 4)  # kept rollouts are 15.5 long; the others got to 12 and 4


def test_probes_count_against_the_saving(tmp_path):
    groups, _ = asked(tmp_path, [*FORK, Segment("q", "a", "probe", 3, None, 1.0)])
    assert sum(g["generated"] for g in groups) == 24
    assert sum(g["probe"] for g in groups) == 3
    assert sum(g["saved"] for g in groups) == 31 - 24


def test_flat_rollouts_save_nothing(tmp_path):
    pool = made_pool(8)
    step = made_step(1, pool, np.random.default_rng(0))
    with Writer(tmp_path, {}, pool, run="a") as writer:
        writer.append(step)
    with Store.open(tmp_path) as store:
        rows = store.ask("savings_by_group").to_pylist()
        total = store.sql("SELECT sum(length - inherited) AS n FROM rollouts WHERE origin IN ('generated', 'carried')")
    assert sum(r["generated"] for r in rows) == total["n"][0].as_py()
    for r in rows:
        assert r["generated"] == r["kept"] + r["pruned"] + r["discarded"] + r["probe"]
        assert r["sharing"] == 1


def rolled(finish, length, *, number=1, ids=None, plan=None):
    plan = Plan(np.array([1]), np.array([len(length)]), step=number) if plan is None else plan
    rows = Rollouts.of_plan(plan, made_pool(4))
    done = np.where(np.array(finish) == "stop", 1.0, np.nan)
    rows = rows.with_(length=np.array(length), finish=np.array(finish, object), reward=done, correct=done)
    if ids is not None:
        rows = rows.with_(id=np.array(ids, object), step=np.array([int(i[0]) for i in ids]))
    fate = np.array([{"stop": "trained", "aborted": "discarded"}.get(f, f) for f in finish], object)
    reason = np.full(len(rows), "", object)
    return Step(number, np.array([1]), plan, rows, Advantage.start(rows), fate, reason)


def test_flat_pruning_and_what_it_spared(tmp_path):
    with recorded(tmp_path, rolled(["stop", "stop", "pruned", "aborted"], [10, 20, 5, 6])) as store:
        row = store.ask("savings_by_step").to_pylist()[0]
    assert parts(row) == [41, 30, 5, 6, 0, 30, -11]
    assert row["spared"] == 2 * 15 - 11


def test_carried_tokens_count_in_the_step_that_made_them(tmp_path):
    with Writer(tmp_path, {}, made_pool(4), run="a") as writer:
        writer.append(rolled(["stop", "carried"], [10, 7]))
        writer.append(rolled(["stop", "stop"], [9, 12], number=2, ids=["2:p0001:0", "1:p0001:1"]))
    with Store.open(tmp_path) as store:
        first, second = store.ask("savings_by_step").to_pylist()
    assert parts(first) == [17, 17, 0, 0, 0, 17, 0]
    assert parts(second) == [14, 14, 0, 0, 0, 14, 0]  # 9, and the 5 that were missing of 12


@pytest.mark.parametrize("name", TREES)
def test_the_store_says_of_a_tree_what_the_pure_function_says(tmp_path, name):
    groups, _ = asked(tmp_path, TREES[name])
    agrees(groups, token_account(TREES[name]))


def agrees(groups, account):
    total = {name: sum(g[name] for g in groups) for name in PARTS}
    assert total["generated"] == account.generated + account.probe  # the account keeps probes apart
    assert total["generated"] == total["kept"] + total["pruned"] + total["discarded"] + total["probe"]
    assert (total["kept"], total["probe"], total["flat_equivalent"]) == (
        account.kept,
        account.probe,
        account.flat_equivalent,
    )
    assert total["discarded"] == account.discarded
    assert total["saved"] == total["flat_equivalent"] - total["generated"]


@given(forests())
@settings(max_examples=10, deadline=None)
def test_any_tree_adds_up(tmp_path_factory, segments):
    groups, _ = asked(tmp_path_factory.mktemp("tree"), segments)
    agrees(groups, token_account(segments))
