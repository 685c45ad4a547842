import numpy as np
import pytest

from workbench.methods.grpo import Grpo
from workbench.numerics.replay import appended, groups_of, renumbered, stored
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, equal, rollouts_of
from workbench.types import Budget, Ragged


def test_only_scored_plain_rows_that_were_asked_for_are_kept() -> None:
    done = next(run(Pipeline(Grpo()), ScriptedWorld(12), Budget(6, 24), steps=1))[1]
    rows = groups_of(done)
    assert np.isfinite(rows.reward).all()
    assert len(rows) == len(done.rollouts) - (done.rollouts.failure != "").sum()


def test_stored_groups_stay_apart_and_in_order() -> None:
    one, two = rollouts_of([[1, 0], [0, 1]]), rollouts_of([[1, 1]])
    both = stored([one, two])
    assert both.group.tolist() == [0, 0, 1, 1, 2, 2]
    assert (both.ask == -1).all()
    assert renumbered(both.take(both.group != 1), 5).group.tolist() == [5, 5, 6, 6]


def test_appended_rows_follow_the_columns_of_the_step() -> None:
    marks = Ragged.of([[2, 4], [3]], np.int32)
    step = rollouts_of([[1, 0]]).with_(
        rewards={"exact": np.ones(2)},
        extra={"score": np.ones(2), "node": np.array(["a", "b"], dtype=object), "marks": marks},
    )
    old = rollouts_of([[1]]).with_(group=np.array([7]))
    made = appended(step, old)
    assert made.ask.tolist() == [0, 0, -1]
    assert made.group.tolist() == [0, 0, 7]
    assert np.isnan(made.extra["score"][2])
    assert np.isnan(made.rewards["exact"][2])
    assert [row.tolist() for row in made.extra["marks"].rows()] == [[2, 4], [3], []]
    assert appended(step, old.take(np.empty(0, np.int64))) is step


def test_rows_without_tokens_cannot_be_trained_again() -> None:
    tokens = Ragged.of([[1], [2]], np.int32)
    with pytest.raises(ValueError, match="stored without tokens"):
        appended(rollouts_of([[1, 0]]).with_(tokens=tokens), rollouts_of([[1]]))
    again = appended(rollouts_of([[1, 0]]).with_(tokens=tokens), rollouts_of([[1, 1]]).with_(tokens=tokens))
    assert equal(again.tokens.values, np.array([1, 2, 1, 2], np.int32))
