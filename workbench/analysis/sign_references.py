"""References for sign flips of recorded rollouts: pools of one version, beliefs held before, means of the last versions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from workbench.analysis.sign_labels import Kind, Reference
from workbench.types import Rollouts, Step

N_REF = 64
"""Rollouts of one version that make a pool."""


class Field(NamedTuple):
    """Rollouts of one step to draw groups from: cluster (R,) of each, prompt (C,) of every cluster, and its reference."""

    step: int
    rollouts: Rollouts
    cluster: np.ndarray
    prompt: np.ndarray
    reference: Reference


def clusters(rollouts: Rollouts) -> tuple[np.ndarray, np.ndarray]:
    """(R,) cluster of each rollout by prompt, context and version; (C,) prompt of each cluster."""
    keys = [f"{p}|{c}|{v}" for p, c, v in zip(rollouts.prompt, rollouts.context, rollouts.version, strict=True)]
    _, first, cluster = np.unique(np.array(keys, str), return_index=True, return_inverse=True)
    return cluster, rollouts.prompt[first]


def scored(step: Step, *purposes: str) -> Rollouts:
    """The rollouts of some purposes that this step asked for and that have a reward: those used again were counted in
    the step that made them."""
    r = step.rollouts
    return r.take(np.isfinite(r.reward) & np.isin(r.purpose, purposes) & (r.ask >= 0))


def pooled(step: Step, n_ref: int = N_REF) -> Field | None:
    """The pools of a step: rollouts of one prompt, context and version, n_ref scored ones or more; None without any.

    Rollouts made to be a reference or a probe come first; where a prompt has too few of them, its training rollouts
    (of the same law) count too."""
    r = scored(step, "probe", "reference", "train", "profile")
    if not len(r):
        return None
    cluster, _ = clusters(r)
    made_for_it = r.purpose != "train"
    enough = np.bincount(cluster, made_for_it) >= n_ref
    return _pools(step.step, r.take(made_for_it | ~enough[cluster]), n_ref)


def _pools(step: int, rollouts: Rollouts, n_ref: int) -> Field | None:
    if not len(rollouts):
        return None
    cluster, prompt = clusters(rollouts)
    large = np.bincount(cluster) >= n_ref
    if not large.any():
        return None
    inside = large[cluster]
    rollouts, cluster = rollouts.take(inside), (np.cumsum(large) - 1)[cluster[inside]]
    n = np.bincount(cluster)
    mean = np.bincount(cluster, rollouts.reward) / n
    square = np.bincount(cluster, (rollouts.reward - mean[cluster]) ** 2)
    se = np.sqrt(square / np.maximum(n - 1, 1) / n)
    return Field(step, rollouts, cluster, prompt[large], Reference("pool", mean, se))


class Memory:
    """What earlier steps say of every prompt: a Beta per prompt and context for posterior, recent rewards for union."""

    def __init__(self, low: float, high: float, keep: float, versions: int) -> None:
        self.low, self.high, self.keep, self.versions = low, high, keep, versions
        self.belief: dict[tuple[int, str], tuple[float, float]] = {}
        self.recent: dict[tuple[int, str], list[tuple[int, float]]] = {}

    def field(self, kind: Kind, step: Step, n_min: int) -> Field | None:
        """The groups of a step against what was known before it (posterior), or around it (union)."""
        r = scored(step, "train")
        if kind == "union":
            self._add_recent(r)
        if not len(r):
            return None
        cluster, prompt = clusters(r)
        _, first = np.unique(cluster, return_index=True)
        keys = [(int(r.prompt[i]), str(r.context[i])) for i in first]
        if kind == "posterior":
            a, b = np.array([self.belief.get(k, (1.0, 1.0)) for k in keys]).T
            mean = self.low + (self.high - self.low) * a / (a + b)
            return Field(
                step.step, r, cluster, prompt, Reference(kind, mean, np.zeros(len(a)), a, b, self.low, self.high)
            )
        seen = [np.array([v for _, v in self.recent[k]]) for k in keys]
        n = np.array([len(s) for s in seen])
        se = np.array([s.std(ddof=1) / np.sqrt(len(s)) if len(s) > 1 else np.nan for s in seen])
        enough = n >= n_min
        inside = enough[cluster]
        if not enough.any():
            return None
        value = np.array([s.mean() for s in seen])[enough]
        place = (np.cumsum(enough) - 1)[cluster[inside]]
        return Field(step.step, r.take(inside), place, prompt[enough], Reference(kind, value, se[enough]))

    def _add_recent(self, r: Rollouts) -> None:
        newest = int(r.version.max(initial=0))
        for p, c, v, reward in zip(r.prompt, r.context, r.version, r.reward, strict=True):
            self.recent.setdefault((int(p), str(c)), []).append((int(v), float(reward)))
        for key in {(int(p), str(c)) for p, c in zip(r.prompt, r.context, strict=True)}:
            self.recent[key] = [(v, x) for v, x in self.recent[key] if v > newest - self.versions]

    def observe(self, step: Step) -> None:
        """Count a finished step's training rewards into the beliefs, older ones by `keep`."""
        r = scored(step, "train")
        share = (r.reward - self.low) / (self.high - self.low)
        for key in sorted({(int(p), str(c)) for p, c in zip(r.prompt, r.context, strict=True)}):
            mine = share[(r.prompt == key[0]) & (r.context == key[1])]
            a, b = self.belief.get(key, (1.0, 1.0))
            fresh = np.array([mine.sum(), (1 - mine).sum()])
            a, b = 1 + self.keep * (np.array([a, b]) - 1) + fresh
            self.belief[key] = (float(a), float(b))
