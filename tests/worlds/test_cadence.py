"""Methods that look at different places: none changes what another one sees, and all count on the path of a rollout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest

from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline, catalog, run
from workbench.stages import Card, Method, Prune
from workbench.types import Budget, Cut, Node, Plan
from workbench.types.checkpoint import Checkpoint
from workbench.worlds.live.world import LiveWorld

from .conftest import ALPHABET, ToyTask, pool_of, toy_model, toy_tokenizer
from .scripted_engine import ScriptedEngine

BUDGET = Budget(prompts=2, rollouts=12)
ACTIVE = {
    "trace": "trace(continuations=2, boundaries=('4', '6'))",  # first: it may not stand behind those that root
    "april": "april(every=4)",
    "arrol": "arrol(warmup=1, l_detect=5)",
    "branchgrpo": "branchgrpo(every=4)",
    "dora": "dora",
    "duet": "duet(budget=1.0, markers=('1', 'a'), min_tokens=1, every=3, length=9.0, grace=0, min_k1=1, min_gap=1, floor=0.0,"
    " ceiling=0.1, hysteresis=5)",
    "echo": "echo(min_depth=1, entropy_high=0.5, entropy_low=0.0, branch_threshold=0.2, entropy_delta_threshold=-9.0,"
    " prune_threshold=0.14, labels='verifier')",
    "latr": "latr(tau_abs=0.05, tau_rel=0.9, windows=(2,))",
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


PAIRS = [pair for pair in combinations(ACTIVE, 2) if set(pair) != {"april", "trace"}]  # these two are refused


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_two_methods_do_the_same_beside_one_that_looks_elsewhere(pair):
    alone = made_by(*parse(*pair))
    for looker in LOOKERS.values():
        assert made_by(*parse(*pair), looker) == alone


@dataclass(frozen=True)
class Reader(Looker):
    """Writes down at how many tokens it saw whom, and the text that it was shown."""

    notes: tuple[list, ...] = ()
    card = replace(Looker.card, slug="reader")

    def prune(self, state, frontier, rng) -> Cut:
        for k, path in enumerate(frontier.tokens.rows()):
            self.notes[0].append((int(frontier.branch[k]), bool(frontier.due[k]), len(path), str(frontier.tail[k])))
        return Cut(np.ones(len(frontier), np.int64), np.full(len(frontier), "", dtype=object), np.ones(len(frontier)))


@pytest.mark.parametrize("beside", [(), (LOOKERS["every token"], *parse("branchgrpo"))], ids=["alone", "beside"])
def test_a_method_is_shown_the_text_since_it_looked_last_and_all_of_it(beside):
    reader = Reader(Checkpoint(every=5, text=True), notes=([],))
    _, step = next(run(Pipeline(Grpo(), reader, *beside), world(), BUDGET, steps=1, seed=5))
    texts: dict[int, str] = {}
    for branch, due, n, tail in reader.notes[0]:
        assert due and n % 5 == 0
        texts[branch] = texts.get(branch, "") + tail
    roots = step.rollouts.take(step.rollouts.parent == "")  # the branches that were born first
    read = [(texts[i], roots.text[i], int(roots.length[i])) for i in range(len(roots)) if i in texts]
    assert len(read) > 1
    for text, whole, n in read:
        assert whole.startswith(text)
        assert (
            len(text) == (n - 1) // 5 * 5
        )  # one character a token; with its last one it is no longer there to be seen


def looks(here: LiveWorld, plan: Plan, checkpoint: Checkpoint) -> list[list[tuple[int, bool]]]:
    """At each look (tokens of the path, due) of all that is alive."""
    seen = []

    def prune(frontier):
        seen.append(list(zip(frontier.n_tokens.tolist(), frontier.due.tolist(), strict=True)))
        return Cut(np.ones(len(frontier), np.int64), np.full(len(frontier), "", dtype=object), np.ones(len(frontier)))

    here.sample(plan, None, Prune(prune, checkpoint))
    return seen


def inside(*places: int) -> tuple[LiveWorld, Plan]:
    """A world, and a plan that goes on from places inside one long rollout."""
    here = world()
    first = here.sample(Plan([0], [12], step=1))
    k = int(first.length.argmax())
    start = np.empty(len(places), dtype=object)
    for i, at in enumerate(places):
        start[i] = Node(f"{first.id[k]}@{at}")
    n = np.ones(len(places), np.int64)
    return here, Plan(np.zeros(len(places), np.int64), n, start=start, ordinal=12 + np.arange(len(places)), step=1)


def test_what_goes_on_from_inside_pauses_where_its_whole_path_is_due():
    first, second, *_ = looks(*inside(1, 3), Checkpoint(every=4))
    assert first == [(2, False), (4, True)]  # they keep their distance
    assert second == [(4, True), (6, False)]
    assert looks(*inside(1, 3), Checkpoint(every=0, at=(3,)))[0] == [(3, True), (5, False)]  # the other one is past it


def test_who_pauses_early_is_looked_at_while_the_others_wait():
    here, (zero, b, two) = world(), (ALPHABET.index(c) for c in "0b2")
    here.max_tokens = 8  # question and start are nine tokens; prompt 0 says "b" after one more
    here.engine = ScriptedEngine(lambda path: {b if (path[0], len(path)) == (two, 10) else zero: 1.0})
    plan = Plan([0, 1], [1, 1], step=1)
    assert looks(here, plan, Checkpoint(every=4, markers=("b",))) == [[(2, True), (4, False)], [(4, True), (4, True)]]
    assert looks(here, replace(plan, step=2), Checkpoint(every=0, markers=("b",))) == [
        [(2, True)]
    ]  # nobody else pauses
