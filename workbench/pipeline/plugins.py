"""Plugins: methods from outside the package, by entry point, by file or module, and those that are unknown here.

A package brings methods by entry points of the group `rollout_workbench.methods`, each a class or a module with classes; a
researcher by a file that the experiment names, `methods = ["my_file.py"]`. A record may name a method that this
installation lacks: `Unknown` takes its place, so that everything but acting works.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib import import_module, metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from workbench.stages import VERBS, Card, Method

GROUP = "rollout_workbench.methods"
PACKAGE = "workbench.methods."


def classes(module: ModuleType) -> dict[str, type[Method]]:
    """Slug -> class of the methods that a module defines itself."""
    found = [t for t in vars(module).values() if isinstance(t, type) and issubclass(t, Method) and hasattr(t, "card")]
    return {cls.card.slug: cls for cls in found if cls.__module__ == module.__name__}


def installed() -> dict[str, type[Method]]:
    """The methods that installed packages bring; one that cannot be loaded is a warning, and is left out."""
    found: dict[str, type[Method]] = {}
    for entry in metadata.entry_points(group=GROUP):
        try:
            loaded = entry.load()
            new = classes(loaded) if isinstance(loaded, ModuleType) else {loaded.card.slug: loaded}
        except Exception as error:  # whatever a foreign package raises
            warnings.warn(
                f"the methods {entry.value!r} of an installed package cannot be loaded: {error}", stacklevel=2
            )
        else:
            found |= new
    return found


@cache
def load(source: str, changed: int) -> dict[str, type[Method]]:
    """Slug -> class of the methods in a Python file, "my_file.py", or in a module, "my_package.methods".

    changed: when the file was, so that it is read again then, and only then."""
    try:
        module = _run(Path(source)) if source.endswith(".py") else import_module(source)
    except (Exception, SystemExit) as error:  # whatever a file of one's own raises
        raise ValueError(f"the methods of {source} cannot be loaded, {type(error).__name__}: {error}") from error
    found = classes(module)
    if not found:
        raise ValueError(
            f"{source} has no method: a frozen dataclass that inherits workbench.stages.Method and has a card"
        )
    return found


def _run(path: Path) -> ModuleType:
    """A file as a module; two files of one name in different folders are two modules."""
    name = f"workbench_own_{path.stem}_{blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def origin(method: Method) -> str:
    """Where a method's class comes from: its file or its module; "" for the methods of the package."""
    if isinstance(method, Unknown):
        return ""
    name = type(getattr(method, "method", method)).__module__  # of the method behind an `Only`
    if name.startswith(PACKAGE):
        return ""
    return str(sys.modules[name].__file__) if name.startswith("workbench_own_") else name


@dataclass(frozen=True)
class Unknown(Method):
    """A recorded method that this installation lacks: it has its name and settings, observes nothing and refuses to act."""

    slug: str
    given: Mapping[str, object] = field(default_factory=dict)
    reason: str = ""

    @property
    def card(self) -> Card:  # type: ignore[override]
        """A card that says what is missing."""
        return Card(self.slug, f"{self.slug}, unknown here", source="unknown here", watch=self.reason)

    @property
    def settings(self) -> dict[str, object]:
        """The settings that the record has."""
        return dict(self.given)

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name in VERBS:
            return self.refuse
        raise AttributeError(name)

    def refuse(self, *arguments: object) -> object:
        """Raise ValueError: say why this method cannot act, and the way out."""
        raise ValueError(self.reason)
