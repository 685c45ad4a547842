"""What pausing and forking cost: the figures of `python -m tests.benchmarks engine`.

Every row makes the same tokens in all cases, since draws are keyed by rollout and position and nothing stops a row. Cases
take turns, and of the ratios within a round the median counts: a machine that others share slows one run against the next
by 15 % and more, so the interval of the median stands beside it. `paused_between` is told more exactly: the share of a run's
seconds in which nothing is decoded, by one clock, less the same share of a run without checkpoints.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tests.benchmarks.engine_sync import sync
from tests.benchmarks.figure import Figure
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.stages import Branch, Checkpoint, Prune
from workbench.types import Cut, Fork, Frontier, Plan

if TYPE_CHECKING:
    from workbench.worlds.live.world import LiveWorld

EVERY = 16
"""Tokens between checkpoints."""

SIZES = {"tiny": (16, 8, 96, 12), "smollm2": (4, 4, 48, 3)}
"""Model -> prompts, rollouts of each, tokens of each rollout, rounds."""


def bench(case: str | None) -> Iterator[Figure]:
    """Seconds of generation with and without checkpoints, and tokens that forks had computed twice (none).

    case "sync": `sync`; "vllm", where it runs on a GPU: `engine_vllm`."""
    if case is not None and case not in (*SIZES, "sync", "vllm"):
        raise ValueError(f"no case {case!r}; there are {', '.join(SIZES)}, sync and vllm")
    if case == "vllm":
        yield from _vllm()
    if case in (None, "sync"):
        yield from sync()
    for model in SIZES:
        if case in (None, model):
            with tempfile.TemporaryDirectory() as store:
                experiment = Experiment(model=model, pipeline="grpo", store=store, eval_every=0, checkpoint_every=0)
                with Run(experiment) as run:
                    yield from _figures(model, run.world)  # type: ignore[arg-type]


def _vllm() -> Iterator[Figure]:
    import torch

    from workbench.worlds.engines.vllm_engine import obstacle

    if why := obstacle() or ("" if torch.cuda.is_available() else "it is measured on a GPU, and there is none"):
        raise ValueError(f"the case vllm cannot run: {why}")
    from tests.benchmarks.engine_vllm import vllm

    yield from vllm()


def _figures(model: str, world: LiveWorld) -> Iterator[Figure]:

    prompts, n, tokens, rounds = SIZES[model]
    world.stop_ids, world.max_tokens = frozenset(), tokens
    plan = Plan(np.arange(prompts), np.full(prompts, n), step=1)
    cases: dict[str, tuple[Branch | None, Prune | None]] = {
        "whole": (None, None),
        "paused_never": (None, Prune(_go_on, Checkpoint(every=1 << 20))),
        "paused": (None, Prune(_go_on, Checkpoint(every=EVERY))),
        "paused_top": (None, Prune(_go_on, Checkpoint(every=EVERY, top=5))),
    }
    seconds, between = np.zeros((len(cases), rounds)), np.zeros((len(cases), rounds))
    turns = list(enumerate(cases.items()))
    world.sample(plan)
    for k in range(rounds):
        made: dict[str, list[int]] = {}
        for i, (name, (branch, prune)) in turns[k % len(turns) :] + turns[: k % len(turns)]:
            decoding, began = world._spent["sample_seconds"], time.perf_counter()
            rows = world.sample(plan, branch, prune)
            seconds[i, k] = time.perf_counter() - began
            between[i, k] = 1 - (world._spent["sample_seconds"] - decoding) / seconds[i, k]
            made[name] = rows.tokens.values.tolist()  # type: ignore[union-attr]
        if any(tokens != made["whole"] for tokens in made.values()):
            raise AssertionError("rows that pause made other tokens than rows that do not")
    what = f"{prompts} x {n} x {tokens} tokens, {rounds} rounds, load {os.getloadavg()[0]:.1f}"
    rate = prompts * n * tokens / float(np.median(seconds[0]))
    yield Figure(model, "tokens_per_second", rate, "tokens/s", note=f"whole answers; {what}")
    told = ("", "no checkpoint", f"every {EVERY} tokens", f"every {EVERY}, with the 5 likeliest")
    for i, name in list(enumerate(cases))[1:]:
        ratio, low, high = _median(seconds[i] / seconds[0])
        note = f"{told[i]}; {_spread(rounds)} {low - 1:+.3f} to {high - 1:+.3f}; {what}"
        yield Figure(model, f"{name}_cost", ratio - 1, "share of generation", "whole", ratio, note)
    share, low, high = _median(between[2] - between[1])  # of the likeliest tokens the next lap's first pass is a part
    note = (
        f"{told[2]}; {_spread(rounds)} {low:+.4f} to {high:+.4f}; seconds without decoding, less those of no checkpoint"
    )
    yield Figure(model, "paused_between", share, "share of generation", "paused_never", note=f"{note}; {what}")
    yield from _forks(model, world, plan)


def _spread(rounds: int) -> str:
    """What the two ends of `_median` are: of few rounds no more than the least and the greatest."""
    return "90 % interval" if rounds >= 8 else "range"


def _median(values: np.ndarray) -> tuple[float, float, float]:
    """The median of values (n,), and its 90 % bootstrap interval."""
    again = np.random.default_rng(0).choice(values, (2000, len(values)))
    low, high = np.quantile(np.median(again, axis=1), (0.05, 0.95))
    return float(np.median(values)), float(low), float(high)


def _forks(model: str, world: LiveWorld, plan: Plan) -> Iterator[Figure]:
    """Tokens computed beyond each prompt once and each generated token once, where every row forks at its first pause."""

    before = dict(world._spent)
    rows = world.sample(plan, Branch(_fork_first, Checkpoint(every=EVERY)))
    spent = {name: world._spent[name] - before.get(name, 0) for name in ("prefilled_tokens", "decoded_tokens")}
    prompt = sum(len(world.prefix(world.pool, int(p))) for p in plan.prompt)
    own = int(rows.length.sum()) - int(np.where(rows.parent != "", rows.fork_at, 0).sum())
    note = (
        f"{int((rows.parent != '').sum())} forks of {plan.n_rollouts} rows; {own} tokens made once, {prompt} of prompts"
    )
    twice = max(spent["prefilled_tokens"] - prompt, 0) + max(spent["decoded_tokens"] - own, 0)
    yield Figure(model, "fork_recomputed", float(twice), "tokens", note=note)
    yield Figure(model, "fork_sharing", int(rows.length.sum()) / own, "flat equivalent / generated", note=note)


def _go_on(frontier: Frontier) -> Cut:
    b = len(frontier)
    return Cut(np.ones(b, np.int64), np.full(b, "", dtype=object), np.ones(b))


def _fork_first(frontier: Frontier) -> Fork:
    b = len(frontier)
    return Fork(np.where(frontier.n_tokens <= EVERY, 2, 1), np.full(b, -1), np.full(b, -1))
