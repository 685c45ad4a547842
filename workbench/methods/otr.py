"""OTR: every position of a demonstration as a bandit of one token, rewarded where the policy draws the shown one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.stages import Card, Method, State
from workbench.types import Batch, Loss

CARD = Card(
    slug="otr",
    title="One-token rollout: guiding supervised fine-tuning of LLMs with policy gradient",
    arxiv="2509.26313",
    source="notes",
    deviations=(
        "the loop takes the limit of many draws at temperature 1, which needs the demonstrated token's log-probability "
        "alone: its gradient is (1 - beta) p(x) times that of cross-entropy; otr_loss and otr_expected have the rest",
        "every row that reaches the loss is taken for a demonstration; no world offers demonstrations yet",
        "beta -0.1, temperature 1.3 and K 256 are not confirmed",
    ),
    watch="p(target) and its quantiles, share of positions without a hit, entropy",
)


def _log_softmax(logits: ArrayLike, temperature: float = 1.0) -> np.ndarray:
    x = np.asarray(logits, float) / temperature
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def otr_rewards(sampled: ArrayLike, target: ArrayLike, beta: float = -0.1) -> np.ndarray:
    """(T, K): 1 where a drawn token is the demonstrated one, else beta."""
    return np.where(np.asarray(sampled, np.int64) == np.asarray(target, np.int64)[:, None], 1.0, beta)


class OtrLoss(NamedTuple):
    """loss; grad (T, V) by the logits."""

    loss: float
    grad: np.ndarray


def otr_loss(logits: ArrayLike, sampled: ArrayLike, target: ArrayLike, beta: float = -0.1) -> OtrLoss:
    """-(1/T) sum_t (1/K) sum_k R_tk log p(a_tk), at temperature 1; logits (T, V), sampled (T, K), target (T,)."""
    log_p, drawn = _log_softmax(logits), np.asarray(sampled, np.int64)
    if not len(log_p):
        return OtrLoss(0.0, log_p)
    weight = np.zeros(log_p.shape)
    share = otr_rewards(drawn, target, beta) / drawn.shape[1]
    np.add.at(weight, (np.arange(len(log_p))[:, None], drawn), share)
    return OtrLoss(*_weighted(log_p, weight))


def _weighted(log_p: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
    """-(1/T) sum w log p and its gradient by the logits, w (T, V) constant."""
    grad = np.exp(log_p) * weight.sum(axis=1, keepdims=True) - weight
    return float(-(weight * log_p).sum() / len(log_p)), grad / len(log_p)


class Expected(NamedTuple):
    """loss; grad (T, V) by the logits; p_hit (T,) chance of drawing the demonstrated token."""

    loss: float
    grad: np.ndarray
    p_hit: np.ndarray


def otr_expected(logits: ArrayLike, target: ArrayLike, beta: float = -0.1, temperature: float = 1.0) -> Expected:
    """The limit of many draws from softmax(logits / temperature): no sampling noise."""
    log_p, target = _log_softmax(logits), np.asarray(target, np.int64)
    if not len(log_p):
        return Expected(0.0, log_p, np.empty(0))
    q = np.exp(_log_softmax(logits, temperature))
    rows = np.arange(len(q))
    p_hit = q[rows, target]
    weight = beta * q
    weight[rows, target] = p_hit
    return Expected(*_weighted(log_p, weight), p_hit)


def dft_gradient(logits: ArrayLike, target: ArrayLike, scale: float = 1.0) -> np.ndarray:
    """(T, V) gradient of scale p(x) times cross-entropy, p held constant; scale = 1 - beta is OTR at temperature 1."""
    log_p, target = _log_softmax(logits), np.asarray(target, np.int64)
    p = np.exp(log_p)
    hot = np.zeros(p.shape)
    rows = np.arange(len(p))
    hot[rows, target] = 1
    return scale * p[rows, target][:, None] * (p - hot) / max(len(p), 1)


class Hits(NamedTuple):
    """mean_hits, p_no_hit (T,) of K draws."""

    mean_hits: np.ndarray
    p_no_hit: np.ndarray


def expected_hits(p_hit: ArrayLike, K: int) -> Hits:
    """K p hits on average, none with chance (1 - p)^K."""
    p = np.asarray(p_hit, float)
    return Hits(K * p, (1 - p) ** K)


@dataclass(frozen=True)
class Otr(Method):
    """Fine-tuning on demonstrations, each position weighed by (1 - beta) p(target)."""

    beta: float = -0.1

    card = CARD
    needs: ClassVar[frozenset[str]] = frozenset({"demonstration"})

    def loss(self, state: State, batch: Batch) -> Loss:
        """-(1 - beta) p log p with p held constant, whatever the advantage; `dft_gradient` is its numpy twin."""
        import torch

        logp = torch.where(batch.mask.bool(), batch.logp, torch.zeros_like(batch.logp))
        p = logp.detach().exp()
        return Loss(-(1 - self.beta) * p * logp, reduction="token_mean", stats={"p_target": p})
