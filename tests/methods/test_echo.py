"""ECHO: what is decided while a rollout grows is what its scans say of the finished one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vectors.searches import adaptive_clip, plan_branch, prune_scan, token_stats, track_of
from workbench.methods.echo import Echo
from workbench.methods.echo.certainty import entropy_and_confidence, look
from workbench.types import Batch, Frontier, Ragged

logprobs = st.lists(st.lists(st.floats(-9, 0), min_size=6, max_size=6), min_size=1, max_size=24)


@given(logprobs)
@settings(max_examples=100, deadline=None)
def test_what_is_shown_token_by_token_is_what_the_windows_of_the_whole_say(rows):
    entropy, confidence = entropy_and_confidence(np.array(rows))
    whole, n = token_stats(rows), len(rows)
    windows = [(max(t - 3, 0), max(t - 7, 0), max(t - 4, 0)) for t in range(n)]
    assert np.allclose(whole.entropy, entropy)
    assert np.allclose(whole.group_conf, [confidence[a : t + 1].mean() for t, (a, _, _) in enumerate(windows)])
    assert np.allclose(whole.tail_conf, [confidence[b : t + 1].mean() for t, (_, b, _) in enumerate(windows)])
    before = [entropy[c:t].mean() if t else entropy[0] for t, (_, _, c) in enumerate(windows)]
    assert np.allclose(whole.delta_entropy, entropy - before)
    track = track_of(8)
    for row in rows:
        track = look(track, *entropy_and_confidence(np.array([row])), 4, 4, 8).track
    assert track.low[0] == pytest.approx(whole.group_conf.min())


def frontiers(rows, method):
    """The frontiers a lone rollout would show, each with the memory of what the method said before."""
    memory, one = {}, np.zeros(1, np.int64)
    for t, row in enumerate(rows):
        empty = Ragged(np.zeros(t, np.float32), np.array([0, t]))
        extra = {"top_logp": np.array([row]), "top_tokens": np.arange(6)[None]}
        frontier = Frontier(
            one, one, one, one - 1, one + t, empty, empty, empty, np.array([""], object), 9, extra, memory
        )
        yield frontier
        memory = {**method.prune((), frontier, None).memory, **method.branch((), frontier, None).memory}


@given(logprobs)
@settings(max_examples=100, deadline=None)
def test_decisions_are_those_of_the_scans(rows):
    method = Echo(
        top_k=6, entropy_high=1.2, branch_threshold=0.195, prune_threshold=0.17, tail_threshold=0.18, delta_upper=0.3
    )
    cfg = {
        "min_depth": method.min_depth, "entropy_high": 1.2, "entropy_low": 0.5, "branch_threshold": 0.195,
        "entropy_delta_threshold": 0.2, "prune_threshold": 0.17, "tail_threshold": 0.18, "delta_upper": 0.3,
    }  # fmt: skip
    stats = token_stats(rows)
    cut = forked = None
    for t, frontier in enumerate(frontiers(rows, method)):
        made = method.prune((), frontier, None)
        if cut is None and not made.width[0]:
            cut = (t, made.reason[0])
        fork = method.branch((), frontier, None)
        if forked is None and fork.width[0] > 1:
            forked = (t, fork.width[0] - 1)
            assert fork.token[0, : forked[1]].tolist() == list(range(forked[1]))
    said = prune_scan(stats.group_conf, stats.tail_conf, stats.delta_entropy, cfg)
    assert cut == (None if said.position is None else tuple(said.values()))
    if len(rows) > method.min_depth:
        planned = plan_branch(stats.entropy, stats.group_conf, stats.delta_entropy, cfg)
        assert forked == (None if planned.position is None else tuple(planned.values()))


def test_the_released_gates_cannot_open():
    """Five of ten tokens: the most doubtful distribution there is, and a sure one, in both readings of confidence."""
    even, sure = np.full((1, 10), -np.log(10)), np.log([[0.991, *[0.001] * 9]])
    assert entropy_and_confidence(even, 5, "neg_mean_logprob")[1] == pytest.approx(np.log(10))
    five = np.full((1, 5), -np.log(5))
    assert entropy_and_confidence(five, 5, "neg_mean_logprob")[1] == pytest.approx(
        1.609, abs=1e-3
    )  # the least: 1.2 is below it
    assert entropy_and_confidence(even, 5)[0] == pytest.approx(2.303, abs=1e-3)  # the most: 3.5 is above it
    assert entropy_and_confidence(sure, 5)[1] == pytest.approx(0.199)  # the most is 0.2: 0.4 cuts everything


def test_the_clip_of_a_row_follows_the_certainty_of_its_last_tokens():
    torch = pytest.importorskip("torch")
    mask = torch.tensor([[1.0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
    behaviour = torch.log(torch.tensor([[0.5, 0.9, 0.2, 1], [0.1, 0.1, 1, 1], [1, 1, 1, 1]]))
    batch = Batch(behaviour, behaviour, behaviour, torch.ones(3, 4), mask, behaviour, torch.arange(3))
    eps = Echo(clip_window=2).loss((), batch).stats["eps"][:, 0]
    sure = np.array([(0.9 + 0.2) / 2, 0.1, 1.0])
    assert eps.tolist() == pytest.approx((0.05 + 0.15 / (1 + np.exp(-4 * (1 - sure)))).tolist())
    assert adaptive_clip(behaviour.exp(), mask, 2).tail_confidence.tolist() == pytest.approx(sure.tolist())
