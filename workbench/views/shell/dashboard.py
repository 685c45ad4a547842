"""Dashboard: run picker, navigation, messages, the page that is shown, and the SQL behind it.

Everything is built once, a page when it is first turned to. A timer of the session asks the shared source what is new
and hands it to the page that is shown; the training process never knows that anybody looks. Whatever goes wrong in a
refresh is shown as a message above the last good state, and the next refresh tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import panel as pn
import panel_material_ui as pmui
import param

from workbench.store.errors import StoreError
from workbench.views.data.run import RunData, Source
from workbench.views.data.selection import Selection, address, chosen_by, unread
from workbench.views.data.steering import steering
from workbench.views.data.text import one_line
from workbench.views.pages import PAGES
from workbench.views.pages.base import Page
from workbench.views.parts import cards, theme
from workbench.views.parts.browser import Browser
from workbench.views.parts.keys import Keys
from workbench.views.parts.layout import card, offer, pane, put, switch
from workbench.views.parts.picker import ELSEWHERE
from workbench.views.parts.steering_bar import SteeringBar
from workbench.views.shell import messages
from workbench.views.shell.stale_links import mended

LONGEST_REST = 2.0
"""Seconds between two looks at the store, at most, where a look takes long."""


class Dashboard:
    """All pages of one store and the one selection they share.

    names: the pages to have, default all; with one there is no navigation. `source`, `chosen` and `body` (of the
    page that is shown) are there to be used by a dashboard of your own; `tick` looks at the store. open: whether what is
    chosen is drawn at once; one that is served waits for its browser. may_steer: whether
    the bar steers, or only shows; `server.serve` gives that to those who come from this machine or with the token."""

    def __init__(
        self, store_url: str, run: str | None = None, names: Sequence[str] | None = None, may_steer: bool = False
    ) -> None:
        self.names = tuple(names or PAGES)
        steered, self._imports = False, []
        # now: BokehJS hears of a component's data model with the document, never after it; and of a style sheet that came
        # later it tells the server as of a new one, once panel-material-ui adds one to it in the browser
        for name in self.names:
            with suppress(Exception):  # told when the page is turned to
                steered |= PAGES[name].needs_run
                self._imports += PAGES[name].imports
        self.source = Source.of(store_url)
        self.chosen = Selection(run=run or "", page=self.names[0])
        self.pinned = run is not None
        self.may_steer = may_steer
        self.refresh_ms = self._rests_until = 0.0
        self._pages: dict[str, Page] = {}
        self._seen: tuple = ()
        self._drawing = self._again = False
        self._unchecked, self._unread = False, []
        self._write: Callable[[], None] = lambda: None
        self.open = True
        self.when_open: Callable[[], None] = lambda: None
        self.browser = Browser()
        self.steering_bar = SteeringBar(self.chosen, may_steer, self.browser) if steered else None
        self._build()
        self.chosen.param.watch(self._chose, [n for n in self.chosen.param if n != "name"])

    def _build(self) -> None:
        self.message, self.notice = pane(visible=False), pane(visible=False)
        self.picker = pmui.Select(
            options=[], size="small", margin=(6, 12), color="light", sizing_mode="stretch_width", min_width=90,
            max_width=330, visible=False,
        )  # fmt: skip
        self.picker.param.watch(self._picked, "value")
        self.tabs = pmui.TabMenu(
            items=[{"label": PAGES.title(n)} for n in self.names], active=0, variant="scrollable",
            sizing_mode="stretch_width", min_width=100,
        )  # fmt: skip
        self.tabs.param.watch(self._turned, "active")
        self.show_sql = switch("Show SQL", "code")
        self.show_sql.param.watch(lambda _: self._show_queries(), "value")
        self.questions = pane()
        self.sql_card = card(12, self.questions)
        self.sql_card.visible = False
        navigation = [self.tabs] if len(self.names) > 1 else [pn.Spacer(sizing_mode="stretch_width")]
        keys: dict[str, Callable[[], object]] = {
            str(i): partial(self.chosen.param.update, page=n) for i, n in enumerate(self.names, 1)
        }
        keys["s"] = lambda: self.show_sql.param.update(value=not self.show_sql.value)
        self.navigation = pn.Row(
            *navigation,
            self.show_sql,
            Keys(keys),
            self.browser,
            pn.Spacer(width=0, height=0, margin=0, stylesheets=self._imports),
            stylesheets=[theme.NAVIGATION],
            sizing_mode="stretch_width",
            margin=0,
        )
        self.no_run, self.mistake = pane(cards.empty("Looking for runs …")), pane()
        self.empty, self.broken = card(12, self.no_run), card(12, self.mistake)
        for apart in (self.message, self.notice, self.sql_card, self.empty, self.broken):
            apart.margin = (12, 12, 0, 12)
        bar = self.steering_bar.bar if self.steering_bar else pn.Spacer(height=0)
        self.shell = pn.Column(
            self.navigation,
            pn.Column(self.message, self.notice, sizing_mode="stretch_width", margin=0),
            bar,
            self.sql_card,
            self.empty,
            sizing_mode="stretch_both",
            margin=0,
        )

    # the pages

    @property
    def page(self) -> Page:
        """The page that is shown, built when it is first asked for; raises what building it raises."""
        name = self.chosen.page
        if name not in self._pages:
            self._pages[name] = PAGES[name](self.source, self.chosen)
        return self._pages[name]

    @property
    def body(self) -> pn.viewable.Viewable:
        """The cards of the page that is shown."""
        return self.page.body

    @property
    def shown(self) -> pn.viewable.Viewable:
        """What stands in the place of the page: its body, or a message."""
        return self.shell.objects[4]

    # what the reader does

    def _picked(self, event) -> None:
        if event.new and event.new != self.chosen.run:
            self.pinned = True
            self.chosen.look_at(event.new)

    def _turned(self, event) -> None:
        if event.new is not None:
            self.chosen.page = self.names[event.new]

    def _chose(self, *events) -> None:
        if any(e.name == "page" for e in events) and self.chosen.page in self.names:
            self.tabs.active = self.names.index(self.chosen.page)
        self.notice.visible = False
        if self.open:
            self._guarded(lambda: self.update(force=True))

    def bind(self, location) -> None:
        """Keep the selection in the address bar. The run stands there once it matters which one it is."""
        following = False

        def write(*_) -> None:
            nonlocal following
            if following:
                return
            own = [n for n in Selection.OF_RUN if getattr(self.chosen, n) != self.chosen.param[n].default]
            leave_out = [] if self.pinned or own else ["run"]
            leave_out += [] if len(self.names) > 1 else ["page"]
            colours = parse_qs((location.search or "").removeprefix("?")).get("theme", [])
            following = True
            try:
                location.search = address(self.chosen, tuple(leave_out), {"theme": colours[-1]} if colours else {})
            finally:
                following = False

        def read(*_) -> None:
            wanted = chosen_by(location.search or "")
            if wanted.get("page") not in self.names:
                wanted.pop("page", None)
            self.pinned = self.pinned or "run" in wanted
            self._unread = unread(location.search or "")
            self._unchecked |= bool(self._unread)
            if any(getattr(self.chosen, name) != value for name, value in wanted.items()):
                self._unchecked = True
                self.chosen.param.update(**wanted)

        def go(*_) -> None:
            """Back or forward in the browser's history: what the address does not name is as at the start."""
            nonlocal following
            if following:
                return
            left = {n: p.default for n, p in self.chosen.param.objects("existing").items() if n not in ("name", "run")}
            following, self.pinned = True, False
            try:
                with param.parameterized.batch_call_watchers(self.chosen):
                    self.chosen.param.update(**(left | {"page": self.names[0]}))
                    read()
            finally:
                following = False
            if self.notice.visible:
                write()

        self._write = write
        read()
        self.chosen.param.watch(write, [n for n in self.chosen.param if n != "name"])
        location.param.watch(go, "search")

    # what the timer does

    def _data(self) -> RunData | None:
        known = [r["run"] for r in self.source.runs]
        return self.source.run(self.chosen.run) if self.chosen.run in known else None

    def tick(self) -> None:
        """One look at the store; an error becomes a message, never a blank page."""
        began = time.perf_counter()

        def look() -> None:
            try:
                self.source.refresh()
            except FileNotFoundError:
                if self.source.runs:  # else nobody has recorded anything yet
                    raise
            self._offer_runs()
            self.update()

        self._guarded(look)
        self.refresh_ms = 1e3 * (time.perf_counter() - began)

    def follow(self) -> None:
        """The timer's look at the store, no sooner after the last one than that took: in between the server hears what the
        reader does, for one that is always looking would answer a click after all that came before it, a look for each."""
        if time.perf_counter() >= self._rests_until:
            self.tick()
            self._rests_until = time.perf_counter() + min(self.refresh_ms / 1e3, LONGEST_REST)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
            self.message.visible = False
        except FileNotFoundError as missing:
            if not self.source.runs:  # a page that asks the store, though it needs no run
                self._without_run()
                return
            put(
                self.message,
                cards.error("The store has disappeared", f"{missing}; what is shown is the last that was read."),
            )
            self.message.visible = True
        except Exception as problem:  # shown to the reader, tried again at the next tick
            put(self.message, messages.wrong("The store could not be read", problem))
            self.message.visible = True

    def _without_run(self) -> None:
        """In the place of a page that needs a run: there is none yet, or none of the name chosen."""
        runs, where = [r["run"] for r in self.source.runs], self.source.where
        if runs and not self.chosen.run:  # the next look at the store chooses one
            return
        self._main(self.empty)
        put(self.no_run, messages.no_such_run(self.chosen.run, runs, where) if runs else messages.nothing_yet(where))

    def _check(self, data: RunData) -> None:
        """Once after an address was read: mend what of it is not recorded, and say so until something else is chosen."""
        self._unchecked = False  # first: the mended selection is drawn at once
        change, notes = mended(self.chosen, data)
        notes += [f"{one_line(word, 60)!r} cannot be read" for word in self._unread]
        if notes:
            self.chosen.param.update(**change)
            self._write()
            put(self.notice, cards.error("Not all of the address could be followed", "; ".join(notes)))
            self.notice.visible = True

    def _of_page(self, name: str, otherwise: Any) -> Any:
        """An attribute of the page that is shown; otherwise where it cannot be built, which is shown in its place."""
        try:
            return getattr(self.page, name)
        except Exception:
            return otherwise

    def _main(self, shown: pn.viewable.Viewable) -> None:
        if self.shown is not shown:
            self.shell[4] = shown

    def _offer_runs(self) -> None:
        if not (runs := self.source.runs):
            return
        options = {f"{r['run']}  ({r['status'] or '?'})": r["run"] for r in runs}
        if self.chosen.run != runs[0]["run"] and not self.pinned:
            if self.chosen.run:
                self.chosen.look_at(runs[0]["run"])
            else:  # the first look: what the address names of the newest run stays
                self.chosen.run = runs[0]["run"]
        if self.chosen.run not in options.values():
            options = {f"{self.chosen.run}  (not found)": self.chosen.run, **options}
        offer(self.picker, options, self.chosen.run)
        if not self.picker.visible:
            self.picker.visible = True

    def update(self, force: bool = False) -> None:
        """Hand what is new to the page that is shown; with force, all of it."""
        if self._drawing:
            self._again |= force
            return
        data = self._data()
        if data is None and self._of_page("needs_run", False):
            self._without_run()
            return
        stamp: tuple = (self.chosen.page,)
        if data is not None:
            data.refresh()
            if self._unchecked and data.step:
                self._check(data)
            if self.steering_bar is not None:
                self.steering_bar.choosing = self._of_page("choosing", ELSEWHERE)
                self.steering_bar.update(data)
            stamp += (
                data.facts,
                len(data.evaluation.step),
                data.warnings,
                data.notes[:1],
                *steering(data).commands[:1],
            )
        if stamp == self._seen and not force:
            return
        self._drawing = True
        try:
            with pn.io.hold():
                self._draw(data, force or stamp[:1] != self._seen[:1])
        finally:
            self._drawing = False
        self._seen = stamp
        if self._again:  # the page itself chose something while it was drawn
            self._again = False
            self.update(force=True)

    def _draw(self, data: RunData | None, force: bool) -> None:
        """One page's mistake is shown in its place; the others go on."""
        try:
            self.page.update(data, force)
            shown = self.page.body
        except (StoreError, OSError):  # of the store, not of the page
            raise
        except Exception as problem:
            title = f"The page {PAGES.title(self.chosen.page)} could not be drawn"
            put(self.mistake, messages.wrong(title, problem))
            shown = self.broken
        self._main(shown)
        self._show_queries()

    def _show_queries(self) -> None:
        self.sql_card.visible = self.show_sql.value
        if not self.show_sql.value:
            return
        try:
            put(self.questions, cards.query_list(self.page.queries))
        except Exception as problem:
            put(self.questions, messages.wrong("The questions of this page could not be shown", problem))
