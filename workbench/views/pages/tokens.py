"""The tokens page: one rollout token by token, beside the rollouts of its group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.views.data.groups import Place, place_of
from workbench.views.data.run import RunData, Source
from workbench.views.data.selection import Selection
from workbench.views.data.sql_text import Query
from workbench.views.data.text import ALL, html, signed
from workbench.views.data.tokens import Sibling, coverage, siblings, token_text
from workbench.views.pages.base import Page
from workbench.views.parts import cards
from workbench.views.parts.layout import card, grid, pane, put
from workbench.views.parts.picker import CHOOSING, GroupPicker, about
from workbench.views.parts.tokens import TokenView, columns, covered, ended

NOTHING = "No step yet. The first rollouts appear as soon as a step is recorded."

KEYS = "Keys: up and down in the list; left and right, n and p (next and previous group) in the text."


class TokensPage(Page):
    """One rollout as coloured text; a click on a sibling, a tree or a list of completions leads here."""

    title, order = "Tokens", 50
    choosing = CHOOSING

    def __init__(self, source: Source, chosen: Selection) -> None:
        super().__init__(source, chosen)
        self.picker = GroupPicker(chosen)
        self.head, self.facts, self.note = pane(), pane(), pane()
        self.view = TokenView(
            self._chose, self._whole, self.picker.move, empty=NOTHING, sizing_mode="stretch_width", margin=0
        )
        self._row: Sibling | None = None
        self._held = ""
        self.body = grid(card(12, self.head, self.picker.row, self.facts, self.view, self.note))

    def _chose(self, rollout: str) -> None:
        place = self.picker.place
        if place is not None:
            self.chosen.param.update(step=place.group.step, prompt=place.group.prompt, place=place.at, rollout=rollout)

    def _whole(self, rollout: str) -> dict[str, Any]:
        """All of the rollout that is shown; it then stays until another one is chosen."""
        place, data = self.picker.place, self.source.run(self.chosen.run)
        if place is None or self._row is None or self._row.id != rollout:
            return self.view.rollout
        self._held = rollout
        g, kept = place.group, coverage(data, place.group.step)
        found = token_text(data, g, self._row, whole=True)
        if not found.words:
            text, characters = data.text(g.step, rollout, g.rank)
            found = found._replace(text=text[:ALL], characters=characters)
        return columns(found, kept, largest(siblings(data, g)))

    def update(self, data: RunData, force: bool = False) -> None:
        """Show the rollout that the selection points at; without one, the best rewarded of the group."""
        place = place_of(data, self.chosen)
        self.picker.update(place, data.step)
        if place is None:
            put(self.head, cards.head("Tokens of a rollout"))
            self.view.show(columns(None), ())
            return
        g = place.group
        beside, kept = siblings(data, g), coverage(data, g.step)
        row = next((s for s in beside if s.id == place.rollout), beside[0])
        if row.id != self._held or self._row is None or self._row.row != row.row:
            self._held = ""
        self._row = row
        put(self.head, about(place, "Tokens of a rollout"))
        put(self.facts, facts(row))
        put(self.note, f'<div class="quiet" style="margin-top:8px">{html(covered(kept), 2000)} {KEYS}</div>')
        if not self._held:
            self.view.show(columns(token_text(data, g, row), kept, largest(beside)), beside)

    @property
    def queries(self) -> list[Query]:
        """The questions behind the view."""
        run, place = {"run": self.chosen.run}, self.picker.place
        if place is None or self._row is None:
            return [Query("Groups of a step", "page_groups", {**run, "step": 1})]
        return _queries(run, place, self._row)


def _queries(run: Mapping[str, object], place: Place, row: Sibling) -> list[Query]:
    g = place.group
    step = {**run, "step": g.step}
    return [
        Query("Groups of the step", "page_groups", step),
        Query("Rollouts of the group", "page_siblings", {**step, "rank": g.rank, "group": g.group}),
        Query("Tokens", "page_tokens", {**step, "rank": g.rank, "row": row.row}),
        Query("What is kept", "page_coverage", step),
    ]


def largest(rows: tuple[Sibling, ...]) -> float:
    """The largest advantage of a group, either sign."""
    return max((abs(s.advantage) for s in rows if s.advantage is not None and s.advantage == s.advantage), default=0.0)


def facts(s: Sibling) -> str:
    """What the rollout earned and what became of it."""
    advantage = "–" if s.advantage is None else signed(s.advantage, 3)
    against = "" if s.baseline is None or s.baseline != s.baseline else f"against a baseline of {s.baseline:.3f}"
    fate = " · ".join(x for x in (s.fate, s.reason.replace("_", " ")) if x)
    mark = {1.0: "✓ correct", 0.0: "✗ wrong"}.get(s.correct if s.correct is not None else -1.0, "not verified")
    stats = [
        cards.stat("Rollout", f"<small>{html(s.id, 60)}</small>", f"policy version {s.version:,}"),
        cards.stat("Reward", "–" if s.reward is None else f"{s.reward:.3f}", html(mark)),
        cards.stat("Advantage", advantage, html(f"{s.estimator} {against}".strip(), 60)),
        cards.stat("Length", f"{s.length:,} <small>tokens</small>", html(ended(s.finish), 40)),
        cards.stat("Fate", f"<small>{html(fate, 60)}</small>", ""),
    ]
    return f'<div class="stats" style="margin:4px 0 6px">{"".join(stats)}</div>'
