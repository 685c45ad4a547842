"""One experiment being run, one training step at a time, everything recorded.

`Run` owns the state (`RunState`), the record (`RunRecord`) and the queue of requests; each `step()` makes, evaluates and
records one training step, and `ready()` before it does what was asked of the run meanwhile, from here or through the store.
Several processes may make a run together (`processes`): each holds a `Run` and makes the same calls, and the first one records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import replace

import numpy as np

from workbench.numerics.forks import trees_of
from workbench.parallel import processes
from workbench.parallel.watchdog import GRACE
from workbench.pipeline import Pipeline, advance
from workbench.runs.record import RunRecord
from workbench.runs.resume import Resumed
from workbench.runs.resume import resume as resume_run
from workbench.runs.spec import ExperimentSpec
from workbench.runs.state import RunState
from workbench.runs.steering.changes import take_over
from workbench.runs.steering.queue import RequestQueue
from workbench.runs.verdicts import VerdictWatch
from workbench.stages import Overlapping
from workbench.store import StoreError
from workbench.types import Rollouts, Step
from workbench.worlds.overlap.overlap import Overlap


class Run:
    """One experiment being run, one step at a time. A context manager.

    state: of the next step; commands change it. The run is done after state.target steps, experiment.steps; those made
    before a resume count. world: used and not closed, None builds the experiment's. on_status is called with what takes
    long. allow: names of a world's `fingerprint` in which a resumed run may differ from its record. queue: takes requests, where it was made before the run."""

    def __init__(
        self,
        experiment: ExperimentSpec,
        *,
        world: Overlapping | None = None,
        resume: str | None = None,
        allow: Collection[str] = (),
        on_status: Callable[[str], None] = lambda text: None,
        queue: RequestQueue | None = None,
    ) -> None:
        if processes.launched() > processes.ranks():
            raise ValueError(
                f"{processes.launched()} processes were started (WORLD_SIZE), and this one knows none of the others; make the "
                "run inside `with workbench.parallel.processes.joined():`"
            )
        self.experiment = experiment
        on_status("preparing the model and the tasks")
        self._lent = world is not None
        self.world: Overlapping = experiment.build_world() if world is None else world
        with ExitStack() as undo:  # a run that cannot begin must not keep what its world holds
            undo.callback(self._let_go)
            pipeline, pool = Pipeline.parse(experiment.pipeline), self.world.pool
            pipeline.check(self.world)
            available, states = np.ones(len(pool), bool), pipeline.init(pool)
            self.state = RunState(
                self.world, pipeline, experiment.budget, available, states, experiment.steps, experiment.seed
            )
            self.queue = RequestQueue() if queue is None else queue
            self._eval_temperature = self.world.settings.get("temperature")
            self.evaluations: list[tuple[int, Rollouts]] = []
            self.last: Step | None = None
            self._verdicts = VerdictWatch(lambda: self.world.describe().get("verifier", "of the task"))
            self._recording = 0.0
            resumed = Resumed()
            if resume is not None:
                on_status(f"resuming {resume}")
                resumed = resume_run(experiment, self.state, self.queue, resume, allow)
            processes.barrier()  # what is recorded now hides what another process may still read
            self.record = RunRecord(experiment, self.state, resume)
            if resumed.changed:
                self.record.changed(resumed.changed, self.n_steps)
            self.queue.begin(self.state, self.record, on_status)
            self._overlap: Overlap | None = None
            if experiment.staleness:
                self._overlap = Overlap(self.world, experiment.staleness, lambda: self.state.target, *resumed.waiting)
                self.record.save_waiting = self._overlap.save
            self._begun = self._closed = self._leaving = self._inside = False
            self._ends = ExitStack()
            self._ends.enter_context(processes.on_failure(self._broken_off))
            undo.pop_all()

    def _let_go(self) -> None:
        """Close the world, where the run has made it."""
        if not self._lent:
            self.world.close()

    @property
    def run_id(self) -> str:
        """The id of the run in its store."""
        return self.record.run_id

    @property
    def pipeline(self) -> Pipeline:
        """Who acts in the next step."""
        return self.state.pipeline

    @property
    def n_steps(self) -> int:
        """Steps made."""
        return self.state.step

    @property
    def target(self) -> int:
        """The step after which the run is done."""
        return self.state.target

    @property
    def done(self) -> bool:
        """Whether all steps of the experiment were made."""
        return self.n_steps >= self.target

    def evaluate(self) -> tuple[Rollouts, float]:
        """Score the fixed evaluation set under the current policy; returns the rollouts and the seconds."""
        began, world, warm = time.perf_counter(), self.world, self._eval_temperature
        if warm is None:
            rollouts = world.evaluate(self.n_steps)
        else:  # a temperature set since must not move the measure of learning
            now = world.settings["temperature"]
            world.set_setting("temperature", warm)
            rollouts = world.evaluate(self.n_steps)
            world.set_setting("temperature", now)
        if "set" in (extra := world.evaluation.extra):  # a set's name is the context of its rollouts; "" is the first
            rollouts = rollouts.with_(context=extra["set"][rollouts.prompt])
        self.evaluations = [*self.evaluations[:1], (self.n_steps, rollouts)]  # the first and the newest
        return rollouts, time.perf_counter() - began

    def begin(self) -> None:
        """Before the first step: the priors and the evaluation of the policy, recorded under step 0.

        A resumed run evaluates as well, to measure from here, but the record keeps its own."""
        if self._begun:
            return
        self._begun = True
        if not self.n_steps:
            self.record.writer.beliefs(0, self.pipeline.reveal(self.state.states))
        if self.experiment.eval_every:
            rollouts, _ = self.evaluate()
            if not self.n_steps:
                self.record.writer.evaluation(0, rollouts)
            self._verdicts.see(rollouts)

    def ready(self, stop: Callable[[], bool] = lambda: False, on_wait: Callable[[], None] = lambda: None) -> bool:
        """Before a step: do what was asked of the run, and wait while it is paused, calling on_wait. False where it shall
        end: stop() says so, or somebody asked for it."""
        self.begin()
        on = self.queue.ready(stop, on_wait)
        self._leaving = not on
        return on

    def step(self) -> Step:
        """Make, evaluate where due, and record one training step. Raises VerifierFailed where its verifier says nothing."""
        self.begin()
        e, state, number = self.experiment, self.state, self.n_steps + 1
        self._inside = True  # until the step is handed over: weights and record are of different steps meanwhile
        make = self._overlap or advance
        state.states, done = make(
            state.pipeline,
            state.states,
            self.world,
            state.budget,
            step=number,
            seed=e.seed,
            available=state.available,
            prompt_settings=state.prompt_settings,
        )
        state.step = number
        # what handing over the step before cost: a step cannot hold the seconds of its own recording
        done = replace(done, seconds={**done.seconds, "record": self._recording})
        rollouts = None
        if e.eval_every and (number % e.eval_every == 0 or self.done):
            rollouts, seconds = self.evaluate()
            done = replace(done, seconds={**done.seconds, "evaluate": seconds})
        began = time.perf_counter()
        self.record.writer.append(
            done,
            state.pipeline.reveal(state.states),
            evaluation=rollouts,
            nodes=trees_of(done),
            decisions=self.world.taken_decisions(),
        )
        self._inside = False
        self._recording = time.perf_counter() - began
        if e.checkpoint_every and number % e.checkpoint_every == 0 and not self.done:
            self.record.checkpoint(state)
        self.last = done
        self._verdicts.see(done.rollouts)
        return done

    def swap(self, pipeline: Pipeline | str, who: str = "researcher") -> None:
        """Another pipeline from the next step on, recorded. Raises ValueError, and changes nothing, where it cannot act."""
        old, new = self.pipeline, Pipeline.parse(pipeline)
        take_over(self.state, self.record, new, self.queue.report)
        payload = {"from": old.spec, "to": new.spec, "who": new.who()}
        self.record.writer.command("swap", payload, self.n_steps + 1, who)

    def wrap_up(self) -> None:
        """The evaluation after the last step made, where that step had none."""
        if self.experiment.eval_every and self.evaluations and self.evaluations[-1][0] != self.n_steps:
            rollouts, _ = self.evaluate()
            self.record.writer.evaluation(self.n_steps, rollouts)

    def close(self, status: str = "finished", message: str = "", *, apart: bool = False) -> None:
        """Checkpoint, write what is queued, set the run's status, and close the world where the run has made it; a second
        call does nothing.

        Of several processes all have to close. apart, and after a failure: they may be anywhere in their work and are not
        waited for; then there is no checkpoint, as there is none of a step that was broken off: the run resumes from the
        one before."""
        if self._closed:
            return
        self._closed = True
        self._ends.close()
        together = processes.ranks() == 1 or not (apart or status == "failed")
        try:
            if together:
                if not (self._leaving or self.done):
                    self.queue.leave()
                if self._overlap:
                    self._overlap.close()
                whole = self.n_steps and not self._inside  # a step that was broken off may have moved the weights
                if self.experiment.checkpoint_every and whole and status in ("finished", "stopped"):
                    self.record.checkpoint(self.state)
            elif self._overlap:
                self._overlap.break_off(GRACE)
            self.queue.end()
        finally:
            try:
                if together:
                    processes.on_first(lambda: self.record.close(status, message))
                else:
                    self.record.close(status, message)
            finally:
                if together:
                    self._let_go()

    def _broken_off(self, error: BaseException) -> None:
        """The end of a run whose thread waits in vain for another process; from another thread."""
        self._closed = True
        if isinstance(error, KeyboardInterrupt):
            self.record.writer.close("stopped", str(error))
            return
        self.record.failure(self.n_steps, type(error).__name__, str(error))
        self.record.writer.close("failed", str(error))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close("finished" if self.done else "stopped")
            return
        if isinstance(error, GeneratorExit):
            self.close("stopped")
            return
        processes.report_failure(error)
        error = processes.cause(error)
        if isinstance(error, KeyboardInterrupt):
            self.close("stopped", apart=True)
            return
        kind_, why = type(error).__name__, " ".join([str(error), *getattr(error, "__notes__", [])])
        self.record.failure(self.n_steps, kind_, why)
        # what the writer says on closing must not hide the error that brought us here
        with suppress(StoreError):
            self.close("failed", f"{kind_}: {why}")
