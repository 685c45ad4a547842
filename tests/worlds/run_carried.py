"""A run that carries rollouts over, as a process of its own, one JSON line per step. Arguments as `run_tiny`'s."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.worlds.carry import Carry
from workbench import Budget, Experiment
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, catalog
from workbench.runs.run import Run
from workbench.types import Resume

catalog.add("tests.worlds.carry")  # a resumed run looks up by name what it was started with

EXPERIMENT = Experiment(
    model="tiny",
    pipeline=Pipeline(Grpo(), Carry(after=2)),
    budget=Budget(prompts=3, rollouts=12),
    eval_every=0,
    checkpoint_every=2,
    world={"threads": 1, "max_tokens": 8},
)


def main(store: str, steps: int, resume: str | None = None) -> None:
    """Run and tell."""
    with Run(EXPERIMENT.with_(store=store, steps=steps), resume=resume) as run:
        print(json.dumps({"run": run.run_id, "from": run.n_steps}), flush=True)
        while not run.done:
            step = run.step()
            extra = step.rollouts.extra.get("token_version")
            facts = {
                "step": step.step,
                "starts": [s.rollout for s in step.plan.start if isinstance(s, Resume)],
                "resumed": sum(isinstance(s, Resume) for s in step.plan.start),
                "carried": int((step.fate == "carried").sum()),
                "id": step.rollouts.id.tolist(),
                "text": step.rollouts.text.tolist(),
                "versions": None if extra is None else extra.values.tolist(),
                "loss": float(step.update["loss"]).hex(),
            }
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:4])
