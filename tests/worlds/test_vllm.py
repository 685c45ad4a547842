"""vLLM under our draws: the tokens, statistics and sessions of the plain engine, and weights that change under it.

Runs where vLLM does: on a GPU, or on a processor with vLLM's CPU build. Tolerances, nats on average over the tokens of a row:
float32 1e-4 on a processor, 2e-3 on a GPU, whose attention multiplies float32 in 10 bits; bfloat16 0.02, weights and cache
being rounded.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

from tests.families import random_model
from workbench import models
from workbench.worlds.engines import Request, Until
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.forward import answer_statistics, pack
from workbench.worlds.engines.transformers_engine import TransformersEngine
from workbench.worlds.engines.vllm_engine import VllmEngine, obstacle

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "vllm runs here")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WITHIN = {"float32": 1e-4 if DEVICE == "cpu" else 2e-3, "bfloat16": 0.02}
EXACT = "float32" if DEVICE == "cpu" else ""  # the dtype in which draws never fall between two roundings
PREFIXES = [np.random.default_rng(k).integers(3, 500, k).tolist() for k in (70, 7, 40)]
N, LIMIT = np.array([4, 2, 3]), np.array([20, 30, 10])
KEYS = streams(0, map(str, range(9)))


@pytest.fixture(scope="module", params=["tiny", "qwen3"])
def trained(request):
    return (
        (models.load("tiny")[0] if request.param == "tiny" else random_model("qwen3", spread=2.0))
        .to(DEVICE, torch.float32)
        .eval()
    )


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def pair(request, trained):
    """(vLLM, the plain engine in float32, dtype of the first)."""
    engine = VllmEngine(trained, request.param, eager=True, max_rows=64)
    yield engine, TransformersEngine(trained), request.param
    engine.close()


def trainer_logp(model, prefixes, tokens, temperature=1.0):
    """Log-probabilities that an update computes for tokens (one list a prefix)."""
    packed = pack(prefixes, [[t] for t in tokens], model.device)
    with torch.no_grad():
        logp, _, mask = answer_statistics(model, packed, temperature)
    return [row[m].float().cpu().numpy() for row, m in zip(logp, mask, strict=True)]


@pytest.mark.parametrize("rules", [{}, {"temperature": 0.7, "stop": [18, 30]}, {"position": np.arange(9)}], ids=str)
def test_sampler_and_trainer_agree_on_what_was_drawn(pair, rules):
    engine, plain, dtype = pair
    made = engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, **rules))
    owner = np.repeat(np.arange(3), N)
    tokens = [t.tolist() for t in made.tokens.rows()]
    for logp, prefix, row in zip(made.logp.rows(), owner, tokens, strict=True):
        wanted = trainer_logp(plain.model, [PREFIXES[prefix]], [row], rules.get("temperature", 1.0))[0]
        assert np.abs(logp - wanted).mean() < WITHIN[dtype]
    assert all(t[-1] in (18, 30) for t, f in zip(tokens, made.finish, strict=True) if f == "stop")
    if dtype == EXACT:
        want = plain.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, **rules))
        assert made.tokens.values.tolist() == want.tokens.values.tolist()
        assert made.finish.tolist() == want.finish.tolist()
        assert np.abs(made.entropy.values - want.entropy.values).max() < 1e-3


def test_greedy_text_is_the_same(pair):
    engine, plain, dtype = pair
    one, limit = np.ones(3, int), np.full(3, 12)
    made = engine.generate(Request.of_groups(PREFIXES, one, limit, KEYS[:3], temperature=0.0))
    if dtype == "float32":
        want = plain.generate(Request.of_groups(PREFIXES, one, limit, KEYS[:3], temperature=0.0))
        assert made.tokens.values.tolist() == want.tokens.values.tolist()
    else:  # rounding may turn a tie; what was taken is within it of the likeliest
        for prefix, row in zip(PREFIXES, made.tokens.rows(), strict=True):
            for t, token in enumerate(row.tolist()):
                ids = torch.tensor([[*prefix, *row[:t].tolist()]], device=plain.model.device)
                with torch.no_grad():
                    logp = plain.model(input_ids=ids).logits[0, -1].log_softmax(-1)
                assert float(logp.max() - logp[token]) < 0.2


def test_a_resumed_row_is_the_uninterrupted_one(pair):
    engine, _, dtype = pair
    one = np.ones(2, int)
    whole = engine.generate(Request.of_groups(PREFIXES[:2], one, 24 * one, KEYS[:2]))
    session = engine.open(Request(PREFIXES[:2], np.arange(2), KEYS[:2]))
    parts = [session.advance(np.array([8, 8])) for _ in range(3)]
    for row in range(2):
        again = [t for part in parts for t in part.tokens.row(row).tolist()]
        logp = np.concatenate([part.logp.row(row) for part in parts])
        same = np.cumprod(np.array(again) == whole.tokens.row(row)).astype(bool)
        assert same.all() or dtype != EXACT  # a batch of another shape rounds otherwise
        assert np.abs(logp - whole.logp.row(row))[same].mean() < WITHIN[dtype]


def test_a_fork_has_what_it_would_have_had_alone(pair):
    engine, plain, dtype = pair
    session = engine.open(Request(PREFIXES[:1], np.zeros(1, int), KEYS[:1]))
    start = session.advance(np.array([40])).tokens.row(0).tolist()
    before = session.prefilled
    session.keep(np.zeros(4, int), KEYS[1:5])
    session.force(3, 21)
    made = session.advance(np.full(4, 8))
    # a block of the cache at most is computed again for a branch, never the shared 110 tokens
    assert session.prefilled - before <= 4 * (32 if DEVICE == "cpu" else 16)
    assert int(made.tokens.row(3)[0]) == 21
    for row in range(4):
        tokens = made.tokens.row(row).tolist()
        alone = trainer_logp(plain.model, [[*PREFIXES[0], *start]], [tokens])[0]
        assert np.abs(made.logp.row(row) - alone).mean() < WITHIN[dtype]
    session.rewind(0, 8, start[-1])
    again = session.advance(np.full(4, 8))
    if dtype == EXACT:
        assert again.tokens.row(0).tolist() == made.tokens.row(0).tolist()


def test_rows_pause_at_markers_and_at_uncertainty(pair):
    engine, plain, dtype = pair
    if dtype != EXACT:
        pytest.skip("compares tokens, which rounding may change")
    for until in (Until(frozenset({21, 24})), Until(entropy=1.5), Until(frozenset({20}), 2.0)):
        mine, theirs = (e.open(Request(PREFIXES, np.arange(3), KEYS[:3], stop=[18])) for e in (engine, plain))
        while len(theirs):
            limit = np.full(len(theirs), 9)
            a, b = mine.advance(limit, until), theirs.advance(limit, until)
            assert a.tokens.values.tolist() == b.tokens.values.tolist()
            assert a.finish.tolist() == b.finish.tolist()
            if len(theirs) and theirs.place.max() > 25:
                break
        assert len(mine) == len(theirs)


def test_the_likeliest_next_tokens_are_those_of_the_plain_engine(pair):
    engine, plain, dtype = pair
    mine, theirs = (e.open(Request(PREFIXES, np.arange(3), KEYS[:3], temperature=0.5)) for e in (engine, plain))
    (ids, logp), (want, expected) = mine.top(4), theirs.top(4)
    if dtype == "float32":
        assert ids.tolist() == want.tolist()
    assert np.abs(np.exp(logp) - np.exp(expected)).max() < WITHIN[dtype]
    assert len(mine) == 3


def test_new_weights_are_taken_over_without_a_restart(pair, trained):
    engine, plain, dtype = pair
    kept = [w.detach().clone() for w in trained.parameters()]
    engine.sync()  # an empty cache, as below: prompts computed in the same pieces round the same way
    before = engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS))
    try:
        with torch.no_grad():
            for w in trained.parameters():
                w.mul_(1.05)
        engine.sync()
        made = engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS))
        assert made.prefilled >= sum(map(len, PREFIXES))  # nothing of the old weights was found in the cache
        owner = np.repeat(np.arange(3), N)
        for logp, prefix, row in zip(made.logp.rows(), owner, made.tokens.rows(), strict=True):
            wanted = trainer_logp(plain.model, [PREFIXES[prefix]], [row.tolist()])[0]
            assert np.abs(logp - wanted).mean() < WITHIN[dtype]
        assert made.logp.values[:20].tolist() != before.logp.values[:20].tolist()
    finally:
        with torch.no_grad():
            for w, old in zip(trained.parameters(), kept, strict=True):
                w.copy_(old)
        engine.sync()
    assert (
        engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS)).tokens.values.tolist()
        == before.tokens.values.tolist()
    )


def test_generation_is_broken_off_from_another_thread(pair):
    engine, _, _ = pair
    timer = threading.Timer(0.3, engine.abort)
    timer.start()
    began = time.perf_counter()
    made = engine.generate(
        Request.of_groups(PREFIXES[1:2], np.array([16]), np.array([500]), streams(0, map(str, range(16))))
    )
    timer.join()
    assert time.perf_counter() - began < 60
    assert set(made.finish.tolist()) == {"aborted"}
    assert 0 < made.tokens.lengths.max() < 500
    assert engine.generate(
        Request.of_groups(PREFIXES[1:2], np.array([1]), np.array([4]), KEYS[:1])
    ).finish.tolist() == ["length"]


def test_too_long_is_refused_before_anything_runs(pair):
    engine, _, _ = pair
    with pytest.raises(ValueError, match="may have 512 tokens together, not 570"):
        engine.generate(Request.of_groups(PREFIXES[:1], np.array([1]), np.array([500]), KEYS[:1]))
