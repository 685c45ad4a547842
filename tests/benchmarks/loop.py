"""How fast the loop generates and learns: the figures of `python -m tests.benchmarks loop`.

Cases on any machine: tiny, smollm2 (seconds a step against TRL's GRPOTrainer, float32, same prompts, rows and lengths), qwen3
(two layers of random weights against tiny's four, for each token, steps of both in turn), epochs (updates of several
optimiser steps against one step for each epoch).
Cases on a GPU are in `loop_gpu` and `loop_step`, on several in `loop_ranks`. A peer that is not installed is named and left out.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tests.benchmarks.figure import Figure
from tests.benchmarks.trl_peer import Peer, trl_seconds
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.types import Budget


def bench(case: str | None) -> Iterator[Figure]:
    """Seconds per step, and on a GPU decoding and updating, by case; see the module."""
    import torch

    cases: dict[str, Callable[[], Iterator[Figure]]] = {
        "tiny": lambda: _cpu("tiny"),
        "smollm2": lambda: _cpu("smollm2"),
        "qwen3": _qwen3,
        "epochs": _epochs,
    }
    if torch.cuda.is_available():
        from tests.benchmarks import loop_gpu, loop_ranks, loop_step

        cases = loop_gpu.CASES | loop_step.CASES
        if torch.cuda.device_count() > 1:
            cases |= loop_ranks.CASES
    if case is not None and case not in cases:
        raise ValueError(f"no case {case!r} on this machine; there are {', '.join(cases)}")
    for name, figures in cases.items():
        if case == name or (case is None and name not in ("step_vllm", "shapes")):
            yield from figures()


def _cpu(model: str) -> Iterator[Figure]:
    """Seconds of a step of 16 prompts (smollm2: 4) x 8 rollouts x at most 8 tokens, ours and TRL's, float32 in both."""

    # four prompts of the large one: TRL did not finish three steps of 16 x 8 in eight minutes on two cores
    steps, groups, n, tokens = (4, 4, 8, 8) if model == "smollm2" else (30, 16, 8, 8)
    world = {"sampling": "float32", "precision": "float32", "max_tokens": tokens}
    with tempfile.TemporaryDirectory() as store:
        experiment = Experiment(
            model=model, pipeline="grpo", budget=Budget(rollouts=groups * n), steps=steps, eval_every=0,
            checkpoint_every=0, store=store, world=world,
        )  # fmt: skip
        with Run(experiment) as run:
            run.begin()
            pool, live = run.world.pool, run.world
            texts = [live.tokenizer.decode(live.prefix(pool, i)) for i in range(len(pool))]
            answers = [str(a) for a in pool.answer]
            wall, parts, made, length = [], [], 0, 0.0
            for _ in range(steps):
                began = time.perf_counter()
                done = run.step()
                wall.append(time.perf_counter() - began)
                parts.append(dict(done.seconds))
                made, length = len(done.rollouts), float(np.mean(done.rollouts.length))
    ours = float(np.median(wall[1:]))
    note = f"{made} rollouts of at most {tokens} tokens ({length:.1f} at last), float32, median of {steps - 1}; load {os.getloadavg()[0]:.1f}"
    for name in sorted({key for part in parts for key in part}):
        yield Figure(model, f"seconds_{name}", float(np.median([p.get(name, 0.0) for p in parts[1:]])), "s", note=note)
    peer = trl_seconds(
        model, texts, answers, groups=groups, n=n, tokens=tokens, steps=steps // 2, micro=groups * n // 4
    )
    yield from _ratio(model, ours, peer, note)


def _qwen3() -> Iterator[Figure]:
    """Seconds of a step for each token of its rollouts: a random Qwen3 of two layers as wide as tiny, and tiny."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from workbench import models

    tiny, tokenizer = models.load("tiny")
    same = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    sizes = {name: getattr(tiny.config, name) for name in same}
    ends = {name: getattr(tiny.config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = AutoConfig.for_model("qwen3", **sizes, **ends, num_hidden_layers=2, tie_word_embeddings=True)
    seconds: dict[str, list[float]] = {"tiny": [], "qwen3": []}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as opened:
        AutoModelForCausalLM.from_config(config).save_pretrained(f"{folder}/qwen3")
        tokenizer.save_pretrained(f"{folder}/qwen3")
        runs = {}
        for name, model in (("tiny", "tiny"), ("qwen3", f"{folder}/qwen3")):
            experiment = Experiment(
                model=model, pipeline="grpo", budget=Budget(rollouts=128), eval_every=0, checkpoint_every=0,
                store=f"{folder}/store", world={"max_tokens": 8},
            )  # fmt: skip
            runs[name] = opened.enter_context(Run(experiment))
            runs[name].begin()
        for _ in range(30):
            for name, run in runs.items():
                began = time.perf_counter()
                made = run.step().rollouts
                seconds[name].append((time.perf_counter() - began) / int(made.length.sum()))
    ours, tinys = (float(np.median(seconds[name][2:])) for name in ("qwen3", "tiny"))
    note = f"16 prompts x 8 rollouts of at most 8 tokens, median of 28 steps in turn; load {os.getloadavg()[0]:.1f}"
    yield Figure("qwen3", "seconds_per_token", ours, "s", "tiny", ours / tinys, note)


def _epochs() -> Iterator[Figure]:
    """Seconds of an update in several optimiser steps, against those of one step for each epoch, on 128 answers of 64 tokens."""
    from workbench import models
    from workbench.methods import Grpo
    from workbench.types import Advantage, Ragged
    from workbench.worlds.training.policy import Lines, Policy

    rng = np.random.default_rng(0)
    prefixes = [rng.integers(3, 500, 40).tolist() for _ in range(16)]
    answers = Ragged.of([rng.integers(3, 500, 64) for _ in range(128)], np.int32)
    lines, ones = Lines(prefixes, np.repeat(np.arange(16), 8), answers), np.ones(128)
    advantage = Advantage(rng.normal(size=128), ones > 0, ones, 0 * ones, np.full(128, "", object))
    cases = ((1, 1), (2, 1), (1, 4), (2, 4))
    policies = {c: Policy(models.load("tiny")[0].float(), lr=1e-6, epochs=c[0], minibatches=c[1]) for c in cases}
    seconds: dict[tuple[int, int], list[float]] = {c: [] for c in cases}
    for _ in range(8):
        for c, policy in policies.items():
            began = time.perf_counter()
            policy.update(lines, advantage, partial(Grpo().loss, ()))
            seconds[c].append(time.perf_counter() - began)
    median = {c: float(np.median(seconds[c][1:])) for c in cases}
    for c in cases[1:]:
        note = f"{c[0]} epochs x {c[1]} mini-batches of tiny, median of 7 in turn; load {os.getloadavg()[0]:.1f}"
        name = f"seconds_{c[0]}_epochs_{c[1]}_minibatches"
        yield Figure("epochs", name, median[c], "s", "one step for each epoch", median[c] / median[1, 1] / c[0], note)


def _ratio(case: str, ours: float, peer: Peer | None, note: str) -> Iterator[Figure]:

    if peer is None:
        print(f"{case}: trl is not installed and was left out")
        yield Figure(case, "seconds_per_step", ours, "s", note=note)
    else:
        yield Figure(
            case,
            "seconds_per_step",
            ours,
            "s",
            "trl",
            ours / peer.seconds,
            f"{note}; trl {peer.seconds:.3g} s, {peer.length:.1f} tokens an answer",
        )
