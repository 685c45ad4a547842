"""Imports run one way, and the core needs numpy alone."""

from __future__ import annotations

import ast
import subprocess
import sys
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

MAY_IMPORT = {
    "types": set(),
    "settings": set(),
    "numerics": {"types", "numerics"},
    "pauses": set(),
    "stages": {"types", "pauses"},
    "methods": {"types", "numerics", "pauses", "stages", "methods"},
    "branching": {"types", "pauses", "stages"},
    "catalog": {"settings", "methods", "stages"},
    "pipeline": {"types", "numerics", "stages", "branching", "catalog", "methods"},
    "tasks": {"types", "settings", "numerics", "tasks"},
    "store": {"types", "store", "numerics"},
    "analysis": {"types", "numerics", "stages", "methods", "catalog", "pipeline", "worlds", "store", "analysis"},
}
"""Part of the package -> parts that it may import. What is not listed lies above and may import all of these."""

TORCH_AT_THE_TOP = ("worlds", "plugins", "models")
"""Where torch may be imported at the top of a module, besides scripts that make models."""

CORE = ("types", "pauses", "stages", "branching", "pipeline", "catalog", "numerics", "methods")


def modules() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if "__pycache__" not in p.parts)


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path, *, top_only: bool = False) -> set[str]:
    """Dotted names that a module imports, relative ones resolved; without those for type checkers alone."""
    tree = ast.parse(path.read_text())
    checked_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    nodes = tree.body if top_only else ast.walk(tree)
    package = ("workbench", *path.relative_to(ROOT).parts[:-1])
    names = set()
    for node in nodes:
        if id(node) in checked_only:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module or ""]))
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    part = part_of(path)
    if part not in MAY_IMPORT:
        return
    parts = {name.split(".")[1] for name in imported(path) if name.startswith("workbench.")}
    wrong = {p for p in parts if p != part and (ROOT / p).exists() | (ROOT / f"{p}.py").exists()} - MAY_IMPORT[part]
    assert not wrong, f"{path.name} imports {', '.join(sorted(wrong))}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_torch_stands_at_the_top_of_worlds_alone(path: Path) -> None:
    roots = {name.split(".")[0] for name in imported(path, top_only=True)}
    if part_of(path) not in (*TORCH_AT_THE_TOP, "make_tiny"):
        assert not roots & {"torch", "transformers", "vllm"}


@pytest.mark.parametrize("path", [p for p in modules() if part_of(p) in ("types", "numerics")], ids=lambda p: p.name)
def test_types_and_numerics_import_numpy_and_the_standard_library(path: Path) -> None:
    roots = {name.split(".")[0] for name in imported(path)}
    assert roots <= {"numpy", "workbench"} | sys.stdlib_module_names


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT.parent, timeout=60
    )


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
print(len(catalog.methods()), catalog.table().count("\\n"))
""")
    assert done.returncode == 0, done.stderr
    methods, rows = map(int, done.stdout.split())
    assert rows == methods + 1


def test_importing_the_package_loads_nothing_heavy() -> None:
    done = python(f"import sys, workbench; print([m for m in {HEAVY!r} if m in sys.modules])")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_catalog_loads_nothing_heavy() -> None:
    done = python(
        "import sys; from workbench import catalog, pipeline; catalog.methods();"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
