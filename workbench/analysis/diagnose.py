"""Diagnosis of a run: what rules over its record found, each with its evidence, texts to look at and a way out.

What a rule found can be asked for again: a finding carries its SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from workbench.analysis import rules_of_health, rules_of_learning, rules_of_text  # noqa: F401 - they register theirs
from workbench.analysis.rules import NO_DATA, RULES, TOO_SHORT, TooShort
from workbench.analysis.rules_of_text import quote

if TYPE_CHECKING:
    from workbench.store import Store

__all__ = ["NO_DATA", "RULES", "TOO_SHORT", "Diagnosis", "Finding", "diagnose", "examine"]

FINE, HIDDEN = "fine", "told by another rule"

TEXTS = """
SELECT c.text, r.reward FROM rollouts r JOIN completions c USING (run, rank, step, row)
WHERE r.run = $run AND r.purpose = 'train' AND r.step = (SELECT max(step) FROM steps WHERE run = $run)
ORDER BY r.reward NULLS FIRST, hash(r.row) LIMIT 3
"""
"""Three completions of the last step, those without reward first."""


@dataclass(frozen=True)
class Finding:
    """rule: its name; what: the finding in one sentence; evidence: figures; way_out: what to try; sql: where it is from; texts:
    completions to look at, with their rewards, untrusted and cut short."""

    rule: str
    what: str
    evidence: Mapping[str, object]
    way_out: str
    sql: str = field(repr=False)
    texts: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        figures = ", ".join(f"{k} {_short(v)}" for k, v in self.evidence.items())
        texts = "".join(f"\n    text: {text}" for text in self.texts)
        return f"{self.rule}: {self.what}\n    {figures}\n    try: {self.way_out}{texts}"

    def _repr_html_(self) -> str:
        figures = "".join(
            f"<tr><td>{escape(k)}</td><td>{escape(_short(v))}</td></tr>" for k, v in self.evidence.items()
        )
        texts = "".join(f"<br><code>{escape(text)}</code>" for text in self.texts)
        return (
            f"<b>{escape(self.rule)}</b> {escape(self.what)}<table>{figures}</table>"
            f"<i>{escape(self.way_out)}</i>{texts}<details><summary>SQL</summary><pre>{escape(self.sql)}</pre></details>"
        )


class Diagnosis(NamedTuple):
    """findings: in the order of the rules; verdicts: rule -> "found", "fine", "no data", "too short to judge" or "told by
    another rule"."""

    findings: list[Finding]
    verdicts: Mapping[str, str]

    def __str__(self) -> str:
        lines = [str(finding) for finding in self.findings]
        for verdict in (FINE, TOO_SHORT, NO_DATA, HIDDEN):
            names = [name for name, said in self.verdicts.items() if said == verdict]
            if names:
                lines.append(f"{verdict}: {', '.join(names)}")
        return "\n".join(lines)


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value[:3])) + (f" and {len(value) - 3} more" if len(value) > 3 else "")
    return str(value)


def diagnose(store: Store, run: str | None = None) -> list[Finding]:
    """Every rule's finding on a run (default: the latest), in the order of the rules; [] for a healthy one.

    >>> from workbench import Store
    >>> with Store.sample() as store:
    ...     [finding.rule for finding in diagnose(store)]
    ['constant_reward_part', 'idle_groups']
    """
    return examine(store, run).findings


def examine(store: Store, run: str | None = None) -> Diagnosis:
    """What each rule says of a run (default: the latest); a rule whose cause another one found is not asked."""
    chosen = run or store.latest()
    if chosen is None:
        raise ValueError(f"the store {store.where} has no run yet; `workbench demo` records one")
    known = store.sql("SELECT count(*) AS n FROM runs WHERE run = $run", {"run": chosen})["n"][0].as_py()
    if not known:
        raise ValueError(f"no run {chosen!r} in {store!r}")
    found: list[Finding] = []
    verdicts: dict[str, str] = {}
    answers: dict[str, pa.Table] = {}  # several rules read the same rows
    for name, rule in RULES.items():
        if name in verdicts:
            continue
        if rule.sql not in answers:
            answers[rule.sql] = store.sql(rule.sql, {"run": chosen})
        rows = answers[rule.sql]
        try:
            said = rule.read(rows) if rows.num_rows else rule.empty
        except TooShort:
            said = TOO_SHORT
        if said is None or isinstance(said, str):
            verdicts[name] = said or FINE
            continue
        verdicts[name] = "found"
        verdicts |= {hidden: HIDDEN for hidden in rule.hides if hidden not in verdicts}
        what, evidence = said
        texts = found[0].texts if found else _texts(store, chosen)
        found.append(Finding(name, what, evidence, rule.way_out, rule.sql.replace("$run", f"'{chosen}'"), texts))
    return Diagnosis(found, {name: verdicts[name] for name in RULES})


def _texts(store: Store, run: str) -> tuple[str, ...]:
    """Completions to look at, with their rewards."""
    rows = store.sql(TEXTS, {"run": run}).to_pylist()
    rewards = ("none" if r["reward"] is None else format(r["reward"], "g") for r in rows)
    return tuple(f"reward {reward}: {quote(r['text'] or '')}" for reward, r in zip(rewards, rows, strict=True))
