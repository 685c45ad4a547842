"""`why` is for people: what a step does depends on no number in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import workbench
from workbench.pipeline import Pipeline, run
from workbench.stages import Card, Method
from workbench.testing.scripted import ScriptedWorld, equal
from workbench.types import Budget, Draft, Plan

PACKAGE = Path(workbench.__file__).parent
RECORDING = {
    ("pipeline/rounds.py", "_with_figures"),
    ("numerics/hints.py", "with_asks"),
    ("types/plan.py", "__post_init__"),
}
"""Functions that put figures together to be recorded."""


def readers(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, int]]:
    """(function, line) where a name is looked up in a `why`: x.why[name], x.why.get(name), name in x.why."""
    for node in ast.iter_child_nodes(tree):
        where = node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else inside
        looked: list[ast.AST] = []
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in ("get", "pop")):
            looked = [node.value]
        elif isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            looked = list(node.comparators)
        if any(isinstance(x, ast.Attribute) and x.attr == "why" for x in looked):
            yield where, node.lineno
        yield from readers(node, where)


def test_no_code_looks_a_figure_up_in_why() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line} in {function}"
        for part in ("types", "numerics", "stages", "methods", "pipeline", "worlds", "runs", "attach")
        for path in sorted((PACKAGE / part).rglob("*.py"))
        for function, line in readers(ast.parse(path.read_text(encoding="utf-8")))
        if (str(path.relative_to(PACKAGE)), function) not in RECORDING
    ]
    assert not found, "read a column of the plan, its memory or its notes instead: " + "; ".join(found)


@dataclass(frozen=True)
class Speechless(Method):
    """Gives no reasons."""

    card = Card("speechless", "Speechless, for tests", source="ours")

    def amend(self, state: object, plan: Plan, draft: Draft, rng: np.random.Generator) -> Plan:
        return replace(plan, why={})


@pytest.mark.parametrize(
    "text", ["dars", "duet", "gdro(controller='rollout')", "xrpo", "sgpo", "trace", "mopps + dapo_dynamic_sampling"]
)
def test_a_run_whose_plans_give_no_reasons_is_the_same_run(text: str) -> None:
    pipeline, budget = Pipeline.parse(f"grpo + {text}"), Budget(prompts=4, rollouts=24)
    with_why, without = (
        list(run(Pipeline(*pipeline.chosen, *more), ScriptedWorld(24, null=0.0), budget, steps=3, seed=1))
        for more in ((), (Speechless(),))
    )
    for (states, step), (other_states, other) in zip(with_why, without, strict=True):
        assert not other.plan.why
        assert equal(step.rollouts, other.rollouts)
        assert equal(step.advantage, other.advantage)
        assert all(equal(state, other_states[name]) for name, state in states.items())
