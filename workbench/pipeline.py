"""Methods put together, and the loop that runs them against a world.

`advance` makes one step; `run` is the generator of steps. Who acts where is a property of the list of methods,
printed by `repr`. Every draw comes from a generator keyed by (seed, step, round, verb, method), so that swapping
one method leaves all other draws alone and two pipelines compare on common random numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from zlib import crc32

import numpy as np

from workbench.methods.uniform import Uniform
from workbench.stages import DECIDES, VERBS, Method, State, World
from workbench.types import (
    Advantage,
    Budget,
    Cut,
    Draft,
    Event,
    Fork,
    Frontier,
    Plan,
    Pool,
    Rollouts,
    Step,
)

MAX_ROUNDS = 64
"""A step that still wants more after this many rounds ends with a warning."""

States = dict[str, State]


def generator(seed: int, step: int, round_: int, verb: str, method: str) -> np.random.Generator:
    """The one source of draws for a verb of a method in a round of a step."""
    return np.random.default_rng([seed, step, round_, crc32(verb.encode()), crc32(method.encode())])


class Pipeline:
    """A list of methods, read in order: at select, allocate and loss the last one that has the verb decides;
    at the others every one that has it refines. Prompts nobody selects are shuffled, rollouts nobody allocates
    are spread evenly (`Uniform`)."""

    def __init__(self, *methods: Method) -> None:
        for m in methods:
            if not isinstance(m, Method):
                raise TypeError(f"{m!r} is not a method; write it with its settings, as in Pipeline(Grpo(), Mopps())")
        names = [m.name for m in methods]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} stands in the pipeline more than once; use one, or Only(...) of it")
        self.chosen = methods
        self.methods: tuple[Method, ...] = (
            methods if any(m.name == "uniform" for m in methods) else (Uniform(), *methods)
        )
        for verb, way_out in (("estimate", "Grpo()"), ("loss", "Grpo()")):
            if not self.actors(verb):
                raise ValueError(f"no method of {self!r} acts at {verb}; add one that does, for example {way_out}")

    def actors(self, verb: str) -> tuple[Method, ...]:
        """The methods that act at a verb: one that decides, or all that refine."""
        having = tuple(m for m in self.methods if verb in m.verbs)
        return having[-1:] if verb in DECIDES else having

    def decider(self, verb: str) -> Method:
        """The method that decides at select, allocate or loss."""
        return self.actors(verb)[0]

    @property
    def needs(self) -> frozenset[str]:
        """All that the methods ask of a world."""
        return frozenset().union(*(m.needs for m in self.methods))

    def check(self, world: World) -> None:
        """Raise where a method needs what the world does not offer."""
        for m in self.methods:
            missing = sorted(m.needs - world.offers)
            if missing:
                raise ValueError(
                    f"{type(m).__name__} needs {', '.join(missing)}, which {type(world).__name__} does not offer "
                    f"(it offers {', '.join(sorted(world.offers)) or 'nothing'})"
                )

    def init(self, pool: Pool) -> States:
        """The states of all methods before the first step."""
        return {m.name: m.init(pool) for m in self.methods}

    def observe(self, states: States, step: Step) -> States:
        """The states of all methods after a finished step."""
        return {m.name: m.observe(states[m.name], step) for m in self.methods}

    def fold(self, pool: Pool, steps: Iterable[Step]) -> States:
        """States rebuilt from finished steps alone; equal to what the live run held."""
        states = self.init(pool)
        for step in steps:
            states = self.observe(states, step)
        return states

    def reveal(self, states: States) -> dict[str, Mapping[str, np.ndarray]]:
        """The beliefs of every method that has some, by method name."""
        shown = {m.name: m.reveal(states[m.name]) for m in self.methods}
        return {name: columns for name, columns in shown.items() if columns}

    def who(self) -> dict[str, list[str]]:
        """Verb -> names of the methods that act there, in order."""
        return {v: [m.name for m in self.actors(v)] for v in VERBS if self.actors(v)}

    def __repr__(self) -> str:
        return f"Pipeline({', '.join(map(repr, self.chosen))})"

    def __str__(self) -> str:
        lines = [repr(self)]
        lines += [f"  {verb:<9} {' -> '.join(names)}" for verb, names in self.who().items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        cards = {m.name: m.card.title for m in self.methods}
        rows = "".join(
            "<tr><td>{}</td><td>{}</td></tr>".format(
                verb, " → ".join(f'<span title="{escape(cards[n])}">{escape(n)}</span>' for n in names)
            )
            for verb, names in self.who().items()
        )
        return f"<table><caption><code>{escape(repr(self))}</code></caption>{rows}</table>"


def join(parts: list[Rollouts], plans: list[Plan]) -> Rollouts:
    """The rollouts of several rounds as one table: ask counts on, one group per (prompt, context, purpose)."""
    shift = np.cumsum([0] + [len(p) for p in plans])
    rows = Rollouts.concat([r.with_(ask=r.ask + s) for r, s in zip(parts, shift, strict=False)])
    keys = [f"{p}|{c}|{u}" for p, c, u in zip(rows.prompt, rows.context, rows.purpose, strict=True)]
    _, first, inverse = np.unique(np.array(keys, dtype=str), return_index=True, return_inverse=True)
    in_order = np.empty(len(first), np.int64)
    in_order[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rows.with_(group=in_order[inverse])


def _ordinals(plan: Plan, earlier: list[Plan]) -> np.ndarray:
    """(A,) rollouts of the same prompt and purpose asked before each ask of this step."""
    asked: dict[tuple[int, str], int] = {}
    for p in earlier:
        for prompt, n, purpose in zip(p.prompt, p.n, p.purpose, strict=True):
            asked[prompt, purpose] = asked.get((prompt, purpose), 0) + n
    ordinal = np.zeros(len(plan), np.int64)
    for i, (prompt, n, purpose) in enumerate(zip(plan.prompt, plan.n, plan.purpose, strict=True)):
        ordinal[i] = asked.get((prompt, purpose), 0)
        asked[prompt, purpose] = ordinal[i] + n
    return ordinal


def _branching(pipeline: Pipeline, states: States, seed: int, step: int, round_: int):
    """The branch and prune hooks of all methods as two functions of a frontier, or None where nobody acts."""
    forks, cuts = pipeline.actors("branch"), pipeline.actors("prune")

    def branch(frontier: Frontier) -> Fork:
        made = [m.branch(states[m.name], frontier, generator(seed, step, round_, "branch", m.name)) for m in forks]
        width = np.prod([f.width for f in made], axis=0)
        return Fork(width, made[-1].at, made[-1].token, {k: v for f in made for k, v in f.why.items()})

    def prune(frontier: Frontier) -> Cut:
        made = [m.prune(states[m.name], frontier, generator(seed, step, round_, "prune", m.name)) for m in cuts]
        reason = np.full(len(frontier), "", dtype=object)
        for cut in reversed(made):
            reason = np.where(cut.width == 0, cut.reason, reason)
        return Cut(
            np.min([c.width for c in made], axis=0), reason, np.prod([c.propensity for c in made], axis=0)
        )

    return branch if forks else None, prune if cuts else None


def _chosen(pipeline: Pipeline, states: States, draft: Draft, seed: int) -> np.ndarray:
    method = pipeline.decider("select")
    rows = method.select(states[method.name], draft, generator(seed, draft.step, draft.round, "select", method.name))  # type: ignore[attr-defined]
    rows = np.asarray(rows, np.int64)
    allowed = np.isin(rows, draft.candidates())
    if len(np.unique(rows)) != len(rows) or not allowed.all() or len(rows) > draft.wanted:
        raise ValueError(
            f"{type(method).__name__}.select returned {len(rows)} rows for {draft.wanted} wanted prompts"
            f" ({len(rows) - len(np.unique(rows))} twice, {int((~allowed).sum())} not among the candidates)"
        )
    return rows


def fates(rollouts: Rollouts, advantage: Advantage, skipped: str = "") -> tuple[np.ndarray, np.ndarray]:
    """(fate, reason) of every rollout at the end of its step; exactly one fate each.

    skipped: why the optimiser step did not happen, "" when it did. A rollout that entered the loss with
    advantage zero is trained, reason zero_advantage: KL and entropy terms may still act on it.
    """
    zero = advantage.value == 0
    if advantage.tokens is not None:
        zero &= np.array([not row.any() for row in advantage.tokens.rows()], bool)
    fate = np.where(advantage.keep, "dropped" if skipped else "trained", "dropped").astype(object)
    reason = np.where(advantage.keep, skipped or np.where(zero, "zero_advantage", ""), advantage.reason).astype(object)
    for finish, name in (("pruned", "pruned"), ("aborted", "discarded"), ("carried", "carried")):
        rows = rollouts.finish == finish
        fate = np.where(rows & ~advantage.keep, name, fate)
    failed = rollouts.failure != ""
    return np.where(failed, "failed", fate), np.where(failed, rollouts.failure, reason)


def advance(
    pipeline: Pipeline,
    states: States,
    world: World,
    budget: Budget,
    *,
    step: int,
    seed: int = 0,
    available: np.ndarray | None = None,
) -> tuple[States, Step]:
    """One training step: rounds of select, allocate, amend, generate and reward until nothing more is wanted,
    then replay, score, estimate, update, observe. Returns the new states and the finished step."""
    clock = {"decide": 0.0, "generate": 0.0, "score": 0.0, "estimate": 0.0, "update": 0.0}
    began = time.perf_counter()

    def lap(phase: str) -> None:
        nonlocal began
        now = time.perf_counter()
        clock[phase] += now - began
        began = now

    events: list[Event] = []
    everything = np.ones(len(world.pool), bool) if available is None else available
    draft = Draft(step, budget, everything, np.empty(0, np.int64), wanted=budget.prompts)
    plans: list[Plan] = []
    parts: list[Rollouts] = []
    start = time.perf_counter()
    for round_ in range(MAX_ROUNDS):
        draft = draft.with_(round=round_, wanted=min(draft.wanted, len(draft.candidates())))
        fresh = _chosen(pipeline, states, draft, seed) if draft.wanted > 0 else np.empty(0, np.int64)
        draft = draft.with_(fresh=fresh, prompts=np.concatenate([draft.prompts, fresh]))
        if round_ == 0 and not len(fresh):
            raise ValueError(
                f"step {step}: no prompt could be chosen ({int(everything.sum())} of {len(everything)} are available)"
            )
        allocator = pipeline.decider("allocate")
        plan = allocator.allocate(  # type: ignore[attr-defined]
            states[allocator.name], draft, generator(seed, step, round_, "allocate", allocator.name)
        )
        for m in pipeline.actors("amend"):
            plan = m.amend(states[m.name], plan, draft, generator(seed, step, round_, "amend", m.name))  # type: ignore[attr-defined]
        if not plan.n_rollouts:
            lap("decide")
            break
        plan = Plan(
            plan.prompt, plan.n, plan.max_tokens, plan.start, plan.purpose, plan.context,
            ordinal=_ordinals(plan, plans), round=np.full(len(plan), round_, np.int64),
            why=plan.why, notes=plan.notes, folded_through=step - 1, step=step,
        )  # fmt: skip
        lap("decide")
        got = world.sample(plan, *_branching(pipeline, states, seed, step, round_))
        for m in pipeline.actors("reward"):
            got = m.reward(states[m.name], got)  # type: ignore[attr-defined]
        lap("generate")
        plans.append(plan)
        parts.append(got)
        draft = draft.with_(plan=Plan.concat(plans), rollouts=join(parts, plans))
        wanted = max((m.more(states[m.name], draft) for m in pipeline.actors("more")), default=0)  # type: ignore[attr-defined]
        spent = (budget.tokens and int(draft.rollouts.length.sum()) >= budget.tokens) or (  # type: ignore[union-attr]
            budget.seconds and time.perf_counter() - start >= budget.seconds
        )
        if spent and wanted:
            events.append(Event("note", "budget", f"{wanted} more prompts were wanted, but the step's budget is spent"))
        if spent:
            break
        draft = draft.with_(wanted=wanted)
    else:
        events.append(Event("warning", "rounds", f"stopped after {MAX_ROUNDS} rounds with {draft.wanted} still wanted"))
    rollouts, plan = draft.rollouts, draft.plan
    if rollouts is None or plan is None:
        raise ValueError(f"step {step}: {type(pipeline.decider('allocate')).__name__} asked for no rollout")
    for m in pipeline.actors("replay"):
        rollouts = m.replay(states[m.name], rollouts, draft, generator(seed, step, 0, "replay", m.name))  # type: ignore[attr-defined]
    lap("decide")
    rollouts = world.score(rollouts, pipeline.needs)
    draft = draft.with_(rollouts=rollouts)
    lap("score")
    advantage = Advantage.start(rollouts)
    for m in pipeline.actors("admit"):
        advantage = advantage.drop(~m.admit(states[m.name], rollouts, draft), "not_admitted")  # type: ignore[attr-defined]
    for m in pipeline.actors("estimate"):
        advantage = m.estimate(states[m.name], advantage, draft, generator(seed, step, 0, "estimate", m.name))  # type: ignore[attr-defined]
        if not np.isfinite(advantage.value[advantage.keep]).all():
            bad = int((~np.isfinite(advantage.value[advantage.keep])).sum())
            raise ValueError(f"{type(m).__name__}.estimate gave {bad} advantages that are not finite at step {step}")
    lap("estimate")
    loss_of, penalty_of = pipeline.decider("loss"), pipeline.actors("penalty")
    update = world.update(
        rollouts,
        advantage,
        lambda batch: loss_of.loss(states[loss_of.name], batch),  # type: ignore[attr-defined]
        [lambda batch, m=m: m.penalty(states[m.name], batch) for m in penalty_of],  # type: ignore[attr-defined]
    )
    lap("update")
    skipped = str(update.get("skipped", ""))
    if skipped:
        events.append(Event("failure", "update", f"the optimiser step was skipped: {skipped}"))
    for what in np.unique(rollouts.failure[rollouts.failure != ""]):
        n = int((rollouts.failure == what).sum())
        events.append(Event("warning", str(what), f"{n} rollouts got no reward: {what}", n))
    fate, reason = fates(rollouts, advantage, skipped and "update_skipped")
    done = Step(step, draft.prompts, plan, rollouts, advantage, fate, reason, update, clock, tuple(events))
    return pipeline.observe(states, done), done


def run(
    pipeline: Pipeline,
    world: World,
    budget: Budget,
    *,
    steps: int,
    seed: int = 0,
    start: int = 1,
    states: States | None = None,
) -> Iterator[tuple[States, Step]]:
    """The loop, as a generator of (states after the step, finished step); steps are numbered from 1.

    Pass states and start to go on where an earlier run stopped."""
    pipeline.check(world)
    states = pipeline.init(world.pool) if states is None else states
    for step in range(start, start + steps):
        states, done = advance(pipeline, states, world, budget, step=step, seed=seed)
        yield states, done
