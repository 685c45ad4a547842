"""Replays of recorded runs: a pipeline asks over its own run what it asked, others are told what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis import whatif
from workbench.cli.main import main
from workbench.numerics.success_over_time import Skill, held_out, log_beta_binomial, mixed_chance
from workbench.runs.experiment import Experiment
from workbench.store import Store
from workbench.types import Budget
from workbench.worlds.replay import ReplayWorld

BUDGET = Budget(prompts=8, rollouts=64)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Experiment, str, whatif.Recording, Skill]:
    folder = str(tmp_path_factory.mktemp("whatif") / "store")
    experiment = Experiment(
        model="sim", pipeline="grpo + mopps", steps=40, seed=3, store=folder, budget=BUDGET, eval_every=0,
        checkpoint_every=0, world={"n_prompts": 120},
    )  # fmt: skip
    for _ in experiment.run():
        pass
    with Store.open(folder) as store:
        run, recording = whatif.record(store)
    return folder, experiment, run, recording, whatif.fitted(recording)


@pytest.mark.parametrize(
    "pipeline", ["grpo + mopps", "grpo + vade", "grpo + mopps + mc_grpo", "grpo + dapo_dynamic_sampling"]
)
def test_a_pipeline_asks_over_its_own_run_what_it_asked(tmp_path: Path, pipeline: str) -> None:
    experiment = Experiment(
        model="sim", pipeline=pipeline, steps=8, seed=5, store=str(tmp_path), budget=BUDGET, eval_every=0,
        checkpoint_every=0, world={"n_prompts": 100},
    )  # fmt: skip
    steps = list(experiment.run())
    with Store.open(tmp_path) as store:
        run, recording = whatif.record(store)
    result = whatif.replay(recording, pipeline, BUDGET, run=run, seed=5)
    assert result.shortfall.sum() == 0
    assert result.coverage == 1
    assert (result.agreement == 1).all()
    for step in steps:
        asked = {int(p): int(step.plan.n[step.plan.prompt == p].sum()) for p in np.unique(step.plan.prompt)}
        assert result.plans[step.step] == asked


def test_another_pipeline_is_told_how_little_was_recorded(made: tuple) -> None:
    _, _, run, recording, skill = made
    result = whatif.replay(recording, "grpo", BUDGET, run=run, seed=3, skill=skill)
    assert result.coverage < 0.5
    assert "too thin" in result.verdict
    assert result.asked.sum() == 40 * 64
    assert result.asked.sum() - result.served.sum() == result.shortfall.sum()
    assert result.most_missing(1)[0][1] == result.shortfall.max()
    with pytest.raises(ValueError, match="too little of what grpo asks"):
        whatif.rank([result], "mixed")
    assert "too thin" in result._repr_html_()


def test_a_window_serves_more_and_never_a_rollout_twice_in_a_step(made: tuple) -> None:
    _, _, run, recording, skill = made
    narrow = whatif.replay(recording, "grpo", BUDGET, run=run, seed=3, skill=skill, window=2)
    wide = whatif.replay(recording, "grpo", BUDGET, run=run, seed=3, skill=skill, window=20)
    assert narrow.coverage < wide.coverage
    from workbench.types import Plan

    world = ReplayWorld(recording, window=40)
    prompt = recording.steps[1].prompts[:1]
    first = world.sample(Plan(prompt, [500], step=1))
    again = world.sample(Plan(prompt, [500], step=1, round=np.array([1])))
    assert len(first) == len(set(first.id)) > 8
    assert len(again) == 0


def test_resampling_and_fitted_rates_answer_everything_they_know(made: tuple) -> None:
    _, _, run, recording, skill = made
    drawn = whatif.replay(recording, "grpo", BUDGET, run=run, seed=3, skill=skill, serve="resample", window=40)
    fitted = whatif.replay(recording, "grpo", BUDGET, run=run, seed=3, skill=skill, serve="fitted")
    assert drawn.coverage > 0.9
    assert fitted.coverage == 1
    # two estimates of one thing
    assert np.nanmean(fitted.mixed) == pytest.approx(fitted.mixed_expected.mean(), abs=0.12)


def test_pipelines_are_ranked_in_pairs_and_the_known_better_one_comes_first(made: tuple) -> None:
    _, _, run, recording, skill = made
    results = [whatif.replay(recording, p, BUDGET, run=run, seed=3, skill=skill, serve="fitted")
               for p in ("grpo", "grpo + vade")]  # fmt: skip
    rows = whatif.rank(results).rows()
    assert [r["pipeline"] for r in rows] == ["grpo + vade", "grpo"]
    assert rows[0]["to_first"] == 0
    assert rows[1]["to_first_high"] < 0


def test_shaped_rewards_are_not_shaped_twice(made: tuple) -> None:
    _, _, run, recording, _ = made
    with pytest.raises(ValueError, match="ettrl shapes rewards"):
        whatif.replay(recording, "grpo + ettrl", BUDGET, run=run)


def test_the_command_prints_ranking_calibration_and_what_is_missing(made: tuple, capsys: pytest.CaptureFixture) -> None:
    folder, _, run, _, _ = made
    assert main(["replay", run, "--store", folder, "--pipeline", "grpo + vade"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for text in ("100%", "too thin", "Brier", "never recorded", "not how well the model would have learned"):
        assert text in out


def test_rates_are_recovered_with_honest_intervals() -> None:
    rng = np.random.default_rng(0)
    true = rng.beta(2, 2, 60)
    step = np.repeat(np.arange(1, 61), 10)
    prompt = np.concatenate([rng.permutation(60)[:10] for _ in range(60)])
    tries = np.full(len(step), 8.0)
    skill = Skill.fit(step, prompt, rng.binomial(8, true[prompt]), tries, np.full(60, "one"))
    alpha, beta = skill.at(30)
    assert np.corrcoef(alpha / (alpha + beta), true)[0, 1] > 0.9
    h = held_out(skill)
    assert h.brier < 0.6 * h.base_brier
    assert 0.8 < h.covered <= 1


@given(st.integers(1, 12), st.floats(0.2, 20), st.floats(0.2, 20))
def test_beta_binomial_is_a_distribution_and_mixed_is_what_its_ends_leave(n: int, a: float, b: float) -> None:
    k = np.arange(n + 1.0)
    chance = np.exp(log_beta_binomial(k, np.full(n + 1, float(n)), np.full(n + 1, a), np.full(n + 1, b)))
    assert chance.sum() == pytest.approx(1)
    assert mixed_chance(np.array([n]), np.array([a]), np.array([b]))[0] == pytest.approx(
        max(chance[1:-1].sum(), 0), abs=1e-9
    )
