"""Shared test vectors: every case of every file in tests/golden, or in the folder named by GOLDEN.

A case calls a function and compares by field name. What is called is what runs: a function of the method's module of
the same name, or the call that `tests.vectors` builds for it out of the method's verbs. What nothing that runs computes
is listed there, with the reason.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import json
import keyword
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.vectors import CALLS, WITHOUT_CODE

FOLDER = Path(os.environ.get("GOLDEN") or Path(__file__).parent / "golden")

MODULES = {
    "baselines": "workbench.numerics.estimators",
    "arrol": "workbench.methods.arrol.pruning",
    "duet": "workbench.methods.duet.pricing",
    "echo": "workbench.methods.echo.certainty",
    "trace": "workbench.methods.trace.continuations",
    "tree-store": "workbench.numerics.trees",
    "jet-rl-and-sol-rl": "workbench.methods.jet_rl",
    "sparserl-sync": "workbench.numerics.sparse_sync",
}
"""Files whose functions are not a method's."""

RENAMED = {("dapo-dynamic-sampling", "overlong_penalty"): {"lengths": "length"}}
"""(file, function) -> JSON argument -> Python argument."""


def function_of(slug: str, name: str) -> Callable | None:
    """What computes a function of a file: the call entered for it, else the function of the module."""
    return CALLS.get((slug, name)) or getattr(importlib.import_module(module_of(slug)), name, None)


def module_of(slug: str) -> str:
    return MODULES.get(slug, f"workbench.methods.{slug.replace('-', '_')}")


def implemented(slug: str) -> bool:
    return importlib.util.find_spec(module_of(slug)) is not None


def load() -> tuple[list, list[str]]:
    cases, missing = [], []
    for path in sorted(FOLDER.glob("*.json")):
        vectors = json.loads(path.read_text())
        slug = vectors.get("method", path.stem)
        if not implemented(slug):
            missing.append(slug)
            continue
        cases += [pytest.param(slug, case, id=f"{slug}-{case['name']}") for case in vectors["cases"]]
    return cases, missing


CASES, NOT_IMPLEMENTED = load()
LISTED = [(slug, case) for slug, case in (p.values for p in CASES) if (slug, case["function"]) in WITHOUT_CODE]
CASES = [p for p in CASES if (p.values[0], p.values[1]["function"]) not in WITHOUT_CODE]


def same(got: object, want: object, tolerance: float, where: str) -> None:
    """Compare a result with what JSON can say of it; extra fields of the result are of no concern."""
    if isinstance(want, dict):
        for name, value in want.items():
            same(field(got, name, where), value, tolerance, f"{where}.{name}")
    elif isinstance(want, list):
        rows = list(got)
        assert len(rows) == len(want), f"{where}: {len(rows)} rows for {len(want)}"
        for i, (g, w) in enumerate(zip(rows, want, strict=True)):
            same(g, w, tolerance, f"{where}[{i}]")
    elif want is None:
        assert got is None or (isinstance(got, float | np.floating) and math.isnan(got)), f"{where}: {got!r} for null"
    elif isinstance(want, bool):
        assert isinstance(got, bool | np.bool_), f"{where}: {got!r} is no boolean"
        assert bool(got) == want, f"{where}: {got!r} for {want!r}"
    elif isinstance(want, int | float):
        assert got is not None, f"{where}: nothing for {want!r}"
        assert abs(float(got) - want) <= tolerance * max(1.0, abs(want)), f"{where}: {got!r} for {want!r}"
    else:
        assert got == want, f"{where}: {got!r} for {want!r}"


def field(thing: object, name: str, where: str) -> object:
    if isinstance(thing, Mapping):
        by_text = {str(key): value for key, value in thing.items()}
        assert name in by_text, f"{where}: no {name!r} among {sorted(by_text)}"
        return by_text[name]
    python = name + "_" if keyword.iskeyword(name) else name
    assert hasattr(thing, python), f"{where}: {type(thing).__name__} has no field {name!r}"
    return getattr(thing, python)


def named(result: object, expected: dict) -> object:
    """A bare result under the one name that the vectors give it."""
    names = list(expected)
    struct = is_dataclass(result) or hasattr(result, "_fields") or isinstance(result, Mapping)
    if len(names) == 1 and not (struct and has_field(result, names[0])):
        return {names[0]: result}
    return result


def has_field(result: object, name: str) -> bool:
    if isinstance(result, Mapping):
        return name in result
    own = {f.name for f in fields(result)} if is_dataclass(result) else set(result._fields)
    return name in own or (hasattr(type(result), name) and isinstance(getattr(type(result), name), property))


def error_of(case: dict) -> type[Exception] | None:
    """The exception a case asks for: "raises" in the case, or a result that is nothing but an error, as in
    {"error": "ValueError"}; one without a known name is a ValueError."""
    want = case["expected"]
    if isinstance(want, dict) and len(want) == 1 and next(iter(want)) in ("error", "raises", "exception"):
        name = next(iter(want.values()))
    elif "raises" in case:
        name = case["raises"]
    else:
        return None
    error = getattr(builtins, str(name).split(":")[0], ValueError)
    return error if isinstance(error, type) and issubclass(error, Exception) else ValueError


@pytest.mark.parametrize(("slug", "case"), CASES)
def test_vector(slug: str, case: dict) -> None:
    function = function_of(slug, case["function"])
    assert function is not None, f"{module_of(slug)} lacks {case['function']}, which {slug}.json asks for"
    renamed = RENAMED.get((slug, case["function"]), {})
    arguments = {
        renamed.get(name, name + "_" if keyword.iskeyword(name) else name): value
        for name, value in case["input"].items()
    }
    error = error_of(case)
    if error is not None:
        with pytest.raises(error):
            function(**arguments)
        return
    result = function(**arguments)
    expected = case["expected"] if isinstance(case["expected"], dict) else {"value": case["expected"]}
    same(named(result, expected), expected, case.get("tolerance", 1e-9), case["function"])


def test_vectors_that_are_not_run_are_named() -> None:
    """No failure: the report of skipped tests says how many are run, and which are not."""
    pytest.skip(
        f"golden vectors: {len(CASES)} cases run, {len(LISTED)} without code that runs, "
        f"{len(NOT_IMPLEMENTED)} methods not implemented: {', '.join(NOT_IMPLEMENTED) or 'none'}"
    )


def test_methods_of_the_catalog_have_vectors() -> None:
    """Every method that follows a paper has a file of vectors, unless another folder is run."""
    if "GOLDEN" in os.environ:
        pytest.skip("another folder of vectors is run")
    from workbench.pipeline import catalog

    for slug, cls in catalog.methods().items():
        if cls.card.source != "ours":
            name = cls.card.golden or slug.replace("_", "-")
            assert (FOLDER / f"{name}.json").exists(), f"{slug}: no {name}.json"


def test_vectors_are_listed_as_without_code_just_where_nothing_computes_them() -> None:
    """No entry is stale, none has code after all, and every reason is said."""
    if "GOLDEN" in os.environ:
        pytest.skip("another folder of vectors is run")
    assert {(slug, case["function"]) for slug, case in LISTED} == set(WITHOUT_CODE)
    assert [key for key in WITHOUT_CODE if function_of(*key) is not None] == []
    assert all(WITHOUT_CODE.values())
