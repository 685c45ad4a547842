"""A method reduced to some of its verbs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench.stages.method import Method, State
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
        self.method, self.only = method, verbs
        self.card, self.needs, self.effects = method.card, method.needs, method.effects  # type: ignore[misc]
        for verb in verbs:
            setattr(self, verb, getattr(method, verb))

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
