"""Trees in a live world: what is grown, cut and forked, what it costs, what is trained on and what the store keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from workbench.methods.grpo import Grpo
from workbench.numerics.forks import nodes_of
from workbench.numerics.trees import token_account
from workbench.pipeline import Pipeline, run
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.stages import Branch, Card, Checkpoint, Method, Prune
from workbench.store import Store
from workbench.types import Budget, Cut, Fork, Node, Plan
from workbench.worlds.engines.transformers_engine import TransformersEngine
from workbench.worlds.live.world import LiveWorld

from .conftest import toy_model, toy_tokenizer

BUDGET = Budget(prompts=3, rollouts=12)
CARD = Card("toy", "A toy, for tests", source="ours", watch="nothing")


@dataclass(frozen=True)
class Forker(Method):
    """Fork every branch once, at its first checkpoint; back > 0 forks that many tokens earlier; forced takes the top token."""

    every: int = 2
    back: int = 0
    forced: bool = False
    card = replace(CARD, slug="forker")

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(every=self.every, top=2)

    def amend(self, state, plan, draft, rng) -> Plan:
        return plan.with_n(plan.n, 6 * plan.n_leaves)  # twice as many alone, and six times beside Wider

    def branch(self, state, frontier, rng) -> Fork:
        first = (frontier.n_tokens - frontier.born <= self.every) & (frontier.parent < 0)
        at = np.where(self.back > 0, frontier.n_tokens - self.back, -1)
        token = frontier.extra["top_tokens"][:, 1] if self.forced else np.full(len(frontier), -1)
        return Fork(np.where(first, 2, 1), at, token, {"entropy": frontier.entropy.mean()})


@dataclass(frozen=True)
class Cutter(Method):
    """Stop a share of the branches at every checkpoint of two tokens; 0 never cuts, 1 cuts all."""

    share: float = 0.5
    card = replace(CARD, slug="cutter")

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(every=2)

    def prune(self, state, frontier, rng) -> Cut:
        go = rng.random(len(frontier)) >= self.share
        reason = np.where(go, "", "low_confidence").astype(object)
        return Cut(go.astype(np.int64), reason, np.full(len(frontier), max(1 - self.share, 1e-9)))


def step_of(world: LiveWorld, *methods: Method):
    return next(run(Pipeline(Grpo(), *methods), world, BUDGET, steps=1, seed=4))[1]


def fresh(task) -> LiveWorld:
    return LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=1e-2)


def test_pruning_that_never_cuts_is_the_flat_loop_token_for_token(task):
    flat, grown = step_of(fresh(task)), step_of(fresh(task), Cutter(0.0))
    assert flat.rollouts.id.tolist() == grown.rollouts.id.tolist()
    assert flat.rollouts.tokens.values.tolist() == grown.rollouts.tokens.values.tolist()
    assert flat.rollouts.finish.tolist() == grown.rollouts.finish.tolist()
    assert flat.rollouts.logp.values == pytest.approx(grown.rollouts.logp.values, abs=1e-5)
    assert flat.advantage.value == pytest.approx(grown.advantage.value)
    assert flat.update["loss"] == pytest.approx(grown.update["loss"], abs=1e-5)


def test_a_tree_holds_the_flat_rollouts_and_their_forks(task):
    flat, tree = step_of(fresh(task)), step_of(fresh(task), Forker())
    r = tree.rollouts
    roots = r.parent == ""
    assert r.id[roots].tolist() == flat.rollouts.id.tolist()
    assert r.take(roots).tokens.values.tolist() == flat.rollouts.tokens.values.tolist()
    longer = flat.rollouts.length >= 2
    longer &= ~((flat.rollouts.length == 2) & (flat.rollouts.finish == "stop"))
    assert (~roots).sum() == longer.sum()
    row = {i: k for k, i in enumerate(r.id)}
    for k in np.flatnonzero(~roots):
        parent = row[r.parent[k]]
        assert r.fork_at[k] == 2
        assert r.tokens.row(k)[:2].tolist() == r.tokens.row(parent)[:2].tolist()
        assert r.logp.row(k)[:2].tolist() == r.logp.row(parent)[:2].tolist()
        assert r.group[k] == r.group[parent]


@pytest.mark.parametrize("method", [Forker(), Forker(every=4, back=2), Forker(every=3, back=3), Forker(forced=True)])
def test_every_leaf_has_the_log_probabilities_it_would_have_had_alone(task, method):
    world = fresh(task)
    plan = Plan(np.arange(4), np.full(4, 3), step=1)
    hook = Branch(lambda f: method.branch((), f, np.random.default_rng(0)), method.checkpoint)
    r = world.sample(plan, hook)
    assert (r.parent != "").sum() > 4
    alone = world.score(r, frozenset({"current"}))
    assert r.logp.values == pytest.approx(alone.current.values, abs=1e-5)
    assert (r.extra["forced"] == (r.parent != "")).all() if method.forced else not r.extra["forced"].any()


def test_shared_tokens_are_generated_once_by_the_engine_and_in_the_account(task):
    world = fresh(task)
    method = Forker()
    hook = Branch(lambda f: method.branch((), f, np.random.default_rng(0)), method.checkpoint)
    r = world.sample(Plan(np.arange(4), np.full(4, 3), step=1), hook)
    nodes = nodes_of(r)
    rewards = [float(r.reward[k]) if k >= 0 else None for k in nodes["row"]]
    rows = [
        {"id": i, "parent": p, "kind": k, "n_tokens": n, "status": s, "reward": w}
        for i, p, k, n, s, w in zip(
            *(nodes[c] for c in ("node_id", "parent_id", "kind", "n_tokens", "status")), rewards, strict=True
        )
    ]
    account = token_account(rows)
    inherited = int(np.where(r.parent != "", r.fork_at, 0).sum())
    assert account.generated == int(r.length.sum()) - inherited
    assert account.flat_equivalent == int(r.length.sum())
    stopped = int((r.finish == "stop").sum())  # their last token is never fed back
    assert world._spent["decoded_tokens"] <= account.generated - stopped
    assert world._spent["prefilled_tokens"] == sum(len(world.prefix(world.pool, p)) for p in range(4))


def test_cut_branches_come_back_unjudged_with_their_reason(task):
    step = step_of(fresh(task), Cutter(0.6))
    r = step.rollouts
    cut = r.finish == "pruned"
    assert 0 < cut.sum() < len(r)
    assert np.isnan(r.reward[cut]).all()
    assert set(step.fate[cut]) == {"pruned"}
    assert set(step.fate_reason[cut]) == {"low_confidence"}
    assert not step.advantage.keep[cut].any()
    assert step.evidence(12)[2].sum() == (~cut).sum()


def test_everything_may_be_cut_and_the_step_says_so(task):
    step = step_of(fresh(task), Cutter(1.0))
    short = step.rollouts.finish == "stop"
    assert (step.rollouts.finish[~short] == "pruned").all()
    assert step.rollouts.length.max() == 2


def test_widths_multiply_and_a_stop_wins(task):
    @dataclass(frozen=True)
    class Wider(Forker):
        card = replace(CARD, slug="wider")

        def branch(self, state, frontier, rng) -> Fork:
            made = super().branch(state, frontier, rng)
            return replace(made, width=np.where(made.width > 1, 3, 1))

    alone = step_of(fresh(task), Forker(), Wider())
    forks = np.unique(alone.rollouts.parent[alone.rollouts.parent != ""], return_counts=True)[1]
    assert set(forks) == {5}  # 2 x 3 branches, five of them new
    both = step_of(fresh(task), Forker(), Wider(), Cutter(1.0))
    assert (both.rollouts.parent == "").all()


def test_a_node_start_goes_on_from_inside_a_rollout(task):
    world = fresh(task)
    first = world.sample(Plan([2], [3], step=1))
    k = int(first.length.argmax())
    start = np.empty(1, dtype=object)
    start[0] = Node(f"{first.id[k]}@2")
    more = world.sample(
        Plan([2], [4], step=1, start=start, context=np.array(["fork"], dtype=object), ordinal=np.array([3]))
    )
    assert set(more.parent) == {first.id[k]}
    assert set(more.fork_at) == {2}
    for row in more.tokens.rows():
        assert row[:2].tolist() == first.tokens.row(k)[:2].tolist()
    assert len({tuple(r) for r in more.tokens.rows()}) > 1
    alone = world.score(more, frozenset({"current"}))
    assert more.logp.values == pytest.approx(alone.current.values, abs=1e-5)
    with pytest.raises(ValueError, match="of this step"):
        world.sample(Plan([2], [1], step=2, start=start))


def test_the_store_keeps_tree_decisions_and_a_balanced_ledger(task, tmp_path: Path):
    experiment = Experiment(
        model="tiny", pipeline="grpo", budget=BUDGET, steps=2, store=str(tmp_path), eval_every=0, checkpoint_every=0
    )
    with Run(experiment, world=fresh(task)) as made:
        made.state.pipeline = Pipeline(Grpo(), Forker(), Cutter(0.3))
        made.state.states = made.pipeline.init(made.world.pool)
        steps = [made.step(), made.step()]
    with Store.open(tmp_path) as store:
        rows = store.sql("SELECT status, count(*) AS n FROM nodes GROUP BY status").to_pylist()
        assert {r["status"] for r in rows} == {"live", "pruned"}
        kinds = store.sql("SELECT kind, count(*) AS n FROM decisions GROUP BY kind ORDER BY kind").to_pylist()
        assert [k["kind"] for k in kinds] == ["branch", "prune"]
        ledger = store.ask("ledger_by_step").to_pylist()
        assert all(r["balanced"] for r in ledger)
        for row, step in zip(ledger, steps, strict=True):
            inherited = int(np.where(step.rollouts.parent != "", step.rollouts.fork_at, 0).sum())
            assert row["generated_tokens"] == int(step.rollouts.length.sum()) - inherited
            assert row["pruned"] == (step.fate == "pruned").sum()
        for live, kept in zip(steps, store.steps(pool=made.world.pool), strict=True):
            assert live.rollouts.id.tolist() == kept.rollouts.id.tolist()
            assert live.rollouts.parent.tolist() == kept.rollouts.parent.tolist()
            assert live.rollouts.extra["cut_reason"].tolist() == kept.rollouts.extra["cut_reason"].tolist()


def test_a_frontier_may_be_large_and_capacity_is_kept(task):
    world = fresh(task)
    seen = []

    def branch(frontier):
        seen.append((len(frontier), frontier.capacity))
        return Fork(np.full(len(frontier), 3), np.full(len(frontier), -1), np.full(len(frontier), -1))

    r = world.sample(Plan(np.arange(10), np.full(10, 10), step=1), Branch(branch, Checkpoint(every=1)))
    assert all(n + room == 512 for n, room in seen)
    assert max(n for n, _ in seen) <= 512
    assert len(r) > 300
    assert len(set(r.id)) == len(r)


def test_hooks_that_see_nothing_are_never_called(task):
    class Silent:
        def __call__(self, frontier):
            raise AssertionError

    r = fresh(task).sample(Plan([0], [2], step=1), None, Prune(Silent(), Checkpoint(every=100)))
    assert set(r.finish) <= {"stop", "length"}


def test_an_engine_of_whole_answers_leaves_growing_to_plain_passes(task, monkeypatch):
    plain, whole = fresh(task), fresh(task)
    monkeypatch.setattr(TransformersEngine, "pauses", False)
    monkeypatch.setattr(whole.engine, "open", None, raising=False)
    a, b = step_of(plain, Forker()), step_of(whole, Forker())
    assert a.rollouts.id.tolist() == b.rollouts.id.tolist()
    assert a.rollouts.tokens.values.tolist() == b.rollouts.tokens.values.tolist()
