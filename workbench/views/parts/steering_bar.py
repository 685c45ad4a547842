"""The steering bar: buttons, settings and methods of the run that is shown, and what became of what was asked.

Every click leaves a request in the run's inbox and says so; the words change when the record does. It owns no query.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui

from workbench.runs.steering.inbox import Inbox
from workbench.runs.steering.requests import Request, current_user
from workbench.store.errors import StoreError
from workbench.views.data.run import RunData
from workbench.views.data.selection import Selection
from workbench.views.data.settings import SETTINGS, figure
from workbench.views.data.steering import Command, Now, steering
from workbench.views.data.text import html, one_line
from workbench.views.parts import theme
from workbench.views.parts.browser import Browser
from workbench.views.parts.cards import badge, command_table, head
from workbench.views.parts.layout import card, pane, put, switch
from workbench.views.parts.picker import ELSEWHERE

LOOK = "Here one may look, not steer: `workbench dashboard` steers, with its token or on the machine where it runs."
SMALL = {"size": "small", "variant": "outlined", "margin": (6, 6, 0, 0)}
SURE = 8.0
"""Seconds in which a second click on Stop must follow."""

READ = 8.0
"""Seconds for which an answer to a click stands at least; then the next command takes its place."""


class SteeringBar:
    """`bar` for the shell, and `update` for each look at the run. may: whether this viewer may steer; browser: keeps the
    viewer's name, under which requests are recorded; choosing: how a prompt is chosen on the page that is shown."""

    def __init__(self, chosen: Selection, may: bool = False, browser: Browser | None = None) -> None:
        self.chosen, self.may, self.browser = chosen, may, browser or Browser()
        self._data: RunData | None = None
        self.choosing = ELSEWHERE
        self._answer, self._answered, self._latest = "", 0.0, ""
        self._asked_stop = 0.0
        self._shown, self._newest = Now(), ("", "")
        self._touched: set[str] = set()
        self._filling = False
        self._build()

    def _build(self) -> None:
        def button(label: str, icon: str, act: Callable[[], None], **more: Any) -> pmui.Button:
            return pmui.Button(label=label, icon=icon, on_click=lambda _: act(), **(SMALL | more))

        ask = self._ask
        self.buttons = {
            "resume": button("Go on", "play_arrow", lambda: ask("resume")),
            "pause": button("Pause", "pause", lambda: ask("pause")),
            "step": button("One step", "skip_next", lambda: ask("step", n=1)),
            "stop": button("Stop", "stop", self._stop),
        }
        self.open = switch("Steer", "tune")
        self.open.param.watch(lambda _: self._opened(), "value")
        self.message = pane(styles={"flex": "1 1 220px", "width": "auto"})
        self.message.margin = (8, 0, 0, 6)
        small = {"size": "small", "margin": (10, 8, 0, 0)}
        self.settings = {name: pmui.TextInput(label=label, width=120, **small) for name, (label, _) in SETTINGS.items()}
        for name, widget in self.settings.items():
            widget.param.watch(lambda *_, name=name: self._touch(name), ["value", "value_input"])
        self.apply = button("Apply at the next step", "check", self._apply, margin=(10, 6, 0, 0))
        self.pipeline = pmui.TextInput(label="Pipeline", placeholder="grpo + mopps", width=320, **small)
        self.pipeline.param.watch(lambda _: self._touch("pipeline"), "value_input")
        self.swap = button("Swap", "swap_horiz", self._swap, margin=(10, 6, 0, 0))
        self.method = pmui.AutocompleteInput(
            label="Method", options=_methods(), width=200, restrict=False, min_characters=0, **small
        )
        self.add = button("Add", "add", lambda: self._edit("add"), margin=(10, 6, 0, 0))
        self.remove = button("Remove", "remove", lambda: self._edit("remove"), margin=(10, 6, 0, 0))
        self.factor = pmui.FloatInput(label="Boost factor", value=2.0, start=0.1, end=100, step=0.5, width=110, **small)
        self.prompt = pane()
        self.prompts = {
            kind: button(label, icon, lambda kind=kind: self._prompt(kind), margin=(10, 6, 0, 0))
            for kind, label, icon in (
                ("pin", "Pin", "push_pin"), ("drop", "Drop", "block"), ("boost", "Boost", "bolt"), ("free", "Free", "undo")
            )
        }  # fmt: skip
        self.checkpoint = button("Checkpoint", "save", lambda: ask("checkpoint"))
        self.undoing = pmui.Select(label="Undo", options={}, sizing_mode="stretch_width", max_width=420, **small)
        self.undo = button("Undo", "undo", self._undo, margin=(10, 6, 0, 0))
        self.name = pmui.TextInput(
            label="Your name", value=self.browser.who, placeholder=current_user(), max_length=40, width=160, **small
        )
        self.name.param.watch(lambda e: self.browser.param.update(who=e.new.strip()), "value")
        self.browser.param.watch(lambda e: self.name.param.update(value=e.new), "who")
        self.log = pane()

        def line(*parts: pn.viewable.Viewable) -> pn.FlexBox:
            return pn.FlexBox(*parts, align_items="flex-start", margin=0)

        self.panel = pn.Column(
            card(4, pane(head("Settings of a step")), line(*self.settings.values(), self.apply)),
            card(4, pane(head("Methods")), line(self.pipeline, self.swap), line(self.method, self.add, self.remove)),
            card(4, self.prompt, line(self.factor, *self.prompts.values())),
            card(12, pane(head("What was asked")), line(self.undoing, self.undo, self.name), self.log),
            stylesheets=[theme.PAGE], sizing_mode="stretch_width", margin=0,
        )  # fmt: skip
        self.status = pn.pane.HTML("", stylesheets=[theme.HTML], margin=(8, 8, 0, 0))
        buttons = pn.FlexBox(
            self.status,
            *self.buttons.values(),
            self.checkpoint,
            self.open,
            self.message,
            align_items="center",
            margin=0,
        )
        buttons = pn.Column(buttons, stylesheets=[theme.STEERING_BAR], sizing_mode="stretch_width", margin=0)
        self.bar = pn.Column(buttons, visible=False, margin=0, sizing_mode="stretch_width")

    def _opened(self) -> None:
        self.bar[1:] = [self.panel] if self.open.value else []
        self.update(self._data)

    # what the reader does

    @property
    def who(self) -> str:
        """Who steers, as it is recorded: what the viewer says, else the user of this server."""
        return f"{self.browser.who or current_user()}, page"

    def _ask(self, kind: str, **payload: Any) -> None:
        data, self._answer = self._data, ""
        if data is None or not self.may:
            self._say(LOOK)
            return
        try:
            data.source.refresh(0)
            data.refresh()
            if data.facts.status not in ("running", "paused"):
                self._say(f"The run is {data.facts.status}: nobody is there to be asked; resume it first.")
                return
            Inbox(data.source.url, data.run).put(Request.of(kind, payload, self.who))
        except (ValueError, OSError, LookupError, StoreError) as problem:
            self._say(str(problem))
            return
        self.update(data)

    def _say(self, message: str) -> None:
        """Answer a click: it stands until the next one, or until another command is recorded and it could be read."""
        self._answer, self._answered = f'<span class="warn">{html(message, 300)}</span>', time.monotonic()
        put(self.message, self._answer)

    def _stop(self) -> None:
        if time.monotonic() - self._asked_stop < SURE:
            self._asked_stop = 0.0
            self._ask("stop")
        else:
            self._asked_stop = time.monotonic()
            self.buttons["stop"].label = "Click again to stop"

    def _touch(self, name: str) -> None:
        if not self._filling:
            self._touched.add(name)

    def _apply(self) -> None:
        try:
            wanted = {name: figure(name, w.value) for name, w in self.settings.items() if name in self._touched}
        except ValueError as problem:
            self._say(str(problem))
            return
        if not wanted:
            self._say("Nothing was changed; set another figure first.")
            return
        self._touched -= set(self.settings)
        self._ask("set", **wanted)

    def _swap(self) -> None:
        self._touched.discard("pipeline")
        self._ask("swap", pipeline=self.pipeline.value_input or self.pipeline.value)

    def _edit(self, kind: str) -> None:
        if word := (self.method.value_input or self.method.value or "").strip():
            self._ask(kind, method=word)
        else:
            self._say("Name a method first, for example vade or mopps(target=0.4).")

    def _prompt(self, kind: str) -> None:
        if not self.chosen.prompt:
            self._say(f"Choose a prompt first: {self.choosing}.")
            return
        self._ask(kind, prompt=self.chosen.prompt, **({"factor": self.factor.value} if kind == "boost" else {}))

    def _undo(self) -> None:
        if self.undoing.value:
            self._ask("undo", id=self.undoing.value)

    # what the shell hands over

    def update(self, data: RunData | None) -> None:
        """Follow the run that is shown: its status, its settings, its commands."""
        self._data = data
        live = data is not None and data.facts.status in ("running", "paused")
        if self.bar.visible != live:
            self.bar.visible = live
        if data is None or not live:
            return
        paused = data.facts.status == "paused"
        found = steering(data)
        commands = found.commands
        put(self.status, badge(data.facts.status))
        if self._asked_stop and time.monotonic() - self._asked_stop > SURE:
            self._asked_stop, self.buttons["stop"].label = 0.0, "Stop"
        self._enable(paused, commands)
        newest = (commands[0].id, commands[0].state) if commands else ("", "")
        self._fill(found.now, anew=newest != self._newest and newest[1] == "refused")
        self._newest = newest
        self._follow(commands)
        if self.open.value:
            put(self.log, command_table(commands))
            options = {one_line(f"step {t.step}: {t.what}", 70): t.id for t in commands if t.undoable}
            if options != self.undoing.options:
                self.undoing.param.update(options=options, value=next(iter(options.values()), None))
            for part in (self.undoing, self.undo):  # a list of nothing has its label on its edge
                if part.visible != bool(options):
                    part.visible = bool(options)
            chosen = self.chosen.prompt
            put(self.prompt, head("This prompt", f"<span>{_state(found.now, chosen, self.choosing)}</span>"))

    def _follow(self, commands: list[Command]) -> None:
        """Say what became of the last request, unless a click was answered: see `_say`."""
        latest = commands[0].id if commands else ""
        if latest != self._latest and time.monotonic() - self._answered > READ:
            self._answer = ""
        if not self._answer:
            self._latest = latest
        put(self.message, self._answer or (_latest(commands) if self.may else f'<span class="quiet">{LOOK}</span>'))

    def _enable(self, paused: bool, commands: list[Command]) -> None:
        waits = {t.kind for t in commands if t.state == "asked"}
        off = {
            "resume": not paused or "resume" in waits,
            "pause": paused or "pause" in waits,
            "step": False,
            "stop": "stop" in waits,
        }
        for name, b in self.buttons.items():
            if b.disabled != (off[name] or not self.may):
                b.disabled = off[name] or not self.may
        others = (self.apply, self.swap, self.add, self.remove, self.checkpoint, self.undo, *self.prompts.values())
        for b in others:
            if b.disabled == self.may:
                b.disabled = not self.may

    def _fill(self, now: Now, anew: bool = False) -> None:
        """Show what is in force where the reader has not begun to write something else; anew: in the place of what was
        written and refused, too."""
        if now == self._shown and not anew:
            return
        self._filling = True
        try:
            for name, widget in self.settings.items():
                value = getattr(now, name)
                widget.visible = value is not None
                if value is not None and name not in self._touched:
                    text = str(round(value)) if SETTINGS[name][1] is int else f"{value:g}"
                    widget.param.update(value=text, value_input=text)
            if "pipeline" not in self._touched:
                self.pipeline.param.update(value=now.pipeline, value_input=now.pipeline)
        finally:
            self._filling = False
        self._shown = now


def _methods() -> list[str]:
    from workbench.pipeline import catalog

    return list(catalog.methods())


def _latest(commands: list[Command]) -> str:
    """The last request in one line."""
    if not commands:
        return '<span class="quiet">Nothing was asked of this run yet.</span>'
    t = commands[0]
    mark = "warn" if t.state == "refused" else "quiet"
    return f'<b>{html(t.what, 120)}</b> <span class="{mark}">{html(t.line, 260)}</span>'


def _state(now: Now, prompt: str, choosing: str) -> str:
    if not prompt:
        return f"none chosen; {html(choosing)}"
    words = [word for word, on in (("pinned", prompt in now.pinned), ("dropped", prompt in now.dropped)) if on]
    if prompt in now.boosted:
        words.append(f"boosted {now.boosted[prompt]:g} ×")
    return f"{html(one_line(prompt, 40))}: {', '.join(words) or 'as any other'}"
