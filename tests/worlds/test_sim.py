"""The simulated world: keyed draws, honest learning, rewards in range, and its likeness to the recorded run."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.stages import World
from workbench.tasks.verifiers import near
from workbench.types import Advantage, Plan, Ragged, Text
from workbench.worlds.sim.dynamics import FITTED, ordinals, uniforms
from workbench.worlds.sim.fit import RECORDED, Curves, fit, lengths, simulate, starts
from workbench.worlds.sim.world import PARTS, SimWorld


def plan(prompts, n=8, step=1, **columns) -> Plan:
    return Plan(np.asarray(prompts), np.full(len(prompts), n), step=step, **columns)


def advantages(rollouts, value) -> Advantage:
    return replace(Advantage.start(rollouts), value=np.asarray(value, float))


def grpo(rollouts, n=8) -> Advantage:
    reward = rollouts.reward.reshape(-1, n)
    return advantages(rollouts, (reward - reward.mean(1, keepdims=True)).ravel())


def rows_by_id(rollouts):
    columns = (rollouts.text, rollouts.reward, rollouts.correct, rollouts.length, rollouts.finish)
    return {i: row for i, *row in zip(rollouts.id, *(c.tolist() for c in columns), strict=True)}


def test_first_rollouts_are_these():
    got = SimWorld(n_prompts=10, seed=3).sample(plan([0, 7], n=3))
    assert got.id.tolist() == [f"1:sim-pool-3-{p}:{k}" for p in (0, 7) for k in range(3)]
    assert got.length.dtype == np.int64
    assert set(got.finish) <= {"stop", "length"}
    assert got.version.tolist() == [0] * 6


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(12)), st.integers(0, 2**32 - 1))
def test_same_seed_gives_same_rollouts_whatever_the_ask_order(order, seed):
    world = SimWorld(n_prompts=12, n_eval=5, seed=seed)
    straight = rows_by_id(world.sample(plan(range(12), n=4)))
    assert rows_by_id(world.sample(plan(order, n=4))) == straight
    # two rounds of two rollouts are the same four rollouts
    late = plan(order, n=2, ordinal=np.full(12, 2))
    halves = rows_by_id(world.sample(plan(order, n=2))) | rows_by_id(world.sample(late))
    assert halves == straight


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1000), st.floats(0, 1), st.integers(0, 12))
def test_rewards_are_in_range_and_the_sum_of_their_parts(seed, p_fail, cap):
    world = SimWorld(n_prompts=30, n_eval=5, seed=seed, p_fail=p_fail)
    got = world.sample(plan(range(30), n=4, max_tokens=np.full(30, cap)))
    null = got.failure == "verifier"
    assert np.isnan(got.reward[null]).all() and np.isnan(got.correct[null]).all()
    ok = got.take(~null)
    assert ((ok.reward >= 0) & (ok.reward <= 1)).all()
    assert np.isin(ok.correct, [0.0, 1.0]).all()
    np.testing.assert_allclose(ok.reward, sum(w * ok.rewards[part] for part, w in PARTS.items()))
    assert ((ok.correct == 1) == (ok.reward > 1 - 1e-12)).all()
    assert ((ok.rewards["format"] == 0) == np.array([a is None for a in ok.answer])).all()
    assert (got.length <= (min(cap, 8) if cap else 8)).all() and (got.length >= 1).all()


def test_a_right_answer_says_the_answer_and_a_wrong_one_does_not():
    world = SimWorld(n_prompts=60)
    got = world.sample(plan(range(60)))
    said = got.answer == world.pool.answer[got.prompt]
    np.testing.assert_array_equal(said, got.correct == 1)
    value = np.array([np.nan if a is None else float(a) for a in got.answer])
    target = world.pool.answer[got.prompt].astype(float)
    np.testing.assert_allclose(got.rewards["closeness"], near(value, target))  # as the tasks judge the text


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.lists(st.integers(0, 49), min_size=1, max_size=10, unique=True))
def test_zero_advantages_move_nothing(seed, prompts):
    world = SimWorld(n_prompts=50, n_eval=5, seed=seed)
    world.update(first := world.sample(plan(range(50))), grpo(first))
    before = world.pass_rate()
    got = world.sample(plan(prompts, step=2))
    assert world.update(got, advantages(got, np.zeros(len(got))))["grad_norm"] == 0
    np.testing.assert_array_equal(world.pass_rate(), before)
    assert world.version == 2


def test_binary_rewards_are_correctness():
    got = SimWorld(n_prompts=20, graded=False, p_fail=0.2).sample(plan(range(20)))
    np.testing.assert_array_equal(got.reward, got.correct)
    assert 0 < np.isnan(got.reward).mean() < 0.4


def test_a_gradient_below_the_clip_makes_a_shorter_step():
    full = SimWorld(n_prompts=50, n_eval=5)
    got = full.sample(plan(range(50)))
    norm = full.update(got, grpo(got))["grad_norm"]
    half = SimWorld(n_prompts=50, n_eval=5, dynamics=replace(FITTED, clip=2 * norm))
    half.update(got, grpo(got))
    np.testing.assert_allclose(2 * half._theta, full._theta)
    short = SimWorld(n_prompts=50, n_eval=5, dynamics=replace(FITTED, clip=norm / 2))
    short.update(got, grpo(got))
    np.testing.assert_allclose(short._theta, full._theta)


def test_a_step_forgets_its_share_of_what_was_learned():
    still = replace(FITTED, rate=0.0, sharpening=0.0, forgetting=0.1)
    world, moving = (SimWorld(n_prompts=50, n_eval=5, dynamics=d) for d in (still, FITTED))
    start = world.pass_rate()
    got = moving.sample(plan(range(50)))
    moving.update(got, grpo(got))
    world._theta = moving._theta.copy()
    moved = np.abs(world.pass_rate() - start).max()
    for _ in range(150):
        world.update(got, grpo(got))
    assert moved > 1e-3
    np.testing.assert_allclose(world.pass_rate(), start, atol=1e-6)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.lists(st.integers(0, 49), min_size=1, max_size=20, unique=True))
def test_settled_groups_may_be_dropped_or_kept_at_zero(seed, prompts):
    kept, dropped, taken = (SimWorld(n_prompts=50, n_eval=5, seed=seed) for _ in range(3))
    got = kept.sample(plan(prompts))
    plain = grpo(got)
    settled = plain.value == 0
    first = kept.update(got, plain)
    second = dropped.update(got, plain.drop(settled, "settled"))
    np.testing.assert_allclose(dropped.pass_rate(), kept.pass_rate(), rtol=1e-12)
    assert first["live"] == pytest.approx(float((~settled).mean()))
    assert second.get("live", 0.0) == first["live"]  # of the rollouts generated, whether kept or not
    if not settled.all():  # a filter that never lets them through
        part = got.take(~settled)
        taken.update(part, advantages(part, plain.value[~settled]))
        np.testing.assert_allclose(taken.pass_rate(), kept.pass_rate(), rtol=1e-12)


def test_dropped_rows_teach_nothing():
    a, b = SimWorld(n_prompts=20, seed=1), SimWorld(n_prompts=20, seed=1)
    got = a.sample(plan(range(20)))
    half = np.arange(len(got)) < 80
    a.update(got, grpo(got).drop(~half, "test"))
    part = got.take(half)
    b.update(part, grpo(part))
    np.testing.assert_allclose(a.pass_rate(), b.pass_rate())


def test_an_update_without_kept_rows_is_skipped():
    world = SimWorld(n_prompts=4)
    got = world.sample(plan(range(4)))
    report = world.update(got, grpo(got).drop(np.ones(len(got), bool), "test"))
    assert report["skipped"] == "no rollout was kept"
    assert world.version == 0


def test_weights_and_token_advantages_count():
    worlds = [SimWorld(n_prompts=20, seed=2) for _ in range(3)]
    got = worlds[0].sample(plan(range(20)))
    weight = np.linspace(0.5, 2, len(got))
    plain = grpo(got)
    worlds[0].update(got, replace(plain, value=plain.value * weight))
    worlds[1].update(got, replace(plain, weight=weight))
    tokens = Ragged.of([[v] * 3 for v in plain.value * weight], np.float64)
    worlds[2].update(got, replace(plain, value=np.zeros(len(got)), tokens=tokens))
    for other in worlds[1:]:
        np.testing.assert_allclose(other.pass_rate(), worlds[0].pass_rate())


def test_a_family_learns_from_its_own_prompts_most():
    world = SimWorld(n_prompts=500, dynamics=replace(FITTED, noise=0.0, sharpening=0.0))
    start = world.pass_rate()
    family = np.flatnonzero(world.pool.stratum == "add 2d+2d")
    for step in range(1, 21):
        got = world.sample(plan(family, n=16, step=step))
        world.update(got, grpo(got, 16))
    gain = world.pass_rate() - start
    others = np.setdiff1d(np.arange(500), family)
    assert gain[family].mean() > 0.3
    assert abs(gain[others].mean()) < 0.1


def test_sampled_answers_agree_with_the_true_pass_rate():
    world = SimWorld(n_prompts=50, seed=5)
    got = world.sample(plan(range(50), n=2000))
    rate = got.correct.reshape(50, 2000).mean(1)
    assert np.abs(rate - world.pass_rate()).max() < 0.05


def test_replayed_rollouts_give_the_gradient_of_the_present_policy():
    """Many old rollouts of one prompt, weighted, point as far as as many fresh ones."""
    world = SimWorld(n_prompts=5, n_eval=5, seed=6, dynamics=replace(FITTED, noise=0.0, rate=1.0))
    old = world.sample(plan([0], n=60000))
    world.update(old, advantages(old, old.correct - old.correct.mean()))
    fresh = world.sample(plan([0], n=60000, step=2))
    slope = [
        (rows.correct * world._score(rows, np.arange(len(rows)))).mean() for rows in (old, fresh)
    ]  # both estimate d p / d logit = p (1 - p)
    p = world.pass_rate()[0]
    np.testing.assert_allclose(slope, p * (1 - p), atol=0.01)
    assert abs((old.correct * (2 * uniforms(world._keys(old, world._prompts), 0) - 1)).mean() - p * (1 - p)) > 0.02


def test_evaluation_is_of_its_own_prompts_and_purpose():
    world = SimWorld(n_prompts=10, n_eval=6, eval_samples=2)
    got = world.evaluate(20)
    assert got.id[:3].tolist() == ["eval-20:sim-eval-0-0:0", "eval-20:sim-eval-0-0:1", "eval-20:sim-eval-0-1:0"]
    assert set(got.purpose) == {"eval"}
    assert not set(world.evaluation.ids) & set(world.pool.ids)
    assert world.version == 0


def test_save_and_load_go_on_alike(tmp_path):
    a, b = SimWorld(n_prompts=20, seed=4), SimWorld(n_prompts=20, seed=4)
    got = a.sample(plan(range(20)))
    a.update(got, grpo(got))
    a.save(tmp_path)
    b.load(tmp_path)
    assert b.version == 1
    for world in (a, b):
        got = world.sample(plan(range(20), step=2))
        world.update(got, grpo(got))
    np.testing.assert_array_equal(a.pass_rate(), b.pass_rate())
    with pytest.raises(ValueError, match="seed 4"):
        SimWorld(n_prompts=20, seed=5).load(tmp_path)


def test_it_says_what_it_cannot_do():
    world = SimWorld(n_prompts=4)
    start = np.array([Text("Hint: ")], dtype=object)
    with pytest.raises(ValueError, match="live world for hints"):
        world.sample(plan([0], start=start))
    with pytest.raises(ValueError, match="fork or cut"):
        world.sample(plan([0]), branch=lambda frontier: None)
    with pytest.raises(ValueError, match="n_prompts must be a whole number of at least 1, got 0"):
        SimWorld(n_prompts=0)
    with pytest.raises(ValueError, match="ends in :<number>"):
        ordinals(np.array(["foreign"], dtype=object))


def test_it_is_a_world():
    world: World = SimWorld(n_prompts=4)
    assert world.offers == {"embedding"}
    got = world.score(world.sample(plan([2])), frozenset({"embedding"}))
    assert got.extra["embedding"].shape == (8, 38)
    assert SimWorld(n_prompts=4).describe()["parameters"] == 38


def test_uniforms_are_uniform_and_independent_of_the_channel():
    keys = np.arange(20000, dtype=np.uint64)
    u, v = uniforms(keys, 0), uniforms(keys, 1)
    assert abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.003
    assert abs(np.corrcoef(u, v)[0, 1]) < 0.02
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.02


def test_the_fit_reproduces_the_recorded_run():
    runs = [simulate(FITTED, RECORDED.steps, RECORDED.eval_step, seed) for seed in range(4)]
    mean = Curves(*(np.mean(column, axis=0) for column in zip(*runs, strict=True)))
    # recorded 0.33 0.53 0.55 0.62 0.64 0.63; 320 evaluation samples have a standard error of 0.027
    assert np.abs(mean.eval_rate.mean(1) - RECORDED.eval_rate.mean(1)).max() < 0.08
    # recorded 0.53 at the start, 0.26 at the end; about 10 steps of 16 groups a part
    live = np.array([part.mean() for part in np.array_split(mean.live, 9)])
    assert np.abs(live - RECORDED.live).max() < 0.1
    assert abs(mean.length.mean() - RECORDED.length.mean()) < 0.2


def test_starts_and_lengths_are_moments_of_the_recording():
    start, spread = starts(RECORDED.eval_rate[0], float(RECORDED.live[0]))
    assert [f.start for f in FITTED.families] == pytest.approx(start.tolist(), abs=0.001)
    assert FITTED.families[0].spread == pytest.approx(spread, abs=0.001)
    assert (FITTED.log_length, FITTED.wrong_longer) == pytest.approx(lengths(RECORDED), abs=0.001)


def test_fit_is_reproducible():
    first = fit(RECORDED, trials=2, seeds=1)
    assert first == fit(RECORDED, trials=2, seeds=1)
    assert all(f.name == name for f, name in zip(first.families, RECORDED.families, strict=True))
