"""What an experiment may be told: unknown names and impossible values are one sentence, before anything is loaded."""

from __future__ import annotations

import pytest

from workbench import Budget, Experiment
from workbench.cli.main import main


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"world": {"temperature": -1}}, "temperature must be a number from 0.01 to 10, got -1"),
        ({"world": {"temperature": float("nan")}}, "temperature must be a number from 0.01 to 10, got nan"),
        ({"world": {"lr": "x"}}, "lr must be a number from 0 to 1, got 'x'"),
        ({"world": {"max_tokens": -5}}, "max_tokens must be a whole number of at least 1, got -5"),
        ({"world": {"samples": 0}}, "samples must be a whole number of at least 1, got 0"),
        ({"world": {"budget": 0.5}}, "budget must be a whole number of at least 1, got 0.5"),
        ({"world": {"threads": True}}, "threads must be a whole number of at least 1, got True"),
        ({"world": {"sampling": "int8"}}, "sampling must be one of auto, float32, bfloat16, float16, got 'int8'"),
        ({"world": {"device": "gpu"}}, "device must be cpu, cuda or cuda:N, got 'gpu'"),
        ({"world": {"temprature": 1.0}}, r"world has no 'temprature'; did you mean temperature\? \(it takes budget, "),
        ({"world": {"seed": 1}}, "world has no 'seed'"),
        ({"world": {"update": {"clip": -1}}}, "clip must be a number of at least 1e-06, got -1"),
        ({"world": {"update": {"betas": [0.9, 1.5]}}}, "betas must be a number from 0 to 1, got 1.5"),
        ({"world": {"update": {"betas": 0.9}}}, "betas must be two numbers from 0 to 1, got 0.9"),
        ({"world": {"update": {"reference": -0.1}}}, "reference must be a number of at least 0, got -0.1"),
        ({"world": {"update": {"lora": 1.5}}}, "lora must be a whole number of at least 0, got 1.5"),
        ({"world": {"update": {"recompute": "yes"}}}, "recompute must be one of False, True, got 'yes'"),
        ({"world": {"update": {"row_norm": True}}}, "update has no 'row_norm'; did you mean row_norms"),
        ({"task_options": {"sise": 3}}, "default has no 'sise'; did you mean size"),
        ({"model": "sim", "world": {"n_promts": 9}}, "world has no 'n_promts'; did you mean n_prompts"),
        ({"model": "sim", "world": {"p_fail": 2}}, "p_fail must be a number from 0 to 1, got 2"),
        ({"model": "sim", "world": {"n_prompts": 0}}, "n_prompts must be a whole number of at least 1, got 0"),
    ],
)
def test_a_world_says_what_cannot_be(fields, message) -> None:
    with pytest.raises(ValueError, match=message):
        Experiment(**{"model": "tiny", **fields}).build_world()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"steps": "many"}, "steps must be a whole number of at least 1, got 'many'"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"eval_every": -1}, "eval_every must be a whole number of at least 0, got -1"),
        ({"tokens": "some"}, "tokens must be one of all, sample, none, got 'some'"),
        ({"budget": {"promts": 4}}, "budget has no 'promts'; did you mean prompts"),
        ({"budget": {"prompts": 4.5}}, "prompts must be a whole number of at least 1, got 4.5"),
        ({"budget": {"seconds": -1}}, "seconds must be a number of at least 0, got -1"),
    ],
)
def test_an_experiment_says_what_cannot_be(fields, message) -> None:
    with pytest.raises(ValueError, match=message):
        Experiment(**fields)


def test_what_may_be_is_taken() -> None:
    update = {"clip": float("inf"), "betas": [0.9, 0.99], "lora": 2, "recompute": True}
    world = Experiment(
        model="tiny", world={"temperature": 0.5, "lr": 0, "max_tokens": 4, "update": update}
    ).build_world()
    assert (world.temperature, world.policy.lr, world.max_tokens, world.policy.clip) == (0.5, 0, 4, float("inf"))
    assert Experiment(budget={"prompts": 4, "rollouts": 8}).budget == Budget(4, 8)


def test_the_command_line_says_it_in_one_line(tmp_path, capsys) -> None:
    path = tmp_path / "e.toml"
    path.write_text(f'model = "tiny"\nstore = "{tmp_path / "s"}"\n[world]\nupdate = {{ clipp = 1.0 }}\n')
    assert main(["run", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("workbench: update has no 'clipp'; did you mean clip?")
    assert said.count("\n") == 1
