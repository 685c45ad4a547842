"""The segment decoder: the same draws, tokens and statistics as the plain sampler; on a GPU its kernels and graphs too."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.worlds.engines import Request
from workbench.worlds.engines.board import Board, uniform_on
from workbench.worlds.engines.draws import streams, uniform
from workbench.worlds.engines.graph_engine import GraphEngine
from workbench.worlds.engines.graph_slots import Slots
from workbench.worlds.engines.llama import reference, supported
from workbench.worlds.engines.places import BUCKETS, admitted, bucket, cuts
from workbench.worlds.engines.transformers_engine import TransformersEngine

from .conftest import toy_model

PREFIXES = [[5, 6, 7], [3, 4, 5, 6, 7, 8, 9, 10], [12], [5, 6, 7, 8], [20, 21, 22, 23, 24]]
N = np.array([4, 3, 0, 5, 2])
LIMIT = np.array([6, 39, 4, 1, 17])  # 39 tokens: over two chunks and part of a third
KEYS = streams(0, [f"1:p{i}:{k}" for i, n in enumerate(N) for k in range(n)])
RULES = [{}, {"stop": [0, 1]}, {"temperature": 0.0}, {"temperature": 0.7, "stop": [3, 9]}, {"position": np.arange(14)}]


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20), st.integers(0, 2**40))
@settings(max_examples=50, deadline=None)
def test_draws_on_the_device_are_those_of_the_host(keys, position):
    keys = np.array(keys, np.uint64)
    drawn = uniform_on(torch.from_numpy(keys.view(np.int64)), torch.full((len(keys),), position))
    assert drawn.numpy().tolist() == uniform(keys, position).tolist()


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_the_decoder_draws_what_the_plain_sampler_draws(rules):
    model = toy_model()
    plain = TransformersEngine(model).generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, **rules))
    made = GraphEngine(model).generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, **rules))
    assert made.tokens.offsets.tolist() == plain.tokens.offsets.tolist()
    assert made.tokens.values.tolist() == plain.tokens.values.tolist()
    assert made.finish.tolist() == plain.finish.tolist()
    assert np.abs(made.logp.values - plain.logp.values).max() < 1e-4
    assert np.abs(made.entropy.values - plain.entropy.values).max() < 1e-4
    assert (made.prefilled, made.decoded) == (plain.prefilled, plain.decoded)
    assert made.prefilled == 3 + 8 + 4 + 5  # each prefix once, that of no rows not at all


def test_a_closed_engine_holds_no_slots_until_it_is_asked_again():
    engine = GraphEngine(toy_model())
    made = engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS))
    slots = engine.slots
    for _ in range(2):
        engine.close()
        assert (slots.n, slots.keys, slots.values, slots.board) == (0, None, None, None)
    assert (
        engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS)).tokens.values.tolist()
        == made.tokens.values.tolist()
    )


def test_rows_that_wait_for_a_slot_draw_the_same():
    model = toy_model()
    whole = GraphEngine(model).generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, stop=[0, 1]))
    few = GraphEngine(model, max_rows=4)
    made = few.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, stop=[0, 1]))
    assert few.slots.n == 4
    assert made.tokens.values.tolist() == whole.tokens.values.tolist()
    assert made.prefilled == 20 + 4  # the group of five does not fit into four places, so its prefix comes twice


def test_a_resumed_row_draws_what_it_would_have_drawn():
    engine = GraphEngine(toy_model())
    one, keys = np.ones(2, np.int64), KEYS[:2]
    whole = engine.generate(Request.of_groups([[5, 6], [7, 8, 9]], one, 30 * one, keys))
    first = engine.generate(Request.of_groups([[5, 6], [7, 8, 9]], one, 11 * one, keys))
    longer = [[5, 6, *first.tokens.row(0)], [7, 8, 9, *first.tokens.row(1)]]
    rest = engine.generate(Request.of_groups(longer, one, 19 * one, keys, position=11 * one))
    for row in range(2):
        assert whole.tokens.row(row).tolist() == [*first.tokens.row(row), *rest.tokens.row(row)]
        assert rest.logp.row(row) == pytest.approx(whole.logp.row(row)[11:], abs=1e-4)


def test_sync_takes_over_new_weights_without_new_slots():
    model = toy_model()
    engine = GraphEngine(model, dtype=torch.float64)
    before = engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, temperature=0.0))
    keys = engine.slots.keys
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    stale = engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, temperature=0.0))
    engine.sync()
    after = engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, temperature=0.0))
    plain = TransformersEngine(model).generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, temperature=0.0))
    assert stale.logp.values.tolist() == before.logp.values.tolist()
    assert np.abs(after.logp.values - plain.logp.values).max() < 1e-4
    assert np.abs(after.logp.values - before.logp.values).max() > 1e-3
    assert engine.slots.keys is keys


def test_errors_name_the_values():
    engine = GraphEngine(toy_model())
    one = np.ones(1, np.int64)
    with pytest.raises(ValueError, match="limit of a row must be at least 1, not 0"):
        engine.generate(Request.of_groups([[1]], one, 0 * one, KEYS[:1]))
    with pytest.raises(ValueError, match="one token at least"):
        engine.generate(Request.of_groups([[]], one, one, KEYS[:1]))
    with pytest.raises(ValueError, match="2048 tokens together, not 2101"):
        engine.generate(Request.of_groups([[1]], one, 2100 * one, KEYS[:1]))
    made = engine.generate(Request.of_groups([[1]], 0 * one, one, KEYS[:0]))
    assert (len(made.finish), made.prefilled, made.decoded) == (0, 0, 0)


def test_models_of_another_kind_are_refused():
    model = toy_model()
    assert supported(model) == ""
    model.config.model_type = "gemma"
    with pytest.raises(ValueError, match=r"its type is gemma, not llama, mistral, .*; use TransformersEngine"):
        GraphEngine(model)


def test_buckets_hold_their_rows_and_cuts_keep_groups_together():
    assert [bucket(r) for r in (1, 3, 65, 512, 2048, 2049)] == [1, 4, 96, 512, 2048, 2560]
    assert all(b >= r > (0, *BUCKETS)[i] for i, b in enumerate(BUCKETS) for r in (b,))
    owner = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])
    waiting = np.arange(9)
    assert [len(part) for part in admitted(waiting, owner, 4)] == [3, 6]
    assert [len(part) for part in admitted(waiting, owner, 2)] == [2, 7]  # a group larger than the free places is cut
    assert [len(part) for part in admitted(waiting, owner, 20)] == [9, 0]
    assert cuts([10_000] * 7) == [3, 6]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_compute_what_the_reference_computes(dtype):
    from workbench.worlds.engines import kernels

    torch.manual_seed(0)
    at = {"device": "cuda", "dtype": dtype}
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    for rows in (1, 37, 300):
        x, gain, weight = torch.randn(rows, 160, **at), torch.randn(160, **at), torch.randn(200, 160, **at) / 13
        for gated in (False, True):
            expected = reference.project(x, gain, weight, 1e-6, gated)
            made = kernels.project(x, gain, weight, 1e-6, gated)
            torch.testing.assert_close(made, expected, rtol=tolerance, atol=tolerance)
    for heads, groups, depth in ((9, 3, 64), (5, 5, 32)):
        keys, values = torch.randn(2, 7, groups, 192, depth, **at)
        qkv = torch.randn(4, (heads + 2 * groups) * depth, **at)
        slot, fed = torch.tensor([3, 6, 0, 1], device="cuda"), torch.tensor([0, 130, -1, 64], device="cuda")
        angle = torch.randn(192, depth // 2, device="cuda").repeat(1, 2)
        wanted = [c.clone() for c in (keys, values)]
        expected = reference.attend(qkv, *wanted, angle.cos(), angle.sin(), slot, fed)
        made = kernels.attend(qkv, keys, values, angle.cos(), angle.sin(), slot, fed)
        torch.testing.assert_close(made[fed >= 0], expected[fed >= 0], rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(keys, wanted[0], rtol=tolerance, atol=tolerance)
        assert torch.equal(values, wanted[1])


@pytest.mark.gpu
@pytest.mark.parametrize("greedy", [False, True])
def test_tokens_are_chosen_on_the_gpu_as_in_torch(greedy):
    from workbench.worlds.engines import kernels

    torch.manual_seed(0)
    logits = 3 * torch.randn(2000, 5000, device="cuda")
    logits[:50, :4500] = -torch.inf
    draw = torch.rand(2000, dtype=torch.float64, device="cuda")
    inverse = torch.tensor([1.0 if greedy else 0.6], device="cuda")
    token, logp, entropy = kernels.choose(logits, draw, inverse, greedy)
    expected = reference.choose(logits, draw, inverse, greedy)
    assert (token == expected[0]).float().mean() > 0.999  # a draw within rounding of a border may fall either way
    same = token == expected[0]
    torch.testing.assert_close(logp[same], expected[1][same], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(entropy, expected[2], rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
def test_drawn_tokens_are_noted_on_the_gpu_as_in_torch():
    from workbench.worlds.engines import kernels

    net = SimpleNamespace(device=torch.device("cuda"), hidden=8, dtype=torch.float32, vocabulary=50)
    for trial, threshold in enumerate((0.5, torch.inf, 0.9)):
        random = torch.Generator().manual_seed(trial)
        made, boards = [], []
        for ops in (kernels, reference):
            random.manual_seed(trial)
            board = Board(net, 200)
            board.active.copy_(torch.rand(200, generator=random) < 0.8)
            board.left.copy_(torch.randint(1, 4, (200,), generator=random))
            board.position.copy_(torch.randint(0, 50, (200,), generator=random))
            board.stop[3:9], board.marker[20:25] = True, True
            for column, value in ((board.t, trial), (board.threshold, threshold), (board.feed_last, trial == 1)):
                column.fill_(value)
            drawn = (torch.randint(0, 50, (150,), generator=random), *torch.rand(2, 150, generator=random))
            made.append(ops.note(board, 150, *(c.cuda() for c in drawn)))
            boards.append(board)
        assert torch.equal(*made)
        for column in ("active", "left", "position", "token", "logp", "entropy"):
            assert torch.equal(*(getattr(board, column) for board in boards)), column


@pytest.mark.gpu
@pytest.mark.parametrize("rules", RULES, ids=str)
def test_graphs_draw_what_the_plain_sampler_draws_in_float32(rules):
    from workbench import models

    torch.backends.cuda.matmul.allow_tf32 = False
    model = models.load("tiny")[0].cuda()
    plain = TransformersEngine(model).generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, **rules))
    for rows in (256, 4):
        made = GraphEngine(model, torch.float32, max_rows=rows).generate(
            Request.of_groups(PREFIXES, N, LIMIT, KEYS, **rules)
        )
        assert made.tokens.values.tolist() == plain.tokens.values.tolist()
        assert np.abs(made.logp.values - plain.logp.values).max() < 1e-4
        assert np.abs(made.entropy.values - plain.entropy.values).max() < 1e-4


@pytest.mark.gpu
def test_heads_that_the_kernels_are_not_made_for_are_refused():
    with pytest.raises(ValueError, match="numbers, not 8"):
        GraphEngine(toy_model().cuda())


def test_a_capture_is_not_broken_by_threads_that_train(monkeypatch):
    given, stream = {}, SimpleNamespace(wait_stream=lambda other: None)

    def capture(graph, **options):
        given.update(options)
        return nullcontext()

    fakes = {"Stream": lambda: stream, "current_stream": lambda: stream, "stream": lambda s: nullcontext()}
    for name, fake in {**fakes, "CUDAGraph": object, "graph": capture}.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    board = SimpleNamespace(active=torch.ones(4, dtype=torch.bool), t=torch.zeros(1))
    Slots._graph(SimpleNamespace(_captured={}, board=board, _step=lambda size, greedy: None), 4, False)
    assert given == {"pool": None, "capture_error_mode": "thread_local"}
    assert board.active.all()
