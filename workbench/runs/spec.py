"""Experiment as data: frozen, prints as code, goes to and from TOML, and is kept whole in the store's runs table."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import validate
from workbench.pipeline import Pipeline, catalog
from workbench.stages import Overlapping
from workbench.store.urls import redacted
from workbench.types import Budget
from workbench.worlds.live.prompts import TOO_LONG

if TYPE_CHECKING:
    from typing import Self

    from workbench.worlds.live.examine import Facts

SIM = "sim"
"""The model name that stands for a simulated world."""


class Untrusted(str):
    """The name of a verifier that only a store's record gives: to import it would run what somebody else has chosen."""

    __slots__ = ()


@dataclass(frozen=True, repr=False)
class ExperimentSpec:
    """The fields of an `Experiment`, which documents them, checked; prints as code, goes to and from TOML."""

    model: str = "smollm2"
    tasks: str | tuple[str, ...] = "default"
    pipeline: str | Pipeline = "grpo + mopps"
    methods: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    steps: int = 60
    seed: int = 0
    eval_every: int = 20
    eval_samples: int = 0
    eval_sets: Mapping[str, str | list[str] | Mapping[str, object]] = field(default_factory=dict)
    checkpoint_every: int = 20
    staleness: int = 0
    store: str = "store"
    name: str = ""
    tokens: str = "all"
    too_long: str = "error"
    world: Mapping[str, object] = field(default_factory=dict)
    task_options: Mapping[str, object] = field(default_factory=dict)
    update: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sources = tuple(map(catalog.located, (self.methods,) if isinstance(self.methods, str) else self.methods))
        for source in sources:
            catalog.add(source)
        object.__setattr__(self, "methods", sources)
        object.__setattr__(self, "pipeline", Pipeline.parse(self.pipeline))
        if isinstance(self.budget, Mapping):
            validate.known(self.budget, [f.name for f in fields(Budget)], "budget")
            for name, value in self.budget.items():
                if name in ("prompts", "rollouts"):
                    validate.whole(name, value)
                elif value is not None:
                    validate.number(name, value, 0)
            object.__setattr__(self, "budget", Budget(**self.budget))
        if isinstance(self.tasks, list):
            object.__setattr__(self, "tasks", tuple(self.tasks))
        validate.whole("steps", self.steps)
        validate.whole("seed", self.seed, 0, 2**63 - 1)
        for name in ("staleness", "eval_samples", "eval_every", "checkpoint_every"):
            validate.whole(name, getattr(self, name), 0)
        validate.one_of("tokens", self.tokens, ("all", "sample", "none"))
        validate.one_of("too_long", self.too_long, TOO_LONG)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """An experiment from plain data; an unknown key is an error that lists the known ones."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise ValueError(f"an experiment has no {', '.join(unknown)}; its keys are {', '.join(sorted(known))}")
        return cls(**data)

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """An experiment from a TOML file: top-level keys are the fields, [[pipeline]] the methods.

        A verifier "my_rewards:function" or "my_rewards.py:function" whose file stands beside the TOML file is that one."""
        with Path(path).open("rb") as file:
            try:
                data = tomllib.load(file)
            except tomllib.TOMLDecodeError as error:
                raise ValueError(f"{path} is not valid TOML: {error}") from error
        return cls.from_dict(beside(Path(path), data))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `from_dict` reads it and the runs table keeps it."""
        plain, pipeline = {f.name: getattr(self, f.name) for f in fields(self)}, Pipeline.parse(self.pipeline)
        sources = sorted({*self.methods, *pipeline.origins})
        data = plain | {
            "pipeline": pipeline.spec,
            "methods": sources,
            "budget": {k: v for k, v in asdict(self.budget).items() if v is not None},
            "tasks": list(self.tasks) if isinstance(self.tasks, tuple) else self.tasks,
            "eval_sets": dict(self.eval_sets),
            "world": dict(self.world),
            "task_options": dict(self.task_options),
            "update": dict(self.update),
        }
        return data if sources else {k: v for k, v in data.items() if k != "methods"}

    def __repr__(self) -> str:
        """As code, but for a password in the store's URL."""
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return redacted(f"{type(self).__name__}({', '.join(shown)})")

    def to_toml(self) -> str:
        """The same as TOML text; `from_toml` reads it back."""
        data = self.to_dict()
        tables = {k: v for k, v in data.items() if isinstance(v, dict)}
        lines = [f"{k} = {_toml(v)}" for k, v in data.items() if k not in tables and k != "pipeline"]
        for name, table in tables.items():
            if table:
                lines += ["", f"[{name}]", *(f"{k} = {_toml(v)}" for k, v in table.items())]
        for row in data["pipeline"]:
            lines += ["", "[[pipeline]]", *(f"{k} = {_toml(v)}" for k, v in row.items())]
        return "\n".join(lines) + "\n"

    def with_(self, **changes: Any) -> Self:
        """A copy with some fields replaced."""
        return replace(self, **changes)

    def build_world(self) -> Overlapping:
        """The world the experiment names: `SimWorld` for "sim", else a `LiveWorld` on its tasks."""
        if self.model == SIM:
            from workbench.worlds.sim.world import SimWorld

            if self.update:
                raise ValueError("a simulated world has no optimiser; update needs a model")
            if self.eval_sets:
                raise ValueError("a simulated world has one evaluation set; eval_sets needs a model")
            samples = {"eval_samples": self.eval_samples} if self.eval_samples else {}
            self._check_world(SimWorld, "seed")
            return SimWorld(seed=self.seed, **{**samples, **self.world})  # type: ignore[arg-type]
        from workbench import tasks
        from workbench.worlds.live.world import LiveWorld

        self._check_world(LiveWorld, "task", "model", "seed")
        for options in (self.task_options, *self.eval_sets.values()):
            name = options.get("verifier") if isinstance(options, Mapping) else None
            if isinstance(name, Untrusted):
                raise ValueError(
                    f"the verifier {name!s} is named by the record of the store {self.store!r} alone, and is not imported for "
                    f"that; if you trust it, name it yourself: --verifier {name}, or Experiment.recorded(store, run, "
                    f"verifiers=[{str(name)!r}])"
                )
        source = list(self.tasks) if isinstance(self.tasks, tuple) else self.tasks
        task = tasks.load(source, seed=self.seed, **self.task_options)  # type: ignore[arg-type]
        if self.eval_sets:
            task = tasks.with_sets(task, self.eval_sets, seed=self.seed)
        given = {"too_long": self.too_long} | ({"samples": self.eval_samples} if self.eval_samples else {})
        world = {**given, **self.world}
        world["update"] = {**self.world.get("update", {}), **self.update}  # type: ignore[dict-item]
        return LiveWorld(task, self.model, seed=self.seed, **world)  # type: ignore[arg-type]

    def check(self) -> Facts:
        """Start the model on the tasks, without a step: passes, engines, memory, context, template and end tokens.

        Raises what a run would raise at its start: ValueError for a model, a template or a prompt that cannot be trained."""
        from workbench.worlds.live.examine import examine
        from workbench.worlds.live.world import LiveWorld

        world = self.build_world()
        if not isinstance(world, LiveWorld):
            raise ValueError("a simulated world has no model to check")
        with world:
            return examine(world)

    def _check_world(self, kind: type, *given: str) -> None:
        """Raise ValueError for settings that a world does not take, or that the experiment gives it."""
        validate.known(self.world, [n for n in signature(kind).parameters if n not in given], "world")

    @property
    def device(self) -> str | None:
        """What the experiment asks to be trained on; None where it leaves that to the world."""
        return None if (found := self.world.get("device")) is None else str(found)

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{f.name}</td><td><code>{escape(str(getattr(self, f.name)))}</code></td></tr>"
            for f in fields(self)
            if f.name != "pipeline"
        )
        return f"<table>{rows}</table>{Pipeline.parse(self.pipeline)._repr_html_()}"


def beside(toml: Path, data: dict[str, Any]) -> dict[str, Any]:
    """What a TOML file says of an experiment, with verifiers by the whole paths of their files where they stand beside it."""
    for options in (data.get("task_options"), *data.get("eval_sets", {}).values()):
        if isinstance(options, dict) and "verifier" in options:
            module, _, name = str(options["verifier"]).rpartition(":")
            file = toml.absolute().parent / (module if module.endswith(".py") else module.replace(".", "/") + ".py")
            if module and file.is_file():
                options["verifier"] = f"{file}:{name}"
    return data


def _toml(value: object) -> str:
    """A TOML literal: JSON's form, which TOML shares for strings, numbers, booleans and arrays."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
