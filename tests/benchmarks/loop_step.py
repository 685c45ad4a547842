"""The whole step on a GPU, 64 prompts x 8 rollouts x 256 tokens, recorded, against TRL on the same weights and rows.

Every answer is as long as it may be, in ours and in TRL (no stop tokens, min_new_tokens), so that all compute as many
tokens. step_vllm is our loop sampling with vLLM, which sleeps during updates. Each peer runs in a process of its own: a failed assertion on the device ends that process, not the bench.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from tests.benchmarks.figure import Figure
from tests.benchmarks.loop_gpu import GROUP, PROMPT, PROMPTS, SHAPE, subject
from tests.benchmarks.trl_peer import trl_seconds
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.types import Budget, Pool
from workbench.worlds.live.world import LiveWorld

if TYPE_CHECKING:
    from transformers import PreTrainedModel


TOKENS, STEPS = 256, 8

MICRO = 128
"""Rows of a micro-batch of TRL: its logits take some 13 GB at SmolLM2's vocabulary; a quarter at three times as many tokens."""

_QWEN = {
    "vocab_size": 151_936,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "max_position_embeddings": 32_768,
}
SHAPES: dict[str, tuple[str, dict]] = {
    "Qwen3-0.6B": (
        "qwen3",
        {
            **_QWEN, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
            "head_dim": 128, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
    ),
    "Qwen2.5-1.5B": (
        "qwen2",
        {
            **_QWEN, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
            "num_key_value_heads": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
    ),
    "Llama-3.2-1B": (
        "llama",
        {
            **_QWEN, "vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
            "num_attention_heads": 32, "head_dim": 64,
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "high_freq_factor": 4.0,
                "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
            },
        },
    ),
}  # fmt: skip
"""Of models that people train: transformers' type and config; weights are random, so every answer is noise."""

PEERS = {"trl": "trl, transformers path", "trl-vllm": "trl, colocated vLLM"}

PATIENCE = 240
"""Seconds after which a peer that has not answered is given up."""


def _subject(case: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, str]:
    """Model on the GPU, tokenizer, and what to say of them."""
    from workbench import models as named

    if case == "step_tiny":
        model, tokenizer = named.load("tiny")
        return model.cuda(), tokenizer, "tiny (1.4M)"
    if case in SHAPES:
        kind, config = SHAPES[case]
        torch.manual_seed(0)
        ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **config, **ends), dtype=torch.float32)
        about = f"random weights in the shape of {case}, {model.num_parameters() / 1e6:,.0f}M"
        return model.cuda().eval(), _words(config["vocab_size"]), about
    it = subject()
    if it.note == "SmolLM2-135M":
        return it.model, named.load("smollm2")[1], it.note
    return it.model, _words(SHAPE["vocab_size"]), it.note


def _words(size: int) -> PreTrainedTokenizerFast:
    """A tokenizer for any vocabulary: token i is the number i."""
    vocabulary = {str(i): i for i in range(size)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="2", pad_token="2")


def _pool(n: int, seed: int, tokenizer: PreTrainedTokenizerBase) -> Pool:
    """Sums of many numbers, each prompt just under PROMPT tokens; the answer is the sum."""
    rng, texts, answers = np.random.default_rng(seed), [], []
    for _ in range(n):
        numbers = rng.integers(10, 100, PROMPT).tolist()
        size = next(
            k
            for k in range(PROMPT, 0, -1)
            if len(tokenizer(_sum(numbers[:k]), add_special_tokens=False).input_ids) <= PROMPT
        )
        texts.append(_sum(numbers[:size]))
        answers.append(str(sum(numbers[:size])))
    empty = np.full(n, "", object)
    ids = np.array([f"{seed}-{i}" for i in range(n)], object)
    return Pool(ids, np.array(texts, object), np.array(answers, object), empty, empty)


def _sum(numbers: list[int]) -> str:
    return " + ".join(map(str, numbers)) + " ="


@dataclass(frozen=True)
class _Sums:
    """The reward of `trl_peer`: 1 where the answer stands in the text, plus its share of digits. Nothing ends a row."""

    pool: Pool
    evaluation: Pool
    max_tokens: int
    name = "sums"
    stop = ()

    def render(self, pool, row, tokenizer):
        return str(pool.text[row])

    def stop_ids(self, tokenizer):
        return []

    def score(self, rollouts, pool):
        share = [
            float(a in t) + sum(c.isdigit() for c in t) / max(1, len(t))
            for t, a in zip(rollouts.text, pool.answer[rollouts.prompt], strict=True)
        ]
        return rollouts.with_(reward=np.array(share), correct=(np.array(share) > 0.9).astype(float))


def _step(case: str) -> Iterator[Figure]:

    model, tokenizer, about = _subject(case)
    engine = {"name": "vllm", "sleep": True} if case == "step_vllm" else "auto"
    task = _Sums(_pool(4 * PROMPTS, 0, tokenizer), _pool(2, 1, tokenizer), TOKENS)
    world = LiveWorld(task, (model, tokenizer), engine=engine, lr=1e-5)
    torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as store:
        experiment = Experiment(
            model="given", pipeline="grpo", budget=Budget(rollouts=PROMPTS * GROUP), steps=STEPS, eval_every=0,
            checkpoint_every=0, store=store,
        )  # fmt: skip
        wall, parts = [], []
        with Run(experiment, world=world) as run:
            run.begin()
            for _ in range(STEPS):
                torch.cuda.synchronize()
                began = time.perf_counter()
                done = run.step()
                torch.cuda.synchronize()
                wall.append(time.perf_counter() - began)
                parts.append(dict(done.seconds))
            rows, tokens = len(done.rollouts), int(done.rollouts.length.sum())
    ours = float(np.median(wall[2:]))
    peak = f"peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, foretold {world.memory_needed() / 2**30:.1f}"
    note = (
        f"{about}; {rows} rollouts, {tokens} tokens, recorded; {peak}; first step {wall[0]:.1f} s; {world.engine_why}"
    )
    for name in sorted({key for part in parts for key in part}):
        yield Figure(case, f"seconds_{name}", float(np.median([p.get(name, 0.0) for p in parts[2:]])), "s", note=note)
    yield Figure(case, "seconds_per_step", ours, "s", note=note)
    del world, run, model, done
    torch.cuda.empty_cache()
    for peer, name in PEERS.items() if case != "step_vllm" else ():
        told = _asked(peer, case)
        if "seconds" not in told:
            print(f"{case}: {name}: {told['error']}", flush=True)
            continue
        said = f"{note}; {name} {told['seconds']:.3g} s, {told['length']:.0f} tokens an answer"
        yield Figure(case, "seconds_per_step", ours, "s", name, ours / told["seconds"], said)


def _asked(peer: str, case: str) -> dict:
    """What a peer's own process says: seconds and length, or error."""
    command = [sys.executable, "-m", "tests.benchmarks.loop_step", peer, case]
    env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=env, check=False)
    except subprocess.TimeoutExpired as late:
        return {"error": f"no answer in {PATIENCE} s: {str(late.stderr or '')[-600:]}"}
    last = done.stdout.strip().splitlines()[-1:] or [""]
    if done.returncode == 0 and last[0].startswith("{"):
        return json.loads(last[0])
    return {"error": f"ended with {done.returncode}: {done.stderr[-1500:]}"}


def _as_peer(peer: str, case: str) -> dict:
    """TRL on the prompts and weights of a case; runs in a process of its own."""
    model, tokenizer, _ = _subject(case)
    pool = _pool(4 * PROMPTS, 0, tokenizer)
    if peer == "trl-vllm" and not os.path.isdir(model.name_or_path):  # noqa: PTH112 - may be no path at all
        model.name_or_path = tempfile.mkdtemp()
        model.save_pretrained(model.name_or_path)
        tokenizer.save_pretrained(model.name_or_path)
    told = trl_seconds(
        (model, tokenizer), pool.text.tolist(), pool.answer.tolist(), groups=PROMPTS, n=GROUP, tokens=TOKENS, steps=2,
        micro=MICRO // 4 if case in SHAPES else MICRO, bf16=True, vllm=peer == "trl-vllm", exact=True,
    )  # fmt: skip
    return {"error": "trl is not installed"} if told is None else told._asdict()


CASES: dict[str, Callable[[], Iterator[Figure]]] = {
    "step": lambda: _step("step"),
    "step_tiny": lambda: _step("step_tiny"),
    "step_vllm": lambda: _step("step_vllm"),
    "shapes": lambda: chain.from_iterable(map(_step, SHAPES)),
}

if __name__ == "__main__":
    print("\n" + json.dumps(_as_peer(*sys.argv[1:])))
