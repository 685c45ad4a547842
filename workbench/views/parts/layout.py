"""Layout of pages: boxes, panes, buttons and fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import panel as pn
import panel_material_ui as pmui

from workbench.views.parts import theme


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


def offer(select: pmui.Select, options: Mapping[str, object], value: object) -> None:
    """Options by their labels, and the one chosen. A browser is told of a choice by its label, and by Panel not again where
    another label stands for the same value: that is done here."""
    if options == select.options and value == select.value:
        return
    stays = value == select.value
    select.param.update(options=options, value=value)
    if stays:
        select.param.trigger("value")


def button(label: str, icon: str, act: Callable[[], object], **more: Any) -> pmui.Button:
    """A small outlined button."""
    looks = {"size": "small", "variant": "outlined", "margin": (10, 6, 0, 0)}
    return pmui.Button(label=label, icon=icon, on_click=lambda _: act(), **(looks | more))


def field(kind: Callable[..., Any], label: str, width: int | None = None, *source: Any, **more: Any) -> Any:
    """A small widget with a label: a class of panel-material-ui, or its `from_param` with the parameter."""
    place = {"size": "small", "margin": (10, 12, 0, 0)} | ({"width": width} if width else {})
    return kind(*source, label=label, **(place | more))


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
