import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.counts import filter_external
from tests.vectors.estimates import sapo_advantages as advantages
from workbench.methods.grpo import Grpo
from workbench.methods.sapo import Sapo, compose
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld, rollouts_of
from workbench.types import Budget, Plan, Rollouts
from workbench.worlds.sim.world import SimWorld

count = st.integers(0, 12)


@given(count, count, count, count)
def test_a_batch_adds_up(n_local: int, n_eligible: int, own: int, others: int) -> None:
    made = compose(n_local, n_eligible, own, others)
    assert made.local + made.external + made.shortfall == own + others
    assert made.local <= n_local
    assert made.external <= min(n_eligible, others)
    assert made.shortfall == 0 or made.local == n_local or made.filled_from_local == others - made.external


def test_edges() -> None:
    assert advantages([1.0]).tolist() == [0.0]
    assert advantages([0.1, 0.1, 0.1]).tolist() == [0, 0, 0]
    assert compose(3, 0, 4, 4).external_inclusion_probability == 0
    half = [{"id": "a", "node": "x", "rewards": [0.5, 0.5]}, {"id": "b", "node": "x", "rewards": [0, 0]}]
    assert filter_external(half, "me", 2) == []
    with pytest.raises(ValueError, match=r"0\.\.1"):
        Sapo(external=2.0)


class Swarm(ScriptedWorld):
    """A world in which node "n2" sends four groups a step: two mixed, one settled, one too small."""

    def sample(self, plan: Plan, branch: object = None, prune: object = None) -> Rollouts:
        own = super().sample(plan)
        sent = rollouts_of([[1, 0, 0, 1], [0, 1, 0, 0], [1, 1, 1, 1], [0, 1]])
        context = np.full(len(sent), "swarm:n2", dtype=object)
        id_ = np.array([f"n2-{plan.step}:{i}" for i in range(len(sent))], dtype=object)
        step = np.full(len(sent), plan.step)
        sent = sent.with_(context=context, id=id_, step=step, ask=np.full(len(sent), -1))
        blank = {n: np.full(len(sent), np.nan) for n in own.rewards}
        ragged = {n: getattr(own, n).take(np.zeros(len(sent), np.int64)) for n in ("tokens", "logp", "entropy")}
        return Rollouts.concat([own, sent.with_(rewards=blank, **ragged)])


def test_a_step_mixes_own_groups_and_those_of_others() -> None:
    method = Sapo()
    states, done = next(run(Pipeline(Grpo(), method), Swarm(null=0), Budget(6, 24), steps=1))
    foreign = done.rollouts.ask < 0
    assert foreign.sum() == 8
    assert set(done.fate[foreign]) == {"trained"}
    groups = np.unique(done.rollouts.group[done.advantage.keep & ~foreign])
    assert len(groups) == 4  # three of six, and one in the place of the third external group
    assert states["sapo"] == (6, 2)
    assert done.evidence(24)[2].sum() == 24


def test_alone_it_is_grpo_for_thirty_steps() -> None:
    steps = [d for _, d in run(Pipeline(Grpo(), Sapo()), SimWorld(n_prompts=60, n_eval=4), Budget(8, 64), steps=30)]
    assert all(d.advantage.keep.all() for d in steps)
