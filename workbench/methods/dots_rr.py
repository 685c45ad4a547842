"""DOTS-RR: difficulty of every prompt predicted from a few references, prompts near the target, recent rollouts again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.groups import describe
from workbench.numerics.picks import largest, smallest
from workbench.numerics.predictors import Context, Features, likeness, needs_of, points_of
from workbench.numerics.replay import appended, groups_of, renumbered, stored
from workbench.stages import Card, Method
from workbench.types import Batch, Draft, Loss, Picked, Pool, Rollouts, Step

CARD = Card(
    slug="dots_rr",
    title="Improving data efficiency for LLM reinforcement fine-tuning through difficulty-targeted online data selection "
    "and rollout replay",
    arxiv="2506.05316",
    code="https://github.com/ASTRAL-Group/data-efficient-llm-rl",
    source="code",
    deviations=(
        "no trained predictor: identity projections on unit-length embeddings, attention temperature 0.1, no calibration "
        "network; the least-squares calibration stays",
        "the references are the latest K prompts that training rolled out, which costs nothing; the code rolls out K random "
        "prompts at the start of every cycle",
        "target means success rate; the paper speaks of difficulty, which is the same at 0.5",
        "groups whose rewards are all alike are not replayed, whatever the reward",
        "fresh prompts are drawn step by step, without repeats within a cycle; a prompt of the step is not also replayed in it",
    ),
    unspent="a part of every step after the first cycle is replayed",
    watch="predicted against observed rates of the batch, age and importance of replayed rollouts",
)

_CLAMP = 20.0
_CHUNK = 4_000_000


class Attention(NamedTuple):
    """weights (B, K) that sum to 1 in each row; pred (B,) weighted means of the references."""

    weights: np.ndarray
    pred: np.ndarray


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attend(logits: np.ndarray, values: np.ndarray, top_k: int | None = None) -> Attention:
    """softmax of logits (B, K) over the references, of which values (K,) are known.

    top_k: only the best references of each query count, and those equal to the last of them."""
    if top_k is not None and top_k < logits.shape[1]:
        least = np.partition(logits, -top_k, axis=1)[:, -top_k, None]
        logits = np.where(logits >= least, logits, -np.inf)
    weights = _softmax(logits)
    return Attention(weights, weights @ values)


class Calibration(NamedTuple):
    """slope, intercept of the least-squares line; calibrated predictions (B,), not clamped to 0..1."""

    slope: float
    intercept: float
    calibrated: np.ndarray


def linear_calibrate(pred_ref: ArrayLike, label_ref: ArrayLike, preds: ArrayLike) -> Calibration:
    """Labels (K,) of the references as a line in their predictions (K,), applied to preds (B,).

    Where predictions or labels do not vary: slope 0, intercept their mean label."""
    x, y, new = (np.asarray(v, float) for v in (pred_ref, label_ref, preds))
    centred = x - x.mean()
    spread = (centred**2).sum()
    flat = spread <= 1e-24 * len(x) or y.max() == y.min()
    slope = 0.0 if flat else float((centred * (y - y.mean())).sum() / spread)
    intercept = float(np.clip(y.mean(), y.min(), y.max())) if flat else float(y.mean() - slope * x.mean())
    return Calibration(slope, intercept, slope * new + intercept)


class Memory(NamedTuple):
    """points (N, d) of the pool; context: latest outcomes; d_hat (N,) predicted success rates, error their root mean
    square on the references (0.5 before the first cycle); taken (N,) bool: chosen in this cycle; steps so far;
    buffer of groups, oldest first."""

    points: np.ndarray
    context: Context
    d_hat: np.ndarray
    error: float
    taken: np.ndarray
    steps: int
    buffer: Rollouts | None


@dataclass(frozen=True)
class DotsRr(Method):
    """Prompts drawn near `target` by predicted rate, `sigma` of a step fresh and the rest replayed.

    mu: steps of a cycle, after which rates are predicted anew from the latest `references` prompts. capacity: groups
    of the buffer. center_cap: bound of the weight of stale tokens, None = as in the paper. features: what makes
    prompts alike. sigma=1 turns replay off."""

    mu: int = 2
    references: int = 256
    target: float = 0.5
    tau: float = 1e-3
    sigma: float = 0.5
    capacity: int = 512
    clip_eps: float = 0.2
    tau_attention: float = 0.1
    top_k: int | None = None
    center_cap: float | None = None
    features: Features = "embedding"

    card = CARD

    def __post_init__(self) -> None:
        if not 0 < self.sigma <= 1 or self.mu < 1:
            raise ValueError(f"sigma={self.sigma} must lie in 0..1 and mu={self.mu} be at least 1")

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        """Embeddings, where prompts are compared by them."""
        return needs_of(self.features)

    def init(self, pool: Pool) -> Memory:
        """Every prompt at the target, nothing to replay."""
        n = len(pool)
        points, nothing = points_of(pool, self.features), np.zeros(n, bool)
        return Memory(points, Context.empty(), np.full(n, self.target), 0.5, nothing, 0, None)

    def observe(self, state: Memory, step: Step) -> Memory:
        """Outcomes enter the context and the buffer; at the end of a cycle every prompt is predicted anew."""
        rows, solved, tried = step.evidence(len(state.d_hat))
        context = state.context.add(rows, solved, tried, step.step, self.references)
        steps = state.steps + 1
        buffer = self._buffer(state.buffer, groups_of(step))
        if steps % self.mu or not len(context.rows):
            taken = state.taken.copy()
            taken[step.prompts] = True
            return state._replace(context=context, taken=taken, steps=steps, buffer=buffer)
        d_hat, error = self._predict(state.points, context)
        return Memory(state.points, context, d_hat, error, np.zeros(len(d_hat), bool), steps, buffer)

    def _predict(self, points: np.ndarray, context: Context) -> tuple[np.ndarray, float]:
        """Attention over the references in chunks of the pool, then the line that fits them."""
        known, label = points[context.rows], context.solved / context.tried
        base = np.empty(len(points))
        size = max(_CHUNK // len(known), 1)
        for first in range(0, len(points), size):
            rows = slice(first, first + size)
            base[rows] = attend(likeness(points[rows], known) / self.tau_attention, label, self.top_k).pred
        made = linear_calibrate(base[context.rows], label, base)
        error = float(np.sqrt(np.mean((made.calibrated[context.rows] - label) ** 2)))
        return made.calibrated, error

    def _buffer(self, old: Rollouts | None, fresh: Rollouts) -> Rollouts | None:
        """What may be replayed of the old groups, within the capacity, and the fresh ones behind them."""
        if self.sigma == 1:
            return None
        n_fresh = len(np.unique(fresh.group))
        parts = [fresh]
        if old is not None:
            parts.insert(0, old.take(np.isin(old.group, newest(replayable(old), self.capacity - n_fresh))))
        parts = [part for part in parts if len(part)]
        return stored(parts) if parts else old

    def reveal(self, state: Memory) -> Mapping[str, np.ndarray]:
        """mean = predicted rate inside 0..1, 1.64 root mean square errors to either side, the raw prediction."""
        mean = np.clip(state.d_hat, 0, 1)
        low, high = np.clip(mean - 1.64 * state.error, 0, 1), np.clip(mean + 1.64 * state.error, 0, 1)
        return {"mean": mean, "low": low, "high": high, "d_hat": state.d_hat}

    def select(self, state: Memory, draft: Draft, rng: np.random.Generator) -> Picked:
        """Draws without replacement (Gumbel's trick) among what this cycle has not seen; the share sigma after cycle 0."""
        noise = rng.gumbel(size=len(state.d_hat))
        rows = draft.candidates()
        wanted = draft.wanted
        if draft.round == 0 and state.steps >= self.mu:
            wanted = min(wanted, max(round(self.sigma * wanted), 1))
        d_hat = state.d_hat[rows]
        distance = np.abs(d_hat - self.target)
        score = noise[rows] - distance / self.tau
        unseen = np.flatnonzero(~state.taken[rows])
        if len(unseen) >= wanted:
            best = unseen[largest(score[unseen], wanted)]
        else:
            seen = np.flatnonzero(state.taken[rows])
            best = np.concatenate([unseen, seen[largest(score[seen], wanted - len(unseen))]])
        return Picked.among(rows, best, d_hat=d_hat, distance=distance)

    def replay(self, state: Memory, rollouts: Rollouts, draft: Draft, rng: np.random.Generator) -> Rollouts:
        """Groups from the buffer for the prompts that this step did not draw, from the second cycle on."""
        if state.buffer is None or state.steps < self.mu:
            return rollouts
        own = np.unique(rollouts.prompt)
        groups = replayable(state.buffer)
        prompt = np.zeros(int(state.buffer.group.max(initial=-1)) + 1, np.int64)
        prompt[state.buffer.group] = state.buffer.prompt
        groups = groups[~np.isin(prompt[groups], own)]
        n = min(round((1 - self.sigma) * draft.budget.prompts), len(groups))
        chosen = groups[smallest(rng.random(len(groups)), n)]
        again = state.buffer.take(np.isin(state.buffer.group, chosen))
        return appended(rollouts, renumbered(again, int(rollouts.group.max(initial=-1)) + 1))

    def loss(self, state: Memory, batch: Batch) -> Loss:
        """max(-A r, -A clip(r, c (1 - eps), c (1 + eps))), r = pi / behaviour, c = pi_old / behaviour: c times the PPO loss
        around the old policy; c is 1 for fresh tokens, and at most center_cap."""
        import torch

        mask, zero = batch.mask.bool(), torch.zeros_like(batch.logp)
        step = torch.where(mask, batch.logp - batch.proximal, zero).clamp(-_CLAMP, _CLAMP)
        drift = torch.where(mask, batch.proximal - batch.behaviour, zero).clamp(-_CLAMP, _CLAMP).detach()
        a = torch.where(mask, batch.advantage, zero)
        ratio, center = step.exp(), drift.exp()
        if self.center_cap is not None:
            center = center.clamp(max=self.center_cap)
        free, bound = -a * ratio, -a * ratio.clamp(1 - self.clip_eps, 1 + self.clip_eps)
        stats = {"ratio": ratio.detach(), "center": center, "clipped": (bound > free).detach().to(free.dtype)}
        return Loss(center * torch.maximum(free, bound), reduction="token_mean", stats=stats)


def replayable(buffer: Rollouts) -> np.ndarray:
    """Groups (G,) of a replay buffer, oldest first: the latest of each prompt, where its rewards are not all alike."""
    groups, first, place = np.unique(buffer.group, return_index=True, return_inverse=True)
    latest = np.zeros(len(groups), bool)
    latest[len(groups) - 1 - np.unique(buffer.prompt[first][::-1], return_index=True)[1]] = True
    return groups[latest & ~describe(buffer.reward, place, len(groups)).settled]


def newest(groups: np.ndarray, room: int) -> np.ndarray:
    """The last of the groups (G,), as many as there is room for."""
    return groups[len(groups) - min(max(room, 0), len(groups)) :]
