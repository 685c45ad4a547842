"""Objectives: vectors of losses, by the torch loss that trains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike

from tests.vectors.calls import Made, batch_of, calls, like, made, rows_of, share_of
from workbench.methods import rlad
from workbench.methods.aepo import Aepo
from workbench.methods.async_staleness import AsyncStaleness
from workbench.methods.brts import STUDENT, TEACHER, Brts
from workbench.methods.dapo_dynamic_sampling import overlong_penalty
from workbench.methods.dart import Dart
from workbench.methods.dots_rr import DotsRr
from workbench.methods.epo import Epo, History
from workbench.methods.grpo import Grpo
from workbench.methods.minpro import Minpro
from workbench.methods.missing_old_logits import MissingOldLogits
from workbench.methods.nudgerl import Nudgerl
from workbench.methods.otr import Otr
from workbench.methods.sapo import Sapo
from workbench.methods.vcpo import Vcpo, row_weights
from workbench.numerics import flips
from workbench.numerics.votes import majority_label
from workbench.testing.scripted import rollouts_of
from workbench.types import Loss, Ragged
from workbench.worlds.training.kl_reference import divergence


@calls("baselines", "policy_loss")
def policy_loss(
    logp, old_logp, advantages, mask, kind="ppo", eps_low=0.2, eps_high=0.2, agg="seq_mean", delta=None, max_len=None
) -> dict:
    """GRPO's loss without truncated importance sampling."""
    if agg == "const_len" and not max_len:
        raise ValueError(f"const_len divides by a constant length: give max_len, got {max_len}")
    method = Grpo(kind=kind, eps_low=eps_low, eps_high=eps_high, delta=delta, reduction=agg, truncation=None)
    got = made(method.loss, batch_of(logp, advantages, mask, proximal=old_logp), constant=max_len or 1)
    clipped = got.stats["clip_low"] + got.stats["clip_high"]
    return {
        "loss": got.loss,
        "grad_logp": got.grad_logp,
        "ratio": got.stats["ratio"] * got.mask,
        "clip_frac": share_of(clipped, got.mask),
    }


@calls("baselines", "kl_k3")
def kl_k3(logp: ArrayLike, ref_logp: ArrayLike) -> np.ndarray:
    """The KL penalty to the initial weights, per token."""
    batch = batch_of(logp, reference=rows_of(ref_logp))
    return like(divergence(batch, 1.0).term.detach().numpy(), logp)


@calls("minpro", "prefix_weights")
def prefix_weights(log_ratio, mask) -> dict:
    """Weights of the tokens; the product of the ratios, which the method replaces, is of its ratios."""
    got = made(Minpro(cap=np.inf).loss, batch_of(log_ratio, 1.0, mask, behaviour=np.zeros(np.shape(log_ratio))))
    token = got.stats["ratio"]
    columns = {"token": token, "min_prefix": got.stats["min_prefix"], "minpro": got.stats["importance"]}
    columns["prefix_product"] = np.cumprod(np.where(got.mask, token, 1.0), axis=1)
    return {name: np.where(got.mask, column, 0.0) for name, column in columns.items()}


@calls("minpro", "minpro_loss")
def minpro_loss(logp, old_logp, advantages, mask, cap=5.0) -> dict:
    """The loss and its weights."""
    got = made(Minpro(cap=cap).loss, batch_of(logp, advantages, mask, behaviour=old_logp))
    return {
        "weight": got.stats["importance"] * got.mask,
        "loss": got.loss,
        "grad_logp": got.grad_logp,
        "cap_frac": share_of(got.stats["truncated"], got.mask),
    }


@calls("vcpo", "sequence_weights")
def sequence_weights(logp, behaviour_logp, mask, cap=8.0) -> dict:
    """The raw weight of the baseline, and the capped one of the gradient."""
    got = made(Vcpo(cap=cap).loss, batch_of(logp, 1.0, mask, behaviour=behaviour_logp))
    current, old = (
        Ragged.of([row[m] for row, m in zip(np.asarray(c, float), got.mask, strict=True)], float)
        for c in (logp, behaviour_logp)
    )
    rows = rollouts_of([[0.0] * len(got.mask)]).with_(current=current, logp=old)
    return {"weight": row_weights(rows), "gradient_weight": got.stats["importance"][:, 0]}


@calls("missing-old-logits", "ratio_split")
def ratio_split(logp, prox_logp, infer_logp) -> dict:
    """Discrepancy and staleness of the decoupled loss, and the ratio of the entangled one."""
    batch = batch_of(logp, 1.0, proximal=prox_logp, behaviour=infer_logp)
    apart, total = (made(MissingOldLogits(route=route).loss, batch).stats for route in ("given", "infer"))
    columns = {"discrepancy": apart["discrepancy"], "staleness": apart["ratio"], "total": total["ratio"]}
    return {name: like(column, logp) for name, column in columns.items()}


@calls("missing-old-logits", "decoupled_loss")
def missing_decoupled_loss(
    logp, prox_logp, infer_logp, advantages, mask, eps_low=0.2, eps_high=0.2, is_cap=2.0, discrepancy_keep=None
) -> dict:
    """The loss over kept tokens; the trainer's mean is over all of them."""
    method = MissingOldLogits(eps_low=eps_low, eps_high=eps_high, is_cap=is_cap, discrepancy_keep=discrepancy_keep)
    got = made(method.loss, batch_of(logp, advantages, mask, proximal=prox_logp, behaviour=infer_logp))
    kept = got.stats["token_kept"] * got.mask
    scale = got.mask.sum() / max(kept.sum(), 1)
    return {
        "loss": got.loss * scale,
        "grad_logp": got.grad_logp * scale,
        "clip_frac": share_of(got.stats["clip_low"] + got.stats["clip_high"], kept),
        "kept": float(kept.sum()),
    }


def _kept(got: Made, action: str) -> np.ndarray:
    """Tokens in the loss: a clamp keeps those that it filters."""
    return got.mask & ((got.stats["filtered"] == 0) | (action == "clamp"))


@calls("async-staleness", "behaviour_weight")
def behaviour_weight(
    proximal_logprob, behaviour_logprob, mask, level="token", action="mask", upper=5.0, lower=None
) -> dict:
    """Weights between sampler and proximal policy."""
    method = AsyncStaleness(level=level, action=action, upper=upper, lower=lower)
    batch = batch_of(proximal_logprob, 1.0, mask, proximal=proximal_logprob, behaviour=behaviour_logprob)
    got = made(method.loss, batch)
    return {
        "weight": got.stats["importance"] * got.mask,
        "loss_mask": _kept(got, action).astype(int),
        "filtered_fraction": share_of(got.stats["filtered"], got.mask),
    }


@calls("async-staleness", "decoupled_loss")
def decoupled_loss(
    logprob, proximal_logprob, behaviour_logprob, advantage, mask, clip_low=0.2, clip_high=0.2, level="token",
    action="mask", upper=5.0, lower=None,
) -> dict:  # fmt: skip
    """AReaL's loss."""
    method = AsyncStaleness(
        clip_low=clip_low, clip_high=clip_high, level=level, action=action, upper=upper, lower=lower
    )
    got = made(method.loss, batch_of(logprob, advantage, mask, proximal=proximal_logprob, behaviour=behaviour_logprob))
    return {"ratio": got.stats["ratio"] * _kept(got, action), "token_loss": got.term, "loss": got.loss}


@calls("aepo", "balanced_clip")
def balanced_clip(log_ratio, advantage, eps_low=0.2, eps_high=0.2, dual_clip=3.0, balanced=True) -> dict:
    """The loss of every token, and its slope."""
    ratio, a = np.broadcast_arrays(np.asarray(log_ratio, float), np.asarray(advantage, float))
    batch = batch_of(ratio.ravel()[:, None], a.ravel(), proximal=np.zeros((ratio.size, 1)))
    got = made(Aepo(eps_low=eps_low, eps_high=eps_high, dual_clip=dual_clip, balanced=balanced).loss, batch)
    return {"loss": like(got.term, ratio), "grad_logprob": like(got.grad_logp * ratio.size, ratio)}


def _outside(method: Epo, entropy: ArrayLike, reference: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """What each entropy pays, by its own reference, and the slope of that."""
    paid, slope = [], []
    for h, mean in zip(np.ravel(entropy), np.ravel(reference), strict=True):
        got = made(method.penalty, batch_of([[0.0]], entropy=[[h]]), History(float(mean), 1, 0))
        paid.append(got.stats["outside"].item())
        slope.append(got.grad_entropy.item() + 1)  # the bonus for entropy has a slope of -1
    return like(paid, entropy), like(slope, entropy)


@calls("epo", "smoothing_penalty")
def smoothing_penalty(entropy, reference, low=0.0, high=2.0, penalty=0.1) -> np.ndarray:
    """The authors' constant."""
    return _outside(Epo(mode="code", low=low, high=high, penalty_size=penalty, weighted=False), entropy, reference)[0]


@calls("epo", "smoothing_hinge")
def smoothing_hinge(entropy, reference, low=0.0, high=2.0) -> dict:
    """The distance, with its gradient."""
    method = Epo(low=low, high=high, c_entropy=1.0, c_smooth=1.0, weighted=False)
    penalty, grad = _outside(method, entropy, reference)
    return {"penalty": penalty, "grad": grad}


@calls("epo", "epo_loss")
def epo_loss(pg_loss, entropy, penalty, mask, c_entropy=0.001, c_smooth=1.0, weight=1.0) -> dict:
    """Token by token, since every token's penalty is given: an empty band makes each pay the constant."""
    valid = np.asarray(mask, float) > 0
    h, paid = np.asarray(entropy, float)[valid], np.asarray(penalty, float)[valid]
    total = 0.0
    for x, p in zip(h, paid, strict=True):
        method = Epo("code", c_entropy, c_smooth * weight, low=0.0, high=0.0, penalty_size=p, weighted=False)
        total += made(method.penalty, batch_of([[0.0]], entropy=[[x]]), History(1.0, 1, 0)).loss
    n = max(len(h), 1)
    return {"entropy": h.sum() / n, "penalty": paid.sum() / n, "loss": pg_loss + total / n}


def _rlad(logp, old_logp, teacher_logp, advantages=1.0, mask=None, **settings):
    teacher = rows_of(
        [[np.nan if t is None else t for t in row] for row in np.atleast_2d(np.asarray(teacher_logp, object))]
    )
    method = rlad.Rlad(**({"delta": None} | settings))
    return made(method.loss, batch_of(logp, advantages, mask, proximal=old_logp, **{rlad.TEACHER: teacher}))


@calls("rlad", "trrd_ratio")
def trrd_ratio(logp, old_logp, teacher_logp, alpha=0.5, clamp=20.0) -> np.ndarray:
    """The anchored ratio; the clamp is the method's."""
    assert clamp == 20.0, f"the loss holds log-ratios to +-20, not to {clamp}"
    return like(_rlad(logp, old_logp, teacher_logp, alpha=alpha).stats["ratio"], logp)


@calls("rlad", "trrd_loss")
def trrd_loss(logp, old_logp, teacher_logp, advantages, mask, alpha=0.5, eps_low=0.2, eps_high=0.2, delta=None) -> dict:
    """The loss; coef is minus its gradient, times the tokens."""
    got = _rlad(
        logp, old_logp, teacher_logp, advantages, mask, alpha=alpha, eps_low=eps_low, eps_high=eps_high, delta=delta
    )
    return {
        "loss": got.loss,
        "coef": -got.grad_logp * max(got.mask.sum(), 1),
        "clipped": (got.stats["clipped"] * got.mask).astype(int),
    }


@calls("rlad", "trust_region")
def trust_region(old_p, teacher_p, alpha=0.5, eps_low=0.2, eps_high=0.2) -> dict:
    """The anchor is where the ratio of the loss is 1, its bounds are those of the clip."""
    old, teacher = np.log(np.asarray(old_p, float)), np.log(np.asarray(teacher_p, float))
    ratio = _rlad(old, old, teacher, alpha=alpha).stats["ratio"][0]
    anchor = np.exp(old) / ratio
    return {"anchor": anchor, "low": (1 - eps_low) * anchor, "high": (1 + eps_high) * anchor, "ratio_at_old": ratio}


@calls("rlad", "start_clipped_share")
def start_clipped_share(old_p, teacher_p, advantages: Sequence[float], alpha=0.5, eps_low=0.2, eps_high=0.2) -> dict:
    """Tokens that the loss clips before the policy moved."""
    old, teacher = np.log(np.asarray(old_p, float)), np.log(np.asarray(teacher_p, float))
    got = _rlad(old, old, teacher, [advantages], alpha=alpha, eps_low=eps_low, eps_high=eps_high)
    dead = got.stats["clipped"][0] > 0
    acting = int((np.asarray(advantages, float) != 0).sum())
    return {"share": float(dead.sum() / acting) if acting else 0.0, "dead": dead}


def _brts(student_logp, teacher_logp, mask, coef, weight) -> tuple[float, np.ndarray, np.ndarray]:
    """(loss, term (T,), gradient (T, K)) of one row."""
    student = rows_of(student_logp)[None].requires_grad_()
    batch = batch_of(np.zeros(len(student_logp)), mask=mask, **{STUDENT: student, TEACHER: rows_of(teacher_logp)[None]})
    term = (Brts(coef=coef, weight=weight).penalty((), batch).term * batch.mask)[0]
    loss = term.sum() / batch.mask.sum().clamp(min=1)
    return loss.item(), term.detach().numpy(), torch.autograd.grad(loss, student)[0][0].numpy()


@calls("brts", "opd_token_reward")
def opd_token_reward(student_logp, teacher_logp) -> np.ndarray:
    """Minus the auxiliary loss of every token, weighted by the student."""
    return -_brts(student_logp, teacher_logp, np.ones(len(student_logp)), 1.0, "student_p")[1]


@calls("brts", "aux_loss")
def aux_loss(student_logp, teacher_logp, mask, coef=0.05, weight="teacher_topk") -> dict:
    """The auxiliary loss of one row."""
    loss, _, grad = _brts(student_logp, teacher_logp, mask, coef, weight)
    return {"loss": loss, "grad": grad}


@calls("nudgerl", "distill_loss")
def distill_loss(advantages, logp_plain, mask) -> float:
    """The distillation at weight 1."""
    if not len(advantages):
        return 0.0
    batch = batch_of(logp_plain, advantages, mask, plain_logp=rows_of(logp_plain))
    return made(Nudgerl(distill=1.0).penalty, batch).loss


@calls("otr", "dft_gradient")
def dft_gradient(logits, target, scale=1.0) -> np.ndarray:
    """The gradient of the loss by the logits that the log-probability of the shown token comes from."""
    free = rows_of(logits).requires_grad_()
    logp = free.log_softmax(-1).gather(1, torch.tensor(np.asarray(target, np.int64))[:, None]).T
    loss: Loss = Otr(beta=1 - scale).loss((), batch_of(logp.detach().numpy())._replace(logp=logp))
    return torch.autograd.grad(loss.term.mean(), free)[0].numpy()


@calls("dots-rr", "off_policy_loss")
def off_policy_loss(logp, logp_behaviour, logp_old, advantages, mask, clip_eps=0.2) -> dict:
    """The loss; its ratio to the behaviour policy is the step's times that of the policy before it."""
    method, a = DotsRr(clip_eps=clip_eps), np.atleast_2d(advantages)
    every, valid = (
        made(method.loss, batch_of(logp, a, m, proximal=logp_old, behaviour=logp_behaviour)) for m in (None, mask)
    )
    return {
        "ratio": like(every.stats["ratio"] * every.stats["center"], logp),
        "center": like(every.stats["center"], logp),
        "token_loss": like(every.term, logp),
        "loss": valid.loss,
        "clip_frac": share_of(valid.stats["clipped"], valid.mask),
    }


@calls("dart", "token_loss")
def token_loss(
    logprob, old_logprob, rollout_logprob, advantage, clip_low=0.2, clip_high=0.28, dual_clip=10.0, tis_cap=1.0
) -> dict:
    """The loss of every token of one row."""
    unrecorded = np.zeros(len(logprob))
    batch = batch_of(
        logprob, np.atleast_2d(advantage), proximal=old_logprob,
        behaviour=unrecorded if rollout_logprob is None else rollout_logprob,
    )  # fmt: skip
    got = made(Dart(clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip, tis_cap=tis_cap).loss, batch)
    return {"ratio": got.stats["ratio"][0], "tis_weight": got.stats["importance"][0], "loss": got.term[0]}


@calls("sapo", "objective")
def objective(logprob, old_logprob, advantage, clip_low=0.2, clip_high=0.28) -> dict:
    """The objective is minus the loss of a token."""
    batch = batch_of(logprob, np.atleast_2d(advantage), proximal=old_logprob)
    got = made(Sapo(clip_low=clip_low, clip_high=clip_high).loss, batch)
    clipped = (got.stats["clip_low"] + got.stats["clip_high"])[0] > 0
    return {"ratio": got.stats["ratio"][0], "objective": -got.term[0], "clipped": clipped}


calls("baselines", "overlong_penalty")(overlong_penalty)
calls("echo", "majority_label")(majority_label)
calls("ettrl", "majority_label")(majority_label)
for _name in ("sign_flips", "flip_prob_exact", "binary_vanish", "flip_prob_from_pool", "posterior_flip"):
    calls("mc-grpo", _name)(getattr(flips, _name))
