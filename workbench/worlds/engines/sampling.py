"""Sampling of a token from logits by inverse CDF: where the cumulative probability passes a draw, on every engine."""

from __future__ import annotations

import torch

BLOCK = 256
"""Tokens whose probabilities are summed together before the exact place inside them is looked for."""


def choose(
    logits: torch.Tensor, draw: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(B,) token, its log-probability and the entropy in nats, from logits (B, V) and draws (B,) in (0, 1).

    The token is where the cumulative probability, in order of token id, passes the draw; temperature 0 takes the
    likeliest.
    """
    logp = torch.log_softmax(logits.float() / (temperature or 1.0), -1)
    p = logp.exp()
    token = logp.argmax(-1) if temperature == 0 else invert(p, draw)
    chosen = logp.gather(1, token[:, None])[:, 0]
    # 0 * -inf is NaN where a token is impossible
    return token, chosen, -p.mul_(logp.clamp_(min=-1e4)).sum(-1)


def invert(p: torch.Tensor, draw: torch.Tensor) -> torch.Tensor:
    """(B,) int64: where the cumulative sum of p (B, V) passes draw (B,) times its total; never where p is 0.

    First over sums of blocks, then inside one: the sums are float64, and no row of V of them is ever made.
    """
    size = min(BLOCK, p.shape[1])
    if p.shape[1] % size:
        p = torch.nn.functional.pad(p, (0, -p.shape[1] % size))
    blocks = p.view(len(p), -1, size)
    mass = blocks.sum(-1).double()
    total = mass.cumsum(-1)
    at = draw * total[:, -1]
    block = torch.searchsorted(total, at[:, None], right=True).clamp_(max=mass.shape[1] - 1)
    inside = ((at - (total - mass).gather(1, block)[:, 0]) / mass.gather(1, block)[:, 0]).clamp_(0, 1 - 2**-40)
    cdf = blocks[torch.arange(len(p), device=p.device), block[:, 0]].double().cumsum(-1)
    offset = torch.searchsorted(cdf, (inside * cdf[:, -1])[:, None], right=True)
    return (block * size + offset)[:, 0]
