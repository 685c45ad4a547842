"""An experiment running in the background of this process: start, pause, one step, stop, change.

The training thread only ever writes to the store; whoever watches reads the store. Commands are recorded by the
step that applied them, those of this process and those that others leave in the store's inbox alike. Nothing here draws,
so that it can be tested and driven without a front end.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from workbench.parallel import processes
from workbench.pipeline import Pipeline
from workbench.runs.run import Run
from workbench.runs.spec import ExperimentSpec
from workbench.runs.steering.commands import Commands, progress_html
from workbench.runs.steering.queue import RequestQueue
from workbench.runs.steering.requests import Request
from workbench.stages import Overlapping
from workbench.types import Step

if TYPE_CHECKING:
    from typing import Self

ENDED = ("finished", "stopped", "failed")
"""Statuses after which a session does nothing more."""


class Session(Commands):
    """A run in a background thread. status: new, preparing, running, paused, finished, stopped, failed.

    Every command of `Commands` is checked now, acts at the next step, is recorded by it, and returns the session. Where
    several processes make the run, each has a session: commands count that are given to the first one's, a stop of any.
    Closing the notebook's page harms nothing; `stop()` ends after the step in hand, with everything recorded.

    >>> import tempfile
    >>> from workbench import Experiment
    >>> with tempfile.TemporaryDirectory() as store:
    ...     session = Experiment(model="sim", steps=2, store=store).start().wait()
    >>> session.status
    'finished'
    """

    def __init__(
        self,
        experiment: ExperimentSpec,
        *,
        world: Overlapping | None = None,
        resume: str | None = None,
        allow: Collection[str] = (),
        who: str = "",
    ) -> None:
        self.experiment = experiment
        self.who = who
        self.status = "new"
        self.message = ""
        self.error: str | None = None
        self.n_steps = 0
        self.last: Step | None = None
        self.run_id = ""
        self._world, self._resume, self._allow = world, resume, allow
        self._queue = RequestQueue()
        self._stop = threading.Event()
        self._next: Pipeline | None = None
        self._watchers: list[Callable[[Session], None]] = []
        self._wake = threading.Condition()
        self._n_outcomes = 0
        self._thread: threading.Thread | None = None
        self._run: Run | None = None

    @property
    def store_url(self) -> str:
        """Where the run is recorded."""
        return self.experiment.store

    @property
    def target_steps(self) -> int:
        """Steps after which the run is finished."""
        return self._run.target if self._run else self.experiment.steps

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of the next step."""
        if self._next is not None:
            return self._next
        return self._run.pipeline if self._run else Pipeline.parse(self.experiment.pipeline)

    @property
    def refused(self) -> str:
        """Why the last command was refused; "" when it was not."""
        return self._queue.refused

    @property
    def alive(self) -> bool:
        """Whether the training thread is running or paused."""
        return self._thread is not None and self._thread.is_alive()

    def request(self, kind: str, **payload: object) -> Self:
        """Ask for something, a key of `requests.KINDS`. Raises ValueError where that cannot be; what only the coming step
        can tell, as after a change that still waits, is refused by it, and recorded so."""
        request = Request.of(kind, payload, self.who)
        self._queue.put(request)
        self.last_request = request
        return self

    def answer(self, request: Request) -> dict[str, Any] | None:
        """The command that a request became, without asking the store; see `Commands.answer`."""
        if (found := self._queue.outcomes.get(request.id)) is None:
            return None
        return {**found._asdict(), "payload": {"id": request.id} | found.payload, "who": request.who}

    def working_status(self, request: Request) -> str:
        """What the training thread is doing for a request."""
        id, text = self._queue.working
        return text if id == request.id else ""

    def start(self, paused: bool = False) -> Self:
        """Begin, or go on after a pause. paused=True prepares everything and waits for `step` or `resume`."""
        if self.alive:
            return self if paused else self.resume()
        if self.status in ENDED:
            raise RuntimeError(f"this session is {self.status}; make a new one: Session(experiment).start()")
        if paused:
            self.pause()
        self._thread = threading.Thread(target=self._work, name="workbench-train", daemon=True)
        self._thread.start()
        return self

    def step(self, n: int = 1) -> Self:
        """Make n single steps, then wait; starts the session when it was not."""
        self.request("step", n=n)
        return self if self.alive else self.start()

    def stop(self, timeout: float | None = 60) -> Self:
        """End after the step in hand; everything is recorded. Waits up to timeout seconds for it."""
        self._stop.set()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return self

    def swap(self, pipeline: Pipeline | str) -> Self:
        """Another pipeline from the next step on; checked now, recorded when it is applied."""
        new = Pipeline.parse(pipeline)
        self.request("swap", pipeline=new)
        self._next = new
        return self

    def wait(self, steps: int | None = None, timeout: float = 600) -> Self:
        """Block until that many steps are made, or the run has ended. Raises TimeoutError, or what ended the run."""

        def reached() -> bool:
            return (steps is not None and self.n_steps >= steps) or self.status in ENDED

        with self._wake:
            if not self._wake.wait_for(reached, timeout):
                raise TimeoutError(f"{self.n_steps} steps after {timeout} s; the session is {self.status}")
        if self.error:
            raise RuntimeError(f"the run failed:\n{self.error}")
        return self

    def on_change(self, callback: Callable[[Session], None]) -> None:
        """Call back (in the training thread) after each step and each change of status."""
        self._watchers.append(callback)

    def _set_status(self, status: str) -> None:
        self.status = status
        for callback in self._watchers:
            try:
                callback(self)
            except Exception as error:  # a broken view must never end a run
                self.message = f"a view failed: {error!r}"
        with self._wake:
            self._wake.notify_all()

    def _paused(self) -> None:
        if self.status != "paused" or self._n_outcomes != len(self._queue.outcomes):
            self._n_outcomes = len(self._queue.outcomes)
            self._set_status("paused")

    def _work(self) -> None:
        status = "failed"
        try:
            with processes.joined(self.experiment.device):
                status = self._make()
        except BaseException:
            self.error = traceback.format_exc()
        self._set_status(status)

    def _make(self) -> str:
        """Make the run; the status it ends with."""
        self._set_status("preparing")
        with Run(
            self.experiment,
            world=self._world,
            resume=self._resume,
            allow=self._allow,
            on_status=self._report,
            queue=self._queue,
        ) as run:
            self._run, self.run_id, self.n_steps = run, run.run_id, run.n_steps
            while not run.done and run.ready(self._stop.is_set, self._paused):
                self._next = None
                if self.status != "running":
                    self._set_status("running")
                self.last = run.step()
                self.n_steps = run.n_steps
                self._set_status("running")
            run.wrap_up()
        return "finished" if run.done else "stopped"

    def _report(self, text: str) -> None:
        self.message = text
        self._set_status(self.status)

    def _repr_html_(self) -> str:
        return progress_html(self, self.pipeline.text)

    def __repr__(self) -> str:
        reward = "" if self.last is None else f", {self.last.rollouts!r}"
        error = "" if not self.error else f", {self.error.strip().splitlines()[-1]}"
        return f"Session({self.status}, step {self.n_steps} of {self.target_steps}{reward}{error})"
