"""A rollout as coloured tokens beside its group, by a small component of our own; see tokens.js."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import param
from panel.custom import JSComponent

from workbench.views.data.text import ALL, known, shown
from workbench.views.data.tokens import FIRST, Coverage, Sibling, TokenText
from workbench.views.parts.theme import asset

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

    _esm = asset("drawing.js", "tokens.js")
    _stylesheets: ClassVar[list[str]] = [asset("tokens.css")]

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
        "id": s.id, "reward": known(s.reward, 4), "correct": known(s.correct, 4), "length": s.length,
        "advantage": known(s.advantage, 4) if s.fate == "trained" else None, "note": " \u00b7 ".join(filter(None, words)),
    }  # fmt: skip


def ended(finish: str) -> str:
    """How a rollout ended, in words."""
    return {"stop": "stopped", "length": "at its limit"}.get(finish) or shown(finish, 20)


def columns(row: TokenText | None, kept: Coverage | None = None, largest: float = 0.0) -> dict[str, Any]:
    """A rollout as plain values for the browser; largest: of the advantages in its group."""
    if row is None or kept is None:
        return {"id": "", "words": [], "ids": [], "special": [], "tracks": {}, "missing": {}, "text": "", "n": 0}
    advantage = row.tracks.get("advantage") or ()
    here = len(row.words)
    more = rest = ""
    if here and row.n > here:
        more = f"show all {row.n:,} tokens" if here <= FIRST else ""
        rest = f"{here:,} of {row.n:,} tokens" + ("" if more else "; the rest is in the store")
    elif not here and row.characters > len(row.text):
        more = f"show all {row.characters:,} characters" if len(row.text) < min(row.characters, ALL) else ""
        rest = f"{len(row.text):,} of {row.characters:,} characters"
    return {
        "id": row.id,
        "n": row.n,
        "words": [shown(w, 400) for w in row.words],
        "ids": list(row.ids),
        "special": list(row.special),
        "tracks": {k: list(v) for k, v in row.tracks.items()},
        "missing": dict(row.missing),
        "text": "" if here else shown(row.text, ALL),
        "why": row.missing.get("logp", ""),
        "more": more,
        "rest": rest,
        "policy": row.policy,
        "largest": round(max([largest, *(abs(a) for a in advantage if a is not None)]), 4),
        "own": len(set(advantage)) > 1,
        "low": kept.band.low,
        "high": kept.band.high,
        "said": kept.band.source,
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
