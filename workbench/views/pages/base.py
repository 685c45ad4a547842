"""Base class of the dashboard's pages: views built once, handed what is new while the page is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import panel as pn

from workbench.views.data.sql_text import Query
from workbench.views.parts.picker import ELSEWHERE

if TYPE_CHECKING:
    from workbench.views.data.run import Source
    from workbench.views.data.selection import Selection


class Page:
    """One page of the dashboard. A subclass builds `body` in `__init__` and fills its views in `update`.

    title, order: in the navigation, smaller numbers first; its name in the address is that of its file. needs_run: shown only once there is a run; a page without
    that need is handed None as data while there is none. choosing: what to do there to choose a prompt, for the steering
    bar. imports: style sheets that a part of it fetches. queries: what its views ask, for "Show SQL"."""

    title: ClassVar[str]
    order: ClassVar[float] = 100
    needs_run: ClassVar[bool] = True
    choosing: ClassVar[str] = ELSEWHERE
    imports: ClassVar[tuple[str, ...]] = ()
    body: pn.viewable.Viewable

    def __init__(self, source: Source, chosen: Selection) -> None:
        self.source, self.chosen = source, chosen

    def update(self, data: Any, force: bool = False) -> None:
        """Hand what is new to the views. The shell calls it while the page is shown: when the store brought something,
        and, with force, when the selection changed or the page was turned to. data: the `RunData` of the run that is
        shown; None only for a page that needs no run."""
        raise NotImplementedError

    @property
    def queries(self) -> list[Query]:
        """The questions behind the views, as they stand now."""
        return []
