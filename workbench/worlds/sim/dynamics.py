"""Learning dynamics of the simulated policy: families of prompts, how they share what is learned, and the fitted numbers.

Draws are keyed by content (`uniforms` of a hash), never by call order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from workbench.types import Pool
from workbench.worlds.engines.draws import GOLDEN, splitmix64


class Family(NamedTuple):
    """A stratum of prompts: logits before training are normal(start, spread); gain is its loading on itself."""

    name: str
    start: float
    spread: float
    gain: float = 1.0


@dataclass(frozen=True)
class Dynamics:
    """How the simulated policy answers and learns; fitted to recorded runs, never to a method.

    Source of families, rate, specific, noise, forgetting and lengths: full fine-tune of SmolLM2-135M-Instruct with
    GRPO on the five-task mix, AdamW 1e-5, gradient clipped to norm 1 at every step, 16 prompts x 8 rollouts of at
    most 8 tokens, 89 steps, 2026-11-27 (`fit.RECORDED`). Since the recorded gradient was clipped at every step,
    a step has length rate whatever the gradient's norm.
    Its rewards were binary, so reach and format_gap (of wrong answers) are set, not fitted.
    """

    families: tuple[Family, ...] = ()
    rate: float = 0.1
    """Length of a step of theta, per update."""
    general: float = 0.3
    """Loading of a prompt on what all prompts share; its family has loading 1."""
    specific: float = 1.0
    """Norm of a prompt's loading on random directions: transfer that helps some and hurts others."""
    dims: int = 32
    """Number of random directions."""
    noise: float = 0.3
    """Length of a random step beside each update, in steps."""
    sharpening: float = 0.0
    """Growth of log sharpness per update: answers settle as entropy falls."""
    forgetting: float = 0.0
    """Share of theta and of log sharpness lost per update."""
    log_length: float = 1.5
    """Mean of log tokens of a correct answer."""
    length_spread: float = 0.3
    """Standard deviation of log tokens."""
    wrong_longer: float = 0.2
    """Added to log tokens of a wrong answer."""
    reach: float = 2.0
    """A wrong answer of quality q < 0 is off by -q / reach times the scale at which the tasks' closeness ends."""
    format_gap: float = 10.0
    """Quality at or below -format_gap holds no answer at all."""
    clip: float = 0.0
    """Gradient norm from which on a step has its full length; a smaller gradient makes a shorter one. 0 = always full."""


FITTED = Dynamics(
    families=(
        Family("sub <=20", -1.78, 2.84, 1.105),
        Family("mul 2dx1d", -1.485, 2.84, 1.058),
        Family("max of 3 2d", -0.926, 2.84, 2.887),
        Family("rg basic_arithmetic 2-3t 1d", -0.791, 2.84, 0.736),
        Family("add 2d+2d", -2.593, 2.84, 1.705),
    ),
    rate=0.1791,
    general=0.0048,
    specific=2.112,
    noise=0.2338,
    sharpening=0.01724,
    forgetting=0.01201,
    log_length=1.5301,
    wrong_longer=0.1439,
)
"""`fit.fit(fit.RECORDED)`, rounded; misfit of the fit and tolerance of the curves are in the tests."""


def mix(x: np.ndarray) -> np.ndarray:
    """(R,) uint64: a hash of uint64 numbers."""
    return splitmix64(x + GOLDEN)


_CHANNELS = mix(np.arange(8, dtype=np.uint64))


@lru_cache(1024)
def content_hash(text: str) -> int:
    """64 bits that depend on the text alone."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def uniforms(keys: np.ndarray, channel: int) -> np.ndarray:
    """(R,) float64 in (0, 1), one for each uint64 key; channels are independent of each other."""
    bits = mix(keys ^ _CHANNELS[channel])
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53


def ordinals(ids: np.ndarray) -> np.ndarray:
    """(R,) uint64 last field of rollout ids such as "12:abc:3" or "eval-20:abc:0"."""
    try:
        return np.fromiter((int(i[i.rfind(":") + 1 :]) for i in ids), np.uint64, len(ids))
    except ValueError as error:
        raise ValueError(f"a simulated rollout id ends in :<number>; {error}") from error


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)) without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


class Prompts(NamedTuple):
    """What the simulation knows of N prompts: base (N,), loading (N, D), key (N,) uint64, target (N,) int64."""

    base: np.ndarray
    loading: np.ndarray
    key: np.ndarray
    target: np.ndarray


def draw_prompts(
    dynamics: Dynamics, n: int, seed: int, part: str, features: np.ndarray | None = None
) -> tuple[Pool, Prompts]:
    """n prompts in equal parts over the families; features (n, d) replace the random directions where given."""
    rng = np.random.default_rng([seed, content_hash(part) & 0xFFFFFFFF])
    s = len(dynamics.families)
    family = np.arange(n) % s
    start, spread, gain = (np.array([getattr(f, c) for f in dynamics.families]) for c in ("start", "spread", "gain"))
    base = start[family] + spread[family] * rng.standard_normal(n)
    own = rng.standard_normal((n, dynamics.dims)) if features is None else features[:, : dynamics.dims]
    own = own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-12)
    loading = np.zeros((n, 1 + s + dynamics.dims))
    loading[:, 0] = dynamics.general
    loading[np.arange(n), 1 + family] = gain[family]
    loading[:, 1 + s : 1 + s + own.shape[1]] = dynamics.specific * own
    target = rng.integers(10, 100, n)
    ids = np.array([f"sim-{part}-{seed}-{i}" for i in range(n)], dtype=object)
    names = np.array([f.name for f in dynamics.families], dtype=object)[family]
    pool = Pool(
        ids=ids,
        text=np.array([f"Simulated question {i} of {f}" for i, f in enumerate(names)], dtype=object),
        answer=target.astype(str).astype(object),
        prefix=np.full(n, "The answer is", dtype=object),
        stratum=names,
        features={"embedding": loading.astype(np.float32)},
    )
    return pool, Prompts(base, loading, np.array([content_hash(i) for i in ids], np.uint64), target)
