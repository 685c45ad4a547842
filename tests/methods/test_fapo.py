import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.estimates import fapo_advantages, flawed_advantage_sign
from workbench.methods.fapo import Fapo, fapo_rewards
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import rollouts_of
from workbench.types import Budget
from workbench.worlds.sim.world import SimWorld


def test_null_verdicts_are_not_flaws() -> None:
    assert fapo_rewards([1, 1, None], [None, True, True]).rewards.tolist()[:2] == [1, 0]
    assert fapo_advantages([1, 1], [True, True]).tolist() == [0, 0]


@given(st.integers(0, 5), st.integers(1, 5), st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_the_sign_is_that_of_the_advantage(sound: int, flawed: int, wrong: int, lam: float) -> None:
    correct = [1] * (sound + flawed) + [0] * wrong
    verdict = [0] * sound + [1] * flawed + [0] * wrong
    got = fapo_advantages(correct, verdict, lam)[sound]
    assert flawed_advantage_sign(sound, flawed, wrong, lam).sign == np.sign(np.round(got, 9))


def test_verdicts_come_from_a_part() -> None:
    rows = rollouts_of([[1, 1, 0, None]]).with_(rewards={"steps": np.array([1.0, 0.2, 0.2, 1.0])})
    got = Fapo(part="steps").reward((), rows)
    assert np.array_equal(got.reward, [1, 0, -1, np.nan], equal_nan=True)
    assert np.array_equal(got.rewards["flawed"], [0, 1, np.nan, np.nan], equal_nan=True)


def test_thirty_steps_of_a_simulation() -> None:
    steps = list(run(Pipeline(Grpo(), Fapo()), SimWorld(n_prompts=40, n_eval=8), Budget(8, 64), steps=30))
    assert set(np.unique(steps[0][1].rollouts.reward).tolist()) <= {-1.0, 1.0}
