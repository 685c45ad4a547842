"""What it takes to be a method: a card, frozen settings, one state, and the verbs that the paper changes.

A method is one paper: frozen settings with the paper's defaults, one state, and those of the verbs below that
the paper changes. It learns only from finished steps (`observe`), so folding stored steps rebuilds its state
anywhere: live, in replay, in simulation, in another trainer. It never sees a model, an engine, a store or a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, TypeAlias

import numpy as np

from workbench.stages.verbs import VERBS
from workbench.types import Pool, Step
from workbench.types.checkpoint import Checkpoint

State: TypeAlias = Any
"""Whatever a method remembers between steps: a NamedTuple of arrays, or () for nothing."""


@dataclass(frozen=True)
class Card:
    """Where a method comes from. source: how well its formulas are known (code, C*, paper, notes, ours)."""

    slug: str
    title: str
    arxiv: str = ""
    code: str = ""
    source: str = "paper"
    deviations: tuple[str, ...] = ()
    watch: str = ""
    """What to look at when it runs."""
    unspent: str = ""
    """Why a part of a step's rollouts may stay unspent; "" = its allocation always spends them all."""
    golden: str = ""
    """The file of test vectors, where its name is not the slug."""

    def _repr_html_(self) -> str:
        from html import escape

        paper = f'<a href="https://arxiv.org/abs/{escape(self.arxiv)}">{escape(self.arxiv)}</a>' if self.arxiv else ""
        facts = {"paper": paper} | {
            name: escape(text)
            for name, text in (
                ("code", self.code),
                ("source", self.source),
                ("watch", self.watch),
                ("unspent", self.unspent),
            )
        }
        rows = "".join(f"<tr><td>{name}</td><td>{text}</td></tr>" for name, text in facts.items() if text)
        told = "".join(f"<li>{escape(d)}</li>" for d in self.deviations)
        return f"<b>{escape(self.title)}</b> <code>{escape(self.slug)}</code><table>{rows}</table>{f'<ul>{told}</ul>' if told else ''}"


PAUSE = Checkpoint()
"""Every 16 tokens."""


class given:
    """A verb that a method has only where one of its settings is set: `@given("markers")` above `def prune`."""

    def __init__(self, setting: str) -> None:
        self.setting = setting

    def __call__(self, verb: Callable[..., Any]) -> given:
        """Take the verb."""
        self.verb = verb
        return self

    def __get__(self, method: Method | None, owner: type) -> Callable[..., Any]:
        if method is None:
            return self.verb
        if not getattr(method, self.setting):
            raise AttributeError(f"{method!r} acts at {self.verb.__name__} only where {self.setting} is set")
        return self.verb.__get__(method, owner)


class Method:
    """Base of all methods: settings are dataclass fields, stored unchanged; without verbs it does nothing."""

    card: ClassVar[Card]
    needs: ClassVar[frozenset[str]] = frozenset()
    overlaps: ClassVar[bool] = True
    """Whether a step may be planned while an earlier one is not finished."""
    hinting: ClassVar[bool] = False
    """Whether it starts rollouts of a prompt after texts of its own; a pipeline has one such method."""
    across: ClassVar[bool] = False
    """Whether its estimate compares rollouts of a prompt that began differently, which stand in different groups."""
    anew: ClassVar[bool] = False
    """Whether its estimate ignores the advantages that stand before it; it may not stand behind one that compares across."""

    splits: ClassVar[bool] = False
    """Whether its amend takes a share of each plain ask, to begin it elsewhere or in the next round (`hints.hold_back`); it
    may not stand behind a method that is `rooting`."""
    rooting: ClassVar[bool] = False
    """Whether its amend leaves few rollouts of each plain ask, sometimes one; the rest of the group grows from them."""

    @property
    def checkpoint(self) -> Checkpoint:
        """Where rollouts pause for this method's branch and prune."""
        return PAUSE

    def init(self, pool: Pool) -> State:
        """The state before the first step."""
        return ()

    def observe(self, state: State, step: Step) -> State:
        """The state after a finished step; pure, the old state stays valid."""
        return state

    def reveal(self, state: State) -> Mapping[str, np.ndarray]:
        """(N,) columns of belief for the store and the views: mean, low, high, and the method's own."""
        return {}

    @property
    def name(self) -> str:
        """The slug under which the catalog, the store and the plots know it."""
        return self.card.slug

    @property
    def verbs(self) -> tuple[str, ...]:
        """The verbs at which this method acts."""
        return tuple(v for v in VERBS if hasattr(self, v))

    @property
    def settings(self) -> dict[str, object]:
        """Constructor arguments that differ from the paper's defaults."""
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)  # type: ignore[arg-type]
            if f.default is MISSING or getattr(self, f.name) != f.default
        }

    def _repr_html_(self) -> str:
        from html import escape

        link = f"https://arxiv.org/abs/{self.card.arxiv}" if self.card.arxiv else ""
        title = f'<a href="{link}">{escape(self.card.title)}</a>' if link else escape(self.card.title)
        rows = "".join(
            f"<tr><td>{escape(f.name)}</td><td><code>{escape(repr(getattr(self, f.name)))}</code></td></tr>"
            for f in fields(self)  # type: ignore[arg-type]
        )
        deviations = "".join(f"<li>{escape(d)}</li>" for d in self.card.deviations)
        return (
            f"<b>{title}</b><br>acts at {', '.join(self.verbs)} · source: {escape(self.card.source)}"
            f"<table>{rows}</table>{f'<ul>{deviations}</ul>' if deviations else ''}"
        )
