"""Record of a run on disk: its rows in the store, through one writer, and its checkpoints beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from workbench.parallel import processes
from workbench.runs import checkpoints
from workbench.runs.spec import ExperimentSpec
from workbench.runs.state import RunState
from workbench.store import Store, StoreError, Writer
from workbench.store.null_writer import NullWriter
from workbench.types import Event, Step


class RunRecord:
    """What a run writes and may read again. Of several processes the first one writes; all make the same calls.

    save_waiting: writes what waits to be trained beside a checkpoint, and says why some of it could not be kept."""

    def __init__(self, spec: ExperimentSpec, state: RunState, resume: str | None = None) -> None:
        self.store_url = spec.store
        self.writer = _open_writer(spec, state, resume)
        self.run_id: str = self.writer.run
        self.checkpoints = checkpoints.folder_of_run(spec.store, self.run_id)
        self.save_waiting: Callable[[Path], str] = lambda folder: ""

    def steps(self, state: RunState, needs: frozenset[str]) -> Iterator[Step]:
        """The steps made so far, as the record has them."""
        processes.on_first(self.writer.flush)
        with Store.open(self.store_url) as store:
            yield from store.steps(self.run_id, state.world.pool, needs=needs)

    def checkpoint(self, state: RunState) -> None:
        """Save the world under the current step, whole or not at all; the one before it is removed. Where that cannot be,
        a warning is recorded."""
        if processes.on_first(checkpoints.of_step(self.checkpoints, state.step).exists):  # nothing was trained since
            return
        processes.on_first(self.writer.flush)  # a checkpoint ahead of the store would resume with a step missing

        def save_waiting(folder: Path) -> None:
            if why := self.save_waiting(folder):
                self.writer.event(Event("note", "checkpoint", why), state.step)

        try:
            checkpoints.save(self.checkpoints, state.step, state.world, state.available, save_waiting)
        except OSError as error:
            why = f"no checkpoint at step {state.step}: {error}"
            self.writer.event(Event("warning", "checkpoint", why), state.step)

    def changed(self, what: Mapping[str, tuple[object, object]], step: int) -> None:
        """Record in what a run that is resumed after a step differs from its record: name -> (recorded, now)."""
        self.writer.command("resume", {"changed": what}, step)
        for name, (before, now) in what.items():
            self.writer.event(
                Event("warning", "resume", f"resumed with another {name}: {before} before, {now} now"), step
            )

    def failure(self, step: int, kind: str, why: str) -> None:
        """Record what ended the run; a writer that fails must not hide it."""
        with suppress(StoreError):
            self.writer.event(Event("failure", kind, why), step)

    def close(self, status: str, message: str) -> None:
        """Say how the run ended. Where that cannot be written the run is let go all the same, to be resumed."""
        try:
            self.writer.close(status, message)
        finally:
            self.writer.give_up()


def _open_writer(spec: ExperimentSpec, state: RunState, resume: str | None) -> Writer | NullWriter:
    """A writer in the first process, and one that writes nothing in others."""
    opened: list[Writer] = []

    def claim() -> str:
        world, ranks = state.world, processes.ranks()
        writer = Writer(
            spec.store,
            spec.to_dict() | {"name": spec.name or Path(spec.model).name},
            world.pool,
            world.evaluation,
            run=resume,
            start=None
            if resume is None
            else state.step and state.step + 1,  # 0: from what stands before the first step
            target=state.target,
            world={
                **world.describe(),
                "fingerprint": world.fingerprint(),
                **({"processes": ranks} if ranks > 1 else {}),
            },
            who=state.pipeline.who(),
            retention=spec.tokens,
            needs=state.pipeline.needs,
            pieces=world.pieces() if spec.tokens != "none" else None,
            then="go on from the newest checkpoint: workbench run FILE --resume {run}, or Session(experiment, resume='{run}')",
        )
        opened.append(writer)
        return writer.run

    run_id = processes.on_first(claim)
    return opened[0] if opened else NullWriter(run_id)
