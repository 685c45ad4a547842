"""The commands, as a newcomer types them."""

from __future__ import annotations

import subprocess
import sys

from workbench import Experiment, Store
from workbench.cli import main


def test_demo_in_a_simulated_world_ends_with_a_summary(tmp_path, capsys) -> None:
    store = tmp_path / "store"
    assert main(["demo", "--sim", "--steps", "5", "--store", str(store), "--no-dashboard"]) == 0
    shown = capsys.readouterr().out
    assert "5 steps" in shown
    assert "learning  evaluation pass rate" in shown
    assert "next" in shown
    with Store.open(store) as opened:
        assert opened.sql("select max(step) as last from steps").to_pylist() == [{"last": 5}]


def test_a_second_demo_is_a_new_run_and_resume_goes_on(tmp_path) -> None:
    command = ["demo", "--sim", "--steps", "3", "--store", str(tmp_path), "--no-dashboard"]
    assert [main(command), main(command), main([*command, "--resume"])] == [0, 0, 0]
    with Store.open(tmp_path) as store:
        runs = sorted(store.runs().to_pylist(), key=lambda row: row["started"])
        last = {
            r["run"]: store.sql("select max(step) as s from steps where run = ?", [r["run"]])[0][0].as_py()
            for r in runs
        }
    assert [last[r["run"]] for r in runs] == [3, 6]


def test_run_reads_a_toml_file(tmp_path, capsys) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(Experiment(model="sim", steps=2, store=str(tmp_path / "s")).to_toml())
    assert main(["run", str(path), "--seed", "3"]) == 0
    assert "2 steps" in capsys.readouterr().out


def test_errors_are_one_line(tmp_path, capsys) -> None:
    assert main(["demo", "--sim", "--pipeline", "grpo + mops", "--store", str(tmp_path)]) == 2
    assert "no method 'mops'; there are" in capsys.readouterr().err
    assert main(["dashboard", str(tmp_path / "nothing")]) == 2
    assert "there is no store in" in capsys.readouterr().err


def test_seconds_end_a_run_early(tmp_path, capsys) -> None:
    assert (
        main(["demo", "--sim", "--steps", "100000", "--seconds", "0.5", "--store", str(tmp_path), "--no-dashboard"])
        == 0
    )
    with Store.open(tmp_path) as store:
        assert store.runs().to_pylist()[0]["status"] == "stopped"


def test_import_stays_light() -> None:
    code = "import sys, workbench; print(sorted({'torch', 'panel', 'duckdb', 'pandas', 'pyarrow', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_methods_lists_who_acts_at_a_verb(capsys) -> None:
    assert main(["methods", "select"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["mopps", "uniform", "vade"]
