"""What every method that forks, cuts or carries promises on a real (toy) model; a new one has to be named here."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.trees import spent
from workbench.pipeline import Pipeline, catalog
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.store import Store
from workbench.types import Budget, Node, Resume
from workbench.worlds.live.world import LiveWorld

from .conftest import ToyTask, toy_model, toy_tokenizer

BUDGET = Budget(prompts=3, rollouts=24)
QUIET = {
    "april": "april(share=1.0)",
    "arrol": "arrol(warmup=99, l_detect=2)",
    "branchgrpo": "branchgrpo(every=99)",
    "dora": "dora(T_b=1e9)",
    "duet": "duet(markers=('1',), min_tokens=99, every=2)",
    "echo": "echo(entropy_high=99.0, cuts=False, labels='verifier')",
    "ettrl": "ettrl(forks=0, labels='verifier')",
    "latr": "latr(tau_abs=0.999)",
    "scope": "scope",
    "trace": "Only(trace(continuations=2, boundaries=('~',)), 'amend', 'branch', 'estimate')",
}
"""Settings with which the method looks, and finds nothing to do."""

ACTIVE = {
    "april": "april(every=1)",
    "arrol": "arrol(warmup=1, l_detect=2)",
    "branchgrpo": "branchgrpo(every=2)",
    "dora": "dora",
    "duet": "duet(markers=('1', 'a'), min_tokens=1, every=1, length=6.0, grace=0, min_k1=1, min_gap=1, floor=0.0, ceiling=0.1)",
    "echo": "echo(min_depth=1, entropy_high=0.5, entropy_low=0.0, branch_threshold=0.2, entropy_delta_threshold=-9.0, "
    "prune_threshold=0.14, labels='verifier')",
    "ettrl": "ettrl(forks=1, branches=3, labels='verifier')",
    "latr": "latr(tau_abs=0.05, tau_rel=0.9, windows=(2,))",
    "trace": "trace(continuations=2, every=1, boundaries=())",
}
"""Settings with which it does something within three steps."""


class Ones(ToyTask):
    """Right with a "1" in the answer: often enough, and not always."""

    def score(self, rollouts, pool):
        """1 or 0."""
        right = np.array(["1" in t for t in rollouts.text], float)
        return rollouts.with_(reward=right, correct=right)


def growing() -> set[str]:
    """Methods that fork, cut, or ask for continuations."""
    hooked = {s for s, cls in catalog.methods().items() if hasattr(cls, "branch") or hasattr(cls, "prune")}
    return hooked | {
        s for s, cls in catalog.methods().items() if {"nodes", "resume"} & set(getattr(cls(), "needs", ()))
    }


def run_of(task, text: str, folder, *, lr: float = 0.0, steps: int = 3):
    """Steps of toy rollouts of at most 40 tokens, recorded; the weights stay as they are."""
    world = LiveWorld(Ones(task.pool, task.evaluation), (toy_model(), toy_tokenizer()), seed=3, lr=lr, max_tokens=40)
    world.offers |= {"prm", "embedding"}
    experiment = Experiment(
        pipeline=text, budget=BUDGET, steps=steps, seed=4, store=str(folder), eval_every=0, checkpoint_every=0
    )
    with Run(experiment, world=world) as run:
        return world, [run.step() for _ in range(steps)]


def test_every_method_that_grows_is_named_here():
    assert growing() == set(QUIET) == set(ACTIVE) | {"scope"}  # scope acts where a task judges steps: test_repairs
    for text in (*QUIET.values(), *ACTIVE.values()):
        Pipeline.parse(f"grpo, {text}")


@pytest.mark.parametrize("slug", QUIET)
def test_looking_without_acting_is_the_flat_loop_token_for_token(task, tmp_path, slug):
    flat = {i: row.tolist() for s in run_of(task, "grpo", tmp_path / "flat")[1][:1] for i, row in _tokens(s)}
    _, made = run_of(task, f"grpo, {QUIET[slug]}", tmp_path / "quiet", steps=1)
    own = {i: row.tolist() for i, row in _tokens(made[0])}
    common = set(flat) & set(own)
    assert len(common) >= 3
    assert all(own[i] == flat[i] for i in common)
    assert not np.isin(made[0].rollouts.finish, ("pruned", "aborted", "carried")).any()
    assert (made[0].rollouts.parent == "").all()
    if slug not in ("branchgrpo", "latr", "duet", "trace"):  # these ask for fewer roots
        assert set(own) == set(flat)


def _tokens(step):
    return zip(step.rollouts.id, step.rollouts.tokens.rows(), strict=True)


@pytest.mark.parametrize("slug", ACTIVE)
def test_leaves_alone_and_the_engine_and_the_store_agree(task, tmp_path, slug):
    world, made = run_of(task, f"grpo, {ACTIVE[slug]}", tmp_path)
    acted, earlier, tokens, counted = 0, {}, [], []
    for step in made:
        r = step.rollouts
        alone = world.score(r, frozenset({"current"}))  # each path in one plain pass
        assert r.logp.values == pytest.approx(alone.current.values, abs=2e-5)
        resumed = {a: s.rollout for a, s in enumerate(step.plan.start) if isinstance(s, Resume)}
        acted += int(np.isin(step.fate, ("pruned", "discarded", "carried")).sum()) + int((r.parent != "").sum())
        row = {i: k for k, i in enumerate(r.id)}
        had = np.where(r.parent != "", r.fork_at, 0)
        for k, a in enumerate(r.ask):
            had[k] = earlier[resumed[a]] if a in resumed else had[k]
            if r.parent[k]:
                above = row[r.parent[k]]
                assert r.tokens.row(k)[: had[k]].tolist() == r.tokens.row(above)[: had[k]].tolist()
        new = int((r.length - had).sum())
        inside = sum(isinstance(s, Node) for s in step.plan.start)
        decoded = step.update["decoded_tokens"]  # an answer's last token is not fed back; a forced fork feeds one again
        assert new - 2 * len(r) <= decoded <= new + int((r.parent != "").sum()) - inside
        counted.append(spent(step, earlier))
        earlier |= dict(zip(r.id, r.length.tolist(), strict=True))
        tokens.append(new)
    assert acted > 3
    with Store.open(tmp_path) as store:
        assert store.sql("SELECT bool_and(balanced) AS ok FROM ledger")["ok"].to_pylist() == [True]
        rows = store.ask("savings_by_step").to_pylist()
    assert [row["generated"] for row in rows] == tokens
    for step, row, count in zip(made, rows, counted, strict=True):
        assert (row["kept"], row["pruned"] + row["discarded"]) == (count["kept"], count["pruned"])
        assert (row["generated"], row["flat_equivalent"]) == (count["generated"], count["flat_equivalent"])
        assert row["generated"] == row["kept"] + row["pruned"] + row["discarded"] + row["probe"]
        assert (row["n_kept"], row["n_lost"]) == (
            int((~np.isin(step.fate, ("pruned", "discarded"))).sum()), int(np.isin(step.fate, ("pruned", "discarded")).sum())
        )  # fmt: skip
