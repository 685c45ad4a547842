"""Groups of a step and which of them is shown, for the pages that show one group. No widgets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from workbench.views.data.records import filled
from workbench.views.data.text import CUT

if TYPE_CHECKING:
    from workbench.views.data.run import RunData
    from workbench.views.data.selection import Selection

Answer = TypeVar("Answer")

KEPT = 48
"""Answers kept of a run, the last ones used."""


class GroupFacts(NamedTuple):
    """A group of a step as it stands in a list. forks: places where its rollouts part, beside the prompt itself."""

    step: int
    rank: int
    group: int
    prompt: str
    text: str
    rollouts: int
    solved: int
    cut: int
    forks: int
    stratum: str = ""
    reward: float = float("nan")
    spread: float = 0.0


class Place(NamedTuple):
    """A group among those of its step; at counts from 0, rollout is the one looked at or ""."""

    at: int
    groups: tuple[GroupFacts, ...]
    rollout: str = ""

    @property
    def group(self) -> GroupFacts:
        """The group itself."""
        return self.groups[self.at]


def shared(data: RunData, key: Hashable, make: Callable[[], Answer]) -> Answer:
    """An answer about a run, asked once for all viewers. What is keyed must not change: a finished step, a rollout."""
    with data.source.lock:
        kept = data.kept.setdefault(shared, OrderedDict())
        if key not in kept:
            kept[key] = make()
            while len(kept) > KEPT:
                kept.popitem(last=False)
        kept.move_to_end(key)
        return kept[key]


def groups_of(data: RunData, step: int) -> tuple[GroupFacts, ...]:
    """The groups of a step: those that forked first, then those whose rewards differ. None where no step is shown: one
    to come, or one that not all ranks have recorded; that answer is not kept."""

    def ask() -> tuple[GroupFacts, ...]:
        rows = data.ask("page_groups", step=step, cut=CUT).to_pylist()
        return tuple(
            filled(GroupFacts, r, step=step, group=r["group_id"], prompt=r["prompt_id"], text=r["prompt"] or "")
            for r in rows
        )

    return shared(data, ("groups", step), ask) if 0 < step <= data.step else ask()


def place_of(data: RunData, chosen: Selection) -> Place | None:
    """Where the selection points: the group of its rollout, else of its prompt, else by its place; None without steps.

    Step 0 is the newest one. A rollout or prompt that the step does not have is passed over."""
    step, rollout = chosen.step, chosen.rollout
    if rollout:
        until = None if 0 < step <= data.step else data.step  # the last step, or one to come: the answer can change
        found = shared(
            data,
            ("place", rollout, step, until),
            lambda: data.ask("page_place", rollout=rollout, step=step).to_pylist(),
        )
        if found:
            groups = groups_of(data, found[0]["step"])
            at = _index(groups, lambda g: (g.rank, g.group) == (found[0]["rank"], found[0]["group_id"]))
            if at is not None:
                return Place(at, groups, rollout)
    groups = groups_of(data, min(step or data.step, data.step)) if data.step else ()
    if not groups:
        return None
    at = chosen.place % len(groups)
    if chosen.prompt and groups[at].prompt != chosen.prompt:
        own = _index(groups, lambda g: g.prompt == chosen.prompt)
        at = at if own is None else own
    return Place(at, groups)


def _index(groups: tuple[GroupFacts, ...], fits: Callable[[GroupFacts], bool]) -> int | None:
    return next((i for i, g in enumerate(groups) if fits(g)), None)
