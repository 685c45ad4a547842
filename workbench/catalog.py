"""Every method there is, found by slug, verb or name: one file in `workbench/methods/` is one entry."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from workbench import methods as _folder
from workbench.stages import VERBS, Method, Only


@cache
def methods() -> dict[str, type[Method]]:
    """Slug -> method class, in alphabetical order: the classes of `workbench.methods.*` that carry a card."""
    found: dict[str, type[Method]] = {}
    for module_info in pkgutil.iter_modules(_folder.__path__):
        module = importlib.import_module(f"{_folder.__name__}.{module_info.name}")
        for thing in vars(module).values():
            if isinstance(thing, type) and issubclass(thing, Method) and thing.__module__ == module.__name__:
                found[thing.card.slug] = thing
    return dict(sorted(found.items()))


def find(verb: str) -> list[str]:
    """Slugs of the methods that act at a verb."""
    if verb not in VERBS:
        raise ValueError(f"{verb!r} is not a verb; the verbs are {', '.join(VERBS)}")
    return [slug for slug, cls in methods().items() if hasattr(cls, verb)]


def make(slug: str, *, only: list[str] | None = None, **settings: object) -> Method:
    """A method by its slug, with settings that differ from the paper's: `make("vade", lambda_sample=0.8)`."""
    slug = slug.replace("-", "_").lower()
    known = methods()
    if slug not in known:
        raise ValueError(f"no method {slug!r}; there are {', '.join(known)}")
    try:
        method = known[slug](**settings)
    except TypeError as error:
        names = ", ".join(getattr(known[slug], "__dataclass_fields__", ()))
        raise ValueError(f"{slug}: {error}; its settings are {names or 'none'}") from error
    return Only(method, *only) if only else method


def table() -> str:
    """The method table of the README, in Markdown."""
    rows = ["| method | paper | acts at | source |", "|---|---|---|---|"]
    for slug, cls in methods().items():
        card = cls.card
        paper = f"[{card.title}](https://arxiv.org/abs/{card.arxiv})" if card.arxiv else card.title
        verbs = ", ".join(v for v in VERBS if hasattr(cls, v))
        rows.append(f"| `{slug}` | {paper} | {verbs} | {card.source} |")
    return "\n".join(rows)
