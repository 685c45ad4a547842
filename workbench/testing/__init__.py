"""Test your own method: `contract(MyMethod)` holds a class against every promise that the methods of the package keep.

>>> from workbench.methods import Mopps
>>> from workbench.testing import contract
>>> contract(Mopps)
"""

from __future__ import annotations

from traceback import extract_tb

from workbench.stages import Method
from workbench.testing import acts, estimates, objectives, records  # noqa: F401  each adds its promises
from workbench.testing.promise import PROMISES


def contract(cls: type[Method]) -> None:
    """Check every promise of a method's class; AssertionError names each that is broken, and where it broke.

    It takes seconds, in a scripted world: no model is loaded, and nothing is recorded."""
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise TypeError(f"{cls!r} is not a class of methods; write contract(Progress), without settings")
    if cls.__hash__ is None:
        raise AssertionError(f"{cls.__name__} is no frozen record; write @dataclass(frozen=True) above it")
    verbs = set(cls().verbs)
    broken: dict[str, Exception] = {}
    kept = [p for p in PROMISES if not p.verbs or verbs & set(p.verbs)]
    for promise in kept:
        try:
            promise.check(cls)
        except Exception as error:
            broken[promise.sentence] = error
    if broken:
        lines = [f"{cls.__name__} breaks {len(broken)} of its {len(kept)} promises:"]
        lines += [f"- {sentence}: {_reason(error)}" for sentence, error in broken.items()]
        raise AssertionError("\n".join(lines)) from next(iter(broken.values()))


def _reason(error: Exception) -> str:
    """What an assertion says, or its line where it says nothing; and in which case."""
    last = extract_tb(error.__traceback__)[-1]
    text = str(error).splitlines()[0] if str(error) else str(last.line)
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"{kind}{text}{''.join(f' ({note})' for note in getattr(error, '__notes__', ()))}"
