"""The lists that a command writes are those of the catalog, and name every method to editors and type checkers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.timing import patience
from workbench import methods
from workbench.pipeline import catalog
from workbench.reference import lists

ROOT = Path(__file__).parents[2]
REWRITE = "run `python -m workbench.reference.lists`"


def test_the_readme_has_the_table_of_the_catalog() -> None:
    readme = (ROOT / "README.md").read_text()
    assert lists.with_table(readme) == readme, REWRITE
    assert readme.count("\n| `mopps` | [MoPPS") == 1
    with pytest.raises(ValueError, match="the README has no <!-- methods"):
        lists.with_table("# Rollout Workbench\n")


def test_methods_are_imported_by_class() -> None:
    assert Path(methods.__file__).read_text() == lists.methods_init(), REWRITE
    for cls in catalog.methods().values():
        assert getattr(methods, cls.__name__) is cls
        assert cls.__name__ in dir(methods)
    assert sorted(methods.__all__) == sorted(cls.__name__ for cls in catalog.methods().values())
    with pytest.raises(AttributeError, match=r"workbench\.methods has no 'Gprs'; it has V0"):
        methods.Gprs  # noqa: B018


def test_one_class_loads_one_file() -> None:
    code = (
        "import sys; from workbench.methods import Mopps; print('workbench.methods.vade' in sys.modules, Mopps().name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "mopps"]


def test_type_checkers_know_the_classes(tmp_path: Path) -> None:
    """A setting that is not there is an error of the file, not of the run."""
    (tmp_path / "use.py").write_text(
        "from workbench.methods import Grpo, Vade\n\nright = Vade(lambda_global=0.9)\nwrong = Grpo(colour=3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "use.py"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=patience(60),
        env=os.environ | {"PYTHONPATH": str(ROOT)},  # an editable installation is no path to pyright
    )  # fmt: skip
    errors = [line for line in done.stdout.splitlines() if " error: " in line]
    assert len(errors) == 1, done.stdout
    assert "use.py:4" in errors[0]
    assert "colour" in errors[0]
