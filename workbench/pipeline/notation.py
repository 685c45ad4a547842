"""How methods are written: "grpo + mopps(target=0.4)", or Pipeline(Grpo(), Mopps(target=0.4)); `catalog` reads both."""

from __future__ import annotations

from collections.abc import Iterable

from workbench.stages import Method, Only


def listed(methods: Iterable[Method]) -> str:
    """Methods as the pipeline that has them in this order."""
    return f"Pipeline({', '.join(written(m, type(m).__name__ + '()') for m in methods)})"


def written(method: Method, plain: str) -> str:
    """A method with the settings that differ from the paper's, in the form of `plain` ("mopps" or "Mopps()")."""
    if isinstance(method, Only):
        inner = written(method.method, plain if not plain.endswith("()") else type(method.method).__name__ + "()")
        return f"Only({inner}, {', '.join(map(repr, method.only))})"
    settings = ", ".join(f"{k}={v!r}" for k, v in method.settings.items())
    return f"{plain.removesuffix('()')}({settings})" if settings else plain
