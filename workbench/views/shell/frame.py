"""Page frame of the dashboard as it is served: title, run picker, colours, and the timer of a session."""

from __future__ import annotations

from collections.abc import Sequence

import panel as pn
import panel_material_ui as pmui
from param.parameterized import edit_constant

from workbench.views.parts import theme
from workbench.views.parts.layout import pane
from workbench.views.shell import messages
from workbench.views.shell.dashboard import Dashboard

PERIOD = 700
"""Milliseconds between two looks at the store."""

_FORM = {"typography": {"fontSize": 13, "button": {"textTransform": "none"}}, "shape": {"borderRadius": 8}}
MUI = {
    "light": {"palette": {"primary": {"main": "#24527a"}}, **_FORM},
    "dark": {
        "palette": {"primary": {"main": "#4a8ac6"}},
        "components": {"MuiAppBar": {"styleOverrides": {"root": {"backgroundColor": "#1b3147"}}}},
        **_FORM,
    },
}


def shell(page: Dashboard, title: str = "Rollout Workbench") -> pmui.Page:
    """The frame around a dashboard: title, run picker, switch between light and dark."""
    frame = pmui.Page(
        title=title,
        header=[page.picker],
        main=[page.shell],
        sidebar_open=False,
        sidebar_variant="temporary",
        theme_config=MUI,
        busy_indicator=None,
        sx={
            # a page whose figures grow is taller than the window all the same, and is not to be cut off there
            "& .main-content": {"backgroundColor": theme.GROUND, "overflowY": "auto !important"},
            # on a phone the run picker gives way, not the switch beside it
            "& .MuiAppBar-root .MuiToolbar-root > .MuiBox-root": {"minWidth": 0},
            "@media (max-width: 600px)": {"& .MuiAppBar-root .title": {"fontSize": "0.95rem"}},
        },
    )

    with edit_constant(frame):
        # it follows `pn.state.busy`, which would hold on to every page that was ever opened; what it follows instead is its own
        frame.busy = pn.rx(False)  # type: ignore[assignment]

    def follow(*moved) -> None:
        if page.open and (moved or page.browser.dark):  # a theme that the address names stays
            frame.dark_theme = page.browser.dark

    page.browser.param.watch(follow, "dark")
    page.when_open = follow
    return frame


def app(
    store_url: str, run: str | None = None, pages: Sequence[str] | None = None, *, may_steer: bool = False
) -> pn.viewable.Viewable:
    """The dashboard of a store: the run named, or the newest; all pages, or those named. Served, or shown in a cell.

    A mistake while it is built becomes a page that says so."""
    try:
        served = pn.state.curdoc is not None and pn.state.curdoc.session_context is not None
        page = Dashboard(store_url, run, pages, may_steer)
        page.open = not served
        if (where := pn.state.location) is not None:
            page.bind(where)
        if not served:
            page.tick()
            return shell(page)
        pn.extension("tabulator")  # a page turned to later finds its scripts loaded

        def begin() -> None:
            page.open = True
            page.when_open()
            page.follow()
            pn.state.add_periodic_callback(page.follow, period=PERIOD)

        # the shell first; and what changes while a page is being opened would be lost to Panel's components
        pn.state.onload(begin)
        return shell(page)
    except Exception as problem:  # a blank page would say nothing
        return pane(messages.wrong("The page could not be built", problem))
