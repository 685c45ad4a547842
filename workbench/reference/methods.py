"""A page for each method, from what its file says of itself: card, docstrings, settings, source grade, deviations."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from types import FunctionType, ModuleType

from workbench.pipeline import catalog
from workbench.stages import DECIDES, VERBS, Method

GRADES = {
    "code": "formulas read from the authors' code",
    "C*": "formulas checked against the numbers of the authors' own functions",
    "paper": "formulas from the paper alone; no code was published, or none was found",
    "notes": "formulas from a summary of the paper; details may differ from it",
    "ours": "no paper: made here",
}
"""Source grade -> what it promises."""

DOES = {
    "select": "chooses the prompts of a step",
    "allocate": "says how many rollouts each prompt gets",
    "amend": "changes the plan: hints, extra rollouts, caps",
    "more": "asks for another round in the same step",
    "branch": "forks a rollout while it is generated",
    "prune": "stops a rollout while it is generated",
    "reward": "shapes or judges rewards",
    "admit": "says what may enter the batch",
    "replay": "adds rollouts of earlier steps or other nodes",
    "estimate": "turns rewards into advantages",
    "loss": "the objective",
    "penalty": "a term beside the objective",
}
"""Verb -> what a method does there."""


def rows(named: Callable[[str], str]) -> list[str]:
    """The lines of a Markdown table of all methods; `named` writes a slug."""
    lines = ["| method | paper | acts at | source |", "|---|---|---|---|"]
    for slug, cls in catalog.methods().items():
        card = cls.card
        paper = f"[{card.title}](https://arxiv.org/abs/{card.arxiv})" if card.arxiv else card.title
        verbs = ", ".join(v for v in VERBS if hasattr(cls, v))
        lines.append(f"| {named(slug)} | {paper} | {verbs} | {card.source} |")
    return lines


def table() -> str:
    """All methods as a Markdown table, each with its page."""
    grades = [f"- **{grade}**: {what}" for grade, what in GRADES.items()]
    verbs = [f"- **{v}**: {DOES[v]}{'; the last method that has it decides' if v in DECIDES else ''}" for v in VERBS]
    return "\n".join(
        [
            "# Methods",
            "",
            *rows(lambda slug: f"[`{slug}`](methods/{slug}.md)"),
            "",
            "## Where they act",
            "",
            *verbs,
            "",
            "## How well a source is known",
            "",
            *grades,
        ]
    )


def page(slug: str) -> str:
    """The page of one method, in Markdown."""
    cls = catalog.methods()[slug]
    card, module = cls.card, importlib.import_module(cls.__module__)
    links = [f"[arXiv {card.arxiv}](https://arxiv.org/abs/{card.arxiv})"] if card.arxiv else []
    links += [f"[code]({card.code})"] if card.code else []
    verbs = [v for v in VERBS if hasattr(cls, v)]
    lines = [
        f"# {card.title}",
        "",
        f"`{slug}`{' · ' + ' · '.join(links) if links else ''} · source: **{card.source}**, {GRADES[card.source]}",
        "",
        _first(module.__doc__),
        "",
        f"```python\nExperiment(pipeline={_usage(cls)!r})\n```",
        "",
        "## Where it acts",
        "",
        *(f"- **{v}**: {_first(getattr(cls, v).__doc__) or DOES[v]}" for v in verbs),
        "",
        *_settings(cls),
        *_functions(module),
        *_shared(module),
        *_list("Where it differs from its source", card.deviations),
        *_list("What to look at", [card.watch] if card.watch else []),
        *_list("What it may leave unspent", [card.unspent] if card.unspent else []),
        *_list("What it needs of a world", sorted(cls().needs)),
        "",
        f"Test vectors: `tests/golden/{card.golden or slug.replace('_', '-')}.json`. File: `{module.__name__.replace('.', '/')}{'/__init__' if hasattr(module, '__path__') else ''}.py`.",
    ]
    return "\n".join(lines)


def _usage(cls: type[Method]) -> str:
    slug = cls.card.slug
    complete = hasattr(cls, "estimate") and hasattr(cls, "loss")
    return slug if complete else f"grpo + {slug}"


def _first(doc: str | None) -> str:
    """The first paragraph of a docstring as one line."""
    return " ".join(inspect.cleandoc(doc or "").split("\n\n")[0].split())


def _settings(cls: type[Method]) -> list[str]:
    found = fields(cls)  # type: ignore[arg-type]
    lines = ["## Settings", "", inspect.cleandoc(cls.__doc__ or ""), ""]
    if not found:
        return [*lines, "It has no settings.", ""]
    lines += ["| setting | default | type |", "|---|---|---|"]
    for f in found:
        default = "" if f.default is MISSING else f"`{f.default!r}`"
        kind = str(f.type).replace("|", "or")
        lines.append(f"| `{f.name}` | {default} | {kind} |")
    return [*lines, ""]


def _functions(module: ModuleType) -> list[str]:
    """The pure functions of a method's file: signature and docstring, which holds the formula."""
    own = [
        f for f in vars(module).values()
        if isinstance(f, FunctionType) and f.__module__ == module.__name__ and not f.__name__.startswith("_")
    ]  # fmt: skip
    lines = ["## Formulas", ""] if own else []
    for f in own:
        names = ", ".join(inspect.signature(f).parameters)
        lines += [f"### `{f.__name__}({names})`", "", inspect.cleandoc(f.__doc__ or "").replace("\n", "  \n"), ""]
    return lines


def _shared(module: ModuleType) -> list[str]:
    """The functions that it shares with other methods, by their first paragraph."""
    used = [f for f in vars(module).values() if isinstance(f, FunctionType) and ".numerics." in f.__module__]
    return _list(
        "Formulas it shares", [f"`{f.__module__.rpartition('.')[2]}.{f.__name__}`: {_first(f.__doc__)}" for f in used]
    )


def _list(title: str, items: object) -> list[str]:
    found = list(items)  # type: ignore[call-overload]
    return [f"## {title}", "", *(f"- {item}" for item in found), ""] if found else []
