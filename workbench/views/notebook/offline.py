"""HoloViews plots in a notebook that fetch nothing: the style sheets of Panel that they name come with them.

`hv.extension("bokeh", inline=True)` brings the scripts into the notebook. HoloViews renders a plot in a layout of Panel,
though, whose style sheets stay addresses on Panel's CDN; without a network the plot stands there without its layout.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from pathlib import Path
from typing import Any

import holoviews as hv
import panel
from holoviews.plotting.bokeh import BokehRenderer
from panel.io.resources import CDN_DIST

DIST = Path(panel.__file__).parent / "dist"
SHEET = re.compile(re.escape(CDN_DIST) + r"([\w./-]+\.css)(?:\?v=[\w.]+)?")


@cache
def _sheet(address: str, path: str) -> str:
    """A style sheet of the installed Panel as an address that holds it; one that is not there keeps its address."""
    file = DIST / path
    if not file.is_file():
        return address
    return "data:text/css;base64," + base64.b64encode(file.read_bytes()).decode()


def carried(markup: str) -> str:
    """Markup in which the style sheets on Panel's CDN are addresses that hold the sheet itself."""
    return SHEET.sub(lambda found: _sheet(found[0], found[1]), markup)


class OfflineRenderer(BokehRenderer):
    """Renders as HoloViews does, with the style sheets in the output of the cell."""

    def components(self, obj: Any, fmt: str | None = None, comm: bool = True, **kwargs: Any) -> tuple[dict, dict]:
        """(data, metadata) by mime type; see `holoviews.plotting.renderer.Renderer.components`."""
        data, about = super().components(obj, fmt, comm, **kwargs)
        return {k: carried(v) if k == "text/html" else v for k, v in data.items()}, about


def load() -> None:
    """Load HoloViews into the notebook, scripts and styles."""
    hv.extension("bokeh", inline=True)
    hv.Store.renderers["bokeh"] = OfflineRenderer.instance()
