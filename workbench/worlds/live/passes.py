"""Check of sampling and training passes against the model's own forward, before the first step.

Engines and updates take short cuts through a model: a KV cache that is fanned out to a group, answers packed behind one
prefix. Whether a family allows them (sliding windows, scaled logits, recurrent layers, position biases) is measured,
not read from a list: rows longer than any window are sampled and scored both ways. What differs is replaced by the
model's own forward; what differs even then is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.models.declared import context_length
from workbench.types import Ragged
from workbench.worlds.engines import Engine, Request
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.forward import own_logits
from workbench.worlds.engines.transformers_engine import TransformersEngine
from workbench.worlds.training.microbatch import Lines
from workbench.worlds.training.packing import StreamPolicy
from workbench.worlds.training.padded import PaddedPolicy
from workbench.worlds.training.policy import Policy

ANSWER = 6
"""Tokens of each answer of the check."""

TOLERANCE = {"cpu": 2e-4, "cuda": 2e-3}
"""Nats between a float32 pass and the model's own forward; rounding alone stays well below."""

ROUNDED = 0.25
"""Mean nats between an engine in half precision and the float32 forward; rounding alone makes up to about 0.1."""

SPARE = 8
"""Rows that pause hide columns of the cache from each other; a window must hold so many times the longest row to have room."""


class Passes(NamedTuple):
    """Which passes over a model are used, and how far each was from the model's own forward.

    cached: as `TransformersEngine` takes it; packed: whether answers of one prefix are packed in the update. reach: tokens
    of the longest row of the check. gaps: largest difference in nats by pass, infinite for one that did not run. whys:
    why a pass is not used, in words.
    """

    cached: bool | str
    packed: bool
    reach: int
    gaps: dict[str, float]
    whys: dict[str, str]

    @property
    def sampling(self) -> str:
        """How rows are generated over transformers' own layers."""
        return {True: "cached", "whole": "cached, recomputed where rows pause", False: "recomputed"}[self.cached]

    @property
    def update(self) -> str:
        """How rows are passed in the update over transformers' own layers."""
        return "packed" if self.packed else "padded"

    def __str__(self) -> str:
        found = "; ".join(f"{name} off by {gap:.2g} nats" for name, gap in self.gaps.items() if np.isfinite(gap))
        why = "".join(f"; {name}: {why}" for name, why in self.whys.items())
        return f"sampling {self.sampling}, update {self.update} (rows of {self.reach} tokens against the model's own forward: {found}{why})"


def windows(model: PreTrainedModel) -> list[int]:
    """Tokens beyond which some layer of the model no longer looks back, or cuts its input into chunks."""
    config = model.config.get_text_config()
    names = ("sliding_window", "attention_window_size", "attention_chunk_size", "window_size", "chunk_size")
    found = (getattr(config, name, None) for name in names)
    return [size for size in found if isinstance(size, int) and size > 0]


def checked_passes(model: PreTrainedModel, longest: int) -> Passes:
    """The fastest passes over a float32 model that equal its own forward; longest: tokens of the longest row of the run.

    Rows of the check are longer than any window that such a row passes. ValueError, with the figures, where even the
    model's own forward over padded rows is not its forward over one row."""
    prefixes = _prefixes(model, longest)
    tolerance = TOLERANCE.get(model.device.type, 2e-3)
    gaps: dict[str, float] = {}
    whys: dict[str, str] = {}

    def right(name: str, measure: Callable[[], np.ndarray]) -> bool:
        try:
            gaps[name] = float(np.nan_to_num(measure(), nan=np.inf, posinf=np.inf).max())
        except Exception as error:  # each family refuses a pass in its own way
            gaps[name] = float("inf")
            whys[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
            return False
        if not (same := gaps[name] <= tolerance):
            whys[name] = f"off by {gaps[name]:.2g} nats, so it is not used"
        return same

    keeping, recomputing = (TransformersEngine(model, cached=cached) for cached in (True, False))
    cached: bool | str = False
    if right("cached sampling", lambda: _sampled_gaps(model, keeping, prefixes)):
        narrow = min((size for size in windows(model) if size < SPARE * longest), default=None)
        if narrow is not None:
            whys["paused sampling"] = f"columns of paused rows would fill windows of {narrow} tokens"
        elif right("paused sampling", lambda: _paused_gaps(model, keeping, prefixes)):
            cached = True
        cached = cached or "whole"
    elif not right("recomputed sampling", lambda: _sampled_gaps(model, recomputing, prefixes)):
        raise ValueError(_refusal(model, "sampling", gaps, whys))
    packed = right("packed update", lambda: _scored_gaps(Policy(model), prefixes))
    if not packed and not right("padded update", lambda: _scored_gaps(PaddedPolicy(model), prefixes)):
        raise ValueError(_refusal(model, "the update", gaps, whys))
    return Passes(cached, packed, max(map(len, prefixes)) + ANSWER, gaps, whys)


def _refusal(model: PreTrainedModel, what: str, gaps: dict[str, float], whys: dict[str, str]) -> str:
    tried = "; ".join(f"{name}: {whys[name]}" for name in gaps if name in whys)
    return f"no pass of {what} gives {type(model).__name__} its own log-probabilities, so it is not trained ({tried})"


def _prefixes(model: PreTrainedModel, longest: int) -> list[list[int]]:
    """Two prefixes of random tokens: one longer than any window that counts, one that an answer leads beyond it."""
    limit = min(filter(None, (longest, context_length(model.config))))
    edge = max((size for size in windows(model) if size < limit), default=12)
    lengths = [max(1, min(n, limit - ANSWER)) for n in (edge + 5, edge - 3)]
    rng = np.random.default_rng(0)
    return [rng.integers(0, model.config.get_text_config().vocab_size, n).tolist() for n in lengths]


@torch.no_grad()
def _own_logp(model: PreTrainedModel, prefix: list[int], tokens: np.ndarray) -> np.ndarray:
    """(T,) log-probability of tokens behind a prefix, by the model's own forward over this one row."""
    ids = torch.tensor([[*prefix, *tokens.tolist()]], device=model.device)
    logp = torch.log_softmax(own_logits(model, ids, torch.ones_like(ids))[0].float(), -1)
    at = torch.arange(len(prefix) - 1, ids.shape[1] - 1, device=ids.device)
    return logp[at, ids[0, len(prefix) :]].cpu().numpy()


def _gaps(model: PreTrainedModel, prefixes: list[list[int]], logp: Ragged, tokens: Ragged) -> np.ndarray:
    """Differences in nats, token by token; rows alternate between the prefixes."""
    own = [_own_logp(model, prefixes[i % len(prefixes)], row) for i, row in enumerate(tokens.rows())]
    return np.abs(np.concatenate(own) - logp.values)


def _request(prefixes: list[list[int]]) -> Request:
    """Four rows, two behind each prefix."""
    owner, keys = np.array([0, 1, 0, 1]), streams(0, map(str, range(4)))
    return Request(prefixes, owner, keys, np.full(4, ANSWER, np.int64))


def _sampled_gaps(model: PreTrainedModel, engine: Engine, prefixes: list[list[int]]) -> np.ndarray:
    """Of what an engine records of whole rows."""
    made = engine.generate(_request(prefixes))
    return _gaps(model, prefixes, made.logp, made.tokens)


def _paused_gaps(model: PreTrainedModel, engine: Engine, prefixes: list[list[int]]) -> np.ndarray:
    """Of rows that pause at different places, with one that is taken back and one that forks."""
    session = engine.open(_request(prefixes))
    parts = [session.advance(np.array(limit)) for limit in ([3, 1, 1, 2], [1, 3, 0, 2])]
    session.rewind(0, 1, int(parts[0].tokens.row(0)[-1]))
    session.keep(np.array([0, 1, 2, 3, 1]), streams(1, map(str, range(5))))
    parts.append(session.advance(np.array([2, 1, 3, 1, 1])))
    columns = []
    for name in ("tokens", "logp"):
        one, two, three = ([row.tolist() for row in getattr(part, name).rows()] for part in parts)
        rows = [one[0] + three[0], *(one[i] + two[i] + three[i] for i in (1, 2, 3)), one[1] + two[1] + three[4]]
        columns.append(rows)
    gaps = [
        np.abs(_own_logp(model, prefixes[owner], np.array(tokens)) - np.array(logp))
        for owner, tokens, logp in zip((0, 1, 0, 1, 1), *columns, strict=True)
    ]
    return np.concatenate(gaps)


def _scored_gaps(policy: Policy, prefixes: list[list[int]]) -> np.ndarray:
    """Of what a policy computes of four rows of random tokens."""
    rng, vocabulary = np.random.default_rng(1), policy.model.config.get_text_config().vocab_size
    tokens = Ragged.of([rng.integers(0, vocabulary, n) for n in (ANSWER, ANSWER - 1, 2, ANSWER)], np.int32)
    logp = policy.logp(Lines(prefixes, np.array([0, 1, 0, 1]), tokens))
    return _gaps(policy.model, prefixes, logp, tokens)


def check_engine(model: PreTrainedModel, engine: Engine, longest: int) -> None:
    """Raise ValueError where an engine samples from another distribution than the trained model's, beyond rounding."""
    what = f"{type(engine).__name__} samples from another distribution than {type(model).__name__}"
    _check_rounded(_sampled_gaps(model, engine, _prefixes(model, longest)), what, "use engine='transformers'")


def check_streams(policy: StreamPolicy, longest: int) -> None:
    """Raise ValueError where the update's streams compute another distribution than the model's, beyond rounding."""
    compiled, policy.compile = policy.compile, False  # the same arithmetic, without a minute of compilation
    try:
        gaps = _scored_gaps(policy, _prefixes(policy.model, longest))
    finally:
        policy.compile = compiled
    what = f"streams compute another distribution than {type(policy.model).__name__}"
    _check_rounded(gaps, what, "use precision='float32'")


def _check_rounded(gaps: np.ndarray, what: str, way_out: str) -> None:
    if not (gap := float(gaps.mean())) <= ROUNDED:
        raise ValueError(f"{what}: its log-probabilities are {gap:.2f} nats from the model's own on average; {way_out}")
