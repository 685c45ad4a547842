"""Every method of the catalog keeps the contract, and the contract finds what breaks it. No method is named in it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest

from workbench.methods import Grpo
from workbench.pipeline import catalog
from workbench.stages import Card, Method
from workbench.testing import contract
from workbench.testing.promise import PROMISES
from workbench.testing.trials import variations
from workbench.types import Advantage, Draft, Picked, Pool, Step

METHODS = catalog.methods()


@pytest.mark.parametrize("slug", METHODS)
def test_a_method_keeps_its_promises(slug: str) -> None:
    contract(METHODS[slug])


@pytest.mark.parametrize("slug", METHODS)
def test_a_file_of_the_catalog_is_named_as_its_method_is(slug: str) -> None:
    cls = METHODS[slug]
    module = __import__(cls.__module__, fromlist=["CARD"])
    assert module.CARD is cls.card
    assert cls.card.slug == slug == cls.__module__.rsplit(".", 1)[-1]
    for method in [cls(), *variations(cls)]:
        assert catalog.make(slug, **method.settings) == method
        assert catalog.read(ast.parse(repr(method), mode="eval").body) == method


def test_a_promise_is_one_sentence() -> None:
    sentences = [p.sentence for p in PROMISES]
    assert len(set(sentences)) == len(sentences) == 34
    assert all(s and s[0].isupper() and "\n" not in s for s in sentences)


# what breaks it


class Counts(NamedTuple):
    """(N,) rollouts met."""

    met: np.ndarray


@dataclass(frozen=True)
class Shy(Method):
    """Prefers prompts that it met least."""

    card = Card("shy", "The least met first, for tests", source="ours", watch="nothing")
    floor: float = 1.0

    def init(self, pool: Pool) -> Counts:
        return Counts(np.zeros(len(pool)))

    def observe(self, state: Counts, step: Step) -> Counts:
        return Counts(state.met + np.bincount(step.rollouts.prompt, minlength=len(state.met)))

    def select(self, state: Counts, draft: Draft, rng: np.random.Generator) -> Picked:
        rows = draft.candidates()
        met = state.met[rows] + self.floor
        return Picked.among(rows, np.argsort(met, kind="stable")[: draft.wanted], met=met)


def broken(cls: type[Method]) -> str:
    with pytest.raises(AssertionError) as caught:
        contract(cls)
    return str(caught.value)


def test_a_class_from_outside_the_package_can_keep_it() -> None:
    contract(Shy)
    assert "shy" not in catalog.methods()


def test_writing_into_the_old_state_is_found() -> None:
    @dataclass(frozen=True)
    class Writing(Shy):
        def observe(self, state: Counts, step: Step) -> Counts:
            state.met[step.rollouts.prompt] += 1
            return state

    text = broken(Writing)
    assert "- A state that was observed from stays as it was: observe wrote into the old state" in text


def test_several_broken_promises_are_all_named() -> None:
    @dataclass(frozen=True)
    class Careless(Shy):
        card = replace(Shy.card, source="a friend")

        def selekt(self) -> None:
            pass

        def select(self, state: Counts, draft: Draft, rng: np.random.Generator) -> Picked:
            luck = np.random.default_rng().random(draft.wanted)
            return Picked(draft.candidates()[: max(draft.wanted, 1)], {"luck": luck})

    text = broken(Careless)
    assert text.startswith("Careless breaks ")
    for sentence in (
        "Its card says where it comes from and what to watch: source is 'a friend'",
        "It acts somewhere, and only at known verbs: selekt would never be called; the verbs are select, allocate",
        "Its generator alone decides: the same draws give the same answer: select",
        "It selects distinct candidates, at most as many as are wanted: assert len(np.unique(rows)) == len(rows) <= wanted",
    ):
        assert f"- {sentence}" in text, text
    assert "(wanted = 0, free = 10)" in text


def test_a_null_reward_in_the_batch_is_found() -> None:
    @dataclass(frozen=True)
    class Generous(Method):
        card = Card("generous", "All are good, for tests", source="ours", watch="nothing")

        def estimate(self, state: object, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
            return replace(advantage, value=np.ones(len(draft.rollouts)), keep=np.ones(len(draft.rollouts), bool))

    text = broken(Generous)
    assert "- Its advantages are finite, and rollouts without a reward stay out: " in text
    assert "- A group whose rewards are all alike gets zeros: " in text


def test_a_class_that_cannot_be_tried_is_refused_at_once() -> None:
    @dataclass
    class Loose(Method):
        card = Card("loose", "Not frozen, for tests", source="ours", watch="nothing")

    assert broken(Loose) == "Loose is no frozen record; write @dataclass(frozen=True) above it"
    with pytest.raises(TypeError, match="is not a class of methods; write contract"):
        contract(Grpo())  # type: ignore[arg-type]
