"""APRIL in a live world: who is trained, who goes on, and that the scheduler model says the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.vectors.april_model import simulate
from workbench.methods.april import April
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, run
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.stages import Effect, Only
from workbench.store import Store
from workbench.types import Budget, Resume
from workbench.worlds.live.world import LiveWorld
from workbench.worlds.overlap.overlap import Overlap, run_async

from .conftest import toy_model, toy_tokenizer

BUDGET = Budget(prompts=4, rollouts=12)


def fresh(task) -> LiveWorld:
    return LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=1e-2, max_tokens=60)


def steps_of(task, *methods, steps=3, world=None):
    return list(run(Pipeline(Grpo(), *methods), fresh(task) if world is None else world, BUDGET, steps=steps, seed=4))


def test_waiting_for_all_is_the_flat_loop_token_for_token(task):
    for (_, flat), (_, all_of_them) in zip(steps_of(task), steps_of(task, April(share=1.0)), strict=True):
        assert flat.rollouts.id.tolist() == all_of_them.rollouts.id.tolist()
        assert flat.rollouts.tokens.values.tolist() == all_of_them.rollouts.tokens.values.tolist()
        assert set(all_of_them.fate) <= {"trained"}


def test_every_step_trains_half_of_its_groups_and_keeps_the_others(task):
    method = April(every=1)
    made = steps_of(task, method, steps=4)
    tokens = {}
    for states, step in made:
        r = step.rollouts
        trained, carried = np.unique(r.prompt[step.fate == "trained"]), np.unique(r.prompt[step.fate == "carried"])
        assert not set(trained) & set(carried)
        assert len(trained) == 2
        assert len(trained) + len(carried) == 4
        for k, start in enumerate(step.plan.start):
            if isinstance(start, Resume):  # nothing that was made is made again
                row = int(np.flatnonzero(r.ask == k)[0])
                before = tokens[start.rollout]
                assert r.tokens.row(row)[: len(before)].tolist() == before
        tokens |= {i: row.tolist() for i, row in zip(r.id, r.tokens.rows(), strict=True)}
        assert [g.prompt for g in states["april"]] == list(dict.fromkeys(r.prompt[np.argsort(r.ask, kind="stable")][
            np.isin(r.prompt[np.argsort(r.ask, kind="stable")], carried)].tolist()))  # fmt: skip
    assert Pipeline(Grpo(), method).fold(fresh(task).pool, [s for _, s in made])["april"] == made[-1][0]["april"]


def test_the_scheduler_model_trains_the_same_groups(task):
    made = steps_of(task, April(every=1), steps=4)
    groups: dict[tuple[int, str], dict[str, int]] = {}  # (prompt, step it began in) -> rollout -> its length at its end
    name: dict[str, str] = {}

    def group(step, k):
        start = step.plan.start[step.rollouts.ask[k]]
        own = name.setdefault(
            step.rollouts.id[k], name[start.rollout] if isinstance(start, Resume) else step.rollouts.id[k]
        )
        return (int(step.rollouts.prompt[k]), own.partition(":")[0]), own

    for _, step in made:
        r = step.rollouts
        for k in np.argsort(r.ask, kind="stable"):
            key, own = group(step, k)
            groups.setdefault(key, {})[own] = int(r.length[k]) if r.finish[k] != "carried" else 10**6
    stream = list(groups)
    model = simulate([list(rows.values()) for rows in groups.values()], target=2, oversample=4, rounds=4)
    for (_, step), said in zip(made, model, strict=True):
        trained = np.flatnonzero(step.fate == "trained")
        assert {stream[p] for p in said.train} == {group(step, k)[0] for k in trained}
        in_order = np.argsort(step.rollouts.ask, kind="stable")
        assert [stream[p] for p in said.submitted] == list(dict.fromkeys(group(step, k)[0] for k in in_order))
        assert said.train_tokens == int(step.rollouts.length[trained].sum())
    assert sum(said.offpolicy_tokens for said in model) > 0


def test_what_is_carried_is_in_the_ledger_and_its_tokens_count_once(task, tmp_path):
    experiment = Experiment(
        model="tiny", pipeline="grpo", budget=BUDGET, steps=4, store=str(tmp_path), eval_every=0, checkpoint_every=0
    )
    with Run(experiment, world=fresh(task)) as made:
        made.state.pipeline = Pipeline(Grpo(), April(every=1))
        made.state.states = made.pipeline.init(made.world.pool)
        steps = [made.step() for _ in range(4)]
    with Store.open(tmp_path) as store:
        assert store.sql("SELECT bool_and(balanced) AS ok FROM ledger")["ok"].to_pylist() == [True]
        rows = store.ask("savings_by_step").to_pylist()
        again = Pipeline(Grpo(), April(every=1)).fold(made.world.pool, store.steps(made.run_id, made.world.pool))
    assert again["april"] == made.state.states["april"]
    last: dict[str, int] = {}
    for step, row in zip(steps, rows, strict=True):
        new = 0
        for k, i in enumerate(step.rollouts.id):
            start = step.plan.start[step.rollouts.ask[k]]
            last[i] = int(step.rollouts.length[k])
            new += last[i] - (last[start.rollout] if isinstance(start, Resume) else 0)
        assert (row["generated"], row["kept"], row["saved"], row["sharing"]) == (new, new, 0, 1.0)


def test_a_group_is_given_up_at_its_age(task):
    made = steps_of(task, April(every=1, max_age=1), steps=3)
    for states, step in made:
        assert all(g.born == step.step for g in states["april"])  # taken up once, never twice
    assert len(made[-1][0]["april"]) > 0


def test_it_is_refused_where_steps_are_generated_ahead(task):
    pipeline, world = Pipeline(Grpo(), April()), fresh(task)
    with pytest.raises(ValueError, match=r"april goes on with .* use staleness=0, not 1"):
        next(run_async(pipeline, world, BUDGET, steps=2, staleness=1))
    assert Effect.PLANS_AFTER_STEP in Only(April(), "estimate").effects
    overlap = Overlap(world, 1, lambda: 2)
    with pytest.raises(ValueError, match="april goes on with"):
        overlap(pipeline, pipeline.init(world.pool), world, BUDGET, step=1)
    overlap.close()
    next(run_async(pipeline, world, BUDGET, steps=1, staleness=0))


def test_shares_that_cannot_be():
    with pytest.raises(ValueError, match="share=0"):
        April(share=0)
