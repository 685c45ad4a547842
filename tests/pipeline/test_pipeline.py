from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from workbench.methods.dapo_dynamic_sampling import DapoDynamicSampling
from workbench.methods.grpo import Grpo
from workbench.methods.mc_grpo import McGrpo
from workbench.methods.mopps import Mopps
from workbench.methods.vade import Vade
from workbench.pipeline import Pipeline, PromptSettings, advance, run
from workbench.pipeline.draws import generator
from workbench.pipeline.rounds import MAX_ROUNDS, join
from workbench.stages import Card, Method, Only
from workbench.testing.scripted import ScriptedWorld, Uneven, equal
from workbench.types import Advantage, Budget, Draft, Picked, Plan, Ragged, Rollouts

BUDGET = Budget(prompts=4, rollouts=16)


def card(slug: str) -> Card:
    return Card(slug=slug, title=slug, source="ours", watch="nothing")


@dataclass(frozen=True)
class Greedy(Method):
    """Wants one prompt more, always."""

    card = card("greedy")

    def more(self, state: object, draft: Draft) -> int:
        return 1


@dataclass(frozen=True)
class Broken(Method):
    """Selects what is not there, or gives what is no number."""

    rows: tuple[int, ...] = ()
    card = card("broken")

    def select(self, state: object, draft: Draft, rng: np.random.Generator) -> np.ndarray:
        return np.array(self.rows, np.int64)


@dataclass(frozen=True)
class NotANumber(Method):
    """Advantages that are NaN."""

    card = card("not_a_number")

    def estimate(self, state: object, advantage: Advantage, draft: Draft, rng: object) -> Advantage:
        return replace(advantage, value=np.full(len(advantage.value), np.nan))


@dataclass(frozen=True)
class OneToken(Method):
    """One token's advantage a rollout, whatever its length."""

    card = card("one_token")

    def estimate(self, state: object, advantage: Advantage, draft: Draft, rng: object) -> Advantage:
        return replace(advantage, tokens=Ragged.of([[v] for v in advantage.value], float))


@dataclass(frozen=True)
class Picky(Method):
    """Takes no rollout of an odd prompt."""

    card = card("picky")

    def admit(self, state: object, rollouts: Rollouts, draft: Draft) -> np.ndarray:
        return rollouts.prompt % 2 == 0


@dataclass(frozen=True)
class Doubtful(Method):
    """Needs what no world has."""

    card = card("doubtful")
    needs = frozenset({"oracle", "teacher"})

    def reward(self, state: object, rollouts: Rollouts) -> Rollouts:
        return rollouts


def test_the_last_that_has_a_deciding_verb_decides_and_all_refine() -> None:
    pipeline = Pipeline(Grpo(), Mopps(), Vade(), McGrpo(), DapoDynamicSampling())
    assert pipeline.who() == {
        "select": ["vade"],
        "allocate": ["uniform"],
        "amend": ["mc_grpo"],
        "more": ["dapo_dynamic_sampling"],
        "estimate": ["grpo", "mc_grpo", "dapo_dynamic_sampling"],
        "loss": ["grpo"],
    }
    assert "select    vade" in str(pipeline)


def test_what_cannot_stand_together_is_said() -> None:
    with pytest.raises(ValueError, match=r"no method of .* acts at estimate"):
        Pipeline(Mopps())
    with pytest.raises(ValueError, match="mopps stands in the pipeline more than once"):
        Pipeline(Grpo(), Mopps(), Mopps(target=0.4))
    with pytest.raises(TypeError, match="is not a method"):
        Pipeline(Grpo)
    with pytest.raises(ValueError, match="Doubtful needs oracle, teacher, which ScriptedWorld does not offer"):
        next(run(Pipeline(Grpo(), Doubtful()), ScriptedWorld(), BUDGET, steps=1))


@dataclass(frozen=True)
class Told(Method):
    """Chooses prompts 3 and 1 and says by what."""

    card = card("told")

    def select(self, state: object, draft: Draft, rng: np.random.Generator) -> Picked:
        return Picked(np.array([3, 1]), {"gain": np.array([0.5, 0.25]), "n": np.array([7.0, 8.0])})


@dataclass(frozen=True)
class Reasoned(Method):
    """Two rollouts each, for reasons of its own."""

    card = card("reasoned")

    def allocate(self, state: object, draft: Draft, rng: np.random.Generator) -> Plan:
        fresh = np.sort(draft.fresh)
        return Plan(fresh, np.full(len(fresh), 2), why={"n": np.full(len(fresh), 2.0)})


def test_what_a_prompt_was_chosen_by_stands_with_its_asks() -> None:
    pipeline, world = Pipeline(Grpo(), Told(), Reasoned()), ScriptedWorld(6)
    pinned = PromptSettings(pinned=np.array([2]))
    plan = advance(pipeline, pipeline.init(world.pool), world, Budget(3, 6), step=1, prompt_settings=pinned)[1].plan
    assert plan.prompt.tolist() == [1, 2, 3]
    assert plan.why["n"].tolist() == [2.0, 2.0, 2.0]
    np.testing.assert_equal(plan.why["gain"], [0.25, np.nan, 0.5])  # nobody chose what is pinned
    np.testing.assert_equal(plan.why["told.n"], [8.0, np.nan, 7.0])


def test_a_selector_is_held_to_the_candidates() -> None:
    for rows, message in [((0, 0), "1 twice"), ((0, 1, 2, 3, 4), "5 rows for 4"), ((7,), "1 not among")]:
        world = ScriptedWorld(9)
        pipeline = Pipeline(Grpo(), Broken(rows))
        with pytest.raises(ValueError, match=message):
            advance(pipeline, pipeline.init(world.pool), world, BUDGET, step=1, available=np.arange(9) < 6)
    with pytest.raises(ValueError, match="no prompt could be chosen"):
        next(run(Pipeline(Grpo(), Broken()), ScriptedWorld(), BUDGET, steps=1))


def test_an_advantage_that_is_no_number_stops_the_step() -> None:
    with pytest.raises(ValueError, match=r"NotANumber.estimate gave 1. advantages that are not finite at step 1"):
        next(run(Pipeline(Grpo(), NotANumber()), ScriptedWorld(), BUDGET, steps=1))


def test_advantages_of_tokens_that_are_not_there_stop_the_step() -> None:
    with pytest.raises(
        ValueError, match=r"OneToken.estimate gave \d+ of 16 rollouts more or fewer advantages than they have"
    ):
        next(run(Pipeline(Grpo(), OneToken()), ScriptedWorld(), BUDGET, steps=1))


def test_draws_are_keyed_by_step_round_verb_and_method() -> None:
    keys = [
        (1, 0, "select", "a"),
        (2, 0, "select", "a"),
        (1, 1, "select", "a"),
        (1, 0, "amend", "a"),
        (1, 0, "select", "b"),
    ]
    draws = [generator(0, *key).random() for key in keys]
    assert len(set(draws)) == 5
    assert draws[0] == generator(0, *keys[0]).random()


def test_swapping_one_method_leaves_the_draws_of_the_others() -> None:
    """McGrpo changes the first step's rollouts, but not which prompts are chosen in it."""
    one = next(run(Pipeline(Grpo(), Vade()), ScriptedWorld(), BUDGET, steps=1))[1]
    two = next(run(Pipeline(Grpo(), Vade(), McGrpo()), ScriptedWorld(), BUDGET, steps=1))[1]
    assert one.prompts.tolist() == two.prompts.tolist()
    assert np.isin(one.rollouts.id, two.rollouts.id).all()
    assert len(two.rollouts) == len(one.rollouts) + 4


def test_epochs_of_uniform_visit_every_prompt_once() -> None:
    steps = [s for _, s in run(Pipeline(Grpo()), ScriptedWorld(12), BUDGET, steps=6)]
    chosen = np.concatenate([s.prompts for s in steps])
    assert sorted(chosen[:12].tolist()) == sorted(chosen[12:].tolist()) == list(range(12))
    assert chosen[:12].tolist() != chosen[12:].tolist()


def test_prompts_out_of_the_pool_are_not_asked() -> None:
    world, pipeline = ScriptedWorld(12), Pipeline(Grpo())
    _, step = advance(pipeline, pipeline.init(world.pool), world, BUDGET, step=1, available=np.arange(12) > 8)
    assert sorted(step.prompts.tolist()) == [9, 10, 11]


def test_a_step_without_end_is_ended() -> None:
    _, step = next(run(Pipeline(Grpo(), Greedy()), ScriptedWorld(200), BUDGET, steps=1))
    assert step.plan.round.max() == MAX_ROUNDS - 1
    assert next(e.subject for e in step.events if e.kind == "warning") == "rounds"
    _, step = next(run(Pipeline(Grpo(), Greedy()), ScriptedWorld(9), BUDGET, steps=1))
    assert len(step.prompts) == 9


def test_a_spent_token_budget_ends_the_rounds() -> None:
    budget = Budget(prompts=4, rollouts=16, tokens=10)
    _, step = next(run(Pipeline(Grpo(), Greedy()), ScriptedWorld(200), budget, steps=1))
    assert step.plan.round.max() == 0
    assert "budget is spent" in step.events[0].message


def test_rounds_are_joined_by_group_and_ids_stay_unique() -> None:
    world = ScriptedWorld(5)
    plans = [Plan([3, 1], [2, 1], step=1), Plan([3, 0], [1, 1], ordinal=np.array([2, 0]), step=1)]
    rows = join([world.sample(p) for p in plans], plans)
    assert rows.group.tolist() == [0, 0, 1, 0, 2]
    assert rows.ask.tolist() == [0, 0, 1, 2, 3]
    assert rows.id.tolist() == ["1:p3:0", "1:p3:1", "1:p1:0", "1:p3:2", "1:p0:0"]


def test_fates_account_for_every_rollout() -> None:
    _, step = next(run(Pipeline(Grpo(), Uneven(), Picky(), McGrpo()), ScriptedWorld(30), Budget(8, 32), steps=1))
    odd, failed = step.rollouts.prompt % 2 == 1, step.rollouts.failure != ""
    assert (step.fate[failed] == "failed").all()
    assert (step.fate_reason[failed] == "verifier").all()
    assert (step.fate[odd & ~failed] == "dropped").all()
    assert (step.fate_reason[odd & ~failed] == "not_admitted").all()
    assert "pivot" in step.fate_reason
    assert set(step.fate) == {"trained", "dropped", "failed"}


def test_a_skipped_update_trains_nothing() -> None:
    class Skipping(ScriptedWorld):
        def update(self, *arguments: object) -> dict:
            return {"skipped": "the gradient was not finite"}

    _, step = next(run(Pipeline(Grpo()), Skipping(), BUDGET, steps=1))
    assert "trained" not in step.fate
    assert next(e.kind for e in step.events) == "failure"


def test_a_step_with_nothing_to_train_is_a_note_and_no_failure() -> None:
    class Looking(ScriptedWorld):
        def update(self, rollouts: object, advantage: object, *arguments: object) -> dict:
            return {"skipped": "no rollout was kept"}

    class Probing(Uneven):
        def estimate(self, state: object, advantage: Advantage, draft: object, rng: object) -> Advantage:
            return advantage.drop(np.ones(len(advantage.keep), bool), "probe")

    _, step = next(run(Pipeline(Grpo(), Probing()), Looking(), BUDGET, steps=1))
    assert [(e.kind, e.subject) for e in step.events if e.subject == "update"] == [("note", "update")]


def test_going_on_equals_never_having_stopped() -> None:
    pipeline = Pipeline(Grpo(), Vade(), McGrpo())
    through = list(run(pipeline, ScriptedWorld(), BUDGET, steps=5))
    world = ScriptedWorld()
    world.version = 3
    states = pipeline.fold(world.pool, [s for _, s in through[:3]])
    later = list(run(pipeline, world, BUDGET, steps=2, start=4, states=states))
    assert equal(later[-1][0], through[-1][0])
    assert equal(later[-1][1].rollouts, through[-1][1].rollouts)


def test_a_method_that_was_not_running_can_be_folded() -> None:
    steps = [s for _, s in run(Pipeline(Grpo(), Vade()), ScriptedWorld(), BUDGET, steps=4)]
    world = ScriptedWorld()
    shown = Pipeline(Grpo(), Mopps()).fold(world.pool, steps)["mopps"]
    tried = sum(np.isfinite(s.rollouts.correct).sum() for s in steps)
    assert (shown.alpha + shown.beta - 2).sum() == tried


def test_only_acts_at_its_verbs_and_observes_as_before() -> None:
    pipeline = Pipeline(Grpo(), Only(Mopps(), "select"))
    states, _ = next(run(pipeline, ScriptedWorld(), BUDGET, steps=1))
    assert pipeline.who()["select"] == ["mopps"]
    assert set(pipeline.reveal(states)) == {"mopps"}
