"""Bounded staleness: rollouts of older policies are admitted up to a lag, and weighed by how far the policy moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics.apportion import apportion
from workbench.stages import Card, Method, State
from workbench.types import Batch, Draft, Loss, Ragged, Rollouts

CARD = Card(
    slug="async_staleness",
    title="Bounded-staleness asynchronous training: AReaL and DORA of LongCat",
    arxiv="2505.24298",
    code="https://github.com/inclusionAI/AReaL",
    source="code",
    deviations=(
        "a row's version is that of its first token; rows that a newer policy finished carry its tokens under their head",
        "rows without behaviour log-probabilities weigh 1: they are not told from rows of the present policy",
        "LongCat's objective is complete as a function; its constants are not published",
    ),
    watch="lag of what is trained, weights between behaviour and proximal policy, share of tokens filtered",
    golden="async-staleness",
)

_CLAMP = 20.0

Level = Literal["token", "sequence"]
Action = Literal["mask", "clamp"]


class Capacity(NamedTuple):
    """Rollouts that staleness and concurrency leave room for; capacity is the smaller one, negative = start none."""

    staleness_capacity: int
    concurrency_capacity: int
    capacity: int


def capacity(eta: int, version: int, batch: int, accepted: int, running: int, max_concurrent: int) -> Capacity:
    """(eta + version + 1) batch - (accepted + running), and max_concurrent - running (AReaL, staleness manager)."""
    stale = (eta + version + 1) * batch - (accepted + running)
    free = max_concurrent - running
    return Capacity(stale, free, min(stale, free))


class Staleness(NamedTuple):
    """Of one response: version of its first token, largest and mean lag, versions used, share of tokens behind, runs."""

    head: int | None
    max: int | None
    mean: float | None
    n_versions: int | None
    offpolicy_fraction: float | None
    segments: list[list[int]] | None


def staleness(version: ArrayLike, mask: ArrayLike, current: int) -> Staleness:
    """Lags of the generated tokens (T,) under the current version; all None where none was generated."""
    v = np.asarray(version, np.int64)[np.asarray(mask, float) > 0]
    if not len(v):
        return Staleness(None, None, None, None, None, None)
    lag = current - v
    starts = np.concatenate([[0], np.flatnonzero(np.diff(v)) + 1])
    runs = np.diff(np.append(starts, len(v)))
    segments = [[int(v[s]), int(n)] for s, n in zip(starts, runs, strict=True)]
    return Staleness(int(v[0]), int(lag.max()), float(lag.mean()), len(np.unique(v)), float((lag > 0).mean()), segments)


def admit(head_version: ArrayLike, current: int, eta: int) -> np.ndarray:
    """(n,) bool: rollouts whose first token is at most eta versions old."""
    return current - np.asarray(head_version, np.int64) <= eta


class Weight(NamedTuple):
    """weight, loss_mask (B, T), 0 outside; filtered_fraction of the tokens beyond the bounds."""

    weight: np.ndarray
    loss_mask: np.ndarray
    filtered_fraction: float


def behaviour_weight(
    proximal_logprob: ArrayLike,
    behaviour_logprob: ArrayLike,
    mask: ArrayLike,
    level: Level = "token",
    action: Action = "mask",
    upper: float | None = 5.0,
    lower: float | None = None,
) -> Weight:
    """pi_proximal / pi_behaviour (B, T). mask drops what lies beyond the bounds and leaves the rest raw; clamp holds it.

    level sequence: the geometric mean over a row decides, and is the weight of all its tokens. A log-ratio that is not
    finite counts as 0."""
    valid = np.asarray(mask, float) > 0
    with np.errstate(invalid="ignore"):
        x = np.asarray(proximal_logprob, float) - np.asarray(behaviour_logprob, float)
    x = np.where(valid & np.isfinite(x), x, 0.0)
    if level == "sequence":
        x = np.where(valid, (x.sum(1) / np.maximum(valid.sum(1), 1))[:, None], 0.0)
    elif level != "token":
        raise ValueError(f"level must be token or sequence, not {level!r}")
    w = np.exp(np.clip(x, -_CLAMP, _CLAMP))
    high, low = inf if upper is None else upper, 0.0 if lower is None else lower
    beyond = valid & ((w > high) | (w < low))
    if action == "mask":
        kept = valid & ~beyond
        w = np.where(kept, w, 0.0)
    elif action == "clamp":
        kept, w = valid, np.where(valid, np.clip(w, low, high), 0.0)
    else:
        raise ValueError(f"action must be mask or clamp, not {action!r}")
    return Weight(w, kept.astype(np.int64), float(beyond.sum() / max(valid.sum(), 1)))


class Decoupled(NamedTuple):
    """ratio, token_loss (B, T), 0 on tokens out of the loss; loss over the original number of tokens."""

    ratio: np.ndarray
    token_loss: np.ndarray
    loss: float


def decoupled_loss(
    logprob: ArrayLike,
    proximal_logprob: ArrayLike,
    behaviour_logprob: ArrayLike,
    advantage: ArrayLike,
    mask: ArrayLike,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    level: Level = "token",
    action: Action = "mask",
    upper: float | None = 5.0,
    lower: float | None = None,
) -> Decoupled:
    """-w min(u A, clip(u) A), u = pi / pi_proximal, w = pi_proximal / pi_behaviour; all (B, T)."""
    valid = np.asarray(mask, float) > 0
    w = behaviour_weight(proximal_logprob, behaviour_logprob, mask, level, action, upper, lower)
    kept = w.loss_mask > 0
    x = np.where(kept, np.asarray(logprob, float) - np.asarray(proximal_logprob, float), 0.0)
    u = np.where(kept, np.exp(np.clip(x, -_CLAMP, _CLAMP)), 0.0)
    a = np.where(kept, np.asarray(advantage, float), 0.0)
    term = -w.weight * np.minimum(u * a, np.clip(u, 1 - clip_low, 1 + clip_high) * a)
    term = np.where(kept, term, 0.0)
    return Decoupled(u, term, float(term.sum() / max(valid.sum(), 1)))


class Window(NamedTuple):
    """Versions to retire, those that stay, whether a new one may be published, and the lag of the oldest (None = none)."""

    retire: list[int]
    active: list[int]
    may_publish: bool
    oldest_lag: int | None


def version_window(active: Sequence[int], outstanding: Mapping[object, int], current: int, K: int) -> Window:
    """At most K versions generate; the oldest ones retire, in order, once nothing of them is outstanding (DORA)."""
    left = {int(str(v)): n for v, n in outstanding.items()}
    stay = sorted(active)
    retire = []
    while stay and not left.get(stay[0], 0) and stay[0] != current:
        retire.append(stay.pop(0))
    return Window(retire, stay, len(stay) < K, current - stay[0] if stay else None)


class Replicas(NamedTuple):
    """ideal shares (V,), and whole groups (V,) that add up to the total."""

    ideal: np.ndarray
    groups: np.ndarray


def groups_per_version(total: int, active_requests: ArrayLike) -> Replicas:
    """Replicas per version by its requests (V,), rounded by largest remainder; none without requests."""
    requests = np.asarray(active_requests, float)
    if not requests.sum():
        return Replicas(np.zeros(len(requests)), np.zeros(len(requests), np.int64))
    return Replicas(total * requests / requests.sum(), apportion(requests, total))


class Triplet(NamedTuple):
    """ratio, tis, token_objective (T,); sequence_objective = their sum / T_max."""

    ratio: np.ndarray
    tis: np.ndarray
    token_objective: np.ndarray
    sequence_objective: float


def triplet_objective(
    logprob: ArrayLike,
    old_logprob: ArrayLike,
    sampler_logprob: ArrayLike,
    advantage: ArrayLike,
    eps_neg_low: float = 0.2,
    eps_neg_high: float = 3.0,
    eps_pos_high: float = 0.28,
    tis_cap: float = 2.0,
    T_max: int = 1,
) -> Triplet:
    """LongCat's objective: a truncated ratio to the sampler times the clipped one, bounded below for negative A."""
    logp, old, sampler, a = (np.asarray(v, float) for v in (logprob, old_logprob, sampler_logprob, advantage))
    r = np.exp(np.clip(logp - old, -_CLAMP, _CLAMP))
    tis = np.minimum(np.exp(np.clip(old - sampler, -_CLAMP, _CLAMP)), tis_cap)
    o = np.minimum(r * a, np.clip(r, 1 - eps_neg_low, 1 + eps_pos_high) * a)
    o = np.where(a < 0, np.maximum(o, eps_neg_high * a), o)
    return Triplet(r, tis, tis * o, float((tis * o).sum() / T_max))


def head_version(rollouts: Rollouts) -> np.ndarray:
    """(R,) int64 version that sampled each row's first token; rows that went on in a later step have an older one."""
    tokens = rollouts.extra.get("token_version")
    head = np.asarray(rollouts.version, np.int64).copy()
    if isinstance(tokens, Ragged):
        some = tokens.lengths > 0
        head[some] = tokens.values[tokens.offsets[:-1][some]]
    return head


@dataclass(frozen=True)
class AsyncStaleness(Method):
    """Admit rollouts at most eta versions old; decoupled loss against the proximal policy (AReaL).

    level, action, upper and lower say what happens to tokens whose sampler is far from the proximal policy.
    """

    eta: int = 4
    clip_low: float = 0.2
    clip_high: float = 0.2
    level: Literal["token", "sequence"] = "token"
    action: Literal["mask", "clamp"] = "mask"
    upper: float | None = 5.0
    lower: float | None = None

    card = CARD
    needs: ClassVar[frozenset[str]] = frozenset({"behaviour"})

    def __post_init__(self) -> None:
        if self.eta < 0:
            raise ValueError(f"eta={self.eta}: a lag is 0 or more")

    def admit(self, state: State, rollouts: Rollouts, draft: Draft) -> np.ndarray:
        """Rollouts whose first token's policy is at most eta updates behind the newest of the batch."""
        return admit(head_version(rollouts), int(rollouts.version.max(initial=0)), self.eta)

    def loss(self, state: State, batch: Batch) -> Loss:
        """The decoupled loss per token; `decoupled_loss` is its numpy twin."""
        import torch

        mask, zero = batch.mask.bool(), torch.zeros_like(batch.logp)
        x = torch.where(mask, batch.proximal - batch.behaviour, zero).detach()
        x = torch.where(x.isfinite(), x, zero)
        if self.level == "sequence":
            sampled = batch.sampled
            x = sampled * (x * sampled).sum(1, keepdim=True) / sampled.sum(1, keepdim=True).clamp(min=1)
        x = x.clamp(-_CLAMP, _CLAMP)
        high = log(self.upper) if self.upper is not None else inf
        low = log(self.lower) if self.lower else -inf
        beyond = mask & ((x > high) | (x < low))
        kept = mask & ~beyond if self.action == "mask" else mask
        w = torch.where(kept, x.clamp(low, high).exp(), zero)
        u = torch.where(kept, batch.logp - batch.proximal, zero).clamp(-_CLAMP, _CLAMP).exp()
        a = torch.where(kept, batch.advantage, zero)
        term = -w * torch.minimum(u * a, u.clamp(1 - self.clip_low, 1 + self.clip_high) * a)
        clipped = ((u > 1 + self.clip_high) & (a > 0)) | ((u < 1 - self.clip_low) & (a < 0))
        stats = {
            "ratio": u.detach(),
            "importance": w,
            "filtered": beyond.to(term.dtype),
            "clipped": clipped.to(term.dtype),
        }
        return Loss(term, reduction="token_mean", stats=stats)
