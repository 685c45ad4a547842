"""The pages of the dashboard by name: one file each, imported when it is turned to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.views.pages.base import Page

TITLES = {
    "live": "Live",
    "difficulty": "Difficulty",
    "budget": "Budget",
    "tree": "Tree",
    "tokens": "Tokens",
    "signs": "Signs",
    "compare": "Compare",
    "sql": "SQL",
    "glossary": "Glossary",
}
"""Name -> title in the navigation, in the order shown. The page of a name is the `Page` in the module of that name."""


class Pages(Mapping):
    """Name -> class of the pages there are, in the order of the navigation."""

    def __getitem__(self, name: str) -> type[Page]:
        from workbench.views.pages.base import Page

        if name not in list(self):
            raise KeyError(f"there is no page {name!r}; there are {', '.join(self)}")
        module = import_module(f"{__name__}.{name}")
        return next(
            thing
            for thing in vars(module).values()
            if isinstance(thing, type) and issubclass(thing, Page) and thing.__module__ == module.__name__
        )

    def __iter__(self) -> Iterator[str]:
        return (name for name in TITLES if find_spec(f"{__name__}.{name}"))

    def __len__(self) -> int:
        return len(list(iter(self)))


PAGES = Pages()
