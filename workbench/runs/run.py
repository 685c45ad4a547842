"""One experiment being run, one step at a time.

`Run` holds what changes: world, writer, states; each `step()` makes, evaluates and records one training step, and
`ready()` before it does what was asked of the run meanwhile, from here or through the store. Several processes may make
a run together (`processes`): each holds a `Run` and makes the same calls, and the first one records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.numerics.forks import trees_of
from workbench.parallel import processes
from workbench.parallel.watchdog import GRACE
from workbench.pipeline import NO_PROMPT_SETTINGS, Pipeline, States, advance, rehearse
from workbench.pipeline.masking import observed
from workbench.runs import checkpoints
from workbench.runs.steering.queue import Helm
from workbench.types import Event, Rollouts, Step

if TYPE_CHECKING:
    from workbench.runs.experiment import Experiment
    from workbench.store import Store, Writer
    from workbench.store.null_writer import NullWriter
    from workbench.worlds.overlap.waiting import Kept


class Run:
    """One experiment being run, one step at a time, everything recorded. A context manager.

    budget, pipeline, available (N,) bool and prompt_settings are those of the next step; commands change them. target: the step
    after which it is done, experiment.steps; those made before a resume count. helm: who takes the commands, where it was
    made before the run."""

    def __init__(
        self,
        experiment: Experiment,
        *,
        world: Any = None,
        resume: str | None = None,
        tell: Callable[[str], None] = lambda text: None,
        helm: Helm | None = None,
    ) -> None:
        from workbench.store import Store

        if processes.launched() > processes.ranks():
            raise ValueError(
                f"{processes.launched()} processes were started (WORLD_SIZE), and this one knows none of the others; make the "
                "run inside `with workbench.parallel.processes.joined():`"
            )
        self.experiment = experiment
        self.pipeline: Pipeline = experiment.pipeline  # type: ignore[assignment]
        self._tell = tell
        tell("preparing the model and the tasks")
        self.world = experiment.build_world() if world is None else world
        self._lent = world is not None
        with ExitStack() as undo:  # a run that cannot begin must not keep what its world holds
            undo.callback(self._let_go)
            self.pipeline.check(self.world)
            self.budget = experiment.budget
            self.available = np.ones(len(self.world.pool), bool)
            self.prompt_settings = NO_PROMPT_SETTINGS
            self.helm = Helm() if helm is None else helm
            self._warmth = getattr(self.world, "temperature", None)
            self.states: States = self.pipeline.init(self.world.pool)
            self.n_steps = 0
            self.target = experiment.steps
            self.evaluations: list[tuple[int, Rollouts]] = []
            self._recording = 0.0
            self._beside: Path | None = None
            self.last: Step | None = None
            waited: tuple[Sequence[Kept], Mapping[int, States]] = (), {}
            if resume is not None:
                tell(f"resuming {resume}")
                with Store.open(experiment.store) as store:
                    waited = self._continue(store, resume)
            processes.barrier()  # what is recorded now hides what another process may still read
            self.writer = self._open(resume)
            self.run: str = self.writer.run
            if processes.first():
                self.helm.open(experiment.store, self.run)
            self._advance: Any = advance
            if experiment.staleness:
                from workbench.worlds.overlap.overlap import Overlap

                self._advance = Overlap(self.world, experiment.staleness, lambda: self.target, *waited)
            self._begun = self._closed = self._leaving = self._inside = False
            self._ends = ExitStack()
            self._ends.enter_context(processes.on_failure(self._broken_off))
            undo.pop_all()

    def _let_go(self) -> None:
        """Close the world, where the run has made it and it has something to close."""
        if not self._lent:
            getattr(self.world, "close", lambda: None)()

    def _open(self, resume: str | None) -> Writer | NullWriter:
        """Who records the run: a writer in the first process, and nobody in others."""
        from workbench.store import Writer
        from workbench.store.null_writer import NullWriter

        opened: list[Writer] = []

        def claim() -> str:
            e = self.experiment
            writer = Writer(
                e.store,
                e.to_dict() | {"name": e.name or Path(e.model).name},
                self.world.pool,
                self.world.evaluation,
                run=resume,
                start=None if resume is None else self.n_steps + 1,
                target=self.target,
                world=self.world.describe() | ({"processes": n} if (n := processes.ranks()) > 1 else {}),
                who=self.pipeline.who(),
                retention=e.tokens,
                needs=self.pipeline.needs,
                pieces=getattr(self.world, "pieces", dict)() if e.tokens != "none" else None,
                then="go on from the newest checkpoint: workbench run FILE --resume {run}, or Session(experiment, resume='{run}')",
            )
            opened.append(writer)
            return writer.run

        run = processes.on_first(claim)
        return opened[0] if opened else NullWriter(run)

    def _continue(self, store: Store, run: str) -> tuple[Sequence[Kept], Mapping[int, States]]:
        """Load the newest checkpoint of a run and fold the steps up to it; later ones will be made again.

        Returns the steps that waited at the checkpoint, and the states that they were planned with, see `Overlap`."""
        found = checkpoints.newest(self.checkpoints(run))
        if found is None:
            raise ValueError(f"run {run} has no checkpoint under {self.checkpoints(run)}; start a new run instead")
        checkpoint, at = found
        if at >= self.target:
            raise ValueError(
                f"run {run} has made {at} steps, and its experiment ends at {self.target}; "
                f"steps={at + 20} (--steps {at + 20}) goes on to step {at + 20}"
            )
        pool = self.world.pool
        recorded, _ = store.pool(run)
        if list(recorded.ids) != list(pool.ids):
            raise ValueError(f"run {run} had other prompts than these tasks give; resume it with its tasks and seed")
        self.world.load(checkpoint)
        if (free := checkpoints.position(checkpoint)) is not None:
            if len(free) != len(self.available):
                raise ValueError(
                    f"{checkpoint} was made for {len(free)} prompts; these tasks give {len(self.available)}"
                )
            self.available = free
        self.helm.rebuild(self, store, run, at)
        kept: Sequence[Kept] = ()
        if self.experiment.staleness:
            from workbench.worlds.overlap.waiting import load

            kept = load(checkpoint)
        wanted = {k.folded_through for k in kept}
        folded = {0: self.pipeline.init(pool)}
        self.states = folded[0]
        for step in store.steps(run, pool, needs=self.pipeline.needs):
            if step.step > at:
                break
            self.states = self.pipeline.observe(self.states, step)
            if step.step in wanted:
                folded[step.step] = self.states
        self.n_steps = at
        return kept, folded

    @property
    def done(self) -> bool:
        """Whether all steps of the experiment were made."""
        return self.n_steps >= self.target

    def checkpoints(self, run: str | None = None) -> Path:
        """The folder of a run's checkpoints."""
        from workbench.store.open import data_folder

        if self._beside is None:
            self._beside = data_folder(self.experiment.store) / "checkpoints"
        return self._beside / (run or self.run)

    def evaluate(self) -> tuple[Rollouts, float]:
        """Score the fixed evaluation set under the current policy; returns the rollouts and the seconds."""
        began = time.perf_counter()
        if self._warmth is not None:  # a temperature set since must not move the measure of learning
            warmth, self.world.temperature = self.world.temperature, self._warmth
        rollouts = self.world.evaluate(self.n_steps)
        if self._warmth is not None:
            self.world.temperature = warmth
        if "set" in (
            extra := self.world.evaluation.extra
        ):  # a set's name is the context of its rollouts; "" is the first
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
            self.writer.beliefs(0, self.pipeline.reveal(self.states))
        if self.experiment.eval_every:
            rollouts, _ = self.evaluate()
            if not self.n_steps:
                self.writer.evaluation(0, rollouts)

    def ready(self, stop: Callable[[], bool] = lambda: False, told: Callable[[], None] = lambda: None) -> bool:
        """Before a step: do what was asked of the run, and wait while it is paused, calling told. False where it shall
        end: stop() says so, or somebody asked for it."""
        self.begin()
        on = self.helm.ready(self, stop, told)
        self._leaving = not on
        return on

    def step(self) -> Step:
        """Make, evaluate where due, and record one training step."""
        self.begin()
        e = self.experiment
        number = self.n_steps + 1
        self._inside = True  # until the step is handed over: weights and record are of different steps meanwhile
        self.states, done = self._advance(
            self.pipeline,
            self.states,
            self.world,
            self.budget,
            step=number,
            seed=e.seed,
            available=self.available,
            prompt_settings=self.prompt_settings,
        )
        self.n_steps = number
        # what handing over the step before cost: a step cannot hold the seconds of its own recording
        done = replace(done, seconds={**done.seconds, "record": self._recording})
        rollouts = None
        if e.eval_every and (number % e.eval_every == 0 or number == self.target):
            rollouts, seconds = self.evaluate()
            done = replace(done, seconds={**done.seconds, "evaluate": seconds})
        began = time.perf_counter()
        tests = getattr(self.world, "taken_decisions", lambda: None)()
        self.writer.append(
            done,
            self.pipeline.reveal(self.states),
            evaluation=rollouts,
            nodes=trees_of(done),
            decisions=tests,
        )
        self._inside = False
        self._recording = time.perf_counter() - began
        if e.checkpoint_every and number % e.checkpoint_every == 0 and number != self.target:
            self.checkpoint()
        self.last = done
        return done

    def swap(self, pipeline: Pipeline | str, who: str = "researcher") -> None:
        """Another pipeline from the next step on, recorded; see `take_over`."""
        old, new = self.pipeline, Pipeline.parse(pipeline)
        self.take_over(new)
        self.writer.command("swap", {"from": old.spec, "to": new.spec, "who": new.who()}, self.n_steps + 1, who)

    def take_over(self, new: Pipeline) -> None:
        """Let a pipeline act from the next step on: a method that stays keeps its state, a new one folds what was
        recorded. Raises ValueError, and changes nothing, where it cannot act here."""
        from workbench.store import Store

        new.check(self.world)
        kept = {m.name: self.states[m.name] for m in self.pipeline.methods if repr(m) in map(repr, new.methods)}
        states = new.init(self.world.pool) | kept
        fresh = [m for m in new.methods if m.name not in kept]
        if fresh and self.n_steps:
            n = self.n_steps
            text = f"reading {n:,} step{'s' * (n != 1)} for {', '.join(m.name for m in fresh)}"
            self.helm.tell(text)  # first: who is told may ask the helm
            self._tell(text)
            processes.on_first(self.writer.flush)
            with Store.open(self.experiment.store) as store:
                for step in store.steps(self.run, self.world.pool, needs=new.needs):
                    for m in fresh:
                        states[m.name] = observed(m, states[m.name], step)
        try:
            rehearse(
                new, states, self.budget, step=self.n_steps + 1, seed=self.experiment.seed, available=self.available,
                prompt_settings=self.prompt_settings,
            )  # fmt: skip
        except Exception as error:
            raise ValueError(f"{new.text} cannot plan the next step: {error}") from error
        self.writer.acting(new.who(), new.needs)
        self.pipeline, self.states = new, states

    def checkpoint(self) -> None:
        """Save the world under the current step, whole or not at all; the one before it is removed. Where that cannot be,
        a warning is recorded."""
        folder = self.checkpoints()
        if processes.on_first(checkpoints.of_step(folder, self.n_steps).exists):  # nothing was trained since
            return
        processes.on_first(self.writer.flush)  # a checkpoint ahead of the store would resume with a step missing
        try:
            checkpoints.keep(folder, self.n_steps, self.world, self.available, self._keep_waiting)
        except OSError as error:
            self.writer.event(
                Event("warning", "checkpoint", f"no checkpoint at step {self.n_steps}: {error}"), self.n_steps
            )

    def _keep_waiting(self, folder: Path) -> None:
        """Beside the world: the steps that were generated ahead."""
        if self.experiment.staleness and (why := self._advance.save(folder)):
            self.writer.event(Event("note", "checkpoint", why), self.n_steps)

    def wrap_up(self) -> None:
        """The evaluation after the last step made, where that step had none."""
        if self.experiment.eval_every and self.evaluations and self.evaluations[-1][0] != self.n_steps:
            rollouts, _ = self.evaluate()
            self.writer.evaluation(self.n_steps, rollouts)

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
                    self.helm.leave()
                if self.experiment.staleness:
                    self._advance.close()
                whole = self.n_steps and not self._inside  # a step that was broken off may have moved the weights
                if self.experiment.checkpoint_every and whole and status in ("finished", "stopped"):
                    self.checkpoint()
            elif self.experiment.staleness:
                self._advance.break_off(GRACE)
            self.helm.end(self)
        finally:
            try:
                if together:
                    processes.on_first(lambda: self._end(status, message))
                else:
                    self._end(status, message)
            finally:
                if together:
                    self._let_go()

    def _end(self, status: str, message: str) -> None:
        """Say how the run ended. Where that cannot be written the run is let go all the same, to be resumed."""
        try:
            self.writer.close(status, message)
        finally:
            self.writer.give_up()

    def _broken_off(self, error: BaseException) -> None:
        """The end of a run whose thread waits in vain for another process; from another thread."""
        self._closed = True
        if not isinstance(error, KeyboardInterrupt):
            self.writer.event(Event("failure", type(error).__name__, str(error)), self.n_steps)
        self.writer.close("stopped" if isinstance(error, KeyboardInterrupt) else "failed", str(error))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        from workbench.store import StoreError

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
        what, why = type(error).__name__, " ".join([str(error), *getattr(error, "__notes__", [])])
        # what the writer says on closing must not hide the error that brought us here
        with suppress(StoreError):
            self.writer.event(Event("failure", what, why), self.n_steps)
        with suppress(StoreError):
            self.close("failed", f"{what}: {why}")
