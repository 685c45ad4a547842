"""Rules for methods in one pipeline: which effects exclude each other, and which must stand before which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from workbench.pipeline.notation import listed
from workbench.stages import Effect, Method


class Rule(NamedTuple):
    """Among the methods that act at a verb, one with `effect` excludes, or must stand before, every other one with `other`.

    sentence: what is said where it is broken, about {one} of them, the {others}, the {pipeline}, and the {order} to write."""

    verb: str
    effect: Effect
    relation: Literal["excludes", "before"]
    other: Effect
    sentence: str


RULES = (
    Rule(
        "amend", Effect.ADDS_HINTS, "excludes", Effect.ADDS_HINTS,
        "{one} and {others} both show hints in {pipeline}: neither knows the other's rollouts, so a prompt is hinted twice "
        "or not at all, and of its two comparisons with plain rollouts the last one stands; keep one of them, and compare "
        "the two as two runs",
    ),
    Rule(
        "amend", Effect.CARRIES_GROUPS, "excludes", Effect.DEFERS_ROLLOUTS,
        "{one} carries groups over into the next step as plain rollouts, and {others} would have put a part of them off or "
        "begun it elsewhere: that part would be lost; keep one of them in {pipeline}",
    ),
    Rule(
        "estimate", Effect.REPLACES_ADVANTAGES, "before", Effect.COMPARES_CONTEXTS,
        "behind {one}, {others} would compute advantages anew, group by group, and undo what {one} makes of a prompt's "
        "groups together; write {order}",
    ),
    Rule(
        "amend", Effect.DEFERS_ROLLOUTS, "before", Effect.LEAVES_ROOTS,
        "behind {one}, which leaves few rollouts of each group for the others to grow from, {others} would find none to "
        "take a share of; write {order}",
    ),
)  # fmt: skip


def check(methods: Sequence[Method]) -> None:
    """Raise ValueError with the sentence of the first rule that a pipeline breaks."""
    for rule in RULES:
        acting = [m for m in methods if rule.verb in m.verbs]
        broken = _excluded(rule, acting) if rule.relation == "excludes" else _early(rule, acting)
        if broken:
            one, others = broken[0]
            order = listed(_reordered(rule, methods, [m for m, _ in broken], others[-1]))
            names = " and ".join(m.name for m in others)
            raise ValueError(rule.sentence.format(one=one.name, others=names, pipeline=listed(methods), order=order))


def _excluded(rule: Rule, acting: Sequence[Method]) -> list[tuple[Method, list[Method]]]:
    """The first method with the effect, and those that it excludes; nothing where there are none."""
    for one in (m for m in acting if rule.effect in m.effects):
        others = [m for m in acting if rule.other in m.effects and m is not one]
        return [(one, others)] if others else []
    return []


def _early(rule: Rule, acting: Sequence[Method]) -> list[tuple[Method, list[Method]]]:
    """Methods with the other effect that stand before some with the effect, and those."""
    behind = [(m, [o for o in acting[k + 1 :] if rule.effect in o.effects]) for k, m in enumerate(acting)]
    return [(m, others) for m, others in behind if rule.other in m.effects and others]


def _reordered(rule: Rule, methods: Sequence[Method], early: Sequence[Method], last: Method) -> list[Method]:
    """The methods with those that stand too early moved behind the last one that must stand before them."""
    rest = [m for m in methods if m not in early]
    at = rest.index(last) + 1
    moved = sorted((m for m in methods if m in early), key=lambda m: rule.effect not in m.effects)
    return [*rest[:at], *moved, *rest[at:]]
