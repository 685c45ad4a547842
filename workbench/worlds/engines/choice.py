"""Choice of the engine that samples: the one that is named, or the fastest by a short measurement.

Engines are the files NAME_engine.py beside this one (see `Engine`); each is imported when it is wanted.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Mapping, Sequence
from inspect import signature

import numpy as np
from transformers import PreTrainedModel

from workbench.parallel import processes
from workbench.validate import known
from workbench.worlds import engines
from workbench.worlds.engines import Engine, Request
from workbench.worlds.engines.draws import streams

ROWS, TOKENS = 64, 16
"""Of the measurement: 8 prompts of 32 tokens, 8 rows each."""

SLOW_FROM = 500_000_000
"""Parameters from which "auto" measures an engine that starts slowly (vLLM, about a minute); below it decodes slower."""

ADDRESS = ("http://", "https://")


def names() -> list[str]:
    """Engines that sample in this process, in alphabetical order."""
    modules = (module.name for module in pkgutil.iter_modules(engines.__path__))
    found = sorted(name.removesuffix("_engine") for name in modules if name.endswith("_engine"))
    return [name for name in found if name != "server"]


def load(name: str) -> type[Engine]:
    """The engine class of a name, or of a server's address."""
    module = importlib.import_module(f"{__package__}.{'server' if name.startswith(ADDRESS) else name}_engine")
    mine = (c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__)
    return next(c for c in mine if issubclass(c, Engine))


def make(name: str, trained: PreTrainedModel, dtype: str, **settings: object) -> Engine:
    """An engine of a name with its settings; ValueError for one that it does not take."""
    kind = load(name)
    takes = [p.name for p in signature(kind).parameters.values() if p.kind is p.KEYWORD_ONLY]
    known(settings, takes, f"the engine {name}")
    return kind.of(name, trained, dtype, **settings)


def pick(
    trained: PreTrainedModel, dtype: str, name: str | Mapping[str, object] = "auto", *, cached: bool | str = True
) -> tuple[Engine, str]:
    """(engine, why): a sampler over the trained weights or a copy of them in another dtype.

    cached: what `TransformersEngine` may keep of this model.
    name: "transformers" runs any model; "graph" is for Llamas and their relatives, on a GPU; "vllm" runs vLLM in this
    process, and an address (http://...) asks a server that speaks OpenAI's protocol. "auto" measures what can run on a
    GPU, and is "transformers" elsewhere. A mapping {"name": ..., **settings} gives an engine its settings. why: one line
    for the description of a run.
    """
    settings: dict[str, object] = dict(name) if isinstance(name, Mapping) else {"name": name}
    name = str(settings.pop("name", "auto"))
    if name == "transformers":
        settings.setdefault("cached", cached)
    if name.startswith(ADDRESS) or name in names():
        return make(name, trained, dtype, **settings), f"{name}: asked for"
    if name != "auto":
        there = ", ".join(["auto", *names()])
        raise ValueError(f"no engine {name!r}; there are {there}, and the address of a server (http://...)")
    if settings:
        raise ValueError(f"settings {', '.join(settings)} are for a named engine, not for auto")
    candidates, obstacle = _candidates(trained)
    if len(candidates) > 1:
        try:
            return _fastest(trained, dtype, candidates, cached)
        except ValueError as error:  # a shape that its kernels are not made for
            obstacle = str(error)
    return make("transformers", trained, dtype, cached=cached), f"transformers: {obstacle}"


def _candidates(trained: PreTrainedModel) -> tuple[list[str], str]:
    """Engines worth a measurement, those that start slowly last, and why others are not."""
    if trained.device.type != "cuda":
        return ["transformers"], "there is no GPU"
    found, obstacles = ["transformers"], []
    others = {name: load(name) for name in names() if name != "transformers"}
    for name, kind in sorted(others.items(), key=lambda pair: pair[1].slow_start):
        if kind.slow_start and len(found) > 1 and trained.num_parameters() < SLOW_FROM:
            continue
        if why := kind.obstacle(trained):
            obstacles.append(why)
        else:
            found.append(name)
    return found, "; ".join(obstacles)


def _fastest(trained: PreTrainedModel, dtype: str, candidates: Sequence[str], cached: bool | str) -> tuple[Engine, str]:
    rates, made = {}, {}
    for name in candidates:
        made[name] = make(name, trained, dtype, **({"cached": cached} if name == "transformers" else {}))
        rates[name] = tokens_per_second(made[name], trained.config.get_text_config().vocab_size)
    rates = processes.broadcast(rates)  # each has measured for itself
    best = max(rates, key=rates.__getitem__)
    for name, engine in made.items():
        if name != best:
            engine.close()
    measured = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    return made[best], f"{best}: measured tokens/s at {ROWS} rows: {measured}"


def tokens_per_second(engine: Engine, vocabulary: int) -> float:
    """What an engine generates in a second at ROWS x TOKENS, its second call."""
    prompts = np.random.default_rng(0).integers(0, vocabulary, (8, 32)).tolist()
    keys = streams(0, map(str, range(ROWS)))
    for _ in range(2):
        began = time.perf_counter()
        engine.generate(Request.of_groups(prompts, np.full(8, ROWS // 8), np.full(8, TOKENS), keys))
        taken = time.perf_counter() - began
    return ROWS * TOKENS / taken
