"""Laws of the objectives that look beyond the present policy: stale samplers, teachers, entropy's history."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.vectors.losses import aux_loss, decoupled_loss, policy_loss, trrd_loss
from workbench.methods import epo
from workbench.methods.async_staleness import AsyncStaleness
from workbench.methods.brts import Brts
from workbench.methods.epo import Epo
from workbench.methods.grpo import Grpo
from workbench.methods.rlad import Rlad
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import ScriptedWorld
from workbench.types import Batch, Budget, Plan, Ragged, Rollouts
from workbench.worlds.sim.world import SimWorld

rng = np.random.default_rng(0)
LOGP, OLD, SEEN, TEACHER = (-rng.random((4, 6)) * 3 for _ in range(4))
A, MASK = rng.standard_normal((4, 6)), (rng.random((4, 6)) < 0.8).astype(float)


def batch(logp: torch.Tensor, **extra: np.ndarray) -> Batch:
    column = [torch.tensor(c) for c in (SEEN, OLD, A, MASK)]
    more = {name: torch.as_tensor(value) for name, value in extra.items()}
    return Batch(logp, *column, torch.tensor(-LOGP), torch.arange(4), more)


def token_mean(term: torch.Tensor) -> torch.Tensor:
    return (term * torch.tensor(MASK)).sum() / MASK.sum()


def test_fresh_rollouts_make_the_decoupled_loss_plain_ppo() -> None:
    fresh = decoupled_loss(LOGP, OLD, OLD, A, MASK)
    assert fresh["loss"] == pytest.approx(policy_loss(LOGP, OLD, A, MASK, agg="token_mean")["loss"])


def test_too_old_rollouts_are_not_admitted_and_stay_in_the_record() -> None:
    class Mixed(ScriptedWorld):
        def sample(self, plan, branch=None, prune=None):
            rows = super().sample(plan, branch, prune)
            return rows.with_(version=np.where(np.arange(len(rows)) % 3 == 0, 0, 7))

    world = Mixed(12, offers=frozenset({"behaviour"}), null=0.0)
    _, step = next(run(Pipeline(Grpo(), AsyncStaleness(eta=4)), world, Budget(prompts=3, rollouts=12), steps=1))
    old = step.rollouts.version == 0
    assert set(step.fate_reason[old]) == {"not_admitted"}
    assert not step.advantage.keep[old].any()
    assert step.advantage.keep[~old].all()


def test_rlad_with_alpha_one_or_the_student_as_teacher_is_grpo() -> None:
    plain = policy_loss(LOGP, OLD, A, MASK, agg="token_mean")["loss"]
    assert trrd_loss(LOGP, OLD, TEACHER, A, MASK, 1.0)["loss"] == pytest.approx(plain)
    assert trrd_loss(LOGP, OLD, OLD, A, MASK, 0.5)["loss"] == pytest.approx(plain)


def test_methods_with_a_teacher_name_the_column_they_miss() -> None:
    logp = torch.tensor(LOGP)
    with pytest.raises(ValueError, match="teacher_logp"):
        Rlad().loss((), batch(logp))
    with pytest.raises(ValueError, match="student_topk_logp, teacher_topk_logp"):
        Brts().penalty((), batch(logp))


def test_the_authors_auxiliary_loss_lowers_every_likelihood_and_forward_kl_does_not() -> None:
    s, t = np.array([[-0.5, -1.5]]), np.array([[-1.5, -0.5]])
    assert (aux_loss(s, t, [1], weight="student_p")["grad"] > 0).all()
    # against the normalisation of the policy, forward KL raises what the teacher prefers
    forward = aux_loss(s, t, [1], weight="teacher_topk")["grad"][0]
    assert forward[1] < forward[0] < 0


def test_the_authors_penalty_has_no_gradient_and_the_hinge_has() -> None:
    state = epo.History(1.0, 1, 0)
    grads = {}
    for mode in ("paper", "code"):
        h = torch.full((1, 2), 5.0, requires_grad=True)
        one = torch.ones(1, 2)
        made = Epo(mode=mode, c_entropy=1.0).penalty(state, Batch(one, one, one, one, one, h, torch.zeros(1)))
        made.term.sum().backward()
        grads[mode] = h.grad[0, 0].item()
    assert grads == {"paper": 0.0, "code": -1.0}  # the hinge's slope of 1 undoes the bonus; the constant does not


def test_epo_remembers_the_mean_entropy_of_every_batch() -> None:
    world = ScriptedWorld(12, null=0.0)
    states = list(run(Pipeline(Grpo(), Epo()), world, Budget(prompts=3, rollouts=12), steps=3))
    assert [s["epo"].n for s, _ in states] == [1, 2, 3]
    means = [step.rollouts.entropy.values.mean() for _, step in states]
    assert states[-1][0]["epo"].total == pytest.approx(sum(means))


def test_a_resumed_rollout_is_as_old_as_its_first_token():
    pool = SimWorld(n_prompts=20).pool
    rows = Rollouts.of_plan(Plan(np.array([0]), np.array([3]), step=4), pool, version=5)
    assert AsyncStaleness(eta=3).admit((), rows, None).tolist() == [True] * 3
    tokens = Ragged.of([[1, 1, 5], [2, 5], []], np.int32)
    resumed = rows.with_(extra={"token_version": tokens})
    assert AsyncStaleness(eta=3).admit((), resumed, None).tolist() == [False, True, True]
    assert AsyncStaleness(eta=4).admit((), resumed, None).tolist() == [True] * 3
