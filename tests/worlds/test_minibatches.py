"""Several optimiser steps on one batch: the same weights as plain passes give, and objectives that differ once ratios move."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench import Budget, Experiment, Store
from workbench.methods import Cispo, Dapo, DrGrpo, Grpo, Gspo, Minpro, Vcpo
from workbench.types import Loss, Ragged
from workbench.worlds.training.microbatch import minibatches
from workbench.worlds.training.policy import Policy

from .conftest import toy_model
from .test_policy import ANSWERS, KEEP, OWNER, PREFIXES, VALUE, WEIGHT, advantage, lines

LR, LOW, HIGH = 0.02, 0.8, 1.2


def clipped(batch) -> Loss:
    """PPO's clipped surrogate."""
    ratio = (batch.logp - batch.proximal).exp()
    term = -torch.minimum(ratio * batch.advantage, ratio.clamp(LOW, HIGH) * batch.advantage)
    outside = (ratio.detach() < LOW) | (ratio.detach() > HIGH)
    return Loss(term, stats={"clip": outside.float()})


def logp_of(model, row: int) -> torch.Tensor:
    prefix, answer = PREFIXES[OWNER[row]], torch.tensor(ANSWERS[row])
    logits = model(input_ids=torch.tensor([[*prefix, *ANSWERS[row]]])).logits[0, len(prefix) - 1 : -1]
    return logits.log_softmax(-1).gather(1, answer[:, None])[:, 0]


def by_hand(epochs: int, n: int) -> torch.Tensor:
    """The weights after the same steps, written down row by row with full forward passes."""
    model = toy_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.0)
    kept = np.flatnonzero(KEEP)
    with torch.no_grad():
        before = [logp_of(model, row) for row in range(8)]
    for epoch in range(epochs):
        for rows in minibatches(kept, OWNER, n, (0, epoch)):
            tokens, total = sum(len(ANSWERS[row]) for row in rows), torch.zeros(())
            for row in rows:
                ratio = (logp_of(model, row) - before[row]).exp()
                term = -torch.minimum(ratio * VALUE[row], ratio.clamp(LOW, HIGH) * VALUE[row])
                total = total + WEIGHT[row] * term.sum() / tokens
            optimizer.zero_grad()
            total.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return flat(model)


def flat(model) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("budget", [1, 30, 10_000])
@pytest.mark.parametrize(("epochs", "n"), [(1, 1), (1, 3), (2, 1), (3, 2)])
def test_weights_equal_plain_passes_for_any_mini_and_micro_batches(epochs, n, budget):
    policy = Policy(toy_model(), lr=LR, budget=budget, epochs=epochs, minibatches=n)
    done = policy.update(lines(), advantage(), clipped)
    expected = by_hand(epochs, n)
    moved = (expected - flat(toy_model())).norm()  # Adam makes much of gradients that are all but zero
    assert float((flat(policy.model) - expected).norm() / moved) < 1e-3
    assert policy.version == 1
    if epochs * n > 1:
        assert done["optimizer_steps"] == len(done["loss_per_step"]) == epochs * n
        assert done["clip_per_step"][0] == 0.0 < done["clip_per_step"][-1]


def test_what_is_told_of_rows_is_of_the_policy_before():
    plain, several = Policy(toy_model()), Policy(toy_model(), lr=LR, epochs=2, minibatches=2)
    one, other = (p.update(lines(), advantage(), clipped) for p in (plain, several))
    np.testing.assert_allclose(one["logp_per_token"], other["logp_per_token"], atol=1e-5)
    assert np.isnan(one["loss_per_rollout"]).tolist() == np.isnan(other["loss_per_rollout"]).tolist()


@given(
    group=st.lists(st.integers(0, 9), min_size=1, max_size=60),
    n=st.integers(1, 12),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_every_row_is_in_one_minibatch_and_no_group_in_two(group, n, seed, data):
    group = np.array(group)
    rows = np.flatnonzero(np.array(data.draw(st.lists(st.booleans(), min_size=len(group), max_size=len(group)))))
    parts = minibatches(rows, group, n, (seed, 0))
    assert sorted(np.concatenate(parts).tolist()) == rows.tolist()
    assert len(parts) == min(n, max(len(set(group[rows].tolist())), 1))
    for i, part in enumerate(parts):
        assert not set(group[part].tolist()) & {g for other in parts[i + 1 :] for g in group[other].tolist()}


OBJECTIVES = {m.__name__: m() for m in (Grpo, Gspo, Cispo, Dapo, Minpro, Vcpo, DrGrpo)}


def after(method, epochs: int) -> torch.Tensor:
    exact = Policy(toy_model()).logp(lines())
    policy = Policy(toy_model(), lr=LR, epochs=epochs)
    policy.update(
        lines()._replace(behaviour=Ragged(exact.values - 0.1, exact.offsets)),
        advantage(),
        partial(method.loss, ()),
        constant=10,
    )
    return flat(policy.model)


def test_objectives_differ_once_there_is_a_second_epoch():
    one, two = ({name: after(m, epochs) for name, m in OBJECTIVES.items()} for epochs in (1, 2))
    assert (
        float((one["Grpo"] - one["Gspo"]).abs().max()) < 1e-4
    )  # at a ratio of 1 they are the same but for their means
    names = list(OBJECTIVES)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            assert float((two[a] - two[b]).abs().max()) > 1e-4, (a, b)


def test_an_experiment_says_how_it_updates(tmp_path):
    experiment = Experiment(
        model="tiny", pipeline="grpo", budget=Budget(prompts=4, rollouts=32), steps=2, eval_every=0, store=str(tmp_path),
        world={"lr": 1e-3}, update={"epochs": 2, "minibatches": 2},
    )  # fmt: skip
    assert Experiment.from_dict(experiment.to_dict()).update == experiment.update
    made = list(experiment.run())
    assert made[-1].rollouts.version.tolist() == [1] * 32  # one update, however many optimiser steps
    with Store.open(tmp_path) as store:
        back = list(store.steps())
        world = store.sql("SELECT json_extract(world, '$.minibatches')::INT AS n FROM runs")["n"].to_pylist()
    assert world == [2]
    for live, stored in zip(made, back, strict=True):
        np.testing.assert_array_equal(live.update["loss_per_step"], stored.update["loss_per_step"])
    with pytest.raises(ValueError, match="epochs must be a whole number"):
        experiment.with_(update={"epochs": 0}).build_world()
    with pytest.raises(ValueError, match="has no optimiser"):
        experiment.with_(model="sim", world={}).build_world()
