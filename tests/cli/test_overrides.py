"""`--set NAME=VALUE` replaces a field of an experiment, or one setting in it."""

from __future__ import annotations

import argparse

import pytest

from workbench import Budget, Experiment
from workbench.cli import overrides
from workbench.cli.main import main

EXPERIMENT = Experiment(model="tiny", update={"clip": 0.5}, budget=Budget(prompts=4, rollouts=32))


def read(*words: str) -> Experiment:
    parser = argparse.ArgumentParser()
    overrides.add_arguments(parser)
    return overrides.overridden(EXPERIMENT, parser.parse_args(words))


def test_a_setting_goes_where_its_name_says():
    made = read(
        "--set", "update.epochs=2", "--set", "budget.rollouts=64", "--set", "pipeline=grpo + vade", "--lr", "1e-3"
    )
    assert made.update == {"clip": 0.5, "epochs": 2}
    assert (made.budget.prompts, made.budget.rollouts) == (4, 64)
    assert made.pipeline.text == "grpo + vade"
    assert made.world == {"lr": 0.001}
    assert read() == EXPERIMENT


def test_what_is_no_setting_is_said():
    with pytest.raises(ValueError, match=r"--set has no .updates.; did you mean update\?"):
        read("--set", "updates.epochs=2")
    with pytest.raises(ValueError, match=r"--set steps.x: steps is no table of settings, but 60"):
        read("--set", "steps.x=2")
    with pytest.raises(ValueError, match="'eval_every' is not written as name=value"):
        read("--set", "eval_every")


def test_a_demo_trains_two_epochs(tmp_path, capsys):
    command = ["demo", "--model", "tiny", "--steps", "1", "--no-dashboard", "--store", str(tmp_path)]
    assert main([*command, "--set", "update.epochs=2", "--set", "update.minibatches=2", "--set", "eval_every=0"]) == 0
    assert main([*command, "--set", "update.epoch=2"]) not in (0, 3)
    assert "update has no 'epoch'; did you mean epochs?" in capsys.readouterr().err
