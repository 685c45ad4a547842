"""A recorded step whose first group is a tree with tokens: forks, cuts with their reasons, and a flat group beside it."""

from __future__ import annotations

import numpy as np

from workbench.numerics.forks import trees_of
from workbench.pipeline.fates import fates
from workbench.store import Writer
from workbench.types import Advantage, Plan, Pool, Ragged, Rollouts, Step
from workbench.views.data.run import RunData, Source

WORDS = [
    " the",
    " sum",
    " is",
    " 4",
    "2",
    ",",
    " so",
    " we",
    " add",
    " and",
    "\n",
    " caf",
    "\xc3",
    "\xa9",
    " carry",
    ".",
]
"""Pieces of ids 0..15, as `store.token_bytes` writes them: 12 and 13 are the two bytes of one letter."""

REASONS = ("low_confidence", "similar", "tail_decline")


def pool(n: int = 3, text: str = "What is 19 + 23?") -> Pool:
    """Prompts p0, p1, ..."""
    columns = {"answer": "42", "prefix": "", "stratum": "sums"}
    return Pool(np.array([f"p{i}" for i in range(n)], object), np.array([text] * n, object),
                **{k: np.array([v] * n, object) for k, v in columns.items()})  # fmt: skip


def forest(leaves: int, flat: int, seed: int, number: int, prompts: Pool) -> Rollouts:
    """Rollouts of p0 that fork at random places, one in six of them cut, and `flat` rollouts of p1."""
    rng = np.random.default_rng(seed)
    plan = Plan(np.array([0, 1]), np.array([leaves, flat]), step=number)
    r = Rollouts.of_plan(plan, prompts)
    n = len(r)
    parent, fork_at = r.parent.copy(), r.fork_at.copy()
    paths: list[list[int]] = []
    for i in range(n):
        known: list[int] = []
        if 2 <= i < leaves:
            above = int(rng.integers(0, i))
            at = int(rng.integers(max(fork_at[above], 0) + 1, len(paths[above])))
            parent[i], fork_at[i], known = r.id[above], at, paths[above][:at]
        paths.append(known + rng.integers(0, len(WORDS), int(rng.integers(6, 40))).tolist())
    cut = (np.arange(n) % 6 == 5) & (np.arange(n) < leaves)
    reward = np.where(cut, np.nan, np.round(rng.random(n), 2))
    tokens = Ragged.of(paths, np.int32)
    size = len(tokens.values)
    text = ["".join(WORDS[t] for t in p).encode("latin-1").decode("utf-8", "replace") for p in paths]
    # a shared token has one log-probability, wherever it stands
    logp = Ragged(-rng.gamma(0.6, 0.8, size).astype(np.float32), tokens.offsets)
    entropy = Ragged(rng.gamma(1.0, 0.7, size).astype(np.float32), tokens.offsets)
    drift = rng.normal(0, 0.12, size).astype(np.float32)
    return r.with_(
        group=r.prompt, parent=parent, fork_at=fork_at, length=tokens.lengths, tokens=tokens, logp=logp, entropy=entropy,
        current=Ragged(logp.values + drift, tokens.offsets), text=np.array(text, object), reward=reward,
        correct=np.where(cut, np.nan, (reward > 0.6).astype(float)),
        finish=np.where(cut, "pruned", "stop").astype(object),
        extra={"cut_reason": np.array([REASONS[i % 3] if c else "" for i, c in enumerate(cut)], object)},
    )  # fmt: skip


def hand(number: int, prompts: Pool) -> Rollouts:
    """Three rollouts of p0 (0 1 2 3, 0 1 4 5 6 that leaves it after two tokens, 0 1 4 7 8 cut short) and one of p1."""
    plan = Plan(np.array([0, 1]), np.array([3, 1]), step=number)
    r = Rollouts.of_plan(plan, prompts)
    paths = [[0, 1, 2, 3], [0, 1, 4, 5, 6], [0, 1, 4, 7, 8], [11, 12, 13]]
    tokens = Ragged.of(paths, np.int32)
    entropy = Ragged.of(
        [[0.1, 0.2, 1.5, 0.3], [0.1, 0.2, 1.5, 0.7, 0.1], [0.1, 0.2, 1.5, 0.7, 0.4], [0.0, 0.1, 0.2]], np.float32
    )
    logp = Ragged(np.full(len(tokens.values), -0.5, np.float32), tokens.offsets)
    reward = np.array([0.25, 1.0, np.nan, 1.0])
    return r.with_(
        group=r.prompt, parent=np.array(["", r.id[0], r.id[1], ""], object), fork_at=np.array([-1, 2, 3, -1]),
        length=tokens.lengths, tokens=tokens, logp=logp, entropy=entropy, reward=reward, correct=(reward == 1).astype(float),
        finish=np.array(["stop", "stop", "pruned", "stop"], object), text=np.array(["a", "b", "c", "caf\u00e9"], object),
        extra={"cut_reason": np.array(["", "", "low_confidence", ""], object)},
    )  # fmt: skip


def step_of(rollouts: Rollouts, number: int) -> Step:
    """A finished step of these rollouts, with advantages against the group's mean."""
    advantage = Advantage.start(rollouts)
    value, baseline = np.zeros(len(rollouts)), np.full(len(rollouts), np.nan)
    for g in np.unique(rollouts.group):
        mine = (rollouts.group == g) & advantage.keep
        baseline[mine] = rollouts.reward[mine].mean()
        value[mine] = (rollouts.reward[mine] - baseline[mine]) / (rollouts.reward[mine].std() + 1e-6)
    made = Advantage(value, advantage.keep, advantage.weight, baseline, advantage.reason)
    fate, reason = fates(rollouts, made)
    plan = Plan(np.array([0, 1]), np.bincount(rollouts.prompt, minlength=2)[:2], step=number)
    return Step(number, np.array([0, 1]), plan, rollouts, made, fate, reason, seconds={"generate": 1.0})


def record(
    folder,
    leaves: int = 12,
    flat: int = 8,
    *,
    steps: int = 1,
    text: str = "What is 19 + 23?",
    pieces=WORDS,
    change=None,
    made=None,
    decisions=None,
    **options,
) -> str:
    """Record such steps into a store; returns the run.

    made: (number, pool) -> rollouts, else `forest`; change: rollouts -> rollouts, before they are recorded; decisions:
    number -> columns of tests, as the writer takes them."""
    prompts = pool(text=text)
    known = {"piece": np.array(pieces, object), "special": np.array([15], np.int64)} if pieces else None
    world = {"model": "scripted"}
    who = {"estimate": ["grpo"], "branch": ["latr"]}
    experiment = {"name": "grown", "steps": steps, "model": "scripted", "pipeline": [{"method": "grpo"}]}
    with Writer(folder, experiment, prompts, run="grown", pieces=known, world=world, who=who, **options) as writer:
        for number in range(1, steps + 1):
            rollouts = made(number, prompts) if made else forest(leaves, flat, number, number, prompts)
            step = step_of(change(rollouts) if change else rollouts, number)
            writer.append(step, nodes=trees_of(step), decisions=decisions and decisions(number))
    return "grown"


def read(store, run: str = "grown") -> RunData:
    """The run as the pages see it, of a source of its own."""
    source = Source(str(store))
    source.refresh(0)
    data = source.run(run)
    data.refresh()
    return data
