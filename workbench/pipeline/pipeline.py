"""Methods put together: who acts at which verb, in which order, and what may not stand together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from workbench.methods.uniform import Uniform
from workbench.pipeline import catalog
from workbench.pipeline.masking import observed
from workbench.stages import DECIDES, VERBS, Method, Only, State, World
from workbench.types import Pool, Step

States = dict[str, State]


class Pipeline:
    """A list of methods, read in order: at select, allocate and loss the last one that has the verb decides;
    at the others every one that has it refines. Prompts nobody selects are shuffled, rollouts nobody allocates
    are spread evenly (`Uniform`)."""

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
        self._check_hints()
        self._check_carried()
        self._check_order()

    def _check_hints(self) -> None:
        """Raise ValueError where two methods show hints: a rollout begins after one of them, and nothing compares the two."""
        hinting = [m.name for m in self.methods if m.hinting and "amend" in m.verbs]
        if len(hinting) > 1:
            raise ValueError(
                f"{' and '.join(hinting)} both show hints in {self!r}: neither knows the other's rollouts, so a prompt is "
                "hinted twice or not at all, and of its two comparisons with plain rollouts the last one stands; keep one of "
                "them, and compare the two as two runs"
            )

    def _check_carried(self) -> None:
        """Raise ValueError where a method takes groups up again that another split."""
        acting = self.actors("amend")
        carrying = [m.name for m in acting if "resume" in m.needs]
        splitting = [m.name for m in acting if m.splits]
        if carrying and splitting:
            raise ValueError(
                f"{carrying[0]} carries groups over into the next step as plain rollouts, and {' and '.join(splitting)} would "
                f"have put a part of them off or begun it elsewhere: that part would be lost; keep one of them in {self!r}"
            )

    def _check_order(self) -> None:
        """Raise ValueError where what stands in front leaves nothing to one behind it, or is undone by it; with the order to
        write."""
        if found := self._behind("estimate", lambda m: m.across, lambda m: m.anew):
            first, behind, order = found
            raise ValueError(
                f"behind {first}, {behind} would compute advantages anew, group by group, and undo what {first} makes of a "
                f"prompt's groups together; write {order}"
            )
        if found := self._behind("amend", lambda m: m.rooting, lambda m: m.splits):
            first, behind, order = found
            raise ValueError(
                f"behind {first}, which leaves few rollouts of each group for the others to grow from, {behind} would find "
                f"none to take a share of; write {order}"
            )

    def _behind(
        self, verb: str, moves: Callable[[Method], bool], stays: Callable[[Method], bool]
    ) -> tuple[str, str, str] | None:
        """The first method that moves behind others, which stay, at a verb; those others; and the pipeline in which all such
        stand there. None where they do."""
        acting = self.actors(verb)
        late = {m.name: [o for o in acting[k + 1 :] if stays(o)] for k, m in enumerate(acting) if moves(m)}
        late = {name: others for name, others in late.items() if others}
        if not late:
            return None
        first, others = next(iter(late.items()))
        rest = [m for m in self.chosen if m.name not in late]
        at = rest.index(others[-1]) + 1
        moved = sorted((m for m in self.chosen if m.name in late), key=lambda m: not stays(m))
        order = [*rest[:at], *moved, *rest[at:]]
        return first, " and ".join(m.name for m in others), _listed(order)

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
        """Raise where a method needs what the world does not offer."""
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
        return " + ".join(_written(m, m.name) for m in self.chosen)

    def __repr__(self) -> str:
        return _listed(self.chosen)

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


def _listed(methods: Iterable[Method]) -> str:
    """Methods as the pipeline that has them in this order."""
    return f"Pipeline({', '.join(_written(m, type(m).__name__ + '()') for m in methods)})"


def _written(method: Method, plain: str) -> str:
    """A method with the settings that differ from the paper's, in the form of `plain` ("mopps" or "Mopps()")."""
    if isinstance(method, Only):
        inner = _written(method.method, plain if not plain.endswith("()") else type(method.method).__name__ + "()")
        return f"Only({inner}, {', '.join(map(repr, method.only))})"
    settings = ", ".join(f"{k}={v!r}" for k, v in method.settings.items())
    return f"{plain.removesuffix('()')}({settings})" if settings else plain
