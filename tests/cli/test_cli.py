"""The commands, as a newcomer types them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from workbench import Experiment, Store
from workbench.cli.main import main
from workbench.models.needs import memory_warning
from workbench.pipeline import catalog


def test_demo_in_a_simulated_world_ends_with_a_summary(tmp_path, capsys) -> None:
    store = tmp_path / "store"
    assert main(["demo", "--sim", "--steps", "5", "--store", str(store), "--no-dashboard"]) == 0
    shown = capsys.readouterr().out
    assert "5 steps" in shown
    assert "learning  evaluation pass rate" in shown
    assert "next" in shown
    with Store.open(store) as opened:
        assert opened.sql("select max(step) as last from steps").to_pylist() == [{"last": 5}]


def demo_of_a_table(tmp_path) -> list[str]:
    rows = [{"ask": f"What is {i} + 1?", "gold": str(i + 1), "level": "easy"} for i in range(30)] + [
        {"ask": "?", "gold": "3 or 4"}
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    told = [
        "--model",
        "tiny",
        "--steps",
        "1",
        "--no-dashboard",
        "--store",
        str(tmp_path / "s"),
        "--tasks",
        str(tmp_path / "t.jsonl"),
    ]
    return ["demo", *told]  # fmt: skip


def test_a_demo_says_how_to_name_columns_and_to_keep_bad_answers(tmp_path, capsys) -> None:
    demo = demo_of_a_table(tmp_path)
    assert main(demo) == 2
    assert "--columns prompt=..." in capsys.readouterr().err
    assert (
        main([*demo, "--columns", "prompt=ask,answer=gold", "--task-options", "verifier=numeric", "bad_golds=0.01"])
        == 2
    )
    assert 'keep them with bad_golds = "allow"' in capsys.readouterr().err.replace("\n", " ")
    assert main([*demo, "--columns", "ask"]) == 2
    assert "'ask' is not written as name=value" in capsys.readouterr().err


@pytest.mark.slow
def test_a_demo_of_a_table_says_what_was_made_of_it_and_keeps_it_with_the_run(tmp_path, capsys) -> None:
    options = ["--task-options", "verifier=numeric", "max_tokens=4", "bad_golds=allow"]
    assert main([*demo_of_a_table(tmp_path), "--columns", "prompt=ask,answer=gold", *options]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    told = "1 of 31 reference answers (3.2%) fail their own verifier numeric: row 31 '3 or 4' is not one number. They were kept."
    assert "Columns not used: level." in shown
    assert told in shown
    with Store.open(tmp_path / "s") as store:
        world = json.loads(store.sql("select world from runs").to_pylist()[0]["world"])
        assert world["task_notes"][0] == "Columns not used: level."


def test_a_second_demo_is_a_new_run_and_resume_goes_on(tmp_path) -> None:
    command = ["demo", "--sim", "--steps", "3", "--store", str(tmp_path), "--no-dashboard"]
    resume = ["demo", "--resume", "--steps", "6", "--store", str(tmp_path), "--no-dashboard"]  # the run says the rest
    assert [main(command), main(command), main(resume)] == [0, 0, 0]
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
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == catalog.find("select")
    assert {"mopps", "uniform", "vade"} <= set(shown)
    assert "mc_grpo" not in shown


def test_without_network_the_demo_goes_on_with_tiny(monkeypatch, capsys) -> None:
    from workbench import models
    from workbench.cli import terminal
    from workbench.models import smollm2

    def offline(**kwargs: object) -> None:
        raise models.ModelUnavailable("smollm2 could not be fetched: no network")

    monkeypatch.setattr(smollm2, "folder", offline)
    assert terminal.available("smollm2") == "tiny"
    assert "no network" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_ends_after_the_step_with_everything_recorded(tmp_path, number) -> None:
    command = [sys.executable, "-m", "workbench", "demo", "--sim", "--steps", "1000000", "--no-dashboard"]
    process = subprocess.Popen([*command, "--store", str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    shown = []
    for line in process.stdout:
        shown.append(line)
        if line.startswith("step 3/"):
            process.send_signal(number)
            if number == signal.SIGHUP:
                process.send_signal(number)  # of the system and of the shell
            break
    shown.append(process.stdout.read())
    assert process.wait() == 0
    text = "".join(shown)
    assert "stopping after this step" in text
    assert "learning  evaluation pass rate" in text
    with Store.open(tmp_path) as store:
        run = store.runs().to_pylist()[0]
        last = store.sql("select max(step) as last, count(*) as n from steps").to_pylist()[0]
    assert run["status"] == "stopped"
    assert last["last"] == last["n"] >= 3
    assert f"{last['n']} steps in" in text


def test_little_memory_is_said_before_it_hurts() -> None:
    assert memory_warning(0.001) is None
    assert "GiB of memory are free and this model wants about 1000000" in str(memory_warning(1e6))


def test_a_misspelt_method_gets_a_suggestion(tmp_path, capsys) -> None:
    demo = ["demo", "--store", str(tmp_path), "--no-dashboard"]
    assert main([*demo, "--sim", "--pipeline", "grpo + mops"]) == 2
    assert capsys.readouterr().err.endswith("; did you mean mopps?\n")


def test_methods_of_a_verb_that_a_setting_turns_on_show_it(capsys) -> None:
    assert main(["methods", "prune"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("duet") and "prune" in line for line in lines)


def test_an_empty_store_is_told_how_to_get_a_run(tmp_path, capsys) -> None:
    assert main(["diagnose", "--store", str(tmp_path)]) == 2
    assert "`workbench demo` records one" in capsys.readouterr().err
    assert main(["dashboard", str(tmp_path / "none"), "--no-browser"]) == 2
    assert "`workbench dashboard --sample` shows recorded runs" in capsys.readouterr().err
