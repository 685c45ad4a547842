"""REINFORCE++: returns whitened over all tokens of the batch, without or with the mean of the group as baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from workbench.methods.grpo import Grpo
from workbench.numerics.estimators import group_advantages
from workbench.numerics.groups import whiten
from workbench.stages import Card, State
from workbench.types import Advantage, Draft, Ragged

CARD = Card(
    slug="reinforce_pp",
    title="REINFORCE++: stabilizing critic-free policy optimization",
    arxiv="2501.03262",
    code="https://github.com/OpenRLHF/OpenRLHF",
    source="C*",
    deviations=(
        "no KL in the token rewards",
        "with baseline=True, REINFORCE++-baseline: r - mean of the group before whitening, whose sign may change",
        "truncated importance weight between sampler and trainer, as in grpo; truncation=None turns it off",
    ),
    watch="signs that whitening turns: long rollouts weigh more in the mean",
    golden="baselines",
)


@dataclass(frozen=True)
class ReinforcePp(Grpo):
    """The reward at the last token, discounted back by gamma, and whitened over the tokens of all kept rollouts."""

    eps: float | None = 1e-8
    gamma: float = 1.0
    baseline: bool = False

    card = CARD

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """Whitened returns; one number per rollout where gamma is 1, else one per token."""
        r = draft.rollouts
        reward = np.where(advantage.keep, r.reward, np.nan)
        mean = np.full(len(r), np.nan)
        if self.baseline:
            made = group_advantages(reward, r.group, "dr_grpo", g1=self.g1)
            mean, reward = made.baseline, np.where(advantage.keep, made.advantages, np.nan)
        scored, eps = np.isfinite(reward), 1e-8 if self.eps is None else self.eps
        outcome, tokens = np.where(scored, reward, 0.0), np.where(scored, r.length, 0)
        if self.gamma == 1:
            value = whiten(outcome, tokens.astype(float), eps)
            return replace(advantage, value=value, baseline=mean, tokens=None)
        # R_t = gamma^(T - 1 - t) r: the return of a reward that comes with the last token
        offsets = np.concatenate([[0], np.cumsum(r.length)]).astype(np.int64)
        row = np.repeat(np.arange(len(r)), r.length)
        left = offsets[row + 1] - 1 - np.arange(offsets[-1])
        whitened = Ragged(whiten(outcome[row] * self.gamma**left, scored[row].astype(float), eps), offsets)
        return replace(advantage, value=np.nan_to_num(whitened.mean()), baseline=mean, tokens=whitened)
