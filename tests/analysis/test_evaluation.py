"""pass@k, majority@k and curves by family and set from a recorded evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.analysis import evaluation
from workbench.store import Store, Writer
from workbench.testing.scripted import pool_of
from workbench.types import Plan, Pool, Rollouts

N = 4


def two_sets() -> Pool:
    pool = pool_of(6)
    sets = np.array(["", "", "", "", "hard", "hard"], dtype=object)
    family = np.array(["a", "a", "b", "b", "c", "c"], dtype=object)
    return Pool(pool.ids, pool.text, pool.answer, pool.prefix, family, extra={"set": sets})


def scored(pool: Pool, step: int, solved: list[int]) -> Rollouts:
    """4 samples of each prompt, the first `solved` of them right: answer "yes"; the others "no", the last silent."""
    n = len(pool)
    plan = Plan(np.arange(n), np.full(n, N), purpose=np.full(n, "eval", dtype=object), step=step)
    rows = Rollouts.of_plan(plan, pool, step)
    place = np.tile(np.arange(N), n)
    right = place < np.repeat(solved, N)
    answer = np.where(right, "yes", np.where(place == N - 1, None, "no")).astype(object)
    return rows.with_(
        correct=right.astype(float), reward=right.astype(float), answer=answer, group=rows.prompt,
        length=np.ones(len(rows), np.int64), context=pool.extra["set"][rows.prompt],
    )  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("evaluation") / "store"
    pool = two_sets()
    writer = Writer(folder, {"name": "scored"}, pool_of(3), pool)
    writer.evaluation(0, scored(pool, 0, [0, 1, 0, 2, 0, 0]))
    writer.evaluation(10, scored(pool, 10, [1, 4, 2, 2, 0, 1]))
    writer.close("finished")
    return Store.open(folder)


def test_pass_at_k_by_step_with_all_ks_there_are(store: Store) -> None:
    made = evaluation.pass_at_k(store)
    assert (made.steps, made.ks) == ([0, 10], [1, 2, 4])
    # 0, 1, 0, 2 of 4: pass@2 is 0, 1 - C(3,2)/C(4,2) = 1/2, 0, 1 - 1/6 = 5/6
    assert made.at(0, 1).mean == pytest.approx(3 / 16)
    assert made.at(0, 2).mean == pytest.approx((1 / 2 + 5 / 6) / 4)
    assert made.at(0, 4).mean == pytest.approx(1 / 2)
    assert made.at(10, 4) == (1.0, 1.0, 1.0, 4)
    assert made.gain(4).mean == pytest.approx(1 / 2)
    assert made.gain(4).n == 4


def test_families_and_sets_have_curves_of_their_own(store: Store) -> None:
    made = evaluation.pass_at_k(store, ks=[1], set=None)
    assert made.names("stratum") == ["a", "b", "c"]
    assert made.names("set") == ["", "hard"]
    steps, values = made.curve(1, "stratum", "a")
    assert steps.tolist() == [0, 10]
    assert [v.mean for v in values] == pytest.approx([1 / 8, 5 / 8])
    assert made.at(10, 1, "set", "hard").mean == pytest.approx(1 / 8)
    rows = made.table("set")
    assert [(r["set"], r["step"], r["prompts"]) for r in rows] == [
        ("", 0, 4),
        ("", 10, 4),
        ("hard", 0, 2),
        ("hard", 10, 2),
    ]


def test_the_majority_is_silent_where_nobody_answers(store: Store) -> None:
    made = evaluation.majority_at_k(store, ks=[1, 4], steps=[10])
    # 1 yes, 2 no, 1 silent -> no; 4 yes -> yes; 2 yes 1 no 1 silent -> yes, twice
    assert made.at(10, 4).mean == pytest.approx(3 / 4)
    assert made.at(10, 1).mean == pytest.approx(evaluation.pass_at_k(store, ks=[1]).at(10, 1).mean)


def test_what_was_not_evaluated_is_an_error_that_says_what_was(store: Store) -> None:
    with pytest.raises(ValueError, match="not evaluated at step 5; it was at 0, 10"):
        evaluation.pass_at_k(store, steps=[5])
    with pytest.raises(ValueError, match="4 samples of a prompt"):
        evaluation.pass_at_k(store, ks=[8])
    with pytest.raises(ValueError, match=r"the set 'easy'; it has '', 'hard'"):
        evaluation.pass_at_k(store, set="easy")


def test_the_sets_of_a_run_are_listed(store: Store) -> None:
    assert store.ask("eval_sets").to_pylist() == [
        {"set": "", "prompts": 4, "fewest_samples": 4, "most_samples": 4, "steps": [0, 10]},
        {"set": "hard", "prompts": 2, "fewest_samples": 4, "most_samples": 4, "steps": [0, 10]},
    ]
