"""A group drawn as a tree, by a small component of our own; see tree.js. Text reaches the page as text nodes only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import param
from panel.custom import JSComponent

from workbench.views.data.text import count, html, known, shown
from workbench.views.data.tree import Cost, Tree
from workbench.views.parts.cards import empty, head, key, table
from workbench.views.parts.theme import asset

COST = {
    "shared": ("#2f81d6", "kept, shared by several rollouts"),
    "own": ("#13a082", "kept, of one rollout"),
    "pruned": ("#b8a02c", "pruned"),
    "discarded": ("#c98f6b", "discarded"),
    "probe": ("#7fbdea", "probes"),
}
"""Where generated tokens went: field of `Cost` -> (colour, words)."""


class RolloutTree(JSComponent):
    """The tree of a group. opened(rollout id) is called when a segment is clicked, with a rollout that passes it;
    moved(1 or -1) when the next or previous group is asked for by key."""

    tree = param.Dict(default={}, doc="Columns of the segments, as `columns` makes them.")
    empty = param.String(default="No group yet.", doc="What is said while there is none.")

    _esm = asset("drawing.js", "tree.js")
    _stylesheets: ClassVar[list[str]] = [asset("tree.css")]

    def __init__(self, opened: Callable[[str], None], moved: Callable[[int], None], **params) -> None:
        super().__init__(tree=columns(None), **params)
        self._opened, self._moved = opened, moved

    def _handle_msg(self, message: dict) -> None:
        if not isinstance(message, dict):
            return
        if (id_ := message.get("open")) and id_ in self.tree["opens"]:
            self._opened(id_)
        elif message.get("group") in (-1, 1):
            self._moved(message["group"])

    def show(self, grown: Tree | None, prompt: str = "", rollout: str = "") -> None:
        """Draw this tree; rollout is the one marked."""
        made = columns(grown, prompt, rollout)
        if made != self.tree:
            self.tree = made
            self._send_msg({"tree": made})  # beside the property, see `Completions.show`


def columns(grown: Tree | None, prompt: str = "", rollout: str = "") -> dict[str, Any]:
    """A tree as plain columns for the browser: texts cut and made visible, null for what is not known."""
    branches = grown.branches if grown else ()
    rewards = [b.value for b in branches if b.value is not None]
    low, high = min([0.0, *rewards]), max([1.0, *rewards])
    made: dict[str, Any] = {
        name: [getattr(b, name) for b in branches]
        for name in ("parent", "kind", "start", "n", "y", "status", "correct")
    }
    for name in ("value", "advantage", "entropy"):
        made[name] = [known(getattr(b, name), 6) for b in branches]
    for name, limit in (("reason", 60), ("choice", 20), ("fate", 60), ("tests", 240), ("training", 60)):
        made[name] = [shown(getattr(b, name), limit).replace("_", " ") for b in branches]
    for name in ("rollout", "opens"):
        made[name] = [getattr(b, name) for b in branches]
    size = max(120, 60_000 // max(len(branches), 1))
    made["text"] = [shown(b.text, size) for b in branches]
    made["more"] = [not b.whole or len(b.text) > size for b in branches]
    made["through"] = [b.leaves for b in branches]
    f = grown.facts if grown else None
    return made | {
        "id": f"{f.step}/{f.rank}/{f.group}/{f.prompt}" if f else "",
        "low": low, "high": high, "prompt": shown(prompt, 2_000), "chosen": rollout,
        "tokens": grown.tokens if grown else 0, "forks": grown.forks if grown else 0, "leaves": grown.n_leaves if grown else 0,
    }  # fmt: skip


def _tokens(n: int) -> str:
    return f"{count(n)} token" + "s" * (n != 1)


def cost_card(cost: Cost) -> str:
    """Where the tokens of a tree went, over what its rollouts would have cost one by one, on one scale."""
    amount = {name: getattr(cost, name) for name in COST}
    whole = max(cost.generated, cost.flat)
    if not whole:
        return head("What it cost") + empty("No tokens yet", "The cost appears with the first recorded group.")
    bars = "".join(
        f'<i style="width:{100 * n / whole:.3f}%;background:{COST[k][0]}"></i>' for k, n in amount.items() if n
    )
    flat = f'<i style="width:{100 * cost.flat / whole:.3f}%;background:#8b949e"></i>'
    rows = [(key(COST[k][0], COST[k][1]), n) for k, n in amount.items() if n or k in ("shared", "own")]
    rows.append((f"<b>{html('generated')}</b>", cost.generated))
    rows.append((key("#8b949e", "flat equivalent: every rollout alone"), cost.flat))
    if cost.context:
        rows.append((html("of tools and feedback, not generated"), cost.context))
    kept = cost.shared + cost.own
    saved = f"Sharing {cost.flat / kept:.2f}×: " if kept else ""
    if cost.flat > cost.generated:
        saved += f"{_tokens(cost.flat - cost.generated)} ({100 * (1 - cost.generated / cost.flat):.0f} %) fewer than one by one."
    elif cost.flat < cost.generated:
        saved += f"{_tokens(cost.generated - cost.flat)} more than the rollouts that were kept would have cost."
    else:
        saved += "nothing is shared and nothing was cut."
    note = f'<div class="quiet">{html(saved)}</div>'
    return (
        head("What it cost", "<span>tokens, each counted once</span>")
        + f'<div class="bar">{bars}</div><div class="bar" style="height:7px;margin-top:-4px">{flat}</div>'
        + table("tn", [(what, f"{n:,}") for what, n in rows])
        + note
    )
