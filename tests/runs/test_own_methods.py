"""Methods from outside the package: named in an experiment, recorded with their origin, placeholders where they are not."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from workbench import Budget, Experiment, Only, Pipeline, Store, catalog
from workbench.cli.main import main
from workbench.methods import Grpo
from workbench.pipeline import plugins
from workbench.runs.run import Run
from workbench.testing import contract
from workbench.views.pages import PAGES
from workbench.worlds.sim.world import SimWorld

FILE = '''
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from workbench.stages import Card, Method
from workbench.types import Picked


class Counts(NamedTuple):
    met: np.ndarray


@dataclass(frozen=True)
class Shy(Method):
    """Prefers prompts that it met least."""

    card = Card("shy", "The least met first", source="ours", watch="nothing")
    floor: float = 1.0

    def init(self, pool):
        return Counts(np.zeros(len(pool)))

    def observe(self, state, step):
        return Counts(state.met + np.bincount(step.rollouts.prompt, minlength=len(state.met)))

    def select(self, state, draft, rng):
        rows = draft.candidates()
        met = state.met[rows] + self.floor
        return Picked.among(rows, np.argsort(met, kind="stable")[: draft.wanted], met=met)
'''
SMALL = Experiment(
    model="sim", steps=4, eval_every=2, checkpoint_every=2, budget=Budget(prompts=4, rollouts=16), world={"n_prompts": 40}
)  # fmt: skip
WAY_OUT = r"there is no method 'shy' here, which the run had from .*my_file.py; name its file or module"


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """A file with a method, known to no one yet; forgotten afterwards."""
    monkeypatch.setattr(catalog, "_added", {})
    path = tmp_path / "my_file.py"
    path.write_text(FILE)
    return path


def test_a_file_makes_a_method_like_any_other(own) -> None:
    with pytest.raises(ValueError, match="no method 'shy'"):
        Pipeline.parse("grpo + shy")
    assert catalog.add(own) == ["shy"]
    pipeline = Pipeline.parse("grpo + shy(floor=2.0)")
    assert Pipeline.parse(pipeline.spec).text == Pipeline.parse(repr(pipeline)).text == pipeline.text
    assert pipeline.origins == [str(own)]
    assert Pipeline(Grpo(), Only(catalog.make("shy"), "select")).origins == [str(own)]
    assert Pipeline.parse("grpo + vade").origins == []
    assert "shy" in catalog.find("select")
    assert pickle.loads(pickle.dumps(pipeline.chosen)) == pipeline.chosen
    contract(catalog.methods()["shy"])


def test_a_file_is_read_again_where_it_has_changed(own) -> None:
    catalog.add(own)
    first = catalog.methods()["shy"]
    catalog.add(own)
    assert catalog.methods()["shy"] is first
    own.write_text(FILE.replace("floor: float = 1.0", "floor: float = 7.0"))
    catalog.add(own)
    assert catalog.make("shy").floor == 7.0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import nothing_there", "my_file.py cannot be loaded, ModuleNotFoundError: No module named 'nothing_there'"),
        ("def f(:", "my_file.py cannot be loaded, SyntaxError"),
        ("raise SystemExit(3)", "my_file.py cannot be loaded, SystemExit: 3"),
        ("x = 1", "my_file.py has no method: a frozen dataclass that inherits workbench.stages.Method"),
        (
            FILE.replace('"shy"', '"vade"'),
            "has a method 'vade', and so has workbench.methods.vade; give it another slug",
        ),
    ],
)
def test_a_damaged_file_says_what_is_wrong(own, text: str, sentence: str) -> None:
    own.write_text(text)
    with pytest.raises(ValueError, match=sentence):
        Experiment(model="sim", methods=(str(own),))
    assert "shy" not in catalog.methods()
    with pytest.raises(ValueError, match=r"nowhere\.py cannot be loaded, FileNotFoundError"):
        Experiment(model="sim", methods=("nowhere.py",))


def test_two_files_cannot_bring_one_name(own) -> None:
    other = own.with_name("other.py")
    other.write_text(FILE)
    catalog.add(own)
    with pytest.raises(ValueError, match=r"other.py has a method 'shy', and so has workbench_own_my_file"):
        catalog.add(other)


def test_an_installed_package_brings_methods(own, monkeypatch) -> None:
    monkeypatch.syspath_prepend(own.parent)
    group = "rollout_workbench.methods"
    entries = [metadata.EntryPoint("shy", "my_file:Shy", group), metadata.EntryPoint("no", "not_there:No", group)]
    monkeypatch.setattr(plugins.metadata, "entry_points", lambda group: entries)
    with pytest.warns(UserWarning, match="'not_there:No' of an installed package cannot be loaded: No module named"):
        found = plugins.installed()
    monkeypatch.setattr(catalog, "_installed", lambda: found)
    assert Pipeline.parse("grpo + shy").origins == ["my_file"]
    sys.modules.pop("my_file")


def test_the_record_says_where_a_method_came_from_and_is_read_without_it(own, monkeypatch) -> None:
    """Placeholder: name and settings, no evidence, and a way out where it should act."""
    store = str(own.parent / "store")
    experiment = SMALL.with_(methods=(str(own),), pipeline="grpo + shy(floor=2.0)", store=store)
    toml = own.parent / "x.toml"
    toml.write_text(experiment.to_toml())
    assert Experiment.from_toml(toml).to_dict() == experiment.to_dict()
    assert "methods" not in SMALL.to_dict()
    with Run(experiment) as run:
        for _ in range(3):
            run.step()
        name = run.run_id
    with Store.open(store) as opened:
        record = json.loads(opened.sql("SELECT experiment FROM runs")["experiment"][0].as_py())
    assert record["methods"] == [str(own)]

    monkeypatch.setattr(catalog, "_added", {})
    unknown = Experiment.recorded(store, name)
    pipeline = unknown.pipeline
    assert pipeline.text == "grpo + shy(floor=2.0)"
    assert pipeline.spec == record["pipeline"]
    assert [m.name for m in pipeline.unknown] == ["shy"]
    pool = SimWorld(n_prompts=40).pool
    assert pipeline.reveal(pipeline.init(pool)) == {}
    with pytest.raises(ValueError, match=WAY_OUT):
        Run(unknown, resume=name)
    with pytest.raises(ValueError, match=WAY_OUT):
        pipeline.decider("select").select((), None, np.random.default_rng())

    catalog.add(own)
    with Run(Experiment.recorded(store, name), resume=name) as run:
        assert run.n_steps == 3
        while not run.done:
            run.step()
    assert run.n_steps == 4


def test_everything_but_acting_works_in_a_process_without_the_file(own) -> None:
    toml, store = own.parent / "x.toml", str(own.parent / "store")
    toml.write_text(SMALL.with_(methods=(str(own),), pipeline="grpo + shy", store=store).to_toml())
    assert main(["run", str(toml), "--no-browser"]) == 0
    assert main(["run", str(toml), "--no-browser", "--seed", "1"]) == 0
    own.rename(own.with_name("gone.py"))
    commands = [
        ["compare", "--store", store],
        ["report", "--store", store, "-o", str(own.parent / "report.html")],
        ["show", store],
        ["replay", "--store", store, "--pipeline", "grpo + vade"],
        ["replay", "--store", store],
        ["replay", "--store", store, "--methods", str(own.with_name("gone.py"))],
    ]
    code = f"""
from workbench.cli.main import main
from workbench.views.pages import PAGES
from workbench.views.shell.dashboard import Dashboard

for c in {commands!r}:
    print("status", main(c))
dashboard = Dashboard({store!r})
for name in PAGES:
    dashboard.chosen.page = name
    dashboard.tick()
    print("page", type(dashboard.page) is PAGES[name])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    status = [line for line in done.stdout.splitlines() if line.startswith("status")]
    assert status == ["status 0"] * 4 + ["status 2", "status 0"], done.stdout + done.stderr
    assert "grpo + shy" in done.stdout
    assert done.stdout.count("page True") == len(PAGES)
    assert "there is no method 'shy' here, which the run had from" in done.stderr
    assert "shy, unknown here" in (own.parent / "report.html").read_text()
