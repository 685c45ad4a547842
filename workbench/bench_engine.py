"""What pausing and forking cost: the figures of `workbench bench engine`.

Every row makes the same tokens in all cases, since draws are keyed by rollout and position and nothing stops a row. The
shortest of several rounds counts, taken in turns, so that a busy machine slows all of them alike: of `tiny`, whose rounds
differ by some per cent from one to the next, more of them.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from workbench.bench_sync import bench_sync
from workbench.experiment import Experiment
from workbench.running import Run
from workbench.stages import Branch, Checkpoint, Prune
from workbench.types import Cut, Fork, Frontier, Plan

if TYPE_CHECKING:
    from workbench.bench import Figure
    from workbench.worlds.live import LiveWorld

EVERY = 16
"""Tokens between checkpoints."""

SIZES = {"tiny": (16, 8, 96, 10), "smollm2": (4, 4, 48, 3)}
"""Model -> prompts, rollouts of each, tokens of each rollout, rounds."""


def bench_engine(case: str | None) -> Iterator[Figure]:
    """Seconds of generation with and without checkpoints, and tokens that forks had computed twice (none).

    case "sync": `bench_sync`; "vllm", where it runs on a GPU: `worlds.bench_vllm`."""
    if case is not None and case not in (*SIZES, "sync", "vllm"):
        raise ValueError(f"no case {case!r}; there are {', '.join(SIZES)}, sync and vllm")
    if case == "vllm":
        yield from _vllm()
    if case in (None, "sync"):
        yield from bench_sync()
    for model in SIZES:
        if case in (None, model):
            with tempfile.TemporaryDirectory() as store:
                experiment = Experiment(model=model, pipeline="grpo", store=store, eval_every=0, checkpoint_every=0)
                with Run(experiment) as run:
                    yield from _figures(model, run.world)  # type: ignore[arg-type]


def _vllm() -> Iterator[Figure]:
    import torch

    from workbench.worlds.engines.vllm import obstacle

    if why := obstacle() or ("" if torch.cuda.is_available() else "it is measured on a GPU, and there is none"):
        raise ValueError(f"the case vllm cannot run: {why}")
    from workbench.worlds.bench_vllm import bench_vllm

    yield from bench_vllm()


def _figures(model: str, world: LiveWorld) -> Iterator[Figure]:
    from workbench.bench import Figure

    prompts, n, tokens, rounds = SIZES[model]
    world.stop_ids, world.max_tokens = frozenset(), tokens
    plan = Plan(np.arange(prompts), np.full(prompts, n), step=1)
    cases: dict[str, tuple[Branch | None, Prune | None]] = {
        "whole": (None, None),
        "paused_never": (None, Prune(_go_on, Checkpoint(every=1 << 20))),
        "paused": (None, Prune(_go_on, Checkpoint(every=EVERY))),
        "paused_top": (None, Prune(_go_on, Checkpoint(every=EVERY, top=5))),
    }
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        made: dict[str, list[int]] = {}
        for name, (branch, prune) in cases.items():
            began = time.process_time()
            rows = world.sample(plan, branch, prune)
            seconds[name].append(time.process_time() - began)
            made[name] = rows.tokens.values.tolist()  # type: ignore[union-attr]
        if any(tokens != made["whole"] for tokens in made.values()):
            raise AssertionError("rows that pause made other tokens than rows that do not")
    best = {name: min(taken) for name, taken in seconds.items()}
    what = f"{prompts} x {n} x {tokens} tokens, CPU seconds, load {os.getloadavg()[0]:.1f}"
    made_tokens = prompts * n * tokens
    yield Figure(model, "tokens_per_cpu_second", made_tokens / best["whole"], "tokens/s", note=f"whole answers; {what}")
    for name, how in (
        ("paused_never", "no checkpoint"),
        ("paused", f"checkpoints every {EVERY} tokens"),
        ("paused_top", f"every {EVERY}, with the 5 likeliest tokens"),
    ):
        ratio = best[name] / best["whole"]
        yield Figure(model, f"{name}_cost", ratio - 1, "share of generation", "whole", ratio, f"{what}; {how}")
    yield from _forks(model, world, plan)


def _forks(model: str, world: LiveWorld, plan: Plan) -> Iterator[Figure]:
    """Tokens computed beyond each prompt once and each generated token once, where every row forks at its first pause."""
    from workbench.bench import Figure

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
