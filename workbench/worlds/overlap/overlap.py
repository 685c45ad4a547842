"""Asynchronous training: generation and training at the same time, with a bounded staleness.

`staleness` steps wait, generated, while the oldest of them is trained and the next one is generated; then both sides
meet, the sampler takes over the weights, and the next pair begins. So rollouts of step t come from the policy after
step t - 1 - staleness, always: the same seed gives the same run however the machine is loaded. AReaL (arXiv 2505.24298)
starts samples as soon as its capacity allows, and a response may change weights in its middle; here each response has
one version, as in DORA (arXiv 2509.18883), and the price is that the faster side waits for the slower one.

A step decides with what was learned until it was planned (`plan.folded_through`), and its estimate uses the same state;
`observe` folds finished steps in order. Behaviour log-probabilities are the sampler's at its version; what an objective
needs of the trainer (`proximal`, `current`) is computed when the step's turn to train comes.

What waits was planned by the pipeline, budget and prompts of its time. Where one of them is changed, the waiting steps are
given up and made anew, so that a change acts at the very step that it is recorded for: that costs generation, not
soundness. A checkpoint holds what waits (`waiting`), and a resumed run goes on with it.

Of several processes each does all this, and they exchange rows through two groups: one for what is generated ahead, whose
thread changes to the common one when its turn to train comes. At most one thread of a process generates and one trains, and
both sides of every process meet before the next pair begins, so the calls in a group come in the same order everywhere. What
goes through the first group are rows on the processor (gloo): no kernel of one group waits on a GPU for a kernel of the other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from workbench.parallel import processes
from workbench.pipeline import NO_PROMPT_SETTINGS, Pipeline, PromptSettings, States
from workbench.stages import Effect, Overlapping
from workbench.types import Budget, Step
from workbench.worlds.overlap import waiting
from workbench.worlds.overlap.planned_by import PlannedBy
from workbench.worlds.overlap.waiting import Kept
from workbench.worlds.overlap.worker import Ahead, PlannedOtherwise


def check_overlap(pipeline: Pipeline, staleness: int) -> None:
    """Raise ValueError where a method cannot plan a step before the earlier ones are finished."""
    alone = [m.name for m in pipeline.methods if Effect.PLANS_AFTER_STEP in m.effects] if staleness > 0 else []
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
    lag of a step. A live world whose sampler shares the trained weights gets a copy of them until `close`. kept: steps
    that waited when a checkpoint was made (`waiting.load`), and folded: the states that each was planned with, by
    `folded_through`; one that would be planned otherwise now is generated anew, and so are those after it.
    """

    def __init__(
        self,
        world: Overlapping,
        staleness: int,
        last: Callable[[], int],
        kept: Sequence[Kept] = (),
        folded: Mapping[int, States] = MappingProxyType({}),
    ) -> None:
        if staleness < 0:
            raise ValueError(f"staleness={staleness}; a policy cannot be trained on rollouts of its future")
        self.staleness, self._last = staleness, last
        self._group = processes.new_group() if staleness else None
        self._held = world.hold_sampler()
        self._waiting: deque[Ahead] = deque()
        self._training: Ahead | None = None
        self._planned_by: PlannedBy | None = None
        self._kept, self._folded = kept, folded

    def __call__(
        self,
        pipeline: Pipeline,
        states: States,
        world: Overlapping,
        budget: Budget,
        *,
        step: int,
        seed: int = 0,
        available: np.ndarray | None = None,
        prompt_settings: PromptSettings = NO_PROMPT_SETTINGS,
    ) -> tuple[States, Step]:
        """The finished step and the states after it, as `pipeline.advance`. Between two calls nothing is generated, and
        the sampler holds the newest weights."""
        check_overlap(pipeline, self.staleness)
        free = None if available is None else available.copy()
        planned_by = PlannedBy(pipeline, budget, free, prompt_settings, world.settings.get("temperature"))
        if self._planned_by is None or not planned_by.same(self._planned_by):
            self._give_up()
            self._planned_by = planned_by
            self._take_up(planned_by, world, step, seed)
        done = None
        while done is None:
            done = self._pair(self._planned_by, states, world, step, seed)
        return pipeline.observe(states, done), done

    def _pair(self, planned_by: PlannedBy, states: States, world: Overlapping, step: int, seed: int) -> Step | None:
        """Generate the next step while the oldest waiting one is trained; None while too few wait for that."""
        queue = self._waiting
        fresh, after = None, step + len(queue)
        due = len(queue) >= max(self.staleness, 1) or (queue and after > self._last())
        self._training = queue.popleft() if due and self.staleness else None
        if after <= self._last() or after == step:
            fresh = Ahead(planned_by, states, world, after, seed, step - 1, self._group)
            queue.append(fresh)
        before = world.version
        if self._training is not None:
            self._training.train()
        if fresh is not None:
            fresh.generated()
        if self.staleness == 0:
            self._training = queue.popleft()
            self._training.train()
        if self._training is None:
            return None
        done = self._training.finished()
        lag = float(before - self._training.version)
        self._training = None
        self._held.take_over()
        return replace(done, update={**done.update, "version_lag": lag})

    def _take_up(self, planned_by: PlannedBy, world: Overlapping, step: int, seed: int) -> None:
        """Let what a checkpoint kept wait again, as far as it is planned as it was."""
        kept, folded, self._kept, self._folded = self._kept, self._folded, (), {}
        mark = planned_by.mark(self.staleness)
        for k in kept:
            if k.planned != mark or k.step != step + len(self._waiting):
                return
            states = folded[k.folded_through]
            again = Ahead(planned_by, states, world, k.step, seed, k.folded_through, self._group, k)
            try:
                again.generated()
            except PlannedOtherwise:
                again.abandon()
                return
            self._waiting.append(again)

    def save(self, folder: Path) -> str:
        """Write what waits into a folder, between two calls or after `close`; "", or why some of it could not be kept."""
        return waiting.save(self._kept if self._planned_by is None else self._waits(), folder)

    def _waits(self) -> Sequence[Kept]:
        if self._planned_by is None or self._training is not None:
            return ()
        mark = self._planned_by.mark(self.staleness)
        return [ahead.kept(mark) for ahead in self._waiting]

    def _give_up(self, within: float | None = None) -> None:
        """End what waits or trains: one that trains is finished, the others are not trained."""
        last = None if within is None else time.monotonic() + within
        for ahead in (*filter(None, [self._training]), *self._waiting):
            ahead.abandon(None if last is None else max(last - time.monotonic(), 0.0))
        self._training = None
        self._waiting.clear()

    def break_off(self, within: float) -> None:
        """Give up all, where other processes may be anywhere in their work: a thread that they keep waiting is waited for at
        most so many seconds, and the world keeps the sampler that it has, for others take part in giving it back."""
        self._give_up(within)

    def close(self) -> None:
        """Give up what waits, but for `save`, and give the world its own sampler back."""
        if self._planned_by is not None:
            self._kept, self._planned_by = self._waits(), None
        self._give_up()
        self._held.release()


def run_async(
    pipeline: Pipeline,
    world: Overlapping,
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
