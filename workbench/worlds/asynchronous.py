"""Generation and training at the same time, with a bounded staleness that does not depend on who is faster.

`staleness` steps wait, generated, while the oldest of them is trained and the next one is generated; then both sides
meet, the sampler takes over the weights, and the next pair begins. So rollouts of step t come from the policy after
step t - 1 - staleness, always: the same seed gives the same run however the machine is loaded. AReaL (arXiv 2505.24298)
starts samples as soon as its capacity allows, and a response may change weights in its middle; here each response has
one version, as in DORA (arXiv 2509.18883), and the price is that the faster side waits for the slower one.

A step decides with what was learned until it was planned (`plan.folded_through`), and its estimate uses the same state;
`observe` folds finished steps in order. Behaviour log-probabilities are the sampler's at its version; what an objective
needs of the trainer (`proximal`, `current`) is computed when the step's turn to train comes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from workbench.pipeline import Pipeline, States, advance
from workbench.types import Budget, Plan, Rollouts, Step
from workbench.worlds.engines.transformers import TransformersEngine


class _Abandoned(BaseException):
    """Ends the thread of a step that will not be trained."""


class _Half:
    """A world for one step: samples from what the sampler holds, and waits for its turn before it trains."""

    def __init__(self, world: Any, ahead: _Ahead) -> None:
        self._world, self._sampler, self._ahead = world, copy(world), ahead
        self.version = world.version

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def sample(self, plan: Plan, *hooks: Any) -> Rollouts:
        """What the plan asks for, from the version that the sampler took over last."""
        made = self._sampler.sample(plan, *hooks)
        # the trainer may have gone on since; what was resumed keeps the versions it had
        done = made.with_(version=np.minimum(made.version, self.version))
        tokens = made.extra.get("token_version")
        if tokens is None:
            return done
        known = tokens._replace(values=np.minimum(tokens.values, self.version))
        return done.with_(extra={**made.extra, "token_version": known})

    def score(self, rollouts: Rollouts, needs: frozenset[str]) -> Rollouts:
        """Called once all is generated: the turn to train begins here."""
        self._ahead.park()
        return self._world.score(rollouts, needs)


class _Ahead:
    """One step in a thread of its own, which stands still between generation and training."""

    def __init__(self, pipeline: Pipeline, states: States, world: Any, budget: Budget, step: int, seed: int) -> None:
        self.step, self.folded_through, self.version = step, step - 1, world.version
        self._parked, self._turn = threading.Event(), threading.Event()
        self._done: Step | None = None
        self._error: BaseException | None = None
        self._abandoned, self._waited = False, 0.0
        half = _Half(world, self)

        def work() -> None:
            try:
                _, self._done = advance(pipeline, states, half, budget, step=step, seed=seed)  # type: ignore[arg-type]
            except BaseException as error:
                self._error = error
            finally:
                self._parked.set()

        self._thread = threading.Thread(target=work, name=f"step {step}", daemon=True)
        self._thread.start()

    def park(self) -> None:
        """From the step's own thread: all is generated; wait for the turn to train."""
        began = time.perf_counter()
        self._parked.set()
        self._turn.wait()
        self._waited = time.perf_counter() - began
        if self._abandoned:
            raise _Abandoned

    def generated(self) -> None:
        """Wait until all is generated; raises what broke it."""
        self._parked.wait()
        if self._error is not None:
            raise self._error

    def train(self) -> None:
        """Give the step its turn, without waiting for its end."""
        self._turn.set()

    def finished(self) -> Step:
        """Wait for the end; seconds spent waiting for the turn stand under "wait"."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        done = self._done
        assert done is not None
        seconds = {**done.seconds, "score": done.seconds["score"] - self._waited, "wait": self._waited}
        plan = replace(done.plan, folded_through=self.folded_through)
        return replace(done, seconds=seconds, plan=plan)

    def abandon(self) -> None:
        """End the thread without training."""
        self._abandoned = True
        self._turn.set()
        self._thread.join()


class _Held:
    """A live world's sampler for the time of the run: it has weights of its own, and takes others only when told."""

    def __init__(self, world: Any) -> None:
        self._world, self._engine = world, getattr(world, "engine", None)
        if self._engine is None:
            return
        engine = self._engine
        if isinstance(engine, TransformersEngine) and engine.copy_of is None:
            twin = deepcopy(engine.model).eval().requires_grad_(False)
            engine = TransformersEngine(twin, copy_of=engine.model)
            engine.sync()
        self._sync = engine.sync
        engine.sync = lambda: None  # the update must not change weights under a running generation
        world.engine = engine

    def take_over(self) -> None:
        """Let the sampler have the trainer's weights; nobody may be generating."""
        if self._engine is not None:
            self._sync()

    def release(self) -> None:
        """Give the world its own sampler back, up to date."""
        if self._engine is not None:
            del self._world.engine.sync
            self._world.engine = self._engine
            self._engine.sync()


def run_async(
    pipeline: Pipeline,
    world: Any,
    budget: Budget,
    *,
    steps: int,
    staleness: int = 1,
    seed: int = 0,
    start: int = 1,
    states: States | None = None,
) -> Iterator[tuple[States, Step]]:
    """`pipeline.run` with generation of a step beside the training of an earlier one: (states after, finished step).

    staleness: updates between the policy that generated a step and the one that trains on it, at most (fewer in the
    first steps, and where an update was skipped); 0 is the plain loop, bit for bit, and 1 is all that speed needs, the
    sum of generation and training becomes their maximum. `step.update["version_lag"]` is the largest lag of a step. A
    live world whose sampler shares the trained weights gets a copy of them for the time of the run.
    """
    if staleness < 0:
        raise ValueError(f"staleness={staleness}; a policy cannot be trained on rollouts of its future")
    pipeline.check(world)
    states = pipeline.init(world.pool) if states is None else states
    waiting: deque[_Ahead] = deque()
    folded, last = start - 1, start + steps - 1
    held = _Held(world)
    training: _Ahead | None = None
    try:
        for step in range(start, last + staleness + 1):
            due = staleness > 0 and (len(waiting) >= staleness or step > last)
            training = waiting.popleft() if due and waiting else None
            fresh = None
            if step <= last:
                held.take_over()
                fresh = _Ahead(pipeline, states, world, budget, step, seed)
                fresh.folded_through = folded
                waiting.append(fresh)
            before = world.version
            if training is not None:
                training.train()
            if fresh is not None:
                fresh.generated()
            if staleness == 0:
                training = waiting.popleft()
                training.train()
            if training is None:
                continue
            done = training.finished()
            done = replace(done, update={**done.update, "version_lag": float(before - training.version)})
            states, folded = pipeline.observe(states, done), done.step
            yield states, done
    finally:
        for ahead in (*filter(None, [training]), *waiting):  # one that trains is finished, the others are not trained
            ahead.abandon()
        held.release()
