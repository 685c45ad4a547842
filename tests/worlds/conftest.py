"""A toy world: a two-layer Llama with random weights, a tokenizer of single characters, questions about sums."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from workbench.pipeline import Pipeline, run
from workbench.stages import Method
from workbench.types import Budget, Pool, Rollouts, Step
from workbench.worlds.live.world import LiveWorld

ALPHABET = ["<end>", "\n", " ", *"0123456789+=?", *"abcdefghijklmnop"]


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character; <end> ends and pads."""
    bpe = Tokenizer(models.WordLevel({c: i for i, c in enumerate(ALPHABET)}, unk_token="<end>"))
    bpe.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    bpe.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<end>", pad_token="<end>")


def toy_model(seed: int = 0) -> LlamaForCausalLM:
    """2 layers of width 32, 4 heads in 2 groups, 32 tokens; weights large enough that distributions are not flat."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=len(ALPHABET),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            initializer_range=0.3,
            tie_word_embeddings=True,
            eos_token_id=0,
            pad_token_id=0,
        )
        return LlamaForCausalLM(config).eval()


def pool_of(terms: range) -> Pool:
    """Questions of different lengths: "2+3=", "12+13=", ..."""
    text = np.array([f"{a}+{a + 1}?" for a in terms], dtype=object)
    return Pool(
        ids=np.array([f"q{a}" for a in terms], dtype=object),
        text=text,
        answer=np.array([str(2 * a + 1) for a in terms], dtype=object),
        prefix=np.array([f"{a}+{a + 1}=" for a in terms], dtype=object),
        stratum=np.full(len(terms), "sum", dtype=object),
    )


@dataclass
class ToyTask:
    """Reward: the share of digits in the answer."""

    name = "toy"
    max_tokens = 6
    stop = ("\n",)
    pool: Pool
    evaluation: Pool

    def render(self, pool, row, tokenizer):
        """Question, newline, start of the answer, as text."""
        return f"{pool.text[row]}\n{pool.prefix[row]}"

    def stop_ids(self, tokenizer):
        """The end and the newline."""
        return [0, 1]

    def score(self, rollouts: Rollouts, pool: Pool) -> Rollouts:
        """Share of digits; correct where all are."""
        reward = np.array([sum(c.isdigit() for c in t) / max(1, len(t)) for t in rollouts.text], float)
        return replace(rollouts, reward=reward, correct=(reward == 1).astype(float))


def step_of(world: LiveWorld, budget: Budget, *methods: Method, seed: int = 4) -> Step:
    """The first step of a pipeline."""
    return next(run(Pipeline(*methods), world, budget, steps=1, seed=seed))[1]


def forward(world: LiveWorld, rollouts: Rollouts, i: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(T,) log-probabilities and entropies of row i's tokens behind its plain prompt, a hint in the row included, by the
    model's own forward; differentiable."""
    prefix, answer = world.prefix(world.pool, int(rollouts.prompt[i])), rollouts.tokens.row(i).tolist()
    logits = world.policy.model(input_ids=torch.tensor([[*prefix, *answer]])).logits[0, len(prefix) - 1 : -1]
    logp = logits.log_softmax(-1)
    return logp[range(len(answer)), answer], -(logp.exp() * logp).sum(-1)


@pytest.fixture
def task() -> ToyTask:
    """12 prompts to train on, 3 to evaluate on."""
    return ToyTask(pool_of(range(2, 14)), pool_of(range(50, 53)))


@pytest.fixture
def world(task) -> LiveWorld:
    """The toy model in float32 for sampling and training."""
    return LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, lr=1e-2)
