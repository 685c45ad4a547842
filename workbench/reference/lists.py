"""The lists of methods that a command writes: `python -m workbench.reference.lists`, after adding a paper.

They are the README's table, and `workbench/methods/__init__.py`, which names every class to editors and type checkers.
A test holds both against the catalog.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

from workbench.pipeline import catalog
from workbench.reference.methods import rows

PACKAGE = Path(__file__).parents[1]
BEGIN, END = "<!-- methods: written by python -m workbench.reference.lists -->\n", "<!-- /methods -->"

INIT = '''"""The methods, one paper each, by class: `from workbench.methods import Grpo, Vade`.

Written by `python -m workbench.reference.lists`. A class is imported at its first use; its module is its name in
lower case, with underscores: `DrGrpo` is in `dr_grpo`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
{imports}

__all__ = [
{names}
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in __all__:
        for module in iter_modules(__path__):
            if module.name.replace("_", "") == name.lower():
                return getattr(import_module(f"{__name__}.{module.name}"), name)
    raise AttributeError(f"workbench.methods has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
'''


def methods_init() -> str:
    """The text of `workbench/methods/__init__.py`."""
    home = {cls.__name__: cls.__module__ for cls in catalog.methods().values()}
    imports = "\n".join(f"    from {module} import {name} as {name}" for name, module in home.items())
    names = ", ".join(
        f'"{name}"' for name in sorted(home, key=lambda name: (not name.isupper(), name))
    )  # as ruff sorts
    lines = fill(names, 116, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return INIT.replace("{imports}", imports).replace("{names}", f"{lines},")


def with_table(readme: str) -> str:
    """A README with the table of methods of the catalog."""
    before, _, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the README has no {BEGIN.strip()} with a {END} behind it")
    return "\n".join([before + BEGIN.rstrip(), *rows(lambda slug: f"`{slug}`"), end + after])


def main() -> None:
    """Write both."""
    (PACKAGE / "methods" / "__init__.py").write_text(methods_init())
    readme = PACKAGE.parent / "README.md"
    readme.write_text(with_table(readme.read_text()))


if __name__ == "__main__":
    main()
