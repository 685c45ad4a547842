"""Keys pressed anywhere on a page, but not while the reader types: a component without looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import param
from panel.custom import JSComponent


class Keys(JSComponent):
    """Calls an action when its key is pressed: `Keys({"n": following, "p": previous})`."""

    names = param.List(default=[], doc="Keys as KeyboardEvent.key names them.")

    _esm = """
export function render({model, el}) {
  const busy = "input, textarea, select, [contenteditable], [role=slider], [role=tab], [role=listbox], [role=radiogroup]"
  const pressed = (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || !model.names.includes(e.key)) return
    if (!el.isConnected) { window.removeEventListener("keydown", pressed); return }
    if (e.composedPath().some(n => n.matches && n.matches(busy))) return
    e.preventDefault()
    model.send_msg({key: e.key})
  }
  window.addEventListener("keydown", pressed)
  model.on("remove", () => window.removeEventListener("keydown", pressed))
}
"""

    def __init__(self, actions: Mapping[str, Callable[[], None]], **params) -> None:
        self._actions = dict(actions)
        super().__init__(names=list(actions), **({"width": 0, "height": 0, "margin": 0} | params))

    def _handle_msg(self, message: object) -> None:
        action = self._actions.get(message.get("key", "")) if isinstance(message, dict) else None
        if action is not None:
            action()
