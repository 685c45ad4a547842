"""Methods put together, and the loop that runs them against a world.

`advance` makes one step; `run` is the generator of steps. Who acts where is a property of the list of methods,
printed by `repr`. Every draw comes from a generator keyed by (seed, step, round, verb, method), so that swapping
one method leaves all other draws alone and two pipelines compare on common random numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from workbench import catalog
from workbench.branching import Asked, branch_of, prune_of
from workbench.methods.uniform import Uniform
from workbench.numerics.apportion import apportion
from workbench.numerics.roles import HINTS, all_tokens, bare, own_tokens, without_hints
from workbench.stages import DECIDES, VERBS, Branch, Method, Only, Prune, State, World
from workbench.types import (
    Advantage,
    Budget,
    Draft,
    Event,
    Picked,
    Plan,
    Pool,
    Rollouts,
    Step,
)

MAX_ROUNDS = 64
"""A step that still wants more after this many rounds ends with a warning."""

States = dict[str, State]


class Wishes(NamedTuple):
    """What the researcher wants of single prompts, beside `available`. pinned (K,) int64 rows that are in every step,
    before anybody selects; boost (N,) float64 weighs what is allocated to a prompt, None = 1 for all."""

    pinned: np.ndarray = np.empty(0, np.int64)
    boost: np.ndarray | None = None


NO_WISH = Wishes()


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
        self._check_hints()
        self._check_carried()
        self._check_order()

    def _check_hints(self) -> None:
        """Raise ValueError where two methods show hints: a rollout begins after one of them, and nothing compares the two."""
        hinting = [m.name for m in self.methods if m.hinting and "amend" in m.verbs]
        if len(hinting) > 1:
            raise ValueError(
                f"{' and '.join(hinting)} both show hints in {self!r}: neither knows the other's rollouts, so a prompt is "
                "hinted twice or not at all, and of its two comparisons with plain rollouts the last one stands; keep one of "
                "them, and compare the two as two runs"
            )

    def _check_carried(self) -> None:
        """Raise ValueError where a method takes groups up again that another split."""
        acting = self.actors("amend")
        carrying = [m.name for m in acting if "resume" in m.needs]
        splitting = [m.name for m in acting if m.splits]
        if carrying and splitting:
            raise ValueError(
                f"{carrying[0]} carries groups over into the next step as plain rollouts, and {' and '.join(splitting)} would "
                f"have put a part of them off or begun it elsewhere: that part would be lost; keep one of them in {self!r}"
            )

    def _check_order(self) -> None:
        """Raise ValueError where what stands in front leaves nothing to one behind it, or is undone by it; with the order to
        write."""
        if found := self._behind("estimate", lambda m: m.across, lambda m: m.anew):
            first, behind, order = found
            raise ValueError(
                f"behind {first}, {behind} would compute advantages anew, group by group, and undo what {first} makes of a "
                f"prompt's groups together; write {order}"
            )
        if found := self._behind("amend", lambda m: m.rooting, lambda m: m.splits):
            first, behind, order = found
            raise ValueError(
                f"behind {first}, which leaves few rollouts of each group for the others to grow from, {behind} would find "
                f"none to take a share of; write {order}"
            )

    def _behind(
        self, verb: str, moves: Callable[[Method], bool], stays: Callable[[Method], bool]
    ) -> tuple[str, str, str] | None:
        """The first method that moves behind others, which stay, at a verb; those others; and the pipeline in which all such
        stand there. None where they do."""
        acting = self.actors(verb)
        late = {m.name: [o for o in acting[k + 1 :] if stays(o)] for k, m in enumerate(acting) if moves(m)}
        late = {name: others for name, others in late.items() if others}
        if not late:
            return None
        first, others = next(iter(late.items()))
        rest = [m for m in self.chosen if m.name not in late]
        at = rest.index(others[-1]) + 1
        moved = sorted((m for m in self.chosen if m.name in late), key=lambda m: not stays(m))
        order = [*rest[:at], *moved, *rest[at:]]
        return first, " and ".join(m.name for m in others), _listed(order)

    @classmethod
    def parse(cls, text: str | Pipeline | Iterable[Mapping[str, object]]) -> Pipeline:
        """A pipeline from what people write: "grpo + mopps(target=0.4)", its own repr, or rows of a TOML file.

        Settings are literals; nothing is evaluated. Raises ValueError that names what is there instead."""
        if isinstance(text, Pipeline):
            return text
        if not isinstance(text, str):
            rows = [dict(row) for row in text]
            for row in rows:
                if "method" not in row:
                    raise ValueError(f"a pipeline row needs the key 'method', got {row!r}")
            return cls(*(catalog.make(str(row.pop("method")), **row) for row in rows))  # type: ignore[arg-type]
        return cls(*(catalog.read(part) for part in catalog.parts(text)))

    @property
    def spec(self) -> list[dict[str, object]]:
        """The pipeline as data, for TOML and the runs table; `Pipeline.parse` reads it back."""
        return [{"method": m.name, **m.settings} for m in self.chosen]

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
            missing = sorted(m.needs - world.offers - set(world.pool.extra))
            if missing:
                raise ValueError(
                    f"{type(m).__name__} needs {', '.join(missing)}, which {type(world).__name__} does not offer "
                    f"(it offers {', '.join(sorted(world.offers)) or 'nothing'}; "
                    f"extra columns of its pool: {', '.join(sorted(world.pool.extra)) or 'none'})"
                )

    def init(self, pool: Pool) -> States:
        """The states of all methods before the first step."""
        return {m.name: m.init(pool) for m in self.methods}

    def observe(self, states: States, step: Step) -> States:
        """The states of all methods after a finished step."""
        return {m.name: observed(m, states[m.name], step) for m in self.methods}

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

    @property
    def text(self) -> str:
        """The pipeline as people write it, "grpo + mopps(target=0.4)"; `Pipeline.parse` reads it back."""
        return " + ".join(_written(m, m.name) for m in self.chosen)

    def __repr__(self) -> str:
        return _listed(self.chosen)

    def __str__(self) -> str:
        lines = [self.text]
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


def _listed(methods: Iterable[Method]) -> str:
    """Methods as the pipeline that has them in this order."""
    return f"Pipeline({', '.join(_written(m, type(m).__name__ + '()') for m in methods)})"


def _written(method: Method, plain: str) -> str:
    """A method with the settings that differ from the paper's, in the form of `plain` ("mopps" or "Mopps()")."""
    if isinstance(method, Only):
        inner = _written(method.method, plain if not plain.endswith("()") else type(method.method).__name__ + "()")
        return f"Only({inner}, {', '.join(map(repr, method.only))})"
    settings = ", ".join(f"{k}={v!r}" for k, v in method.settings.items())
    return f"{plain.removesuffix('()')}({settings})" if settings else plain


def join(parts: list[Rollouts], plans: list[Plan]) -> Rollouts:
    """The rollouts of several rounds as one table: ask counts on, one group per (prompt, context, purpose)."""
    shift = np.cumsum([0] + [len(p) for p in plans])
    asks = [np.where(r.ask < 0, -1, r.ask + s) for r, s in zip(parts, shift, strict=False)]  # -1: nobody asked
    rows = Rollouts.concat([r.with_(ask=ask) for r, ask in zip(parts, asks, strict=True)])
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


def _bound(method: Method, verb: str, states: States) -> Callable[..., Any]:
    """A verb of a method with its state filled in."""
    return partial(getattr(method, verb), states[method.name])


def observed(method: Method, state: State, step: Step) -> State:
    """The state of a method after a finished step; one that does not ask for the tokens of hints sees rows without."""
    return method.observe(state, step if HINTS in method.needs else bare(step))


def _seen(method: Method, draft: Draft) -> Draft:
    """The draft as a method sees it: with the tokens of hints in its rows only where it asks for them."""
    if HINTS in method.needs or draft.rollouts is None:
        return draft
    return draft.with_(rollouts=without_hints(draft.rollouts))


def estimated(method: Method, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
    """What a method makes of the advantages before it. Where it does not ask for the tokens of hints it sees neither them nor
    their advantages, which they keep. Raises ValueError for advantages that are not finite, or are not those of the tokens."""
    rollouts, seen = draft.rollouts, _seen(method, draft)
    act = method.estimate  # type: ignore[attr-defined]
    if seen.rollouts is rollouts:
        made = act(state, advantage, draft, rng)
    else:
        made = all_tokens(act(state, own_tokens(advantage, rollouts), seen, rng), advantage, rollouts)
    bad = int((~np.isfinite(made.value[made.keep])).sum())
    if bad:
        raise ValueError(
            f"{type(method).__name__}.estimate gave {bad} advantages that are not finite at step {draft.step}"
        )
    if made.tokens is not None and rollouts.tokens is not None:
        wrong = int((made.tokens.lengths != rollouts.tokens.lengths).sum())
        if wrong:
            raise ValueError(
                f"{type(method).__name__}.estimate gave {wrong} of {len(rollouts)} rollouts more or fewer advantages than "
                f"they have tokens at step {draft.step}"
            )
    return made


def _branching(
    pipeline: Pipeline, states: States, seed: int, step: int, round_: int
) -> tuple[Branch | None, Prune | None]:
    """The branch and prune hooks of all methods as two functions of a frontier, or None where nobody acts."""

    def asked(verb: str, method: Method) -> Asked:
        act = _bound(method, verb, states)
        rng = generator(seed, step, round_, verb, method.name)  # drawn from checkpoint by checkpoint
        return Asked(method.checkpoint, lambda frontier: act(replace(frontier, round=round_), rng))

    forks, cuts = ([asked(verb, m) for m in pipeline.actors(verb)] for verb in ("branch", "prune"))
    return branch_of(forks) if forks else None, prune_of(cuts) if cuts else None


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
    fate = np.where((advantage.reason == "carried") & ~advantage.keep, "carried", fate)  # finished, its group is not
    failed = rollouts.failure != ""
    return np.where(failed, "failed", fate), np.where(failed, rollouts.failure, reason)


class _Clock:
    """Seconds by phase: each lap books the time since the one before."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(("decide", "generate", "score", "estimate", "update"), 0.0)
        self.began = self.last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] += now - self.last
        self.last = now

    @property
    def total(self) -> float:
        return time.perf_counter() - self.began


def boosted(plan: Plan, factor: np.ndarray) -> Plan:
    """The plan with its training rollouts shared out anew, in proportion to n x factor (A,) and as many in all; nobody
    falls below two, or below what was asked where that is less."""
    rows = (plan.purpose == "train") & (plan.n > 0)
    if (factor[rows] == 1).all():
        return plan
    n = plan.n.copy()
    weight, total, low = n[rows] * factor[rows], int(n[rows].sum()), np.minimum(n[rows], 2)
    share = apportion(weight, total)
    n[rows] = share if (share >= low).all() else apportion(weight, total, floor=low)
    return replace(plan, n=n)


def _first_draft(budget: Budget, step: int, available: np.ndarray, wishes: Wishes) -> Draft:
    """A step before its first round: pinned prompts are in, the selector is asked for the rest."""
    return Draft(step, budget, available, wishes.pinned, wanted=max(budget.prompts - len(wishes.pinned), 0))


def rehearse(
    pipeline: Pipeline,
    states: States,
    budget: Budget,
    *,
    step: int,
    seed: int = 0,
    available: np.ndarray,
    wishes: Wishes = NO_WISH,
) -> Plan:
    """What the first round of a step would ask for: nothing is generated and nothing remembered. Raises what the methods
    raise where they cannot plan such a step."""
    return _decide(pipeline, states, _first_draft(budget, step, available, wishes), [], seed, wishes)[1]


def _decide(
    pipeline: Pipeline, states: States, draft: Draft, earlier: list[Plan], seed: int, wishes: Wishes = NO_WISH
) -> tuple[Draft, Plan]:
    """One round's select, allocate and amend: the draft with its fresh prompts, and the plan (empty = nothing more)."""
    step, round_ = draft.step, draft.round
    picked, selector = Picked(np.empty(0, np.int64)), pipeline.decider("select")
    fresh = picked.rows
    if draft.wanted > 0:
        rng = generator(seed, step, round_, "select", selector.name)
        picked = Picked.of(_bound(selector, "select", states)(draft, rng))
        fresh = picked.rows
        allowed = np.isin(fresh, draft.candidates())
        if len(np.unique(fresh)) != len(fresh) or not allowed.all() or len(fresh) > draft.wanted:
            raise ValueError(
                f"{type(selector).__name__}.select returned {len(fresh)} rows for {draft.wanted} wanted prompts"
                f" ({len(fresh) - len(np.unique(fresh))} twice, {int((~allowed).sum())} not among the candidates)"
            )
    if round_ == 0 and not len(fresh) and not len(draft.prompts):
        free, n = int(draft.available.sum()), len(draft.available)
        raise ValueError(f"step {step}: no prompt could be chosen ({free} of {n} are available)")
    prompts = np.concatenate([draft.prompts, fresh])
    draft = draft.with_(fresh=fresh if round_ else prompts, prompts=prompts)
    method = pipeline.decider("allocate")
    plan = _bound(method, "allocate", states)(draft, generator(seed, step, round_, "allocate", method.name))
    plan = _with_figures(plan, picked, selector.name, len(draft.available))
    if wishes.boost is not None:
        plan = boosted(plan, wishes.boost[plan.prompt])
    for method in pipeline.actors("amend"):
        plan = _bound(method, "amend", states)(plan, draft, generator(seed, step, round_, "amend", method.name))
    if pipeline.actors("branch"):  # forks fill a group up to what was asked for
        plan = plan.rooted(plan.n)
    return draft, replace(
        plan,
        ordinal=_ordinals(plan, earlier),
        round=np.full(len(plan), round_, np.int64),
        folded_through=step - 1,
        step=step,
    )


def _with_figures(plan: Plan, picked: Picked, selector: str, n_prompts: int) -> Plan:
    """The plan with the numbers that its prompts were chosen by; NaN where the selector did not choose the prompt.

    A name that the allocation has too gets the selector's in front."""
    why = {}
    for name, figure in picked.why.items():
        known = np.full(n_prompts, np.nan)
        known[picked.rows] = figure
        why[name if name not in plan.why else f"{selector}.{name}"] = known[plan.prompt]
    return replace(plan, why={**why, **plan.why}) if why else plan


def _gather(
    pipeline: Pipeline,
    states: States,
    world: World,
    draft: Draft,
    wishes: Wishes,
    seed: int,
    clock: _Clock,
    events: list[Event],
) -> Draft:
    """All rounds of a step: decide and generate until nothing more is wanted or the budget is spent."""
    plans: list[Plan] = []
    parts: list[Rollouts] = []
    for round_ in range(MAX_ROUNDS):
        draft = draft.with_(round=round_, wanted=min(draft.wanted, len(draft.candidates())))
        draft, plan = _decide(pipeline, states, draft, plans, seed, wishes)
        clock.lap("decide")
        if not plan.n_rollouts:
            return draft
        got = world.sample(plan, *_branching(pipeline, states, seed, draft.step, round_))
        for m in pipeline.actors("reward"):
            got = _bound(m, "reward", states)(got)
        clock.lap("generate")
        plans.append(plan)
        parts.append(got)
        rollouts = join(parts, plans)
        draft = draft.with_(plan=Plan.concat(plans), rollouts=rollouts)
        wanted = max((_bound(m, "more", states)(draft) for m in pipeline.actors("more")), default=0)
        budget = draft.budget
        late = bool(budget.seconds) and clock.total >= budget.seconds
        if budget.seconds and (agreed := getattr(world, "agreed", None)):  # every process of a run has its own clock
            late = agreed(late)
        if (budget.tokens and int(rollouts.length.sum()) >= budget.tokens) or late:
            for n, what in ((wanted, "more prompts were wanted"), (int(plan.later.sum()), "rollouts were put off")):
                if n:
                    events.append(Event("note", "budget", f"{n} {what}, but the step's budget is spent"))
            return draft
        draft = draft.with_(wanted=wanted)
    events.append(Event("warning", "rounds", f"stopped after {MAX_ROUNDS} rounds with {draft.wanted} still wanted"))
    return draft


def _unrewarded(rollouts: Rollouts, failure: str, n: int) -> str:
    """How many rollouts a failure left without reward, and what was told of the first."""
    told = rollouts.extra.get("failure_text", np.empty(0, object))
    first = next((str(t) for t, f in zip(told, rollouts.failure, strict=False) if f == failure and t), "")
    return f"{n} rollouts got no reward: {failure.replace('_', ' ')}{first and f'; first: {first}'}"


def advance(
    pipeline: Pipeline,
    states: States,
    world: World,
    budget: Budget,
    *,
    step: int,
    seed: int = 0,
    available: np.ndarray | None = None,
    wishes: Wishes = NO_WISH,
) -> tuple[States, Step]:
    """One training step: rounds of select, allocate, amend, generate and reward until nothing more is wanted,
    then replay, score, estimate, update, observe. Returns the new states and the finished step.

    available (N,) bool takes prompts out of the pool; None = all are in. wishes: what is pinned and boosted."""
    clock, events = _Clock(), []
    free = np.ones(len(world.pool), bool) if available is None else available
    draft = _first_draft(budget, step, free, wishes)
    draft = _gather(pipeline, states, world, draft, wishes, seed, clock, events)
    rollouts, plan = draft.rollouts, draft.plan
    if rollouts is None or plan is None:
        raise ValueError(f"step {step}: {type(pipeline.decider('allocate')).__name__} asked for no rollout")
    for m in pipeline.actors("replay"):
        rollouts = _bound(m, "replay", states)(rollouts, draft, generator(seed, step, 0, "replay", m.name))
    clock.lap("decide")
    rollouts = world.score(rollouts, pipeline.needs)
    draft = draft.with_(rollouts=rollouts)
    clock.lap("score")
    advantage = Advantage.start(rollouts)
    for m in pipeline.actors("admit"):
        seen = _seen(m, draft)
        advantage = advantage.drop(~_bound(m, "admit", states)(seen.rollouts, seen), "not_admitted")
    for m in pipeline.actors("estimate"):
        rng = generator(seed, step, 0, "estimate", m.name)
        advantage = estimated(m, states[m.name], advantage, draft, rng)
    clock.lap("estimate")
    loss = _bound(pipeline.decider("loss"), "loss", states)
    penalties = [_bound(m, "penalty", states) for m in pipeline.actors("penalty")]
    update = world.update(rollouts, advantage, loss, penalties)
    clock.lap("update")
    skipped = str(update.get("skipped", ""))
    if skipped:  # a step that kept nothing, such as a probe, had nothing to train: no failure
        level = "failure" if advantage.keep.any() else "note"
        events.append(Event(level, "update", f"the optimiser step was skipped: {skipped}"))
    for what, n in zip(*np.unique(rollouts.failure.astype(str), return_counts=True), strict=True):
        if what:
            events.append(Event("warning", str(what), _unrewarded(rollouts, str(what), int(n)), int(n)))
    fate, reason = fates(rollouts, advantage, skipped and "update_skipped")
    done = Step(step, draft.prompts, plan, rollouts, advantage, fate, reason, update, clock.seconds, tuple(events))
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
