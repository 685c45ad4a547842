"""`workbench show`: the store in a terminal, over the sample runs that come with the tree."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from workbench.cli.main import main
from workbench.cli.show import visible
from workbench.store import Store
from workbench.store.sample import copy_sample


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(copy_sample(tmp_path_factory.mktemp("sample")))


@pytest.fixture
def show(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    def said(*args: str) -> str:
        assert main(["show", folder, *args]) == 0
        return capsys.readouterr().out

    return said


@pytest.fixture(scope="module")
def newest(folder) -> str:
    with Store.open(folder) as store:
        return store.runs().to_pylist()[0]["run"]


def test_runs_and_the_steps_of_the_newest(show, folder, newest):
    out = show("--last", "3")
    with Store.open(folder) as store:
        runs = store.runs().to_pylist()
        steps = store.sql("SELECT step FROM steps WHERE run = $run ORDER BY step", {"run": newest}).to_pylist()
    assert [r["run"] in out for r in runs] == [i < 3 for i in range(len(runs))]
    assert f"3 of {len(runs)}" in out and f"3 of {len(steps)}" in out
    assert f"steps of {newest}" in out
    rows = [line.split()[0] for line in out.split("steps of ")[1].splitlines()[3:6]]
    assert rows == [str(s["step"]) for s in steps[-3:]]


def test_groups_of_a_step_then_the_rollouts_of_a_prompt(show, folder, newest):
    groups = [json.loads(line) for line in show("--step", "last", "--json").splitlines()]
    first = groups[0]
    out = show("--step", str(first["step"]), "--last", "0")
    assert all(g["prompt_id"] in out for g in groups)
    with Store.open(folder) as store:
        rollouts = store.sql(
            "SELECT rollout_id, c.text FROM completions c JOIN rollouts r USING (run, rank, step, row, rollout_id) "
            "WHERE run = $run AND step = $step AND prompt_id = $p AND purpose = 'train'",
            {"run": newest, "step": first["step"], "p": first["prompt_id"]},
        ).to_pylist()
    out = show("--prompt", first["prompt_id"], "--chars", "0")
    assert rollouts and all(r["rollout_id"] in out for r in rollouts)
    assert all(visible(r["text"]).replace("\n", "\n  ") in out for r in rollouts)
    assert first["prompt"].splitlines()[0] in out
    cut = show("--prompt", first["prompt_id"], "--chars", "1")
    assert "characters more (--chars 0 shows all)" in cut
    whole = [json.loads(line) for line in show("--prompt", first["prompt_id"], "--json").splitlines()]
    assert sorted(r["text"] for r in whole) == sorted(r["text"] for r in rollouts)


def test_no_text_steers_the_terminal():
    assert visible("a\x1b[2Jb\r\n\u202ec\x00") == "a\\x1b[2Jb\\r\n\\u202ec\\x00"
    assert visible("é 数 [bold]") == "é 数 [bold]"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--run", "x"], "there is no run 'x'"),
        (["--step", "9999"], "has no group at step 9999; its last step is"),
        (["--prompt", "x"], "asked nothing of a prompt 'x'"),
    ],
)
def test_what_is_not_there_is_said(folder, capsys, args, why):
    assert main(["show", folder, *args]) == 2
    assert why in capsys.readouterr().err


def test_a_step_is_a_number_or_the_last(folder, capsys):
    with pytest.raises(SystemExit):
        main(["show", folder, "--step", "first"])
    assert "'first' is neither the number of a step nor `last`" in capsys.readouterr().err


def test_without_a_store_nothing_is_made(tmp_path, capsys):
    assert main(["show", str(tmp_path / "none")]) == 2
    assert "workbench demo" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_who_reads_may_leave_early(folder):
    command = [sys.executable, "-m", "workbench", "show", folder, "--step", "last", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141
