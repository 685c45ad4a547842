"""Methods that grow and cut, on a real (toy) model: what they promise of forks, of credit and of what they cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from workbench.methods.arrol import Arrol
from workbench.methods.branchgrpo import Branchgrpo
from workbench.methods.duet import Duet
from workbench.methods.echo import Echo
from workbench.methods.ettrl import Ettrl
from workbench.methods.grpo import Grpo
from workbench.methods.latr import Latr
from workbench.methods.trace import Trace
from workbench.numerics.forks import nodes_of
from workbench.pipeline import Pipeline, run
from workbench.testing.scripted import equal
from workbench.types import Budget
from workbench.worlds.live.world import LiveWorld

from .conftest import ALPHABET, toy_model, toy_tokenizer

BUDGET = Budget(prompts=3, rollouts=24)


def steps_of(task, *methods, steps=2, seed=3):
    world = LiveWorld(task, (toy_model(seed), toy_tokenizer()), seed=seed, lr=1e-2)
    return list(run(Pipeline(Grpo(), *methods), world, BUDGET, steps=steps, seed=4))


def test_branchgrpo_grows_a_group_from_few_roots_and_credits_every_node_once(task):
    for _, step in steps_of(task, Branchgrpo(forks=2, width=2, every=2)):
        r = step.rollouts
        roots = r.parent == ""
        assert roots.sum() == 3 * 2  # 8 rollouts a prompt from 8 / 2^2 roots
        assert 6 < len(r) <= 24
        assert set(r.fork_at[~roots]) <= {2, 4}
        tokens = step.advantage.tokens
        for k in np.flatnonzero(~roots):
            assert not tokens.row(k)[: r.fork_at[k]].any()  # inherited tokens are trained where they were made
        nodes = nodes_of(r)
        trained = sum(n for n, kind in zip(nodes["n_tokens"], nodes["kind"], strict=True) if kind == "model")
        assert np.count_nonzero(tokens.values) <= trained
        assert "skipped" not in step.update


def test_latr_forks_to_the_second_token_and_never_beyond_the_group(task):
    forced = 0
    for _, step in steps_of(
        task, Latr(tau_abs=0.05, tau_rel=0.9, windows=(3,), tau_suffix=None, tau_rouge=0.9), steps=3
    ):
        r = step.rollouts
        assert (np.bincount(r.prompt[r.finish != "pruned"], minlength=12)[step.prompts] <= 8).all()
        assert (r.parent == "").sum() == 3
        kids = r.parent != ""
        assert (r.extra["forced"] == kids).all()
        forced += int(kids.sum())
        cut = r.finish == "pruned"
        assert set(r.extra["cut_reason"][cut]) <= {"similar"}
        row = {i: k for k, i in enumerate(r.id)}
        assert not cut[r.parent == ""].any()
        for k in np.flatnonzero(cut):
            assert r.length[k] - r.fork_at[k] == 3 or cut[row[r.parent[k]]]
    assert forced > 6


WIDE = Latr(tau_abs=0.01, tau_rel=0.99, windows=())
"""Forks wherever there is room."""


@pytest.mark.parametrize("asked", [2, 4, 16])
def test_latr_grows_a_group_to_what_was_asked_and_no_further(task, asked):
    world = LiveWorld(task, (toy_model(3), toy_tokenizer()), seed=3, lr=0.0, max_tokens=20)
    for _, step in run(Pipeline(Grpo(), WIDE), world, Budget(3, 3 * asked), steps=2, seed=4):
        grown = np.bincount(step.rollouts.prompt, minlength=12)[step.prompts]
        assert grown.max() == asked
        assert (step.rollouts.parent == "").sum() == 3
        assert step.plan.leaves.tolist() == [asked] * 3


def test_latr_grows_its_share_of_a_group_as_a_tree_and_no_more_than_its_setting(task):
    def grown(method):
        step = steps_of(task, method, steps=1)[0][1]
        roots = step.rollouts.parent == ""
        return [
            np.bincount(step.rollouts.prompt[rows], minlength=12)[step.prompts].tolist() for rows in (roots, ~roots)
        ]

    assert grown(replace(WIDE, eta=((0, 0.5),))) == [[5, 5, 5], [3, 3, 3]]  # 4 flat ones of 8, and a root
    assert grown(replace(WIDE, eta=((0, 0.0),))) == [[8, 8, 8], [0, 0, 0]]
    assert grown(replace(WIDE, group_size=3)) == [[1, 1, 1], [2, 2, 2]]


def test_forks_of_all_methods_together_fill_a_group_and_what_is_too_much_is_refused_and_noted(task):
    world = LiveWorld(task, (toy_model(3), toy_tokenizer()), seed=3, lr=0.0, max_tokens=20)
    pipeline = Pipeline(Grpo(), WIDE, Branchgrpo(forks=2, width=3, every=2))
    step = next(run(pipeline, world, BUDGET, steps=1, seed=4))[1]
    assert np.bincount(step.rollouts.prompt, minlength=12)[step.prompts].tolist() == [8, 8, 8]
    made = world.taken_decisions()
    tests = list(zip(made["outcome"], made["inputs"], strict=True))
    assert sum(int(outcome.removeprefix("fork:")) for outcome, _ in tests if outcome.startswith("fork:")) == 3 * 7
    refused = [inputs["refused"] for outcome, inputs in tests if outcome == "suppressed"]
    assert refused and min(refused) >= 1


def test_a_place_is_free_again_where_a_branch_was_cut(task):
    method = Latr(
        tau_abs=0.01, tau_rel=0.99, windows=(1,), tau_suffix=None, tau_rouge=None, tau_edit=2.0
    )  # cuts all forks
    world = LiveWorld(task, (toy_model(3), toy_tokenizer()), seed=3, lr=0.0, max_tokens=8)
    step = next(run(Pipeline(Grpo(), method), world, Budget(3, 6), steps=1, seed=4))[1]
    cut = step.rollouts.finish == "pruned"
    assert np.bincount(step.rollouts.prompt[~cut], minlength=12).max() == 2
    assert np.bincount(step.rollouts.prompt, minlength=12).max() > 3


def test_latr_without_undecided_places_is_one_rollout_a_prompt(task):
    _, step = steps_of(task, Latr(tau_abs=0.99), steps=1)[0]
    assert len(step.rollouts) == 3


def test_arrol_learns_its_head_cuts_by_chance_and_protects_two(task):
    method = Arrol(l_detect=2, warmup=3, kappa=0.5)
    made = steps_of(task, method, steps=8)
    cut_before = sum(int((s.rollouts.finish == "pruned").sum()) for _, s in made[:3])
    cut_after = sum(int((s.rollouts.finish == "pruned").sum()) for _, s in made[3:])
    assert cut_before == 0
    assert cut_after > 0
    for _, step in made[3:]:
        r = step.rollouts
        assert (r.length[r.finish == "pruned"] == 2).all()
        for p in step.prompts:
            assert (r.finish[r.prompt == p] != "pruned").sum() >= 2
    states = made[-1][0]["arrol"]
    assert states.pos.sum() + states.neg.sum() > 0
    assert np.abs(states.head.outer).sum() > 0


def test_ettrl_forks_base_rollouts_where_they_were_least_certain(task):
    method = Ettrl(forks=1, branches=3, labels="verifier")
    forked = 0
    for _, step in steps_of(task, method):
        r = step.rollouts
        row = {i: k for k, i in enumerate(r.id)}
        base = r.parent == ""
        assert base.sum() == 3 * 2  # 8 = 2 (1 + 1 x 3)
        for k in np.flatnonzero(~base):
            above = row[r.parent[k]]
            entropy = r.entropy.row(above)
            assert r.fork_at[k] == 1 + int(np.argmax(entropy[1:]))
            assert r.tokens.row(k)[: r.fork_at[k]].tolist() == r.tokens.row(above)[: r.fork_at[k]].tolist()
        forked += int((~base).sum())
        assert len(r) <= 24
    assert forked >= 18


@pytest.mark.parametrize(
    "method",
    [
        Branchgrpo(every=2),
        Latr(tau_abs=0.05, tau_rel=0.9),
        Arrol(l_detect=2, warmup=1),
        Trace(continuations=2, every=1),
        Duet(markers=("1",), every=1, min_tokens=1, length=4.0, grace=0),
    ],
)
def test_states_fold_from_the_steps(task, method):
    made = steps_of(task, method, steps=4)
    world = LiveWorld(task, (toy_model(), toy_tokenizer()))
    folded = Pipeline(Grpo(), method).fold(world.pool, [s for _, s in made])[method.name]
    live = made[-1][0][method.name]
    if isinstance(live, tuple):
        assert equal(live, folded)
    else:
        assert live == folded


def test_echo_forks_one_rollout_of_a_prompt_into_its_likeliest_tokens(task):
    method = Echo(
        min_depth=1, entropy_high=0.5, entropy_low=0.0, branch_threshold=0.2, entropy_delta_threshold=-9,
        prune_threshold=0.0, tail_threshold=0.0, delta_upper=9, labels="verifier", max_branches=3,
    )  # fmt: skip
    forked = 0
    for _, step in steps_of(task, method):
        r = step.rollouts
        assert (np.bincount(r.prompt, minlength=12)[step.prompts] == 8).all()  # what was not forked is filled up
        kids = np.flatnonzero(r.parent != "")
        assert r.extra["forced"][kids].all()
        for p in np.unique(r.prompt[kids]):
            mine = kids[r.prompt[kids] == p]
            assert len(set(r.parent[mine])) == len(set(r.fork_at[mine])) == 1
            firsts = [int(r.tokens.row(k)[r.fork_at[k]]) for k in mine]
            assert len(set(firsts)) == len(mine) <= 3
            logp = [float(r.logp.row(k)[r.fork_at[k]]) for k in mine]
            assert logp == sorted(logp, reverse=True)  # the likeliest first
        forked += len(kids)
        assert step.advantage.tokens is not None
        assert "skipped" not in step.update
    assert forked > 6


def test_echo_cuts_where_confidence_is_low(task):
    _, step = steps_of(task, Echo(prune_threshold=0.15, max_branches=2, labels="verifier"), steps=1)[0]
    r = step.rollouts
    cut = r.finish == "pruned"
    assert 0 < cut.sum() < len(r)
    assert set(r.extra["cut_reason"][cut]) <= {"low_confidence", "tail_decline", "entropy_spike"}
    assert np.isnan(r.reward[cut]).all()


@pytest.mark.parametrize(
    "method", [Trace(continuations=2, every=1, boundaries=()), Trace(continuations=2, boundaries=("a", "1"))]
)
def test_trace_continues_where_the_end_may_turn_out_otherwise(task, method):
    made = steps_of(task, method, steps=4)
    asked = 0
    for _, step in made:
        r, plan = step.rollouts, step.plan
        roots = r.parent == ""
        assert plan.n[plan.round == 0].sum() == 8  # a third of 24
        plainly = plan.n[(plan.round > 0) & plan.is_plain].sum()  # of prompts whose answers have no place to go on from
        assert roots.sum() == 8 + plainly
        inside = [k for k, s in enumerate(plan.start) if s is not None]
        assert plan.n[inside].sum() <= 2 * 8
        row = {i: k for k, i in enumerate(r.id)}
        for k in np.flatnonzero(~roots):
            above = row[r.parent[k]]
            assert 0 < r.fork_at[k] < r.length[above]
            assert r.group[k] == r.group[above]
            if not method.every:
                assert int(r.tokens.row(above)[r.fork_at[k] - 1]) in {ALPHABET.index("a"), ALPHABET.index("1")}
        if len(inside):
            assert (plan.why["flip"][inside] > 0).all()
            assert not step.advantage.tokens.row(int(np.flatnonzero(~roots)[0]))[: r.fork_at[~roots][0]].any()
        _, _, tried = step.evidence(12)
        assert tried.sum() == 8 + plainly  # a continuation of a chosen place is no evidence of difficulty
        asked += int(plan.n[inside].sum())
    assert asked > 8
    assert np.abs(made[-1][0]["trace"].gram).sum() > 0


def test_arrol_tells_what_it_predicts_and_judges_at_the_first_look_after_so_many_tokens(task):
    world = LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=1e-2)
    pipeline = Pipeline(Grpo(), Echo(cuts=False, labels="verifier", entropy_high=99.0), Arrol(l_detect=3, warmup=3))
    list(run(pipeline, world, BUDGET, steps=6, seed=4))
    told = [d for d in world._decisions if "q" in d.inputs]
    assert {d.at_token for d in told} == {3}
    assert all(0 < d.inputs["q"] < 1 for d in told)
    assert 0 < sum(d.outcome == "quality_head" for d in told) < len(told)
