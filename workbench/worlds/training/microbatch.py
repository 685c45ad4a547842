"""Gradient accumulation over micro-batches: which rows stand together, what a token weighs, sums over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch

from workbench.types import Batch, Loss, Ragged


class Lines(NamedTuple):
    """What the policy learns from: R rows as tokens.

    prefixes: P token lists; owner (R,) the prefix of each row; tokens ragged int32; behaviour ragged float32, the
    sampler's log-probabilities, or None where they were not kept; proximal ragged float32, those of the policy before the first
    of several optimiser steps, None where there is one step. extra: more columns for the loss, by name: ragged like
    tokens, or (R, ...) arrays of numbers. plain (P,): of each prefix the same one without its hint, where rows are also
    passed behind that; None where they are not.
    """

    prefixes: Sequence[Sequence[int]]
    owner: np.ndarray
    tokens: Ragged
    behaviour: Ragged | None = None
    extra: Mapping[str, Ragged | np.ndarray] = MappingProxyType({})
    plain: np.ndarray | None = None
    proximal: Ragged | None = None

    def plainly(self) -> Lines:
        """The same rows behind their prefixes without hints."""
        assert self.plain is not None
        return self._replace(owner=self.plain[self.owner])


def sent(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """The array on the device. A GPU fetches it by itself, behind what it has still to do: a copy out of ordinary memory
    would let this process wait until all that is done."""
    made = torch.from_numpy(array)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made.to(device)


def pack(lines: Lines, rows: np.ndarray, budget: int, widest: int = 256) -> list[list[np.ndarray]]:
    """Micro-batches of at most budget padded tokens; each a list of sequences, given by the rows of one prefix.

    Rows that share a prefix share a sequence as long as it stays within widest tokens: attention is quadratic in it,
    so long answers get a sequence each. Sequences of like width stand together. A sequence longer than the budget is a
    micro-batch of its own.
    """
    fed, owner = np.maximum(lines.tokens.lengths - 1, 0), lines.owner
    sequences: list[tuple[int, list[int]]] = []  # (width, rows)
    for row in rows[np.lexsort((rows, owner[rows]))].tolist():
        width, mine = sequences[-1] if sequences else (0, [])
        if mine and owner[mine[0]] == owner[row] and width + fed[row] <= widest:
            sequences[-1] = (width + int(fed[row]), [*mine, row])
        else:
            sequences.append((len(lines.prefixes[int(owner[row])]) + int(fed[row]), [row]))
    batches: list[list[np.ndarray]] = []
    for width, mine in sorted(sequences, key=lambda s: (s[0], s[1][0])):
        if batches and width * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(np.array(mine))
        else:
            batches.append([np.array(mine)])
    return batches


def minibatches(rows: np.ndarray, group: np.ndarray, n: int, seed: Sequence[int]) -> list[np.ndarray]:
    """Rows cut into n mini-batches of like many groups, in an order drawn from seed; a group is never split, and where there are
    fewer groups than n there are as many mini-batches as groups. group (R,) is that of every row."""
    if n == 1:
        return [rows]
    found = np.unique(group[rows])
    parts = np.array_split(np.random.default_rng(list(seed)).permutation(found), min(n, max(len(found), 1)))
    return [rows[np.isin(group[rows], part)] for part in parts]


def shares(length: np.ndarray, constant: int) -> dict[str, np.ndarray]:
    """(K,) what one token of each kept row weighs in the mean over the whole step, by reduction.

    token_mean: 1 / all tokens; seq_mean: 1 / (rows * tokens of the row); const_len: 1 / (rows * constant), Dr. GRPO
    as in TRL. A row without tokens counts as a row.
    """
    rows = max(1, len(length))
    return {
        "token_mean": np.full(len(length), 1 / max(1, int(length.sum()))),
        "seq_mean": 1 / (rows * np.maximum(length, 1)),
        "const_len": np.full(len(length), 1 / (rows * max(1, constant))),
    }


@dataclass
class Tally:
    """Sums over the micro-batches of one step; tokens are all that are trained.

    gap, kl and what the objective tells (`stats`) are over tokens that were sampled, `counted` says how many: a hint that is
    trained has no behaviour policy (`Batch.sampled`). What penalties tell is over all. What is added stays on the device until `settle`: a GPU that is asked for a number stands still until it is known."""

    loss: float = 0.0
    gap: float = 0.0
    kl: float = 0.0
    tokens: int = 0
    lr_scale: float = 1.0
    stats: dict[str, float] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)
    _later: list[tuple[str, torch.Tensor]] = field(default_factory=list)

    def add(self, batch: Batch, losses: Sequence[Loss], objective: torch.Tensor) -> None:
        """Take in a micro-batch, the losses on it and what its rows add to the loss of the step, objective (B,)."""
        valid, sampled = batch.mask, batch.sampled
        log_ratio = ((batch.logp.detach() - batch.behaviour) * sampled).float()
        # k3: an estimate of KL(sampler || trainer) that is never negative
        k3 = log_ratio.exp() - 1 - log_ratio
        sums = {"loss": objective.detach().sum(), "tokens": valid.sum(), "gap": log_ratio.abs().sum(), "kl": k3.sum()}
        self._later += [*sums.items(), ("counted ", sampled.sum())]
        for of, loss in zip((sampled, *(valid for _ in losses[1:])), losses, strict=True):
            for name, value in loss.stats.items():
                value = torch.as_tensor(value, device=valid.device).detach().float()
                total = (value * of).sum() if value.ndim else value.double() * of.sum()
                self._later += [(f"stats {name}", total), (f"counted {name}", of.sum())]
        self.lr_scale = losses[0].lr_scale

    def settle(self) -> None:
        """Add up what has come in, with one look at the device."""
        self.lr_scale = float(self.lr_scale)
        later, self._later = self._later, []
        for (name, _), value in zip(
            later, torch.stack([v.double() for _, v in later]).tolist() if later else (), strict=True
        ):
            kind, many, stat = name.partition(" ")
            if many:
                into = getattr(self, kind)
                into[stat] = into.get(stat, 0.0) + value
            else:
                setattr(self, kind, getattr(self, kind) + value)
        self.tokens = int(self.tokens)

    def scalars(self) -> dict[str, float]:
        """Means over tokens, the loss, and over sampled tokens the mean gap |log trainer - log sampler| and the divergence
        of the two."""
        n = max(1, self.counted.get("", 0))
        means = {name: total / max(1, self.counted[name]) for name, total in self.stats.items()}
        return {**means, "loss": self.loss, "logp_gap": self.gap / n, "kl": self.kl / n}
