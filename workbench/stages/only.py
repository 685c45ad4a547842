"""A method reduced to some of its verbs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench.stages.method import Method, State
from workbench.stages.verbs import VERBS
from workbench.types import Pool, Step
from workbench.types.checkpoint import Checkpoint


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
