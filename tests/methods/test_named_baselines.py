"""The relatives of GRPO under their own names: each is its paper's setting of the shared functions."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.methods.cispo import Cispo
from workbench.methods.dapo import Dapo
from workbench.methods.dr_grpo import DrGrpo
from workbench.methods.grpo import Grpo
from workbench.methods.gspo import Gspo
from workbench.methods.reinforce_pp import ReinforcePp
from workbench.methods.rloo import Rloo
from workbench.numerics.estimators import group_advantages
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import draft_of, rollouts_of
from workbench.types import Advantage, Budget
from workbench.worlds.sim.world import SimWorld

NAMED = [DrGrpo(), Rloo(), Gspo(), Cispo(), Dapo(), ReinforcePp(), ReinforcePp(baseline=True), ReinforcePp(gamma=0.9)]


def estimate(method: Grpo, rewards: list[list[float | None]], length: list[int] | None = None) -> Advantage:
    r = rollouts_of(rewards)
    if length is not None:
        r = r.with_(length=np.array(length), tokens=None, logp=None, entropy=None, role=None)
    return method.estimate((), Advantage.start(r), draft_of(r), np.random.default_rng(0))


def test_leave_one_out_counts_the_others_alone() -> None:
    assert estimate(Rloo(), [[1, 0, 0, 0]]).value.tolist() == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])
    assert estimate(DrGrpo(), [[1, 0, 0, 0]]).value.tolist() == [0.75, -0.25, -0.25, -0.25]


def test_the_papers_settings() -> None:
    assert (DrGrpo().reduction, Rloo().reduction) == ("const_len", "const_len")
    assert (Gspo().kind, Gspo().eps_low, Gspo().eps_high, Gspo().reduction) == ("gspo", 3e-4, 4e-4, "seq_mean")
    assert (Cispo().kind, Cispo().eps_high, Cispo().reduction) == ("cispo_trl", 5.0, "token_mean")
    assert (Dapo().eps_low, Dapo().eps_high, Dapo().reduction) == (0.2, 0.28, "token_mean")
    assert all(m.settings == {} for m in (DrGrpo(), Rloo(), Gspo(), Cispo(), Dapo(), ReinforcePp()))


def test_dapo_punishes_answers_near_the_limit_and_keeps_the_part() -> None:
    r = rollouts_of([[1, 1, 1]]).with_(length=np.array([4, 9, 20]), tokens=None, logp=None, entropy=None, role=None)
    shaped = Dapo(max_len=12, buffer_len=4).reward((), r)
    assert shaped.reward.tolist() == [1, 0.75, 0]
    assert shaped.rewards["overlong"].tolist() == [0, -0.25, -1]
    assert "reward" not in Dapo(max_len=None).verbs


def test_reinforce_pp_whitens_over_tokens_so_that_long_rollouts_weigh_more() -> None:
    got = estimate(ReinforcePp(eps=0.0), [[1, 0, 0]], [3, 1, 2]).value  # six tokens, mean 0.5
    assert got.tolist() == pytest.approx([0.5 / np.sqrt(0.3), -0.5 / np.sqrt(0.3), -0.5 / np.sqrt(0.3)])
    baseline = estimate(ReinforcePp(baseline=True), [[1, 0, 0.4], [0.2, 0.3, 0.9]], [3, 1, 2, 5, 1, 1]).value
    twin = group_advantages([1, 0, 0.4, 0.2, 0.3, 0.9], [0, 0, 0, 1, 1, 1], "rpp_baseline", lengths=[3, 1, 2, 5, 1, 1])
    assert np.allclose(baseline, twin.advantages)


def test_returns_are_discounted_back_from_the_last_token_and_whitened_over_all() -> None:
    got = estimate(ReinforcePp(gamma=0.5), [[1, 0.25]], [3, 2]).tokens
    assert got is not None
    returns = np.array([0.25, 0.5, 1.0, 0.125, 0.25])
    assert np.allclose(got.values, (returns - returns.mean()) / np.sqrt(returns.var(ddof=1) + 1e-8))


@pytest.mark.parametrize("method", NAMED, ids=repr)
def test_thirty_steps_of_simulation(method: Grpo) -> None:
    steps = [s for _, s in run(Pipeline(method), SimWorld(n_prompts=40), Budget(prompts=4, rollouts=16), steps=30)]
    assert len(steps) == 30
    assert all(np.isfinite(s.advantage.value).all() for s in steps)
    assert any((s.advantage.value != 0).any() for s in steps)
