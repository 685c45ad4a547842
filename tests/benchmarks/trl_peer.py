"""TRL's GRPOTrainer on the prompts, rows and lengths of a bench, as the peer of `python -m tests.benchmarks loop`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Peer(NamedTuple):
    """Median seconds of a step after the first, and tokens of an answer on average."""

    seconds: float
    length: float


def trl_seconds(
    model: str | tuple[PreTrainedModel, PreTrainedTokenizerBase],
    prompts: Sequence[str],
    answers: Sequence[str],
    *,
    groups: int,
    n: int,
    tokens: int,
    steps: int,
    micro: int,
    bf16: bool = False,
    vllm: bool = False,
    exact: bool = False,
) -> Peer | None:
    """What an optimiser step takes: groups prompts x n rollouts x at most `tokens` tokens.

    prompts and answers are texts; the reward is 1 where the answer stands in the completion, plus its share of digits.
    micro: rows of a micro-batch, as large as memory allows. TRL generates with transformers, or with vLLM in the same
    process (vllm), without KL term (its default), AdamW, loss as it comes. exact: no answer ends early, as many tokens
    in every row, and gradients that are not finite count as zero: on random weights of 28 layers torch's attention gave
    NaN there (torch 2.11), which takes as long and would end the next generation. None where trl is not installed.
    """
    if importlib.util.find_spec("trl") is None:
        return None
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    if isinstance(model, str):
        from workbench import models

        model = models.load(model)
    net, tokenizer = model
    ends: list[float] = []
    lengths: list[float] = []
    least = {"min_tokens" if vllm else "min_new_tokens": tokens} if exact else {}
    engine = {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3} if vllm else {}

    class Clock(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            ends.append(time.perf_counter())

        def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
            for w in model.parameters() if exact else ():
                if w.grad is not None:
                    torch.nan_to_num_(w.grad, 0.0, 0.0, 0.0)

    def reward(completions, answer, completion_ids, **kwargs):
        lengths.append(float(np.mean([len(ids) for ids in completion_ids])))
        return [
            float(a in c) + sum(x.isdigit() for x in c) / max(1, len(c))
            for c, a in zip(completions, answer, strict=True)
        ]

    accumulate = groups * n // micro
    # a file, not a StringIO: vLLM asks stdout for its descriptor
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as void, contextlib.redirect_stdout(void):
        config = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=micro, gradient_accumulation_steps=accumulate,
            num_generations=n, max_completion_length=tokens, max_steps=steps + 1, learning_rate=1e-5, bf16=bf16,
            use_cpu=not torch.cuda.is_available(), gradient_checkpointing=False, save_strategy="no", report_to=[],
            disable_tqdm=True, logging_steps=10**6, temperature=1.0, seed=0, dataloader_pin_memory=False,
            generation_kwargs=least, **engine,
        )  # fmt: skip
        data = Dataset.from_dict({"prompt": list(prompts), "answer": list(answers)})
        trainer = GRPOTrainer(
            model=net, reward_funcs=reward, args=config, train_dataset=data, processing_class=tokenizer,
            callbacks=[Clock()],
        )  # fmt: skip
        trainer.train()
    return Peer(float(np.median(np.diff(ends))), float(np.mean(lengths)))
