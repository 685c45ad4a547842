"""Policy update: fp32 weights, AdamW, and exact optimiser steps from any number of micro-batches.

A loss is given per token; the means over tokens or rollouts are those of the whole optimiser step, so the gradient
does not depend on how rows were cut into micro-batches. Prompts are run once for all their rows in the update too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench import validate
from workbench.parallel import processes
from workbench.types import Advantage, Batch, Loss, Ragged
from workbench.worlds.engines.forward import answer_statistics
from workbench.worlds.engines.forward import pack as pack_sequences
from workbench.worlds.training import data_parallel, fsdp, lora, saving
from workbench.worlds.training.activation_checkpointing import recomputed
from workbench.worlds.training.kl_reference import Reference, divergence
from workbench.worlds.training.microbatch import Lines, Tally, minibatches, pack, sent, shares

LossFn = Callable[[Batch], Loss]


class _Columns(NamedTuple):
    """What an update tells of rows: loss and norm (R,) of the gradient, NaN in rows that are out of it; logp (tokens,) float32
    before it, NaN in rows that are not computed."""

    loss: np.ndarray
    norm: np.ndarray
    logp: np.ndarray

    @classmethod
    def of(cls, lines: Lines, rows: np.ndarray, active: np.ndarray) -> _Columns:
        """Zero where something will be known: of rows, and of the tokens of those that are active."""
        loss = np.where(_named(lines, rows), 0.0, np.nan)
        return cls(loss, loss.copy(), np.where(_tokens(lines, active), np.float32(0), np.float32(np.nan)))


def checked(
    *,
    lr: float | None = None,
    temperature: float = 1.0,
    clip: float = 1.0,
    betas: Sequence[float] = (0.9, 0.95),
    reference: float = 0.0,
    lora: int = 0,
    epochs: int = 1,
    minibatches: int = 1,
    **switches: object,
) -> None:
    """Raise ValueError, in one sentence, for settings of an update that would train to no use."""
    if lr is not None:
        validate.number("lr", lr, *validate.RANGES["lr"])
    validate.number("temperature", temperature, *validate.RANGES["temperature"])
    validate.number("clip", clip, 1e-6)  # torch turns the gradient round where it is negative
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"betas must be two numbers from 0 to 1, got {betas!r}")
    for beta in betas:
        validate.number("betas", beta, 0.0, 1 - 1e-9)
    validate.number("reference", reference, 0.0)
    validate.whole("lora", lora, 0)
    validate.whole("epochs", epochs)
    validate.whole("minibatches", minibatches)
    for name, value in switches.items():
        validate.one_of(name, value, (False, True))


class Policy:
    """A causal language model with its optimiser.

    lr, betas, clip (gradient norm), weight decay 0: AdamW. budget: padded tokens per micro-batch. precision: "float32",
    or "bfloat16" for autocast in the update (weights and optimiser stay float32). temperature: log-probabilities are
    those of the distribution that is sampled. recompute: keep one activation per layer and compute the rest again in
    the backward pass (gradient checkpointing), about a third more time for a fraction of the memory. reference: the
    coefficient of the divergence from the initial weights (see `kl_reference`), 0 for none. row_norms: report the gradient
    norm of every row, one more backward pass each. A model with LoRA adapters (see `lora`) trains those alone.
    epochs, minibatches: how often an update goes over its rows, and in how many optimiser steps each time; with more than one
    step ratios leave 1, so that clipping acts.
    shard: divide weights, gradients and optimiser between the processes of torch.distributed (see `fsdp`), for a
    model that one GPU cannot train; every process then makes every call.
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
        recompute: bool = False,
        reference: float = 0.0,
        row_norms: bool = False,
        shard: bool = False,
        epochs: int = 1,
        minibatches: int = 1,
    ) -> None:
        if shard and (row_norms or lora.present(model)):
            raise ValueError("sharded weights go with neither row_norms nor LoRA adapters; leave one of them out")
        checked(
            clip=clip,
            betas=betas,
            reference=reference,
            lr=lr,
            temperature=temperature,
            epochs=epochs,
            minibatches=minibatches,
        )
        self.epochs, self.minibatches = epochs, minibatches
        self.model = model
        self._pass = fsdp.sharded(model) if shard else None
        self.lr, self.clip, self.budget, self.temperature = lr, clip, budget, temperature
        self.precision = getattr(torch, precision)
        self.recompute, self.row_norms = recompute, row_norms
        self.coefficient, self.reference = reference, Reference(model) if reference else None
        self.version = 0
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=lr, betas=betas, weight_decay=0.0, fused=True)

    def room(self, lines: Lines) -> int:
        """Padded tokens per micro-batch: rows that are passed twice have half of the budget."""
        return self.budget if lines.plain is None else max(self.budget // 2, 1)

    def cut(self, lines: Lines, rows: np.ndarray) -> list[list[np.ndarray]]:
        """Micro-batches of rows, each a list of sequences; see `pack`."""
        return pack(lines, rows, self.room(lines))

    def statistics(
        self, lines: Lines, sequences: Sequence[np.ndarray]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(B, T) logp, entropy and bool mask of the rows of a micro-batch under the current weights; differentiable."""
        again = recomputed(self.model) if self.recompute and torch.is_grad_enabled() else nullcontext()
        with again, torch.autocast(self.model.device.type, self.precision, enabled=self.precision != torch.float32):
            return self._computed(lines, sequences)

    def _computed(
        self, lines: Lines, sequences: Sequence[np.ndarray]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`statistics` by transformers' own layers, the answers of a sequence packed behind its prefix."""
        prefixes = [lines.prefixes[int(lines.owner[rows[0]])] for rows in sequences]
        answers = [[lines.tokens.row(i).tolist() for i in rows] for rows in sequences]
        packed = pack_sequences(prefixes, answers, self.model.device)
        if self._pass is not None:
            return self._pass(packed, self.temperature)
        return answer_statistics(self.model, packed, self.temperature)

    @torch.no_grad()
    def _reference(self, lines: Lines, sequences: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
        """The column "reference" (B, T): log-probabilities under the initial weights; nothing where none are kept."""
        if self.reference is None:
            return {}
        with self.reference.acting():
            return {"reference": self.statistics(lines, sequences)[0]}

    def _plain(self, lines: Lines, sequences: Sequence[np.ndarray], logp: torch.Tensor) -> dict[str, torch.Tensor]:
        """The column "plain_logp" (B, T): log-probabilities behind the prefixes without hints, with their gradient; logp
        (B, T) itself for rows that have none. Nothing where it was not asked for."""
        if lines.plain is None:
            return {}
        moved = [rows for rows in sequences if lines.plain[lines.owner[rows[0]]] != lines.owner[rows[0]]]
        if self._pass is not None:  # gathering weights takes all processes, also those whose rows have no hint
            moved = list(sequences)
        if not moved:
            return {"plain_logp": logp}
        other = self.statistics(lines.plainly(), moved)[0]
        at = np.flatnonzero(np.isin(np.concatenate(sequences), np.concatenate(moved)))
        wide = torch.nn.functional.pad(other, (0, logp.shape[1] - other.shape[1]))
        return {"plain_logp": logp.index_copy(0, torch.as_tensor(at, device=logp.device), wide)}

    def logp(self, lines: Lines) -> Ragged:
        """Log-probability of every token under the current weights, ragged float32 like lines.tokens."""
        return self.measured(lines)[0]

    @torch.no_grad()
    def measured(self, lines: Lines, rows: np.ndarray | None = None) -> tuple[Ragged, Ragged]:
        """Log-probability and entropy of every token under the current weights, ragged float32 like lines.tokens; zero in rows
        other than these (None: all)."""
        values = np.zeros((2, len(lines.tokens.values)), np.float32)
        for sequences in self.cut(lines, np.flatnonzero(lines.tokens.lengths) if rows is None else rows):
            *found, mask = self.statistics(lines, sequences)
            at = _places(lines, np.concatenate(sequences), mask)
            for column, value in zip(values, found, strict=True):
                column[at] = value[mask].float().cpu()
        return Ragged(values[0], lines.tokens.offsets), Ragged(values[1], lines.tokens.offsets)

    def batch(self, lines: Lines, sequences: Sequence[np.ndarray], advantage: Advantage) -> Batch:
        """A micro-batch as a loss sees it; its rows in the order of the sequences."""
        reference = self._reference(lines, sequences)
        logp, entropy, mask = self.statistics(lines, sequences)
        rows = np.concatenate(sequences)
        inside = np.arange(mask.shape[1]) < lines.tokens.lengths[rows][:, None]  # mask, without asking the device

        def padded(column: Ragged) -> torch.Tensor:
            out = np.zeros((*inside.shape, *column.values.shape[1:]), np.float32)
            out[inside] = column.take(rows).values
            return sent(out, logp.device)

        # of one step, the policy at the start of the update is this one
        start = logp.detach() if lines.proximal is None else padded(lines.proximal)
        value = torch.as_tensor(advantage.value[rows], dtype=torch.float32, device=logp.device)[:, None]
        return Batch(
            logp=logp,
            behaviour=start if lines.behaviour is None else padded(lines.behaviour),
            proximal=start,
            advantage=value.expand(mask.shape) if advantage.tokens is None else padded(advantage.tokens),
            mask=mask.float(),
            entropy=entropy,
            row=torch.as_tensor(rows, device=logp.device),
            extra={
                name: padded(c) if isinstance(c, Ragged) else torch.as_tensor(c[rows], device=logp.device)
                for name, c in lines.extra.items()
            }
            | reference
            | self._plain(lines, sequences, logp),
        )

    def update(
        self,
        lines: Lines,
        advantage: Advantage,
        loss: LossFn,
        penalties: Sequence[LossFn] = (),
        *,
        constant: int = 1,
        group: np.ndarray | None = None,
    ) -> Mapping[str, float | np.ndarray | str]:
        """Optimiser steps on the kept rows: epochs times over them, in mini-batches of whole groups; one step by default.

        Returns scalars, means over the steps where there are several, and the columns loss_per_rollout (R,) of the first epoch
        and, if asked, more; logp_per_token, float32 like lines.tokens.values: log-probabilities before the first step, NaN in
        rows not computed; and of several steps NAME_per_step (K,), one value for each.

        group (R,): rows that stay in one mini-batch, None takes those of a prefix. Ratios are to the policy before the first
        step (`Batch.proximal`). Rows of advantage zero are not computed unless a penalty acts on them; they stay in every mean.
        Where nothing is left to compute there is no optimiser step and version stays; else it counts one, however many steps
        there were. A loss or gradient that is not finite leaves weights and optimiser as they were; where no step was made for
        that reason it is reported as "skipped". constant: tokens for the const_len reduction. Where torch.distributed is set
        up, the processes share the micro-batches of the same rows (see `data_parallel`).
        """
        wall, cpu = time.perf_counter(), time.process_time()
        if self.reference is not None:
            penalties = [*penalties, lambda batch: divergence(batch, self.coefficient)]
        kept = np.flatnonzero(advantage.keep)
        active = kept if penalties else kept[_acts(advantage)[kept]]
        active = active[lines.tokens.lengths[active] > 0]
        group = lines.owner if group is None else group
        several = self.epochs * self.minibatches > 1
        plan = [
            (epoch, rows)
            for epoch in range(self.epochs)
            for rows in minibatches(kept, group, self.minibatches, (self.version, epoch))
        ]
        columns = _Columns.of(lines, kept, active)
        # what the first step computes is of the policy before it; of later ones that is computed ahead, without gradient
        ahead = active[~np.isin(active, plan[0][1])]
        if len(ahead):
            of = _tokens(lines, ahead)
            columns.logp[of] = self.measured(lines, ahead)[0].values[of]
        steps: list[dict[str, float]] = []
        skips: list[str] = []
        for k, (epoch, rows) in enumerate(plan):
            computed = active[np.isin(active, rows)]
            part = _Columns.of(lines, rows, computed)
            given = lines._replace(proximal=Ragged(columns.logp, lines.tokens.offsets)) if k else lines
            one, skipped = self._optimise(given, advantage, [loss, *penalties], rows, computed, constant, part)
            if not epoch:
                columns.loss[rows], columns.norm[rows] = part.loss[rows], part.norm[rows]
            if not k:
                of = _tokens(lines, computed)
                columns.logp[of] = part.logp[of]
            if len(computed):
                steps.append(one)
                skips += [skipped] if skipped else []
        made = len(steps) - len(skips)
        self.version += made > 0
        steps = steps or [one]
        names = dict.fromkeys(name for s in steps for name in s)
        done = {
            **{name: float(np.mean([s[name] for s in steps if name in s])) for name in names},
            "tokens": sum(s["tokens"] for s in steps),
            "lr": steps[-1]["lr"],
            "rows": float(len(active)),
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - cpu,
            "loss_per_rollout": columns.loss,
            "logp_per_token": columns.logp,
        }
        if several:
            every = [name for name in names if all(name in s for s in steps)]
            done |= {f"{name}_per_step": np.array([s[name] for s in steps]) for name in every}
            done |= {"optimizer_steps": float(made), "skipped_steps": float(len(skips))}
        if self.row_norms:
            done["grad_norm_per_rollout"] = columns.norm
        return {**done, "skipped": skips[0]} if skips and not made else done

    def _optimise(
        self,
        lines: Lines,
        advantage: Advantage,
        losses: Sequence[LossFn],
        rows: np.ndarray,
        active: np.ndarray,
        constant: int,
        columns: _Columns,
    ) -> tuple[dict[str, float], str]:
        """One optimiser step on rows, of which those in active are computed; its scalars, and why it was skipped, "" where it was
        not. columns take what is known of each row."""
        share = {}
        for name, value in shares(lines.tokens.lengths[rows], constant).items():
            share[name] = np.zeros(len(advantage.keep))
            share[name][rows] = value
        tally = Tally()
        self.optimizer.zero_grad(set_to_none=True)

        def passes() -> Tally:
            for sequences, idle in data_parallel.dealt(self.cut(lines, active), even=self._pass is not None):
                batch = self.batch(lines, sequences, advantage)
                mine = np.concatenate(sequences)
                means = self._backward(batch, mine, losses, advantage, share, None if idle else tally, columns.norm)
                later.extend((mine, mean) for mean in means)
                if not idle:
                    drawn.append((mine, batch.logp.detach(), batch.mask))
            tally.settle()
            return tally

        later: list[tuple[np.ndarray, torch.Tensor]] = []
        drawn: list[tuple[np.ndarray, torch.Tensor, torch.Tensor]] = []
        # where weights are divided, the others are in the middle of a pass: an error ends its process then
        tallies = processes.gather_results(passes) if self._pass is None else processes.gather(passes())
        for mine, mean in later:
            columns.loss[mine] += mean.double().cpu().numpy()
        for mine, logp, mask in drawn:
            columns.logp[_places(lines, mine, mask)] = logp[mask.bool()].float().cpu()
        summed = self.parameters if self._pass is None else []  # a sharded backward pass has added up its gradients
        data_parallel.add_up(summed, tally, tallies, columns, self.model.device)
        norm, skipped = self._step(tally) if len(active) else (0.0, "")
        scalars = {**tally.scalars(), "grad_norm": norm, "lr": self.lr * tally.lr_scale, "tokens": float(tally.tokens)}
        return scalars, skipped

    def _backward(
        self,
        batch: Batch,
        rows: np.ndarray,
        losses: Sequence[LossFn],
        advantage: Advantage,
        share: Mapping[str, np.ndarray],
        tally: Tally | None,
        norms: np.ndarray,
    ) -> list[torch.Tensor]:
        """Add the gradient of a micro-batch; (B,) mean of each term over the tokens of its rows. share: what a token of each
        row weighs, by reduction. tally None: the pass is made for the other processes, which count it, and adds nothing."""
        weight = torch.as_tensor(advantage.weight[rows], dtype=torch.float32, device=batch.logp.device)[:, None]
        parts = [loss(batch) for loss in losses]
        objective = batch.logp.new_zeros(len(rows))  # (B,) what each row adds to the loss of the step
        terms = []
        for part in parts:
            term = part.term * batch.mask if part.weight is None else part.term * part.weight * batch.mask
            term = term * weight
            scale = torch.as_tensor(share[part.reduction][rows], dtype=torch.float32, device=term.device)
            objective = objective + term.sum(1) * scale
            terms.append(term.detach().sum(1) / batch.mask.sum(1))
        if tally is None:
            (objective.sum() * 0.0).backward()
            return []
        if self.row_norms:
            norms[rows] = [self._norm_of(one) for one in objective]
        objective.sum().backward()
        tally.add(batch, parts, objective)
        return terms

    def _norm_of(self, objective: torch.Tensor) -> float:
        """Norm of the gradient of one row's part of the loss, before clipping."""
        parts = torch.autograd.grad(objective, self.parameters, retain_graph=True, allow_unused=True)
        return math.sqrt(sum(float(g.double().square().sum()) for g in parts if g is not None))

    def _step(self, tally: Tally) -> tuple[float, str]:
        """Clip and step; (gradient norm, "" or why the step was skipped)."""
        skipped, norm = "non-finite loss", math.nan
        if math.isfinite(tally.loss):
            norm = float(fsdp.whole(torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)))
            skipped = "" if math.isfinite(norm) else "non-finite gradient"
        if not skipped:
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr * tally.lr_scale
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm, skipped

    def save(self, folder: Path) -> None:
        """Write weights (transformers format), optimiser and version into an existing folder; see `saving.save_training`."""
        saving.save_training(folder, self.model, self.optimizer, self.version, sharded=self._pass is not None)

    def load(self, folder: Path) -> None:
        """Take weights, optimiser and version from a folder that `save` wrote for the same architecture."""
        sharded = self._pass is not None
        self.version = saving.load_training(folder, self.model, self.optimizer, self.parameters, sharded=sharded)


def _named(lines: Lines, rows: np.ndarray) -> np.ndarray:
    """(R,) bool: whether a row is one of these."""
    mask = np.zeros(len(lines.owner), bool)
    mask[rows] = True
    return mask


def _tokens(lines: Lines, rows: np.ndarray) -> np.ndarray:
    """(tokens,) bool: whether a token is of one of these rows."""
    return np.repeat(_named(lines, rows), lines.tokens.lengths)


def _places(lines: Lines, rows: np.ndarray, mask: torch.Tensor) -> np.ndarray:
    """Where the tokens of rows, of which mask (B, T) is true, stand in lines.tokens.values."""
    return (lines.tokens.offsets[rows][:, None] + np.arange(mask.shape[1]))[mask.bool().cpu().numpy()]


def _acts(advantage: Advantage) -> np.ndarray:
    """(R,) bool: rows whose advantage is not zero everywhere."""
    if advantage.tokens is None:
        return advantage.value != 0
    return np.array([bool(row.any()) for row in advantage.tokens.rows()], bool)
