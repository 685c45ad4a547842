"""Several pipelines with several seeds from one file, in order of seeds; killed, it goes on where it was.

[experiment]
model = "tiny"
steps = 60
[sweep]
pipelines = ["grpo", "grpo + mopps", "grpo + vade"]
seeds = [0, 1, 2]
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.parallel import processes
from workbench.pipeline import Pipeline
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.runs.spec import beside


@dataclass(frozen=True)
class Sweep:
    """An experiment, with the pipelines and seeds that take their places in it."""

    experiment: Experiment
    pipelines: tuple[str, ...]
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.pipelines or not self.seeds:
            raise ValueError("a sweep needs one pipeline and one seed at least")
        object.__setattr__(self, "pipelines", tuple(Pipeline.parse(p).text for p in self.pipelines))
        object.__setattr__(self, "seeds", tuple(int(s) for s in self.seeds))

    @classmethod
    def from_toml(cls, path: str | Path) -> Sweep:
        """Read tables [experiment] and [sweep]; errors name what is missing or unknown."""
        with Path(path).open("rb") as file:
            try:
                data = tomllib.load(file)
            except tomllib.TOMLDecodeError as error:
                raise ValueError(f"{path} is not valid TOML: {error}") from error
        sweep: Mapping[str, Any] = data.get("sweep", {})
        unknown = sorted(set(data) - {"experiment", "sweep"}) + sorted(set(sweep) - {"pipelines", "seeds"})
        if unknown or "pipelines" not in sweep:
            wrong = f"unknown keys {', '.join(unknown)}" if unknown else "no pipelines"
            raise ValueError(f"{path} has {wrong}; a sweep is [experiment] and [sweep] with pipelines and seeds")
        return cls(
            Experiment.from_dict(beside(Path(path), data.get("experiment", {}))),
            tuple(sweep["pipelines"]),
            tuple(sweep.get("seeds", (0,))),
        )

    def experiments(self) -> Iterator[Experiment]:
        """All runs to make, seed by seed, so that an unfinished sweep compares in pairs."""
        for seed in self.seeds:
            for pipeline in self.pipelines:
                yield self.experiment.with_(pipeline=pipeline, seed=seed)

    def run(self, tell: Callable[[str], None] = lambda text: None, *, store: str | None = None) -> list[str]:
        """Make what is not there yet; returns the run ids in order. A run that was cut goes on from its checkpoint."""
        with processes.joined(self.experiment.device):
            return list(self._made(tell if processes.first() else lambda text: None, store))

    def _made(self, tell: Callable[[str], None], store: str | None) -> Iterator[str]:
        todo = [e if store is None else e.with_(store=store) for e in self.experiments()]
        for i, experiment in enumerate(todo, 1):
            what = f"[{i}/{len(todo)}] {Pipeline.parse(experiment.pipeline).text}, seed {experiment.seed}"
            found, status, steps = _recorded(experiment)
            if found and status == "finished" and steps >= experiment.steps:
                tell(f"{what}: there already, {found}")
                yield found
                continue
            yield _make(experiment, found, lambda text, what=what: tell(f"{what}: {text}"))


def _make(experiment: Experiment, found: str | None, tell: Callable[[str], None]) -> str:
    """Run an experiment, from the newest checkpoint of a run that was cut where there is one."""
    folder = Path(experiment.store) / "checkpoints" / (found or "")
    at = max((int(p.name[5:]) for p in folder.glob("step-*[0-9]")), default=0) if found else 0
    if found and at >= experiment.steps:
        return found  # cut after its last step
    if found and at:
        made = Run(experiment, resume=found)
        tell(f"going on with {found} after step {at}")
    else:
        made = Run(experiment)
        tell(f"running as {made.run_id}")
    with made as run:
        while not run.done:
            step = run.step()
            if step.step % 10 == 0 or run.done:
                tell(f"step {step.step}/{run.target}")
        return run.run_id


def _recorded(experiment: Experiment) -> tuple[str | None, str, int]:
    """(run, status, last step) of a run of exactly this experiment; (None, "", 0) where there is none."""
    from workbench.store import Store

    if "ducklake:" not in experiment.store and not Path(experiment.store).is_dir():
        return None, "", 0
    wanted = _key(experiment.to_dict())
    with Store.open(experiment.store) as store:
        statuses = {r["run"]: r for r in store.runs().to_pylist()}
        for row in store.sql("SELECT run, experiment FROM runs ORDER BY started DESC").to_pylist():
            if _key(json.loads(row["experiment"])) == wanted:
                status = statuses[row["run"]]
                return row["run"], str(status["status"]), int(status["last_step"] or 0)
    return None, "", 0


def _key(experiment: Mapping[str, Any]) -> str:
    """What makes two experiments the same; where they are kept and what they are called does not.

    Nor does a setting that is off: an older workbench did not know it."""
    return json.dumps({k: v for k, v in experiment.items() if v and k not in ("store", "name")}, sort_keys=True)
