"""Loss interface: a padded micro-batch of tensors (`Batch`), and terms per token that are not yet reduced (`Loss`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch


class Batch(NamedTuple):
    """A padded micro-batch as the loss sees it: all (B, T), row (B,) the rollout of each line.

    logp carries the gradient; behaviour is the sampler's record, proximal the policy at the start of the update.
    extra: what else a world brings for methods that need it: a rollouts' per-token column (B, T), such as teacher_logp, NaN in
    lines of which it is not known,
    a per-rollout one (B, ...), or top-K log-probabilities (B, T, K), student_topk_logp (with gradient), teacher_topk_logp;
    plain_logp (B, T), the line's tokens behind the plain prompt, without the hint they were generated after (with gradient);
    role (B, T) where hints stand in front of rows, see `sampled`.
    """

    logp: torch.Tensor
    behaviour: torch.Tensor
    proximal: torch.Tensor
    advantage: torch.Tensor
    mask: torch.Tensor
    entropy: torch.Tensor
    row: torch.Tensor
    extra: Mapping[str, torch.Tensor] = MappingProxyType({})

    @property
    def sampled(self) -> torch.Tensor:
        """(B, T) the mask without the tokens of hints (role 1), which are trained but were not sampled: they have no
        behaviour policy and a ratio of 1 by construction, so that nothing is told of the ratio by them."""
        role = self.extra.get("role")
        return self.mask if role is None else self.mask * (role == 0)


class Loss(NamedTuple):
    """A loss not yet reduced: the trainer reduces over the whole optimiser step, so that means are exact.

    term (B, T); weight (B, T) or None; reduction: token_mean, seq_mean or const_len. stats are (B, T) or scalar
    tensors to be averaged over tokens: those of the objective, which are about ratios and what they clip, over tokens that
    were sampled (`Batch.sampled`), those of a penalty over all in the mask. lr_scale multiplies the learning rate of this
    step.
    """

    term: torch.Tensor
    weight: torch.Tensor | None = None
    reduction: str = "token_mean"
    stats: Mapping[str, torch.Tensor] = MappingProxyType({})
    lr_scale: float = 1.0
