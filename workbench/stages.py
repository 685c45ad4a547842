"""The verbs of a training step, and what it takes to be a method.

A method is one paper: frozen settings with the paper's defaults, one state, and those of the verbs below that
the paper changes. It learns only from finished steps (`observe`), so folding stored steps rebuilds its state
anywhere: live, in replay, in simulation, in another trainer. It never sees a model, an engine, a store or a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from workbench.pauses import Checkpoint, Pauses
from workbench.types import (
    Advantage,
    Cut,
    Fork,
    Frontier,
    Loss,
    Plan,
    Pool,
    Rollouts,
    Step,
)

State: TypeAlias = Any
"""Whatever a method remembers between steps: a NamedTuple of arrays, or () for nothing."""

DECIDES = ("select", "allocate", "loss")
"""Verbs at which the last method of the list that has them decides."""

REFINES = ("amend", "more", "branch", "prune", "reward", "admit", "replay", "estimate", "penalty")
"""Verbs at which every method that has them acts, in list order."""

VERBS = (
    "select",
    "allocate",
    "amend",
    "more",
    "branch",
    "prune",
    "reward",
    "admit",
    "replay",
    "estimate",
    "loss",
    "penalty",
)
"""All verbs, in the order in which a step comes to them.

select(state, draft, rng) -> Picked        which prompts, at most draft.wanted of draft.candidates(), and by what figures
allocate(state, draft, rng) -> Plan        how many rollouts for draft.fresh (or, in a later round, for any prompt)
amend(state, plan, draft, rng) -> Plan     hints, one rollout more, caps
more(state, draft) -> int                  prompts still wanted in this step; the pipeline's own selector picks them
branch(state, frontier, rng) -> Fork       where a rollout forks; asked at the method's own checkpoint, as prune is
prune(state, frontier, rng) -> Cut         where it stops; widths multiply, a stop wins
reward(state, rollouts) -> Rollouts        shaped or judged rewards
admit(state, rollouts, draft) -> (R,) mask what may enter the batch on arrival
replay(state, rollouts, draft, rng) -> Rollouts   rollouts of earlier steps or other nodes, added
estimate(state, advantage, draft, rng) -> Advantage
loss(state, batch) -> Loss                 the objective, in torch
penalty(state, batch) -> Loss              a term beside it
"""


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


class Only(Method):
    """A method reduced to some of its verbs: `Only(Xrpo(), "allocate")`; it observes as before."""

    def __init__(self, method: Method, *verbs: str) -> None:
        missing = [v for v in verbs if v not in method.verbs]
        if missing or not verbs:
            raise ValueError(
                f"{type(method).__name__} acts at {', '.join(method.verbs)}; "
                f"{', '.join(missing) or 'nothing'} was asked of it"
            )
        self.method = method
        self.only = verbs
        self.card = method.card  # type: ignore[misc]
        self.needs = method.needs  # type: ignore[misc]
        self.overlaps = method.overlaps  # type: ignore[misc]
        for fact in ("hinting", "across", "anew", "splits", "rooting"):
            setattr(self, fact, getattr(method, fact))

    def __getattr__(self, name: str) -> object:
        if name in VERBS:
            if name in self.__dict__.get("only", ()):
                return getattr(self.method, name)
            raise AttributeError(f"{self!r} does not act at {name}")
        raise AttributeError(name)

    def init(self, pool: Pool) -> State:
        """The state of the whole method."""
        return self.method.init(pool)

    def observe(self, state: State, step: Step) -> State:
        """The whole method observes."""
        return self.method.observe(state, step)

    def reveal(self, state: State) -> Mapping[str, np.ndarray]:
        """The beliefs of the whole method."""
        return self.method.reveal(state)

    @property
    def settings(self) -> dict[str, object]:
        """Settings of the whole method, and the verbs kept."""
        return {**self.method.settings, "only": list(self.only)}

    @property
    def checkpoint(self) -> Checkpoint:
        """Where the method pauses."""
        return self.method.checkpoint

    def __repr__(self) -> str:
        return f"Only({self.method!r}, {', '.join(map(repr, self.only))})"

    def _repr_html_(self) -> str:
        return f"only {', '.join(self.only)} of {self.method._repr_html_()}"


@dataclass(frozen=True)
class Branch:
    """What all methods that branch make of a frontier, and where rollouts pause for it."""

    act: Callable[[Frontier], Fork]
    checkpoint: Checkpoint | Pauses = PAUSE

    def __call__(self, frontier: Frontier) -> Fork:
        """Decide."""
        return self.act(frontier)


@dataclass(frozen=True)
class Prune:
    """What all methods that prune make of a frontier, and where rollouts pause for it."""

    act: Callable[[Frontier], Cut]
    checkpoint: Checkpoint | Pauses = PAUSE

    def __call__(self, frontier: Frontier) -> Cut:
        """Decide."""
        return self.act(frontier)


LossFn: TypeAlias = Callable[..., Loss]


class World(Protocol):
    """Where rollouts come from: a simulation, a recorded run, a live model."""

    pool: Pool
    offers: frozenset[str]
    """What methods may name in `needs`."""

    @property
    def version(self) -> int:
        """Updates the current policy has seen."""
        ...

    def sample(self, plan: Plan, branch: Branch | None = None, prune: Prune | None = None) -> Rollouts:
        """Generate and verify what the plan asks for; one row per rollout, ids as `Rollouts.asked` gives them."""
        ...

    def score(self, rollouts: Rollouts, needs: frozenset[str]) -> Rollouts:
        """Add the columns named in needs (proximal logprobs, embeddings, ...) before estimate."""
        ...

    def update(
        self, rollouts: Rollouts, advantage: Advantage, loss: LossFn, penalties: list[LossFn]
    ) -> Mapping[str, float | np.ndarray]:
        """One optimiser step on the kept rows; scalars, and (R,) columns where they are per rollout."""
        ...
