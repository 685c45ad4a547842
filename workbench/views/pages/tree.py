"""The tree page: how the rollouts of one group grew, what each branch was worth, and what it cost."""

from __future__ import annotations

from workbench.views.data.groups import place_of
from workbench.views.data.run import RunData, Source
from workbench.views.data.selection import Selection
from workbench.views.data.sql_text import Query
from workbench.views.data.tree import Tree, tree
from workbench.views.pages.base import Page
from workbench.views.parts import cards
from workbench.views.parts.layout import card, grid, pane, put
from workbench.views.parts.picker import CHOOSING, GroupPicker, about
from workbench.views.parts.tree import RolloutTree, cost_card

LISTED = 24
"""Segments whose question is shown under "Show SQL"; the others are asked in the same way."""

NOTHING = "No step yet. The first group appears as soon as a step is recorded."


class TreePage(Page):
    """One group as a tree; flat groups are the prompt with one leaf per rollout."""

    title, order = "Tree", 40
    choosing = CHOOSING

    def __init__(self, source: Source, chosen: Selection) -> None:
        super().__init__(source, chosen)
        self.picker = GroupPicker(chosen)
        self.head, self.note, self.cost = pane(), pane(), pane()
        self.view = RolloutTree(self._open, self.picker.move, empty=NOTHING, sizing_mode="stretch_width", margin=0)
        self._first: dict[str, list] = {}
        self.body = grid(
            card(9, self.head, self.picker.row, self.view),
            card(3, self.cost, self.note),
        )

    def _open(self, rollout: str) -> None:
        place = self.picker.place
        if place is not None:
            self.chosen.param.update(page="tokens", step=place.group.step, prompt=place.group.prompt, rollout=rollout)

    def update(self, data: RunData, force: bool = False) -> None:
        """Draw the group that the selection points at."""
        place = place_of(data, self.chosen)
        self.picker.update(place, data.step)
        if place is None:
            put(self.head, cards.head("Tree of a group"))
            put(self.cost, cards.head("What it cost") + cards.empty("No group yet", "Costs are shown per group."))
            put(self.note, "")
            self.view.show(None)
            return
        shown = tree(data, place.group)
        self._first = {name: column[:LISTED] for name, column in shown.segments.items()}
        forks = f"{shown.forks} forks" if shown.forks != 1 else "1 fork"
        put(self.head, about(place, "Tree of a group", forks if shown.forks else "flat: nothing forked"))
        put(self.cost, cost_card(shown.cost))
        put(self.note, notes(shown))
        self.view.show(shown, place.group.text, place.rollout)

    @property
    def queries(self) -> list[Query]:
        """The questions behind the cards."""
        run, place = {"run": self.chosen.run}, self.picker.place
        if place is None:
            return [Query("Groups of a step", "page_groups", {**run, "step": 1})]
        g = place.group
        where = {**run, "step": g.step, "rank": g.rank, "group": g.group}
        return [
            Query("Groups of the step", "page_groups", {**run, "step": g.step}),
            Query("Tree: segments, values and fates", "page_tree", where),
            Query("Tree: with the text of each rollout", "tree_of_group", where),
            Query("What the segments say", "page_segments", {**run, "step": g.step, "rank": g.rank, **self._first}),
            Query("Tests for forks and cuts", "page_tests", where),
            Query("What it cost", "savings_by_group", {**run, "since": g.step - 1}),
        ]


def notes(shown: Tree) -> str:
    """What the picture does not say by itself."""
    lines = ["Bars run from a segment's first to its last generated token; a shared prefix is one bar."]
    if not shown.forks:
        lines.append("No method forked here, so every rollout is a leaf of the prompt. Trees come from methods that "
                     "branch: <code>latr</code>, <code>branchgrpo</code>, <code>ettrl</code>.")  # fmt: skip
    if not shown.spelled and shown.branches:
        lines.append("The tokens of this group are not on record, so only whole answers can be read. Keep them with "
                     "<code>tokens = \"all\"</code>.")  # fmt: skip
    if any(b.advantage is not None and not b.rollout and b.kind != "prompt" for b in shown.branches):
        lines.append("The advantage of a shared segment is the mean over the rollouts through it, or over its own tokens "
                     "where the estimator gives tokens advantages.")  # fmt: skip
    keys = "Keys in the tree: arrows, Home, End, Enter (tokens), n and p (next and previous group), v and a (colour), + and −."
    return "".join(f'<p class="quiet">{line}</p>' for line in [*lines, keys])
