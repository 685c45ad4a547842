"""A step generated ahead, in a thread of its own: generated while an earlier one trains, then waiting for its turn.

A checkpoint may have kept what such a step had generated (`waiting`). It is then planned again, which takes no time, and its
rows are handed to it as if they had just been made.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from workbench.parallel import processes
from workbench.pipeline import States, advance
from workbench.stages import BaseWorld, Branch, LossFn, Overlapping, Prune
from workbench.types import Advantage, Plan, Rollouts, Step
from workbench.worlds.overlap.planned_by import PlannedBy
from workbench.worlds.overlap.waiting import Kept, mark_of

T = TypeVar("T")


class _Abandoned(BaseException):
    """Ends the thread of a step that will not be trained."""


class PlannedOtherwise(ValueError):
    """A step that a checkpoint kept is not planned as it was."""


class _StepWorld(BaseWorld):
    """The world of one step: samples with the weights that the sampler took over last, and waits for its turn before it
    trains. kept: the step was generated before, and is given the same rows again."""

    def __init__(self, world: Overlapping, ahead: Ahead, kept: Kept | None = None) -> None:
        self._world, self._ahead, self._kept = world, ahead, kept
        self._sampler = world.twin()
        self.pool, self.offers, self.version = world.pool, world.offers, ahead.version
        self.rounds: list[tuple[Plan, Rollouts]] = []
        if kept is not None:
            self._sampler.enter(kept.account)

    def sample(self, plan: Plan, branch: Branch | None = None, prune: Prune | None = None) -> Rollouts:
        """What the plan asks for."""
        rows = self._generate(plan, branch, prune) if self._kept is None else self._recall(plan, self._kept)
        self.rounds.append((plan, rows))
        return rows

    def _recall(self, plan: Plan, kept: Kept) -> Rollouts:
        """The rows that the plan was given before."""
        k = len(self.rounds)
        if k == len(kept.rounds) or kept.rounds[k][0] != mark_of(plan):
            raise PlannedOtherwise(f"round {k} of step {plan.step} asks for something else than it did")
        rows = kept.rounds[k][1]
        self._sampler.recall(plan, rows)
        return rows

    def account(self) -> Mapping[str, object]:
        """What sampling took."""
        return self._sampler.account()

    def _generate(self, plan: Plan, branch: Branch | None, prune: Prune | None) -> Rollouts:
        rows = self._sampler.sample(plan, branch, prune)
        # the trainer may have gone on since; what was resumed keeps the versions it had
        rows = rows.with_(version=np.minimum(rows.version, self.version))
        if (tokens := rows.extra.get("token_version")) is None:
            return rows
        known = tokens._replace(values=np.minimum(tokens.values, self.version))
        return rows.with_(extra={**rows.extra, "token_version": known})

    def score(self, rollouts: Rollouts, needs: frozenset[str]) -> Rollouts:
        """Called once all is generated: the turn to train begins here."""
        if self._kept is not None and len(self.rounds) < len(self._kept.rounds):
            raise PlannedOtherwise(
                f"step {self._ahead.step} asks for {len(self.rounds)} rounds, not {len(self._kept.rounds)}"
            )
        self._ahead.park()
        self._world.adopt(self._sampler)
        return self._world.score(rollouts, needs)

    def update(
        self, rollouts: Rollouts, advantage: Advantage, loss: LossFn, penalties: list[LossFn]
    ) -> Mapping[str, float | np.ndarray | str]:
        """The update of the world."""
        return self._world.update(rollouts, advantage, loss, penalties)

    def broadcast(self, value: T) -> T:
        """Through the group of the step's thread."""
        return self._world.broadcast(value)


class Ahead:
    """One step in a thread of its own, which waits between generation and training. group: the process group of its
    collectives until it trains. kept: it was generated before, see `_StepWorld`."""

    def __init__(
        self,
        planned_by: PlannedBy,
        states: States,
        world: Overlapping,
        step: int,
        seed: int,
        folded_through: int,
        group: Any = None,
        kept: Kept | None = None,
    ) -> None:
        self.step, self.folded_through = step, folded_through
        self.version = world.version if kept is None else kept.version
        self._world = world
        self._parked, self._turn = threading.Event(), threading.Event()
        self._done: Step | None = None
        self._error: BaseException | None = None
        self._abandoned, self._waited = False, 0.0
        self._step_world = _StepWorld(world, self, kept)
        card = torch.cuda.current_device() if torch.cuda.is_initialized() else None

        def work() -> None:
            try:
                if card is not None:  # a new thread begins at the first one
                    torch.cuda.set_device(card)
                processes.use_group(group)
                _, self._done = advance(
                    planned_by.pipeline,
                    states,
                    self._step_world,
                    planned_by.budget,
                    step=step,
                    seed=seed,
                    available=planned_by.available,
                    prompt_settings=planned_by.prompt_settings,
                )
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
        processes.use_group(None)

    def generated(self) -> None:
        """Wait until all is generated; raises what broke it."""
        self._parked.wait()
        if self._error is not None:
            raise self._error

    def kept(self, mark: str) -> Kept:
        """A step that waits, for a checkpoint."""
        rounds = [(mark_of(plan), rows) for plan, rows in self._step_world.rounds]
        return Kept(self.step, self.folded_through, self.version, mark, rounds, self._step_world.account())

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

    def abandon(self, within: float | None = None) -> None:
        """End the thread without training; what it resumed can be resumed again. within: seconds to wait for it at most."""
        self._abandoned = True
        self._turn.set()
        self._thread.join(within)
        if self._done is None:
            self._world.give_up(self.step)
