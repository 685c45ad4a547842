"""Keyboard shortcuts of a page: keys pressed anywhere on it, but not while the reader types."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import param
from panel.custom import JSComponent

from workbench.views.parts.theme import asset


class Keys(JSComponent):
    """Calls an action when its key is pressed: `Keys({"n": following, "p": previous})`."""

    names = param.List(default=[], doc="Keys as KeyboardEvent.key names them.")

    _esm = asset("keys.js")

    def __init__(self, actions: Mapping[str, Callable[[], object]], **params) -> None:
        self._actions = dict(actions)
        super().__init__(names=list(actions), **({"width": 0, "height": 0, "margin": 0} | params))

    def _handle_msg(self, message: object) -> None:
        action = self._actions.get(message.get("key", "")) if isinstance(message, dict) else None
        if action is not None:
            action()
