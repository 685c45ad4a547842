"""The model that learns: fp32 weights, AdamW, and one exact optimiser step from any number of micro-batches.

A loss is given per token; the means over tokens or rollouts are those of the whole optimiser step, so the gradient
does not depend on how rows were cut into micro-batches. Prompts are run once for all their rows in the update too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from workbench.models import quiet
from workbench.types import Advantage, Batch, Loss, Ragged
from workbench.worlds.engines.forward import answer_statistics
from workbench.worlds.engines.forward import pack as pack_sequences

LossFn = Callable[[Batch], Loss]
OPTIMIZER = "optimizer.pt"


class Lines(NamedTuple):
    """What the policy learns from: R rows as tokens.

    prefixes: P token lists; owner (R,) the prefix of each row; tokens ragged int32; behaviour ragged float32, the
    sampler's log-probabilities, or None where they were not kept. extra: more columns for the loss, by name: ragged like
    tokens, or (R, ...) arrays of numbers.
    """

    prefixes: Sequence[Sequence[int]]
    owner: np.ndarray
    tokens: Ragged
    behaviour: Ragged | None = None
    extra: Mapping[str, Ragged | np.ndarray] = MappingProxyType({})


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
            sequences.append((len(lines.prefixes[owner[row]]) + int(fed[row]), [row]))
    batches: list[list[np.ndarray]] = []
    for width, mine in sorted(sequences, key=lambda s: (s[0], s[1][0])):
        if batches and width * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(np.array(mine))
        else:
            batches.append([np.array(mine)])
    return batches


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
class _Tally:
    """Sums over the micro-batches of one step."""

    loss: float = 0.0
    gap: float = 0.0
    kl: float = 0.0
    tokens: int = 0
    lr_scale: float = 1.0
    stats: dict[str, float] = field(default_factory=dict)

    def add(self, batch: Batch, losses: Sequence[Loss]) -> None:
        valid = int(batch.mask.sum())
        self.tokens += valid
        log_ratio = ((batch.logp.detach() - batch.behaviour) * batch.mask).float()
        self.gap += float(log_ratio.abs().sum())
        # k3: an estimate of KL(sampler || trainer) that is never negative
        self.kl += float((log_ratio.exp() - 1 - log_ratio).sum())
        for name, value in (item for loss in losses for item in loss.stats.items()):
            value = torch.as_tensor(value).detach().float()
            total = float((value * batch.mask).sum()) if value.ndim else float(value) * valid
            self.stats[name] = self.stats.get(name, 0.0) + total

    def scalars(self) -> dict[str, float]:
        n = max(1, self.tokens)
        means = {name: total / n for name, total in self.stats.items()}
        return {**means, "loss": self.loss, "logp_gap": self.gap / n, "kl": self.kl / n}


class Policy:
    """A causal language model with its optimiser.

    lr, betas, clip (gradient norm), weight decay 0: AdamW. budget: padded tokens per micro-batch. precision: "float32",
    or "bfloat16" for autocast in the update (weights and optimiser stay float32). temperature: log-probabilities are
    those of the distribution that is sampled.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        lr: float = 1e-5,
        betas: tuple[float, float] = (0.9, 0.95),
        clip: float = 1.0,
        budget: int = 1024,
        precision: str = "float32",
        temperature: float = 1.0,
    ) -> None:
        self.model = model
        self.lr, self.clip, self.budget, self.temperature = lr, clip, budget, temperature
        self.precision = getattr(torch, precision)
        self.version = 0
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=lr, betas=betas, weight_decay=0.0, fused=True)

    def cut(self, lines: Lines, rows: np.ndarray) -> list[list[np.ndarray]]:
        """Micro-batches of rows, each a list of sequences; see `pack`."""
        return pack(lines, rows, self.budget)

    def statistics(
        self, lines: Lines, sequences: Sequence[np.ndarray]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(B, T) logp, entropy and bool mask of the rows of a micro-batch under the current weights; differentiable."""
        prefixes = [lines.prefixes[lines.owner[rows[0]]] for rows in sequences]
        answers = [[lines.tokens.row(i).tolist() for i in rows] for rows in sequences]
        packed = pack_sequences(prefixes, answers, self.model.device)
        with torch.autocast(self.model.device.type, self.precision, enabled=self.precision != torch.float32):
            return answer_statistics(self.model, packed, self.temperature)

    @torch.no_grad()
    def logp(self, lines: Lines) -> Ragged:
        """Log-probability of every token under the current weights, ragged float32 like lines.tokens."""
        values = np.zeros(len(lines.tokens.values), np.float32)
        for sequences in self.cut(lines, np.flatnonzero(lines.tokens.lengths)):
            logp, _, mask = self.statistics(lines, sequences)
            at = lines.tokens.offsets[np.concatenate(sequences)][:, None] + np.arange(mask.shape[1])
            values[at[mask.cpu().numpy()]] = logp[mask].float().cpu()
        return Ragged(values, lines.tokens.offsets)

    def batch(self, lines: Lines, sequences: Sequence[np.ndarray], advantage: Advantage) -> Batch:
        """A micro-batch as a loss sees it; its rows in the order of the sequences."""
        logp, entropy, mask = self.statistics(lines, sequences)
        rows = np.concatenate(sequences)

        def padded(column: Ragged) -> torch.Tensor:
            out = np.zeros((*mask.shape, *column.values.shape[1:]), np.float32)
            out[mask.cpu().numpy()] = column.take(rows).values
            return torch.from_numpy(out).to(logp.device)

        value = torch.as_tensor(advantage.value[rows], dtype=torch.float32, device=logp.device)[:, None]
        return Batch(
            logp=logp,
            behaviour=logp.detach() if lines.behaviour is None else padded(lines.behaviour),
            proximal=logp.detach(),  # one update per batch: the policy at the start of the update is this one
            advantage=value.expand(mask.shape) if advantage.tokens is None else padded(advantage.tokens),
            mask=mask.float(),
            entropy=entropy,
            row=torch.as_tensor(rows, device=logp.device),
            extra={
                name: padded(c) if isinstance(c, Ragged) else torch.as_tensor(c[rows], device=logp.device)
                for name, c in lines.extra.items()
            },
        )

    def update(
        self,
        lines: Lines,
        advantage: Advantage,
        loss: LossFn,
        penalties: Sequence[LossFn] = (),
        *,
        constant: int = 1,
    ) -> Mapping[str, float | np.ndarray | str]:
        """One optimiser step on the kept rows; returns scalars, and the columns loss (R,) and, if asked, more.

        Rows of advantage zero are not computed unless a penalty acts on them; they stay in every mean. Where nothing
        is left to compute there is no optimiser step and version stays. A loss or gradient that is not finite leaves
        weights and optimiser as they were and is reported as "skipped". constant: tokens for the const_len reduction.
        """
        wall, cpu = time.perf_counter(), time.process_time()
        total = len(advantage.keep)
        kept = np.flatnonzero(advantage.keep)
        active = kept if penalties else kept[_acts(advantage)[kept]]
        active = active[lines.tokens.lengths[active] > 0]
        share = {}
        for name, value in shares(lines.tokens.lengths[kept], constant).items():
            share[name] = np.zeros(total)
            share[name][kept] = value
        per_row = np.where(advantage.keep, 0.0, np.nan)
        tally = _Tally()
        self.optimizer.zero_grad(set_to_none=True)
        for sequences in self.cut(lines, active):
            batch = self.batch(lines, sequences, advantage)
            rows = np.concatenate(sequences)
            weight = torch.as_tensor(advantage.weight[rows], dtype=torch.float32, device=batch.logp.device)[:, None]
            losses = [loss(batch), *(penalty(batch) for penalty in penalties)]
            objective = batch.logp.new_zeros(())
            for part in losses:
                term = part.term * batch.mask if part.weight is None else part.term * part.weight * batch.mask
                term = term * weight
                scale = torch.as_tensor(share[part.reduction][rows], dtype=torch.float32, device=term.device)
                objective = objective + (term.sum(1) * scale).sum()
                per_row[rows] += (term.detach().sum(1) / batch.mask.sum(1)).double().cpu().numpy()
            tally.lr_scale = float(losses[0].lr_scale)
            tally.loss += float(objective.detach())
            tally.add(batch, losses)
            if not math.isfinite(tally.loss):
                break
            objective.backward()
        norm, skipped = self._step(tally) if len(active) else (0.0, "")
        done = {
            **tally.scalars(),
            "grad_norm": norm,
            "lr": self.lr * tally.lr_scale,
            "tokens": float(tally.tokens),
            "rows": float(len(active)),
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - cpu,
            "loss_per_rollout": per_row,
        }
        return {**done, "skipped": skipped} if skipped else done

    def _step(self, tally: _Tally) -> tuple[float, str]:
        """Clip and step; (gradient norm, "" or why the step was skipped)."""
        skipped, norm = "non-finite loss", math.nan
        if math.isfinite(tally.loss):
            norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.clip))
            skipped = "" if math.isfinite(norm) else "non-finite gradient"
        if not skipped:
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr * tally.lr_scale
            self.optimizer.step()
            self.version += 1
        self.optimizer.zero_grad(set_to_none=True)
        return norm, skipped

    def save(self, folder: Path) -> None:
        """Write weights (transformers format), optimiser and version into an existing folder."""
        with quiet():
            self.model.save_pretrained(folder)
        torch.save({"optimizer": self.optimizer.state_dict(), "version": self.version}, folder / OPTIMIZER)

    def load(self, folder: Path) -> None:
        """Take weights, optimiser and version from a folder that `save` wrote for the same architecture."""
        state = load_file(folder / "model.safetensors", device=str(self.model.device))
        missing, unexpected = self.model.load_state_dict(state, strict=False)
        tied = set(self.model.all_tied_weights_keys)
        if set(missing) - tied or unexpected:
            names = sorted(set(missing) - tied)[:3] + list(unexpected)[:3]
            raise ValueError(f"{folder} was saved from another architecture: {names} do not match")
        kept = torch.load(folder / OPTIMIZER, map_location=self.model.device, weights_only=True)
        self.optimizer.load_state_dict(kept["optimizer"])
        self.version = int(kept["version"])


def _acts(advantage: Advantage) -> np.ndarray:
    """(R,) bool: rows whose advantage is not zero everywhere."""
    if advantage.tokens is None:
        return advantage.value != 0
    return np.array([bool(row.any()) for row in advantage.tokens.rows()], bool)
