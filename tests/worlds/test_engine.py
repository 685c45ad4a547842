"""The sampler: what it draws, what it records, and what it does not depend on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.worlds.engines import Request
from workbench.worlds.engines.draws import streams, uniform
from workbench.worlds.engines.sampling import choose, invert
from workbench.worlds.engines.transformers_engine import TransformersEngine

from .conftest import toy_model

PREFIXES = [[5, 6, 7], [3, 4, 5, 6, 7, 8, 9, 10], [12], [5, 6, 7, 8], [20, 21, 22, 23, 24]]
N = np.array([4, 3, 0, 5, 2])
LIMIT = np.array([6, 9, 4, 1, 7])
NAMES = [f"1:p{i}:{k}" for i, n in enumerate(N) for k in range(n)]


def run(prefixes=PREFIXES, n=N, limit=LIMIT, names=NAMES, **options):
    """Segments of the toy model under seed 0."""
    engine = TransformersEngine(toy_model(), max_rows=options.pop("max_rows", 256))
    return engine.generate(Request.of_groups(prefixes, n, limit, streams(0, names), stop=[0, 1], **options))


def test_splitmix_reproduces_the_published_sequence():
    # first outputs of SplitMix64 with state 1234567 (Vigna's reference code)
    first = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    drawn = uniform(np.full(3, 1234567, np.uint64), np.arange(3))
    assert drawn.tolist() == [((x >> 32) + 0.5) / 2**32 for x in first]


def test_draws_are_uniform_and_streams_differ():
    keys = streams(0, [f"1:p:{k}" for k in range(20_000)])
    assert len(np.unique(keys)) == 20_000
    drawn = uniform(keys, 5)
    assert 0 < drawn.min() < drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(drawn, uniform(keys, 6))[0, 1]) < 0.03
    assert streams(1, ["a"])[0] != streams(0, ["a"])[0]


def test_inverse_cdf_takes_the_token_whose_interval_holds_the_draw():
    p = torch.tensor([[0.0, 0.25, 0.5, 0.0, 0.25]]).expand(6, -1)
    draw = torch.tensor([1e-9, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 1e-9], dtype=torch.float64)
    assert invert(p.contiguous(), draw).tolist() == [1, 1, 2, 2, 4, 4]


@given(st.integers(1, 700), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_inverse_cdf_in_blocks_equals_the_plain_one(vocabulary, seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(vocabulary, 0.1), 16).astype(np.float32)
    draw = rng.random(16)
    cdf = p.astype(np.float64).cumsum(1)
    token = invert(torch.tensor(p), torch.tensor(draw)).numpy()
    rows = np.arange(16)
    at = draw * cdf[:, -1]
    assert (p[rows, token] > 0).all()
    assert (cdf[rows, token] >= at - 1e-6).all()
    assert (cdf[rows, token] - p[rows, token] <= at + 1e-6).all()


def test_statistics_are_those_of_the_sampled_distribution():
    logits = torch.tensor([[0.0, 2.0, -torch.inf]])
    for temperature in (1.0, 2.0):
        p = torch.softmax(logits[0, :2] / temperature, 0)
        token, logp, entropy = choose(logits, torch.tensor([0.999], dtype=torch.float64), temperature)
        assert token.item() == 1
        assert logp.item() == pytest.approx(float(p[1].log()), abs=1e-6)
        assert entropy.item() == pytest.approx(float(-(p * p.log()).sum()), abs=1e-6)


def test_sampling_follows_the_distribution():
    logits = torch.tensor([[1.0, 0.0, -1.0, 0.5]]).expand(20_000, -1)
    draw = torch.tensor(uniform(streams(0, map(str, range(20_000))), 0))
    share = np.bincount(choose(logits, draw, 1.0)[0], minlength=4) / 20_000
    assert share == pytest.approx(torch.softmax(logits[0], 0).numpy(), abs=0.015)


def test_rows_end_at_a_stop_token_or_at_their_own_limit():
    made = run()
    limit = np.repeat(LIMIT, N)
    assert made.tokens.n_rows == 14
    for row, most, finish in zip(made.tokens.rows(), limit, made.finish, strict=True):
        stopped = np.isin(row, [0, 1])
        assert not stopped[:-1].any()
        assert finish == ("stop" if stopped[-1] else "length")
        assert len(row) == most or stopped[-1]
    assert {"stop", "length"} == set(made.finish)
    assert made.tokens.values.dtype == np.int32
    assert made.logp.values.dtype == made.entropy.values.dtype == np.float32


def test_each_distinct_prefix_is_computed_once():
    # 3 + 8 + 4 + 5 tokens; the one nobody continues costs nothing, and equal prefixes are one
    assert run().prefilled == 20
    twice = run(prefixes=[[5, 6, 7], [5, 6, 7]], n=[2, 2], limit=[3, 3], names=["a", "b", "c", "d"])
    assert twice.prefilled == 3
    once = run(prefixes=[[5, 6, 7]], n=[4], limit=[3], names=["a", "b", "c", "d"])
    assert twice.tokens.values.tolist() == once.tokens.values.tolist()


def test_logp_and_entropy_equal_a_plain_forward_pass():
    made, model = run(), toy_model()
    owner = np.repeat(np.arange(5), N)
    for i, answer in enumerate(made.tokens.rows()):
        prefix = PREFIXES[owner[i]]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prefix, *answer.tolist()]])).logits[0, len(prefix) - 1 : -1]
        logp = logits.log_softmax(-1)
        assert made.logp.row(i) == pytest.approx(
            logp.gather(1, torch.tensor(answer[:, None]).long())[:, 0].numpy(), abs=1e-5
        )
        assert made.entropy.row(i) == pytest.approx(-(logp.exp() * logp).sum(-1).numpy(), abs=1e-5)


def test_greedy_equals_transformers_generate():
    model, prefix = toy_model(), PREFIXES[1]
    made = run([prefix], [1], [9], ["a"], temperature=0)
    expected = model.generate(torch.tensor([prefix]), max_new_tokens=9, do_sample=False, eos_token_id=[0, 1])
    assert made.tokens.values.tolist() == expected[0, len(prefix) :].tolist()


@given(st.permutations(range(5)), st.integers(1, 4))
@settings(max_examples=10, deadline=None)
def test_what_a_row_draws_depends_neither_on_order_nor_on_company(order, cut):
    whole = run()
    bounds = np.concatenate([[0], np.cumsum(N)])
    expected = [whole.tokens.row(i).tolist() for p in order for i in range(bounds[p], bounds[p + 1])]
    got = []
    for part in (order[:cut], order[cut:]):
        names = [name for p in part for name in NAMES[bounds[p] : bounds[p + 1]]]
        made = run([PREFIXES[p] for p in part], N[part], LIMIT[part], names, max_rows=3)
        got += [row.tolist() for row in made.tokens.rows()]
    assert got == expected


def test_a_row_cut_and_continued_draws_what_it_would_have_drawn():
    whole = run([PREFIXES[0]], [1], [8], ["c"])
    answer = whole.tokens.row(0).tolist()
    assert len(answer) > 3
    rest = run([PREFIXES[0] + answer[:3]], [1], [5], ["c"], position=np.array([3]))
    assert rest.tokens.values.tolist() == answer[3:]
    assert rest.logp.values == pytest.approx(whole.logp.values[3:], abs=1e-5)


def test_nothing_asked_gives_nothing():
    made = run(n=[0, 0, 0, 0, 0], names=[])
    assert made.tokens.n_rows == 0
    assert made.prefilled == 0


def test_impossible_asks_are_named():
    with pytest.raises(ValueError, match="one token at least"):
        run([[]], [1], [4], ["a"])
    with pytest.raises(ValueError, match="at least 1, not 0"):
        run([[4]], [1], [0], ["a"])
