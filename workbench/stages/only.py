"""`Only`: one method reduced to some of its verbs, such as the allocation of Xrpo."""

from __future__ import annotations

from workbench.stages.method import Method
from workbench.types.checkpoint import Checkpoint


class Only(Method):
    """A method reduced to some of its verbs: `Only(Xrpo(), "allocate")`; its state and beliefs are the whole method's.

    >>> from workbench.methods import Xrpo
    >>> Only(Xrpo(), "allocate").verbs
    ('allocate',)
    """

    def __init__(self, method: Method, *verbs: str) -> None:
        missing = [v for v in verbs if v not in method.verbs]
        if missing or not verbs:
            raise ValueError(
                f"{type(method).__name__} acts at {', '.join(method.verbs)}; "
                f"{', '.join(missing) or 'nothing'} was asked of it"
            )
        self.method, self.only = method, verbs
        self.card, self.needs, self.effects = method.card, method.needs, method.effects  # type: ignore[misc]
        for name in ("init", "observe", "reveal", *verbs):
            setattr(self, name, getattr(method, name))

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
