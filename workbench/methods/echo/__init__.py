"""ECHO: branch where entropy is high and confidence low, stop branches that fail, shape advantages by both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from workbench.methods.echo.certainty import (
    Look,
    Track,
    adaptive_clip,
    branch_width,
    end_reason,
    entropy_and_confidence,
    hybrid_advantage,
    look,
    may_fork,
)
from workbench.numerics.hints import Ask, with_asks
from workbench.numerics.votes import voted
from workbench.stages import Card, Checkpoint, Method, State
from workbench.types import Advantage, Batch, Cut, Draft, Fork, Frontier, Loss, Plan, Ragged, Rollouts

CARD = Card(
    slug="echo",
    title="ECHO: entropy-confidence hybrid optimization for test-time RL",
    arxiv="2602.02150",
    code="https://github.com/user683/ECHO",
    source="C*",
    deviations=(
        "the gates are ours: at the released ones nothing forks (the mean of five of the logarithms is at most -ln 5, so "
        "the confidence is at least 1.61 and never at most 1.2; ten tokens hold at most 2.30 nats, not 3.5), and under the "
        "mean probability, at most 0.2, everything is cut at 0.4",
        "rollouts are judged while they grow: what is cut ends there, unrewarded; the released code cuts finished texts",
        "in the shaping and in the clip a token's confidence is the probability it was drawn with: rollouts keep no top K",
        "the first token is drawn before anybody looks, so windows begin at the second",
    ),
    watch="fork and prune marks along a rollout, reasons of pruning, vote ratio against true accuracy",
)


@dataclass(frozen=True)
class Echo(Method):
    """One fork a prompt, from its first rollout, into the likeliest tokens; failing branches stop; votes are the rewards.

    Up to max_branches of a group wait for the fork; where it is narrower, plain rollouts fill the group. labels: vote
    replaces the verifier's reward by agreement with the majority. cuts=False never stops a branch. Gates are those of
    `may_fork` and `end_reason`, over the top_k likeliest tokens, set for confidence="mean_prob" of five. Stands behind
    an estimator: Pipeline(Grpo(), Echo()).
    """

    min_depth: int = 4
    entropy_high: float = 1.5
    entropy_low: float = 0.5
    branch_threshold: float = 0.19
    entropy_delta_threshold: float = 0.2
    width_alpha: float = 2.0
    width_beta: float = 1.0
    max_branches: int = 4
    prune_threshold: float = 0.12
    tail_decline_steps: int = 3
    tail_threshold: float = 0.14
    delta_rise_steps: int = 3
    delta_upper: float = 0.5
    entropy_window: int = 4
    group_window: int = 4
    tail_window: int = 8
    top_k: int = 10
    confidence_top_k: int = 5
    confidence: Literal["mean_prob", "neg_mean_logprob"] = "mean_prob"
    cuts: bool = True
    labels: Literal["vote", "verifier"] = "vote"
    alpha: float = 1.0
    beta: float = 1.0
    s_max: float | None = 2.0
    mult_coeff: float = 0.1
    add_coeff: float = 0.0
    clip_window: int = 16
    eps_min: float = 0.05
    eps_max: float = 0.2
    kappa: float = 4.0

    card = CARD
    needs: ClassVar[frozenset[str]] = frozenset({"top_tokens", "token_entropy", "behaviour"})

    def __post_init__(self) -> None:
        if self.max_branches < 1 or self.top_k < self.max_branches:
            raise ValueError(f"{self.max_branches} branches cannot begin with different ones of {self.top_k} tokens")

    @property
    def checkpoint(self) -> Checkpoint:
        """Every token, with the top_k likeliest next ones."""
        return Checkpoint(every=1, top=self.top_k)

    def amend(self, state: State, plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        """Keep room for the forks of a group; once they are there, fill it with plain rollouts."""
        rows = np.flatnonzero(plan.is_plain & (plan.n > 1))
        held = plan.defer(self.name, rows, np.minimum(self.max_branches, plan.n[rows] - 1))
        plan = held.with_n(held.n, plan.n_leaves)
        asks, _ = draft.deferred(self.name)
        if not len(asks):
            return plan
        done, r = draft.plan, draft.rollouts
        left = done.n_leaves[asks] - np.bincount(r.ask[r.ask >= 0], minlength=len(done))[asks]
        return with_asks(plan, [Ask(int(done.prompt[a]), int(n)) for a, n in zip(asks, left, strict=True) if n > 0])

    def _look(self, frontier: Frontier) -> Look | None:
        """What the present tokens show; None where the world shows none."""
        if "top_logp" not in frontier.extra or not len(frontier):
            return None
        b, width = len(frontier), max(self.entropy_window, self.group_window, self.tail_window)
        blank = dict.fromkeys(Track._fields[:5], np.zeros(b)) | dict.fromkeys(Track._fields[5:], np.zeros((b, width)))
        track = Track(**{n: np.asarray(frontier.memory.get(f"echo.{n}", x)) for n, x in blank.items()})
        entropy, confidence = entropy_and_confidence(frontier.extra["top_logp"], self.confidence_top_k, self.confidence)
        return look(track, entropy, confidence, self.entropy_window, self.group_window, self.tail_window)

    def branch(self, state: State, frontier: Frontier, rng: np.random.Generator) -> Fork:
        """Fork a prompt's first rollout where all three gates open for the first time, one branch per likely token."""
        b = len(frontier)
        width, token = np.ones(b, np.int64), np.full((b, self.max_branches), -1, np.int64)
        here = np.full(b, -1)
        seen = self._look(frontier)
        if seen is None:
            return Fork(width, here, token)
        memory = _memory(seen.track)
        new = (seen.track.count == 1) & (frontier.parent < 0)
        base = np.where(new, 0.0, np.asarray(frontier.memory.get("echo.base", np.zeros(b))))
        base[np.flatnonzero(new)[np.unique(frontier.prompt[new], return_index=True)[1]]] = 1.0
        gates = (base > 0) & (frontier.parent < 0) & (frontier.round == 0) & (frontier.n_tokens >= self.min_depth)
        limits = self.entropy_high, self.branch_threshold, self.entropy_delta_threshold
        gates &= may_fork(seen.entropy, seen.group, seen.rise, *limits)
        for k in np.flatnonzero(gates):
            n = self._width(float(seen.entropy[k]), float(seen.group[k]))
            base[k] = 0.0  # one scan, one fork
            if n > 1:
                width[k] = n + 1
                token[k, :n] = frontier.extra["top_tokens"][k, :n]
        why = {"entropy": seen.entropy, "confidence": seen.group, "rise": seen.rise}
        return Fork(width, here, token, why, memory | {"echo.base": base})

    def _width(self, entropy: float, confidence: float) -> int:
        gates = (self.entropy_low, self.entropy_high, self.branch_threshold)
        return branch_width(entropy, confidence, *gates, self.width_alpha, self.width_beta, 1, self.max_branches).width

    def prune(self, state: State, frontier: Frontier, rng: np.random.Generator) -> Cut:
        """Stop a branch at the first token at which its confidence is too low, its tail declines or entropy keeps rising."""
        b = len(frontier)
        width, reason = np.ones(b, np.int64), np.full(b, "", dtype=object)
        seen = self._look(frontier)
        if seen is None:
            return Cut(width, reason, np.ones(b))
        t = seen.track
        if self.cuts:
            limits = self.prune_threshold, self.tail_decline_steps, self.tail_threshold
            reason = end_reason(t, seen.rise, *limits, self.delta_rise_steps, self.delta_upper)
            width = (reason == "").astype(np.int64)
        return Cut(width, reason, np.ones(b), _memory(t))

    def reward(self, state: State, rollouts: Rollouts) -> Rollouts:
        """Agreement with the majority of the prompt."""
        return rollouts if self.labels == "verifier" else rollouts.with_(reward=voted(rollouts))

    def estimate(self, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
        """The advantages that stand before it, token by token, larger where the policy was in doubt."""
        r = draft.rollouts
        if r.entropy is None or r.logp is None:
            raise ValueError(
                "echo shapes by entropy and log-probability of the tokens, and these rollouts have none recorded"
            )
        lengths = r.entropy.lengths
        inside = np.arange(int(lengths.max(initial=0))) < lengths[:, None]
        shape, row = inside.shape, np.repeat(np.arange(len(r)), lengths)
        entropy, confidence, value = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        entropy[inside], confidence[inside] = r.entropy.values, np.exp(r.logp.values)
        value[inside] = advantage.value[row] if advantage.tokens is None else advantage.tokens.values
        made = hybrid_advantage(
            value, entropy, confidence, inside & advantage.keep[:, None], r.group.tolist(),
            self.alpha, self.beta, self.s_max, self.mult_coeff, self.add_coeff,
        )  # fmt: skip
        return replace(advantage, tokens=Ragged(made.advantages[inside], r.entropy.offsets))

    def loss(self, state: State, batch: Batch) -> Loss:
        """The clipped surrogate with one range per rollout, tighter where its tail was sure."""
        import torch

        mask, zero = batch.mask.bool(), torch.zeros_like(batch.logp)
        log_ratio = torch.where(mask, batch.logp - batch.proximal, zero).clamp(-20, 20)
        ratio, a = log_ratio.exp(), torch.where(mask, batch.advantage, zero)
        limits = self.clip_window, self.eps_min, self.eps_max, self.kappa
        eps = adaptive_clip(batch.behaviour.exp(), mask, batch.sampled, *limits).clip_epsilon[:, None].detach()
        term = -torch.minimum(ratio * a, torch.minimum(torch.maximum(ratio, 1 - eps), 1 + eps) * a)
        low, high = (ratio < 1 - eps) & (a < 0), (ratio > 1 + eps) & (a > 0)
        stats = {"clip_low": low.to(term.dtype), "clip_high": high.to(term.dtype), "eps": eps.expand_as(term)}
        return Loss(term, stats={"ratio": ratio.detach(), **stats})


def _memory(track: Track) -> dict[str, np.ndarray]:
    return {f"echo.{name}": column for name, column in track._asdict().items()}
