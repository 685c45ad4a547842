"""vLLM in this process against the graph decoder, on a GPU: the figures of `python -m tests.benchmarks engine --case vllm`.

Both draw the same way, note log-probability and entropy of every token, and hold a bfloat16 copy of the same weights.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch

from tests.benchmarks.figure import Figure
from tests.benchmarks.loop_gpu import GROUP, HAZARD, LONGEST, PROMPT, PROMPTS, SHAPE, _prompts, subject, timed
from workbench.worlds.engines import Request
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.graph_engine import GraphEngine
from workbench.worlds.engines.vllm_engine import VllmEngine

TOKENS = 128


def vllm() -> Iterator[Figure]:
    """Decoding at 512 rows x 128 tokens and on a long tail, starting, weights taken over, prefixes shared, memory given back."""

    it = subject()
    rates = {}
    for name, make in (("graph", lambda: GraphEngine(it.model)), ("vllm", lambda: VllmEngine(it.model, sleep=True))):
        began = time.perf_counter()
        engine = make()
        yield Figure("vllm", f"start_{name}", time.perf_counter() - began, "s", note=it.note)
        yield from _decoding(name, engine, it.note, rates)
        if name == "vllm":
            yield from _around(engine, it.note, rates)
            engine.close()
        del engine
        torch.cuda.empty_cache()


def _decoding(name: str, engine, about: str, rates: dict[str, float]) -> Iterator[Figure]:

    stop = (
        np.random.default_rng(1).choice(SHAPE["vocab_size"], int(SHAPE["vocab_size"] * HAZARD), replace=False).tolist()
    )
    for case, prompts, tokens, stops in (
        ("even", PROMPTS, TOKENS, []),
        ("tail", PROMPTS, LONGEST, stop),
        ("tail_wide", 4 * PROMPTS, LONGEST, stop),
    ):
        keys = streams(0, map(str, range(prompts * GROUP)))

        def generate(prompts=prompts, tokens=tokens, stops=stops, keys=keys):
            return engine.generate(
                Request.of_groups(
                    _prompts(prompts), np.full(prompts, GROUP), np.full(prompts, tokens), keys, stop=stops
                )
            )

        made = generate()
        taken = timed(generate, 2)
        length = made.tokens.lengths
        rates[f"{name} {case}"] = rate = float(length.sum()) / taken
        peer = rates.get(f"graph {case}")
        note = (
            f"{about}; {prompts} prompts x {GROUP}, {PROMPT} + mean {length.mean():.0f}, longest {length.max()} tokens, logp "
            f"and entropy; prompt tokens computed {made.prefilled} of {prompts * GROUP * PROMPT}"
        )
        other, ratio = ("graph", rates[f"graph {case}"] / rate) if name == "vllm" and peer else ("", None)
        yield Figure("vllm", f"tokens_per_second_{name}_{case}", rate, "tokens/s", other, ratio, note)


def _around(engine: VllmEngine, about: str, rates: dict[str, float]) -> Iterator[Figure]:
    """What surrounds decoding: vLLM's own sampler, taking over weights, sleep."""

    vllm = engine._vllm
    prompts = [{"prompt_token_ids": p} for p in _prompts(PROMPTS) for _ in range(GROUP)]
    params = vllm.SamplingParams(temperature=1.0, max_tokens=TOKENS, ignore_eos=True, detokenize=False, logprobs=0)
    own = PROMPTS * GROUP * TOKENS / timed(lambda: engine.llm.generate(prompts, params, use_tqdm=False), 2)
    yield Figure(
        "vllm", "tokens_per_second_own_sampler", own, "tokens/s", "vllm under our draws", rates["vllm even"] / own,
        f"{about}; LLM.generate with logprobs=0, no entropy; ratio of seconds, its own / ours",
    )  # fmt: skip
    yield Figure("vllm", "sync", 1e3 * timed(engine.sync, 5), "ms", note=f"{about}; float32 to bfloat16, on the card")
    free = torch.cuda.mem_get_info()[0]
    began = time.perf_counter()
    engine.rest()
    asleep = time.perf_counter() - began
    given = torch.cuda.mem_get_info()[0] - free
    began = time.perf_counter()
    engine.sync()
    woken = time.perf_counter() - began
    note = f"{given / 2**30:.1f} GiB given back in {asleep:.2f} s, awake with new weights in {woken:.2f} s"
    yield Figure("vllm", "sleep_and_wake", asleep + woken, "s", note=note)
