"""Scripted world for tests: rewards follow from the rollout's id, some verifiers fail, nothing learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from workbench.stages import BaseWorld, Card, LossFn, Method
from workbench.types import Advantage, Budget, Draft, Plan, Pool, Ragged, Rollouts, Step


def pool_of(n: int) -> Pool:
    """n prompts "p0", "p1", ...; every third is of family "b"."""
    text = np.array([f"prompt {i}" for i in range(n)], dtype=object)
    return Pool(
        ids=np.array([f"p{i}" for i in range(n)], dtype=object),
        text=text,
        answer=text,
        prefix=np.full(n, "", dtype=object),
        stratum=np.where(np.arange(n) % 3 == 0, "b", "a").astype(object),
        features={"embedding": np.random.default_rng(0).standard_normal((n, 4)).astype(np.float32)},
    )


class ScriptedWorld(BaseWorld):
    """Prompt i succeeds at rate i / (N - 1); prompt 1 is never verified, every thirteenth rollout fails."""

    def __init__(self, n_prompts: int = 24, offers: frozenset[str] = frozenset(), null: float = 1 / 13) -> None:
        self.pool = pool_of(n_prompts)
        self.offers = offers
        self.null = null
        self.version = 0

    def sample(self, plan: Plan, branch: object = None, prune: object = None) -> Rollouts:
        """Rollouts of 1 to 5 tokens; the same plan gives the same ones."""
        rows = Rollouts.of_plan(plan, self.pool, self.version)
        digest = b"".join(blake2b(i.encode(), digest_size=16).digest() for i in rows.id)
        u = np.frombuffer(digest, np.uint32).reshape(-1, 4) / 2**32
        correct = (u[:, 0] < rows.prompt / max(len(self.pool) - 1, 1)).astype(float)
        reward = correct + 0.25 * np.round(2 * u[:, 1])
        failed = (u[:, 2] < self.null) | ((rows.prompt == 1) & (self.null > 0))
        length = 1 + (u[:, 3] * 5).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        noise = np.random.default_rng(0).random(int(offsets[-1])).astype(np.float32)
        return rows.with_(
            reward=np.where(failed, np.nan, reward),
            correct=np.where(failed, np.nan, correct),
            rewards={"exact": np.where(failed, np.nan, correct), "format": np.where(failed, np.nan, reward - correct)},
            length=length,
            finish=np.full(len(rows), "stop", dtype=object),
            failure=np.where(failed, "verifier", "").astype(object),
            tokens=Ragged(np.arange(offsets[-1], dtype=np.int32), offsets),
            logp=Ragged(-noise, offsets),
            entropy=Ragged(noise, offsets),
        )

    def update(self, rollouts: Rollouts, advantage: Advantage, loss: LossFn, penalties: list[LossFn]) -> dict:
        """Count an update; no weight changes."""
        self.version += 1
        return {"kept": float(advantage.keep.sum())}


@dataclass(frozen=True)
class Uneven(Method):
    """Groups of 1, 2, 3, 4, 1, ... rollouts, whatever the budget says."""

    card = Card(slug="uneven", title="Uneven groups, for tests", source="ours", watch="nothing")

    def allocate(self, state: object, draft: Draft, rng: np.random.Generator) -> Plan:
        """1, 2, 3, 4, 1, ... rollouts for the fresh prompts."""
        return Plan(draft.fresh, 1 + np.arange(len(draft.fresh)) % 4)


def rollouts_of(groups: list[list[float | None]]) -> Rollouts:
    """One group per list; None is a null reward."""
    world = ScriptedWorld(len(groups))
    rows = Rollouts.of_plan(Plan(np.arange(len(groups)), np.array([len(g) for g in groups])), world.pool)
    reward = np.array([r for g in groups for r in g], float)
    return rows.with_(reward=reward, correct=(reward >= 1 - 1e-9) * 1.0, group=rows.prompt)


def draft_of(rollouts: Rollouts, prompts: int = 2) -> Draft:
    """A draft of step 1, with a pool of 64 prompts, whose rollouts came back."""
    budget = Budget(prompts=prompts, rollouts=64)
    return Draft(1, budget, np.ones(64, bool), np.unique(rollouts.prompt), rollouts=rollouts)


def barren(step: Step) -> Step:
    """The same step as if no verifier had worked."""
    null = np.full(len(step.rollouts), np.nan)
    return replace(step, rollouts=step.rollouts.with_(reward=null, correct=null))


def equal(a: Any, b: Any) -> bool:
    """Deep equality of records, arrays (NaN equals NaN), mappings and sequences."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape:
            return False
        if a.dtype.kind == "f" and b.dtype.kind == "f":
            return bool(np.array_equal(a, b, equal_nan=True))
        return all(equal(x, y) for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True))
    if type(a) is not type(b):
        return False
    if is_dataclass(a):
        return all(equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name != "seconds")
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return a == b or (a != a and b != b)
