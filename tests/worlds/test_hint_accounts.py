"""What hinted and probing passes cost is what the engine made for them, by the store's own count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from workbench.methods.adhint import Adhint
from workbench.methods.branchgrpo import Branchgrpo
from workbench.methods.grpo import Grpo
from workbench.methods.nudgerl import Nudgerl
from workbench.methods.probe_set import ProbeSet
from workbench.methods.sage_hint import SageHint
from workbench.numerics.forks import nodes_of
from workbench.pipeline import Pipeline, run
from workbench.store import Store, Writer
from workbench.types import Budget
from workbench.worlds.live.world import LiveWorld

from .conftest import toy_model, toy_tokenizer

PASSES = {
    "sage_hint": ("sage:", (SageHint(),)),
    "nudgerl": ("strategy:", (Nudgerl(),)),
    "adhint": ("adhint:", (Adhint(),)),
    "adhint, probes": ("adhint:", (Adhint(), ProbeSet(prompts=2, rollouts=5, every=2))),
    "adhint, probes, forks": (
        "adhint:",
        (Adhint(), Branchgrpo(every=2), ProbeSet(prompts=12, rollouts=3, every=1)),
    ),
    "adhint, forks": ("adhint:", (Adhint(), Branchgrpo(every=2))),
}


@pytest.fixture
def world(task):
    """References and strategies for every prompt."""
    reference = np.array([f"{a} b 3 d e" for a in range(len(task.pool))], dtype=object)
    extra = {"reference": reference, "strategies": np.full(len(task.pool), "1\n22", dtype=object)}
    task.pool = replace(task.pool, extra=extra)
    return LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=0.0)


def counted(world):
    """Tokens that the world's engine makes from now on, in a list of one number."""
    made, engine = [0], world.engine
    generate, start = engine.generate, engine.open

    def generating(*args, **options):
        segments = generate(*args, **options)
        made[0] += len(segments.tokens.values)
        return segments

    def opening(*args, **options):
        session = start(*args, **options)
        advance = session.advance

        def advancing(*more):
            segments = advance(*more)
            made[0] += len(segments.tokens.values)
            return segments

        session.advance = advancing
        return session

    engine.generate, engine.open = generating, opening
    return made


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_costs_what_the_engine_made_for_it(world, tmp_path, name):
    prefix, methods = PASSES[name]
    made, told = counted(world), []
    with Writer(tmp_path, {}, world.pool, run="a") as writer:
        for _, step in run(Pipeline(Grpo(), *methods), world, Budget(prompts=3, rollouts=24), steps=3, seed=4):
            writer.append(step, nodes=nodes_of(step.rollouts))
            told.append(made[0])
    with Store.open(tmp_path) as store:
        groups = store.ask("savings_by_group").to_pylist()
        steps = store.ask("savings_by_step").to_pylist()
        by_context = store.sql(
            "SELECT step, group_id, context, purpose, count(*) AS n, sum(length - inherited) AS made FROM rollouts GROUP BY ALL"
        ).to_pylist()
    assert np.cumsum([s["generated"] for s in steps]).tolist() == told
    assert sum(g["generated"] for g in groups) == told[-1]
    rollouts = {(r["step"], r["group_id"]): r for r in by_context}
    assert len(groups) == len(rollouts)
    for g in groups:
        own = rollouts[g["step"], g["group_id"]]
        assert (g["context"], g["purpose"]) == (own["context"], own["purpose"])  # a pass is a group of its own
        assert g["generated"] == own["made"] == g["kept"] + g["pruned"] + g["discarded"] + g["probe"]
        assert g["saved"] == g["flat_equivalent"] - g["generated"]
        probe = g["purpose"] == "probe"
        assert (g["probe"], g["n_kept"]) == ((g["generated"], 0) if probe else (0, own["n"]))
    hinted = sum(g["generated"] for g in groups if g["context"].startswith(prefix))
    assert 0 < hinted < told[-1]
    if "probes" in name:
        assert sum(g["probe"] for g in groups) > 0
    if "forks" not in name:  # nothing is shared, so no pass saves anything: a probe is all cost
        assert sum(g["saved"] for g in groups) == -sum(g["probe"] for g in groups)
    else:
        assert sum(g["saved"] for g in groups if g["context"]) > 0
