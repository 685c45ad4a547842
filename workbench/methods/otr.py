"""OTR: every position of a demonstration as a bandit of one token, rewarded where the policy draws the shown one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from workbench.stages import Card, Method, State
from workbench.types import Batch, Loss

CARD = Card(
    slug="otr",
    title="One-token rollout: guiding supervised fine-tuning of LLMs with policy gradient",
    arxiv="2509.26313",
    source="notes",
    deviations=(
        "the loop takes the limit of many draws at temperature 1, which needs the demonstrated token's log-probability "
        "alone: its gradient is (1 - beta) p(x) times that of cross-entropy",
        "every row that reaches the loss is taken for a demonstration; no world offers demonstrations yet",
        "beta -0.1, temperature 1.3 and K 256 are not confirmed",
    ),
    watch="p(target) and its quantiles, share of positions without a hit, entropy",
)


@dataclass(frozen=True)
class Otr(Method):
    """Fine-tuning on demonstrations, each position weighed by (1 - beta) p(target)."""

    beta: float = -0.1

    card = CARD
    needs: ClassVar[frozenset[str]] = frozenset({"demonstration"})

    def loss(self, state: State, batch: Batch) -> Loss:
        """-(1 - beta) p log p with p held constant, whatever the advantage."""
        import torch

        logp = torch.where(batch.mask.bool(), batch.logp, torch.zeros_like(batch.logp))
        p = logp.detach().exp()
        return Loss(-(1 - self.beta) * p * logp, reduction="token_mean", stats={"p_target": p})
