"""A group drawn as a tree, by a small component of our own; see tree.js. Text reaches the page as text nodes only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import param
from panel.custom import JSComponent

from workbench.views.data.tree import Cost, Tree
from workbench.views.parts.cards import empty, head, key
from workbench.views.parts.text import count, html, shown

HERE = Path(__file__).parent

STYLE = """
:host { --ink: var(--panel-on-surface-color, #222); --ground: var(--panel-surface-color, #fff); color: var(--ink); font-size: 13px; }
.wb { position: relative; }
.bar, .legend { display: flex; flex-wrap: wrap; gap: 4px 14px; align-items: center; }
.bar { margin: 4px 0 8px; }
small, .legend { font-size: 11.5px; color: color-mix(in srgb, var(--ink) 66%, transparent); }
.switch, .tools { display: inline-flex; }
.tools { margin-left: auto; }
button { font: inherit; font-size: 12px; color: var(--ink); background: none; cursor: pointer; padding: 2px 9px;
  border: 1px solid color-mix(in srgb, var(--ink) 26%, transparent); margin-left: -1px; }
button:first-child { border-radius: 6px 0 0 6px; } button:last-child { border-radius: 0 6px 6px 0; }
button.on { background: #2f81d6; border-color: #2f81d6; color: #fff; }
button:focus-visible, .scroll:focus-visible { outline: 2px solid #2f81d6; outline-offset: 1px; }
.scale { display: inline-flex; gap: 5px; align-items: center; } .scale i { width: 74px; height: 9px; border-radius: 3px; }
.key { display: inline-flex; gap: 5px; align-items: center; white-space: nowrap; } .key i { width: 12px; height: 12px; box-sizing: border-box; }
.key .ring { border: 2px solid #a9669f; border-radius: 50%; }
.key .cut { border: 1px dashed #8b949e; background: repeating-linear-gradient(45deg, #8b949e 0 1.5px, transparent 1.5px 4px); }
.key .none { border: 1px solid #8b949e; border-radius: 3px; }
.scroll { overflow: auto; max-height: 590px; border-radius: 8px; border: 1px solid color-mix(in srgb, var(--ink) 12%, transparent); }
svg { display: block; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); }
svg.top { position: sticky; top: 0; z-index: 1; background: var(--ground); }
.axis line { stroke: color-mix(in srgb, var(--ink) 35%, transparent); } .axis text { font-size: 11px; fill: color-mix(in srgb, var(--ink) 66%, transparent); }
.join { fill: none; stroke: color-mix(in srgb, var(--ink) 30%, transparent); } .join.cut { stroke-dasharray: 3 3; }
.root { fill: color-mix(in srgb, var(--ink) 45%, var(--ground)); }
.bar.none { fill: var(--ground); stroke: #8b949e; } .cut .bar { stroke: #8b949e; stroke-dasharray: 3 2; }
.bar.tool, .bar.feedback { stroke: #2f81d6; stroke-width: 1.5; } .bar.probe { stroke: #b8a02c; stroke-width: 1.5; }
.hatchground { fill: var(--ground); } .hatchline { stroke: #8b949e; stroke-width: 2.4; }
.target { fill: transparent; cursor: pointer; }
.fork { fill: var(--ground); stroke: #a9669f; stroke-width: 2; pointer-events: none; }
.words { pointer-events: none; } .soft { fill: color-mix(in srgb, var(--ink) 62%, transparent); }
.why { fill: color-mix(in srgb, var(--ink) 78%, transparent); font-style: italic; }
.nats { font-size: 10.5px; fill: #a9669f; font-weight: 600; paint-order: stroke; stroke: var(--ground); stroke-width: 3px; }
.join.lit { stroke: var(--ink); } .segment.lit .bar { stroke: var(--ink); stroke-width: 1.6; stroke-dasharray: none; }
.segment.chosen .bar { stroke: #e5484d; stroke-width: 2.4; stroke-dasharray: none; }
.detail { min-height: 104px; padding: 8px 2px 0; }
.detail pre { margin: 4px 0 2px; padding: 6px 9px; border-radius: 6px; max-height: 108px; overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere;
  unicode-bidi: isolate; font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; background: color-mix(in srgb, var(--ink) 6%, transparent); }
.tests { display: block; }
.empty { padding: 40px 22px; text-align: center; color: color-mix(in srgb, var(--ink) 70%, transparent); }
"""

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

    _esm = "".join((HERE / name).read_text(encoding="utf-8") for name in ("drawing.js", "tree.js"))
    _stylesheets: ClassVar[list[str]] = [STYLE]

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
        made[name] = [_rounded(getattr(b, name)) for b in branches]
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


def _rounded(x: float | None) -> float | None:
    return None if x is None or not np.isfinite(x) else round(float(x), 6)


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
    lines = "".join(f'<tr><td>{what}</td><td class="n">{n:,}</td></tr>' for what, n in rows)
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
        + f"<table>{lines}</table>{note}"
    )
