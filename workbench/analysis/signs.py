"""Sign flips: where an estimator pushes a rollout the wrong way, advantages against a better reference, on recorded rollouts.

    signs.compare(store, run, [Grpo(), DrGrpo(), Rloo(), McGrpo()], sizes=(2, 4, 8, 16))

The reference of a prompt is b* = E[reward] under the version and context that made the group (`numerics.flips` defines
the labels). Its kind, best first: pool, 64 or more rollouts of one version, from which groups of every smaller size are
drawn; posterior, a belief held before the group, which gives chances instead of labels; union, the mean over the last
versions, stale; exact, a reward law that is known (`simulate`). Tables of two kinds are never joined.

Every estimator gets the same draws (a method that asks for one rollout more gets that one beside them), and holds the
state that it would have had: it observed the run up to the step. Only rollouts that reach the loss are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from workbench.analysis.sign_labels import RATES, TALLY, Kind, Labels, Rate, Reference, label, rates, tally
from workbench.analysis.sign_references import N_REF, Field, Memory, clusters, pooled
from workbench.analysis.sign_table import Interval, Signs
from workbench.pipeline import States
from workbench.pipeline.draws import generator
from workbench.pipeline.masking import estimated, observed
from workbench.stages import Method
from workbench.types import Advantage, Budget, Draft, Plan, Pool, Rollouts, Step

if TYPE_CHECKING:
    from workbench.store import Store

__all__ = ["N_REF", "RATES", "Interval", "Kind", "Labels", "Rate", "Reference", "Settings", "Signs", "advantages", "compare",
           "label", "labels", "measure", "pooled", "rates", "simulate", "tally"]  # fmt: skip

Estimator: TypeAlias = "Method | Sequence[Method]"
"""A method with `estimate`, or several that act one after the other, as in a pipeline."""


class _Named(NamedTuple):
    """An estimator under the name of its table rows."""

    name: str
    methods: tuple[Method, ...]


def _named(estimators: Mapping[str, Estimator] | Iterable[Estimator]) -> list[_Named]:
    """Estimators by name; without one given, the catalog's name, with the settings that differ from the paper's."""
    named = cast("Mapping[str, Estimator]", estimators).items() if isinstance(estimators, Mapping) else None
    pairs = list(named) if named is not None else [("", e) for e in cast("Iterable[Estimator]", estimators)]
    made = []
    for name, e in pairs:
        methods = (e,) if isinstance(e, Method) else tuple(e)
        if not any("estimate" in m.verbs for m in methods):
            raise ValueError(f"{e!r} does not act at estimate, so it gives no advantage to look at")
        own = [
            m.name + (f"({', '.join(f'{k}={v}' for k, v in m.settings.items())})" if m.settings else "")
            for m in methods
        ]
        made.append(_Named(name or " + ".join(own), methods))
    twice = {m.name for m in made if sum(o.name == m.name for o in made) > 1}
    if twice or not made:
        raise ValueError(f"estimators need names of their own, got {sorted(twice) or 'none'}")
    return made


def advantages(estimator: Estimator, states: States, rollouts: Rollouts, pool: Pool, step: int = 1) -> Advantage:
    """What an estimator says of a table of rollouts, as in a training step; states by method name."""
    methods = (estimator,) if isinstance(estimator, Method) else estimator
    made = Advantage.start(rollouts)
    prompts = np.unique(rollouts.prompt)
    groups, first, n = np.unique(rollouts.group, return_index=True, return_counts=True)
    plan = Plan(rollouts.prompt[first], n, step=step)
    budget = Budget(max(len(groups), 1), max(len(rollouts), len(groups), 1))
    draft = Draft(step, budget, np.ones(len(pool), bool), prompts, plan=plan, rollouts=rollouts)
    for m in methods:
        if "estimate" in m.verbs:
            made = estimated(m, states[m.name], made, draft, generator(0, step, 0, "estimate", m.name))
    return made


def _asked(estimator: _Named, size: int, states: States, pool: Pool) -> int:
    """Rollouts that a group of a size needs: MC-GRPO amends one more."""
    plan = Plan(np.zeros(1, np.int64), np.array([size]))
    draft = Draft(1, Budget(1, size), np.ones(len(pool), bool), np.zeros(1, np.int64))
    for m in estimator.methods:
        if "amend" in m.verbs:
            plan = m.amend(states[m.name], plan, draft, generator(0, 1, 0, "amend", m.name))  # type: ignore[attr-defined]
    return plan.n_rollouts


@dataclass(frozen=True)
class Settings:
    """How rates are measured.

    draws: random groups per cluster and size. n_ref: rollouts of a pool; for union, of the last `versions` versions.
    z: rollouts within z standard errors of a pool or union are ambiguous. keep: weight that a posterior's past keeps
    per group. Only steps after `since` are counted. reward_range maps rewards to the posterior's 0..1."""

    reference: Kind = "pool"
    draws: int = 32
    n_ref: int = N_REF
    z: float = 2.0
    keep: float = 0.9
    versions: int = 8
    since: int = 0
    seed: int = 0
    reward_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        if self.reference not in ("pool", "posterior", "union"):
            raise ValueError(
                f"recorded rollouts give pool, posterior or union, not {self.reference!r}; exact is `simulate`"
            )


def _drawn(cluster: np.ndarray, n_clusters: int, size: int, keys: np.ndarray) -> np.ndarray:
    """Rows of `size` rollouts of every cluster that has so many, those with the smallest keys; grouped by cluster."""
    order = np.lexsort((keys, cluster))
    n = np.bincount(cluster, minlength=n_clusters)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(n) - n, n)
    return order[(rank < size) & (n >= size)[cluster[order]]]


def _measure(named: _Named, states: States, place: Field, pool: Pool, size: int, how: Settings) -> np.ndarray:
    """(C, 13) sums over random groups of every cluster of a step."""
    n_clusters, asked = len(place.prompt), _asked(named, size, states, pool)
    total = np.zeros((n_clusters, len(TALLY)))
    rng = np.random.default_rng([how.seed, place.step, size])
    for _ in range(how.draws):
        rows = _drawn(place.cluster, n_clusters, asked, rng.random(len(place.cluster)))
        if not len(rows):
            return total
        cluster = place.cluster[rows]
        some = place.rollouts.take(rows)
        group = np.unique(cluster, return_inverse=True)[1]
        some = some.with_(group=group, ask=group, purpose=np.full(len(rows), "train", dtype=object))
        made = advantages(named.methods, states, some, pool, place.step)
        found = label(some, made, cluster, place.reference, how.z)
        total += tally(found, made, some.reward, cluster, n_clusters)
    return total


def compare(
    store: Store,
    run: str | None,
    estimators: Mapping[str, Estimator] | Iterable[Estimator],
    sizes: Sequence[int] = (2, 4, 8, 16),
    *,
    reference: Kind = "pool",
    draws: int = 32,
    n_ref: int = N_REF,
    z: float = 2.0,
    keep: float = 0.9,
    versions: int = 8,
    since: int = 0,
    seed: int = 0,
) -> Signs:
    """Rates of every estimator at every group size, on the rollouts that a run has recorded; `Settings` says the rest.

    Raises ValueError where the run holds nothing that this reference could be made of."""
    chosen = run or store.latest()
    pool, _ = store.pool(chosen)
    settings = Settings(reference, draws, n_ref, z, keep, versions, since, seed, _reward_range(store, str(chosen)))
    made = measure(store.steps(chosen, pool), pool, estimators, sizes, settings)
    return replace(made, note=f"run {chosen}; {made.note}")


def _reward_range(store: Store, run: str) -> tuple[float, float]:
    found = store.sql("SELECT min(reward) AS low, max(reward) AS high FROM rollouts WHERE run = $run", {"run": run})
    row = found.to_pylist()[0]
    low, high = min(row["low"] or 0.0, 0.0), max(row["high"] or 0.0, 0.0)
    return low, (high if high > low else low + 1.0)


def measure(
    steps: Iterable[Step],
    pool: Pool,
    estimators: Mapping[str, Estimator] | Iterable[Estimator],
    sizes: Sequence[int] = (2, 4, 8, 16),
    settings: Settings | None = None,
) -> Signs:
    """`compare` on finished steps that are at hand."""
    how = settings or Settings()
    named = _named(estimators)
    methods = {m.name: m for n in named for m in n.methods}
    if len(methods) < len({repr(m) for n in named for m in n.methods}):
        return _one_by_one(list(steps), pool, named, sizes, how)
    states = {name: m.init(pool) for name, m in methods.items()}
    memory = Memory(*how.reward_range, how.keep, how.versions)
    total = {(n.name, g): np.zeros((len(pool), len(TALLY))) for n in named for g in sizes}
    largest, levels, counted = 0, set(), 0
    for step in steps:
        place = pooled(step, how.n_ref) if how.reference == "pool" else memory.field(how.reference, step, how.n_ref)
        largest = max(largest, int(np.bincount(clusters(step.rollouts)[0]).max(initial=0)))
        if place is not None and step.step > how.since:
            counted += 1
            levels |= set(np.unique(place.rollouts.reward).round(12).tolist())
            for n in named:
                for g in sizes:
                    np.add.at(total[n.name, g], place.prompt, _measure(n, states, place, pool, g, how))
        states = {name: observed(m, states[name], step) for name, m in methods.items()}
        memory.observe(step)
    if not counted:
        raise ValueError(
            f"no step has {how.n_ref} rollouts for a {how.reference} reference (at most {largest} of one prompt and "
            "version); record a probe set, lower n_ref, or take reference='posterior'"
        )
    return _table(total, how, counted, len(levels))


def _table(total: dict[tuple[str, int], np.ndarray], how: Settings, counted: int, levels: int) -> Signs:
    """The table of the prompts that were drawn from, without the rows for which no group was large enough."""
    drawn = TALLY.index("draws")
    used = np.any([t[:, drawn] > 0 for t in total.values()], axis=0)
    note = f"{int(used.sum())} prompts in {counted} steps, {how.draws} groups drawn of each"
    empty = [key for key, t in total.items() if not t[:, drawn].any()]
    if empty:
        note += f"; no group was large enough for {', '.join(f'{name} at {g}' for name, g in empty)}"
    return Signs(how.reference, {key: t[used] for key, t in total.items() if key not in empty}, note, levels)


def _one_by_one(steps: list[Step], pool: Pool, named: list[_Named], sizes: Sequence[int], how: Settings) -> Signs:
    """Two settings of one method cannot share a state: one pass each."""
    made = [measure(steps, pool, {n.name: n.methods}, sizes, how) for n in named]
    table = made[0]
    for other in made[1:]:
        table = table.join(other)
    return table


def simulate(
    support: ArrayLike,
    probs: ArrayLike,
    estimators: Mapping[str, Estimator] | Iterable[Estimator],
    sizes: Sequence[int] = (2, 4, 8, 16),
    *,
    groups: int = 2000,
    seed: int = 0,
) -> Signs:
    """The same table where the reward law is known: independent groups of rewards from support (K,) with probs (K,).

    A cluster is a group, all groups of a size share one batch, and the reference is the exact mean. States are fresh."""
    value, p = np.asarray(support, float), np.asarray(probs, float)
    if len(value) != len(p) or (p < 0).any() or abs(p.sum() - 1) > 1e-6:
        raise ValueError(f"{len(value)} values with probabilities that sum to {p.sum():g} are no law")
    ids = np.array([f"group-{i}" for i in range(groups)], dtype=object)
    blank = np.full(groups, "", dtype=object)
    pool = Pool(ids, blank, blank, blank, blank)
    exact = Reference("exact", np.full(groups, value @ p), np.zeros(groups))
    sums = {}
    for n in _named(estimators):
        states = {m.name: m.init(pool) for m in n.methods}
        for g in sizes:
            asked = _asked(n, g, states, pool)
            r = Rollouts.of_plan(Plan(np.arange(groups), np.full(groups, asked), step=1), pool)
            reward = np.random.default_rng([seed, g]).choice(value, (asked, groups), p=p).T.ravel()
            r = r.with_(
                reward=reward, correct=(reward > 0).astype(float), group=r.prompt, length=np.ones(len(r), np.int64)
            )
            made = advantages(n.methods, states, r, pool)
            sums[n.name, g] = tally(label(r, made, r.prompt, exact), made, r.reward, r.prompt, groups)
    return Signs("exact", sums, f"{groups} groups of a known law", len(value))


def labels(
    store: Store, run: str | None = None, *, reference: Kind = "pool", n_ref: int = N_REF, z: float = 2.0,
    keep: float = 0.9, versions: int = 8,
) -> Iterator[Labels]:  # fmt: skip
    """Labels of the run's own training rollouts by the advantages it trained on, step by step; no reference, no row."""
    chosen = run or store.latest()
    pool, _ = store.pool(chosen)
    memory = Memory(*_reward_range(store, str(chosen)), keep, versions)
    for step in store.steps(chosen, pool):
        place = pooled(step, n_ref) if reference == "pool" else memory.field(reference, step, n_ref)
        if place is not None:
            of = {key: int(c) for key, c in zip(_keys(place.rollouts), place.cluster, strict=True)}
            train = np.flatnonzero((step.rollouts.purpose == "train") & (step.rollouts.ask >= 0))
            rows = step.rollouts.take(train)
            cluster = np.array([of.get(key, -1) for key in _keys(rows)], np.int64)
            a = step.advantage
            own = Advantage(a.value[train], a.keep[train], a.weight[train], a.baseline[train], a.reason[train])
            found = label(rows, own, cluster, place.reference, z)
            yield Labels(*(column[cluster >= 0] for column in found))
        memory.observe(step)


def _keys(rollouts: Rollouts) -> list[tuple[int, str, int]]:
    columns = (rollouts.prompt.tolist(), rollouts.context.tolist(), rollouts.version.tolist())
    return list(zip(*columns, strict=True))
