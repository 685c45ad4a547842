"""What a page is: views built once, handed what is new while the page is shown, and the questions behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import panel as pn
import panel_material_ui as pmui

from workbench.views.parts import theme
from workbench.views.parts.sql_text import Asked

if TYPE_CHECKING:
    from workbench.views.data.run import RunData, Source
    from workbench.views.parts.selection import Selection

__all__ = ["Asked", "Page", "card", "grid", "offer", "pane", "plot", "put", "side", "switch"]


class Page:
    """One page of the dashboard. A subclass builds `body` in `__init__` and fills its views in `update`.

    name: its word in the address; title: in the navigation. needs_run: shown only once there is a run; a page without
    that need is handed None as data while there is none. choosing: what to do there to choose a prompt, for the steering
    bar. imports: style sheets that a part of it fetches. asked: what its views ask, for "Show SQL"."""

    name: ClassVar[str]
    title: ClassVar[str]
    needs_run: ClassVar[bool] = True
    choosing: ClassVar[str] = "it is chosen on another page, such as Difficulty"
    imports: ClassVar[tuple[str, ...]] = ()
    body: pn.viewable.Viewable

    def __init__(self, source: Source, chosen: Selection) -> None:
        self.source, self.chosen = source, chosen

    def update(self, data: RunData, force: bool = False) -> None:
        """Hand what is new to the views. The shell calls it while the page is shown: when the store brought something,
        and, with force, when the selection changed or the page was turned to."""
        raise NotImplementedError

    @property
    def asked(self) -> list[Asked]:
        """The questions behind the views, as they stand now."""
        return []


def pane(text: str = "", **params) -> pn.pane.HTML:
    """An HTML pane in the page's style. The caller escapes what comes from outside."""
    return pn.pane.HTML(text, stylesheets=[theme.HTML], sizing_mode="stretch_width", margin=0, **params)


def put(where: pn.pane.HTML, text: str) -> None:
    """Set a pane's text where it changed: what is the same is not sent again."""
    if where.object != text:
        where.object = text


def switch(label: str, icon: str) -> pmui.Toggle:
    """A button that stays down, as flat as the others."""
    flat = {"padding": "3px 9px", "fontSize": "12px", "fontWeight": 500, "letterSpacing": 0, "gap": "4px",
            "& .material-icons, & .MuiIcon-root, & svg": {"fontSize": "16px !important"}}  # fmt: skip
    return pmui.Toggle(label=label, icon=icon, value=False, size="small", margin=(6, 6, 0, 0), sx=flat)


def offer(select: pmui.Select, options: dict[str, object], value: object) -> None:
    """Options by their labels, and the one chosen. A browser is told of a choice by its label, and by Panel not again where
    another label stands for the same value: that is done here."""
    if options == select.options and value == select.value:
        return
    stays = value == select.value
    select.param.update(options=options, value=value)
    if stays:
        select.param.trigger("value")


def _box(style: str, parts: tuple[pn.viewable.Viewable, ...]) -> pn.Column:
    """A column that says itself that it grows where a part does: Panel warns of a box that it has to overrule."""
    grows = any(p.sizing_mode == "stretch_both" for p in parts)
    return pn.Column(*parts, stylesheets=[style], sizing_mode="stretch_both" if grows else "stretch_width", margin=0)


def card(span: int, *parts: pn.viewable.Viewable) -> pn.Column:
    """A bordered box of `span` twelfths of the page; the whole width on a narrow window."""
    return _box(theme.CARD.replace("SPAN", str(span)), parts)


def side(span: int, *cards: pn.viewable.Viewable) -> pn.Column:
    """Cards above each other in one place of the page, `span` twelfths wide."""
    return _box(theme.SIDE.replace("SPAN", str(span)), cards)


def grid(*cards: pn.viewable.Viewable) -> pn.Column:
    """The body of a page: cards in rows of twelve twelfths."""
    return _box(theme.PAGE, cards)


def plot(figure, grows: bool = False) -> pn.pane.Bokeh:
    """A figure as wide as its card; one that grows takes the height that a higher card beside it leaves, too."""
    if not grows:
        return pn.pane.Bokeh(figure, sizing_mode="stretch_width", margin=(4, 0, 0, 0))
    least = figure.height
    figure.update(sizing_mode="stretch_both", min_height=least)
    return pn.pane.Bokeh(figure, sizing_mode="stretch_both", min_height=least, margin=(4, 0, 0, 0))
