"""sign_flips over recorded steps says what numerics.flips says of the same rewards and references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_steps import made_pool, made_step
from run_steps import live_run, make_world

from workbench.numerics.flips import sign_flips
from workbench.pipeline.fates import fates
from workbench.store import Store, Writer

LABELS = ("ok", "hard", "vanish", "spurious", "both_zero", "ambiguous")
RATES = ("hard_rate", "vanish_rate", "spurious_rate", "hard_reward_mass", "hard_gradient_mass")


def expected(store, run, pool, z=2.0):
    """{(step, estimator, kind): SignFlips} by numpy, from the recorded rows."""
    rows = store.sql(
        "SELECT r.step, r.prompt_id, r.version, r.context, r.purpose, r.reward, a.value, a.estimator FROM rollouts r"
        " LEFT JOIN (FROM advantages WHERE term = 'final') a USING (run, rank, seq, step, row) WHERE r.run = $run",
        {"run": run},
    ).to_pandas()
    plain = rows[(rows.context == "") & (rows.purpose != "eval")]
    made = {
        k: np.asarray(g, float) for k, g in plain.dropna(subset="reward").groupby(["prompt_id", "version"])["reward"]
    }
    mine = plain[(plain.purpose == "train") & plain.value.notna()]
    mine = mine[[(p, v) in made for p, v in zip(mine.prompt_id, mine.version, strict=True)]]
    pools = [made[p, v] for p, v in zip(mine.prompt_id, mine.version, strict=True)]
    mine = mine.assign(
        mean=[p.mean() for p in pools],
        se=[p.std(ddof=1) / np.sqrt(len(p)) if np.ptp(p) else 0.0 for p in pools],
        kind=["pool" if len(p) >= pool else "small pool" for p in pools],
    )
    return {
        key: sign_flips(g.reward, g.value, g["mean"], reference_se=g.se, z=z)
        for key, g in mine.groupby(["step", "estimator", "kind"])
    }


def agree(store, run, pool, z):
    found = store.ask("sign_flips", run=run, pool=pool, z=z).to_pylist()
    told = expected(store, run, pool, z)
    assert [(r["step"], r["estimator"], r["reference_kind"]) for r in found] == sorted(told)
    for r in found:
        flips = told[r["step"], r["estimator"], r["reference_kind"]]
        assert [r[name] for name in LABELS] == [int((flips.labels == name).sum()) for name in LABELS]
        assert r["rollouts"] == len(flips.labels) == sum(r[name] for name in LABELS)
        for name in RATES:
            assert (r[name] or 0.0) == pytest.approx(getattr(flips, name)), (r["step"], name)
    return found


@pytest.mark.parametrize("z", [0.0, 1.9])  # at 2, one success of three lies on the edge of its own margin
def test_recorded_steps_of_the_simulation_agree_with_the_formulas(tmp_path, z):
    world = make_world()
    with Writer(tmp_path, {}, world.pool, world.evaluation, run="a", who={"estimate": ["grpo"]}) as writer:
        for _, _, step in live_run(12, swap=6):
            writer.append(step)
    with Store.open(tmp_path) as store:
        agree(store, "a", 64, z)
        found = agree(store, "a", 4, z)
        assert {r["reference_kind"] for r in found} <= {"pool", "small pool"} and len(found) >= 12
        assert sum(r["ok"] for r in found) > 0


def test_graded_rewards_flip_hard_against_a_pool_of_the_same_version(tmp_path):
    """Groups of 4 whose own means lie on either side of the pool's: a reward between the two is pushed the wrong way."""
    pool = made_pool(6)
    levels = np.array([[0, 0, 0, 0.8], [1.2, 2, 2, 2]])  # means 0.2 and 1.8, of the pool 1.0
    with Writer(tmp_path, {}, pool, run="a") as writer:
        for number in (1, 2):
            step = made_step(number, pool, np.random.default_rng(0), prompts=2, n=4, among=np.array([2, 5]))
            reward = np.tile(levels[number - 1], 2) + np.where(step.rollouts.group == 0, 0.0, 0.5)
            rows = step.rollouts.with_(
                reward=reward, version=np.zeros(8, np.int64), failure=np.full(8, "", object), correct=np.ones(8)
            )
            mean = (np.bincount(rows.group, reward) / 4)[rows.group]
            advantage = replace(
                step.advantage, value=reward - mean, keep=np.ones(8, bool), reason=np.full(8, "", object)
            )
            fate, reason = fates(rows, advantage)
            writer.append(replace(step, rollouts=rows, advantage=advantage, fate=fate, fate_reason=reason))
    with Store.open(tmp_path) as store:
        first, second = agree(store, "a", 8, 0.0)
        assert (first["reference_kind"], first["smallest_pool"], first["largest_pool"]) == ("pool", 8, 8)
        for row in (first, second):
            assert [row[name] for name in LABELS] == [6, 2, 0, 0, 0, 0]
            assert [row[name] for name in RATES] == [0.25, 0.0, None, pytest.approx(0.0625), pytest.approx(0.5)]
        assert store.ask("sign_flips", pool=9)["reference_kind"].to_pylist() == ["small pool"] * 2
        assert store.ask("sign_flips", pool=8, z=100)["ambiguous"].to_pylist() == [8, 8]
