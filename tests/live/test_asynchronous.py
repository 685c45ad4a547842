"""Laws of overlapped runs: the lag is bounded, the order is kept, nothing is lost, no lag is the plain loop."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from workbench.pipeline import Pipeline, run
from workbench.types import Budget
from workbench.worlds.asynchronous import run_async
from workbench.worlds.live import LiveWorld
from workbench.worlds.sim import SimWorld

from .conftest import toy_model, toy_tokenizer

BUDGET = Budget(prompts=4, rollouts=16)


def simulated() -> SimWorld:
    return SimWorld(seed=3, n_prompts=40)


def live(task) -> LiveWorld:
    return LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=1e-2)


def facts(step) -> tuple:
    r = step.rollouts
    return (step.prompts.tolist(), r.id.tolist(), r.reward.tolist(), r.version.tolist(), step.fate.tolist())


def test_no_staleness_is_the_plain_loop(task):
    for make, name in ((simulated, "grpo + mopps"), (lambda: live(task), "grpo + vade")):
        plain = [s for _, s in run(Pipeline.parse(name), make(), BUDGET, steps=4)]
        other = [s for _, s in run_async(Pipeline.parse(name), make(), BUDGET, steps=4, staleness=0)]
        assert [facts(s) for s in plain] == [facts(s) for s in other]
        if "loss" in plain[0].update:
            assert [s.update["loss"] for s in plain] == [s.update["loss"] for s in other]
        assert [s.plan.folded_through for s in other] == [0, 1, 2, 3]


@pytest.mark.parametrize("staleness", [0, 1, 2, 5])
def test_the_lag_is_bounded_and_the_order_kept(staleness):
    world = simulated()
    done = [s for _, s in run_async(Pipeline.parse("grpo + mopps"), world, BUDGET, steps=7, staleness=staleness)]
    assert [s.step for s in done] == list(range(1, 8))
    lag = [min(t, staleness) for t in range(7)]
    assert [s.update["version_lag"] for s in done] == lag
    assert [set(s.rollouts.version.tolist()) for s in done] == [{t - k} for t, k in enumerate(lag)]
    assert [s.plan.folded_through for s in done] == [t - k for t, k in enumerate(lag)]
    assert world.version == 7


def test_every_rollout_has_one_fate_and_every_ask_its_rollouts():
    steps = run_async(Pipeline.parse("grpo + dapo_dynamic_sampling"), simulated(), BUDGET, steps=6, staleness=2)
    for _, step in steps:
        assert len(step.rollouts) == step.plan.n_rollouts == len(step.fate)
        assert set(step.fate) <= {"trained", "dropped", "failed"}
        assert len(set(step.rollouts.id)) == len(step.rollouts)


def test_states_are_the_fold_of_the_finished_steps():
    pipeline, world = Pipeline.parse("grpo + vade"), simulated()
    seen = list(run_async(pipeline, world, BUDGET, steps=5, staleness=2))
    folded = pipeline.fold(world.pool, [s for _, s in seen])
    for name, columns in pipeline.reveal(seen[-1][0]).items():
        for column, values in columns.items():
            np.testing.assert_array_equal(values, pipeline.reveal(folded)[name][column])


def test_a_live_run_is_the_same_again_and_samples_what_it_says(task):
    def once():
        world = live(task)
        checked = []
        for _, step in run_async(Pipeline.parse("grpo"), world, BUDGET, steps=4, staleness=1):
            checked.append((facts(step), step.update["loss"], step.update["logp_gap"]))
        return checked, world

    (first, world), (second, _) = once(), once()
    assert first == second
    assert first[0][2] < 1e-5  # on policy: sampler and trainer agree
    assert min(gap for _, _, gap in first[1:]) > 1e-4  # one update behind: the behaviour track is not the trainer's
    assert world.engine.copy_of is None  # its own sampler is back


def test_generation_and_training_are_under_way_together(task):
    world = live(task)
    together = threading.Barrier(2, timeout=60)
    sample, update = type(world).sample, world.policy.update
    calls = []

    def sampling(self, plan, *hooks):
        calls.append("sample")
        if 2 <= calls.count("sample") <= 3:
            together.wait()  # released only by an update that is under way at the same time
        return sample(self, plan, *hooks)

    def updating(*arguments, **options):
        calls.append("update")
        if calls.count("update") <= 2:
            together.wait()
        return update(*arguments, **options)

    world.policy.update = updating
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LiveWorld, "sample", sampling)
        done = list(run_async(Pipeline.parse("grpo"), world, BUDGET, steps=3, staleness=1))
    assert len(done) == 3


def test_what_breaks_in_a_thread_breaks_the_run_and_stopping_leaves_no_thread(task):
    world = simulated()
    before = threading.active_count()
    steps = run_async(Pipeline.parse("grpo"), world, BUDGET, steps=6, staleness=2)
    next(steps)
    steps.close()
    assert threading.active_count() == before
    world.sample = lambda *_: (_ for _ in ()).throw(RuntimeError("boom"))
    with pytest.raises(RuntimeError, match="boom"):
        list(run_async(Pipeline.parse("grpo"), world, BUDGET, steps=6, staleness=2))
    assert threading.active_count() == before
    with pytest.raises(ValueError, match="staleness=-1"):
        next(run_async(Pipeline.parse("grpo"), world, BUDGET, steps=1, staleness=-1))
