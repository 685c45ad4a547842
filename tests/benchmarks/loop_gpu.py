"""The GPU cases of `python -m tests.benchmarks loop`: a 135M Llama in bfloat16.

ceiling (what the card gives), decode (512 rows x 128 tokens), tail (rows that stop by themselves), update (even and
long-tailed); the whole step against TRL is `loop_step`. Where the weights of SmolLM2 are not at hand a random model of
its shape is measured instead, and the note says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from tests.benchmarks.figure import Figure
from workbench.types import Advantage, Ragged
from workbench.worlds.engines import Request
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.graph_engine import GraphEngine
from workbench.worlds.engines.transformers_engine import TransformersEngine
from workbench.worlds.training.packing import StreamPolicy
from workbench.worlds.training.policy import Lines

if TYPE_CHECKING:
    from transformers import PreTrainedModel


PROMPTS, GROUP, PROMPT = 64, 8, 64
"""On a GPU: prompts, rollouts of each, tokens of a prompt."""

SHAPE = {
    "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"}, "tie_word_embeddings": True,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2,
}  # fmt: skip
"""SmolLM2-135M."""

HAZARD = 1 / 160
"""Chance that a drawn token is a stop token in the long-tailed cases: lengths are geometric, cut at LONGEST."""

LONGEST = 1024


@dataclass(frozen=True)
class _Subject:
    """The model that is measured, in float32 on the GPU, and what to say of it."""

    model: PreTrainedModel
    note: str

    @property
    def parameters(self) -> int:
        return self.model.num_parameters()


def subject(seed: int = 0) -> _Subject:
    """SmolLM2 where its weights are in the cache, else a random model of its shape."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from workbench.models import smollm2

    if (smollm2.cached_at() / "model.safetensors").is_file():
        from workbench.models import load

        return _Subject(load("smollm2")[0].cuda(), "SmolLM2-135M")
    torch.manual_seed(seed)
    return _Subject(LlamaForCausalLM(LlamaConfig(**SHAPE)).cuda().eval(), "random weights in the shape of SmolLM2-135M")


def timed(call: Callable[[], object], times: int = 3) -> float:
    """Best wall seconds of a call on the GPU, after one that is not counted."""
    best = float("inf")
    for attempt in range(times + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if attempt:
            best = min(best, time.perf_counter() - began)
    return best


def ceilings() -> tuple[float, float]:
    """Bytes a second of a large copy (read and written), and bfloat16 operations a second of a large product."""
    a = torch.empty(2**31, dtype=torch.uint8, device="cuda").random_()
    b = torch.empty_like(a)
    copy = 2 * a.numel() / timed(lambda: b.copy_(a), 10)
    x, y = torch.randn(2, 8192, 8192, device="cuda", dtype=torch.bfloat16)
    return copy, 2 * 8192**3 / timed(lambda: x @ y, 10)


def _ceiling() -> Iterator[Figure]:

    copy, product = ceilings()
    yield Figure("ceiling", "copy", copy / 1e12, "TB/s", note="2 GiB, read and written")
    yield Figure("ceiling", "matrix_product", product / 1e12, "TFLOP/s", note="8192 cubed, bfloat16, random data")


def _prompts(n: int, seed: int = 0) -> list[list[int]]:
    return np.random.default_rng(seed).integers(10, SHAPE["vocab_size"] - 10, (n, PROMPT)).tolist()


def _decode() -> Iterator[Figure]:
    """512 rows x 128 tokens with log-probability and entropy of every token; what a step costs at fewer rows."""

    it, tokens = subject(), 128
    engine = GraphEngine(it.model)
    copy, _ = ceilings()

    def generate(with_, prompts: int, n: int, tokens: int = tokens):
        keys = streams(0, map(str, range(prompts * n)))
        return with_.generate(Request.of_groups(_prompts(prompts), np.full(prompts, n), np.full(prompts, tokens), keys))

    began = time.perf_counter()
    generate(engine, PROMPTS, GROUP)
    started = time.perf_counter() - began
    rate = {}
    for name, prompts, n, length in (
        ("group", PROMPTS, GROUP, tokens),
        ("alone", 512, 1, tokens),
        ("wide", 256, 8, tokens),
        ("long", PROMPTS, GROUP, 512),
    ):
        taken = timed(lambda p=prompts, n=n, length=length: generate(engine, p, n, length))
        rate[name] = prompts * n * length / taken
        read = (
            sum(2 * it.parameters + prompts * n * (PROMPT + t) * engine.slots.bytes_per_token for t in range(length))
            / copy
        )
        note = f"{it.note}; {prompts} prompts x {n}, {PROMPT} + {length} tokens, logp and entropy; floor {prompts * n * length / read:,.0f} tokens/s, share {read / taken:.2f}"
        yield Figure("decode", f"tokens_per_second_{name}", rate[name], "tokens/s", note=note)
    plain = TransformersEngine(it.model.to(torch.bfloat16), max_rows=512)
    began = time.perf_counter()
    generate(plain, PROMPTS, GROUP, 32)
    torch.cuda.synchronize()
    slow = PROMPTS * GROUP * 32 / (time.perf_counter() - began)
    yield Figure(
        "decode",
        "tokens_per_second",
        rate["group"],
        "tokens/s",
        "TransformersEngine (dynamic cache, bfloat16)",
        slow / rate["group"],
        f"ratio of seconds a token; peer {slow:,.0f} tokens/s over 32 tokens",
    )
    yield Figure("decode", "first_call", started, "s", note="kernels compiled, slots filled, graphs captured")
    for rows in (512, 128, 32, 8, 1):
        engine.board.active.fill_(False)
        engine.board.position.fill_(128)
        engine.board.left.fill_(2**30)
        engine.board.active[:rows] = True
        taken = timed(lambda rows=rows: engine.run(rows, 16, False)) / 16
        yield Figure(
            "decode",
            f"step_at_{rows}_rows",
            1e3 * taken,
            "ms",
            note="128 tokens in each slot, the host's look included",
        )


def _tail() -> Iterator[Figure]:
    """Rows that end when they draw a stop token; useful tokens a second, with finished rows compacted away."""

    it = subject()
    engine = GraphEngine(it.model)
    stop = (
        np.random.default_rng(1).choice(SHAPE["vocab_size"], int(SHAPE["vocab_size"] * HAZARD), replace=False).tolist()
    )
    for prompts in (PROMPTS, 4 * PROMPTS, 8 * PROMPTS):  # the last two wait for slots in part
        keys = streams(0, map(str, range(prompts * GROUP)))

        def generate(prompts=prompts, keys=keys):
            return engine.generate(
                Request.of_groups(
                    _prompts(prompts), np.full(prompts, GROUP), np.full(prompts, LONGEST), keys, stop=stop
                )
            )

        made = generate()
        taken = timed(generate, 2)
        length = made.tokens.lengths
        note = f"{it.note}; {len(length)} rows, lengths mean {length.mean():.0f}, median {np.median(length):.0f}, longest {length.max()}"
        yield Figure(
            "tail", f"useful_tokens_per_second_{len(length)}_rows", length.sum() / taken, "tokens/s", note=note
        )


def lengths(kind: str, rows: int) -> np.ndarray:
    """(R,) answer tokens: all 128, or geometric as in the tail case."""
    if kind == "even":
        return np.full(rows, 128)
    return np.minimum(np.random.default_rng(2).geometric(HAZARD, rows), LONGEST)


def _update() -> Iterator[Figure]:
    """One optimiser step on 512 rows: GRPO loss, float32 weights, bfloat16 passes."""
    _, peak = ceilings()
    for compile in (True, False):
        yield from _updates(compile, peak)
        torch.cuda.empty_cache()


def _updates(compile: bool, peak: float) -> Iterator[Figure]:
    from workbench.methods.grpo import Grpo

    it, grpo, rows = subject(), Grpo(), PROMPTS * GROUP
    policy = StreamPolicy(it.model, precision="bfloat16", compile=compile)
    config = it.model.config
    for kind in ("even", "tailed"):
        rng, length = np.random.default_rng(3), lengths(kind, rows)
        tokens = Ragged.of([rng.integers(10, SHAPE["vocab_size"] - 10, n) for n in length], np.int32)
        lines = Lines(_prompts(PROMPTS), np.repeat(np.arange(PROMPTS), GROUP), tokens)
        none = np.zeros(rows)
        advantage = Advantage(rng.normal(size=rows), np.ones(rows, bool), none + 1, none, np.full(rows, "", object))

        def update(lines=lines, advantage=advantage):
            return policy.update(lines, advantage, lambda batch: grpo.loss(None, batch))

        began = time.perf_counter()
        update()
        first = time.perf_counter() - began
        taken = timed(update)
        n = int(length.sum()) + rows * PROMPT
        attended = int(((length + PROMPT) ** 2).sum())
        work = 6 * it.parameters * n + 6 * config.num_hidden_layers * config.hidden_size * attended
        how = "compiled" if compile else "eager"
        note = (
            f"{it.note}; {rows} rows of {PROMPT} + {length.mean():.0f} tokens (longest {length.max()}), prompts counted; "
            f"{work / taken / 1e12:.0f} TFLOP/s, {work / taken / peak:.2f} of peak; first call {first:.1f} s"
        )
        yield Figure("update", f"tokens_per_second_{kind}_{how}", n / taken, "tokens/s", note=note)


CASES: dict[str, Callable[[], Iterator[Figure]]] = {
    "ceiling": _ceiling,
    "decode": _decode,
    "tail": _tail,
    "update": _update,
}
