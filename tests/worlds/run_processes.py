"""One of several processes that make runs together, with the environment that torchrun gives. Arguments: what to do, and a
folder; what came of it is one JSON line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np

from workbench import Budget, Experiment, Session
from workbench.methods.grpo import Grpo
from workbench.methods.uniform import Uniform
from workbench.parallel import processes
from workbench.pipeline import Pipeline
from workbench.runs.run import Run

RANK = int(os.environ.get("RANK", "0"))
TINY = Experiment(
    model="tiny",
    pipeline="grpo + mopps",
    budget=Budget(prompts=4, rollouts=16),
    steps=6,
    eval_every=3,
    eval_samples=1,
    checkpoint_every=2,
    world={"threads": 1, "max_tokens": 6, "device": os.environ.get("DEVICE", "cpu")},
)
SIM = Experiment(
    model="sim",
    steps=4,
    eval_every=0,
    checkpoint_every=0,
    budget=Budget(prompts=4, rollouts=16),
    world={"n_prompts": 20},
)


def killed(folder: Path) -> None:
    """A run whose processes end in the middle of its fourth step, without a word."""
    for step in TINY.with_(store=str(folder)).run():
        if step.step == 3:
            os._exit(9)


def steered(folder: Path) -> dict:
    """A run that others steer, and what is set in this process at its end."""
    with processes.joined(), Run(TINY.with_(store=str(folder), steps=10_000, eval_every=0, checkpoint_every=0)) as run:
        while run.ready():
            run.step()
            time.sleep(0.02)
        policy = run.world.policy
        weights = b"".join(p.detach().numpy().tobytes() for p in policy.parameters)
        return {
            "steps": run.n_steps,
            "budget": [run.state.budget.prompts, run.state.budget.rollouts],
            "temperature": [run.world.temperature, policy.temperature],
            "lr": policy.lr,
            "pipeline": run.pipeline.text,
            "pinned": run.state.prompt_settings.pinned.tolist(),
            "boost": run.state.prompt_settings.boost.tolist(),
            "dropped": np.flatnonzero(~run.state.available).tolist(),
            "known": {i: outcome.kind for i, outcome in run.queue.outcomes.items()},
            "weights": sha256(weights).hexdigest(),
        }


def overlapped(folder: Path) -> dict:
    """A run whose steps are generated beside the training of the one before, then a session that one process stops."""
    steps = list(TINY.with_(store=str(folder), staleness=1, steps=4, eval_every=0, checkpoint_every=0).run())
    session = Session(SIM.with_(store=str(folder), steps=100_000)).start()
    session.wait(steps=2)
    if int(os.environ.get("WORLD_SIZE", "1")) - 1 == RANK:
        session.stop()
    session.wait()
    return {
        "id": [s.rollouts.id.tolist() for s in steps],
        "text": [s.rollouts.text.tolist() for s in steps],
        "version": [s.rollouts.version.tolist() for s in steps],
        "loss": [s.update["loss"] for s in steps],
        "session": session.status,
    }


def left(folder: Path) -> list:
    """Runs that are ended from one process or the other: what each was told."""

    def tried(name: str, work: Callable[[], object]) -> list[str]:
        try:
            work()
        except BaseException as error:
            return [name, type(error).__name__, " ".join([str(error), *getattr(error, "__notes__", [])])]
        return [name, "", ""]

    def broken(rank: int, error: BaseException) -> None:
        with processes.joined(), Run(SIM.with_(store=str(folder), name=f"{type(error).__name__}{rank}")) as run:
            while run.ready():
                if run.step().step == 2 and rank == RANK:
                    raise error

    def verified(name: str, staleness: int = 0) -> None:
        experiment = TINY.with_(store=str(folder), name=name, eval_every=0, staleness=staleness)
        with processes.joined(), Run(experiment) as run:
            task, score = type(run.world.task), type(run.world.task).score
            run.step()
            task.score = _raise if RANK else score
            try:
                run.step()
            finally:
                task.score = score

    def planned() -> None:
        class Own(Uniform):
            def select(self, state, draft, rng):
                return draft.candidates()[RANK : RANK + draft.wanted]

        with processes.joined(), Run(TINY.with_(store=str(folder), name="planned", eval_every=0)) as run:
            run.state.pipeline = Pipeline(Grpo(), Own())
            run.state.states = run.pipeline.init(run.world.pool)
            run.step()

    def gone() -> None:
        for step in SIM.with_(store=str(folder), name="gone").run():
            if step.step == 2 and RANK == 0:
                break

    return [
        tried("alone", lambda: Run(SIM.with_(store=str(folder)))),
        tried("second", lambda: broken(1, ValueError("enough"))),
        tried("first", lambda: broken(0, ValueError("enough"))),
        tried("interrupted", lambda: broken(1, KeyboardInterrupt())),
        tried("verified", lambda: verified("verified")),
        tried("ahead", lambda: verified("ahead", staleness=1)),
        tried("planned", planned),
        tried("gone", gone),
    ]


def _raise(*args: object) -> None:
    raise LookupError("no verdict")


def lost(folder: Path) -> None:
    """A run of which the second process is killed."""
    for step in SIM.with_(store=str(folder)).run():
        if step.step == 2 and RANK == 1:
            os.kill(os.getpid(), 9)


if __name__ == "__main__":
    found = globals()[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps(found), flush=True)
