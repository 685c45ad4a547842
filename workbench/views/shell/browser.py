"""What the reader's browser keeps, prefers and does: the name typed there before, the system's colours, back and forward."""

from __future__ import annotations

import param
from panel.custom import JSComponent


class Browser(JSComponent):
    """A component without looks: `who` is kept by the browser, `dark` follows the system where the address names no theme.

    Where the reader goes back or forward it tells Panel's model of the address, which writes into the history and hears
    nothing from it."""

    who = param.String(default="", doc="Name of the reader, as it was typed in this browser.")
    dark = param.Boolean(default=False, doc="Whether the system prefers dark colours and the address says nothing.")

    _esm = """
const KEY = "workbench-name"
export function render({model, view}) {
  const went = () => {
    const address = view.model.document.roots().find(m => m.type.endsWith("Location"))
    if (!address) return
    history.pushState = () => {}  // what the model hears would become an entry of its own
    try { address.search = location.search } finally { delete history.pushState }
  }
  window.addEventListener("popstate", went)
  model.on("remove", () => window.removeEventListener("popstate", went))
  try {
    const kept = localStorage.getItem(KEY)
    if (kept && !model.who) model.who = kept
  } catch {}  // a browser that keeps nothing
  model.on("who", () => { try { localStorage.setItem(KEY, model.who) } catch {} })
  if (new URLSearchParams(location.search).has("theme")) return
  const system = window.matchMedia("(prefers-color-scheme: dark)")
  const follow = () => { model.dark = system.matches }
  follow()
  system.addEventListener("change", follow)
  model.on("remove", () => system.removeEventListener("change", follow))
}
"""

    def __init__(self, **params) -> None:
        super().__init__(**({"width": 0, "height": 0, "margin": 0} | params))
