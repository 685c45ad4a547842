"""What a run says of itself at its end adds up."""

from __future__ import annotations

import numpy as np

from workbench import Budget, Experiment
from workbench.analysis.summary import Tally, by_prompt, learned, summary
from workbench.runs.run import Run

SMALL = Experiment(
    model="sim", steps=4, eval_every=2, budget=Budget(prompts=4, rollouts=16), world={"n_prompts": 40, "p_fail": 0.2}
)


def test_tally_counts_every_rollout_and_token_once(tmp_path) -> None:
    tally, tokens, rollouts = Tally(), 0, 0
    with Run(SMALL.with_(store=str(tmp_path))) as run:
        while not run.done:
            step = run.step()
            tally.add(step)
            tokens += int(step.rollouts.length.sum())
            rollouts += len(step.rollouts)
    assert tally.tokens.total() == tokens
    assert tally.rollouts.total() == rollouts == 64
    lines = summary(run.run_id, run.experiment, tally, run.evaluations, 1.0)
    assert any(line.startswith("  other   failed (verifier)") for line in lines)
    assert [step for step, _ in run.evaluations] == [0, 4]


def test_a_prompt_without_a_known_outcome_is_left_out_not_counted_as_wrong(tmp_path) -> None:
    with Run(SMALL.with_(store=str(tmp_path), world={"n_prompts": 40})) as run:
        run.begin()
        rollouts = run.evaluations[0][1]
    hidden = rollouts.with_(correct=np.where(rollouts.prompt == 3, np.nan, rollouts.correct))
    rate = by_prompt(hidden)
    assert np.isnan(rate[3])
    assert np.isfinite(np.delete(rate, 3)).all()
    n = len(rate) - 1
    assert f"{n} prompts never trained on" in learned([(0, hidden), (1, rollouts)])


def test_one_evaluation_measures_no_learning() -> None:
    assert "not measured" in learned([])
