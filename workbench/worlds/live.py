"""A language model that generates and learns in this process: the world of real runs."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from workbench import models
from workbench.numerics.pieces import pieces_of
from workbench.pipeline import fates
from workbench.stages import Branch, LossFn, Prune
from workbench.types import Advantage, Node, Plan, Pool, Ragged, Resume, Rollouts, Text
from workbench.worlds import adapters, distributed, starts
from workbench.worlds.engines import NO_SEGMENTS, Ended, Segments, put_together
from workbench.worlds.engines.attention import use_grouped
from workbench.worlds.engines.choice import copied, pick
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.llama import supported
from workbench.worlds.engines.transformers import ROWS, TransformersEngine
from workbench.worlds.growing import Decision, Grown, Growth, decision_columns, rollouts_of
from workbench.worlds.judging import Judging
from workbench.worlds.packing import StreamPolicy
from workbench.worlds.policy import Lines, Policy
from workbench.worlds.starts import Begin, Trail, Unfinished, joined, sampled_by, trails

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LARGE = 50_000_000
"""Parameters from which a bfloat16 copy for sampling pays for itself, and from which the careful learning rate holds."""

LIBRARIES = 400_000_000
"""Bytes of a process that has only imported torch and transformers, about."""


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


class LiveWorld:
    """A task and a model under training, in one process.

    model: a name for `workbench.models.load`, or (model, tokenizer) with float32 weights. lr: None is 1e-5 for large
    models and 1e-4 for small ones. sampling: dtype of the weights that sample; "auto" is a bfloat16 copy for models
    over 50 million parameters where the processor computes in bfloat16, and the trained weights themselves elsewhere.
    precision: of the passes of the update; weights, gradients and optimiser are float32; "auto" is bfloat16 autocast
    under the same conditions. max_tokens: limit of an answer, None is the task's.
    samples: rollouts per evaluation prompt. budget: padded tokens per micro-batch; None is 1,024, on a GPU 8,192, or
    32,768 where Llamas are trained in streams (`packing`). threads: of torch, None leaves them. engine: "transformers",
    "graph", "vllm", a server's address, or "auto", the faster by a short measurement where there is a GPU; a mapping
    {"name": ..., **settings} gives it settings (see `engines.choice`). update: more settings of `Policy`
    (recompute, reference, row_norms, clip, betas, shard), and lora: the rank of adapters trained instead of all weights.

    Where torch.distributed is set up, one process a GPU, each generates and verifies some of the rows of `sample` (trees:
    all of them, and takes the first one's) and computes some of the micro-batches of `update`; all hold the same rows and weights, and make the same calls.
    """

    offers = frozenset(
        {"behaviour", "proximal", "current", "token_entropy", "top_tokens", "nodes", "tokens", "resume", "hidden"}
    )

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
        samples: int = 4,
        budget: int | None = None,
        device: str | None = None,
        threads: int | None = None,
        engine: str | Mapping[str, object] = "auto",
        update: Mapping[str, object] | None = None,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.task, self.seed, self.temperature, self.samples = task, seed, temperature, samples
        self.pool, self.evaluation = task.pool, task.evaluation
        self.max_tokens = max_tokens or task.max_tokens
        self.name = "given" if isinstance(model, tuple) else os.fspath(model)
        trained, self.tokenizer = model if isinstance(model, tuple) else models.load(model)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        trained = trained.to(device, torch.float32).eval()  # eval: no dropout, so trainer and sampler agree
        use_grouped(trained)
        self.parameters = trained.num_parameters()
        more = dict(update or {})
        if rank := more.pop("lora", 0):
            adapters.add(trained, int(rank), seed=seed)  # type: ignore[call-overload]
            engine = "transformers"  # the others read weights and would leave the adapters out
        precision = precision if precision != "auto" else _fast_dtype(self.parameters, device)
        plain = rank or more.get("row_norms") or more.get("shard") or supported(trained)  # what streams cannot do
        streamed = trained.device.type == "cuda" and precision == "bfloat16" and not plain
        self.sampling = sampling if sampling != "auto" else _fast_dtype(self.parameters, device)
        sampler = copied(trained, self.sampling) if more.get("shard") else None  # while the weights are whole
        self.policy = (StreamPolicy if streamed else Policy)(
            trained,
            lr=lr if lr is not None else (1e-5 if self.parameters > LARGE else 1e-4),
            budget=budget or (32_768 if streamed else 8192 if trained.device.type == "cuda" else 1024),
            precision=precision,
            temperature=temperature,
            **more,  # type: ignore[arg-type]
        )
        if sampler is None:
            self.engine, self.engine_why = pick(trained, self.sampling, engine)
        else:
            self.engine, self.engine_why = sampler, "transformers: a whole copy, for the trained weights are divided"
        own = type(self).offers - getattr(self.engine, "lacks", frozenset())
        self.offers = own | getattr(task, "offers", frozenset())  # what its verifier leaves, such as scores of steps
        self.stop_ids = frozenset(task.stop_ids(self.tokenizer))
        self._prefix: dict[tuple[str, Text | None], list[int]] = {}
        self._start: dict[str, Text | None] = {}
        self._step = -1
        self._trails: dict[str, Trail] = {}
        self._unfinished: dict[str, Unfinished] = {}
        self._source: dict[str, str] = {}
        self._mixed = False
        self._decisions: list[Decision] = []
        self._spent: Counter[str] = Counter()

    @property
    def version(self) -> int:
        """Optimiser updates so far."""
        return self.policy.version

    def twin(self) -> LiveWorld:
        """A world of the same model, engine and unfinished rollouts that keeps its own books of what it samples."""
        other = copy(self)
        other._step, other._decisions, other._spent = -1, [], Counter()
        return other

    def adopt(self, twin: LiveWorld) -> None:
        """Enter what a twin has sampled for the step that is trained next."""
        self._decisions += twin._decisions
        self._spent.update(twin._spent)

    def give_up(self, step: int) -> None:
        """A step was sampled and will not be trained: what it went on with is unfinished as before."""
        for name in [i for i in self._source if i.partition(":")[0].rpartition("-")[2] == str(step)]:
            del self._source[name]

    def sample(self, plan: Plan, branch: Branch | None = None, prune: Prune | None = None) -> Rollouts:
        """Generate and verify what the plan asks for.

        What a rollout draws depends on the run seed and its id only. Starts are the prompt, `Text`, `Node("id@t")`: the
        first t tokens of a rollout of this step, or `Resume(id)`: a rollout that an earlier step carried out goes on,
        under the current weights, with the draws it would have had; its tokens keep the log-probabilities of the versions
        that sampled them. While any are under way, extra token_version (ragged int32) says which version sampled each
        token; version is that of the last one. With branch or prune, rollouts pause at their checkpoints; forked and cut
        ones come back as rows, see `growing.rollouts_of`.
        """
        if plan.step != self._step:
            self._step, self._trails, self._mixed = plan.step, {}, bool(self._unfinished)
        cpu = time.process_time()
        begins = [self._begin(plan, a) for a in range(len(plan))]
        asked = self._placed(Rollouts.asked(plan, self.pool, self.version), begins)
        limit = np.where(plan.max_tokens > 0, plan.max_tokens, self.max_tokens)
        with Judging(self.task, self.pool) as judging:
            if branch is None and prune is None:
                rows, made = self._generate(begins, asked, limit, self._names(asked, begins), judging)
            else:
                rows, made = distributed.agreed(self._grow(begins, asked, limit, branch, prune, judging))
            self._spent.update(
                sample_seconds=made.seconds,
                sample_cpu_seconds=time.process_time() - cpu,
                prefilled_tokens=made.prefilled,
                decoded_tokens=made.decoded,
            )
            for i, a in zip(rows.id, rows.ask, strict=True):
                if plan.start[a] is not None:  # inside a rollout: what that one began with
                    self._start[i] = self._text_of(plan.start[a])
            began = time.perf_counter()
            scored = judging.finish(rows)
            self._spent.update(verify_seconds=time.perf_counter() - began)
        self._trails |= dict(zip(scored.id, trails(scored, np.arange(len(scored))), strict=True))
        return scored

    def _begin(self, plan: Plan, a: int) -> Begin:
        """Where the rows of an ask begin; ValueError for rollouts that are not there to go on from."""
        start, row = plan.start[a], int(plan.prompt[a])
        if isinstance(start, Node):
            inside, _, place = start.id.rpartition("@")
            if inside not in self._trails or not place.isdigit():
                raise ValueError(f"{start!r}: a node is 'rollout id@tokens' of a rollout of this step")
            trail = self._trails[inside].first(int(place))
            return Begin(self.prefix(self.pool, row, self._text_of(start)), trail, inside, trail.n)
        if not isinstance(start, Resume):
            return Begin(self.prefix(self.pool, row, start))
        left = self._unfinished.get(start.rollout)
        if left is None or left.prompt != self.pool.ids[row]:
            here = [i for i, u in self._unfinished.items() if u.prompt == self.pool.ids[row]]
            raise ValueError(
                f"{start!r} of prompt {self.pool.ids[row]}: no such rollout was carried out of an earlier step and is still "
                f"unfinished; of this prompt there are {', '.join(here[:5]) or 'none'}"
            )
        if start.rollout in self._source.values():
            raise ValueError(f"{start!r}: another ask goes on with this rollout already; it can be resumed once")
        return Begin(
            self.prefix(self.pool, row, left.start),
            left.trail,
            source=start.rollout,
            stream=left.stream,
            ended=left.ended,
        )

    def _placed(self, rows: Rollouts, begins: Sequence[Begin]) -> Rollouts:
        """Asked rows with the place where they leave another one; the first row of a resumed ask is the one carried."""
        first = np.searchsorted(rows.ask, np.arange(len(begins)))
        for a, begin in enumerate(begins):
            if begin.source and first[a] < len(rows) and rows.ask[first[a]] == a:
                self._source[rows.id[first[a]]] = begin.source
        inside = np.array([b.inside for b in begins], dtype=object)
        at = np.array([b.at for b in begins], np.int64)
        return rows.with_(parent=inside[rows.ask], fork_at=at[rows.ask])

    def _names(self, rows: Rollouts, begins: Sequence[Begin]) -> list[str]:
        """The random stream of each row: its own id, or that of the rollout it is the rest of."""
        return [begins[a].stream if i in self._source else i for i, a in zip(rows.id, rows.ask, strict=True)]

    def _text_of(self, start: Text | Node | Resume) -> Text | None:
        """The text that a rollout with this start began after."""
        if isinstance(start, Node):
            return self._start.get(start.id.rpartition("@")[0])
        return self._unfinished[start.rollout].start if isinstance(start, Resume) else start

    def taken_decisions(self) -> dict[str, list] | None:
        """The tests made at checkpoints since the last call, as the store takes them; None where there were none."""
        made, self._decisions = self._decisions, []
        return decision_columns(made) if made else None

    def _grow(
        self,
        begins: Sequence[Begin],
        rows: Rollouts,
        limit: np.ndarray,
        branch: Branch | None,
        prune: Prune | None,
        judging: Judging,
    ) -> tuple[Rollouts, Segments]:
        """Rollouts that pause at checkpoints."""
        # an engine that makes whole answers only leaves this to plain passes over the weights that train
        engine = self.engine if hasattr(self.engine, "open") else TransformersEngine(self.policy.model)
        names = self._names(rows, begins)
        branches = []
        for row, (a, name) in enumerate(zip(rows.ask, names, strict=True)):
            b = begins[a]
            made = Grown(row, rows.id[row], int(limit[a]), start=b.trail.n, seen=b.trail.n, stream=name)
            made.tokens, made.logp, made.entropy = (column.tolist() for column in b.trail[:3])
            made.finish = "stop" if b.ended else "length" if b.trail.n >= limit[a] else ""
            branches.append(made)
        on = [b for b in branches if not b.finish]
        asks, owner = np.unique(rows.ask[[b.row for b in on]], return_inverse=True)
        session = engine.open(
            [begins[a].prefix + begins[a].trail.tokens.tolist() for a in asks],
            owner,
            streams(self.seed, [b.stream for b in on]),
            position=np.array([b.start for b in on], np.int64),
            temperature=self.temperature,
            stop=self.stop_ids,
        )

        def ended(over: Sequence[Grown]) -> None:
            part = rows.take(np.array([b.row for b in over]))
            judging.put(
                part.with_(id=np.array([b.id for b in over], object), text=self._texts([b.tokens for b in over]))
            )

        growth = Growth(
            session, branches, rows, seed=self.seed, branch=branch, prune=prune, decode=self._decode, markers=self._markers,
            ended=ended if judging.early else None,
        )  # fmt: skip
        growth.run()
        self._decisions += growth.decisions
        done = rollouts_of(growth, rows)
        assert done.tokens is not None and done.logp is not None and done.entropy is not None
        spent = Segments(
            done.tokens, done.logp, done.entropy, done.finish, session.prefilled, session.decoded, growth.seconds
        )
        return self._finished(done, [begins[a].trail for a in done.ask]), spent

    def _texts(self, tokens: Iterable[Sequence[int]]) -> np.ndarray:
        """(R,) str: what token lists say, up to the first stop string."""
        return np.array(
            [_until(text, self.task.stop) for text in self._decode([list(t) for t in tokens])], dtype=object
        )

    def _decode(self, tokens: list[list[int]]) -> list[str]:
        return self.tokenizer.batch_decode(tokens, skip_special_tokens=True)

    def _markers(self, texts: tuple[str, ...]) -> frozenset[int]:
        """Tokens whose text holds one of the markers."""
        if not texts:
            return frozenset()
        vocabulary = self.tokenizer.batch_decode([[i] for i in range(len(self.tokenizer))])
        return frozenset(i for i, text in enumerate(vocabulary) if any(m in text for m in texts))

    def evaluate(self, step: int) -> Rollouts:
        """The evaluation set, `samples` rollouts each, purpose "eval"; the same random numbers at every step."""
        n = len(self.evaluation)
        plan = Plan(np.arange(n), np.full(n, self.samples), purpose=np.full(n, "eval", dtype=object), step=step)
        rows = Rollouts.asked(plan, self.evaluation, self.version)
        names = [i.replace(f"eval-{step}:", "eval:", 1) for i in rows.id]
        begins = [Begin(self.prefix(self.evaluation, int(p))) for p in plan.prompt]
        made, _ = self._generate(begins, rows, np.full(n, self.max_tokens), names)
        return self.task.score(made.with_(extra={}), self.evaluation)

    def _generate(
        self,
        begins: Sequence[Begin],
        rows: Rollouts,
        limit: np.ndarray,
        names: Sequence[str],
        judging: Judging | None = None,
    ) -> tuple[Rollouts, Segments]:
        """Whole answers: rows of the asks that begins are of, each drawing from the stream of its name."""
        before = [begins[a].trail for a in rows.ask]
        room = limit - [b.trail.n for b in begins]
        going = np.array([not b.ended for b in begins], bool) & (room > 0)
        every = np.flatnonzero(going)
        asks = distributed.mine(every)
        on = np.flatnonzero(np.isin(rows.ask, asks))
        made, watch = NO_SEGMENTS, {}
        if judging is not None and judging.early and getattr(self.engine, "tells", False):
            watch = {"ended": self._groups(rows, before, on, judging)}
        if len(on):
            made = self.engine.generate(
                [begins[a].prefix + begins[a].trail.tokens.tolist() for a in asks],
                np.bincount(rows.ask, minlength=len(begins))[asks],
                room[asks],
                streams(self.seed, [names[i] for i in on]),
                position=np.array([before[i].n for i in on], np.int64),
                temperature=self.temperature,
                stop=self.stop_ids,
                **watch,
            )
        if distributed.ranks() > 1:
            on, made = np.concatenate(distributed.heard(on)), put_together(distributed.heard(made))
        place = np.full(len(rows), len(on))  # what has ended already goes on with nothing
        place[on] = np.arange(len(on))
        now = [Ragged.concat([c, Ragged.of([[]], c.values.dtype)]).take(place) for c in made[:3]]
        finish = np.array(["stop" if b.ended else "length" for b in begins], dtype=object)[rows.ask]
        finish[on] = made.finish
        tokens, logp, entropy = joined(before, now)
        done = rows.with_(finish=finish, tokens=tokens, logp=logp, entropy=entropy)
        return self._finished(done, before), made

    def _groups(self, rows: Rollouts, before: Sequence[Trail], on: np.ndarray, judging: Judging) -> Ended:
        """Hands the rows of an ask to the verifier once the last of them has ended; on (B,): rows that are generated."""
        left, made = np.bincount(rows.ask[on]), {}

        def ended(i: int, tokens: np.ndarray) -> None:
            row, a = on[i], rows.ask[on[i]]
            made[row] = [*before[row].tokens, *tokens]
            left[a] -= 1
            if not left[a]:
                mine = on[rows.ask[on] == a]
                judging.put(rows.take(mine).with_(text=self._texts(made[r] for r in mine)))

        return ended

    def _finished(self, rows: Rollouts, before: Sequence[Trail]) -> Rollouts:
        """Generated rows with their text, length, and the versions that sampled them."""
        assert rows.tokens is not None
        sampled = sampled_by(before, rows.tokens, self.version)
        some, last = rows.tokens.lengths > 0, np.full(len(rows), self.version)
        last[some] = sampled.values[rows.tokens.offsets[1:][some] - 1]
        return rows.with_(
            text=self._texts(t.tolist() for t in rows.tokens.rows()),
            length=rows.tokens.lengths,
            version=last,
            extra={**rows.extra, "token_version": sampled} if self._mixed else rows.extra,
        )

    def prefix(self, pool: Pool, row: int, start: Text | None = None) -> list[int]:
        """Token ids that a rollout of a prompt continues: the rendered prompt, with the extra text of a `Text` start.

        Text in the role of the assistant follows the prefilled answer; in any other role it follows the question, in
        the same turn.
        """
        key = (str(pool.ids[row]), start)
        if key not in self._prefix:
            self._prefix[key] = self._rendered(pool, row, start)
        return self._prefix[key]

    def _rendered(self, pool: Pool, row: int, start: Text | None) -> list[int]:
        if start is not None and start.role != "assistant":
            one = pool.take(np.array([row]))
            text = np.array([f"{one.text[0]}\n{start.prefix}"], dtype=object)
            return self._rendered(replace(one, text=text), 0, None)
        ids = self.task.render(pool, row, self.tokenizer)
        if isinstance(ids, str):
            ids = self.tokenizer(ids, add_special_tokens=False).input_ids
        extra = self.tokenizer(start.prefix, add_special_tokens=False).input_ids if start is not None else []
        return [int(i) for i in [*ids, *extra]]

    def _lines(self, rollouts: Rollouts) -> Lines:
        if rollouts.tokens is None:
            raise ValueError("rollouts without tokens cannot be trained on or scored; keep their token columns")
        unknown = [i for i in rollouts.id[rollouts.context != ""] if i not in self._start]
        if unknown:
            raise ValueError(
                f"{len(unknown)} rollouts (first: {unknown[0]}) were not started from the plain prompt and not "
                "generated by this world object, so the text they continued is not known here"
            )
        place: dict[tuple[int, Text | None], int] = {}
        starts = [(int(p), self._start.get(i)) for p, i in zip(rollouts.prompt, rollouts.id, strict=True)]
        owner = np.array([place.setdefault(s, len(place)) for s in starts], np.int64)
        prefixes = [self.prefix(self.pool, row, start) for row, start in place]
        numbers = {
            n: c
            for n, c in rollouts.extra.items()
            if (np.array_equal(c.offsets, rollouts.tokens.offsets) if isinstance(c, Ragged) else c.dtype.kind in "fiub")
        }
        return Lines(prefixes, owner, rollouts.tokens, rollouts.logp, numbers)

    def score(self, rollouts: Rollouts, needs: frozenset[str]) -> Rollouts:
        """Add log-probabilities under the trainer's current weights where needs name `proximal` or `current`."""
        tracks = sorted(needs & {"proximal", "current"})
        if not tracks or not len(rollouts):
            return rollouts
        logp: Ragged = self.policy.logp(self._lines(rollouts))
        return rollouts.with_(**dict.fromkeys(tracks, logp))

    def update(
        self, rollouts: Rollouts, advantage: Advantage, loss: LossFn, penalties: list[LossFn]
    ) -> Mapping[str, float | np.ndarray]:
        """One optimiser step on the kept rows, then the sampler takes over the weights. See `Policy.update`.

        Beside its figures: seconds, CPU seconds and tokens that sampling took since the last update.
        """
        before = self.version
        self._carry(rollouts, advantage)
        if hasattr(self.engine, "rest"):  # it gives the card to the update
            self.engine.rest()
        done = self.policy.update(self._lines(rollouts), advantage, loss, penalties, constant=self.max_tokens)
        if self.version != before:
            self.engine.sync()
            done = {**done, **getattr(self.engine, "synced", {})}
        spent = {name: float(value) for name, value in self._spent.items()}
        self._spent.clear()
        return {**done, **spent}

    def _carry(self, rollouts: Rollouts, advantage: Advantage) -> None:
        """Keep what this step leaves unfinished, and forget what it went on with."""
        sources = {i: self._source.pop(i) for i in rollouts.id if i in self._source}
        carried = np.flatnonzero(fates(rollouts, advantage)[0] == "carried")
        left = {i: u for i, u in self._unfinished.items() if i not in sources.values()}
        for row, trail in zip(carried, trails(rollouts, carried), strict=True):
            name = str(rollouts.id[row])
            stream = self._unfinished[sources[name]].stream if name in sources else name
            prompt, ended = str(self.pool.ids[rollouts.prompt[row]]), rollouts.finish[row] == "stop"
            left[name] = Unfinished(prompt, trail, stream, self._start.get(name), ended)
        self._unfinished = left  # a new one: a step that is being generated meanwhile keeps what it has seen

    def save(self, folder: Path) -> None:
        """Write model, tokenizer, optimiser, version and unfinished rollouts; the folder appears, or is replaced, as a whole.

        `workbench.models.load` reads it as any transformers folder.
        """
        folder = Path(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            self.policy.save(draft)
            if not distributed.first():
                return
            self.tokenizer.save_pretrained(draft)
            starts.save(self._unfinished, draft)
            if folder.exists():
                old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
                folder.rename(old / folder.name)
                draft.rename(folder)
                shutil.rmtree(old)
            else:
                draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            distributed.meet()

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote."""
        self.policy.load(Path(folder))
        self._unfinished = starts.load(Path(folder))
        self._source.clear()
        self._start |= {name: left.start for name, left in self._unfinished.items()}
        self.engine.sync()

    def memory_needed(self) -> int:
        """Bytes that training takes at its peak, about: weights, gradients, AdamW, sampling copy, one micro-batch."""
        copied = self.engine.copy_of is not None
        return memory_needed(self.policy.model.config, self.parameters, self.policy.budget, copied)

    def pieces(self) -> dict[str, np.ndarray]:
        """What the token ids stand for, kept once with a run; see `numerics.pieces`."""
        return pieces_of(self.tokenizer)

    def describe(self) -> dict[str, object]:
        """Facts of this world for the runs table."""
        return {
            "world": "live",
            "task": self.task.name,
            "model": self.name,
            "parameters": self.parameters,
            "weights": "float32",
            "sampling": self.sampling,
            "precision": str(self.policy.precision).removeprefix("torch."),
            "device": str(self.policy.model.device),
            "threads": torch.get_num_threads(),
            "engine": type(self.engine).__name__,
            "engine_why": self.engine_why,
            "lr": self.policy.lr,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "samples": self.samples,
            "seed": self.seed,
            "memory_needed": self.memory_needed(),
            "torch": torch.__version__,
        }


def memory_needed(config, parameters: int, budget: int, copied: bool) -> int:
    """Bytes of a process that trains in float32: libraries, 16 per parameter (+2 for a bfloat16 copy), activations and
    logits of one micro-batch, logits of a batch of samples."""
    width, inner = config.hidden_size, getattr(config, "intermediate_size", 4 * config.hidden_size)
    activations = 4 * budget * config.num_hidden_layers * (12 * width + 4 * inner)
    logits = 4 * config.vocab_size * (4 * budget + 3 * ROWS)
    return LIBRARIES + parameters * (18 if copied else 16) + activations + logits


def _until(text: str, stop: tuple[str, ...]) -> str:
    """The text before the first stop string."""
    for string in stop:
        text = text.split(string, 1)[0]
    return text


def _fast_dtype(parameters: int, device: str) -> str:
    if parameters <= LARGE:
        return "float32"
    fast = torch.cuda.is_bf16_supported() if device.startswith("cuda") else torch.cpu._is_avx512_bf16_supported()
    return "bfloat16" if fast else "float32"
