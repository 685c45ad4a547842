"""Where rollouts fork and end: vectors of scans over finished rollouts, by what is decided one token at a time."""

from __future__ import annotations

import numpy as np
import torch

from tests.vectors.calls import Fields, calls, rows_of
from workbench.methods.echo import certainty as echo
from workbench.numerics.sparse_sync import changed
from workbench.worlds.engines.patches import bits_of

RELEASED = {
    "min_depth": 4, "entropy_high": 3.5, "entropy_low": 1.0, "branch_threshold": 1.2, "entropy_delta_threshold": 0.2,
    "alpha": 2.0, "beta": 1.0, "min_branches": 1, "max_branches": 4, "prune_threshold": 0.4, "tail_decline_steps": 3,
    "tail_threshold": 1.0, "delta_rise_steps": 3, "delta_upper": 0.5,
}  # fmt: skip
"""Settings of ECHO's released controller, under the names of `cfg`."""


def track_of(width: int = 1) -> echo.Track:
    """A branch that showed nothing."""
    return echo.Track(*(np.zeros(1) for _ in range(5)), np.zeros((1, width)), np.zeros((1, width)))


@calls("echo", "token_stats")
def token_stats(
    step_logprobs, entropy_window=4, group_window=4, tail_window=8, confidence_top_k=5, conf_mode="mean_prob"
) -> Fields:
    """What is shown token by token."""
    if conf_mode not in ("mean_prob", "neg_mean_logprob"):
        raise ValueError(f"conf_mode must be mean_prob or neg_mean_logprob, not {conf_mode!r}")
    track, columns = track_of(max(entropy_window, group_window, tail_window)), []
    for row in step_logprobs:
        entropy, confidence = echo.entropy_and_confidence(np.array([row], float), confidence_top_k, conf_mode)
        seen = echo.look(track, entropy, confidence, entropy_window, group_window, tail_window)
        track = seen.track
        columns.append([entropy[0], confidence[0], seen.group[0], track.tail[0], seen.rise[0]])
    names = ("entropy", "confidence", "group_conf", "tail_conf", "delta_entropy")
    return Fields(zip(names, np.array(columns).reshape(-1, 5).T, strict=True))


@calls("echo", "plan_branch")
def plan_branch(entropy, group_conf, delta_entropy, cfg) -> Fields:
    """The first place at or after min_depth whose gates are open; a width of 1 is no fork."""
    c = {**RELEASED, **cfg}
    h, conf, rise = (np.asarray(x, float) for x in (entropy, group_conf, delta_entropy))
    gates = echo.may_fork(h, conf, rise, c["entropy_high"], c["branch_threshold"], c["entropy_delta_threshold"])
    gates[: int(min(c["min_depth"], max(len(h) - 1, 0)))] = False
    none = Fields(position=None, width=None)
    if not gates.any():
        return none
    t = int(gates.argmax())
    limits = (c[n] for n in ("entropy_low", "entropy_high", "branch_threshold", "alpha", "beta"))
    bounds = int(c["min_branches"]), int(c["max_branches"])
    width = echo.branch_width(float(h[t]), float(conf[t]), *limits, *bounds).width
    return Fields(position=t, width=width) if width > 1 else none


@calls("echo", "prune_scan")
def prune_scan(group_conf, tail_conf, delta_entropy, cfg) -> Fields:
    """The first place at which the branch ends."""
    c = {**RELEASED, **cfg}
    limits = [c[n] for n in ("prune_threshold", "tail_decline_steps", "tail_threshold")]
    track = track_of()
    for t, row in enumerate(zip(group_conf, tail_conf, delta_entropy, strict=True)):
        group, tail, rise = (np.array([x], float) for x in row)
        track = echo.counted(track, group, tail, rise)
        reason = str(echo.end_reason(track, rise, *limits, c["delta_rise_steps"], c["delta_upper"])[0])
        if reason:
            return Fields(position=t, reason=reason)
    return Fields(position=None, reason=None)


@calls("echo", "adaptive_clip")
def adaptive_clip(confidences, mask, tail_window=16, eps_min=0.05, eps_max=0.2, kappa=4.0) -> Fields:
    """The clip range of every row."""
    valid = rows_of(mask) > 0
    made = echo.adaptive_clip(rows_of(confidences), valid, valid, tail_window, eps_min, eps_max, kappa)
    return Fields({name: column.numpy() for name, column in made._asdict().items()})


@calls("sparserl-sync", "to_bf16_bits")
def to_bf16_bits(x) -> Fields:
    """The bits that a patch takes of a tensor, and the bfloat16 numbers that they are."""
    tensor = torch.tensor(np.asarray(x, np.float32))
    return Fields(bits=bits_of(tensor), value=tensor.to(torch.bfloat16).float().numpy())


@calls("sparserl-sync", "diff_indices")
def diff_indices(current, previous, compare="bits") -> Fields:
    """Where the bfloat16 copies of two versions differ, in their bits or in their values."""
    if compare not in ("bits", "value"):
        raise ValueError(f"no comparison {compare!r}; there are bits and value")
    new, old = to_bf16_bits(current), to_bf16_bits(previous)
    return Fields(changed(new[compare], old[compare])._asdict())
