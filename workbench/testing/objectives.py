"""Promises about losses and penalties, under default and other settings; they need torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from workbench.stages import Method
from workbench.testing.promise import case, promise
from workbench.testing.scripted import pool_of
from workbench.testing.trials import N_PROMPTS, variations
from workbench.types import Batch, Loss

if TYPE_CHECKING:
    from torch import Tensor


@promise("loss", "penalty")
def gradients(cls: type[Method]) -> None:
    """Its loss and its penalty have finite terms and gradients.

    Masked positions, which may hold anything, and fully masked rows get none."""
    for method in [cls(), *variations(cls)]:
        for verb in ("loss", "penalty"):
            if verb in method.verbs:
                with case(method=method, verb=verb):
                    _check_gradients(method, verb)


def _check_gradients(method: Method, verb: str) -> None:
    import torch

    torch.manual_seed(0)
    b, t = 5, 7
    mask = torch.ones(b, t)
    mask[1, 3:] = 0
    mask[4] = 0
    logp = -torch.rand(b, t)
    logp[mask == 0] = -torch.inf
    logp[0, 0] = -60.0  # a token that has become all but impossible
    logp.requires_grad_()
    entropy = torch.rand(b, t, requires_grad=True)
    proximal, behaviour = -torch.rand(b, t), -torch.rand(b, t)
    proximal[mask == 0] = behaviour[mask == 0] = -torch.inf
    batch = Batch(
        logp=logp,
        behaviour=behaviour,
        proximal=proximal,
        advantage=torch.randn(b, 1).expand(b, t),
        mask=mask,
        entropy=entropy,
        row=torch.arange(b),
        extra={
            "teacher_logp": -3 * torch.rand(b, t),
            "plain_logp": logp - torch.rand(b, t),
            "student_topk_logp": (logp.clamp(min=-9)[..., None] - torch.rand(b, t, 3)).log_softmax(-1),
            "teacher_topk_logp": torch.rand(b, t, 3).log_softmax(-1),
        },
    )
    loss = getattr(method, verb)(method.init(pool_of(N_PROMPTS)), batch)
    assert isinstance(loss, Loss)
    assert loss.term.shape == (b, t)
    assert loss.reduction in ("token_mean", "seq_mean", "const_len")
    assert torch.isfinite(loss.term).all()
    weight = mask if loss.weight is None else mask * loss.weight
    (loss.term * weight).sum().backward()
    for column in (logp, entropy):
        if column.grad is not None:
            assert torch.isfinite(column.grad).all()
            assert (column.grad[mask == 0] == 0).all()
    for name, value in loss.stats.items():
        assert torch.isfinite(value[mask > 0] if value.ndim else value).all(), name
        assert not value.requires_grad, name


@promise("loss")
def hint_in_front(cls: type[Method]) -> None:
    """A hint in front of a rollout changes nothing at the tokens that were sampled.

    Its tokens have the policy's own log-probability for that of a sampler: a ratio of 1, and no say in that of others."""
    for method in [cls(), *variations(cls)]:
        if "loss" in method.verbs:
            with case(method=method):
                _check_hint(method)


def _check_hint(method: Method) -> None:
    import torch

    torch.manual_seed(1)
    b, t, k = 4, 6, 3
    hint, own = (
        {name: -torch.rand(b, n) for name in ("logp", "behaviour", "proximal", "teacher_logp")} for n in (k, t)
    )
    hint = hint | {"behaviour": hint["logp"], "proximal": hint["logp"]}
    a = torch.randn(b, 1)

    def terms(columns: Mapping[str, Tensor], role: Tensor) -> Tensor:
        batch = Batch(
            logp=columns["logp"],
            behaviour=columns["behaviour"],
            proximal=columns["proximal"],
            advantage=a.expand(role.shape),
            mask=torch.ones_like(role),
            entropy=torch.ones_like(role),
            row=torch.arange(b),
            extra={"teacher_logp": columns["teacher_logp"], "role": role},
        )
        return method.loss(method.init(pool_of(N_PROMPTS)), batch).term  # type: ignore[attr-defined]

    alone = terms(own, torch.zeros(b, t))
    both = {name: torch.cat([hint[name], own[name]], 1) for name in own}
    behind = terms(both, torch.cat([torch.ones(b, k), torch.zeros(b, t)], 1))
    torch.testing.assert_close(behind[:, k:], alone)
