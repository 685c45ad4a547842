"""AEPO: fresh rollouts against branches by measured entropy, and clipped tokens keep their gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, floor, log
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.stages import Card, Method, State
from workbench.types import Advantage, Batch, Draft, Loss, Ragged

CARD = Card(
    slug="aepo",
    title="AEPO: agentic entropy-balanced policy optimization",
    arxiv="2510.14545",
    code="https://github.com/RUC-NLPIR/ARPO",
    source="C*",
    deviations=(
        "what acts in the loop is the entropy-aware advantage and the balanced clip; the split between fresh rollouts and "
        "branches needs tool turns and is complete as functions",
        "entropies are standardised over the kept rollouts of the step, not over a mini-batch",
    ),
    watch="global rollouts against the gap of entropies, tokens above the clip whose gradient stayed, entropy over steps",
)


def segment_entropy(token_logprobs: Sequence[ArrayLike], vocab_size: int, max_tokens: int = 20) -> float:
    """Sum over the first tokens of -sum p ln p over the K returned, divided by ln |V|."""
    rows = [np.asarray(row, float) for row in token_logprobs[:max_tokens]]
    return float(sum(-(np.exp(z) * z).sum() for z in rows) / log(vocab_size))


class Split(NamedTuple):
    """sigma, rollouts started from the prompt, and those left for branches."""

    sigma: float
    global_rollouts: int
    branch_budget: int


def initial_rollouts(budget: int, h_root: float, tool_entropies: Sequence[float], beta: float = 0.5) -> Split:
    """floor(k sigmoid(beta (H_root - mean H_tool))) + 1 of the budget k start fresh, at most all; no tool turn: H_root."""
    tool = float(np.mean(tool_entropies)) if len(tool_entropies) else h_root
    sigma = 1 / (1 + exp(-beta * (h_root - tool)))
    fresh = min(max(floor(budget * sigma) + 1, 1), budget)
    return Split(sigma, fresh, budget - fresh)


class Chance(NamedTuple):
    """penalty_factor for branching again, and the exact chance of branching."""

    penalty_factor: float
    probability: float


def branch_probability(
    delta_entropy: float,
    consecutive: int,
    entropy_weight: float = 0.2,
    penalty: float = 0.05,
    threshold: float = 0.5,
) -> Chance:
    """P((U + w dH) f >= threshold) for U uniform in 0..1 and f = max(0, 1 - penalty x consecutive)."""
    factor = max(0.0, 1 - penalty * consecutive)
    if factor == 0:
        return Chance(0.0, 0.0)
    return Chance(factor, float(np.clip(1 - (threshold / factor - entropy_weight * delta_entropy), 0, 1)))


def consecutive_update(counts: ArrayLike, branched: ArrayLike, any_new: bool) -> np.ndarray:
    """(Q,) int64: one more for prompts that got a branch, 0 for the others; an idle round changes nothing."""
    counts = np.asarray(counts, np.int64)
    return np.where(np.asarray(branched, bool), counts + 1, 0) if any_new else counts


def entropy_advantage(advantages: ArrayLike, entropies: ArrayLike, mask: ArrayLike, alpha: float = 0.2) -> np.ndarray:
    """A (1 + alpha z(H)) (B, T), z over all unmasked tokens, one degree of freedom less; a std of 0 counts as 1."""
    a, h = np.asarray(advantages, float), np.asarray(entropies, float)
    valid = np.asarray(mask, float) > 0
    if not valid.any():
        return a
    seen = h[valid]
    std = float(seen.std(ddof=1)) if len(seen) > 1 else 1.0
    return a * (1 + alpha * (h - seen.mean()) / (std or 1.0))


class Clipped(NamedTuple):
    """loss of a token and its gradient by the token's log-probability."""

    loss: np.ndarray
    grad_logprob: np.ndarray


def balanced_clip(
    log_ratio: ArrayLike,
    advantage: ArrayLike,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    dual_clip: float | None = 3.0,
    balanced: bool = True,
) -> Clipped:
    """The clipped surrogate whose upper clip keeps the gradient (1 + eps_high) A grad log pi instead of 0.

    The lower clip, and the dual clip for negative advantages, are the usual ones. Elementwise."""
    r, a = np.exp(np.asarray(log_ratio, float)), np.asarray(advantage, float)
    high = 1 + eps_high
    clipped = np.clip(r, 1 - eps_low, high)
    plain, bound = -a * r, -a * clipped
    loss = np.maximum(plain, bound)
    keeps = r > high if balanced else np.zeros(np.shape(r), bool)
    inside = (r >= 1 - eps_low) & (r <= high)
    slope_bound = np.where(inside, -a * r, np.where(keeps, -a * high, 0.0))
    grad = np.where(plain >= bound, plain, slope_bound)
    if dual_clip is not None:
        cap = -a * dual_clip
        capped = (a < 0) & (loss > cap)
        loss, grad = np.where(capped, cap, loss), np.where(capped, 0.0, grad)
    return Clipped(loss, grad)


_CLAMP = 20.0


@dataclass(frozen=True)
class Aepo(Method):
    """Advantages raised where entropy is high, and a clip that keeps the gradient of what it clips above.

    alpha weighs the entropy; dual_clip bounds the loss of negative advantages. Stands behind an estimator.
    """

    alpha: float = 0.2
    eps_low: float = 0.2
    eps_high: float = 0.2
    dual_clip: float | None = 3.0
    balanced: bool = True

    card = CARD
    needs: ClassVar[frozenset[str]] = frozenset({"token_entropy"})

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """A (1 + alpha z(H)) token by token."""
        entropy = draft.rollouts.entropy
        if entropy is None:
            raise ValueError("aepo scales by the entropy of the tokens, and these rollouts have none recorded")
        row = np.repeat(np.arange(len(draft.rollouts)), entropy.lengths)
        value = advantage.value[row] if advantage.tokens is None else advantage.tokens.values
        made = entropy_advantage(value, entropy.values, advantage.keep[row], self.alpha)
        return replace(advantage, tokens=Ragged(np.where(advantage.keep[row], made, 0.0), entropy.offsets))

    def loss(self, state: State, batch: Batch) -> Loss:
        """The clipped surrogate with gradients kept above the clip; `balanced_clip` is its numpy twin."""
        import torch

        mask, zero = batch.mask.bool(), torch.zeros_like(batch.logp)
        r = torch.where(mask, batch.logp - batch.proximal, zero).clamp(-_CLAMP, _CLAMP).exp()
        a = torch.where(mask, batch.advantage, zero)
        high = 1 + self.eps_high
        bound = r.clamp(1 - self.eps_low, high)
        if self.balanced:
            bound = torch.where(r > high, high * r / r.detach(), bound)
        term = torch.maximum(-a * r, -a * bound)
        above, below = (r > high) & (a > 0), (r < 1 - self.eps_low) & (a < 0)
        stats = {"ratio": r.detach(), "clip_low": below.to(term.dtype), "clip_high": above.to(term.dtype)}
        if self.dual_clip is not None:
            capped = (a < 0) & (term > -a * self.dual_clip)
            term = torch.where(capped, (-a * self.dual_clip).detach(), term)
            stats["capped"] = capped.to(term.dtype)
        return Loss(term, reduction="token_mean", stats=stats)
