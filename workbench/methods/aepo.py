"""AEPO: fresh rollouts against branches by measured entropy, and clipped tokens keep their gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

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
        "the entropy-aware advantage and the balanced clip; the split between fresh rollouts and branches, which needs turns "
        "with tools, is left out",
        "entropies are standardised over the kept rollouts of the step, not over a mini-batch",
    ),
    watch="global rollouts against the gap of entropies, tokens above the clip whose gradient stayed, entropy over steps",
)


def entropy_advantage(advantages: ArrayLike, entropies: ArrayLike, mask: ArrayLike, alpha: float = 0.2) -> np.ndarray:
    """A (1 + alpha z(H)) (B, T), z over all unmasked tokens, one degree of freedom less; a std of 0 counts as 1."""
    a, h = np.asarray(advantages, float), np.asarray(entropies, float)
    valid = np.asarray(mask, float) > 0
    if not valid.any():
        return a
    seen = h[valid]
    std = float(seen.std(ddof=1)) if len(seen) > 1 else 1.0
    return a * (1 + alpha * (h - seen.mean()) / (std or 1.0))


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
        """The clipped surrogate whose upper clip keeps the gradient (1 + eps_high) A grad log pi instead of 0.

        The lower clip, and the dual clip for negative advantages, are the usual ones."""
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
