"""Laws of overlapped runs: the lag is bounded, the order is kept, nothing is lost, no lag is the plain loop."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from tests.timing import patience
from workbench import Experiment, Store
from workbench.pipeline import Pipeline, run
from workbench.runs.run import Run
from workbench.stages import Checkpoint, Prune
from workbench.types import Budget, Cut, Plan
from workbench.worlds.engines import Request
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.graph_engine import GraphEngine
from workbench.worlds.engines.transformers_engine import TransformersEngine
from workbench.worlds.live.world import LiveWorld
from workbench.worlds.overlap.overlap import Overlap, run_async
from workbench.worlds.sim.world import SimWorld

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
    together = threading.Barrier(2, timeout=patience(60))
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


SMALL = Experiment(
    model="sim", steps=5, pipeline="grpo + mopps", eval_every=2, checkpoint_every=2,
    budget=Budget(prompts=4, rollouts=16), world={"n_prompts": 40},
)  # fmt: skip


def recorded(store: str) -> list[dict]:
    with Store.open(store) as found:
        return found.sql(
            "SELECT s.step, s.folded_through, m.value AS lag, min(r.version) AS version FROM steps s JOIN rollouts r USING (run, step)"
            " JOIN metrics m USING (run, step) WHERE m.name = 'version_lag' AND r.row >= 0 GROUP BY ALL ORDER BY step"
        ).to_pylist()


def test_an_experiment_overlaps_by_its_staleness_and_records_it(tmp_path):
    experiment = SMALL.with_(store=str(tmp_path / "s"), staleness=2)
    assert Experiment.from_dict(experiment.to_dict()).staleness == 2
    assert "staleness = 2" in experiment.to_toml()
    before = threading.active_count()
    steps = list(experiment.run())
    assert threading.active_count() <= before + 1  # a compaction of the store may be under way
    assert [s.step for s in steps] == [1, 2, 3, 4, 5]
    rows = [tuple(row.values()) for row in recorded(experiment.store)]
    assert rows == [(1, 0, 0.0, 0), (2, 0, 1.0, 0), (3, 0, 2.0, 0), (4, 1, 2.0, 1), (5, 2, 2.0, 2)]
    with pytest.raises(ValueError, match="staleness must be a whole number of at least 0, got -1"):
        SMALL.with_(staleness=-1)


def test_a_run_that_had_ended_goes_on_with_nothing_waiting(tmp_path):
    experiment = SMALL.with_(store=str(tmp_path), staleness=1, steps=3)
    with Run(experiment) as first:
        for _ in range(3):
            first.step()
    with Run(experiment.with_(steps=5), resume=first.run_id) as again:
        assert again.n_steps == 3
        again.step()
        again.step()
    assert [row["lag"] for row in recorded(experiment.store)] == [0, 1, 1, 0, 1]
    assert [row["folded_through"] for row in recorded(experiment.store)] == [0, 0, 1, 3, 3]


def test_a_change_acts_at_the_step_it_is_recorded_for(tmp_path):
    with Run(SMALL.with_(store=str(tmp_path), staleness=2, eval_every=0)) as run:
        run.step()
        run.step()
        run.state.available = np.arange(40) < 10
        third = run.step()
        assert third.prompts.max() < 10
        assert (third.plan.folded_through, third.update["version_lag"]) == (2, 0)
        run.swap("grpo + vade")
        fourth = run.step()
        assert fourth.plan.folded_through == 3
        assert run.step().plan.folded_through == 3


def test_each_step_has_its_own_books(task):
    """Seconds, tokens and tests at checkpoints are those of the step, not of the one that is generated meanwhile."""

    def none(frontier) -> Cut:
        b = len(frontier)
        return Cut(np.ones(b, np.int64), np.full(b, "", object), np.ones(b))

    world = live(task)
    twin, other = world.twin(), world.twin()
    first = twin.sample(Plan(np.array([0]), np.array([3]), step=1), None, Prune(none, Checkpoint(2)))
    second = other.sample(Plan(np.array([1]), np.array([3]), step=2), None, Prune(none, Checkpoint(2)))
    for books, rows in ((twin, first), (other, second)):
        world.adopt(books)
        assert {i.split("/")[0] for i in world.taken_decisions()["node_id"]} <= set(rows.id)
        assert world._spent["decoded_tokens"] == books._spent["decoded_tokens"] > 0
        world._spent.clear()


def test_the_newest_weights_are_evaluated_between_steps(task):
    world = live(task)
    overlap = Overlap(world, 1, lambda: 3)
    pipeline = Pipeline.parse("grpo")
    states = pipeline.init(world.pool)
    for step in (1, 2, 3):
        states, _ = overlap(pipeline, states, world, BUDGET, step=step, seed=3)
        for mine, theirs in zip(world.engine.model.parameters(), world.policy.model.parameters(), strict=True):
            assert mine is not theirs
            assert torch.equal(mine, theirs)
    overlap.close()


def test_the_sampler_of_an_overlapped_run_gives_its_slots_back(task):
    world = LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, engine="graph")
    own, overlap, pipeline = world.engine, Overlap(world, 1, lambda: 2), Pipeline.parse("grpo")
    lent = world.engine
    assert lent is not own
    overlap(pipeline, pipeline.init(world.pool), world, BUDGET, step=1, seed=3)
    assert lent.slots.n
    overlap.close()
    assert world.engine is own
    assert lent.slots.n == 0


@pytest.mark.parametrize("make", [TransformersEngine, GraphEngine])
def test_a_sampler_that_shares_the_trained_weights_gets_its_own_for_the_run(task, make):
    model = toy_model()
    engine = make(model)
    other = engine.apart()
    assert engine.copy_of is None
    assert other.apart() is other
    keys = streams(0, ["a", "b"])

    def logp(e) -> list[float]:
        made = e.generate(Request.of_groups([[5, 6], [7]], np.ones(2, np.int64), np.full(2, 4), keys, temperature=0.0))
        return made.logp.values.tolist()

    before = logp(other)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    assert logp(other) == before
    engine.sync()
    other.sync()
    assert logp(other) == logp(engine) != before


def test_a_graph_decoder_overlaps_as_a_plain_sampler_does(task):
    found = []
    for make in (TransformersEngine, GraphEngine):
        world = live(task)
        world.engine = make(world.policy.model)
        steps = list(run_async(Pipeline.parse("grpo"), world, BUDGET, steps=4, seed=3))
        found.append([facts(s) for _, s in steps])
    assert found[0] == found[1]
