"""The benches of engines and whole steps: their cases, the sums they ask for, and peers that fail."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.benchmarks import engine_sync
from tests.benchmarks.engine import bench
from workbench.worlds.engines.vllm_engine import obstacle


def test_cases_are_named_and_one_that_cannot_run_says_why():
    with pytest.raises(ValueError, match="no case 'spede'; there are tiny, smollm2, sync and vllm"):
        list(bench("spede"))
    if obstacle():
        with pytest.raises(ValueError, match="the case vllm cannot run: "):
            list(bench("vllm"))


def test_a_patch_of_one_step_is_measured_against_all_weights(monkeypatch):
    monkeypatch.setattr(engine_sync, "CASES", (("tiny", 1e-6, 2),))
    figures = {f.metric: f for f in engine_sync.sync()}
    assert list(figures) == ["elements_sent", "bytes", "seconds_to_make", "seconds_to_apply"]
    assert 0 < figures["elements_sent"].value < 0.05
    assert figures["bytes"].ratio == pytest.approx(figures["bytes"].value / (2 * 1_353_120))
    assert figures["bytes"].ratio < 0.15


def test_prompts_of_the_whole_step_are_sums_of_like_length():
    from tests.benchmarks.loop_step import _pool
    from workbench import models

    tokenizer = models.load("tiny")[1]
    pool = _pool(5, 0, tokenizer)
    lengths = [len(tokenizer(str(t), add_special_tokens=False).input_ids) for t in pool.text]
    assert 58 < min(lengths) <= max(lengths) <= 64
    for text, answer in zip(pool.text, pool.answer, strict=True):
        assert sum(int(n) for n in text.removesuffix(" =").split(" + ")) == int(answer)


@pytest.mark.parametrize(
    ("code", "out", "err", "told"),
    [
        (0, 'noise\n{"seconds": 2.0, "length": 256.0}\n', "", {"seconds": 2.0, "length": 256.0}),
        (1, "", "a device assert", {"error": "ended with 1: a device assert"}),
        (0, "nothing of use", "", {"error": "ended with 0: "}),
    ],
)
def test_a_peer_that_fails_is_told_and_ends_nothing_else(monkeypatch, code, out, err, told):
    from tests.benchmarks import loop_step

    done = subprocess.CompletedProcess([], code, out, err)
    monkeypatch.setattr(loop_step.subprocess, "run", lambda *args, **kwargs: done)
    assert loop_step._asked("trl", "step") == told
    assert json.dumps(told)
