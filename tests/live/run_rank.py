"""One of several processes that share an optimiser step over gloo. Arguments: rank, ranks, rendezvous file, output."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.distributed as dist

from tests.live.conftest import toy_model
from tests.live.test_policy import advantage, lines, surrogate
from workbench.types import Loss
from workbench.worlds.policy import Policy


def facts() -> dict:
    """Two steps, then one whose loss is not finite in one row, and what came of them."""
    torch.set_num_threads(1)
    policy = Policy(toy_model(), lr=1e-2, budget=12, clip=1e9, row_norms=True)
    grads = []
    policy.optimizer.register_step_pre_hook(
        lambda *_: grads.append(torch.cat([p.grad.flatten() for p in policy.parameters]))
    )

    def poisoned(batch):
        return Loss(torch.where((batch.row == 2)[:, None], torch.nan, batch.logp))

    done = [policy.update(lines(), advantage(), surrogate(), [lambda b: Loss(-0.1 * b.entropy)]) for _ in range(2)]
    bad = policy.update(lines(), advantage(), poisoned)
    names = ("loss", "tokens", "kl", "grad_norm")
    return {
        "gradient": torch.stack(grads),
        "scalars": torch.tensor([[d[n] for n in names] for d in done], dtype=torch.float64),
        "rows": torch.stack([torch.from_numpy(d["loss_per_rollout"]) for d in done]),
        "norms": torch.stack([torch.from_numpy(d["grad_norm_per_rollout"]) for d in done]),
        "weights": torch.cat([p.detach().flatten() for p in policy.parameters]),
        "skipped": bad["skipped"],
        "version": policy.version,
    }


if __name__ == "__main__":
    rank, ranks = int(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group(
        "gloo", init_method=f"file://{sys.argv[3]}", rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    torch.save(facts(), sys.argv[4])
    dist.destroy_process_group()
