"""Group picker: the row of widgets that pages of one group share. It sets the selection, and follows it."""

from __future__ import annotations

import panel as pn
import panel_material_ui as pmui

from workbench.views.data.groups import GroupFacts, Place
from workbench.views.data.selection import Selection
from workbench.views.data.text import count, one_line, percent
from workbench.views.parts.cards import head, html
from workbench.views.parts.layout import offer

MOST = 400
"""Groups offered by name; the others are reached by the buttons."""

CHOOSING = "choose a group of the step by name, or with Previous and Next group"
"""How a prompt is chosen on a page with these widgets."""

ELSEWHERE = "it is chosen on another page, such as Difficulty"
"""How a prompt is chosen on a page without them."""


class GroupPicker:
    """Step, group by name, and buttons to the groups beside it. `row` is the widgets, `update` follows the selection."""

    def __init__(self, chosen: Selection) -> None:
        self.chosen, self.place, self._last, self._following = chosen, None, 0, False
        small = {"size": "small", "variant": "outlined", "margin": (10, 4, 0, 0)}
        self.before = pmui.Button(label="Previous", icon="navigate_before", on_click=lambda _: self.move(-1), **small)
        self.after = pmui.Button(label="Next group", icon="navigate_next", on_click=lambda _: self.move(1), **small)
        self.newest = pmui.Button(label="Newest step", icon="last_page", on_click=lambda _: self._go(0), **small)
        self.step = pmui.IntInput(
            label="Training step", value=1, start=1, end=1, step=1, width=130, size="small", margin=(10, 12, 0, 0)
        )
        self.group = pmui.Select(
            label="Group of the step",
            options={},
            sizing_mode="stretch_width",
            max_width=380,
            size="small",
            margin=(10, 12, 0, 0),
        )
        self.step.param.watch(self._stepped, "value")
        self.group.param.watch(self._picked, "value")
        self.row = pn.FlexBox(self.step, self.group, self.before, self.after, self.newest, margin=(0, 0, 4, 0))

    def update(self, place: Place | None, last: int) -> None:
        """Show where the selection points; last is the newest step."""
        self.place, self._last, self._following = place, last, True
        try:
            groups = place.groups if place else ()
            options = {f"{i + 1}. {name_of(g)}": i for i, g in enumerate(groups[:MOST])}
            offer(self.group, options, place.at if place and place.at < MOST else None)
            step = place.group.step if place else 1
            if (self.step.end, self.step.value) != (max(last, 1), step):
                self.step.param.update(end=max(last, 1), value=step)
            self.newest.disabled = not self.chosen.step and not self.chosen.rollout
            for b in (self.before, self.after):
                b.disabled = len(groups) < 2
        finally:
            self._following = False

    def move(self, by: int) -> None:
        """The group beside, around the end."""
        if self.place is not None:
            self._choose((self.place.at + by) % len(self.place.groups))

    def _choose(self, at: int) -> None:
        assert self.place is not None
        g = self.place.groups[at]
        self.chosen.param.update(step=g.step, prompt=g.prompt, place=at, rollout="")

    def _picked(self, event) -> None:
        if not self._following and self.place is not None and event.new is not None and event.new != self.place.at:
            self._choose(event.new)

    def _stepped(self, event) -> None:
        if not self._following and event.new:
            self._go(min(max(event.new, 1), self._last))

    def _go(self, step: int) -> None:
        self.chosen.param.update(step=step, prompt="", place=0, rollout="")


def name_of(group: GroupFacts) -> str:
    """A group in one line of a list."""
    forks = f"{group.forks} forks, " if group.forks > 1 else "1 fork, " if group.forks else ""
    return f"{one_line(group.text, 48) or group.prompt} ({forks}{group.solved} of {group.rollouts} solved)"


def about(place: Place, title: str, *more: str) -> str:
    """The title line of a card about a group, and the prompt under it."""
    g = place.group
    words = [
        f"step {g.step:,}", f"group {place.at + 1} of {len(place.groups)}",
        f"{count(g.rollouts)} rollouts, {percent(g.solved / max(g.rollouts, 1))} solved", *more,
    ]  # fmt: skip
    if g.cut:
        words.append(f"{g.cut} cut short")
    if g.rank:
        words.append(f"rank {g.rank}")
    return head(title, f"<span>{html(' · '.join(words))}</span>") + f'<pre dir="auto">{html(g.text, 600)}</pre>'
