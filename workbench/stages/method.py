"""Method base class: a card, frozen settings, one state, and the verbs that a paper changes.

A method is one paper: frozen settings with the paper's defaults, one state, and those of the verbs below that
the paper changes. It learns only from finished steps (`observe`), so folding stored steps rebuilds its state
anywhere: live, in replay, in simulation, in another trainer. It never sees a model, an engine, a store or a loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import numpy as np

from workbench.stages.effects import Effect
from workbench.stages.verbs import VERBS
from workbench.types import Pool, Step
from workbench.types.checkpoint import Checkpoint

State: TypeAlias = Any
"""Whatever a method remembers between steps: a NamedTuple of arrays, or () for nothing."""


@dataclass(frozen=True)
class Card:
    """Where a method comes from. source: how well its formulas are known (code, C*, paper, notes, ours).

    >>> from workbench.methods import Grpo
    >>> Grpo.card.slug, Grpo.card.arxiv
    ('grpo', '2402.03300')
    """

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
        deviations = "".join(f"<li>{escape(d)}</li>" for d in self.deviations)
        return f"<b>{escape(self.title)}</b> <code>{escape(self.slug)}</code><table>{rows}</table>{f'<ul>{deviations}</ul>' if deviations else ''}"


PAUSE = Checkpoint()
"""Every 16 tokens."""


class Method:
    """Base of all methods: settings are dataclass fields, stored unchanged; without verbs it does nothing.

    >>> from workbench.methods import Grpo
    >>> Grpo().verbs
    ('estimate', 'loss')
    """

    card: ClassVar[Card]
    needs: ClassVar[frozenset[str]] = frozenset()
    """Columns that it wants of the world, such as "token_entropy" (Echo)."""
    effects: ClassVar[frozenset[Effect]] = frozenset()
    """What it does to methods beside it, such as REPLACES_ADVANTAGES (Grpo); a pipeline refuses what does not go together."""
    acts_if: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Verb -> the setting, or property of settings, without which it does not act there: {"prune": "markers"} (Duet)."""

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
        return tuple(v for v in VERBS if hasattr(self, v) and (v not in self.acts_if or getattr(self, self.acts_if[v])))

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
