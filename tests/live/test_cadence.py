"""Methods that look at different places: none changes what another one sees, and all count on the path of a rollout."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest

from workbench import catalog
from workbench.methods.grpo import Grpo
from workbench.pauses import Checkpoint
from workbench.pipeline import Pipeline, run
from workbench.stages import Card, Method
from workbench.types import Budget, Cut
from workbench.worlds.engines.scripted import ScriptedEngine
from workbench.worlds.live import LiveWorld

from .conftest import ALPHABET, ToyTask, pool_of, toy_model, toy_tokenizer

BUDGET = Budget(prompts=2, rollouts=12)
ACTIVE = {
    "april": "april(every=4)",
    "arrol": "arrol(warmup=1, l_detect=5)",
    "branchgrpo": "branchgrpo(every=4)",
    "dora": "dora",
    "duet": "duet(budget=1.0, markers=('1', 'a'), min_tokens=1, every=3, length=9.0, grace=0, min_k1=1, min_gap=1, floor=0.0,"
    " ceiling=0.1, hysteresis=5)",
    "echo": "echo(min_depth=1, entropy_high=0.5, entropy_low=0.0, branch_threshold=0.2, entropy_delta_threshold=-9.0,"
    " prune_threshold=0.14, labels='verifier')",
    "latr": "latr(tau_abs=0.05, tau_rel=0.9, windows=(2,))",
    "trace": "trace(continuations=2, boundaries=('a',))",
}
"""Settings with which a method forks, cuts, carries or goes on within two steps."""


@dataclass(frozen=True)
class Looker(Method):
    """Looks, draws, takes notes, and lets everything go on."""

    at: Checkpoint
    card = Card("looker", "A looker, for tests", source="ours", watch="nothing")

    @property
    def checkpoint(self) -> Checkpoint:
        return self.at

    def prune(self, state, frontier, rng) -> Cut:
        b = len(frontier)
        seen = frontier.memory.get("looker", np.zeros(b)) + rng.random(b)
        return Cut(np.ones(b, np.int64), np.full(b, "", dtype=object), np.ones(b), {"looker": seen})


LOOKERS = {
    "every token": Looker(Checkpoint(every=1)),
    "every third": Looker(Checkpoint(every=3)),
    "by entropy": Looker(Checkpoint(every=0, entropy=1.2)),
    "at markers and a place": Looker(Checkpoint(every=0, at=(2, 7), markers=("b", "1"), top=3)),
}


def script(path):
    """Digits and letters, or rarely the end; how likely depends on the last two tokens and the length."""
    shift = sum(path[-2:]) + len(path)
    weight = {(shift * k) % (len(ALPHABET) - 3) + 3: 1.0 + (shift * k) % 5 for k in (1, 2, 3, 5)} | {0: 0.3}
    total = sum(weight.values())
    return {token: w / total for token, w in weight.items()}


class Ones(ToyTask):
    """Right with a "1" in the answer: often enough, and not always."""

    def score(self, rollouts, pool):
        """1 or 0."""
        right = np.array(["1" in t for t in rollouts.text], float)
        return rollouts.with_(reward=right, correct=right)


def world() -> LiveWorld:
    task = Ones(pool_of(range(2, 14)), pool_of(range(50, 53)))
    made = LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=0.0, max_tokens=20)
    made.engine, made.offers = ScriptedEngine(script), made.offers | {"prm", "embedding"}
    return made


def made_by(*methods: Method, steps: int = 2) -> list[dict[str, tuple]]:
    """For each step: id -> all that a rollout is."""
    out = []
    for _, step in run(Pipeline(Grpo(), *methods), world(), BUDGET, steps=steps, seed=5):
        r = step.rollouts
        blank = np.full(len(r), "")
        columns = (r.parent, r.fork_at, r.finish, r.extra.get("cut_reason", blank), r.extra.get("propensity", blank),
                   step.fate, [row.tolist() for row in r.tokens.rows()])  # fmt: skip
        out.append(dict(zip(r.id, zip(*columns, strict=True), strict=True)))
    return out


def parse(*slugs: str) -> list[Method]:
    return list(Pipeline.parse(" + ".join(["grpo", *(ACTIVE[slug] for slug in slugs)])).chosen[1:])


def test_every_method_that_forks_or_cuts_is_named_here():
    hooked = {s for s, cls in catalog.methods().items() if hasattr(cls, "branch") or hasattr(cls, "prune")}
    assert hooked == set(ACTIVE)


@pytest.mark.parametrize("slug", ACTIVE)
def test_a_method_does_the_same_beside_one_that_looks_elsewhere(slug):
    alone = made_by(*parse(slug))
    acted = [v for step in alone for v in step.values() if v[0] or v[2] not in ("stop", "length")]
    assert len(acted) > 2
    for looker in LOOKERS.values():
        assert made_by(*parse(slug), looker) == alone
        assert made_by(looker, *parse(slug)) == alone


@pytest.mark.parametrize("pair", list(combinations(ACTIVE, 2)), ids="+".join)
def test_two_methods_do_the_same_beside_one_that_looks_elsewhere(pair):
    alone = made_by(*parse(*pair))
    for looker in LOOKERS.values():
        assert made_by(*parse(*pair), looker) == alone
