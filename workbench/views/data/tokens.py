"""Token log-probabilities, entropies, ratios and advantages of one rollout, and the rollouts of its group.

A track is a number per token. What was not recorded is named with its reason, never filled in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.numerics.roles import HINT
from workbench.pipeline import Pipeline
from workbench.store.token_bytes import texts, unknown
from workbench.views.data.groups import GroupFacts, shared
from workbench.views.data.records import filled, parsed
from workbench.views.data.text import known

if TYPE_CHECKING:
    from workbench.views.data.run import RunData

FIRST = 2_000
"""Tokens shown before "show all"."""

MOST = 20_000
"""Tokens sent by "show all"; what is longer is cut there, and says so."""

TRACKS = ("logp", "entropy", "ratio", "advantage", "clipped")


class Sibling(NamedTuple):
    """A rollout of the group: what it earned and what became of it."""

    row: int
    id: str
    reward: float | None
    correct: float | None
    advantage: float | None
    baseline: float | None
    estimator: str = ""
    length: int = 0
    finish: str = ""
    version: int = 0
    parent: str = ""
    fork_at: int = -1
    fate: str = ""
    reason: str = ""


class Band(NamedTuple):
    """Clip range of the importance ratio: between which ratios the loss lets a token act, and who says so in words. Both
    None where whole sequences are clipped."""

    low: float | None
    high: float | None
    source: str


class Coverage(NamedTuple):
    """What is kept of the tokens of a step. columns: name -> rollouts that have it."""

    retention: str
    share: float
    vocabulary: bool
    rollouts: int
    columns: Mapping[str, int]
    band: Band


class TokenText(NamedTuple):
    """One rollout: n tokens in all, of which len(words) are here; without tokens its text alone.

    words: text that each token adds, "" inside a character. tracks: name -> number per token, null where there is none;
    missing: name of a track -> why it is not there. policy: whose ratio it is."""

    id: str
    n: int
    characters: int
    text: str
    words: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    special: tuple[int, ...] = ()
    tracks: Mapping[str, Sequence[float | None]] = {}
    missing: Mapping[str, str] = {}
    policy: str = ""


def siblings(data: RunData, g: GroupFacts) -> tuple[Sibling, ...]:
    """The rollouts of a group, best rewarded first."""

    def ask() -> tuple[Sibling, ...]:
        rows = data.ask("page_siblings", step=g.step, rank=g.rank, group=g.group).to_pylist()
        return tuple(filled(Sibling, r, id=r["rollout_id"]) for r in rows)

    return shared(data, ("siblings", g.step, g.rank, g.group), ask)


def coverage(data: RunData, step: int) -> Coverage:
    """What is kept of a step."""

    def ask() -> Coverage:
        r = data.ask("page_coverage", step=step).to_pylist()[0]
        names = ("tokens", "logp", "entropy", "role", "current", "proximal", "credit")
        spec = parsed(r["swapped"]).get("to") or parsed(r["experiment"]).get("pipeline")
        kept = {k: r[k] for k in names}
        return Coverage(
            r["retention"] or "all", r["share"] or 0.0, bool(r["vocabulary"]), r["rollouts"], kept, band(spec)
        )

    return shared(data, ("coverage", step), ask)


def token_text(data: RunData, g: GroupFacts, sibling: Sibling, whole: bool = False) -> TokenText:
    """A rollout token by token; its first FIRST tokens, or with whole up to MOST."""
    most = MOST if whole else FIRST
    kept = coverage(data, g.step)

    def ask() -> TokenText:
        found = data.ask("page_tokens", step=g.step, rank=g.rank, row=sibling.row, most=most, cut=4 * FIRST).to_pylist()
        return read(found[0], kept) if found else TokenText(sibling.id, 0, 0, "")

    return shared(data, ("token_text", g.step, g.rank, sibling.row, whole), ask)


def read(row: Mapping[str, Any], kept: Coverage) -> TokenText:
    """A row of `page_tokens` as words and tracks."""
    plain = TokenText(row["rollout_id"], row["n"] or 0, row["characters"] or 0, row["text"] or "")
    if row["tokens"] is None:
        return plain._replace(missing=dict.fromkeys(TRACKS, why_no_tokens(kept)))
    ids = tuple(row["tokens"])
    pieces = row["pieces"] or [None] * len(ids)
    words = texts(unknown(t) if p is None else p for t, p in zip(ids, pieces, strict=True))
    tracks: dict[str, Sequence[float | None]] = {}
    missing: dict[str, str] = {}
    for name in ("logp", "entropy"):
        if row[name] is None:
            missing[name] = "the world that generated these rollouts did not report it"
        else:
            tracks[name] = _rounded(row[name])
    policy = next((p for p in ("current", "proximal") if row[p] is not None), "")
    credit = row["advantage"] or ([row["value"]] * len(ids) if row["value"] is not None else None)
    if credit is None:
        missing["advantage"] = "no estimator said anything of this rollout"
    else:
        tracks["advantage"] = _rounded(credit)
    if policy and row["logp"] is not None:
        roles = row.get("role") or [None] * len(ids)  # the tokens of a hint have no sampler to have a ratio to
        ratio = [
            None if role == HINT else _ratio(a, b) for a, b, role in zip(row[policy], row["logp"], roles, strict=True)
        ]
        tracks["ratio"] = _rounded(ratio)
        _clip(tracks, missing, ratio, credit, kept.band)
    else:
        why = "no log-probabilities under a second policy were recorded: no method of the pipeline names current or proximal in its needs"
        missing |= {"ratio": why, "clipped": why}
    special = set(row["special"] or ())
    marked = tuple(i for i, t in enumerate(ids) if t in special)
    return plain._replace(words=tuple(words), ids=ids, special=marked, tracks=tracks, missing=missing, policy=policy)


def _clip(tracks: dict, missing: dict, ratio: Sequence[float | None], credit: Sequence | None, limits: Band) -> None:
    """1 where the clipped loss gives a token no gradient: the ratio has left the band on the side the advantage pushes to."""
    if limits.low is None or limits.high is None:
        missing["clipped"] = limits.source
    elif credit is None:
        missing["clipped"] = "no advantage is known, so no side to clip"
    else:
        tracks["clipped"] = [
            None if r is None or a is None else float((a > 0 and r > limits.high) or (a < 0 and r < limits.low))
            for r, a in zip(ratio, credit, strict=True)
        ]


def why_no_tokens(kept: Coverage) -> str:
    """Why a rollout has no tokens on record."""
    if kept.retention == "none":
        return 'this run keeps no tokens (tokens = "none")'
    if kept.retention == "sample":
        return f"this run keeps the tokens of {100 * kept.share:.3g} % of the groups, and this group is not among them"
    return "the world that generated these rollouts has no tokens"


def band(spec: object) -> Band:
    """The ratios between which the loss of a pipeline, as recorded, lets tokens act; PPO's own where it says nothing."""
    rows = [r for r in spec if isinstance(r, Mapping)] if isinstance(spec, list) else []
    try:
        methods = Pipeline.parse(rows).methods if rows else ()  # type: ignore[arg-type]
    except Exception:  # a method that is not installed here: its settings are in the record, its defaults are not
        methods = ()
    for m in reversed(methods):
        settings = {f.name: getattr(m, f.name) for f in fields(m)} if is_dataclass(m) else {}
        if "loss" in m.verbs and {"eps_low", "eps_high"} <= settings.keys():
            low, high = float(settings["eps_low"]), float(settings["eps_high"])
            if "gspo" in str(settings.get("kind", "")):
                return Band(None, None, f"{m.name} clips the ratio of whole sequences, not of tokens")
            return Band(1 - low, 1 + high, m.name)
    return Band(0.8, 1.2, "PPO's default, the loss names no band")


def _ratio(policy: float | None, behaviour: float | None) -> float | None:
    if policy is None or behaviour is None:
        return None
    return math.exp(min(max(policy - behaviour, -20.0), 20.0))


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [known(v, 4) for v in values]
