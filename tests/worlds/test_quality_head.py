"""ARRoL's head on hidden states in a live world: what it sees, keeps, learns from and forgets nothing of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workbench.methods.arrol import HIDDEN, Arrol
from workbench.methods.echo import Echo
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.stages import Checkpoint
from workbench.store import Store, Writer
from workbench.types import Budget
from workbench.types.checkpoint import Pauses
from workbench.worlds.live.world import LiveWorld

from .conftest import toy_model, toy_tokenizer

BUDGET = Budget(prompts=3, rollouts=24)


def world_of(task, **options):
    return LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, **options)


@pytest.mark.parametrize("engine", ["transformers", "graph"])
def test_rows_keep_the_state_in_which_they_were_judged(task, engine):
    world = world_of(task, lr=0.0, engine=engine)
    looks = Echo(cuts=False, labels="verifier", entropy_high=99.0)  # pauses at every token
    _, step = next(run(Pipeline(Grpo(), looks, Arrol(l_detect=3, features="hidden")), world, BUDGET, steps=1, seed=4))
    r, kept = step.rollouts, step.rollouts.extra[HIDDEN]
    assert 0 < (r.length > 3).sum() < len(r)
    for i in range(len(r)):
        if r.length[i] <= 3:
            assert not len(kept.row(i)) or np.isnan(kept.row(i)).all()
            continue
        path = [*world.prefix(world.pool, int(r.prompt[i])), *r.tokens.row(i)[:3].tolist()]
        with torch.inference_mode():
            state = world.policy.model(input_ids=torch.tensor([path]), output_hidden_states=True).hidden_states[-1]
        assert kept.row(i) == pytest.approx(state[0, -1].numpy(), abs=1e-4)


def test_the_head_learns_cuts_and_comes_back_from_the_store(task, tmp_path):
    world, method = world_of(task, lr=1e-2), Arrol(l_detect=2, warmup=3, features="hidden")
    pipeline = Pipeline(Grpo(), method)
    made = []
    with Writer(tmp_path, {}, world.pool, run="a") as writer:
        for states, step in run(pipeline, world, BUDGET, steps=8, seed=4):
            made.append(states["arrol"])
            cut = step.rollouts.finish == "pruned"
            assert not cut.any() or step.step > 3
            writer.append(step, decisions=world.taken_decisions())
    live = made[-1]
    assert live.head.inner.shape == (33, 128)
    assert np.abs(live.head.outer).sum() > 0
    assert live.pos.sum() + live.neg.sum() > 0
    with Store.open(tmp_path) as store:
        folded = pipeline.fold(world.pool, store.steps("a", world.pool))["arrol"]
        told = store.ask("predictor_calibration").to_pylist()
        assert store.sql("SELECT count(*) AS n FROM fates WHERE fate = 'pruned'")["n"][0].as_py() > 0
    for mine, other in zip([*live.head, *live[1:]], [*folded.head, *folded[1:]], strict=True):
        assert np.array_equal(mine, other)
    assert {t["used_for"] for t in told} == {"prune"}
    assert all(0 <= t["predicted"] <= 1 for t in told)


def test_an_engine_without_hidden_states_is_refused(task):
    world = world_of(task)
    world.offers = world.offers - {"hidden"}
    with pytest.raises(ValueError, match="Arrol needs hidden"):
        Pipeline(Grpo(), Arrol(features="hidden")).check(world)
    Pipeline(Grpo(), Arrol()).check(world)
    with pytest.raises(ValueError, match="logp or hidden"):
        Arrol(features="text")


def test_what_checkpoints_keep_adds_up():
    both = Pauses.of([Checkpoint(keeps=("a", "b")), Checkpoint(), Checkpoint(keeps=("b", "c"))])
    assert both.keeps == ("a", "b", "c")
