"""The doctor says what is there, what is not, and what to do; it never breaks itself."""

from __future__ import annotations

import json
import sys

import pytest

from tests import families
from workbench import Experiment
from workbench.cli import doctor
from workbench.cli.doctor import BROKEN, OK, OPEN, Finding
from workbench.cli.main import main


def by_name(found: list[Finding]) -> dict[str, Finding]:
    return {f.name: f for f in found}


def test_a_healthy_machine_leaves_with_0_and_every_gap_has_a_way_out(tmp_path, capsys) -> None:
    assert main(["doctor", "--store", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = by_name([Finding(**f) for f in told["findings"]])
    assert told["ok"] is True
    names = {
        "python",
        "torch",
        "duckdb",
        "vllm",
        "trl",
        "peft",
        "cores",
        "vllm engine",
        "memory for tiny",
        "memory for smollm2",
    }
    assert names | {"duckdb ducklake", "duckdb postgres", "postgres", "chromium", "store", "model tiny"} <= set(found)
    assert any(name.startswith("CUDA") for name in found)
    assert found["torch"].found.startswith("2.")
    for finding in found.values():
        assert finding.state == OK or finding.way_out or finding.name == "bfloat16 on the CPU"
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_broken_where_needed_and_open_where_not(monkeypatch, capsys, tmp_path) -> None:
    real = doctor.importlib.util.find_spec
    gone = {"pyarrow", "vllm"}
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None if name in gone else real(name))
    found = by_name(list(doctor.packages()))
    assert found["pyarrow"] == Finding("pyarrow", BROKEN, "not installed; the store cannot run", "pip install pyarrow")
    assert found["vllm"].state == OPEN
    assert found["vllm"].way_out == "pip install 'rollout-workbench[gpu]'"
    assert doctor.report(str(tmp_path)) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "cannot run: pyarrow"


def test_memory_is_held_against_what_models_need(monkeypatch) -> None:
    import psutil

    class Memory:
        available = 3 << 30

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    found = by_name(list(doctor.memory()))
    assert (found["memory for tiny"].state, found["memory for smollm2"].state) == (OK, OPEN)
    assert found["memory for smollm2"].found == "3.0 GiB free, about 6 needed"
    assert found["memory for smollm2"].way_out == "close other programs, or use --model tiny"


def test_an_old_python_is_told(monkeypatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    (finding,) = doctor.python()
    assert (finding.state, finding.found) == (BROKEN, "3.10.4")


def test_a_folder_that_cannot_be_written_is_broken(tmp_path, monkeypatch) -> None:
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    (fine,) = doctor.store(str(tmp_path / "a" / "b"))
    assert (fine.state, fine.found.startswith(f"{tmp_path} can be written")) == (OK, True)
    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", refuse)
    (finding,) = doctor.store(str(tmp_path))
    assert finding.found == f"{tmp_path} cannot be written: Permission denied"
    assert finding.way_out == "give another folder with --store"


def test_a_check_that_breaks_is_a_finding_and_the_others_go_on(monkeypatch, tmp_path) -> None:
    def half_installed():
        raise ImportError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(doctor, "CHECKS", (half_installed, doctor.python))
    found = doctor.examine(str(tmp_path))
    assert [(f.name, f.state) for f in found] == [("half_installed", BROKEN), ("python", OK), ("store", OK)]
    assert "libcudart" in found[0].found


@pytest.mark.parametrize("state", [OK, OPEN, BROKEN])
def test_a_line_ends_with_its_way_out(state) -> None:
    assert str(Finding("x", state, "y", "z")).splitlines()[-1].strip() == "-> z"
    assert "\n" not in str(Finding("x", state, "y"))


def test_a_model_folder_is_started_and_its_facts_are_told(tmp_path, capsys):
    families.save("gemma3", tmp_path / "model")
    assert doctor.report(model=str(tmp_path / "model")) == 0
    out = capsys.readouterr().out
    for said in (
        "gemma3_text",
        "cached, recomputed where rows pause",
        "packed, float32",
        "cached sampling off by",
        "graph: its type is gemma3_text",
        "512 tokens",
        "'<|endoftext|>'",
        "to load and check it",
    ):
        assert said in out, said


def test_what_is_no_model_is_broken_with_the_reason(tmp_path, capsys):
    assert doctor.report(model=str(tmp_path), as_json=True) == 1
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["state"], found["found"]) == (
        "broken",
        f"folder {tmp_path} has no config.json, so it is not a model in transformers format",
    )


def test_an_experiment_checks_its_model_without_a_step(tmp_path):
    families.save("mamba", tmp_path / "model")
    experiment = Experiment(model=str(tmp_path / "model"), tasks="five", task_options={"size": 8, "evaluation": 2})
    facts = experiment.check()
    assert (facts["sampling"], facts["update"], facts["context"]) == ("recomputed", "padded, float32", "not bounded")
    assert "recomputed sampling off by" in str(facts) and facts._repr_html_().count("<tr>") == len(facts)
    with pytest.raises(ValueError, match="a simulated world has no model to check"):
        Experiment(model="sim").check()
