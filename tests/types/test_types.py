from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.pipeline import Pipeline, run
from workbench.pipeline.catalog import make
from workbench.testing.scripted import ScriptedWorld, barren, equal, pool_of, rollouts_of
from workbench.types import Advantage, Budget, Draft, Plan, Pool, Ragged, Rollouts, Step

rows = st.lists(st.lists(st.integers(-9, 9), max_size=5), max_size=8)


@given(rows)
def test_ragged_keeps_its_rows(table: list) -> None:
    column = Ragged.of(table, np.int64)
    assert [r.tolist() for r in column.rows()] == table
    assert column.n_rows == len(table)
    assert column.lengths.tolist() == [len(r) for r in table]


@given(rows, st.randoms(use_true_random=False))
def test_taking_rows_of_a_ragged_column(table: list, random: object) -> None:
    column = Ragged.of(table, np.int64)
    index = [random.randrange(len(table)) for _ in range(3)] if table else []
    assert [r.tolist() for r in column.take(np.array(index, np.int64)).rows()] == [table[i] for i in index]
    mask = np.array([len(r) % 2 == 0 for r in table], bool)
    assert [r.tolist() for r in column.take(mask).rows()] == [r for r in table if len(r) % 2 == 0]


@given(rows, rows)
def test_joining_ragged_columns(one: list, two: list) -> None:
    both = Ragged.concat([Ragged.of(one, np.int64), Ragged.of(two, np.int64)])
    assert [r.tolist() for r in both.rows()] == one + two


def test_the_mean_of_an_empty_row_is_null() -> None:
    assert np.array_equal(Ragged.of([[1, 2], [], [4]], float).mean(), [1.5, np.nan, 4.0], equal_nan=True)
    assert Ragged.of([], float).mean().shape == (0,)


def test_pool_ids_are_unique_and_columns_fit() -> None:
    pool = pool_of(3)
    with pytest.raises(ValueError, match=r"\['p1'\] appear more than once"):
        pool.take(np.array([0, 1, 1]))
    with pytest.raises(ValueError, match="pool has 3 ids but 2 in column 'text'"):
        Pool(pool.ids, pool.text[:2], pool.answer, pool.prefix, pool.stratum)
    assert pool.take(np.array([2, 0])).ids.tolist() == ["p2", "p0"]
    assert repr(pool_of(4)) == "Pool(4 prompts: a 2, b 2)"


def test_a_budget_gives_every_prompt_a_rollout() -> None:
    with pytest.raises(ValueError, match="4 prompts and 3 rollouts"):
        Budget(prompts=4, rollouts=3)
    with pytest.raises(ValueError, match="0 prompts"):
        Budget(prompts=0, rollouts=3)


def test_plans_check_their_columns() -> None:
    with pytest.raises(ValueError, match="plan has 2 prompts but 1 in column 'n'"):
        Plan([0, 1], [3])
    with pytest.raises(ValueError, match="cannot ask for -1 rollouts"):
        Plan([0], [-1])


def test_joined_plans_miss_no_reason() -> None:
    both = Plan.concat([Plan([0], [2], why={"p": np.array([0.5])}), Plan([1, 2], [1, 1])])
    assert both.n_rollouts == 4
    assert np.array_equal(both.why["p"], [0.5, np.nan, np.nan], equal_nan=True)


def test_rollout_ids_name_step_prompt_and_ordinal() -> None:
    plan = Plan([1, 0, 1], [2, 1, 1], ordinal=np.array([0, 4, 2]), step=7)
    got = Rollouts.of_plan(plan, pool_of(2), version=3)
    assert got.id.tolist() == ["7:p1:0", "7:p1:1", "7:p0:4", "7:p1:2"]
    assert got.ask.tolist() == [0, 0, 1, 2]
    assert got.version.tolist() == [3, 3, 3, 3]
    probe = Plan([0], [1], purpose=np.array(["probe"], dtype=object), step=7)
    assert Rollouts.of_plan(probe, pool_of(2)).id.tolist() == ["probe-7:p0:0"]
    assert len(Rollouts.of_plan(Plan([], []), pool_of(2))) == 0


def sampled(n: list[int]) -> Rollouts:
    return ScriptedWorld(len(n)).sample(Plan(np.arange(len(n)), n, step=1))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_taking_and_joining_rollouts_keeps_every_column(n: list[int], random: object) -> None:
    rollouts = sampled(n)
    cut = random.randrange(len(rollouts) + 1)
    index = np.arange(len(rollouts))
    parts = [rollouts.take(index[:cut]), rollouts.take(index[cut:])]
    joined = Rollouts.concat(parts)
    assert equal(
        vars(joined.take(index)) | {"rewards": dict(joined.rewards), "extra": {}},
        vars(rollouts) | {"rewards": dict(rollouts.rewards), "extra": {}},
    )


def test_joining_keeps_columns_that_only_some_rollouts_have() -> None:
    judged = sampled([2]).with_(
        rewards={"format": np.array([1.0, 0.0])},
        extra={"steps": Ragged.of([[1.0], [2.0, 3.0]], float), "hint": np.array(["a", "b"], object)},
    )
    cut = sampled([1]).with_(rewards={})
    joined = Rollouts.concat([cut, judged, cut])
    np.testing.assert_array_equal(joined.rewards["format"], [np.nan, 1, 0, np.nan])
    assert [row.tolist() for row in joined.extra["steps"].rows()] == [[], [1.0], [2.0, 3.0], []]
    assert joined.extra["hint"].tolist() == ["", "a", "b", ""]


def test_rollouts_with_and_without_tokens_are_not_joined() -> None:
    whole = sampled([2])
    for parts in ([whole, whole.with_(logp=None)], [whole.with_(logp=None), whole]):
        with pytest.raises(ValueError, match="have logp and some have not"):
            Rollouts.concat(parts)


def test_columns_must_fit() -> None:
    with pytest.raises(ValueError, match="2 rollouts but 1 in column 'reward'"):
        sampled([2]).with_(reward=np.zeros(1))
    with pytest.raises(ValueError, match="2 rollouts but 3 in column 'logp'"):
        sampled([2]).with_(logp=Ragged.of([[0.0]] * 3, float))


def test_only_scored_training_rollouts_of_the_plain_prompt_are_evidence() -> None:
    rollouts = sampled([5]).with_(
        correct=np.array([1, np.nan, 1, 0, 1.0]),
        context=np.array(["", "", "hint", "", ""], dtype=object),
        purpose=np.array(["train", "train", "train", "train", "probe"], dtype=object),
    )
    assert rollouts.plain.tolist() == [True, False, False, True, False]


def test_an_advantage_starts_without_nulls_and_probes() -> None:
    rollouts = sampled([3]).with_(
        reward=np.array([1, np.nan, 1.0]), purpose=np.array(["train", "train", "probe"], dtype=object)
    )
    start = Advantage.start(rollouts)
    assert start.keep.tolist() == [True, False, False]
    assert start.reason.tolist() == ["", "null_reward", "purpose"]
    dropped = start.drop(np.array([True, True, True]), "late")
    assert dropped.reason.tolist() == ["late", "null_reward", "purpose"]
    assert start.keep.tolist() == [True, False, False]


def test_candidates_are_what_is_free_and_not_taken() -> None:
    draft = Draft(1, Budget(2, 4), np.array([True, False, True, True]), np.array([2]))
    assert draft.candidates().tolist() == [0, 3]


def test_evidence_by_prompt() -> None:
    _, step = next(run(Pipeline(make("grpo")), ScriptedWorld(5), Budget(5, 20), steps=1))
    prompts, solved, tried = step.evidence(5)
    assert 1 not in prompts
    assert ((solved >= 0) & (solved <= tried)).all()
    assert tried.sum() == np.isfinite(step.rollouts.correct).sum()
    assert [len(x) for x in barren(step).evidence(5)] == [0, 0, 0]


def test_rollouts_pickle_and_copy() -> None:
    rows = rollouts_of([[1, 0], [None, 1]]).with_(rewards={"exact": np.ones(4)})
    for again in (pickle.loads(pickle.dumps(rows)), copy.deepcopy(rows)):
        assert equal(again, rows)


def test_replayed_rows_are_no_evidence() -> None:
    rows = rollouts_of([[1, 0], [1, 1]])
    rows = rows.with_(ask=np.array([0, 0, -1, 1]))
    none = np.full(4, "", dtype=object)
    done = Step(1, np.arange(2), Plan(np.arange(2), [2, 1]), rows, Advantage.start(rows), none, none)
    assert [column.tolist() for column in done.evidence(2)] == [[0, 1], [1.0, 1.0], [2.0, 1.0]]


def test_rows_with_a_new_value_have_it_at_all_their_tokens() -> None:
    tokens = Ragged.of([[1.0, 2.0], [3.0], [4.0, 5.0]], float)
    before = Advantage(np.array([1.5, 3, 4.5]), np.ones(3, bool), np.ones(3), np.zeros(3), np.full(3, ""), tokens)
    made = before.revalued(np.array([False, False, True]), np.full(3, -1.0), np.full(3, 0.5))
    assert made.value.tolist() == [1.5, 3, -1]
    assert made.baseline.tolist() == [0, 0, 0.5]
    assert [row.tolist() for row in made.tokens.rows()] == [[1, 2], [3], [-1, -1]]
    assert replace(before, tokens=None).revalued(np.ones(3, bool), np.zeros(3), np.zeros(3)).tokens is None


def test_a_factor_goes_to_the_tokens_too() -> None:
    tokens = Ragged.of([[1.0, 2.0], [3.0]], float)
    made = Advantage(np.array([1.5, 3]), np.ones(2, bool), np.ones(2), np.zeros(2), np.full(2, ""), tokens).scaled(
        np.array([2.0, -1.0])
    )
    assert made.value.tolist() == [3, -3]
    assert made.tokens.values.tolist() == [2, 4, -3]


plans = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=6)


@given(plans, st.booleans(), st.data())
def test_what_is_put_off_and_what_is_asked_now_are_what_was_asked(
    asked: list, grows: bool, data: st.DataObject
) -> None:
    n, forks = (np.array(column) for column in zip(*asked, strict=True))
    plan = Plan(np.arange(len(n)), n)
    plan = plan.with_n(n, n + forks) if grows else plan
    rows = np.flatnonzero(n > 0)
    later = np.array([data.draw(st.integers(0, int(k))) for k in n[rows]], np.int64)
    made = plan.defer("a", rows, later)
    assert (made.n + made.n_deferred).tolist() == n.tolist()
    assert (made.n_leaves + made.n_deferred).tolist() == plan.n_leaves.tolist()
    assert (made.n <= made.n_leaves).all()
    again = made.settled(np.ones(len(n), bool), n)
    assert (again.n.tolist(), again.n_leaves.tolist(), again.n_deferred.tolist()) == (
        n.tolist(),
        n.tolist(),
        [0] * len(n),
    )
    same = Plan.of_figures(made.figures, made.n, prompt=made.prompt)
    assert equal(same, made)


def test_joined_plans_put_off_what_each_puts_off() -> None:
    one, two = (
        Plan([0], [4]).defer("a", np.array([0]), np.array([3])),
        Plan([1], [2]).with_n(np.array([2]), np.array([5])),
    )
    both = Plan.concat([one, two])
    assert both.deferred["a"].tolist() == [3, 0]
    assert both.n_leaves.tolist() == [1, 5]
    assert both.figures["a.later"].tolist() == [3, 0]


def test_a_column_is_no_reason() -> None:
    with pytest.raises(ValueError, match=r"why has 'hint\.later', which is a column of its own"):
        Plan([0], [4], why={"hint.later": np.zeros(1)})
    with pytest.raises(ValueError, match="plan has 1 prompts but 2 in column 'leaves'"):
        Plan([0], [4], leaves=np.array([4, 4]))


def test_a_draft_tells_what_a_method_put_off_to_its_round() -> None:
    plan = Plan([3, 4, 5], [4, 4, 4], round=np.array([0, 1, 1])).defer("a", np.array([0, 2]), np.array([1, 2]))
    draft = Draft(1, Budget(3, 12), np.ones(6, bool), np.arange(3), round=2, plan=plan, rollouts=rollouts_of([[1]]))
    assert [column.tolist() for column in draft.deferred("a")] == [[2], [2]]
    assert [len(column) for column in draft.deferred("b")] == [0, 0]
    assert [len(column) for column in draft.with_(plan=None, rollouts=None).deferred("a")] == [0, 0]
