"""Catalog of methods, found by slug, verb or name: the files of `workbench/methods/`, and plugins.

>>> from workbench import catalog
>>> catalog.find("replay")
['dart', 'dots_rr', 'sapo']
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from workbench import methods as _folder
from workbench.pipeline import plugins
from workbench.stages import VERBS, Method, Only
from workbench.validate import nearest

_added: dict[str, dict[str, type[Method]]] = {}
"""File or module -> the methods it brought, in this process."""


@cache
def packaged() -> dict[str, type[Method]]:
    """Slug -> class of the methods of `workbench.methods`, in alphabetical order."""
    found: dict[str, type[Method]] = {}
    for module_info in pkgutil.iter_modules(_folder.__path__):
        found |= plugins.classes(importlib.import_module(f"{_folder.__name__}.{module_info.name}"))
    return dict(sorted(found.items()))


_installed = cache(plugins.installed)


def methods() -> dict[str, type[Method]]:
    """Slug -> method class, in alphabetical order: those of the package, of installed packages, and those added."""
    own = {slug: cls for found in _added.values() for slug, cls in found.items()}
    return dict(sorted((_installed() | own | packaged()).items()))


def add(source: str | Path) -> list[str]:
    """Slugs of the methods that a Python file or a module brings; from now on pipelines may name them.

    A file that has changed is read again. Raises ValueError where it cannot be loaded, has no method, or takes a name that is there.
    """
    name = located(source)
    found = plugins.load(name, Path(name).stat().st_mtime_ns if Path(name).is_file() else 0)
    others = {**_installed(), **packaged(), **{s: c for key in _added if key != name for s, c in _added[key].items()}}
    for slug, cls in found.items():
        if slug in others and others[slug] is not cls:
            raise ValueError(
                f"{name} has a method {slug!r}, and so has {others[slug].__module__}; give it another slug"
            )
    _added[name] = found
    return sorted(found)


def located(source: str | Path) -> str:
    """A file by its whole path, a module by its name."""
    return str(Path(source).absolute()) if str(source).endswith(".py") else str(source)


def added(source: str) -> bool:
    """Whether a file or module was added in this process."""
    return source in _added


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
        raise ValueError(f"no method {slug!r}; there are {', '.join(known)}{nearest(slug, known)}")
    try:
        method = known[slug](**settings)
    except TypeError as error:
        names = ", ".join(getattr(known[slug], "__dataclass_fields__", ()))
        raise ValueError(f"{slug}: {error}; its settings are {names or 'none'}") from error
    return Only(method, *only) if only else method


def recorded(row: Mapping[str, object], sources: Iterable[str] = ()) -> Method:
    """The method of a recorded pipeline's row; a named placeholder where this installation cannot make it.

    sources: the files and modules that the run had its methods from, for the way out."""
    settings = dict(row)
    slug = str(settings.pop("method"))
    try:
        return make(slug, **settings)  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        if slug in methods():
            reason = f"{error}; it was recorded with other settings, by another version"
        else:
            had = f", which the run had from {' or '.join(sources)}" if sources else ""
            reason = (
                f"there is no method {slug!r} here{had}; name its file or module, Experiment(methods=[...]) or "
                f"workbench replay --methods FILE, or install the package that brings it"
            )
        return plugins.Unknown(slug, settings, reason)


def parts(text: str) -> list[ast.expr]:
    """The methods named in "grpo + mopps(target=0.4)", "grpo, vade" or "Pipeline(Grpo(), Vade())", as syntax trees."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"cannot read the pipeline {text!r}; write for example: grpo + mopps(target=0.4)") from error
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "Pipeline":
        return list(tree.args)
    if isinstance(tree, ast.Tuple):
        return list(tree.elts)
    found: list[ast.expr] = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add):
        found.append(tree.right)
        tree = tree.left
    return [tree, *reversed(found)]


def read(tree: ast.expr) -> Method:
    """A method from one such tree: a name, or a call whose arguments are literals; `Only(vade(), "select")` too."""
    call = tree if isinstance(tree, ast.Call) else ast.Call(tree, [], [])
    if not isinstance(call.func, ast.Name):
        raise ValueError(f"{ast.unparse(tree)!r} is not a method; there are {', '.join(methods())}")
    try:
        if call.func.id.lower() == "only" and call.args:
            return Only(read(call.args[0]), *(str(ast.literal_eval(verb)) for verb in call.args[1:]))
        if call.args:
            raise ValueError(f"{ast.unparse(tree)!r}: give settings by name, as in mopps(target=0.4)")
        settings = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (ValueError, TypeError) as error:
        if isinstance(error, ValueError) and "malformed" not in str(error):
            raise
        raise ValueError(f"{ast.unparse(tree)!r}: settings must be plain numbers, words or lists") from error
    by_name = {cls.__name__.lower(): slug for slug, cls in methods().items()}
    slug = call.func.id.lower()
    return make(by_name.get(slug, slug), **settings)
