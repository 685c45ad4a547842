"""Range of steps shared by all pages: zooming one figure's steps narrows those of every other page."""

from __future__ import annotations

import math

from bokeh.models import Range1d

from workbench.views.data.selection import Selection

ALL = (0, 0)
"""The selection's steps while all of them are looked at."""

PAUSE = 250
"""Milliseconds after the last movement of a gesture before the selection takes it over."""


class SharedSteps:
    """Ties a page's range of steps to `Selection.steps`, both ways."""

    def __init__(self, steps: Range1d, chosen: Selection) -> None:
        self.steps, self.chosen = steps, chosen
        self._waiting = False
        if chosen.steps != ALL:
            self._show()
        chosen.param.watch(lambda _: self._show(), "steps")
        for end in ("start", "end"):
            steps.on_change(end, self._moved)

    def _show(self) -> None:
        first, last = self.chosen.steps
        if self.chosen.steps == self._looked_at():
            return
        if self.chosen.steps == ALL:
            start, end = self.steps.reset_start, self.steps.reset_end
            self.steps.tags = []  # follow the run again
            if start is not None and end is not None:
                self.steps.update(start=start, end=end, tags=[start, end])
        else:
            self.steps.update(start=first - 0.5, end=last + 0.5, tags=["chosen"])

    def _looked_at(self) -> tuple[int, int]:
        s = self.steps
        if s.tags == [s.start, s.end] or (s.start, s.end) == (s.reset_start, s.reset_end):
            return ALL
        first, last = max(math.ceil(float(s.start)), 0), max(math.floor(float(s.end)), 1)  # type: ignore[arg-type]
        return min(first, last), last

    def _moved(self, attr: str, old: float, new: float) -> None:
        """A gesture moves the range many times: the selection takes over its end."""
        doc = self.steps.document
        if doc is not None and not self._waiting:  # without a document nobody looks
            self._waiting = True
            doc.add_timeout_callback(self.settle, PAUSE)

    def settle(self) -> None:
        """Take over what is looked at now."""
        self._waiting = False
        s, now = self.steps, self._looked_at()
        if now == ALL and s.tags != [s.start, s.end]:  # the reset tool: follow the run again
            s.tags = [s.start, s.end]
        if now != self.chosen.steps:
            self.chosen.steps = now
