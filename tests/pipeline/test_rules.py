"""What may not stand together in a pipeline, or not in this order, is refused with the way out."""

from __future__ import annotations

import re

import pytest

from workbench.pipeline import Pipeline, catalog
from workbench.pipeline.rules import RULES
from workbench.stages import VERBS, Effect, Only


def test_every_effect_has_a_method_that_has_it_as_its_comment_says() -> None:
    made = {slug: cls() for slug, cls in catalog.methods().items()}
    for effect in Effect:
        assert any(effect in m.effects for m in made.values()), effect
    shown = {"grpo": "REPLACES_ADVANTAGES", "scope": "COMPARES_CONTEXTS", "sage_hint": "ADDS_HINTS", "trace": "DEFERS_ROLLOUTS",
             "latr": "LEAVES_ROOTS", "april": "CARRIES_GROUPS"}  # fmt: skip
    assert all(Effect[name] in made[slug].effects for slug, name in shown.items())
    assert Effect.PLANS_AFTER_STEP in made["april"].effects


def test_who_carries_groups_needs_a_world_that_resumes() -> None:
    for cls in catalog.methods().values():
        assert (Effect.CARRIES_GROUPS in cls().effects) == ("resume" in cls().needs and "amend" in cls().verbs), cls


@pytest.mark.parametrize("rule", RULES, ids=lambda r: f"{r.effect.name}-{r.relation}-{r.other.name}")
def test_every_rule_is_about_a_verb_and_names_the_way_out(rule) -> None:
    assert rule.verb in VERBS
    assert "{order}" in rule.sentence if rule.relation == "before" else "keep one of them" in rule.sentence


@pytest.mark.parametrize(
    "text, said",
    [
        ("grpo + adhint + nudgerl", "adhint and nudgerl both show hints in Pipeline(Grpo(), Adhint(), Nudgerl())"),
        ("grpo + april + adhint", "april carries groups over into the next step as plain rollouts, and adhint would"),
        ("adhint + grpo", "behind adhint, grpo would compute advantages anew"),
        ("grpo + latr + adhint", "behind latr, which leaves few rollouts of each group"),
    ],
)
def test_what_is_refused_is_said(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        Pipeline.parse(text)


def test_effects_are_those_of_the_verbs_that_act() -> None:
    Pipeline.parse("grpo + latr + trace")  # without continuations nothing of a group is put off
    with pytest.raises(ValueError, match=r"write Pipeline\(Grpo\(\), Trace\(continuations=2\), Latr\(\)\)"):
        Pipeline.parse("grpo + latr + trace(continuations=2)")
    Pipeline.parse("grpo + latr + Only(trace(continuations=2), 'select', 'allocate')")


def test_a_method_acts_at_a_verb_if_its_setting_is_set() -> None:
    made = {"duet": ("prune", {"markers": ("\\boxed",)}), "nudgerl": ("penalty", {"distill": 0.1}),
            "trace": ("amend", {"continuations": 2}), "mssr": ("select", {"curriculum": True}),
            "dapo": ("reward", {"max_len": 9})}  # fmt: skip
    off = {"markers": (), "distill": 0.0, "continuations": 0, "curriculum": False, "max_len": None}
    for slug, (verb, settings) in made.items():
        assert verb in catalog.make(slug, **settings).verbs, slug
        without = catalog.make(slug, **{name: off[name] for name in settings})
        assert verb not in without.verbs, slug
        with pytest.raises(ValueError, match=f"{verb} was asked of it"):
            Only(without, verb)
        for name, setting in type(without).acts_if.items():
            assert hasattr(type(without), name) and hasattr(without, setting), slug
