"""One of several processes that share an optimiser step. Arguments: rank, ranks, rendezvous file, output, and "shard" where
weights are divided between them. Over gloo on processors, over NCCL where every process has a GPU.
"""

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
from workbench.worlds.sharding import whole


def facts(shard: bool = False, device: str = "cpu", folder: Path | None = None) -> dict:
    """Two steps, then one whose loss is not finite in one row, what came of them, and one more after saving and loading."""
    torch.set_num_threads(1)
    options = {"lr": 1e-2, "clip": 1e9, "reference": 0.1}
    # micro-batches of a dozen tokens: five of them, so that two processes have different numbers
    policy = Policy(toy_model().to(device), budget=12, row_norms=not shard, shard=shard, **options)
    grads = []
    policy.optimizer.register_step_pre_hook(
        lambda *_: grads.append(torch.cat([whole(p.grad).flatten() for p in policy.parameters]))
    )

    def poisoned(batch):
        return Loss(torch.where((batch.row == 2)[:, None], torch.nan, batch.logp))

    def step(policy: Policy) -> dict:
        return policy.update(lines(), advantage(), surrogate(), [lambda b: Loss(-0.1 * b.entropy)])

    done = [step(policy) for _ in range(2)]
    bad = policy.update(lines(), advantage(), poisoned)
    weights = [whole(p.detach()).clone() for p in policy.parameters]
    logp = policy.logp(lines()).values
    if folder is not None:
        policy.save(folder)
        policy = Policy(toy_model(seed=5).to(device), budget=12, shard=shard, **{**options, "reference": 0.0})
        policy.load(folder)
    resumed = policy.logp(lines()).values
    version = policy.version
    again = policy.update(lines(), advantage(), surrogate())
    names = ("loss", "tokens", "kl", "grad_norm", "reference_kl")
    found = {
        "gradient": torch.stack(grads[:2]),
        "scalars": torch.tensor([[d[n] for n in names] for d in done], dtype=torch.float64),
        "rows": torch.stack([torch.from_numpy(d["loss_per_rollout"]) for d in done]),
        "weights": torch.cat([w.flatten() for w in weights]),
        "logp": torch.stack([torch.from_numpy(logp), torch.from_numpy(resumed)]),
        "skipped": bad["skipped"],
        "version": version,
        "after": again["kl"],
        "held": sum(p.to_local().numel() if shard else p.numel() for p in policy.parameters),
        "moments": sum(
            (v.to_local() if hasattr(v, "to_local") else v).numel()
            for s in policy.optimizer.state.values()
            for v in s.values()
        ),
    }
    if not shard:
        found["norms"] = torch.stack([torch.from_numpy(d["grad_norm_per_rollout"]) for d in done])
    return {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in found.items()}


if __name__ == "__main__":
    rank, ranks = int(sys.argv[1]), int(sys.argv[2])
    gpu = "cuda" in sys.argv[5:]
    if gpu:
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if gpu else "gloo",
        init_method=f"file://{sys.argv[3]}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=60),
        device_id=torch.device("cuda", rank) if gpu else None,
    )
    saved = Path(sys.argv[3] + "-saved")
    saved.mkdir(exist_ok=True)
    torch.save(
        facts("shard" in sys.argv[5:], f"cuda:{rank}" if gpu else "cpu", saved if "shard" in sys.argv[5:] else None),
        sys.argv[4],
    )
    dist.destroy_process_group()
