"""The names of `workbench`: typed, described, and each with an example that runs."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import workbench
from tests.timing import patience

NAMES = [name for name in workbench.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_public_name_runs(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    thing = getattr(workbench, name)
    module = thing if isinstance(thing, ModuleType) else __import__(thing.__module__, fromlist=["x"])
    example = doctest.DocTestParser().get_doctest(thing.__doc__ or "", dict(vars(module)), name, None, None)
    assert example.examples, f"workbench.{name} has no doctest"
    failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
    assert failed.failed == 0, f"the doctest of workbench.{name} failed; see the output"
    assert not list(tmp_path.iterdir())  # an example leaves nothing behind


def test_the_page_of_the_package_names_everything() -> None:
    for name in NAMES:
        assert f"`{name}`" in (workbench.__doc__ or ""), name


def test_type_checkers_know_the_names_that_are_there() -> None:
    text = Path(str(workbench.__file__)).read_text(encoding="utf-8")
    for name in NAMES:
        assert f"import {name} as {name}\n" in text, name


@pytest.mark.slow
def test_the_package_has_no_type_errors() -> None:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    done = subprocess.run(
        command,
        cwd=Path(workbench.__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=patience(600),
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
