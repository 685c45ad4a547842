"""One of several processes that share an optimiser step. Arguments: rank, ranks, rendezvous file, output, "shard" where
weights are divided between them, "world" for steps of a whole world. Over gloo on processors, over NCCL where every process has a GPU.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
import torch.distributed as dist

from tests.timing import patience
from tests.worlds.conftest import ToyTask, pool_of, toy_model, toy_tokenizer
from tests.worlds.test_policy import advantage, lines, surrogate
from workbench.pipeline import Pipeline, run
from workbench.stages import Checkpoint, Prune
from workbench.types import Budget, Cut, Loss, Plan
from workbench.worlds.live.world import LiveWorld
from workbench.worlds.training.fsdp import whole
from workbench.worlds.training.policy import Policy


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
    several = Policy(toy_model().to(device), budget=12, shard=shard, lr=1e-2, epochs=2, minibatches=2)
    told = several.update(lines(), advantage(), surrogate())
    names = ("loss", "tokens", "kl", "grad_norm", "reference_kl")
    found = {
        "gradient": torch.stack(grads[:2]),
        "scalars": torch.tensor([[d[n] for n in names] for d in done], dtype=torch.float64),
        "rows": torch.stack([torch.from_numpy(d["loss_per_rollout"]) for d in done]),
        "weights": torch.cat([w.flatten() for w in weights]),
        "several": torch.cat([whole(p.detach()).flatten() for p in several.parameters]),
        "before": torch.from_numpy(told["logp_per_token"]).nan_to_num(),
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


def lived(shard: bool = False, device: str = "cpu", folder: Path | None = None) -> dict:
    """Five steps of a toy world, two of them with hints, an evaluation and a checkpoint: what was generated, and how it was learned from."""
    torch.set_num_threads(1)
    pool = pool_of(range(2, 14))
    hints = {"strategies": np.full(12, "1\n22", object), "reference": np.full(12, "a b 3 d", object)}
    task = ToyTask(replace(pool, extra=hints), pool_of(range(50, 53)))
    world = LiveWorld(
        task, (toy_model(), toy_tokenizer()), seed=3, lr=1e-2, device=device, sampling="float32", precision="float32",
        engine="transformers", update={"shard": shard}, budget=60,
    )  # fmt: skip
    pipeline = Pipeline.parse("grpo")
    steps = [s for _, s in run(pipeline, world, Budget(prompts=3, rollouts=12), steps=3, seed=3)]
    for text in ("grpo + nudgerl", "grpo + adhint"):  # rows that are read behind other prompts, or with their hints
        start = len(steps) + 1
        hinted = run(Pipeline.parse(text), world, Budget(prompts=3, rollouts=24), steps=1, start=start, seed=3)
        steps += [s for _, s in hinted]
    every = Checkpoint(2)

    def cut(frontier) -> Cut:
        out = frontier.branch % 2 == 1
        return Cut((~out).astype(int), np.where(out, "odd", ""), np.ones(len(out)))

    grown = world.sample(Plan(np.array([0, 4]), np.array([4, 3]), step=9), None, Prune(cut, every))
    evaluated = world.evaluate(3)
    if folder is not None:
        world.save(folder / "world")
    return {
        "id": [s.rollouts.id.tolist() for s in steps],
        "tokens": [s.rollouts.tokens.values.tolist() for s in steps] + [evaluated.tokens.values.tolist()],
        "grown": (grown.id.tolist(), grown.tokens.values.tolist(), grown.finish.tolist()),
        "reward": [s.rollouts.reward.tolist() for s in steps] + [evaluated.reward.tolist()],
        "prefilled": [s.update["prefilled_tokens"] for s in steps],
        "loss": [s.update["loss"] for s in steps],
        "logp_gap": [s.update["logp_gap"] for s in steps],
        "files": sorted(p.name for p in folder.iterdir()) if folder is not None else [],
    }


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
        timeout=timedelta(seconds=patience(60)),
        device_id=torch.device("cuda", rank) if gpu else None,
    )
    saved, shard = Path(sys.argv[3] + "-saved"), "shard" in sys.argv[5:]
    saved.mkdir(exist_ok=True)
    found = (lived if "world" in sys.argv[5:] else facts)(
        shard, f"cuda:{rank}" if gpu else "cpu", saved if shard else None
    )
    torch.save(found, sys.argv[4])
    dist.destroy_process_group()
