"""The pages of the dashboard by name: each file of this folder beside `base` holds one and says its title and place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.views.pages.base import Page


class Pages(Mapping):
    """Name -> class of the pages there are, in the order of the navigation."""

    def __getitem__(self, name: str) -> type[Page]:
        from workbench.views.pages.base import Page

        if name not in _files():
            raise KeyError(f"there is no page {name!r}; there are {', '.join(self)}")
        module = import_module(f"{__name__}.{name}")
        return next(
            thing
            for thing in vars(module).values()
            if isinstance(thing, type) and issubclass(thing, Page) and thing.__module__ == module.__name__
        )

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(_files(), key=self._order))

    def __len__(self) -> int:
        return len(_files())

    def _order(self, name: str) -> tuple[float, str]:
        with suppress(Exception):  # a file that cannot be imported is reported when the page is turned to
            return self[name].order, name
        return float("inf"), name

    def title(self, name: str) -> str:
        """What the navigation calls a page; the name of its file where that cannot be imported."""
        with suppress(Exception):
            return self[name].title
        return name


def _files() -> list[str]:
    return [module.name for module in iter_modules(__path__) if module.name != "base"]


PAGES = Pages()
