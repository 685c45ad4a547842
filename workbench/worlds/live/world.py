"""Live world: a language model that generates and learns in this process, for real runs."""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch

from workbench import models, validate
from workbench.models import declared
from workbench.numerics.roles import HINTS, without_hints
from workbench.parallel import processes
from workbench.pipeline.fates import fates
from workbench.stages import BaseWorld, Branch, LossFn, Overlapping, Prune
from workbench.store.token_bytes import pieces_of
from workbench.tasks import fingerprint
from workbench.types import Advantage, Plan, Pool, Rollouts
from workbench.worlds.engines.attention import use_grouped
from workbench.worlds.engines.choice import pick
from workbench.worlds.engines.llama import supported
from workbench.worlds.engines.transformers_engine import TransformersEngine
from workbench.worlds.live.generate import Generator
from workbench.worlds.live.growing_rows import Decision, decision_columns
from workbench.worlds.live.held_engine import HeldEngine
from workbench.worlds.live.hints import PLAIN, lines_of, scored
from workbench.worlds.live.passes import check_engine, check_streams, checked_passes
from workbench.worlds.live.prompts import TOO_LONG, Prefixes, fitted
from workbench.worlds.live.starts import Begin, Starts
from workbench.worlds.live.verification import Verification, verify_together
from workbench.worlds.training import data_parallel, lora
from workbench.worlds.training.memory import LARGE, fast_dtype, memory_needed, shortage
from workbench.worlds.training.packing import StreamPolicy
from workbench.worlds.training.padded import PaddedPolicy
from workbench.worlds.training.policy import Lines, Policy, checked
from workbench.worlds.training.saving import replaced

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

T = TypeVar("T")

UPDATE = ("clip", "betas", "recompute", "reference", "row_norms", "shard", "lora", "epochs", "minibatches")
"""What `update` may set of `Policy`; the rest are settings of the world itself."""

DTYPES = ("auto", "float32", "bfloat16", "float16")


class Task(Protocol):
    """Prompts and their verifier, as a live world needs them."""

    name: str
    pool: Pool
    evaluation: Pool
    max_tokens: int
    stop: tuple[str, ...]

    def render(self, pool: Pool, row: int, tokenizer: PreTrainedTokenizerBase) -> list[int] | str:
        """What the model reads: the turn and the prefilled start of the answer."""
        ...

    def stop_ids(self, tokenizer: PreTrainedTokenizerBase) -> list[int]:
        """Ids of the tokens that end an answer."""
        ...

    def score(self, rollouts: Rollouts, pool: Pool) -> Rollouts:
        """Rewards of generated rollouts."""
        ...


class LiveWorld(BaseWorld):
    """A task and a model under training, in one process.

    model: a name for `workbench.models.load`, or (model, tokenizer) with float32 weights. lr: None is 1e-5 for large
    models and 1e-4 for small ones. sampling: dtype of the weights that sample; "auto" is a bfloat16 copy for models
    over 50 million parameters where the processor computes in bfloat16, and the trained weights themselves elsewhere.
    precision: of the passes of the update; weights, gradients and optimiser are float32; "auto" is bfloat16 autocast
    under the same conditions. max_tokens: limit of an answer, None is the task's. too_long: what becomes of prompts that
    with max_tokens exceed the model's context: "error", "drop" (out of pool and evaluation) or "truncate_left" (their last
    tokens stay). samples: rollouts per evaluation prompt. budget: padded tokens per micro-batch; None is 1,024, on a GPU
    8,192, or 32,768 where streams train the model (`packing`). threads: of torch, None leaves them. engine: "transformers",
    "graph", "vllm", a server's address, or "auto", the faster by a short measurement where there is a GPU; a mapping
    {"name": ..., **settings} gives it settings (see `engines.choice`). update: more settings of `Policy`
    (epochs, minibatches, recompute, reference, row_norms, clip, betas, shard), and lora: the rank of adapters trained instead of all weights.

    Of several `processes`, each generates and verifies some of the rows of `sample` (trees: the first one all of them) and
    computes some of the micro-batches of `update`; all hold the same rows and weights, and make the same calls.

    >>> from workbench import tasks
    >>> world = LiveWorld(tasks.load("five"), "tiny")
    >>> world.describe()["model"]
    'tiny'
    """

    offers = frozenset(
        {
            "behaviour",
            "proximal",
            "current",
            "token_entropy",
            "top_tokens",
            "text_tail",
            "nodes",
            "tokens",
            "resume",
            "hidden",
        }
    ) | {PLAIN, HINTS}

    def __init__(
        self,
        task: Task,
        model: str | os.PathLike | tuple[PreTrainedModel, PreTrainedTokenizerBase],
        *,
        seed: int = 0,
        lr: float | None = None,
        temperature: float = 1.0,
        sampling: str = "auto",
        precision: str = "auto",
        max_tokens: int | None = None,
        too_long: str = "error",
        samples: int = 4,
        budget: int | None = None,
        device: str | None = None,
        threads: int | None = None,
        engine: str | Mapping[str, object] = "auto",
        update: Mapping[str, object] | None = None,
    ) -> None:
        more = dict(update or {})
        validate.known(more, UPDATE, "update")
        checked(lr=lr, temperature=temperature, **more)  # type: ignore[arg-type]
        for name, value in (("sampling", sampling), ("precision", precision)):
            validate.one_of(name, value, DTYPES)
        validate.one_of("too_long", too_long, TOO_LONG)
        validate.whole("samples", samples)
        for name, value in (("max_tokens", max_tokens), ("budget", budget), ("threads", threads)):
            if value is not None:
                validate.whole(name, value)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"device must be cpu, cuda or cuda:N, got {device!r}") from error
        if threads is not None:
            torch.set_num_threads(threads)
        self.task, self.seed, self.temperature, self.samples = task, seed, temperature, samples
        self.max_tokens = max_tokens or task.max_tokens
        self.name = "given" if isinstance(model, tuple) else os.fspath(model)
        trained, self.tokenizer = model if isinstance(model, tuple) else models.load(model)
        declared.check_vocabulary(trained, self.tokenizer)
        self.ends, self.context = declared.end_ids(trained), declared.context_length(trained.config)
        rendered = Prefixes(task.render, self.tokenizer, task.evaluation, declared.n_embeddings(trained))
        self._fitted = fitted(rendered, task.pool, task.evaluation, self.context, self.max_tokens, too_long)
        self.prefix, self.pool, self.evaluation = self._fitted[:3]
        trained = trained.to(device, torch.float32).eval()  # type: ignore[arg-type] - eval: no dropout, so trainer and sampler agree
        use_grouped(trained)
        self._model = fingerprint.digest(_sampled(trained))
        self.passes = checked_passes(trained, self.longest)
        self.parameters = trained.num_parameters()
        if rank := more.pop("lora", 0):
            lora.add(trained, int(rank), seed=seed)  # type: ignore[call-overload]
        precision = precision if precision != "auto" else fast_dtype(self.parameters, device)
        plain = rank or more.get("row_norms") or more.get("shard") or supported(trained)  # what streams cannot do
        self.streamed = streamed = trained.device.type == "cuda" and precision == "bfloat16" and not plain
        self.sampling = sampling if sampling != "auto" else fast_dtype(self.parameters, device)
        sampler = None
        if more.get("shard"):  # while the weights are whole
            sampler = TransformersEngine.copied(trained, getattr(torch, self.sampling), cached=self.passes.cached)
        self.policy = (StreamPolicy if streamed else Policy if self.passes.packed else PaddedPolicy)(
            trained,
            lr=lr if lr is not None else (1e-5 if self.parameters > LARGE else 1e-4),
            budget=budget or (32_768 if streamed else 8192 if trained.device.type == "cuda" else 1024),
            precision=precision,
            temperature=temperature,
            **more,  # type: ignore[arg-type]
        )
        if isinstance(self.policy, StreamPolicy):
            check_streams(self.policy, self.longest)
        if sampler is None:
            self.engine, self.engine_why = pick(trained, self.sampling, engine, cached=self.passes.cached)
            if not isinstance(self.engine, TransformersEngine):
                check_engine(trained, self.engine, self.longest)
        else:
            self.engine, self.engine_why = sampler, "transformers: a whole copy, for the trained weights are divided"
        if self.streamed and (short := shortage(self.memory_needed(), trained.device)):
            warnings.warn(short, RuntimeWarning, stacklevel=2)
        own = type(self).offers - self.engine.lacks
        self.offers = own | getattr(task, "offers", frozenset())  # what its verifier leaves, such as scores of steps
        self.stop_ids = frozenset(task.stop_ids(self.tokenizer)) | self.ends
        self._starts = Starts()
        self._decisions: list[Decision] = []
        self._spent: Counter[str] = Counter()

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest prompt and its answer."""
        pools = (self.pool, self.evaluation)
        return self.max_tokens + max(len(self.prefix(pool, row)) for pool in pools for row in range(len(pool)))

    def broadcast(self, value: T) -> T:
        """What all processes take where each has its own value, as of a clock: the first one's."""
        return processes.broadcast(value)

    @property
    def settings(self) -> Mapping[str, float]:
        """temperature of sampling and training, lr."""
        return {"temperature": self.temperature, "lr": self.policy.lr}

    def set_setting(self, name: str, value: float) -> None:
        """Another temperature or learning rate from the next step on."""
        if name == "temperature":
            self.temperature = self.policy.temperature = value  # what samples and what trains must agree on it
        elif name == "lr":
            self.policy.lr = value
        else:
            super().set_setting(name, value)

    def hold_sampler(self) -> HeldEngine:
        """Let the engine keep its weights, in a copy of its own, while the policy trains."""
        return HeldEngine(self.engine, partial(setattr, self, "engine"))

    @property
    def version(self) -> int:
        """Optimiser updates so far."""
        return self.policy.version

    def twin(self) -> LiveWorld:
        """A world of the same model, engine and unfinished rollouts that keeps its own books of what it samples."""
        other = copy(self)
        other._starts, other._decisions, other._spent = self._starts.twin(), [], Counter()
        return other

    def adopt(self, twin: Overlapping) -> None:
        """Enter what a twin has sampled for the step that is trained next."""
        assert isinstance(twin, LiveWorld)
        self._decisions += twin._decisions
        self._spent.update(twin._spent)

    def account(self) -> dict[str, object]:
        """What sampling has taken since the last update, and the tests made meanwhile, as plain data; see `enter`."""
        return {"spent": dict(self._spent), "decisions": self._decisions}

    def enter(self, account: Mapping[str, Any]) -> None:
        """Enter what another world's `account` tells, of the same step in an earlier process."""
        self._spent.update(account["spent"])
        self._decisions += [Decision(*row) for row in account["decisions"]]

    def recall(self, plan: Plan, rows: Rollouts) -> None:
        """Enter what a plan was given in an earlier process as if `sample` had just made it."""
        self._begun(plan)
        self._starts.note(rows, plan)

    def _begun(self, plan: Plan) -> tuple[list[Begin], Rollouts]:
        """Where each ask begins, and the rows that are to be made."""
        books = self._starts
        books.open(plan.step)
        begins = [books.begin(plan, a, self.pool, partial(self.prefix, self.pool)) for a in range(len(plan))]
        return begins, books.placed(Rollouts.of_plan(plan, self.pool, self.version), begins)

    def close(self) -> None:
        """Let the engine give back what it holds (see `Engine.close`); weights stay, and a second call does nothing."""
        self.engine.close()

    def __enter__(self) -> LiveWorld:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def give_up(self, step: int) -> None:
        """A step was sampled and will not be trained: what it went on with is unfinished as before."""
        self._starts.give_up(step)

    def sample(self, plan: Plan, branch: Branch | None = None, prune: Prune | None = None) -> Rollouts:
        """Generate and verify what the plan asks for.

        What a rollout draws depends on the run seed and its id only. Starts are the prompt, `Text`, `Node("id@t")`: the
        first t tokens of a rollout of this step, or `Resume(id)`: a rollout that an earlier step carried out goes on,
        under the current weights, with the draws it would have had; its tokens keep the log-probabilities of the versions
        that sampled them. While any are under way, extra token_version (ragged int32) says which version sampled each
        token; version is that of the last one. With branch or prune, rollouts pause at their checkpoints; forked and cut
        ones come back as rows, see `growing_rows.rollouts_of`; forks beyond the leaves that a plan sets are refused.
        """
        data_parallel.check(plan)
        books, cpu = self._starts, time.process_time()
        begins, asked = self._begun(plan)
        limit = self._limit(np.where(plan.max_tokens > 0, plan.max_tokens, self.max_tokens), begins)
        with Verification(self.task, self.pool) as verification:
            what = begins, asked, limit, books.names(asked, begins)
            if branch is None and prune is None:
                rows, made = self._generator().whole(*what, verification)
            else:
                grow = partial(self._generator(pauses=True).grown, *what, branch, prune, verification, plan.leaves)
                rows, made, decisions = processes.on_first(grow)
                self._decisions += decisions
            self._spent.update(
                sample_seconds=made.seconds,  # type: ignore[arg-type] - a Counter adds numbers of any kind
                sample_cpu_seconds=time.process_time() - cpu,  # type: ignore[arg-type]
                prefilled_tokens=made.prefilled,
                decoded_tokens=made.decoded,
            )
            began = time.perf_counter()
            scored = verification.finish(rows)
            self._spent.update(verify_seconds=time.perf_counter() - began)  # type: ignore[arg-type]
        books.note(scored, plan)
        return scored

    def _limit(self, wanted: np.ndarray, begins: list[Begin]) -> np.ndarray:
        """Tokens of an answer (A,), at most as many as are wanted and as the context leaves behind its prompt."""
        if self.context is None:
            return wanted
        room = self.context - np.array([len(b.prefix) for b in begins], int)
        if (room < 1).any():  # plain prompts leave room; this is one with the text of a hint
            raise ValueError(
                f"a prompt with its hint has {self.context - room.min()} tokens, the context {self.context}"
            )
        return np.minimum(wanted, room)

    def _generator(self, pauses: bool = False) -> Generator:
        """What generates now; an engine that makes whole answers only leaves pauses to plain passes over the weights that
        train."""
        engine = self.engine
        if pauses and not engine.pauses:
            engine = TransformersEngine(self.policy.model, cached=self.passes.cached)
        return Generator(
            engine, self.tokenizer, self.seed, self.temperature, self.stop_ids, self.task.stop, self.version, self._starts.mixed, self.ends,
        )  # fmt: skip

    def taken_decisions(self) -> dict[str, list] | None:
        """The tests made at checkpoints since the last call, as the store takes them; None where there were none."""
        made, self._decisions = self._decisions, []
        return decision_columns(made) if made else None

    def evaluate(self, step: int) -> Rollouts:
        """The evaluation set, `samples` rollouts each, purpose "eval"; the same random numbers at every step."""
        n = len(self.evaluation)
        plan = Plan(np.arange(n), np.full(n, self.samples), purpose=np.full(n, "eval", dtype=object), step=step)
        rows = Rollouts.of_plan(plan, self.evaluation, self.version)
        names = [i.replace(f"eval-{step}:", "eval:", 1) for i in rows.id]
        begins = [Begin(self.prefix(self.evaluation, int(p))) for p in plan.prompt]
        limit = self._limit(np.full(n, self.max_tokens), begins)
        made, _ = replace(self._generator(), mixed=False).whole(begins, rows, limit, names)
        if processes.ranks() > 1:
            return verify_together(self.task, made, self.evaluation, np.arange(len(made)))
        return self.task.score(made, self.evaluation)

    def _lines(self, rollouts: Rollouts) -> Lines:
        return lines_of(rollouts, self._starts.texts, partial(self.prefix, self.pool))

    def score(self, rollouts: Rollouts, needs: frozenset[str]) -> Rollouts:
        """Add the columns of the trainer's current weights that needs name; see `hints.scored`."""
        return scored(rollouts, needs, self.policy, self._starts.texts, partial(self.prefix, self.pool))

    def update(
        self, rollouts: Rollouts, advantage: Advantage, loss: LossFn, penalties: list[LossFn]
    ) -> Mapping[str, float | np.ndarray | str]:
        """One optimiser step on the kept rows, then the sampler takes over the weights. See `Policy.update`.

        Beside its figures: seconds, CPU seconds and tokens that sampling took since the last update.
        """
        before = self.version
        self._starts.carry(without_hints(rollouts), fates(rollouts, advantage)[0] == "carried", self.pool)
        self.engine.rest()
        done = self.policy.update(
            self._lines(rollouts), advantage, loss, penalties, constant=self.max_tokens, group=rollouts.group
        )
        if self.version != before:
            self.engine.sync()
            done = {**done, **self.engine.synced}
        spent = {name: float(value) for name, value in self._spent.items()}
        self._spent.clear()
        return {**done, **spent}

    def save(self, folder: Path) -> None:
        """Write model, tokenizer, optimiser, version and unfinished rollouts; the folder appears, or is replaced, as a whole.

        `workbench.models.load` reads it as any transformers folder.
        """
        with replaced(Path(folder)) as draft:

            def save_rest() -> None:
                self.tokenizer.save_pretrained(draft)
                self._starts.save(draft)

            self.policy.save(draft)
            processes.on_first(save_rest)

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote."""
        self.policy.load(Path(folder))
        self._starts.load(Path(folder))
        self.engine.sync()

    def memory_needed(self, rollouts: int = 512) -> int:
        """Bytes at the peak of a step of so many rollouts, about: weights, gradients, AdamW, sampling copy, one micro-batch,
        on a GPU the cache of its rows."""
        return memory_needed(
            self.policy.model.config,
            self.parameters,
            self.policy.budget,
            self.engine.copy_of is not None,
            streamed=self.streamed,
            cached_tokens=rollouts * self.longest,
        )

    def pieces(self) -> dict[str, np.ndarray]:
        """What the token ids stand for, kept once with a run; see `store.token_bytes`."""
        return pieces_of(self.tokenizer)

    def fingerprint(self) -> Mapping[str, object]:
        """See `Trainable`. template: the tokens of all prompts; model: its weights as they were when the world was made."""
        pools, task = (self.pool, self.evaluation), self.task
        return {
            "answers": fingerprint.of_pool(self.pool),
            "evaluation": fingerprint.of_pool(self.evaluation),
            "verifier": fingerprint.of_verifier(task),
            "timeout": getattr(task, "timeout", None),
            "stop": list(task.stop),
            "template": fingerprint.digest(self.prefix(pool, row) for pool in pools for row in range(len(pool))),
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "model": self._model,
        }

    def describe(self) -> dict[str, object]:
        """Facts of this world for the runs table."""
        verifier = getattr(self.task, "verifier", None)
        return {
            "world": "live",
            "task": self.task.name,
            "task_notes": list(getattr(self.task, "notes", ())),
            "verifier": getattr(verifier, "name", type(verifier).__name__),
            "model": self.name,
            "parameters": self.parameters,
            "weights": "float32",
            "sampling": self.sampling,
            "precision": str(self.policy.precision).removeprefix("torch."),
            "device": str(self.policy.model.device),
            "threads": torch.get_num_threads(),
            "engine": type(self.engine).__name__,
            "engine_why": self.engine_why,
            "sampling_pass": self.passes.sampling if isinstance(self.engine, TransformersEngine) else "the engine's",
            "update_pass": "streams" if self.streamed else self.passes.update,
            "passes": str(self.passes),
            "lr": self.policy.lr,
            "epochs": self.policy.epochs,
            "minibatches": self.policy.minibatches,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "context": self.context,
            "prompts_dropped": self._fitted.dropped,
            "prompts_truncated": self._fitted.truncated,
            "samples": self.samples,
            "seed": self.seed,
            "memory_needed": self.memory_needed(),
            "torch": torch.__version__,
        }


@torch.no_grad()
def _sampled(model: PreTrainedModel) -> Iterator[object]:
    """Names, shapes and some values of each weight of a model."""
    named = list(model.named_parameters())
    some = [p.reshape(-1)[:: max(1, p.numel() // 64)] for _, p in named]
    yield from ((name, tuple(p.shape)) for name, p in named)
    yield torch.cat(some).float().cpu().numpy().tobytes().hex()
