"""A run of the tiny model as a process of its own, one JSON line per step: what it asked, drew and learned.

Arguments: store folder, steps, and the run to resume. Killed from outside by the test.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256

from workbench import Budget, Experiment
from workbench.runs.run import Run

EXPERIMENT = Experiment(
    model="tiny",
    pipeline="grpo + mopps",
    budget=Budget(prompts=4, rollouts=16),
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
            facts = {
                "step": step.step,
                "prompts": step.prompts.tolist(),
                "n": step.plan.n.tolist(),
                "text": step.rollouts.text.tolist(),
                "loss": float(step.update["loss"]).hex(),
                "norm": float(step.update["grad_norm"]).hex(),
                "rows": sha256(step.update["loss_per_rollout"].tobytes()).hexdigest(),
            }
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:4])
