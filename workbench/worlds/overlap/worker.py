"""One step in a thread of its own: generated while an earlier one trains, then standing still until its turn.

A checkpoint may have kept what such a step had generated (`waiting`). It is then planned again, which takes no time, and its
rows are handed to it as if they had just been made.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.parallel import processes
from workbench.pipeline import States, advance
from workbench.types import Plan, Rollouts, Step
from workbench.worlds.overlap.waiting import Kept, mark_of

if TYPE_CHECKING:
    from workbench.worlds.overlap.overlap import Settings


class _Abandoned(BaseException):
    """Ends the thread of a step that will not be trained."""


class Otherwise(ValueError):
    """A step that a checkpoint kept is not planned as it was."""


class _Half:
    """A world for one step: samples from what the sampler holds, and waits for its turn before it trains. kept: the step
    was generated before, and is given the same rows again."""

    def __init__(self, world: Any, ahead: Ahead, kept: Kept | None = None) -> None:
        self._world, self._ahead, self._kept = world, ahead, kept
        self._sampler = world.twin() if hasattr(world, "twin") else copy(world)
        self.version = ahead.version
        self.rounds: list[tuple[Plan, Rollouts]] = []
        if kept is not None and hasattr(self._sampler, "enter"):
            self._sampler.enter(kept.account)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def sample(self, plan: Plan, *hooks: Any) -> Rollouts:
        """What the plan asks for, from the version that the sampler took over last."""
        done = self._made(plan, *hooks) if self._kept is None else self._again(plan, self._kept)
        self.rounds.append((plan, done))
        return done

    def _again(self, plan: Plan, kept: Kept) -> Rollouts:
        """The rows that the plan was given before."""
        k = len(self.rounds)
        if k == len(kept.rounds) or kept.rounds[k][0] != mark_of(plan):
            raise Otherwise(f"round {k} of step {plan.step} asks for something else than it did")
        rows = kept.rounds[k][1]
        if hasattr(self._sampler, "recall"):
            self._sampler.recall(plan, rows)
        return rows

    def account(self) -> Mapping[str, Any]:
        """What sampling took, as the world tells it."""
        return self._sampler.account() if hasattr(self._sampler, "account") else {}

    def _made(self, plan: Plan, *hooks: Any) -> Rollouts:
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
        if self._kept is not None and len(self.rounds) < len(self._kept.rounds):
            raise Otherwise(f"step {self._ahead.step} asks for {len(self.rounds)} rounds, not {len(self._kept.rounds)}")
        self._ahead.park()
        if hasattr(self._world, "adopt"):
            self._world.adopt(self._sampler)
        return self._world.score(rollouts, needs)


class Ahead:
    """One step in a thread of its own, which stands still between generation and training. aside: what its process tells
    others through until it trains. kept: it was generated before, see `_Half`."""

    def __init__(
        self,
        settings: Settings,
        states: States,
        world: Any,
        step: int,
        seed: int,
        folded_through: int,
        aside: Any = None,
        kept: Kept | None = None,
    ) -> None:
        self.step, self.folded_through = step, folded_through
        self.version = world.version if kept is None else kept.version
        self._world = world
        self._parked, self._turn = threading.Event(), threading.Event()
        self._done: Step | None = None
        self._error: BaseException | None = None
        self._abandoned, self._waited = False, 0.0
        half = self._half = _Half(world, self, kept)
        pipeline, budget, available, prompt_settings = settings[:4]
        card = torch.cuda.current_device() if torch.cuda.is_initialized() else None

        def work() -> None:
            try:
                if card is not None:  # a new thread begins at the first one
                    torch.cuda.set_device(card)
                processes.use_group(aside)
                _, self._done = advance(
                    pipeline, states, half, budget, step=step, seed=seed, available=available, prompt_settings=prompt_settings  # type: ignore[arg-type]
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
        processes.use_group(None)

    def generated(self) -> None:
        """Wait until all is generated; raises what broke it."""
        self._parked.wait()
        if self._error is not None:
            raise self._error

    def kept(self, planned: str) -> Kept:
        """A step that waits, for a checkpoint."""
        rounds = [(mark_of(plan), rows) for plan, rows in self._half.rounds]
        return Kept(self.step, self.folded_through, self.version, planned, rounds, self._half.account())

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
        if self._done is None and hasattr(self._world, "give_up"):
            self._world.give_up(self.step)
