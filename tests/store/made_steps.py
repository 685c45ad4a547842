"""Synthetic pools, steps and evaluations: plain numpy, every column filled, no world needed."""

from __future__ import annotations

import numpy as np

from workbench.pipeline.fates import fates
from workbench.types import Advantage, Event, Plan, Pool, Ragged, Rollouts, Step


def made_pool(n: int, lead: str = "p") -> Pool:
    """n prompts with features."""
    ids = np.array([f"{lead}{i:04d}" for i in range(n)], dtype=object)
    text = np.array([f"{i} + 1 = <b>?" for i in range(n)], dtype=object)
    answer = np.array([str(i + 1) for i in range(n)], dtype=object)
    stratum = np.where(np.arange(n) % 2, "odd", "even").astype(object)
    return Pool(
        ids, text, answer, np.full(n, "", dtype=object), stratum,
        {"size": np.arange(2.0 * n).reshape(n, 2), "embedding": np.cos(np.arange(3.0 * n)).reshape(n, 3).astype(np.float32)}, {"note": text, "big": np.arange(n) + 2**60},
    )  # fmt: skip


def filled(rows: Rollouts, rng: np.random.Generator, tokens: bool = True) -> Rollouts:
    """Give asked rows text, rewards and tokens; one reward in twenty is null, with a failed verifier."""
    r = len(rows)
    length = rng.integers(0, 9, r)
    correct = (rng.random(r) < 0.4).astype(float)
    broken = rng.random(r) < 0.05
    correct[broken] = np.nan
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    total = int(offsets[-1])

    def ragged(values: np.ndarray) -> Ragged | None:
        return Ragged(values, offsets) if tokens else None

    return rows.with_(
        text=np.array([f"<script>alert({i})</script> é\n" for i in range(r)], dtype=object),
        answer=np.where(rng.random(r) < 0.2, None, "7"),
        reward=0.5 * correct + 0.1,
        correct=correct,
        length=length,
        finish=np.where(length < 8, "stop", "length").astype(object),
        failure=np.where(broken, "verifier", "").astype(object),
        temperature=np.where(length > 0, 0.7, np.nan),
        rewards={"format": np.full(r, 0.1), "exactness": np.where(broken, np.nan, 0.5 * correct)},
        tokens=ragged(rng.integers(0, 32000, total).astype(np.int32)),
        logp=ragged(-rng.random(total).astype(np.float32)),
        entropy=ragged(rng.random(total).astype(np.float32)),
    )


def made_step(
    step: int, pool: Pool, rng: np.random.Generator, *, prompts: int = 4, n: int = 4, tokens: bool = True, among=None
) -> Step:
    """A finished step of two rounds with notes, reasons, events and per-rollout columns of the update."""
    chosen = rng.choice(len(pool) if among is None else among, prompts, replace=False)
    plan = Plan(
        chosen,
        np.full(prompts, n),
        round=np.arange(prompts) // max(prompts // 2, 1),
        why={"score": rng.random(prompts), "gap": np.where(np.arange(prompts) % 2, np.nan, 1.5)},
        notes={"cursor": np.array(2**61 + step), "drawn": rng.random((3, 2)), "name": np.array(["a", "b"])},
        folded_through=step - 1,
        step=step,
    )
    rows = filled(Rollouts.of_plan(plan, pool, version=step - 1), rng, tokens)
    rows = rows.with_(group=rows.ask, extra={"embedding": rng.random((len(rows), 2)).astype(np.float32)})
    start = Advantage.start(rows)
    mean = np.array([np.nanmean(np.append(rows.reward[rows.group == g], 0)) for g in range(prompts)])
    value = np.where(start.keep, np.nan_to_num(rows.reward) - mean[rows.group], 0.0)
    value[rows.group == 0] = 0
    advantage = Advantage(value, start.keep, start.weight, mean[rows.group], start.reason)
    fate, reason = fates(rows, advantage)
    update = {"loss": 0.25 * step, "kl": float("nan"), "skipped": "", "grad": rng.random(len(rows))}
    events = (Event("warning", "verifier", "a <i>message</i>", 2), Event("note", "budget", "spent"))
    seconds = {"generate": 1.5, "update": 0.5}
    return Step(step, chosen, plan, rows, advantage, fate, reason, update, seconds, events)


def made_evaluation(step: int, pool: Pool, rng: np.random.Generator, n: int = 2) -> Rollouts:
    """n rollouts of every prompt of the evaluation pool."""
    plan = Plan(np.arange(len(pool)), np.full(len(pool), n), purpose=np.full(len(pool), "eval", object), step=step)
    return filled(Rollouts.of_plan(plan, pool, version=step), rng)


def made_beliefs(pool: Pool, rng: np.random.Generator) -> dict[str, dict[str, np.ndarray]]:
    """Beliefs of two methods, one with a column of its own."""
    mean = rng.random(len(pool))
    one = {"mean": mean, "low": mean / 2, "high": (1 + mean) / 2, "a": 1 + rng.random(len(pool))}
    return {"mopps": one, "vade": {"mean": mean, "low": mean, "high": mean}}
