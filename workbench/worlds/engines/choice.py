"""Which engine samples: what is asked for, or the faster one by a short measurement."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from inspect import signature

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.parallel import processes
from workbench.validate import known
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.llama import supported
from workbench.worlds.engines.transformers import TransformersEngine

NAMES = ("auto", "transformers", "graph", "vllm")

ROWS, TOKENS = 64, 16
"""Of the measurement: 8 prompts of 32 tokens, 8 rows each."""

VLLM_FROM = 500_000_000
"""Parameters from which "auto" measures vLLM as well: its start takes about a minute, and below it is slower."""


def pick(trained: PreTrainedModel, dtype: str, name: str | Mapping[str, object] = "auto"):
    """(engine, why): a sampler over the trained weights or a copy of them in another dtype.

    name: "transformers" runs any model; "graph" is for Llamas and made for a GPU; "vllm" runs vLLM in this process, and
    an address (http://...) asks a server that speaks OpenAI's protocol. "auto" measures what can run on a GPU, and is
    "transformers" elsewhere. A mapping {"name": ..., **settings} gives an engine its settings. why: one line for the
    description of a run.
    """
    settings = {k: v for k, v in name.items() if k != "name"} if isinstance(name, Mapping) else {}
    name = str(name.get("name", "auto")) if isinstance(name, Mapping) else name
    if name.startswith(("http://", "https://")):
        return _server(trained, name, settings), f"{name}: asked for"
    if name not in NAMES:
        raise ValueError(f"no engine {name!r}; there are {', '.join(NAMES)}, and the address of a server (http://...)")
    if name != "auto":
        return MAKERS[name](trained, dtype, **settings), f"{name}: asked for"
    if settings:
        raise ValueError(f"settings {', '.join(settings)} are for a named engine, not for auto")
    candidates, obstacle = _candidates(trained)
    if len(candidates) > 1:
        try:
            return _faster(trained, dtype, candidates)
        except ValueError as error:  # a shape that its kernels are not made for
            obstacle = str(error)
    return MAKERS["transformers"](trained, dtype), f"transformers: {obstacle}"


def _candidates(trained: PreTrainedModel) -> tuple[list[str], str]:
    """Engines worth a measurement, and why there are no others."""
    if trained.device.type != "cuda":
        return ["transformers"], "there is no GPU"
    names, obstacle = ["transformers"], supported(trained)
    if not obstacle:
        names.append("graph")
    if processes.ranks() == 1 and (obstacle or trained.num_parameters() >= VLLM_FROM):
        from workbench.worlds.engines.vllm import obstacle as missing

        if why := missing():
            obstacle = f"{obstacle}; {why}" if obstacle else ""
        else:
            names.append("vllm")
    return names, obstacle


def _faster(trained: PreTrainedModel, dtype: str, names: Sequence[str]):
    rates, made = {}, {}
    for name in names:
        made[name] = MAKERS[name](trained, dtype)
        rates[name] = tokens_per_second(made[name], trained.config.vocab_size)
    rates = processes.broadcast(rates)  # each has measured for itself
    best = max(rates, key=rates.__getitem__)
    for name, engine in made.items():
        if name != best:
            engine.close()
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


def _graph(trained: PreTrainedModel, dtype: str, **settings):
    from workbench.worlds.engines.graph import GraphEngine

    _known(settings, GraphEngine, "graph")
    return GraphEngine(trained, getattr(torch, dtype), **settings)


def _plain(trained: PreTrainedModel, dtype: str, **settings) -> TransformersEngine:
    _known(settings, TransformersEngine, "transformers")
    return TransformersEngine(trained, **settings) if dtype == "float32" else copied(trained, dtype, **settings)


def copied(trained: PreTrainedModel, dtype: str, **settings) -> TransformersEngine:
    """A sampler over a copy of the trained weights in a dtype; `sync` copies them again."""
    twin = deepcopy(trained).eval().requires_grad_(False)
    for weight in twin.parameters():  # not twin.to(dtype): that would round the rotary frequencies too
        weight.data = weight.data.to(getattr(torch, dtype))
    engine = TransformersEngine(twin, copy_of=trained, **settings)
    engine.sync()
    return engine


def _vllm(trained: PreTrainedModel, dtype: str, **settings):
    from workbench.worlds.engines.vllm import VllmEngine

    _known(settings, VllmEngine, "vllm")
    return VllmEngine(trained, dtype, **settings)


def _server(trained: PreTrainedModel, url: str, settings: Mapping):
    from workbench.worlds.engines.vllm_server import ServerEngine

    _known(settings, ServerEngine, url)
    return ServerEngine(url, trained, **settings)


def _known(settings: Mapping[str, object], engine: type, name: str) -> None:
    """Raise ValueError for a setting that an engine does not take; its settings are its keyword arguments."""
    takes = [p.name for p in signature(engine).parameters.values() if p.kind is p.KEYWORD_ONLY]
    known(settings, takes, f"the engine {name}")


MAKERS = {"transformers": _plain, "graph": _graph, "vllm": _vllm}
