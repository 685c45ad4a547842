"""Hint methods beside every estimator of the catalog, in both orders: it works, or is refused with the order that does."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from workbench.methods.adhint import Adhint
from workbench.methods.aepo import Aepo
from workbench.methods.brorl import Brorl
from workbench.methods.d3s import D3s
from workbench.methods.grpo import Grpo
from workbench.methods.mc_grpo import McGrpo
from workbench.methods.nudgerl import Nudgerl
from workbench.methods.reinforce_pp import ReinforcePp
from workbench.methods.sage_hint import SageHint
from workbench.methods.scope import Scope
from workbench.numerics.roles import HINTS, hint_lengths, with_hints
from workbench.pipeline import Pipeline, catalog, run
from workbench.stages import Effect, Method, Only
from workbench.testing.scripted import ScriptedWorld
from workbench.types import Budget, Ragged, Rollouts

BUDGET = Budget(prompts=6, rollouts=48)
HINTING = (Adhint(), Adhint(train_hints=False), Nudgerl(), SageHint(), Scope())
made = {slug: cls() for slug, cls in catalog.methods().items()}
ESTIMATING = [
    *(m for slug, m in made.items() if "estimate" in m.verbs and slug not in {h.name for h in HINTING}),
    ReinforcePp(gamma=0.9),
]


class HintedWorld(ScriptedWorld):
    """References and strategies but for every fourth prompt, judged steps; where asked for, ADHint's hints stand in front of
    rows."""

    def __init__(self) -> None:
        super().__init__(24, frozenset().union(*(m.needs for m in (*ESTIMATING, *HINTING))), null=0.0)
        bare, words = np.arange(24) % 4 == 3, " ".join(f"w{k}" for k in range(10))
        texts = {"reference": words, "strategies": "count up\nguess"}
        extra = {name: np.where(bare, "", text).astype(object) for name, text in texts.items()}
        self.pool = replace(self.pool, extra=extra)

    def sample(self, *what: object) -> Rollouts:
        rows = super().sample(*what)
        own = Ragged(rows.entropy.values.astype(float), rows.entropy.offsets)
        one = Ragged(np.ones(len(own.values), np.int64), own.offsets)
        return rows.with_(extra={"step_scores": own, "step_lengths": one})

    def score(self, rollouts: Rollouts, needs: frozenset[str]) -> Rollouts:
        if HINTS not in needs:
            return rollouts
        n = [int(c.partition(":")[2]) if c.startswith("adhint") else 0 for c in rollouts.context]
        tokens = Ragged.of([np.arange(k) for k in n], np.int32)
        told = Ragged(np.full(len(tokens.values), 0.5, np.float32), tokens.offsets)
        return with_hints(rollouts, {"tokens": tokens, "logp": told, "entropy": told}, version=0)


def steps_of(*methods: Method, steps: int = 3) -> list:
    pipeline, world = Pipeline(*methods), HintedWorld()
    pipeline.check(world)
    return [step for _, step in run(pipeline, world, BUDGET, steps=steps, seed=1)]


def told(method: object) -> str:
    return f"{method.name}({', '.join(f'{k}={v}' for k, v in method.settings.items())})"  # type: ignore[attr-defined]


@pytest.mark.parametrize("hinting", HINTING, ids=told)
@pytest.mark.parametrize("method", ESTIMATING, ids=told)
def test_every_estimator_works_beside_a_hint_method_or_names_the_order_that_does(
    method: Method, hinting: Method
) -> None:
    base = () if isinstance(method, Grpo) else (Grpo(),)
    for pair in permutations((method, hinting)):
        methods = (*base, *pair)
        if Effect.DEFERS_ROLLOUTS in hinting.effects and Effect.CARRIES_GROUPS in method.effects:
            with pytest.raises(ValueError, match=f"april carries groups over .* and {hinting.name} would"):
                Pipeline(*methods)
            continue
        undone = (
            pair[0] is hinting
            and Effect.COMPARES_CONTEXTS in hinting.effects
            and Effect.REPLACES_ADVANTAGES in method.effects
        )
        if undone or (
            pair[0] is method and Effect.DEFERS_ROLLOUTS in hinting.effects and Effect.LEAVES_ROOTS in method.effects
        ):
            why = f"{method.name} would compute advantages anew" if undone else f"{hinting.name} would find none"
            with pytest.raises(ValueError, match=why) as refused:
                Pipeline(*methods)
            order = re.search(r"write (Pipeline\(.*\))$", str(refused.value))
            assert Pipeline.parse(order[1]).chosen == (*base, *pair[::-1])
            continue
        for step in steps_of(*methods):
            tokens = step.advantage.tokens
            assert tokens is None or tokens.lengths.tolist() == step.rollouts.tokens.lengths.tolist()
            assert np.isfinite(step.advantage.value[step.advantage.keep]).all()


def test_all_that_would_be_undone_is_moved() -> None:
    with pytest.raises(ValueError, match=re.escape("write Pipeline(Grpo(), McGrpo(), Adhint(), Scope())")):
        Pipeline(Grpo(), Adhint(), Scope(), McGrpo())
    Pipeline(Grpo(), Adhint(), Only(Brorl(), "allocate"))  # a part that does not estimate undoes nothing
    Pipeline(SageHint(), Grpo())  # one that only drops rollouts may stand anywhere


@pytest.mark.parametrize("pair", [*permutations((Adhint(), Nudgerl(), SageHint()), 2)])
def test_two_hint_methods_are_refused(pair: tuple[Method, Method]) -> None:
    with pytest.raises(ValueError, match=f"{pair[0].name} and {pair[1].name} both show hints.*keep one of them"):
        Pipeline(Grpo(), *pair)


def test_who_hints_in_part_only_may_stand_beside_another() -> None:
    Pipeline(Grpo(), Adhint(), Only(SageHint(), "estimate"))


@pytest.mark.parametrize("method", [Aepo(), D3s(k_init=0.5, k_final=0.5)], ids=told)
def test_tokens_of_hints_are_nobodys_who_does_not_ask_for_them(method: Method) -> None:
    """Beside the hints, what it makes of the rows is what it makes of them without; the hints keep their advantage."""
    alone, behind = (steps_of(Grpo(), Adhint(train_hints=shown), method, steps=1)[0] for shown in (False, True))
    before = steps_of(Grpo(), Adhint(), steps=1)[0]
    lead = hint_lengths(behind.rollouts)
    assert (lead > 0).sum() >= 8
    assert behind.advantage.keep.tolist() == alone.advantage.keep.tolist()
    for i in range(len(lead)):
        assert behind.advantage.tokens.row(i)[lead[i] :] == pytest.approx(alone.advantage.tokens.row(i))
        assert behind.advantage.tokens.row(i)[: lead[i]] == pytest.approx(before.advantage.tokens.row(i)[: lead[i]])


def test_no_state_depends_on_whether_hints_stand_in_the_rows() -> None:
    """EPO's entropy history, as an example: it is that of what was sampled."""
    epo = catalog.make("epo")
    histories = []
    for shown in (False, True):
        pipeline, world = Pipeline(Grpo(), Adhint(train_hints=shown), epo), HintedWorld()
        *_, (states, _) = run(pipeline, world, BUDGET, steps=2, seed=1)
        histories.append(states["epo"])
    assert histories[0] == pytest.approx(histories[1])


@pytest.mark.parametrize("hinting", [Adhint(), Adhint(train_hints=False), Nudgerl(), Scope()], ids=told)
def test_rollouts_that_are_not_compared_across_contexts_keep_the_advantages_of_their_tokens(hinting: Method) -> None:
    kept = 0
    for step in steps_of(ReinforcePp(gamma=0.5), hinting):
        r, a = step.rollouts, step.advantage
        alone = np.setdiff1d(r.prompt, r.prompt[r.context != ""])
        for i in np.flatnonzero(np.isin(r.prompt, alone) & (r.length > 1) & a.keep):
            kept += len(np.unique(a.tokens.row(i).round(9))) > 1
    assert kept > 3
