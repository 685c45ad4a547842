"""Generation and training at the same time, with a bounded staleness that does not depend on who is faster.

`staleness` steps wait, generated, while the oldest of them is trained and the next one is generated; then both sides
meet, the sampler takes over the weights, and the next pair begins. So rollouts of step t come from the policy after
step t - 1 - staleness, always: the same seed gives the same run however the machine is loaded. AReaL (arXiv 2505.24298)
starts samples as soon as its capacity allows, and a response may change weights in its middle; here each response has
one version, as in DORA (arXiv 2509.18883), and the price is that the faster side waits for the slower one.

A step decides with what was learned until it was planned (`plan.folded_through`), and its estimate uses the same state;
`observe` folds finished steps in order. Behaviour log-probabilities are the sampler's at its version; what an objective
needs of the trainer (`proximal`, `current`) is computed when the step's turn to train comes.

What waits was planned by the pipeline, budget and prompts of its time. Where one of them is changed, the waiting steps are
given up and made anew, so that a change acts at the very step that it is recorded for; likewise a resumed run begins with
nothing waiting. Both cost generation, not soundness.

Of several processes each does all this, and they tell each other through two groups: one for what is generated ahead, whose
thread changes to the common one when its turn to train comes. At most one thread of a process generates and one trains, and
both sides of every process meet before the next pair begins, so the calls in a group come in the same order everywhere. What
goes through the first group are rows on the processor (gloo): no kernel of one group waits on a GPU for a kernel of the other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from workbench import processes
from workbench.pipeline import NO_WISH, Pipeline, States, Wishes, advance
from workbench.types import Budget, Plan, Rollouts, Step


class _Abandoned(BaseException):
    """Ends the thread of a step that will not be trained."""


class Settings(NamedTuple):
    """What a step is planned by, beside the states: pipeline, budget, which prompts are in, and what is wished of them."""

    pipeline: Pipeline
    budget: Budget
    available: np.ndarray | None = None
    wishes: Wishes = NO_WISH
    temperature: float | None = None

    def same(self, other: Settings) -> bool:
        """Whether a step planned by the other would be planned alike."""
        mine, theirs = (self.available, other.available)
        alike = mine is theirs or (mine is not None and theirs is not None and np.array_equal(mine, theirs))
        return alike and all(
            getattr(self, name) is getattr(other, name) for name in ("pipeline", "budget", "wishes")
        ) and self.temperature == other.temperature  # fmt: skip


class _Half:
    """A world for one step: samples from what the sampler holds, and waits for its turn before it trains."""

    def __init__(self, world: Any, ahead: _Ahead) -> None:
        self._world, self._ahead = world, ahead
        self._sampler = world.twin() if hasattr(world, "twin") else copy(world)
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
        if hasattr(self._world, "adopt"):
            self._world.adopt(self._sampler)
        return self._world.score(rollouts, needs)


class _Ahead:
    """One step in a thread of its own, which stands still between generation and training. aside: what its process tells
    others through until it trains."""

    def __init__(self, settings: Settings, states: States, world: Any, step: int, seed: int, aside: Any = None) -> None:
        self.step, self.folded_through, self.version = step, step - 1, world.version
        self._world = world
        self._parked, self._turn = threading.Event(), threading.Event()
        self._done: Step | None = None
        self._error: BaseException | None = None
        self._abandoned, self._waited = False, 0.0
        half = _Half(world, self)
        pipeline, budget, available, wishes, _ = settings
        card = torch.cuda.current_device() if torch.cuda.is_initialized() else None

        def work() -> None:
            try:
                if card is not None:  # a new thread begins at the first one
                    torch.cuda.set_device(card)
                processes.speak_in(aside)
                _, self._done = advance(
                    pipeline, states, half, budget, step=step, seed=seed, available=available, wishes=wishes  # type: ignore[arg-type]
                )  # fmt: skip
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
        processes.speak_in(None)

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
        """End the thread without training; what it resumed can be resumed again."""
        self._abandoned = True
        self._turn.set()
        self._thread.join()
        if self._done is None and hasattr(self._world, "give_up"):
            self._world.give_up(self.step)


class _Held:
    """A live world's sampler for the time of the run: it has weights of its own, and takes others only when told."""

    def __init__(self, world: Any) -> None:
        self._world, self._engine = world, getattr(world, "engine", None)
        if self._engine is None:
            return
        engine = self._engine.apart() if hasattr(self._engine, "apart") else self._engine
        self._sync = engine.sync
        self._quiet = [n for n in ("sync", "rest") if hasattr(engine, n)]
        for name in self._quiet:  # the update must not change weights under a running generation, nor put it to sleep
            setattr(engine, name, lambda: None)
        world.engine = engine

    def take_over(self) -> None:
        """Let the sampler have the trainer's weights; nobody may be generating."""
        if self._engine is not None:
            self._sync()

    def release(self) -> None:
        """Give the world its own sampler back, up to date."""
        if self._engine is not None:
            lent, self._world.engine = self._world.engine, self._engine
            for name in self._quiet:
                delattr(lent, name)
            if lent is not self._engine:
                lent.close()
            self._engine.sync()


def check_overlap(pipeline: Pipeline, staleness: int) -> None:
    """Raise ValueError where a method cannot plan a step before the earlier ones are finished."""
    alone = [m.name for m in pipeline.methods if not m.overlaps] if staleness > 0 else []
    if alone:
        raise ValueError(
            f"{', '.join(alone)} goes on with what the step before left, which a step that is generated ahead cannot know; "
            f"use staleness=0, not {staleness}"
        )


class Overlap:
    """`pipeline.advance` with the generation of later steps beside the training of each. Call it step after step.

    staleness: updates between the policy that generated a step and the one that trains on it, at most (fewer in the
    first steps, after a change, and where an update was skipped); 1 is all that speed needs, the sum of generation and
    training becomes their maximum. last: the step after which none is generated. `step.update["version_lag"]` is the
    lag of a step. A live world whose sampler shares the trained weights gets a copy of them until `close`.
    """

    def __init__(self, world: Any, staleness: int, last: Callable[[], int]) -> None:
        if staleness < 0:
            raise ValueError(f"staleness={staleness}; a policy cannot be trained on rollouts of its future")
        self.staleness, self._last = staleness, last
        self._aside = processes.group_aside() if staleness else None
        self._held = _Held(world)
        self._waiting: deque[_Ahead] = deque()
        self._training: _Ahead | None = None
        self._settings: Settings | None = None

    def __call__(
        self,
        pipeline: Pipeline,
        states: States,
        world: Any,
        budget: Budget,
        *,
        step: int,
        seed: int = 0,
        available: np.ndarray | None = None,
        wishes: Wishes = NO_WISH,
    ) -> tuple[States, Step]:
        """The finished step and the states after it, as `pipeline.advance`. Between two calls nothing is generated, and
        the sampler holds the newest weights."""
        check_overlap(pipeline, self.staleness)
        free = None if available is None else available.copy()
        settings = Settings(pipeline, budget, free, wishes, getattr(world, "temperature", None))
        if self._settings is None or not settings.same(self._settings):
            self._give_up()
            self._settings = settings
        done = None
        while done is None:
            done = self._pair(self._settings, states, world, step, seed)
        return pipeline.observe(states, done), done

    def _pair(self, settings: Settings, states: States, world: Any, step: int, seed: int) -> Step | None:
        """Generate the next step while the oldest waiting one is trained; None while too few wait for that."""
        waiting = self._waiting
        fresh, after = None, step + len(waiting)
        due = len(waiting) >= max(self.staleness, 1) or (waiting and after > self._last())
        self._training = waiting.popleft() if due and self.staleness else None
        if after <= self._last() or after == step:
            fresh = _Ahead(settings, states, world, after, seed, self._aside)
            fresh.folded_through = step - 1
            waiting.append(fresh)
        before = world.version
        if self._training is not None:
            self._training.train()
        if fresh is not None:
            fresh.generated()
        if self.staleness == 0:
            self._training = waiting.popleft()
            self._training.train()
        if self._training is None:
            return None
        done = self._training.finished()
        lag = float(before - self._training.version)
        self._training = None
        self._held.take_over()
        return replace(done, update={**done.update, "version_lag": lag})

    def _give_up(self) -> None:
        """End what waits or trains: one that trains is finished, the others are not trained."""
        for ahead in (*filter(None, [self._training]), *self._waiting):
            ahead.abandon()
        self._training = None
        self._waiting.clear()

    def close(self) -> None:
        """Give up what waits, and give the world its own sampler back."""
        self._give_up()
        self._held.release()


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

    staleness as `Overlap`'s; 0 is the plain loop, bit for bit."""
    pipeline.check(world)
    check_overlap(pipeline, staleness)
    states = pipeline.init(world.pool) if states is None else states
    overlap = Overlap(world, staleness, lambda: start + steps - 1)
    try:
        for step in range(start, start + steps):
            states, done = overlap(pipeline, states, world, budget, step=step, seed=seed)
            yield states, done
    finally:
        overlap.close()
