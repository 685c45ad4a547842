"""Pipeline of methods: which of them act at a verb, in which order; its states, and its text form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from workbench.methods.uniform import Uniform
from workbench.pipeline import catalog, rules
from workbench.pipeline.masking import observed
from workbench.pipeline.notation import listed, written
from workbench.pipeline.plugins import Unknown, origin
from workbench.stages import DECIDES, VERBS, Method, State, World
from workbench.types import Pool, Step

States = dict[str, State]


class Pipeline:
    """A list of methods, read in order: at select, allocate and loss the last one that has the verb decides;
    at the others every one that has it refines. Prompts nobody selects are shuffled, rollouts nobody allocates
    are spread evenly (`Uniform`).

    >>> Pipeline.parse("grpo + mopps(target=0.4)").who()["select"]
    ['mopps']
    """

    def __init__(self, *methods: Method) -> None:
        for m in methods:
            if not isinstance(m, Method):
                raise TypeError(f"{m!r} is not a method; write it with its settings, as in Pipeline(Grpo(), Mopps())")
        names = [m.name for m in methods]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} stands in the pipeline more than once; use one, or Only(...) of it")
        self.chosen = methods
        self.methods: tuple[Method, ...] = (
            methods if any(m.name == "uniform" for m in methods) else (Uniform(), *methods)
        )
        for verb, way_out in (("estimate", "Grpo()"), ("loss", "Grpo()")):
            if not self.actors(verb):
                raise ValueError(f"no method of {self!r} acts at {verb}; add one that does, for example {way_out}")
        rules.check(methods)

    @classmethod
    def parse(cls, text: str | Pipeline | Iterable[Mapping[str, object]]) -> Pipeline:
        """A pipeline from what people write: "grpo + mopps(target=0.4)", its own repr, or rows of a TOML file.

        Settings are literals; nothing is evaluated. Raises ValueError that names what is there instead."""
        if isinstance(text, Pipeline):
            return text
        if not isinstance(text, str):
            rows = [dict(row) for row in text]
            for row in rows:
                if "method" not in row:
                    raise ValueError(f"a pipeline row needs the key 'method', got {row!r}")
            return cls(*(catalog.make(str(row.pop("method")), **row) for row in rows))  # type: ignore[arg-type]
        return cls(*(catalog.read(part) for part in catalog.parts(text)))

    @classmethod
    def recorded(cls, experiment: Mapping[str, Any]) -> Pipeline:
        """The pipeline of a recorded experiment; a method that is unknown here stands in it by name, and refuses to act."""
        rows = experiment["pipeline"]
        if isinstance(rows, str):
            return cls.parse(rows)
        return cls(*(catalog.recorded(row, experiment.get("methods", ())) for row in rows))

    @property
    def unknown(self) -> tuple[Unknown, ...]:
        """The methods of a recorded pipeline that are not here."""
        return tuple(m for m in self.methods if isinstance(m, Unknown))

    @property
    def origins(self) -> list[str]:
        """The files and modules outside the package from which its methods come."""
        return sorted({found for m in self.chosen if (found := origin(m))})

    @property
    def spec(self) -> list[dict[str, object]]:
        """The pipeline as data, for TOML and the runs table; `Pipeline.parse` reads it back."""
        return [{"method": m.name, **m.settings} for m in self.chosen]

    def actors(self, verb: str) -> tuple[Method, ...]:
        """The methods that act at a verb: one that decides, or all that refine."""
        having = tuple(m for m in self.methods if verb in m.verbs)
        return having[-1:] if verb in DECIDES else having

    def decider(self, verb: str) -> Method:
        """The method that decides at select, allocate or loss."""
        return self.actors(verb)[0]

    @property
    def needs(self) -> frozenset[str]:
        """All that the methods ask of a world."""
        return frozenset().union(*(m.needs for m in self.methods))

    def check(self, world: World) -> None:
        """Raise where a method is unknown here, or needs what the world does not offer."""
        for m in self.unknown:
            m.refuse()
        for m in self.methods:
            missing = sorted(m.needs - world.offers - set(world.pool.extra))
            if missing:
                raise ValueError(
                    f"{type(m).__name__} needs {', '.join(missing)}, which {type(world).__name__} does not offer "
                    f"(it offers {', '.join(sorted(world.offers)) or 'nothing'}; "
                    f"extra columns of its pool: {', '.join(sorted(world.pool.extra)) or 'none'})"
                )

    def init(self, pool: Pool) -> States:
        """The states of all methods before the first step."""
        return {m.name: m.init(pool) for m in self.methods}

    def observe(self, states: States, step: Step) -> States:
        """The states of all methods after a finished step."""
        return {m.name: observed(m, states[m.name], step) for m in self.methods}

    def fold(self, pool: Pool, steps: Iterable[Step]) -> States:
        """States rebuilt from finished steps alone; equal to what the live run held."""
        states = self.init(pool)
        for step in steps:
            states = self.observe(states, step)
        return states

    def reveal(self, states: States) -> dict[str, Mapping[str, np.ndarray]]:
        """The beliefs of every method that has some, by method name."""
        shown = {m.name: m.reveal(states[m.name]) for m in self.methods}
        return {name: columns for name, columns in shown.items() if columns}

    def who(self) -> dict[str, list[str]]:
        """Verb -> names of the methods that act there, in order."""
        return {v: [m.name for m in self.actors(v)] for v in VERBS if self.actors(v)}

    @property
    def text(self) -> str:
        """The pipeline as people write it, "grpo + mopps(target=0.4)"; `Pipeline.parse` reads it back."""
        return " + ".join(written(m, m.name) for m in self.chosen)

    def __repr__(self) -> str:
        return listed(self.chosen)

    def __str__(self) -> str:
        lines = [self.text]
        lines += [f"  {verb:<9} {' -> '.join(names)}" for verb, names in self.who().items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        cards = {m.name: m.card.title for m in self.methods}
        rows = "".join(
            "<tr><td>{}</td><td>{}</td></tr>".format(
                verb, " → ".join(f'<span title="{escape(cards[n])}">{escape(n)}</span>' for n in names)
            )
            for verb, names in self.who().items()
        )
        return f"<table><caption><code>{escape(repr(self))}</code></caption>{rows}</table>"
