"""Figures about the ratio to the sampler are over tokens that were sampled: the tokens of a trained hint were not."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from workbench.analysis.diagnose import RULES
from workbench.methods.adhint import Adhint
from workbench.methods.grpo import Grpo
from workbench.numerics.roles import HINT, hint_lengths
from workbench.store import Store, Writer
from workbench.types import Budget, Ragged
from workbench.views.data.tokens import Band, Coverage, read
from workbench.worlds.live.world import LiveWorld

from .conftest import step_of, toy_model, toy_tokenizer

BUDGET = Budget(prompts=4, rollouts=32)
NATS = log(1.5)


@pytest.fixture
def world(task):
    """A sampler that recorded every token as two thirds as likely as the policy takes it for."""
    text = np.array([f"{a} b 3 d e" for a in range(len(task.pool))], dtype=object)
    task.pool = replace(task.pool, extra={"reference": text})
    made = LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=0.0)
    plainly = made.sample

    def sample(*what):
        rows = plainly(*what)
        return rows.with_(logp=Ragged(rows.logp.values - np.float32(NATS), rows.logp.offsets))

    made.sample = sample
    return made


def scored(world):
    """A step whose rows hold hints, and the policy's own log-probabilities."""
    step = step_of(world, BUDGET, Grpo(), Adhint())
    assert (hint_lengths(step.rollouts) > 0).sum() >= 8
    return replace(step, rollouts=world.score(step.rollouts, frozenset({"current"})))


def test_what_an_update_tells_of_the_ratio_is_over_sampled_tokens(world):
    update = scored(world).update
    assert update["logp_gap"] == pytest.approx(NATS, abs=1e-4)
    assert update["kl"] == pytest.approx(1.5 - 1 - NATS, abs=1e-4)
    assert update["importance"] == pytest.approx(1.5, abs=1e-4)


def test_tokens_that_are_trained_are_all_counted(world):
    step = scored(world)
    active = step.advantage.keep & np.array([row.any() for row in step.advantage.tokens.rows()])
    assert step.update["tokens"] == step.rollouts.tokens.lengths[active].sum()


@pytest.fixture
def kept(world, tmp_path):
    """The step, and a store that holds it."""
    step = scored(world)
    with Writer(tmp_path, {}, world.pool, run="a") as writer:
        writer.append(step)
    with Store.open(tmp_path) as store:
        yield step, store


def test_the_band_of_ratios_is_that_of_sampled_tokens(kept):
    step, store = kept
    own, lead = int(step.rollouts.length.sum()), hint_lengths(step.rollouts)
    (row,) = store.ask("ratio_band_by_step").to_pylist()
    assert (row["tokens"], row["below"], row["above"]) == (own, 0.0, 1.0)
    assert row["mean_ratio"] == pytest.approx(1.5, abs=1e-4)
    outside = store.ask("tokens_outside_band", low=1.6, high=9.0, limit=9999).to_pylist()
    places = {(r["rollout_id"], r["position"]) for r in outside}
    ends = zip(step.rollouts.id, lead, step.rollouts.tokens.lengths, strict=True)
    assert places == {(i, k) for i, first, last in ends for k in range(first, last)}


def test_the_rules_look_at_sampled_tokens(kept):
    step, store = kept
    sql = {name: told[0].replace("$run", "'a'") for name, told in RULES.items()}
    stale = store.sql(sql["stale_ratios"]).to_pylist()
    assert [(s["outside"], s["n"]) for s in stale] == [(1.0, int(step.rollouts.length.sum()))]
    entropy = store.sql(sql["collapsing_entropy"])["entropy"].to_pylist()
    own = zip(step.rollouts.entropy.rows(), hint_lengths(step.rollouts), strict=True)
    assert entropy == [pytest.approx(np.mean([row[lead:].mean() for row, lead in own]), abs=1e-5)]


def test_a_hint_is_drawn_without_a_ratio(kept):
    step, store = kept
    i = int(np.flatnonzero(hint_lengths(step.rollouts))[0])
    told = store.ask("page_tokens", step=1, row=i).to_pylist()[0]
    said = read(told, Coverage("all", 1.0, True, len(step.rollouts), {}, Band(0.8, 1.2, "")))
    for role, ratio, clipped in zip(
        step.rollouts.role.row(i), said.tracks["ratio"], said.tracks["clipped"], strict=True
    ):
        assert (ratio is None) == (clipped is None) == (role == HINT)
        assert ratio is None or ratio == pytest.approx(exp(NATS), abs=1e-3)
