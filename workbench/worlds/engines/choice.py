"""Which engine samples: what is asked for, or the faster one by a short measurement."""

from __future__ import annotations

import time
from copy import deepcopy

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.llama import supported
from workbench.worlds.engines.transformers import TransformersEngine

NAMES = ("auto", "transformers", "graph")

ROWS, TOKENS = 64, 16
"""Of the measurement: 8 prompts of 32 tokens, 8 rows each."""


def pick(trained: PreTrainedModel, dtype: str, name: str = "auto"):
    """(engine, why): a sampler over the trained weights or a copy of them in another dtype.

    name: "transformers" runs any model; "graph" is for Llamas and made for a GPU; "auto" measures both on a GPU where
    both can run, and is "transformers" elsewhere. why: one line for the description of a run.
    """
    if name not in NAMES:
        raise ValueError(f"no engine {name!r}; there are {', '.join(NAMES)}")
    if name == "auto":
        obstacle = supported(trained) if trained.device.type == "cuda" else "there is no GPU"
        if not obstacle:
            try:
                return _faster(trained, dtype)
            except ValueError as error:  # a shape that its kernels are not made for
                obstacle = str(error)
        return _plain(trained, dtype), f"transformers: {obstacle}"
    return (_graph if name == "graph" else _plain)(trained, dtype), f"{name}: asked for"


def _faster(trained: PreTrainedModel, dtype: str):
    rates, made = {}, {}
    for name, make in (("transformers", _plain), ("graph", _graph)):
        made[name] = make(trained, dtype)
        rates[name] = tokens_per_second(made[name], trained.config.vocab_size)
    best = max(rates, key=rates.__getitem__)
    measured = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    return made[best], f"{best}: measured tokens/s at {ROWS} rows: {measured}"


def tokens_per_second(engine, vocabulary: int) -> float:
    """What an engine generates in a second at ROWS x TOKENS, its second call."""
    prompts = np.random.default_rng(0).integers(0, vocabulary, (8, 32)).tolist()
    keys = streams(0, map(str, range(ROWS)))
    for _ in range(2):
        began = time.perf_counter()
        engine.generate(prompts, np.full(8, ROWS // 8), np.full(8, TOKENS), keys)
        taken = time.perf_counter() - began
    return ROWS * TOKENS / taken


def _graph(trained: PreTrainedModel, dtype: str):
    from workbench.worlds.engines.graph import GraphEngine

    return GraphEngine(trained, getattr(torch, dtype))


def _plain(trained: PreTrainedModel, dtype: str) -> TransformersEngine:
    if dtype == "float32":
        return TransformersEngine(trained)
    twin = deepcopy(trained).eval().requires_grad_(False)
    for weight in twin.parameters():  # not twin.to(dtype): that would round the rotary frequencies too
        weight.data = weight.data.to(getattr(torch, dtype))
    engine = TransformersEngine(twin, copy_of=trained)
    engine.sync()
    return engine
