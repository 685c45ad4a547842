"""Browser state of the reader: the name typed before, the system's colours, back and forward."""

from __future__ import annotations

import param
from panel.custom import JSComponent

from workbench.views.parts.theme import asset


class Browser(JSComponent):
    """An invisible component: `who` is kept by the browser, `dark` follows the system where the address names no theme.

    Where the reader goes back or forward it tells Panel's model of the address, which writes into the history and hears
    nothing from it."""

    who = param.String(default="", doc="Name of the reader, as it was typed in this browser.")
    dark = param.Boolean(default=False, doc="Whether the system prefers dark colours and the address says nothing.")

    _esm = asset("browser.js")

    def __init__(self, **params) -> None:
        super().__init__(**({"width": 0, "height": 0, "margin": 0} | params))
