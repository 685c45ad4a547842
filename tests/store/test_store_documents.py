"""The README of the data home names every table, and its commands run."""

from __future__ import annotations

import re
from pathlib import Path

from workbench.store import schema
from workbench.store.questions import load

README = (Path(__file__).parents[2] / "store/README.md").read_text(encoding="utf-8")


def test_the_readme_names_every_table_and_only_those():
    assert set(re.findall(r"^\| `(\w+)` \|", README, re.M)) == set(schema.tables())


def test_the_readme_names_every_question_and_only_those():
    section = README.split("## Questions")[1].split("## Tables")[0]
    named = {name for line in re.findall(r"^\|.*\| (`.*`) \|$", section, re.M) for name in re.findall(r"`(\w+)`", line)}
    assert named == {name for name in load() if not name.startswith("page_")}


def test_every_table_and_column_is_explained():
    for table, columns in schema.tables().items():
        told = schema.comments()[table]
        assert set(told) == {"", *columns.names} and all(text.strip() for text in told.values()), table


def test_the_keys_of_the_readme_are_keys(recorded, store):
    for table, key in re.findall(r"^\| `(\w+)` \|.*\| ([\w, ]+) \|$", README, re.M):
        twice = store.sql(f"SELECT {key} FROM {table} GROUP BY ALL HAVING count(*) > 1")
        assert twice.num_rows == 0, table


def test_the_lines_of_the_readme_run(recorded, monkeypatch):
    from workbench.methods.uniform import Uniform

    code = re.search(r"```python\n(.*?)```", README, re.S)[1]
    code = code.replace('"store"', repr(str(recorded.folder))).replace('"..."', '"p0000"')
    code = code.replace('"2026-11-28-demo-k3f2"', repr(recorded.run))

    class Folding:
        def fold(self, pool, steps):
            state = Uniform().init(pool)
            for step in steps:
                state = Uniform().observe(state, step)
            return state

    names = {"pipeline": Folding()}
    exec(compile(code, "README", "exec"), names)
    assert names["states"].count.sum() == 20
