"""What the README says is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

from workbench.cli.main import build_parser

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_every_command_is_documented_and_exists() -> None:
    commands = set(build_parser()._subparsers._group_actions[0].choices)  # type: ignore[union-attr]
    named = set(re.findall(r"`workbench ([a-z-]+)", README))
    assert commands == named


def test_every_folder_in_the_tree_exists() -> None:
    tree = README.split("## Where things are")[1].split("```")[1]
    inside = {}
    for line in tree.strip().splitlines():
        place = "workbench" if line.startswith("  ") else "."
        inside.setdefault(place, set()).add(line.split()[0].rstrip("/"))
    for place, names in inside.items():
        folders = {p.name for p in (ROOT / place).iterdir() if p.is_dir() and any(p.glob("*"))}
        there = {f for f in folders if not f.startswith((".", "_")) and not f.endswith(".egg-info")}
        assert names == (there if place != "." else names & there), place


def test_ci_calls_the_readme_test_command() -> None:
    command = re.search(r"## Test it\s+```bash\n(.+)\n```", README)
    assert command is not None
    assert command.group(1).replace("pip install", "pip install -q") in (ROOT / ".ci/run").read_text()


def test_picture_is_there_and_small() -> None:
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / name).stat().st_size < 500_000


def test_every_notebook_is_in_the_readme_and_every_link_there_leads_somewhere() -> None:
    linked = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README)
    assert {n for n in linked if n.startswith("notebooks/")} == {
        f"notebooks/{p.name}" for p in (ROOT / "notebooks").glob("*.ipynb")
    }
    for target in linked:
        assert target.startswith("http") or (ROOT / target).exists(), target


def test_every_command_that_a_page_or_notebook_shows_exists() -> None:
    commands = set(build_parser()._subparsers._group_actions[0].choices)  # type: ignore[union-attr]
    pages = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "notebooks").glob("*.ipynb"),
        ROOT / "CONTRIBUTING.md",
        ROOT / "store" / "README.md",
    ]
    for page in pages:
        for name in re.findall(r"`workbench ([a-z-]+)", page.read_text()):
            assert name in commands, f"{page.name}: workbench {name}"


def test_a_notebook_keeps_no_output_but_what_it_is_checked_against() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            if cell.get("outputs"):
                assert "nbval-check-output" in cell["metadata"].get("tags", []), path.name


FOUND_BY = {
    "gradient checkpointing": "worlds/training/activation_checkpointing.py",
    "data parallel": "worlds/training/data_parallel.py",
    "fsdp": "worlds/training/fsdp.py",
    "kv cache": "worlds/engines/transformers_session.py",
    "prefix cache": "worlds/engines/completions.py",
    "replay buffer": "numerics/replay.py",
    "kl penalty": "worlds/training/kl_reference.py",
    "curriculum": "methods/dump.py",
    "importance sampling": "methods/grpo.py",
    "advantage normalisation": "numerics/estimators.py",
    "early stopping": "methods/arrol/__init__.py",
}
"""What a person of the field would search for -> the file whose first line must say it."""


def test_a_term_of_the_field_finds_its_file() -> None:
    for term, file in FOUND_BY.items():
        first = (ROOT / "workbench" / file).read_text(encoding="utf-8").splitlines()[0].lower()
        assert term in first, f"{file} does not begin with {term}: {first}"
