"""A rollout as coloured tokens beside its group, by a small component of our own; see tokens.js."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import param
from panel.custom import JSComponent

from workbench.views.data.tokens import FIRST, Coverage, Sibling, Spoken
from workbench.views.parts.text import ALL, shown

HERE = Path(__file__).parent

STYLE = """
:host { --ink: var(--panel-on-surface-color, #222); --ground: var(--panel-surface-color, #fff); color: var(--ink); font-size: 13px; }
.wb { display: grid; grid-template-columns: minmax(0, 1fr) minmax(240px, 330px); gap: 6px 20px; align-items: start; }
.bar { display: flex; flex-wrap: wrap; gap: 4px 14px; align-items: center; margin: 4px 0 6px; }
small { font-size: 11.5px; color: color-mix(in srgb, var(--ink) 66%, transparent); }
.switch { display: inline-flex; flex-wrap: wrap; }
button { font: inherit; font-size: 12px; color: var(--ink); background: none; cursor: pointer; padding: 2px 9px;
  border: 1px solid color-mix(in srgb, var(--ink) 26%, transparent); margin-left: -1px; }
.switch button:first-child { border-radius: 6px 0 0 6px; } .switch button:last-child { border-radius: 0 6px 6px 0; }
button.on { background: #2f81d6; border-color: #2f81d6; color: #fff; }
button:disabled { color: color-mix(in srgb, var(--ink) 38%, transparent); cursor: help; text-decoration: line-through; }
.foot button { color: #2f81d6; border-color: #2f81d6; border-radius: 5px; }
button:focus-visible, .body:focus-visible, .side:focus-visible { outline: 2px solid #2f81d6; outline-offset: 1px; }
.scale { display: inline-flex; flex-wrap: wrap; gap: 2px 5px; align-items: center; }
.scale i { width: 74px; height: 10px; border-radius: 3px; outline: 1px solid color-mix(in srgb, var(--ink) 16%, transparent); }
.strip svg { width: 100%; height: 30px; display: block; cursor: pointer; border-radius: 4px;
  background: color-mix(in srgb, var(--ink) 4%, transparent); }
.zero { stroke: color-mix(in srgb, var(--ink) 30%, transparent); vector-effect: non-scaling-stroke; }
.body { font: 13px/1.72 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; min-height: 90px;
  max-height: 560px; overflow: auto; padding: 8px 10px; border-radius: 8px; border: 1px solid color-mix(in srgb, var(--ink) 12%, transparent); }
.t { unicode-bidi: isolate; border-radius: 3px; padding: 1.5px 0; box-shadow: inset -1px 0 color-mix(in srgb, var(--ink) 11%, transparent); }
.t.on { outline: 2px solid #e5484d; }
.t.clipped { text-decoration: underline dashed #e5484d 2px; text-underline-offset: 3px; }
.plain { unicode-bidi: isolate; }
.ws { color: color-mix(in srgb, var(--ink) 42%, transparent); }
.special { border: 1px dashed color-mix(in srgb, var(--ink) 45%, transparent); border-radius: 4px; padding: 0 3px; font-size: 11.5px; }
.detail { min-height: 38px; padding: 5px 0; display: flex; flex-wrap: wrap; gap: 2px 10px; align-items: baseline; }
.detail[hidden] { display: none; }
.detail code { font: 600 12.5px ui-monospace, Menlo, Consolas, monospace; max-width: 320px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.foot { padding: 6px 0 0; display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; }
.side { max-height: 720px; overflow: auto; padding: 2px; }
.title { display: block; padding: 0 6px 4px; }
.row { display: grid; grid-template-columns: 15px 54px minmax(30px, 1fr) 48px; gap: 1px 7px; align-items: center; padding: 5px 6px; border-radius: 6px; cursor: pointer; }
.row:hover { background: color-mix(in srgb, var(--ink) 6%, transparent); }
.row.on { background: color-mix(in srgb, #2f81d6 16%, transparent); box-shadow: inset 3px 0 #2f81d6; }
.row small { grid-column: 2 / -1; } .num { font-variant-numeric: tabular-nums; text-align: right; }
.yes { color: #13a082; } .no { color: #d4512a; } .none { color: #8b949e; }
.track, .length { position: relative; height: 9px; border-radius: 3px; background: color-mix(in srgb, var(--ink) 7%, transparent); }
.track { background: linear-gradient(color-mix(in srgb, var(--ink) 40%, transparent) 0 0) center / 1px 100% no-repeat, color-mix(in srgb, var(--ink) 7%, transparent); }
.track i, .length i { position: absolute; top: 0; bottom: 0; border-radius: 2px; }
.length { grid-column: 2 / -1; height: 3px; } .length i { left: 0; background: #8b949e; }
.pos { background: #13a082; } .neg { background: #d4512a; }
.empty { padding: 40px 22px; text-align: center; white-space: normal; font-family: system-ui, sans-serif; color: color-mix(in srgb, var(--ink) 70%, transparent); }
@media (max-width: 820px) { .wb { grid-template-columns: minmax(0, 1fr); } .side { max-height: 300px; } }
"""


COLUMNS = {
    "tokens": "token ids",
    "logp": "logprobs",
    "entropy": "entropies",
    "current": "logprobs of the current policy",
    "proximal": "logprobs of the proximal policy",
    "credit": "token advantages",
}
"""Token columns of the store, in words."""


class TokenView(JSComponent):
    """One rollout and its group. chose(rollout id) is called for a sibling, whole(rollout id) for "show all", moved(1 or
    -1) for the next or previous group."""

    rollout = param.Dict(default={}, doc="The rollout's tokens and tracks, as `columns` makes them.")
    rows = param.List(default=[], doc="One dict per rollout of the group, as `sibling` makes it.")
    empty = param.String(default="No rollout yet.", doc="What is said while there is none.")

    _esm = "".join((HERE / name).read_text(encoding="utf-8") for name in ("drawing.js", "tokens.js"))
    _stylesheets: ClassVar[list[str]] = [STYLE]

    def __init__(
        self,
        chose: Callable[[str], None],
        whole: Callable[[str], dict[str, Any]],
        moved: Callable[[int], None],
        **params,
    ) -> None:
        super().__init__(rollout=columns(None), **params)
        self._chose, self._whole, self._moved = chose, whole, moved

    def _handle_msg(self, message: dict) -> None:
        if not isinstance(message, dict):
            return
        if message.get("rollout") in {r["id"] for r in self.rows}:
            self._chose(message["rollout"])
        elif message.get("all") and message["all"] == self.rollout["id"]:
            self._send_msg({"rollout": self._whole(message["all"]), "rows": self.rows})
        elif message.get("group") in (-1, 1):
            self._moved(message["group"])

    def show(self, rollout: dict[str, Any], rows: Sequence[Sibling]) -> None:
        """Show this rollout, as `columns` makes it, beside these."""
        beside = [sibling(s) for s in rows]
        if rollout != self.rollout or beside != self.rows:
            self.param.update(rollout=rollout, rows=beside)
            self._send_msg({"rollout": rollout, "rows": beside})  # beside the properties, see `Completions.show`


def sibling(s: Sibling) -> dict[str, Any]:
    """A rollout of the group as plain values for the browser; one that was not trained has no advantage to show."""
    words = [
        f"{s.length:,} tokens",
        ended(s.finish),
        s.fate if s.fate != s.finish else "",
        shown(s.reason.replace("_", " "), 60),
    ]
    if s.parent and s.fork_at >= 0:
        words.append(f"forked at token {s.fork_at:,}")
    if s.reward is None:
        words.append("no reward")
    return {
        "id": s.id, "reward": _number(s.reward), "correct": _number(s.correct), "length": s.length,
        "advantage": _number(s.advantage) if s.fate == "trained" else None, "note": " \u00b7 ".join(filter(None, words)),
    }  # fmt: skip


def ended(finish: str) -> str:
    """How a rollout ended, in words."""
    return {"stop": "stopped", "length": "at its limit"}.get(finish) or shown(finish, 20)


def columns(said: Spoken | None, kept: Coverage | None = None, largest: float = 0.0) -> dict[str, Any]:
    """A rollout as plain values for the browser; largest: of the advantages in its group."""
    if said is None or kept is None:
        return {"id": "", "words": [], "ids": [], "special": [], "tracks": {}, "missing": {}, "text": "", "n": 0}
    advantage = said.tracks.get("advantage") or ()
    here = len(said.words)
    more = rest = ""
    if here and said.n > here:
        more = f"show all {said.n:,} tokens" if here <= FIRST else ""
        rest = f"{here:,} of {said.n:,} tokens" + ("" if more else "; the rest is in the store")
    elif not here and said.characters > len(said.text):
        more = f"show all {said.characters:,} characters" if len(said.text) < min(said.characters, ALL) else ""
        rest = f"{len(said.text):,} of {said.characters:,} characters"
    return {
        "id": said.id,
        "n": said.n,
        "words": [shown(w, 400) for w in said.words],
        "ids": list(said.ids),
        "special": list(said.special),
        "tracks": {k: list(v) for k, v in said.tracks.items()},
        "missing": dict(said.missing),
        "text": "" if here else shown(said.text, ALL),
        "why": said.missing.get("logp", ""),
        "more": more,
        "rest": rest,
        "policy": said.policy,
        "largest": round(max([largest, *(abs(a) for a in advantage if a is not None)]), 4),
        "own": len(set(advantage)) > 1,
        "low": kept.band.low,
        "high": kept.band.high,
        "said": kept.band.said,
    }


def covered(kept: Coverage) -> str:
    """What is kept of the tokens of a step, in words."""
    rule = {
        "all": "tokens of all rollouts are kept",
        "none": 'no tokens are kept (tokens = "none")',
        "sample": f"tokens of {100 * kept.share:.3g} % of the groups are kept, chosen by hash",
    }.get(kept.retention, kept.retention)
    if kept.retention == "all" and not kept.columns["tokens"]:
        return f"On record: the texts of {kept.rollouts:,} rollouts. The world that generated them has no tokens."
    by_count: dict[int, list[str]] = {}
    for column, text in COLUMNS.items():
        by_count.setdefault(kept.columns[column], []).append(text)
    not_there = by_count.pop(0, [])
    n = kept.rollouts
    have = [
        f"{', '.join(texts)} of {'all' if k == n else f'{k:,} of'} {n:,} rollouts"
        for k, texts in sorted(by_count.items(), reverse=True)
    ]
    lines = [f"In this step {rule}.", f"On record: {'; '.join(have) or 'texts only'}."]
    if not_there and have:
        lines.append(f"Not on record: {', '.join(not_there)}.")
    if kept.columns["tokens"] and not kept.vocabulary:
        lines.append(
            "The run has no vocabulary on record, so tokens are shown as \u27e8ids\u27e9; runs recorded from now on have one."
        )
    return " ".join(lines)


def _number(x: float | None) -> float | None:
    return None if x is None or x != x else round(float(x), 4)
