"""Predictions made inside rollouts, held against what came of them."""

from __future__ import annotations

import numpy as np
import pytest
from made_steps import made_pool

from workbench.numerics.hints import Ask, with_asks
from workbench.pipeline.fates import fates
from workbench.store import Store, Writer
from workbench.types import Advantage, Node, Plan, Rollouts, Step


def test_predictions_of_cuts_and_of_continuations(tmp_path):
    plan = Plan(np.array([1]), np.array([4]), step=1)
    inside = [Ask(1, 1, Node(f"1:p0001:{k}@2"), why={"value": v}) for k, v in enumerate([0.75, 0.72])]
    plan = with_asks(plan, inside)
    rows = Rollouts.of_plan(plan, made_pool(4))
    ids = np.array([f"1:p0001:{k}" for k in range(6)], object)
    correct = np.array([1.0, 0.0, 1.0, np.nan, 1.0, 0.0])
    finish = np.array(["stop", "stop", "stop", "pruned", "stop", "stop"], object)
    rows = rows.with_(id=ids, length=np.full(6, 5), correct=correct, reward=correct, finish=finish)
    fate, reason = fates(rows, Advantage.start(rows))
    step = Step(1, np.array([1]), plan, rows, Advantage.start(rows), fate, reason)
    decisions = {
        "node_id": ids[:4].tolist(), "at_token": [2] * 4, "kind": ["prune"] * 4, "outcome": ["no"] * 3 + ["quality_head"],
        "inputs": [{"propensity": p, "q": q} for p, q in ((0.25, 0.3), (0.5, 0.35), (1.0, 0.9), (0.5, 0.3))],
    }  # fmt: skip
    with Writer(tmp_path, {}, made_pool(4), run="a") as writer:
        writer.append(step, decisions=decisions)
    with Store.open(tmp_path) as store:
        found = store.ask("predictor_calibration").to_pylist()
    assert [(f["used_for"], f["bin"], f["n"]) for f in found] == [("continue", 7, 2), ("prune", 3, 2), ("prune", 9, 1)]
    assert [f["correct"] for f in found] == pytest.approx([0.5, 4 / 6, 1.0])  # weights 4 and 2: one in four, one in two
    assert [f["predicted"] for f in found] == pytest.approx([0.735, (4 * 0.3 + 2 * 0.35) / 6, 0.9])
