"""Imports run one way and in no circle, and the core needs numpy alone."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import workbench

ROOT = Path(workbench.__file__).parent
HEAVY = (
    "torch",
    "transformers",
    "panel",
    "bokeh",
    "holoviews",
    "duckdb",
    "pyarrow",
    "scipy",
    "pandas",
    "datasets",
    "vllm",
)

LEAVES = {"types", "validate", "version"}
CORE = LEAVES | {"numerics", "stages", "methods", "pipeline"}
RUNNING = CORE | {"tasks", "models", "parallel", "store", "worlds", "runs"}
MAY_IMPORT: dict[str, set[str]] = {
    "types": set(),
    "validate": set(),
    "version": set(),
    "numerics": {"types"},
    "stages": {"types"},
    "models": {"validate"},
    "parallel": {"validate"},
    "methods": {"types", "numerics", "stages"},
    "pipeline": {"types", "numerics", "stages", "methods", "validate"},
    "testing": CORE,
    "tasks": {"types", "numerics", "validate"},
    "store": {"types", "numerics", "version"},
    "worlds": RUNNING - {"methods", "runs", "version"},
    "runs": RUNNING,
    "analysis": RUNNING - {"tasks", "models", "parallel"},
    "views": CORE - {"methods"} | {"store", "analysis", "runs"},
    "report": {"types", "stages", "pipeline", "store", "analysis", "views.parts", "views.data"},
    "reference": {"pipeline.catalog", "stages", "store.schema", "store.questions", "views.glossary"},
    "cli": RUNNING | {"analysis", "views", "report", "reference"},
    "__main__": {"cli"},
    "workbench": RUNNING | {"analysis", "views", "report"},
}
"""Part of the package -> parts, or files of parts, that it may import besides itself; `workbench` is the package's own
`__init__`. A part that is not here has no rule yet, which is a failure: write its row."""

BY_FILE: dict[str, set[str]] = {
    "workbench.models.make_tiny": {"tasks", "types"},
    "workbench.models.tiny_lessons": {"tasks"},
}
"""Files that may import more than their part: the tiny model is trained on questions of the tasks."""

BASES = {"grpo", "dapo_dynamic_sampling"}
"""Methods that their variants build on; a method imports no other."""

TORCH_AT_THE_TOP = ("worlds", "models")
"""Parts where torch may be imported at the top of a module."""


def name_of(path: Path) -> str:
    """A file as it is imported: `workbench.types.rollouts`; a package for its `__init__`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("workbench", *(parts[:-1] if parts[-1] == "__init__" else parts)))


FILES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imported(path: Path, *, top_only: bool = False, typed: bool = True) -> set[str]:
    """Dotted names that a file imports, inside functions and, where `typed`, for type checkers alone; what comes from a file
    of the package is that file's name."""
    tree = ast.parse(path.read_text())
    checked_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    package = ("workbench", *path.relative_to(ROOT).parts[:-1])
    names = set()
    for node in tree.body if top_only else ast.walk(tree):
        if id(node) in checked_only and not typed:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            names |= {f if (f := f"{module}.{alias.name}") in FILES else module for alias in node.names}
    return names


def part_of(name: str) -> str:
    """The part of the package in which a file lies."""
    return name.split(".")[1] if "." in name else name


def may_import(name: str, other: str) -> bool:
    """Whether the table lets one file of the package import another."""
    part = part_of(name)
    if part == part_of(other):
        siblings = part == "methods" and "methods" not in (name.split(".")[-1], other.split(".")[-1])
        own = name.split(".")[:3] == other.split(".")[:3]
        return not siblings or own or other.split(".")[2] in BASES
    allowed = MAY_IMPORT[part] | BY_FILE.get(name, set())
    return any(f"{other}.".startswith(f"workbench.{one}.") for one in allowed)


def test_every_import_obeys_the_table() -> None:
    assert {part_of(name) for name in FILES} - set(MAY_IMPORT) == set(), (
        "a part of the package has no row in MAY_IMPORT"
    )
    wrong = [
        f"{name} imports {other}"
        for name, path in FILES.items()
        for other in sorted(imported(path) & FILES.keys())
        if not may_import(name, other)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_two_files_import_each_other_however_far_around() -> None:
    graph = {name: imported(path) & FILES.keys() - {name} for name, path in FILES.items()}
    assert sum(map(len, graph.values())) > len(FILES)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("a circle of imports: " + " <- ".join(error.args[1]))


def test_torch_stands_at_the_top_of_worlds_and_models_alone() -> None:
    heavy = {"torch", "transformers", "vllm"}
    wrong = [
        name
        for name, path in FILES.items()
        if part_of(name) not in TORCH_AT_THE_TOP and heavy & {n.split(".")[0] for n in imported(path, top_only=True)}
    ]
    assert not wrong, f"torch or what needs it, imported at the top of {', '.join(wrong)}"


def test_types_and_numerics_import_numpy_and_the_standard_library() -> None:
    allowed = {"numpy", "workbench"} | sys.stdlib_module_names
    wrong = {
        name: foreign
        for name, path in FILES.items()
        if part_of(name) in ("types", "numerics")
        and (foreign := {n.split(".")[0] for n in imported(path, typed=False)} - allowed)
    }
    assert not wrong


def python(code: str) -> str:
    """What another Python prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_core_runs_where_nothing_heavy_is_installed() -> None:
    """A pipeline is built, printed and folded with every heavy package blocked."""
    done = python(f"""
import sys
for name in {HEAVY!r}:
    sys.modules[name] = None
import workbench, workbench.types, workbench.stages, workbench.pipeline, workbench.pipeline.catalog, workbench.numerics
from workbench import catalog
from workbench.pipeline import Pipeline
for cls in catalog.methods().values():
    cls().verbs
print(len(catalog.methods()))
""")
    assert int(done) > 50


def test_importing_the_package_and_its_catalog_loads_nothing_heavy() -> None:
    loaded = json.loads(
        python(f"""
import json, sys
import workbench
package = [m for m in {HEAVY!r} if m in sys.modules]
from workbench import catalog, pipeline
catalog.methods()
print(json.dumps([package, [m for m in {HEAVY!r} if m in sys.modules]]))
""")
    )
    assert loaded == [[], []]
