"""Every method there is, found by slug, verb or name: one file in `workbench/methods/` is one entry."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from functools import cache

from workbench import methods as _folder
from workbench.stages import VERBS, Method, Only
from workbench.validate import nearest


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
        raise ValueError(f"no method {slug!r}; there are {', '.join(known)}{nearest(slug, known)}")
    try:
        method = known[slug](**settings)
    except TypeError as error:
        names = ", ".join(getattr(known[slug], "__dataclass_fields__", ()))
        raise ValueError(f"{slug}: {error}; its settings are {names or 'none'}") from error
    return Only(method, *only) if only else method


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
